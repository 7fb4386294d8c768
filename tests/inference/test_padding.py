import torch
from hypothesis import given
from hypothesis import strategies as st

from gmaflow.inference.padding import Padding

sides = st.integers(1, 70)


@given(sides, sides)
def test_padding_then_cropping_is_nothing(height: int, width: int) -> None:
    images = torch.rand(2, 3, height, width)
    padding = Padding.to_stride(height, width)
    padded = padding.pad(images)
    assert padded.shape[-2] % 8 == padded.shape[-1] % 8 == 0
    assert padded.shape[-2] - height < 8
    assert torch.equal(padding.crop(padded), images)


def test_it_is_split_as_published_and_repeats_the_border() -> None:
    padding = Padding.to_stride(436, 1021)
    assert padding == Padding(left=1, right=2, top=2, bottom=2)
    padded = Padding(1, 2, 0, 1).pad(torch.tensor([[[[1.0, 2.0]]]]))
    assert padded.tolist() == [[[[1, 1, 2, 2, 2], [1, 1, 2, 2, 2]]]]
