"""What several verbs share: options, how they are parsed, and progress bars."""

import inspect
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fractions import Fraction
from io import StringIO
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast, get_args

import tyro

from gmaflow.cli.app import pick
from gmaflow.errors import NOT_WHOLE, FlowError, OutputError, print_stderr, printable, suggest
from gmaflow.runtime.device_options import DeviceOptions

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from gmaflow.inference import FlowEstimator
    from gmaflow.io import VideoReader
    from gmaflow.weights import Checkpoint

log = logging.getLogger(__name__)

Options = TypeVar("Options")

CONTINUES = "the same command continues"
CONTINUES_WITH_RESUME = "the same command with --resume continues"
PART_IS_KEPT = "the finished part is kept"
"""What an interrupt leaves, for messages."""

USUAL_FPS = "25"
SHOW_AFTER, LINE_EVERY = 2.0, 10.0
"""Seconds: when a progress bar appears, and how often a line is printed without a terminal."""

# Options of several verbs, with their help.
Overwrite = Annotated[bool, tyro.conf.arg(aliases=["-f", "-y"], help="Replace outputs that exist.")]
Json = Annotated[bool, tyro.conf.arg(help="Print JSON instead of text.")]
Quiet = Annotated[bool, tyro.conf.arg(help="Show no progress.")]
Bound = Annotated[
    float,
    tyro.conf.arg(
        metavar="PX",
        help="8-bit flow: the longest motion in x and in y; longer ones are clipped.",
    ),
]
OutputFolder = Annotated[
    Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER", help="Where the results go.")
]
Models = Annotated[
    tuple[str, ...],
    tyro.conf.arg(
        metavar="NAME",
        help="The model of each network, if the files do not say: gma, gma-affine, gma-p ...",
    ),
]
PaddingChoice = Annotated[
    Literal["auto", "sintel", "kitti"],
    tyro.conf.arg(
        help="Where images are padded to multiples of 8: as published for Sintel or for KITTI."
    ),
]
Ignore = Annotated[Path | None, tyro.conf.arg(metavar="MASK")]
"""Masks of pixels that do not count; see `gmaflow.io.MaskReader`."""

Iterations = int | Literal["auto"]
"""As `gmaflow.inference.engine.Iterations`, whose import would load torch."""


def _join_lines(helptext: str) -> str:
    """Join the lines of an option's help, which is wrapped to the terminal; leave paragraphs."""
    return helptext if "\n\n" in helptext else " ".join(helptext.split())


# tyro's own function leaves lines apart that are indented, as those in a class are, and makes each
# paragraph one long line.
if hasattr(tyro._strings, "remove_single_line_breaks"):  # private: not in every version
    tyro._strings.remove_single_line_breaks = _join_lines


def _hide_empty_defaults(describe: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function that describes an option, so that empty defaults are not shown."""

    def hint(default: str) -> str:
        return "" if default in ("", "''", "None") else f"(default: {default})"

    def described(arg: Any, lowered: Any, **options: Any) -> Any:  # noqa: ANN401
        if lowered.action is None:  # other than a flag or an option that may be repeated
            arg.field.argconf = replace(arg.field.argconf, help_behavior_hint=hint)
        return describe(arg, lowered, **options)

    return described


if hasattr(tyro._arguments, "generate_argument_helptext"):  # private too
    tyro._arguments.generate_argument_helptext = _hide_empty_defaults(
        tyro._arguments.generate_argument_helptext
    )

_TYPES = tyro.constructors.ConstructorRegistry()
"""Parsers of options, by type."""


Rule = tyro.constructors.PrimitiveConstructorSpec[Any] | None


@_TYPES.primitive_rule
def _size_rule(info: tyro.constructors.PrimitiveTypeInfo) -> Rule:
    """Two whole numbers are a height and width, written as 368x496; they may be left out."""
    # tyro uses typing's old spelling of the type, which only equals itself.
    kinds = (info.type,) if info.type_origin is tuple else get_args(info.type)
    if (int, int) not in map(get_args, kinds):
        return None

    def read(texts: list[str]) -> tuple[int, int]:
        from gmaflow.io.images import read_size

        return read_size(texts[0])

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="HxW",
        instance_from_str=read,
        is_instance=lambda value: value is None or isinstance(value, tuple),
        str_from_instance=lambda size: [str(size) if size is None else f"{size[0]}x{size[1]}"],
    )


class NotANumberError(FlowError):
    """A text is not the number that an option expects; `parse` adds the option's name."""


_VALUES: dict[object, tuple[str, str, Callable[[str], int | float | str]]] = {
    **dict.fromkeys((int, int | None), ("INT", "a whole number", int)),
    **dict.fromkeys((float, float | None), ("FLOAT", "a number", float)),
    str | None: ("STR", "a text", str),
    Iterations | None: (
        "INT|auto",
        "a whole number or auto",
        lambda text: text if text == "auto" else int(text),
    ),
}
"""By type: the metavar in help, the expected value in words, and the parser."""


@_TYPES.primitive_rule
def _value_rule(info: tyro.constructors.PrimitiveTypeInfo) -> Rule:
    """Numbers, with an error in words, and numbers and texts that may be left out."""
    value_type = next((value_type for value_type in _VALUES if info.type == value_type), None)
    if value_type is None:
        return None
    metavar, expected, read_one = _VALUES[value_type]

    def read(texts: list[str]) -> int | float | str:
        try:
            return read_one(texts[0])
        except ValueError:
            raise NotANumberError(f"{texts[0]} is not {expected}") from None

    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=read,
        is_instance=lambda value: value is None or isinstance(value, int | float | str),
        str_from_instance=lambda value: [str(value)],
    )


@dataclass(frozen=True, kw_only=True)
class PlaceOptions(DeviceOptions):
    """The device, and how much is printed."""

    verbose: bool = False
    """Log decisions, such as device, back end and tiles."""
    quiet: Quiet = False

    def load(
        self,
        weights: "str | Checkpoint | None",
        *,
        model: str | None = None,
        iters: Iterations | None,
        padding: Literal["sintel", "kitti"] = "sintel",
    ) -> "FlowEstimator":
        from gmaflow.inference import FlowEstimator, device_arguments

        if self.verbose:
            logging.getLogger("gmaflow").setLevel(logging.INFO)
            policy = os.environ.get("OMP_WAIT_POLICY", "not set")
            log.info("idle threads wait with OMP_WAIT_POLICY=%s", policy)
        return FlowEstimator(
            weights, model=model, iters=iters, padding=padding, **device_arguments(self)
        )


@dataclass(frozen=True, kw_only=True)
class WeightsOptions:
    """Which weights."""

    weights: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """A .safetensors file, a published .pth file, the folder of a training run, or the name of
    shipped weights."""
    model: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """gma, gma-affine, gma-p, gma-p-only, raft or raft-small; by default that of the weights."""


@dataclass(frozen=True, kw_only=True)
class EstimatorOptions(PlaceOptions, WeightsOptions):
    """Which network, and where it runs."""

    iters: Iterations | None = None
    """Refinement steps, or auto: up to 32, until the flow has settled. By default what suits the
    weights, 12 for the shipped ones."""

    def make(self, *, padding: Literal["sintel", "kitti"] = "sintel") -> "FlowEstimator":
        """Load the estimator that these options describe."""
        return self.load(self.weights, model=self.model, iters=self.iters, padding=padding)


Place = Annotated[PlaceOptions, tyro.conf.OmitArgPrefixes]
Estimator = Annotated[EstimatorOptions, tyro.conf.OmitArgPrefixes]


class Reporting:
    """The options of a verb that estimates, and reports in words or as JSON."""

    estimator: EstimatorOptions
    json: bool

    @property
    def quiet(self) -> bool:
        """Whether to show no progress."""
        return self.json or self.estimator.quiet


Report = dict[str, Any]
"""What a verb did, as JSON prints it."""
ReportingOptions = TypeVar("ReportingOptions", bound=Reporting)


def run_and_report(
    run: Callable[[ReportingOptions], Report],
    options: ReportingOptions,
    sentence: Callable[[Report], str],
    *,
    on_interrupt: str = "",
) -> None:
    """Run a verb, print its report and the time it took; exit with 1 if the result is incomplete.

    `on_interrupt` is the message after an interrupt that the verb reported: which results are kept.
    """
    started = time.perf_counter()
    report = run(options)
    report["seconds"] = round(time.perf_counter() - started, 2)
    print(json.dumps(report, indent=2) if options.json else sentence(report))
    if report.get("interrupted"):
        raise KeyboardInterrupt(on_interrupt)
    if report.get("skipped") or report.get("problem"):
        sys.exit(NOT_WHOLE)


@dataclass(frozen=True, kw_only=True)
class FootageOptions:
    """Which frames of a video or folder are used, and where its shots end."""

    start: Annotated[str, tyro.conf.arg(metavar="TIME")] = "0"
    """Where to begin: seconds, m:s or h:m:s."""
    end: Annotated[str | None, tyro.conf.arg(metavar="TIME")] = None
    """Where to end."""
    every: int = 1
    """Use only every n-th frame: the speed stays the same, the motions get longer."""
    fps: Annotated[str | None, tyro.conf.arg(metavar="NUMBER")] = None
    """Folders of frames: frames per second, such as 12, 29.97 or 30000/1001; 25 by default."""
    cut_threshold: float = 0.4
    """Frames that differ more belong to two shots: 0 is identical, 1 is unrelated."""
    no_cuts: bool = False
    """Continue across cuts."""

    @property
    def threshold(self) -> float | None:
        """The threshold of cuts; None if they are not looked for."""
        return None if self.no_cuts else self.cut_threshold

    @property
    def takes_a_part(self) -> bool:
        """Whether some frames are left out."""
        return (self.start, self.end, self.every) != ("0", None, 1)

    def open(self, path: Path, *, scale: float = 1.0) -> "VideoReader":
        from gmaflow.io import VideoReader

        return VideoReader(
            path,
            start=parse_time(self.start),
            end=None if self.end is None else parse_time(self.end),
            every=self.every,
            scale=scale,
            fps=parse_fps(self.fps or USUAL_FPS),
        )

    def check(self, path: Path) -> None:
        """Refuse options that are out of range, or not for this input."""
        self.check_threshold()
        if self.fps is not None and not path.is_dir():
            raise FlowError("--fps is for folders of frames; a video keeps its own times")

    def check_threshold(self) -> None:
        """Refuse a threshold of cuts that is out of range."""
        if not 0 < self.cut_threshold <= 2:
            raise FlowError(
                f"--cut-threshold {self.cut_threshold:g} is out of range; give a number such as "
                "0.4, or --no-cuts"
            )


Footage = Annotated[FootageOptions, tyro.conf.OmitArgPrefixes]


def parse_fps(text: str) -> Fraction:
    """Read frames per second: a number or a fraction; 29.97 means 30000/1001, as in television."""
    try:
        rate = Fraction(text)
    except (ValueError, ZeroDivisionError):
        rate = Fraction(0)
    if not Fraction(1, 1000) <= rate <= 1000:
        raise FlowError(f"--fps {text} is not a frame rate; give 0.001 to 1000")
    of_television = Fraction(1000 * round(rate * 1001 / 1000), 1001)
    is_meant = rate > 1 and rate.denominator > 1 and abs(rate - of_television) < Fraction(1, 200)
    return of_television if is_meant else rate.limit_denominator(1001)


def parse_time(text: str) -> Fraction:
    """Read a time: seconds, m:s or h:m:s."""
    parts = text.split(":")
    try:
        numbers = [Fraction(part) for part in parts]
    except (ValueError, ZeroDivisionError):
        numbers = []
    if not 1 <= len(numbers) <= 3 or min(numbers) < 0:
        raise FlowError(
            f"{text!r} is not a time; give seconds such as 12.5, or h:m:s such as 0:01:30"
        )
    seconds = Fraction(0)
    for number in numbers:
        seconds = 60 * seconds + number
    return seconds


def parse_points(option: str, texts: Iterable[str]) -> tuple[tuple[float, float], ...]:
    """Read points such as 120,80."""
    points = []
    for text in texts:
        try:
            x, y = map(float, text.split(","))
        except ValueError:
            raise FlowError(f"{option} {text!r} is not a point; give x,y such as 120,80") from None
        points.append((x, y))
    return tuple(points)


def parse(
    options: type[Options], args: list[str], *, verb: str, default: Options | None = None
) -> Options:
    """Read the options of a verb from a command line, into a dataclass.

    Prints help, or what is wrong with the options, and exits. `default` replaces the defaults of
    the fields.
    """
    named = list(pairwise(part for arg in args for part in arg.split("=", 1)))
    outputs = [value for flag, value in named if flag in ("-o", "--output")]
    if "" in outputs:
        # As a path it would be the working folder.
        raise OutputError("the output is empty; give a name, or . for this folder")
    if "-" in outputs:
        # For most programs it means standard output, not a folder of that name.
        raise OutputError("cannot write to standard output; give the name of a file or folder")
    if "-" in args:
        raise FlowError("cannot read standard input; give the name of a file or folder")
    # The whole docstring: tyro would drop the examples.
    about = docstring(options)
    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalMetavarFromFieldName)
    extra: dict[str, Any] = {} if default is None else {"default": default}

    def read(args: list[str], **more: Any) -> Any:  # noqa: ANN401
        return tyro.cli(
            options,
            args=args,
            prog=f"gmaflow {verb}",
            description=about,
            config=config,
            registry=_TYPES,
            **extra,
            **more,
        )

    boxed = StringIO()
    try:
        # tyro would draw a box around errors of our options, and exit.
        with redirect_stderr(boxed):
            parsed = cast(Options, read(args))
        only = getattr(parsed, "output", getattr(parsed, "target", None))
        if len(outputs) > 1 and isinstance(only, str | Path):
            raise OutputError(f"{verb} writes one output; give -o once")
        return parsed
    except SystemExit as end:
        if not end.code:
            raise
        raise_own_error(end, named)
    refuse_unknown_option(read, args, verb, named)
    refuse_misused_option(boxed.getvalue(), verb)
    return cast(Options, read(args))  # again, to show the error of tyro itself


def raise_own_error(end: SystemExit, named: list[tuple[str, str]]) -> None:
    """Raise the error of our options that made tyro exit, if that was the reason.

    `named` are the arguments, each with the next one.
    """
    error: BaseException | None = end
    while error is not None:
        if isinstance(error, NotANumberError):
            value = str(error).partition(" is not ")[0]
            flags = [flag for flag, argument in named if argument == value and flag[0] == "-"]
            raise FlowError(" ".join([*flags[:1], str(error)])) from None
        if isinstance(error, FlowError):
            raise error from None
        error = error.__context__


def refuse_unknown_option(
    read: Callable[..., Any], args: list[str], verb: str, named: list[tuple[str, str]]
) -> None:
    """Refuse an option that the verb does not have; tyro would also blame what follows it."""
    help_text = StringIO()
    with redirect_stderr(StringIO()), redirect_stdout(help_text):
        with suppress(SystemExit):
            read(["--help"])
        try:
            _, unknown = read(args, return_unknown_args=True)
        except SystemExit as end:  # something else is wrong too
            raise_own_error(end, named)
            return
    for arg in unknown:
        if re.match("--?[A-Za-z]", arg):
            name = arg.partition("=")[0]
            close = get_close_matches(name, set(re.findall("--[a-z-]+", help_text.getvalue())), n=1)
            hint = f"did you mean {close[0]}?" if close else f"see gmaflow {verb} --help"
            raise FlowError(f"unknown option {name}; {hint}")
    if unknown:
        arg = unknown[0]
        flags = [text for text in args if text[:1] == "-" and text.endswith(f"={arg}")]
        if flags:
            raise FlowError(f"{flags[0].partition('=')[0]} takes no value; leave out {arg!r}")
        raise FlowError(f"{arg!r} is one argument too many; see gmaflow {verb} --help")


def refuse_misused_option(boxed: str, verb: str) -> None:
    """Raise the error that tyro shows in a box as one sentence; do nothing for other errors."""
    # Without the frame, which is missing where it cannot be shown, and what is below the line.
    boxed = re.split("^  [-─]{3}", boxed.replace("│", " "), maxsplit=1, flags=re.MULTILINE)[0]
    text = " ".join(boxed.split())
    if match := re.search("Missing value for argument '(.+?)'", text):
        raise FlowError(f"{match[1]} needs a value; see gmaflow {verb} --help")
    if match := re.search(r"invalid choice '(.*?)' for argument '(.+?)'.*?one of \((.+?)\)", text):
        value, option, choices = match.groups()
        values = sorted(re.findall("'(.+?)'", choices))
        raise FlowError(f"{option} {value} is not known; {suggest(value, values)}")
    # Names are indented by six, their help by more. Of -o PATH, --output PATH the first is shown.
    missing = [line.strip() for line in re.findall(r"^ {6}(\S[^,\n]*)", boxed, re.MULTILINE)]
    if missing and "Missing from gmaflow" in text:
        are = "is" if len(missing) == 1 else "are"
        raise FlowError(f"{' and '.join(missing)} {are} missing; see gmaflow {verb} --help")


def docstring(options: type[Any]) -> str:
    """Return the docstring of a class of options; with `python -OO` it has none."""
    # Instead a dataclass has its signature.
    return "" if sys.flags.optimize > 1 else inspect.cleandoc(options.__doc__ or "")


def run_action(
    args: list[str], verb: str, actions: Mapping[str, tuple[type[Any], Callable[[Any], None]]]
) -> None:
    """Run the action of a verb that the arguments name; each has options and a function."""
    summaries = {
        name: docstring(options).partition("\n")[0].rstrip(".") or name
        for name, (options, _) in actions.items()
    }
    choices = {name: summary[0].lower() + summary[1:] for name, summary in summaries.items()}
    action, rest = pick(args, choices, command=f"gmaflow {verb}", what="verb")
    if action is not None:
        options, run = actions[action]
        run(parse(options, rest, verb=f"{verb} {action}"))


# --- Progress ------------------------------------------------------------------------------------


@contextmanager
def progress_bar(what: str, *, quiet: bool = False, on_interrupt: str = "") -> Iterator["Progress"]:
    """Yield a `Progress` to call while working; `on_interrupt` says which results are kept."""
    progress = Progress(what, quiet=quiet)
    try:
        yield progress
    except KeyboardInterrupt as err:
        raise KeyboardInterrupt(*filter(None, [on_interrupt])) from err
    finally:
        progress.stop()


@contextmanager
def step_bar(what: str, total: int, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Show progress as `progress_bar` does, for work that is saved step by step.

    Yields a function to call after each of `total` steps with its name.
    """
    numbers = count(1)
    with progress_bar(what, quiet=quiet, on_interrupt=CONTINUES) as show_progress:
        yield lambda step: show_progress(next(numbers), total, f"{what}: {step}")


class Progress:
    """Shows the progress of work that takes more than two seconds.

    Without a terminal it prints a line every ten seconds, so that logs show it too.
    """

    def __init__(self, what: str, *, quiet: bool) -> None:
        self._what = what
        self._bar: RichProgress | None = None
        wait = SHOW_AFTER if sys.stderr.isatty() else LINE_EVERY
        self._next = float("inf") if quiet else time.monotonic() + wait

    def __call__(self, done: int, total: int | None, what: str | None = None) -> None:
        """Show the amount done, the total if it is known, and a label if there is one."""
        now = time.monotonic()
        if now < self._next:
            return
        what = what or self._what
        if sys.stderr.isatty():
            from rich.markup import escape

            label = escape(printable(what))  # file names are not markup
            self._bar = self._bar or start_bar(label)
            self._bar.update(self._bar.task_ids[0], completed=done, total=total, description=label)
        else:
            print_stderr(f"gmaflow: {what}: {done}" + (f" of {total}" if total else ""))
            self._next = now + LINE_EVERY

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def start_bar(what: str) -> "RichProgress":
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (
        *RichProgress.get_default_columns()[:-1],
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(what, total=None)
    bar.start()
    return bar
