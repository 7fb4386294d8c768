"""Where the data sets lie on this computer: an option, the environment, or one config file.

~/.config/gmaflow/data.toml:

    data = "/data"                    # a folder of data sets
    [roots]
    sintel = "/other/MPI-Sintel"      # one of them elsewhere
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gmaflow.data.catalog import DATASETS, DatasetInfo
from gmaflow.errors import DatasetError
from gmaflow.io.paths import PathLike

_PARENT = "GMAFLOW_DATA"
_CONFIG = "GMAFLOW_CONFIG"


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What the config file says.

    Attributes:
        data: a folder of data sets.
        roots: single data sets, by name.
    """

    data: Path | None = None
    roots: Mapping[str, Path] = field(default_factory=dict)


def root_variable(info: DatasetInfo) -> str:
    """Return the environment variable that names a data set's root."""
    return "GMAFLOW_" + info.name.upper().replace("-", "_")


def config_path(environ: Mapping[str, str] | None = None) -> Path:
    """Return where the config file is looked for."""
    environ = os.environ if environ is None else environ
    if environ.get(_CONFIG):
        return Path(environ[_CONFIG]).expanduser()
    home = environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "gmaflow" / "data.toml"


def find_root(
    info: DatasetInfo, root: PathLike | None = None, *, environ: Mapping[str, str] | None = None
) -> Path:
    """Find the folder of a data set.

    Args:
        info: the data set.
        root: the folder, if the caller knows.
        environ: the environment; the program's own if None.

    Raises:
        DatasetError: nothing says where it is, or there is no such folder.
    """
    environ = os.environ if environ is None else environ
    found = look_up_root(info, root, environ=environ)
    if found is None:
        tried = f"a folder {' or '.join(info.folders)} in {_PARENT}" if info.folders else _PARENT
        raise DatasetError(
            f"no folder is set for {info.title}; name its root, or set {root_variable(info)}, "
            f"{tried}, or {info.name} under [roots] in {config_path(environ)}; "
            f"it holds {info.looks_like}{info.had_from}"
        )
    folder, told_by = found
    if not folder.is_dir():
        told = "" if root is not None else f", but {told_by} names it as the root"
        raise DatasetError(
            f"{folder} is not a folder{told}; the root of {info.title} holds {info.looks_like}"
            f"{info.had_from}"
        )
    return folder


def look_up_root(
    info: DatasetInfo, root: PathLike | None = None, *, environ: Mapping[str, str] | None = None
) -> tuple[Path, str] | None:
    """Return the folder that is named for a data set, there or not, and what names it."""
    environ = os.environ if environ is None else environ
    variable = root_variable(info)
    if root is not None:
        return Path(root).expanduser(), "the caller"
    if environ.get(variable):
        return Path(environ[variable]).expanduser(), variable
    if environ.get(_PARENT):
        folder = find_inside(Path(environ[_PARENT]).expanduser(), info)
        if folder is not None:
            return folder, _PARENT
    config = read_config(config_path(environ))
    if info.name in config.roots:
        return config.roots[info.name], str(config_path(environ))
    folder = None if config.data is None else find_inside(config.data, info)
    return None if folder is None else (folder, str(config_path(environ)))


def read_config(path: Path) -> DataConfig:
    """Read the config file; an empty config if there is none.

    Raises:
        DatasetError: it cannot be read, or says what it may not.
    """
    if not path.is_file():
        return DataConfig()
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as err:
        raise DatasetError(f"{path} cannot be read: {err}") from err
    roots = content.get("roots", {})
    if not isinstance(roots, dict) or content.keys() - {"data", "roots"}:
        raise DatasetError(f"{path} may hold `data = FOLDER` and a table [roots], nothing else")
    unknown = sorted(roots.keys() - DATASETS.keys())
    if unknown:
        raise DatasetError(
            f"{path} names a data set {unknown[0]!r} under [roots]; there are {', '.join(DATASETS)}"
        )
    folders = {name: _folder(path, name, value) for name, value in roots.items()}
    data = _folder(path, "data", content["data"]) if "data" in content else None
    return DataConfig(data=data, roots=folders)


def _folder(config: Path, name: str, value: object) -> Path:
    if not isinstance(value, str):
        raise DatasetError(f"{config}: {name} is {value!r}; expected a folder in quotes")
    return config.parent / Path(value).expanduser()  # an absolute one stays as it is


def find_inside(parent: Path, info: DatasetInfo) -> Path | None:
    """Find a data set by its name in a folder of several; None if it is not there."""
    folders = (parent / name for name in (info.name, *info.folders))
    return next((folder for folder in folders if folder.is_dir()), None)


def suggest_inside(root: Path, info: DatasetInfo) -> str:
    """Return what to say where a root holds nothing: that a folder in it may be meant."""
    folder = find_inside(root, info)
    return "" if folder is None else f"; perhaps {folder} is meant"
