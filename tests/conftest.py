"""What several tests share: small images, seeded networks, and the real material where it is."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType

import pytest
import torch
from hypothesis import settings
from torch import Tensor

from gmaflow.model import MODELS, FlowNetwork, NetworkConfig, model_config
from gmaflow.scenes import TextureBank
from gmaflow.weights import Checkpoint

# How long an example takes says how busy the machine is.
settings.register_profile("any-speed", deadline=None)
settings.load_profile("any-speed")

if not torch.cuda.is_available():
    # Triton reads it when it is first imported, and runs kernels on the CPU.
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="module", autouse=True)
def no_thread_stays() -> Iterator[None]:
    """Let no thread of ours outlive the file that started it.

    beartype, which checks our functions in tests, draws from Python's global random numbers. A
    thread that goes on would do so in the middle of another file's Hypothesis tests, which takes
    them for tests that are not repeatable.
    """
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("gmaflow")]
    assert not left, f"threads still running at the end of the file: {left}"


@pytest.fixture(scope="module", autouse=True)
def annotations_of_the_fast_back_end(request: pytest.FixtureRequest) -> None:
    """Check the annotations of the fast back end in its own tests only.

    Its layers are called thousands of times for each pair. Elsewhere the checks would take as long
    as everything else.
    """
    from gmaflow.inference.fast import fast_network  # noqa: F401  (loads all of its modules)

    checked = request.path.parent.name == "fast"
    for name, module in list(sys.modules.items()):
        if name.startswith("gmaflow.inference.fast."):
            owners = [module, *(kind for kind in vars(module).values() if isinstance(kind, type))]
            for function in (value for owner in owners for value in vars(owner).values()):
                if isinstance(function, FunctionType) and function.__module__ == name:
                    vars(function)["__no_type_check__"] = not checked  # which jaxtyping looks at


@pytest.fixture(scope="session")
def material() -> Path:
    """The folder of real files that tests may use, never part of the project."""
    folder = os.environ.get("GMAFLOW_MATERIAL")
    if not folder:
        pytest.skip("GMAFLOW_MATERIAL is not set")
    return Path(folder)


@pytest.fixture(scope="session")
def raft_small_file(material: Path) -> Path:
    """A checkpoint as its authors saved it."""
    return material / "checkpoints" / "raft-small.pth"


@pytest.fixture(scope="session")
def small_bank() -> TextureBank:
    """Textures for scenes, few texels each so that they are made at once."""
    return TextureBank.procedural(32)


@pytest.fixture
def few_textures(monkeypatch: pytest.MonkeyPatch, small_bank: TextureBank) -> None:
    """Let every renderer use the small textures."""
    monkeypatch.setattr(TextureBank, "procedural", lambda: small_bank)


@pytest.fixture
def make_network() -> Callable[[str | NetworkConfig], FlowNetwork]:
    """Networks with seeded random weights; attention is switched on by moving alpha from 0."""

    def make(model: str | NetworkConfig) -> FlowNetwork:
        torch.manual_seed(0)
        network = FlowNetwork(model_config(model) if isinstance(model, str) else model).eval()
        if network.aggregate is not None and network.aggregate.alpha is not None:
            torch.nn.init.constant_(network.aggregate.alpha, 0.7)
        if network.continuation is not None:
            torch.nn.init.constant_(network.continuation.alpha, 0.8)
        return network.requires_grad_(False)

    return make


def random_checkpoint(model: str = "raft-small", *, seed: int = 0) -> Checkpoint:
    torch.manual_seed(seed)
    return Checkpoint(config=MODELS[model], tensors=FlowNetwork(MODELS[model]).state_dict())


def random_images(batch: int, height: int, width: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two smooth random images in 0..1, the second a shift of the first."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(batch, 3, height // 4 + 3, width // 4 + 3, generator=generator)
    size = (height + 4, width + 4)
    fine = torch.nn.functional.interpolate(coarse, size, mode="bilinear", align_corners=True)
    return fine[..., :height, :width], fine[..., 2 : 2 + height, 1 : 1 + width]


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder, by their path in it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def without_tyro(folder: Path) -> dict[str, str]:
    """Variables for a process that lacks tyro and the optional libraries."""
    blocked = ("tyro", "av", "h5py", "tensorboard")
    (folder / "sitecustomize.py").write_text(
        f"import sys\nsys.modules.update(dict.fromkeys({blocked}))\n"
    )
    before = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), before]))}
