"""Options as `key=value`: the form that works even where tyro is not installed.

gmaflow train chairs steps=100 crop=368x496 resume=true output=runs/chairs

With tyro, flags may follow: gmaflow train chairs steps=100 --resume.
"""

import ast
import inspect
import re
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from gmaflow.errors import FlowError, suggest
from gmaflow.training.config import as_text

Options = TypeVar("Options")

_SETTING = re.compile(r"([A-Za-z][\w-]*)=(.*)", re.DOTALL)
_NUMBERS = {"int | None": int, "float | None": float}
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


def read_options(default: Options, args: list[str], *, verb: str) -> Options:
    """Read the options of a verb into a dataclass: first `key=value`, then flags."""
    settings = list(takewhile(_SETTING.fullmatch, args))
    flags = args[len(settings) :]
    matches = (_SETTING.fullmatch(setting) for setting in settings)
    options = override(default, {match[1]: match[2] for match in matches if match})
    if find_spec("tyro"):
        from gmaflow.cli.options import parse

        return parse(type(options), flags, verb=verb, default=options)
    if {"-h", "--help"} & set(flags):
        print(f"usage: gmaflow {verb} [key=value ...]\n\n{describe(options)}")
        sys.exit(0)
    if flags:
        raise FlowError(
            f"cannot read {flags[0]!r} because tyro is not installed; write options as key=value, "
            "or run `pip install tyro`"
        )
    return options


def override(options: Options, texts: Mapping[str, str]) -> Options:
    """Return options (a dataclass) with new values, given as text by key.

    Keys may name fields of a nested dataclass. Dashes count as underscores.
    """
    texts = {key.replace("-", "_"): text for key, text in texts.items()}
    changes: dict[str, Any] = {}
    all_names: list[str] = []
    for field in fields(options):  # type: ignore[arg-type]
        value = getattr(options, field.name)
        if is_dataclass(value) and not isinstance(value, type):
            names = [inner.name for inner in fields(value)]
            if nested := {key: text for key, text in texts.items() if key in names}:
                changes[field.name] = override(value, nested)
            all_names += names
            continue
        if field.name in texts:
            changes[field.name] = read_value(field.name, field.type, value, texts[field.name])
        all_names.append(field.name)
    if unknown := [key for key in texts if key not in all_names]:
        raise FlowError(f"unknown option {unknown[0]!r}; {suggest(unknown[0], all_names)}")
    return replace(options, **changes)  # type: ignore[type-var]


def read_value(name: str, annotation: object, now: object, text: str) -> object:
    """Read a value. Its type is that of the current value, or in the annotation if that is None."""
    if is_size(now):
        from gmaflow.io.images import read_size

        return read_size(text.replace(",", "x"))
    number = _NUMBERS.get(str(annotation)) or next(
        (kind for kind in (bool, int, float) if isinstance(now, kind)), None
    )
    try:
        if isinstance(now, bool):
            return _BOOLEANS[text.lower()]
        if isinstance(now, tuple):
            return tuple(part for part in re.split("[, ]+", text) if part)
        if isinstance(now, Path) or (now is None and "Path" in str(annotation)):
            if not text:
                raise ValueError
            return Path(text)
        return number(text) if number else text
    except (ValueError, KeyError):
        kinds = {bool: "true or false", int: "a whole number", float: "a number"}
        expected = kinds.get(number or type(now), "a path")
        raise FlowError(f"invalid {name}={text}; give {expected}") from None


def is_size(value: object) -> bool:
    """Return whether a value is a height and width."""
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], int)


def describe(options: object) -> str:
    """List every option of a dataclass with its value and documentation.

    A `*` marks values that differ from the default of the class.
    """
    documented = field_docs(type(options))
    lines, nested = [], []
    for field in fields(options):  # type: ignore[arg-type]
        value = getattr(options, field.name)
        if is_dataclass(value):
            nested.append(describe(value))
            continue
        mark = " " if value == field.default else "*"
        about = documented.get(field.name, "")
        lines.append(f"{mark} {field.name:<15} {as_text(value):<14} {about}")
    return "\n".join([*lines, *nested])


def field_docs(of: type) -> dict[str, str]:
    """Return the strings under the fields of a dataclass and its bases."""
    docs: dict[str, str] = {}
    for each in reversed([base for base in of.__mro__ if is_dataclass(base)]):
        (body,) = ast.parse(inspect.getsource(each)).body
        assert isinstance(body, ast.ClassDef)
        name = ""
        for part in body.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                name = part.target.id
            elif name and isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant):
                docs[name], name = " ".join(str(part.value.value).split()), ""
    return docs
