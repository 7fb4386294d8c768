"""The regions of real pairs, held against Sintel's own files."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gmaflow.data import FlowDataset, open_dataset
from gmaflow.evaluation import find_regions


@pytest.fixture(scope="module")
def pairs(material: Path) -> FlowDataset:
    return open_dataset("sintel", material / "realflow" / "sintel", passes="clean")


def test_matched_and_unmatched_are_sintels_own_masks(pairs: FlowDataset) -> None:
    for pair in pairs:
        regions = find_regions(pair.load())
        assert pair.occlusion is not None
        with Image.open(pair.occlusion) as image:
            own = np.asarray(image.convert("L")) > 0
        assert (regions["unmatched"] == own).all()
        assert (regions["matched"] == ~own).all()
        # What leaves the frame is added to occ, and taken from noc.
        assert (regions["occ"] == (own | regions["occ-out"])).all()
        assert (regions["noc"] == (~own & ~regions["occ-out"])).all()


def test_the_figures_of_the_guide(pairs: FlowDataset) -> None:
    pair = next(p for p in pairs if (p.scene, p.frame) == ("alley_1", "0002"))
    regions = find_regions(pair.load())
    guide = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
    for name in ("unmatched", "occ"):
        assert f"{np.count_nonzero(regions[name]):,}" in guide
