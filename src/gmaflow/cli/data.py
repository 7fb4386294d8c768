"""`gmaflow data`: list the known data sets, or check one for missing and broken files."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from gmaflow.cli.options import Json, Quiet, progress_bar, run_action
from gmaflow.errors import NOT_WHOLE, printable

if TYPE_CHECKING:
    from gmaflow.data import CheckReport

_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """List the known data sets, their local folders and download links."""

    json: Json = False


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Compare a data set with its published size and check every file.

    Exits with 0 if the data set is complete and intact, with 1 if not.

    Examples:
      gmaflow data check sintel /data/MPI-Sintel
      gmaflow data check chairs --deep
    """

    name: Annotated[str, tyro.conf.Positional]
    """The data set: sintel, things, kitti-2015 ...; `gmaflow data list` prints all names."""
    root: Annotated[Path | None, tyro.conf.Positional] = None
    """Its folder; by default from the environment or the config file."""
    deep: bool = False
    """Decode every file instead of reading headers only."""
    quiet: Quiet = False
    json: Json = False


def main(args: list[str]) -> None:
    run_action(args, "data", {"list": (ListOptions, list_sets), "check": (CheckOptions, check)})


def list_sets(options: ListOptions) -> None:
    from gmaflow.data import DATASETS, look_up_root, root_variable
    from gmaflow.data.dataset import config_path

    roots = {name: look_up_root(info) for name, info in DATASETS.items()}
    if options.json:
        about = {
            name: {
                "title": info.title,
                "root": str(configured[0]) if (configured := roots[name]) else None,
                "variable": root_variable(info),
                "splits": info.splits,
                "passes": [name for name in info.passes if name],
                "source": info.source,
            }
            for name, info in DATASETS.items()
        }
        print(json.dumps(about, indent=2))
        return
    for name, info in DATASETS.items():
        configured = roots[name]
        parts = "; ".join([", ".join(info.splits), ", ".join(filter(None, info.passes))])
        root = str(configured[0]) if configured else f"not set; set {root_variable(info)}"
        print(f"{name:<12}{info.title}: {parts.removesuffix('; ')}")
        print(f"{'':<12}root: {root}")
        if info.source:
            print(f"{'':<12}from: {info.source}")
    print(f"Set GMAFLOW_DATA to a folder that contains all of them, or edit {config_path()}.")


def check(options: CheckOptions) -> None:
    """Print the result of a check, and exit with 1 if the data set is incomplete or broken."""
    from gmaflow.data import check_dataset

    with progress_bar("reading" if options.deep else "checking", quiet=options.quiet) as progress:
        report = check_dataset(options.name, options.root, deep=options.deep, progress=progress)
    if options.json:
        print(json.dumps(as_json(report), indent=2))
    else:
        show(report)
    if not report.complete:
        sys.exit(NOT_WHOLE)


def as_json(report: "CheckReport") -> dict[str, object]:
    return {
        "data set": report.info.name,
        "root": str(report.root),
        "complete": report.complete,
        "parts": [
            {
                "part": str(part.part),
                "found": part.found,
                "published": part.part.count,
                "required": part.part.required,
            }
            for part in report.parts
        ],
        "missing": [str(path) for path in report.missing],
        "problems": list(report.problems),
        "files": report.num_files,
        "deep": report.deep,
        "source": report.info.source,
    }


def show(report: "CheckReport") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("part", "pairs", "published", "")
    for part in report.parts:
        count = part.part.count
        if part.found == 0 and not part.part.required:
            remark = "missing, optional"
        else:
            remark = "" if part.complete else "incomplete"
        table.add_row(
            str(part.part), f"{part.found:,}", "-" if count is None else f"{count:,}", remark
        )
    Console().print(table)
    lines = [f"missing: {path}" for path in report.missing]
    lines += [f"broken: {problem}" for problem in report.problems]
    for line in lines[:_SHOWN]:
        print(printable(line))
    if len(lines) > _SHOWN:
        print(f"... and {len(lines) - _SHOWN:,} more; --json lists all")
    how = "decoded" if report.deep else "checked by header; --deep decodes them"
    print(f"{report.num_files:,} files {how}")
    state = "complete" if report.complete else "not complete"
    source = "" if report.complete else report.info.download_hint
    print(f"{report.info.title} in {report.root} is {state}{source}")
