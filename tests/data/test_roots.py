from pathlib import Path

import pytest

from gmaflow.data import dataset_info, find_root, root_variable
from gmaflow.data.roots import config_path, read_config
from gmaflow.errors import DatasetError

SINTEL = dataset_info("sintel")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config" / "gmaflow" / "data.toml"
    path.parent.mkdir(parents=True)
    return path


def test_the_most_particular_wins(tmp_path: Path, config: Path) -> None:
    for name in ("option", "variable", "all/Sintel", "table", "config/gmaflow/shelf/sintel"):
        (tmp_path / name).mkdir(parents=True)
    config.write_text(f'data = "shelf"\n[roots]\nsintel = "{tmp_path}/table"\n')
    environ = {
        "GMAFLOW_SINTEL": str(tmp_path / "variable"),
        "GMAFLOW_DATA": str(tmp_path / "all"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    found = find_root(SINTEL, tmp_path / "option", environ=environ)
    assert found == tmp_path / "option"
    order = [find_root(SINTEL, environ=environ)]
    for gone in ("GMAFLOW_SINTEL", "GMAFLOW_DATA"):
        del environ[gone]
        order.append(find_root(SINTEL, environ=environ))
    config.write_text('data = "shelf"')
    order.append(find_root(SINTEL, environ=environ))
    assert order == [
        tmp_path / "variable",
        tmp_path / "all" / "Sintel",
        tmp_path / "table",
        config.parent / "shelf" / "sintel",
    ]


def test_variables_are_named_after_the_data_sets() -> None:
    assert root_variable(dataset_info("kitti-2015")) == "GMAFLOW_KITTI_2015"


def test_nothing_set_says_how_to_set_it_and_where_it_is_had(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "GMAFLOW_DATA": str(tmp_path)}
    with pytest.raises(DatasetError) as caught:
        find_root(SINTEL, environ=environ)
    message = str(caught.value)
    for word in ("MPI Sintel", "GMAFLOW_SINTEL", "GMAFLOW_DATA", "data.toml", SINTEL.source):
        assert word in message
    assert "\n" not in message


def test_a_root_that_is_none_is_named_with_who_named_it(tmp_path: Path) -> None:
    environ = {"GMAFLOW_SINTEL": str(tmp_path / "none")}
    with pytest.raises(DatasetError, match=r"none is not a folder \(GMAFLOW_SINTEL sets it"):
        find_root(SINTEL, environ=environ)


def test_the_config_file_may_lie_elsewhere(tmp_path: Path) -> None:
    assert config_path({"GMAFLOW_CONFIG": str(tmp_path / "my.toml")}) == tmp_path / "my.toml"
    assert config_path({}).parts[-3:] == (".config", "gmaflow", "data.toml")
    assert read_config(tmp_path / "none.toml").roots == {}


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
