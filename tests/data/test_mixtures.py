from pathlib import Path

import pytest

from gmaflow.data import MIXTURES, open_mixture
from gmaflow.data.augmentation import DENSE_JITTER, SPARSE_JITTER
from gmaflow.errors import DatasetError
from tests.data.trees import sintel


def test_the_stages_are_the_papers() -> None:
    shares = {
        name: [(part.dataset, part.passes, part.repeats) for part in mixture.ingredients]
        for name, mixture in MIXTURES.items()
    }
    assert shares == {
        "chairs": [("chairs", (), 1)],
        "things": [("things", ("clean", "final"), 1)],
        "sintel": [
            ("sintel", ("clean", "final"), 100),
            ("kitti-2015", (), 200),
            ("hd1k", (), 5),
            ("things", ("clean",), 1),
        ],
        "kitti": [("kitti-2015", (), 1)],
    }


@pytest.mark.parametrize(
    ("stage", "crop", "scales", "flip"),
    [
        ("chairs", (368, 496), [(-0.1, 1.0)], 0.5),
        ("things", (400, 720), [(-0.4, 0.8)], 0.5),
        ("sintel", (368, 768), [(-0.2, 0.6), (-0.3, 0.5), (-0.5, 0.2), (-0.2, 0.6)], 0.5),
        ("kitti", (288, 960), [(-0.2, 0.4)], 0.0),
    ],
)
def test_their_augmentations_are_the_published_ones(
    stage: str, crop: tuple[int, int], scales: list[tuple[float, float]], flip: float
) -> None:
    mixture = MIXTURES[stage]
    used = [part.augmentation for part in mixture.ingredients]
    assert mixture.crop == crop
    assert [(a.min_scale, a.max_scale) for a in used] == scales
    assert {a.flip_x for a in used} == {flip}
    for part in mixture.ingredients:
        sparse = part.dataset in ("kitti-2015", "hd1k")
        assert part.augmentation.sparse == sparse
        assert part.augmentation.jitter == (SPARSE_JITTER if sparse else DENSE_JITTER)
        assert part.augmentation.asymmetric == (0.0 if sparse else 0.2)


def test_a_mixture_is_opened_with_its_repeats(tmp_path: Path) -> None:
    mixture = MIXTURES["sintel"].without("kitti-2015", "hd1k", "things").with_crop((32, 40))
    ((dataset, augmentation),) = open_mixture(mixture, {"sintel": sintel(tmp_path)})
    assert len(dataset) == 100 * 2 * 2
    assert augmentation.crop == (32, 40)
    assert MIXTURES["sintel"].crop == (368, 768)


def test_a_missing_data_set_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMAFLOW_CONFIG", str(tmp_path / "none.toml"))
    for name in ("GMAFLOW_DATA", "GMAFLOW_KITTI_2015"):
        monkeypatch.delenv(name, raising=False)
    message = "no folder is set for KITTI 2015.*to leave it out, set without=kitti-2015$"
    with pytest.raises(DatasetError, match=message):
        open_mixture(MIXTURES["sintel"], {"sintel": sintel(tmp_path)})


def test_nothing_left_is_refused() -> None:
    with pytest.raises(DatasetError, match="is empty"):
        MIXTURES["chairs"].without("chairs")
