"""Recorded calls give the same flow, from any thread and whatever is recorded in between."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Unpack
from weakref import WeakSet

import pytest
import torch
from torch import Tensor

from gmaflow.inference.engine import make_runner
from gmaflow.inference.fast import FastNetwork
from gmaflow.inference.fast.recorded_network import MAX_RECORDINGS, RecordedNetwork
from gmaflow.model import FlowNetwork, MatchOptions, MemoryPlan, NetworkConfig, Prediction
from gmaflow.runtime.cuda_graphs import Replay, Run, Tensors
from tests.conftest import random_images

Make = Callable[[str | NetworkConfig], FlowNetwork]
SIZES = [(48, 64), (64, 48), (40, 40), (16, 96), (56, 56)]

pytestmark = pytest.mark.usefixtures("no_gradients")


def needs_gpu(test: Callable[..., None]) -> Callable[..., None]:
    missing = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    return pytest.mark.gpu(missing(test))


def run(runner: RecordedNetwork, size: tuple[int, int], *, seed: int = 0) -> Tensor:
    images = [image.cuda() for image in random_images(1, *size, seed=seed)]
    return runner(*images, iters=3, plan=MemoryPlan()).flow


@pytest.fixture
def runner(make_network: Make) -> RecordedNetwork:
    made = make_runner(make_network("gma").cuda(), torch.float32, "fast")
    assert isinstance(made, RecordedNetwork)
    return made


@needs_gpu
def test_recordings_do_not_overwrite_each_other(runner: RecordedNetwork) -> None:
    expected = {size: run(runner, size) for size in SIZES}
    for _ in range(3):
        for size in SIZES[:MAX_RECORDINGS]:
            torch.testing.assert_close(run(runner, size), expected[size], atol=1e-3, rtol=1e-3)


@needs_gpu
def test_a_result_stays_when_the_next_is_computed(runner: RecordedNetwork) -> None:
    for _ in range(2):
        run(runner, SIZES[0])
    first = run(runner, SIZES[0], seed=1)
    kept = first.clone()
    run(runner, SIZES[0], seed=2)
    assert torch.equal(first, kept)


@needs_gpu
def test_threads_and_streams_may_share_it(runner: RecordedNetwork) -> None:
    expected = [run(runner, SIZES[0], seed=seed) for seed in range(8)]

    def on_own_stream(seed: int) -> Tensor:
        with torch.inference_mode(), torch.cuda.stream(torch.cuda.Stream()):
            actual = run(runner, SIZES[0], seed=seed)
            torch.cuda.current_stream().synchronize()
            return actual

    with ThreadPoolExecutor(4) as threads:
        actual = list(threads.map(on_own_stream, range(8)))
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)


@needs_gpu
@pytest.mark.parametrize("model", ["gma", "gma-p", "gma-affine", "raft-small"])
@pytest.mark.parametrize("stored", [True, False])
def test_half_precision_is_close(model: str, stored: bool, make_network: Make) -> None:
    network = make_network(model).cuda()
    images = [image.cuda() for image in random_images(2, 128, 160)]
    plan = MemoryPlan(store_correlation=stored, store_attention=stored)
    expected = network(*images, iters=4).flow
    half = make_runner(network, torch.float16, "fast")
    for _ in range(3):
        actual = half(*images, iters=4, flow_init=None, plan=plan).flow
        assert (actual - expected).norm(dim=1).mean() < 0.02 * expected.norm(dim=1).mean() + 0.02


@needs_gpu
def test_segments_stop_where_the_network_stops(make_network: Make) -> None:
    network = make_network("gma").cuda()
    images = [image.cuda() for image in random_images(2, 64, 96)]
    changes: list[float] = []
    last = torch.zeros(())

    def watch(_number: int, flow: Tensor, _hidden: Tensor) -> None:
        nonlocal last
        changes.append(8 * float((flow - last).norm(dim=1).mean()))
        last = flow

    network(*images, iters=12, on_iteration=watch)
    settled = (changes[5] + changes[7]) / 2  # between the changes of two checks
    expected = network(*images, iters=12, settled=settled)
    runner = make_runner(network, torch.float32, "fast")
    for _ in range(4):
        actual = runner(*images, iters=12, settled=settled)
        assert actual.iterations == expected.iterations
        torch.testing.assert_close(actual.flow, expected.flow, atol=1e-2, rtol=1e-2)


@needs_gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_only_reading_minmax_synchronizes(make_network: Make) -> None:
    runner = make_runner(make_network("gma").cuda(), torch.float16, "fast")
    images = [image.cuda() for image in random_images(1, 64, 96)]
    for _ in range(2):
        runner(*images, iters=2)
    try:
        torch.cuda.set_sync_debug_mode("error")
        found = runner(*images, iters=2)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert found.minmax is not None
    minmax = torch.stack([x for part in (found.flow, *images) for x in torch.aminmax(part)])
    assert torch.equal(found.minmax, minmax)


class Tape:
    """A recorder that replays by running again; can fail, as drivers do."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.tried = self.replayed = 0
        self.held: WeakSet[Replay] = WeakSet()

    def record(self, run: Run, inputs: Tensors) -> Replay:
        self.tried += 1
        run(*(torch.empty_like(x) for x in inputs))
        if self.fails:
            raise RuntimeError("operation not permitted when stream is capturing")

        def replay(*tensors: Tensor) -> Tensors:
            self.replayed += 1
            return tuple(run(*tensors))

        self.held.add(replay)
        return replay


@pytest.fixture
def network(make_network: Make) -> FastNetwork:
    return FastNetwork(make_network("raft-small"))


