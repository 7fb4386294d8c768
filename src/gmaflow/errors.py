"""Everything that a caller's input can do wrong.

    FlowError                   one sentence: what came, what is wanted, what to do
    ├── ImageError              an image or video that cannot be read or used
    │   └── ImageTooLargeError  ... because it has more pixels or frames than is allowed
    ├── FlowFileError           a flow file that cannot be read or written
    ├── DatasetError            a data set that is missing, incomplete or broken
    ├── WeightsError            a checkpoint that was refused or does not fit
    ├── TrainingError           a training run that cannot start, or cannot go on
    └── OutputError             a place that cannot, or may not, be written to

The command line shows the sentence and exits with 2. Whatever else is raised is a bug of ours and
keeps its traceback.
"""

import difflib
import logging
import sys
from collections.abc import Callable, Iterable

BAD_INPUT = 2
"""The exit code of programs whose caller gave what cannot be used."""


class FlowError(ValueError):
    """Base of all errors that a caller can cause and mend."""


class ImageError(FlowError):
    """An image or video cannot be read, or cannot be used as it is."""


class ImageTooLargeError(ImageError):
    """An image or video has more pixels or frames than is allowed."""


class FlowFileError(FlowError):
    """A flow file cannot be read, or a flow cannot be written in that format."""


class DatasetError(FlowError):
    """A data set is missing, incomplete or broken, or was asked for what it does not have."""


class WeightsError(FlowError):
    """A checkpoint was refused, is broken, or does not fit the network."""


class OutputError(FlowError):
    """An output cannot be written, or exists and was not to be replaced."""


class TrainingError(FlowError):
    """A training run cannot start as described, or cannot go on."""


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the near names among those known, or all of them where none is near."""
    choices = list(known)
    near = difflib.get_close_matches(name, choices, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(choices)}"


def run_as_program(main: Callable[[list[str]], None]) -> None:
    """Run a module's `main` on the command line's arguments, for those beside `gmaflow` itself."""
    logging.basicConfig(level=logging.WARNING, format="gmaflow: %(message)s")
    try:
        main(sys.argv[1:])
    except FlowError as err:
        print(f"gmaflow: {err}", file=sys.stderr)  # noqa: T201
        sys.exit(BAD_INPUT)
