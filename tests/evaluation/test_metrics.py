import json
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gmaflow.data import FlowDataset, FlowSample, open_dataset
from gmaflow.errors import DatasetError
from gmaflow.evaluation import find_regions
from gmaflow.evaluation.metrics import (
    DEPTH,
    REGIONS,
    SHOWN_BY,
    Averaging,
    ErrorSums,
    averaging_of,
    boundary_of,
    finite_or_null,
    measure,
)
from tests.evaluation import plain
from tests.evaluation.samples import make_sample, random_case

NAN = pytest.approx(np.nan, nan_ok=True)


def constant(value: tuple[float, float], size: tuple[int, int] = (2, 4)) -> np.ndarray:
    return np.broadcast_to(np.array(value, np.float32), (*size, 2)).copy()


def test_an_estimate_3_right_and_4_down_of_the_truth_is_5_off() -> None:
    figures = measure(constant((3, 4)), make_sample(constant((0, 0)))).figures("pixels")["all"]
    assert figures.epe == 5
    assert (figures.px1, figures.px3, figures.px5, figures.fl) == (100, 100, 0, 100)
    assert (figures.pixels, figures.images) == (8, 1)


def test_an_error_of_4_on_a_motion_of_100_is_no_outlier_to_kitti() -> None:
    figures = measure(constant((104, 0)), make_sample(constant((100, 0)))).figures("images")["all"]
    assert (figures.epe, figures.px3, figures.fl) == (4, 100, 0)


def test_by_hand_in_every_region() -> None:
    # Eight pixels in a row; the first two are hidden, the last leaves the frame.
    flow = np.zeros((1, 8, 2), np.float32)
    flow[0, 3, 0] = 2.0
    flow[0, 7] = (50, 0)
    flow[0, 4] = (0, 0.5)
    hidden = np.zeros((1, 8), bool)
    hidden[0, :2] = True
    sample = make_sample(flow, occluded=hidden)
    estimate = flow.copy()
    estimate[0, :, 1] += np.arange(8)
    epe = {name: f.epe for name, f in measure(estimate, sample).figures("pixels").items()}
    assert epe == {
        "all": 3.5,
        "noc": 4.0,  # pixels 2 to 6
        "occ": (0 + 1 + 7) / 3,
        "occ-in": 0.5,
        "occ-out": 7.0,
        "occ<1": (0 + 1 + 7) / 3,
        "occ-in<1": 0.5,
        "occ-out<1": 7.0,
        **dict.fromkeys((name for name in DEPTH if not name.endswith("<1")), NAN),
        "matched": 4.5,  # pixels 2 to 7: the mask knows nothing of what leaves the frame
        "unmatched": 0.5,
        "s0-10": 3.0,
        "s10-40": NAN,
        "s40+": 7.0,
        "d0-10": 4.0,
        "d10-60": NAN,
        "d60-140": NAN,
    }


