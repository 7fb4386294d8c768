import logging
from pathlib import Path

import pytest

from gmaflow.data import (
    DATASETS,
    FlowDataset,
    FlowPair,
    dataset_info,
    find_root,
    open_dataset,
    root_variable,
)
from gmaflow.data.dataset import config_path, read_config
from gmaflow.errors import DatasetError
from tests.data.trees import sintel


def some(name: str, count: int) -> FlowDataset:
    place = Path(name)
    pairs = (
        FlowPair(dataset=name, scene="s", frame=str(i), image1=place, image2=place)
        for i in range(count)
    )
    return FlowDataset(name, tuple(pairs))


def test_joining_and_repeating_make_new_values() -> None:
    one, two = some("a", 2), some("b", 1)
    mixed = 3 * one + two * 2
    assert [pair.dataset for pair in mixed] == ["a"] * 6 + ["b"] * 2
    assert [pair.frame for pair in mixed] == ["0", "1"] * 3 + ["0"] * 2
    assert (len(one), len(two), len(mixed)) == (2, 1, 8)
    assert mixed.name == "3 * (a) + 2 * (b)"
    assert mixed[0] is mixed[2]


def test_repeating_no_times_is_refused() -> None:
    with pytest.raises(DatasetError, match="cannot be repeated 0 times"):
        0 * some("a", 1)


def test_pairs_can_be_picked() -> None:
    assert [p.frame for p in some("a", 4).where(lambda pair: pair.frame != "2")] == ["0", "1", "3"]


def test_incomplete_pairs_are_left_out_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "my data"
    sintel(root)
    (root / "training/clean/alley_1/frame_0001.png").unlink()
    with caplog.at_level(logging.WARNING):
        pairs = open_dataset("sintel", root)
    assert [pair.frame for pair in pairs] == ["0002"]
    assert "skipping 1 of 2 pairs because 1 file is missing" in caplog.text
    assert f"gmaflow data check sintel '{root}'" in caplog.text


def test_a_folder_with_nothing_complete_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"has no complete pair of sintel training clean; MPI"):
        open_dataset("sintel", tmp_path)
    with pytest.raises(DatasetError, match=r"sintel test final; MPI Sintel contains test/clean/"):
        open_dataset("sintel", tmp_path, split="test", passes="final")
    sintel(tmp_path, frames=(1, 2))
    (tmp_path / "training/clean/alley_1/frame_0001.png").unlink()
    with pytest.raises(DatasetError, match=r"frame_0001\.png is missing; the pass final is there"):
        open_dataset("sintel", tmp_path)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sintl", {}, "did you mean sintel"),
        ("zzz", {}, "there are chairs, things"),
        ("sintel", {"split": "validation"}, "no split 'validation'; choose from training, test"),
        ("sintel", {"passes": "noisy"}, "no pass 'noisy'; choose from clean, final, albedo"),
        ("chairs", {"passes": "clean"}, "no pass 'clean'; it has only one"),
    ],
)
def test_wrong_wishes_are_answered_with_what_there_is(
    tmp_path: Path, name: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        open_dataset(name, tmp_path, **options)


def test_the_root_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GMAFLOW_SINTEL", str(sintel(tmp_path)))
    assert len(open_dataset("sintel")) == 2


def test_the_order_does_not_depend_on_the_disk(tmp_path: Path) -> None:
    sintel(tmp_path, scene="b")
    sintel(tmp_path, scene="a")
    assert [(p.scene, p.frame) for p in open_dataset("sintel", tmp_path)] == [
        ("a", "0001"),
        ("a", "0002"),
        ("b", "0001"),
        ("b", "0002"),
    ]


@pytest.mark.parametrize("name", DATASETS)
def test_every_set_refuses_an_empty_folder(tmp_path: Path, name: str) -> None:
    message = "download it from" if DATASETS[name].source else "has no complete pair"
    with pytest.raises(DatasetError, match=message):
        open_dataset(name, tmp_path)


def test_a_folder_of_data_sets_is_not_one_of_them(tmp_path: Path) -> None:
    sintel(tmp_path / "Sintel")
    with pytest.raises(DatasetError, match=r"did you mean .*Sintel\?"):
        open_dataset("sintel", tmp_path)


SINTEL = dataset_info("sintel")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config" / "gmaflow" / "data.toml"
    path.parent.mkdir(parents=True)
    return path


def test_the_most_particular_wins(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("option", "variable", "all/Sintel", "table", "config/gmaflow/shelf/sintel"):
        (tmp_path / name).mkdir(parents=True)
    config.write_text(f'data = "shelf"\n[roots]\nsintel = "{tmp_path}/table"\n')
    environ = {
        "GMAFLOW_SINTEL": str(tmp_path / "variable"),
        "GMAFLOW_DATA": str(tmp_path / "all"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert find_root(SINTEL, tmp_path / "option") == tmp_path / "option"
    order = [find_root(SINTEL)]
    for gone in ("GMAFLOW_SINTEL", "GMAFLOW_DATA"):
        monkeypatch.delenv(gone)
        order.append(find_root(SINTEL))
    config.write_text('data = "shelf"')
    order.append(find_root(SINTEL))
    assert order == [
        tmp_path / "variable",
        tmp_path / "all" / "Sintel",
        tmp_path / "table",
        config.parent / "shelf" / "sintel",
    ]


def test_variables_are_named_after_the_data_sets() -> None:
    assert root_variable(dataset_info("kitti-2015")) == "GMAFLOW_KITTI_2015"


def test_an_unset_root_explains_how_to_set_it_and_where_to_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("GMAFLOW_DATA", str(tmp_path))
    monkeypatch.delenv("GMAFLOW_SINTEL", raising=False)
    with pytest.raises(DatasetError) as caught:
        find_root(SINTEL)
    message = str(caught.value)
    for word in ("MPI Sintel", "GMAFLOW_SINTEL", "GMAFLOW_DATA", "data.toml", SINTEL.source):
        assert word in message
    assert "\n" not in message


def test_an_invalid_root_is_named_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GMAFLOW_SINTEL", str(tmp_path / "none"))
    with pytest.raises(DatasetError, match=r"none is not a folder \(GMAFLOW_SINTEL sets it"):
        find_root(SINTEL)


def test_the_config_file_may_lie_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMAFLOW_CONFIG", str(tmp_path / "my.toml"))
    assert config_path() == tmp_path / "my.toml"
    for name in ("GMAFLOW_CONFIG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert config_path().parts[-3:] == (".config", "gmaflow", "data.toml")
    assert read_config(tmp_path / "none.toml") == (None, {})


def test_a_home_that_does_not_exist_is_an_error_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "~nobody-has-this-name/config")
    monkeypatch.delenv("GMAFLOW_CONFIG", raising=False)
    assert not config_path().exists()
    with pytest.raises(DatasetError, match="~nobody-has-this-name/sintel is not a folder"):
        open_dataset("sintel", "~nobody-has-this-name/sintel")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("roots = ", "cannot read"),
        ("roots = 3", "unknown settings"),
        ('dat = "x"', "unknown settings"),
        ('[roots]\nsintl = "x"', "unknown data set 'sintl'"),
        ("[roots]\nsintel = 3", "expected a folder in quotes"),
        ("\udce9", "cannot read"),
    ],
)
def test_a_wrong_config_file_is_refused(config: Path, text: str, message: str) -> None:
    config.write_text(text, errors="surrogateescape")
    with pytest.raises(DatasetError, match=message):
        read_config(config)
