from itertools import islice

import pytest
import torch

from gmaflow.data import Batch
from gmaflow.training.side_stream import AHEAD, SideStream
from gmaflow.training.sources import SceneSource, from_scenes, open_source
from tests.training.conftest import tiny_batch, tiny_config


def test_without_a_gpu_work_is_done_at_once() -> None:
    batch = tiny_batch(1, seed=0, size=(32, 40))
    assert SideStream(torch.device("cpu")).make(lambda: batch) is batch


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_what_is_rendered_beside_other_work_is_whole_when_it_is_read() -> None:
    device = torch.device("cuda")
    source = open_source(tiny_config(), device)
    assert isinstance(source, SceneSource)
    count = 3 * AHEAD
    expected = [from_scenes(source.renderer.render(2 * k, 2)) for k in range(count)]
    matrix = torch.randn(4096, 4096, device=device)
    found = []
    for batch in islice(source.batches(0), count):
        for _ in range(20):  # the stream that reads is behind, the one that renders is not
            matrix = torch.nn.functional.normalize(matrix @ matrix)
        found.append(Batch(*(tensor.clone() for tensor in batch)))
        del batch
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        for name, a, b in zip(Batch._fields, one, other, strict=True):
            assert torch.equal(a, b), f"{name} of batch {number}"
