import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gmaflow.errors import FlowError
from gmaflow.inference import FlowEstimator
from gmaflow.inference.padding import Padding, PaddingKind, as_padding_kind

sides = st.integers(1, 70)


@given(sides, sides, st.sampled_from(["sintel", "kitti"]))
def test_padding_then_cropping_is_nothing(height: int, width: int, kind: PaddingKind) -> None:
    images = torch.rand(2, 3, height, width)
    padding = Padding.of_kind(kind, height, width)
    padded = padding.pad(images)
    assert padded.shape[-2] % 8 == padded.shape[-1] % 8 == 0
    assert padded.shape[-2] - height < 8
    assert torch.equal(padding.crop(padded), images)


def test_it_is_split_as_published_and_repeats_the_border() -> None:
    padding = Padding.to_stride(436, 1021)
    assert padding == Padding(left=1, right=2, top=2, bottom=2)
    padded = Padding(1, 2, 0, 1).pad(torch.tensor([[[[1.0, 2.0]]]]))
    assert padded.tolist() == [[[[1, 1, 2, 2, 2], [1, 1, 2, 2, 2]]]]


def test_kitti_grows_at_the_bottom_alone() -> None:
    assert Padding.of_kind("kitti", 370, 1226) == Padding(left=3, right=3, top=0, bottom=6)
    assert Padding.of_kind("sintel", 370, 1226) == Padding(left=3, right=3, top=3, bottom=3)


@pytest.mark.parametrize("kind", ["KITTI", ""])
def test_another_kind_is_refused(kind: str) -> None:
    with pytest.raises(FlowError, match="give one of sintel, kitti"):
        as_padding_kind(kind)
    blank = FlowEstimator.__new__(FlowEstimator)
    with pytest.raises(FlowError, match="padding"):
        FlowEstimator.__init__.__wrapped__(blank, padding=kind)  # type: ignore[attr-defined]
