"""Configs as text: read from `key=value`, written as JSON, compared."""

import ast
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import Field, asdict, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from gmaflow.errors import TrainingError, suggest
from gmaflow.training.config import CHANGEABLE, TrainConfig

Settings = TypeVar("Settings")


def read_settings(args: Sequence[str]) -> dict[str, str]:
    """Read `key=value` arguments; dashes in keys become underscores.

    Raises:
        TrainingError: One of them is something else.
    """
    texts = {}
    for arg in args:
        key, equals, text = arg.partition("=")
        if not equals:
            raise TrainingError(f"{arg!r} is no setting; write key=value")
        texts[key.replace("-", "_")] = text
    return texts


def override(settings: Settings, texts: Mapping[str, str]) -> Settings:
    """Return settings (a dataclass) with some of them replaced, given as text.

    Raises:
        TrainingError: There is no such setting, or the text is not of its type.
    """
    known = {field.name: field for field in fields(settings)}  # type: ignore[arg-type]
    changes: dict[str, Any] = {}
    for key, text in texts.items():
        name = key.lstrip("-").replace("-", "_")
        if name not in known:
            raise TrainingError(f"there is no setting {key!r}; {suggest(name, known)}")
        changes[name] = read_value(known[name], getattr(settings, name), text)
    return replace(settings, **changes)  # type: ignore[type-var]


def read_value(field: Field[Any], now: object, text: str) -> object:
    """Read the value of a field; what it holds now tells its type."""
    try:
        if isinstance(now, bool):
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        if is_size(now):
            height, width = re.split("[,x ]+", text)
            return int(height), int(width)
        if isinstance(now, tuple):
            return tuple(part for part in re.split("[, ]+", text) if part)
        for kind in (Path, int, float):
            if isinstance(now, kind):
                return kind(text)
        return text
    except (ValueError, KeyError, TypeError):
        wanted = "two numbers as 368x496" if is_size(now) else f"a {type(now).__name__}"
        raise TrainingError(f"{field.name}={text} cannot be read; give {wanted}") from None


def is_size(value: object) -> bool:
    """Tell a height and width from other tuples."""
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], int)


def to_json(config: TrainConfig) -> str:
    """Write a config as JSON."""
    return json.dumps(asdict(config), indent=2) + "\n"


def from_json(text: str) -> TrainConfig:
    """Read a config as `to_json` wrote it.

    Raises:
        TrainingError: It is not one, or of another version of gmaflow.
    """
    try:
        values: dict[str, Any] = json.loads(text)
        known = {field.name for field in fields(TrainConfig)}
        if unknown := sorted(values.keys() - known):
            raise TrainingError(f"setting {unknown[0]!r} is not known; was a newer gmaflow here?")
        lists = {name: tuple(v) for name, v in values.items() if isinstance(v, list)}
        return TrainConfig(**(values | lists))
    except (json.JSONDecodeError, AttributeError, TypeError) as err:
        raise TrainingError(f"not the config of a run ({err})") from None


def differences(stored: TrainConfig, wanted: TrainConfig) -> list[str]:
    """Name what differs between two configs, but for what a resumed run may change."""
    old, new = asdict(stored), asdict(wanted)
    fixed = old.keys() - CHANGEABLE
    if not (stored.textures and wanted.textures):  # a folder may move, but not come or go
        fixed |= {"textures"}
    return [
        f"{name} is {as_text(old[name])}, not {as_text(new[name])}"
        for name in old
        if name in fixed and old[name] != new[name]
    ]


def describe(config: object) -> str:
    """Write a config (a dataclass) for people: every setting, its value and what it means."""
    documented = field_docs(type(config))
    lines = []
    for field in fields(config):  # type: ignore[arg-type]
        mark = " " if getattr(config, field.name) == field.default else "*"
        value = as_text(getattr(config, field.name))
        lines.append(f"{mark} {field.name:<15} {value:<14} {documented.get(field.name, '')}")
    return "\n".join(lines)


def as_text(value: object) -> str:
    """Write a value as it can be given in `key=value`."""
    if isinstance(value, tuple):
        return ("x" if is_size(value) else ",").join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value) or '""'


def field_docs(of: type) -> dict[str, str]:
    """Return the strings under a dataclass's fields."""
    (body,) = ast.parse(inspect.getsource(of)).body
    assert isinstance(body, ast.ClassDef)
    found, name = {}, ""
    for part in body.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            name = part.target.id
        elif name and isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant):
            found[name], name = " ".join(str(part.value.value).split()), ""
    return found