def test_depths_of_a_hand_made_hole() -> None:
    # Columns 0 to 39 are hidden: column x is 40 - x pixels from the first visible one.
    sample = make_sample(constant((0, 0), (6, 60)), occluded=np.arange(60) < np.full((6, 1), 40))
    regions = find_regions(sample)
    columns = {name: np.nonzero(regions[name][0])[0].tolist() for name in DEPTH[:3]}
    assert columns == {
        "occ<1": list(range(33, 40)),  # 1 to 7 pixels
        "occ 1-3": list(range(16, 33)),  # 8 to 24
        "occ>3": list(range(16)),
    }


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0, 1))
def test_depths_partition_the_hidden_pixels(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    flow = rng.normal(0, 20, (40, 50, 2)).astype(np.float32)
    blocks = np.kron(rng.random((2, 2)) < share, np.ones((20, 25), bool))
    sample = make_sample(flow, valid=rng.random((40, 50)) > 0.2, occluded=blocks)
    regions = find_regions(sample)
    for whole in ("occ", "occ-in", "occ-out"):
        parts = [regions[name] for name in (f"{whole}<1", f"{whole} 1-3", f"{whole}>3")]
        assert (np.sum(parts, axis=0) == regions[whole]).all()


def test_each_region_is_in_one_of_the_short_tables() -> None:
    assert set(SHOWN_BY["region"]) | set(SHOWN_BY["depth"]) == set(REGIONS)
    assert not set(SHOWN_BY["region"]) & set(DEPTH)


def test_kitti_averages_images_where_sintel_averages_pixels() -> None:
    few = np.zeros((2, 4), bool)
    few[0, 0] = True
    much = measure(constant((8, 0)), make_sample(constant((0, 0)), valid=few))
    little = measure(constant((1, 0)), make_sample(constant((0, 0))))
    both = much + little
    assert both.figures("images")["all"].epe == 4.5
    assert both.figures("pixels")["all"].epe == pytest.approx((8 + 8 * 1) / 9)
    assert both.figures("images")["all"].px3 == pytest.approx(100 / 9)


def test_the_benchmarks_have_their_own_averages() -> None:
    assert averaging_of("sintel") == averaging_of("chairs") == "pixels"
    assert averaging_of("kitti-2015") == "images"


def test_without_a_mask_only_regions_of_the_truth_are_measured() -> None:
    figures = measure(constant((1, 0)), make_sample(constant((1, 0)))).figures("pixels")
    assert set(figures) == {"all", "occ-out", "s0-10", "s10-40", "s40+"}


def test_a_pair_without_a_valid_pixel_changes_no_average() -> None:
    empty = measure(constant((1, 0)), make_sample(constant((0, 0)), valid=np.zeros((2, 4), bool)))
    assert np.isnan(empty.figures("images")["all"].epe)
    both = empty + measure(constant((2, 0)), make_sample(constant((0, 0))))
    assert both.figures("images")["all"].epe == 2


def test_no_truth_and_another_size_are_refused() -> None:
    image = np.zeros((2, 4, 3), np.uint8)
    with pytest.raises(DatasetError, match="gmaflow submit"):
        measure(constant((0, 0)), FlowSample(image1=image, image2=image))
    with pytest.raises(DatasetError, match="differ in size: 3x4 and 2x4"):
        measure(constant((0, 0), (3, 4)), make_sample(constant((0, 0))))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_estimate_that_is_no_number_is_refused_where_it_counts(value: float) -> None:
    estimate, sample = constant((0, 0)), make_sample(constant((0, 0)))
    assert sample.valid is not None
    sample.valid[0, 0] = False
    estimate[0, 0] = value
    assert measure(estimate, sample).figures("pixels")["all"].epe == 0
    estimate[1, 1] = value
    with pytest.raises(DatasetError, match="not finite"):
        measure(estimate, sample)


@settings(max_examples=12)
@given(seeds=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=3))
def test_figures_are_those_of_the_plain_implementation(seeds: list[int]) -> None:
    cases = [random_case(seed, size=(13, 17)) for seed in seeds]
    sums = reduce(ErrorSums.__add__, (measure(*case) for case in cases))
    averagings: tuple[Averaging, ...] = ("pixels", "images")
    for region in REGIONS:
        expected = plain.figures(cases, region)
        for averaging in averagings:
            found = sums.figures(averaging)[region]
            assert found.epe == pytest.approx(expected[averaging], nan_ok=True), region
        for name in ("px1", "px3", "px5", "fl"):
            assert getattr(found, name) == pytest.approx(expected[name], nan_ok=True), region


@settings(max_examples=20)
@given(seeds=st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=6), cut=st.integers(0, 6))
def test_two_halves_are_the_whole(seeds: list[int], cut: int) -> None:
    parts = [measure(*random_case(seed)) for seed in seeds]
    whole = sum(parts, ErrorSums.none())
    halves = sum(parts[:cut], ErrorSums.none()) + sum(parts[cut:], ErrorSums.none())
    assert halves.table == pytest.approx(whole.table)
    assert (halves.histogram == whole.histogram).all()


def test_the_histogram_counts_every_valid_pixel_once() -> None:
    estimate, sample = random_case(3)
    assert sample.valid is not None
    sums = measure(estimate, sample)
    assert sums.histogram.sum() == sample.valid.sum()
    assert sums.histogram[0] == np.count_nonzero(
        np.linalg.norm(estimate.astype(float) - sample.flow, axis=2)[sample.valid] < 0.1
    )


def test_sums_survive_json_exactly() -> None:
    sums = measure(*random_case(5))
    again = ErrorSums.from_json(json.loads(json.dumps(sums.as_json())))
    assert (again.table == sums.table).all()
    assert (again.histogram == sums.histogram).all()


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32 - 1),
    height=st.integers(1, 14),
    width=st.integers(1, 14),
    share=st.floats(0, 1),
)
def test_a_boundary_is_what_trying_all_neighbours_gives(
    seed: int, height: int, width: int, share: float
) -> None:
    mask = np.random.default_rng(seed).random((height, width)) < share
    assert (boundary_of(mask) == plain.boundary(mask)).all()


def test_the_border_of_the_image_is_no_boundary() -> None:
    assert not boundary_of(np.ones((3, 4), bool)).any()


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


def test_json_holds_figures_without_nan_and_infinity() -> None:
    figures = finite_or_null({"a": 1.5, "b": np.nan, "c": -np.inf})
    assert json.loads(json.dumps(figures, allow_nan=False)) == {"a": 1.5, "b": None, "c": None}
