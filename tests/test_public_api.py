"""The promised names are there, and importing them is cheap and changes nothing."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import gmaflow

PACKAGES = sorted(
    path.parent.name
    for path in Path(gmaflow.__file__).parent.glob("*/__init__.py")
    if "__all__" in path.read_text()
)


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_every_public_name_exists() -> None:
    for name in gmaflow.__all__:
        assert getattr(gmaflow, name) is not None
    assert set(dir(gmaflow)) == set(gmaflow.__all__)


def test_the_list_of_homes_is_the_list_of_names() -> None:
    assert set(gmaflow._HOMES) | {"__version__"} == set(gmaflow.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_shows_the_names_that_it_promises(package: str) -> None:
    module = import_module(f"gmaflow.{package}")
    shown = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert shown == set(module.__all__)


def test_other_names_are_refused() -> None:
    try:
        _ = gmaflow.teleport
    except AttributeError as err:
        assert "teleport" in str(err)  # noqa: PT017
    else:
        raise AssertionError("gmaflow.teleport exists")


def test_importing_adds_little_to_torch() -> None:
    """All public names together, in CPU time, beyond torch itself."""
    program = (
        "import torch, numpy, time\n"
        "started = time.process_time()\n"
        "import gmaflow\n"
        "for name in gmaflow.__all__: getattr(gmaflow, name)\n"
        "print(time.process_time() - started)"
    )
    # A busy machine makes single runs slower.
    assert any(float(run(program)) < 0.3 for _ in range(8))


def test_importing_changes_nothing() -> None:
    program = (
        "import torch, logging, warnings\n"
        "def state(): return (torch.initial_seed(), torch.get_default_dtype(),\n"
        "    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic,\n"
        "    list(logging.getLogger().handlers), list(logging.getLogger('gmaflow').handlers),\n"
        "    len(warnings.filters), torch.is_grad_enabled(), torch.get_num_threads())\n"
        "before = state()\n"
        "import gmaflow\n"
        "for name in gmaflow.__all__: getattr(gmaflow, name)\n"
        "print(before == state())"
    )
    assert run(program) == "True\n"


def test_heavy_things_load_late() -> None:
    program = (
        "import gmaflow, sys\n"
        "for name in gmaflow.__all__: getattr(gmaflow, name)\n"
        "late = {'av', 'h5py', 'OpenEXR', 'tyro', 'rich', 'scipy', 'jinja2', 'matplotlib'}\n"
        "print(sorted(late & set(sys.modules)))"
    )
    assert run(program) == "[]\n"


MISTAKES = {
    "flow.warp('b.png')": "the second frame is of type str",
    "flow.mean_error('truth.flo')": "the truth is of type str",
    "flow.mean_error(Flow(flow.array * np.nan))": "no valid pixels",
    "Flow([[1, 2]])": "of type list",
    "Flow(flow.array.astype(complex))": "got a flow of complex",
    "Flow(flow.array[:0])": "empty",
    "Flow(flow.array, valid=np.ones((32, 40), np.uint8))": "valid is uint8 (32, 40); use an array",
    "Flow(flow.array, valid=[True])": "valid is of type list",
    "flow.camera(ignore=np.zeros((32, 40), np.uint8))": "ignore is uint8 (32, 40); use an array",
    "flow.camera(ignore='mask.png')": "ignore is of type str",
    "flow.picture(max_length='3')": "max_length is '3'",
    "flow.save(None)": "a path of type NoneType",
    r"flow.save('a\0.flo')": "null byte",
    "flow.save('flow_x.jpg', bound='20')": "a bound of 20 pixels",
    "gmaflow.read_flow(5)": "a path of type int",
    "gmaflow.flow_to_image(flow)": "of type Flow; give a numpy array",
    "estimator(images, images)": "for tensors use `FlowEstimator.batch`",
    "estimator.batch(images.to('meta'), images.to('meta'))": "dense tensor",
    "estimator.batch(images.to_sparse(), images)": "dense tensor",
    "estimator.batch(torch.nested.as_nested_tensor(images), images)": "dense tensor",
    "estimator.consecutive([np.zeros((32, 40, 3), np.uint8)])": "at least two",
    "estimator.consecutive(None)": "the frames are of type NoneType",
    "list(estimator.track([array, array], points='x'))": "the points are not numbers",
    "list(estimator.track([array, array], reference='a'))": "there is no frame 'a'",
    "list(estimator.track([array, array], cut_threshold='x'))": "cut_threshold is 'x'",
    "list(estimator.track([array, array], cut_threshold=np.nan))": "cut_threshold is nan",
    "list(estimator.track([array, array], watch=3))": "watch is int; give a function",
    "estimator(array, array, watch='x')": "watch is str; give a function",
    "estimator.batch(images, images, watch=[])": "watch is list; give a function",
    "gma.attention(array, (1, 2))": "give x and y of each",
    "gma.attention(array, 'x')": "give x and y of each",
    "estimator.bidirectional(array, array, scale=0)": "scale is 0; give a number above 0",
    "gmaflow.FlowEstimator(checkpoint, iters=True)": "iters is True",
    "gmaflow.FlowEstimator(checkpoint, max_memory=1)": "1 means bytes",
    "gmaflow.FlowEstimator(checkpoint, plan='x')": "the plan is of type str; use a MemoryPlan",
    "gmaflow.FlowEstimator(model=5)": "unknown model 5",
    "gmaflow.FlowEstimator.from_pretrained(None)": "a path of type NoneType",
    "network(255 * images, images)": "values from 0 to 2",
    "network(2 * images - 1, images)": "values from -1 to 1; scale them to 0..1",
    "network(images * float('nan'), images)": "contain NaN",
    "network(images.byte(), images.byte())": "divide them by 255",
    "network(images[:0], images[:0])": "empty",
    "network(images, images, iters=0)": "iters is 0",
    "network(array, array)": "[b, 3, height, width], not of type ndarray",
    "gmaflow.FlowNetwork('gma')": "give a config, such as MODELS['gma']",
    "gmaflow.save_checkpoint('a.safetensors', network)": "a FlowNetwork cannot be saved",
    "gmaflow.warp(images[..., :0, :], flows[..., :0, :])": "empty",
    "gmaflow.warp(images, flows.to('meta'))": "put both on one device",
    "gmaflow.sample(images, images)": "use points [b, ..., 2]",
    "gmaflow.compose(flow.array, flow.array)": "the first flow is ndarray",
    "gmaflow.compose(flows, flows[..., :8])": "use two flows [b, 2, h, w] of one size",
    "gmaflow.Padding.to_stride(0, 8)": "cannot be padded",
    "gmaflow.Padding.to_stride('5', 8)": "cannot be padded",
    "gmaflow.Padding.to_stride(61, 90).pad(array)": "use a tensor",
    "gmaflow.Padding.to_stride(61, 90).crop(None)": "the images are NoneType; use a tensor",
}


def test_a_callers_mistake_is_a_flow_error(tmp_path: Path) -> None:
    """In a process of its own, without the checks of annotations that the tests install."""
    program = (
        "import json, sys\n"
        "import numpy as np, torch, gmaflow\n"
        "from gmaflow import Checkpoint, Flow, FlowNetwork, MODELS\n"
        "def made(name):\n"
        "    network = FlowNetwork(MODELS[name]).eval()\n"
        "    return Checkpoint(config=network.config, tensors=network.state_dict())\n"
        "checkpoint = made('raft-small')\n"
        "network = checkpoint.build()\n"
        "estimator = gmaflow.FlowEstimator(checkpoint, iters=1, device='cpu')\n"
        "gma = gmaflow.FlowEstimator(made('gma'), iters=1, device='cpu')\n"
        "flow = Flow(np.ones((32, 40, 2), np.float32))\n"
        "array, images = np.zeros((32, 40, 3), np.uint8), torch.zeros(1, 3, 32, 40)\n"
        "images[..., :20], flows = 1, torch.zeros(1, 2, 32, 40)\n"
        "for mistake, message in json.load(sys.stdin).items():\n"
        "    try:\n"
        "        eval(mistake)\n"
        "        print(mistake, 'is accepted')\n"
        "    except Exception as err:\n"
        "        if not isinstance(err, gmaflow.FlowError) or message not in str(err):\n"
        "            print(mistake, type(err), err)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(MISTAKES),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []
