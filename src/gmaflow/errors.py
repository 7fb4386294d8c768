"""Errors that a caller can cause, and how programs report them.

    FlowError                   one sentence: what came, what is expected, what to do
    ├── ImageError              an image or video cannot be read or used
    │   └── ImageTooLargeError  ... because it has more pixels or frames than allowed
    ├── FlowFileError           a flow file cannot be read or written
    ├── DatasetError            a data set is missing, incomplete or damaged
    ├── WeightsError            a checkpoint is refused or does not fit
    ├── TrainingError           a training run cannot start or continue
    └── OutputError             a path cannot, or must not, be written

The command line prints the sentence and exits with 2. Any other exception is a bug in gmaflow and
keeps its traceback.
"""

import difflib
import errno
import io
import logging
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TypeVar

Value = TypeVar("Value")

NOT_WHOLE, BAD_INPUT, INTERRUPTED = 1, 2, 130
"""Exit codes: only a part was done, the input cannot be used, the user interrupted the program."""


class FlowError(ValueError):
    """Base of all errors that a caller can cause and fix."""


class ImageError(FlowError):
    """An image or video cannot be read or used."""


class ImageTooLargeError(ImageError):
    """An image or video has more pixels or frames than allowed."""


class FlowFileError(FlowError):
    """A flow file cannot be read, or a flow cannot be written in that format."""


class DatasetError(FlowError):
    """A data set is missing, incomplete or damaged, or does not have what was requested."""


class WeightsError(FlowError):
    """A checkpoint is refused, damaged, or does not fit the network."""


class OutputError(FlowError):
    """An output cannot be written, or exists and must not be replaced."""


class TrainingError(FlowError):
    """A training run cannot start as configured, or cannot continue."""


def suggest(name: str, names: Iterable[str]) -> str:
    """Return a hint with the choices similar to a name, or all of them if none is similar."""
    choices = list(names)
    similar = difflib.get_close_matches(name, choices, n=3)
    return f"did you mean {' or '.join(similar)}?" if similar else f"there are {', '.join(choices)}"


def look_up(
    what: str, name: str, table: Mapping[str, Value], error: type[FlowError] = FlowError
) -> Value:
    """Return the value of a name, or raise an error that suggests similar names."""
    check_known(what, name, table, error)
    return table[name]


def check_known(
    what: str, name: str, names: Collection[str], error: type[FlowError] = FlowError
) -> None:
    """Refuse a name that is not one of the choices, and suggest similar ones."""
    if name not in names:
        raise error(f"unknown {what} {name!r}; {suggest(str(name), names)}")


def counted(number: int, what: str) -> str:
    """Return a number with its noun: 1 pair, 2 pairs."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def run_as_program(main: Callable[[list[str]], None], args: list[str] | None = None) -> None:
    """Run a program on its arguments, by default those of the command line.

    Errors that a caller can cause are printed as one sentence. Exits with 2 on bad input, and with
    130 on an interrupt; the message of the interrupt, if any, says which results are kept.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("gmaflow: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    if isinstance(sys.stdout, io.TextIOWrapper):
        # File names may have characters that the terminal's encoding lacks; stderr escapes them.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        main(sys.argv[1:] if args is None else args)
    except FlowError as err:
        print_stderr(f"gmaflow: {err}")
        sys.exit(BAD_INPUT)
    except OSError as err:
        # Problems with a path: no permission, a name too long, a full disk. Without a path the
        # caller did not cause it.
        if isinstance(err, BrokenPipeError):
            # The reader of the pipe is gone (`| head`).
            sys.stderr.close()
            sys.exit(0)
        if err.filename is None and err.errno != errno.ENOSPC:
            raise
        print_stderr(f"gmaflow: {err.filename or 'the output'}: {os_reason(err)}")
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt as err:
        print_stderr("; ".join(["gmaflow: interrupted", *map(str, err.args)]))
        sys.exit(INTERRUPTED)


def import_extra(
    name: str, purpose: str, *, extra: str, error: type[FlowError] = FlowError
) -> ModuleType:
    """Import a package that an extra installs, or say how to install it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as err:
        raise error(f"{purpose} needs {err.name}: pip install 'gmaflow[{extra}]'") from err


def os_reason(err: OSError) -> str:
    """Return what the operating system says about an error, to be put into a sentence."""
    return (err.strerror or "").lower() or str(err) or type(err).__name__


def print_stderr(text: str) -> None:
    """Print a message to stderr, separate from the output."""
    print(printable(text), file=sys.stderr)  # noqa: T201


def printable(text: str) -> str:
    r"""Escape control characters such as \x1b: names of files could drive the terminal."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else ascii(letter)[1:-1]
        for letter in text
    )


class PrintableFormatter(logging.Formatter):
    """Format log messages without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))
