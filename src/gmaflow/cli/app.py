"""`gmaflow VERB ...`: find the verb and run it; errors become one sentence and exit code 2."""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

from gmaflow.errors import FlowError, run_as_program, suggest
from gmaflow.version import __version__

VERBS = {
    "flow": "estimate the flow of a pair of images, or of a folder of frames",
    "video": "estimate the flow of a video, as a video or as files",
    "batch": "estimate the flow of many clips, on many GPUs or machines",
    "score": "measure how much moves in videos, one row for each",
    "track": "find where points of one frame are in every other frame of a video",
    "convert": "draw flow files, or write them in another format",
    "demo": "try it on a built-in scene whose true motion is known",
    "data": "list the data sets, or check whether one is complete and intact",
    "scenes": "render training pairs with exact flow, and look at them",
    "train": "train a network on rendered scenes or on data sets",
    "evaluate": "measure the error of the flow on data with known motion",
    "compare": "compare several networks on the same data, with confidence intervals",
    "tables": "put training runs into the paper's tables of variants and ablations",
    "submit": "write submissions for the servers of Sintel, KITTI and Spring",
    "bench": "measure speed and memory, also against other implementations",
    "export": "export a network for other programs (ONNX, torch.export)",
    "serve": "serve a web page and an HTTP API",
    "weights": "list, show, convert or average network weights",
}
"""Each verb is a module of that name in this package, with a function `main(args)`."""

WAIT_POLICY = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "GOMP_SPINCOUNT": "0"}
"""Idle threads of OpenMP sleep instead of spinning, which on a busy machine takes the time of the
threads they wait for. The last two are for the runtimes of Intel and GNU."""
IDLE_SPINS = "3000"
"""GOMP_SPINCOUNT on an idle machine: waking a thread takes longer than most waits."""
IDLE_LOAD = 0.5

ABOUT = """
Optical flow: the motion of every pixel between two frames, including hidden ones.
"""
EXAMPLES = """
examples:
  gmaflow demo -o demo                          see what it does
  gmaflow flow a.png b.png -o flow.png          flow of two images, as a picture
  gmaflow flow a.png b.png -o flow.flo          the same, as numbers
  gmaflow flow frames/ -o flow/                 flow between consecutive frames
  gmaflow video in.mp4 -o flow.mp4              flow of a video
  gmaflow batch videos/ -o flow/                flow of every video, on all GPUs
  gmaflow track in.mp4 -o trails.mp4            where every point goes
  gmaflow convert flow.flo -o flow.png          a flow file, as a picture
  gmaflow serve                                 drop images on a page in the browser

Tab completes commands, options and files after
  source <(gmaflow --print-completion bash)     or zsh; put it into ~/.bashrc or ~/.zshrc"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; exits with 0, with 1 if a part was skipped, or 2 on bad input."""
    set_wait_policy()
    run_as_program(run, None if argv is None else list(argv))


def set_wait_policy() -> None:
    """Set how idle threads wait, before torch reads it; variables that are set stay."""
    if "torch" not in sys.modules and not any(name in os.environ for name in WAIT_POLICY):
        os.environ.update(WAIT_POLICY)
        if is_idle():
            os.environ["GOMP_SPINCOUNT"] = IDLE_SPINS


def is_idle() -> bool:
    """Return whether other processes have left the machine's cores alone in the last minute."""
    try:
        return os.getloadavg()[0] < IDLE_LOAD
    except (AttributeError, OSError):  # not on Windows
        return False


def run(args: list[str]) -> None:
    """Run the verb that the arguments name."""
    if args and args[0] in ("-V", "--version"):
        print(f"gmaflow {__version__}")
        return
    if args and args[0] == "--print-completion":
        from gmaflow.cli.completion import make_script

        print(make_script(*args[1:2]))
        return
    verb, rest = pick(args, VERBS, command="gmaflow", about=ABOUT, more=EXAMPLES)
    if verb is None:
        return
    try:
        module = import_module(f"gmaflow.cli.{verb}")
    except ModuleNotFoundError as err:
        if err.name != "tyro":  # `train`, `bench` and `batch` work without it
            raise
        raise FlowError(f"`gmaflow {verb}` needs tyro; run `pip install tyro`") from None
    module.main(rest)


def pick(
    args: list[str],
    choices: Mapping[str, str],
    *,
    command: str,
    about: str = "",
    more: str = "",
    what: str = "command",
) -> tuple[str | None, list[str]]:
    """Split off the first argument, one of the choices; None after printing help."""
    if not args or args[0] in ("-h", "--help", "help"):
        width = max(9, *(len(name) + 2 for name in choices))
        listed = "\n".join(f"  {name:<{width}}{summary}" for name, summary in choices.items())
        kind = what.upper()
        print(f"usage: {command} {kind} ...\n{about}\n{what}s:\n{listed}\n{more}")
        print(f"\n{command} {kind} --help shows its options.")
        return None, []
    if args[0].startswith("-"):
        names = ", ".join(choices)
        raise FlowError(f"the {what} comes first: {command} {what.upper()} {args[0]}; use {names}")
    if args[0] not in choices:
        raise FlowError(f"there is no {what} {args[0]!r}; {suggest(args[0], choices)}")
    return args[0], args[1:]
