"""`gmaflow VERB ...`: find the verb, run it, turn errors into one sentence and exit code 2."""

from collections.abc import Mapping, Sequence
from importlib import import_module

from gmaflow.errors import FlowError, run_as_program, suggest
from gmaflow.version import __version__

VERBS = {
    "flow": "estimate the flow of a pair of images, or of a folder of frames",
    "video": "estimate the flow of a video, as a video or as files",
    "convert": "draw flow files, or write them in another format",
    "demo": "see it work on a built-in scene whose true motion is known",
    "data": "list the data sets, or check whether one is complete and sound",
    "scenes": "render training pairs whose flow is known exactly, and look at them",
    "train": "train a network on rendered scenes or on data sets",
    "evaluate": "measure how good the flow is, on data whose true motion is known",
    "compare": "measure several networks on the same data, and how sure the difference is",
    "tables": "lay training runs into the paper's tables of variants and ablations",
    "submit": "write what the servers of Sintel, KITTI and Spring want",
    "bench": "measure speed and memory, beside a plain peer if wanted",
    "export": "write a network as a file that other programs run (ONNX, torch.export)",
    "serve": "serve a page and an HTTP API",
    "weights": "list, show or convert network weights",
}
"""Each verb is the module of that name beside this one, with a function `main(args)`."""

ABOUT = """
Optical flow: the motion of every pixel between two frames, hidden ones too.
"""
EXAMPLES = """
examples:
  gmaflow demo -o demo                          see what it does
  gmaflow flow a.png b.png -o flow.png          flow of two images, as a picture
  gmaflow flow a.png b.png -o flow.flo          the same, as numbers
  gmaflow flow frames/ -o flow/                 flow between consecutive frames
  gmaflow video in.mp4 -o flow.mp4              flow of a video
  gmaflow convert flow.flo -o flow.png          a flow file, as a picture
  gmaflow serve                                 drop images on a page in your browser"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; exits with 0, 1 where a part was left out, or 2 on bad input."""
    run_as_program(run, None if argv is None else list(argv))


def run(args: list[str]) -> None:
    """Hand the arguments to the verb they name.

    Raises:
        FlowError: There is no such verb, or the verb refuses its input.
    """
    if args and args[0] in ("-V", "--version"):
        print(f"gmaflow {__version__}")
        return
    verb, rest = pick(args, VERBS, command="gmaflow", about=ABOUT, more=EXAMPLES)
    if verb is None:
        return
    try:
        module = import_module(f"gmaflow.cli.{verb}")
    except ModuleNotFoundError as err:
        if err.name != "tyro":  # `train` and `bench` work without it
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
    what: str = "verb",
) -> tuple[str | None, list[str]]:
    """Split off the first argument, one of the choices; None if help was asked for and printed.

    Raises:
        FlowError: It is not among the choices.
    """
    if not args or args[0] in ("-h", "--help", "help"):
        width = max(9, *(len(name) + 2 for name in choices))
        listed = "\n".join(f"  {name:<{width}}{summary}" for name, summary in choices.items())
        kind = what.upper()
        print(f"usage: {command} {kind} ...\n{about}\n{what}s:\n{listed}\n{more}")
        print(f"\n{command} {kind} --help tells the rest.")
        return None, []
    if args[0] not in choices:
        raise FlowError(f"there is no {what} {args[0]!r}; {suggest(args[0], choices)}")
    return args[0], args[1:]
