"""Everything that a caller's input can do wrong, and how a person is told.

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
import errno
import io
import logging
import sys
from collections.abc import Callable, Iterable

NOT_WHOLE, BAD_INPUT, INTERRUPTED = 1, 2, 130
"""The exit codes of programs that did a part alone, whose caller gave what cannot be used, or ended
them."""


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


def check_known(what: str, name: str, known: Iterable[str]) -> None:
    """Refuse a name that is not one of a few.

    Raises:
        FlowError: It is not.
    """
    choices = list(known)
    if name not in choices:
        raise FlowError(f"{what} {name!r} is not known; give one of {', '.join(choices)}")


def counted(number: int, what: str) -> str:
    """Return a number of things as people say it: 1 pair, 2 pairs."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def run_as_program(main: Callable[[list[str]], None], args: list[str] | None = None) -> None:
    """Run a program on its arguments, by default the command line's; what goes wrong is a sentence.

    Exits with 2 on bad input, with 130 when interrupted. An interrupt that says what is kept of the
    work is passed on.
    """
    logging.basicConfig(level=logging.WARNING, format="gmaflow: %(message)s")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names of files may hold what the terminal's encoding does not; stderr does so by itself.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        main(sys.argv[1:] if args is None else args)
    except FlowError as err:
        say(f"gmaflow: {err}")
        sys.exit(BAD_INPUT)
    except OSError as err:
        # Whatever a path can do wrong that nobody foresaw: no permission, a name too long, a full
        # disk. Without a path it is none of the caller's doing.
        if isinstance(err, BrokenPipeError):
            # The reader of a pipe has gone (`| head`); nobody is left to tell.
            sys.stderr.close()
            sys.exit(0)
        if err.filename is None and err.errno != errno.ENOSPC:
            raise
        say(f"gmaflow: {err.filename or 'the output'}: {err.strerror}")
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt as err:
        say("; ".join(["gmaflow: interrupted", *map(str, err.args)]))
        sys.exit(INTERRUPTED)


def say(text: str) -> None:
    """Tell a person, beside the output proper."""
    print(text, file=sys.stderr)  # noqa: T201