def test_the_second_call_is_recorded_and_the_third_replayed(network: FastNetwork) -> None:
    tape = Tape()
    recorded = RecordedNetwork(network, tape.record)
    images = random_images(1, 32, 40)
    expected = network(*images, iters=2).flow
    for replayed in range(4):
        assert torch.equal(recorded(*images, iters=2).flow, expected)
        assert tape.replayed == replayed
    assert tape.tried == 1


class Tuned(FastNetwork):
    """A network that notes whether cuDNN guesses or benchmarks its algorithms."""

    seen: list[str]

    def __call__(self, image1: Tensor, image2: Tensor, **how: Unpack[MatchOptions]) -> Prediction:
        cudnn = torch.backends.cudnn
        kind = {(False, True): "guess", (True, False): "benchmark"}
        self.seen.append(kind.get((cudnn.benchmark, cudnn.deterministic), "neither"))
        return super().__call__(image1, image2, **how)


def test_cudnn_guesses_in_first_calls_and_benchmarks_before_recording(make_network: Make) -> None:
    network = Tuned(make_network("raft-small"))
    network.seen = []
    recorded = RecordedNetwork(network, Tape().record)
    before = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    for size in SIZES[:2]:
        for _ in range(2):
            recorded(*random_images(1, *size), iters=1)
        # A run before the recording, the recording, and the replay, which runs nothing on a GPU.
        assert network.seen == ["guess", "benchmark", "benchmark", "neither"]
        network.seen.clear()
    assert (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == before


def test_a_call_that_cannot_be_recorded_runs_directly(network: FastNetwork) -> None:
    tape = Tape(fails=True)
    recorded = RecordedNetwork(network, tape.record)
    images = random_images(1, 32, 40)
    expected = network(*images, iters=2).flow
    for _ in range(4):
        assert torch.equal(recorded(*images, iters=2).flow, expected)
    frame = recorded.encode_frame(images[0])
    for one, other in zip(frame, network.encode_frame(images[0]), strict=True):
        assert torch.equal(one, other)
    assert (tape.tried, tape.replayed) == (1, 0)


def test_an_initial_flow_is_read_anew_in_every_replay(network: FastNetwork) -> None:
    tape = Tape()
    recorded = RecordedNetwork(network, tape.record)
    first, second = (network.encode_frame(image) for image in random_images(1, 32, 40))
    for shift in range(4):
        guess = torch.full((1, 2, 4, 5), float(shift))
        expected = network.match(first, second.features, iters=2, flow_init=guess)
        actual = recorded.match(first, second.features, iters=2, flow_init=guess)
        assert torch.equal(actual.flow, expected.flow)
    assert tape.replayed == 3


def test_a_watched_call_is_not_recorded(network: FastNetwork) -> None:
    tape = Tape()
    recorded = RecordedNetwork(network, tape.record)
    seen: list[int] = []
    for _ in range(3):
        recorded(*random_images(1, 32, 40), iters=2, on_iteration=lambda n, *_: seen.append(n))
    assert (seen, tape.tried) == ([1, 2] * 3, 0)


def test_the_least_recently_used_recording_is_dropped(network: FastNetwork) -> None:
    tape = Tape()
    recorded = RecordedNetwork(network, tape.record)
    images = random_images(1, 32, 40)
    for iters in range(1, MAX_RECORDINGS + 2):
        recorded(*images, iters=iters)
    recorded(*images, iters=1)
    assert tape.tried == 0
    recorded(*images, iters=1)
    assert tape.tried == 1


def test_an_error_of_the_call_itself_is_not_hidden(network: FastNetwork) -> None:
    recorded = RecordedNetwork(network, Tape().record)
    for _ in range(3):
        with pytest.raises(ValueError, match="multiples of 8"):
            recorded(*random_images(1, 33, 40), iters=1)


def test_a_watcher_may_estimate_another_pair(network: FastNetwork) -> None:
    recorded = RecordedNetwork(network, Tape().record)
    images = random_images(1, 32, 40)
    found: list[Tensor] = []

    def watch(_number: int, *_state: Tensor) -> None:
        found.append(recorded(*images, iters=1).flow)

    # On a thread that can be abandoned: a deadlock would block the test.
    thread = Thread(
        target=torch.inference_mode()(lambda: recorded(*images, iters=2, on_iteration=watch)),
        daemon=True,
    )
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive()
    for flow in found:
        assert torch.equal(flow, network(*images, iters=1).flow)
    assert len(found) == 2


class Crowded(FastNetwork):
    """A network without memory for more than one pair in addition to recordings."""

    tape = Tape()
    error: RuntimeError

    def __call__(self, image1: Tensor, image2: Tensor, **how: Unpack[MatchOptions]) -> Prediction:
        if len(image1) > 1 and self.tape.held:
            raise self.error
        return super().__call__(image1, image2, **how)


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("recordings have it"), RuntimeError("Triton Error: out of memory")],
)
def test_recordings_are_dropped_if_a_call_runs_out_of_memory(
    make_network: Make, error: RuntimeError
) -> None:
    network = Crowded(make_network("raft-small"))
    network.error = error
    recorded = RecordedNetwork(network, network.tape.record)
    one, two = random_images(1, 32, 40), random_images(2, 32, 40)
    expected = network(*two, iters=1).flow
    for _ in range(2):
        recorded(*one, iters=1)
    assert len(network.tape.held) == 1
    assert torch.equal(recorded(*two, iters=1).flow, expected)
    assert len(network.tape.held) == 0
