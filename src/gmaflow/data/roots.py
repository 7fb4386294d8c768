"""Where data sets are stored: an option, the environment, or the config file.

~/.config/gmaflow/data.toml:

    data = "/data"                    # a folder that contains data sets
    [roots]
    sintel = "/other/MPI-Sintel"      # a data set stored elsewhere
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
    """The contents of the config file.

    Attributes:
        data: a folder that contains data sets.
        roots: folders of single data sets, by name.
    """

    data: Path | None = None
    roots: Mapping[str, Path] = field(default_factory=dict)


def root_variable(info: DatasetInfo) -> str:
    """Return the environment variable for a data set's root."""
    return "GMAFLOW_" + info.name.upper().replace("-", "_")


def config_path(environ: Mapping[str, str] | None = None) -> Path:
    """Return the path of the config file."""
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
        root: the folder, if known.
        environ: environment variables; by default `os.environ`.
    """
    environ = os.environ if environ is None else environ
    found = look_up_root(info, root, environ=environ)
    if found is None:
        tried = f"a folder {' or '.join(info.folders)} in {_PARENT}" if info.folders else _PARENT
        raise DatasetError(
            f"no folder is set for {info.title}; give its root, or set {root_variable(info)}, "
            f"{tried}, or {info.name} under [roots] in {config_path(environ)}; "
            f"it contains {info.example}{info.download_hint}"
        )
    folder, setting = found
    if not folder.is_dir():
        origin = "" if root is not None else f" ({setting} sets it as the root)"
        raise DatasetError(
            f"{folder} is not a folder{origin}; the root of {info.title} contains {info.example}"
            f"{info.download_hint}"
        )
    return folder


def look_up_root(
    info: DatasetInfo, root: PathLike | None = None, *, environ: Mapping[str, str] | None = None
) -> tuple[Path, str] | None:
    """Return the configured folder of a data set, existing or not, and the setting it is from."""
    environ = os.environ if environ is None else environ
    variable = root_variable(info)
    if root is not None:
        return Path(root).expanduser(), "the caller"
    if environ.get(variable):
        return Path(environ[variable]).expanduser(), variable
    if environ.get(_PARENT):
        folder = find_subfolder(Path(environ[_PARENT]).expanduser(), info)
        if folder is not None:
            return folder, _PARENT
    config = read_config(config_path(environ))
    if info.name in config.roots:
        return config.roots[info.name], str(config_path(environ))
    folder = None if config.data is None else find_subfolder(config.data, info)
    return None if folder is None else (folder, str(config_path(environ)))


def read_config(path: Path) -> DataConfig:
    """Read the config file; return an empty config if it does not exist."""
    if not path.is_file():
        return DataConfig()
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as err:
        raise DatasetError(f"cannot read {path}: {err}") from err
    roots = content.get("roots", {})
    if not isinstance(roots, dict) or content.keys() - {"data", "roots"}:
        raise DatasetError(
            f"{path} has unknown settings; it may contain `data = FOLDER` and a table [roots]"
        )
    unknown = sorted(roots.keys() - DATASETS.keys())
    if unknown:
        raise DatasetError(
            f"{path} has an unknown data set {unknown[0]!r} under [roots]; "
            f"choose from {', '.join(DATASETS)}"
        )
    folders = {name: _folder(path, name, value) for name, value in roots.items()}
    data = _folder(path, "data", content["data"]) if "data" in content else None
    return DataConfig(data=data, roots=folders)


def _folder(config: Path, name: str, value: object) -> Path:
    if not isinstance(value, str):
        raise DatasetError(f"{config}: {name} is {value!r}; expected a folder in quotes")
    return config.parent / Path(value).expanduser()  # absolute paths stay unchanged


def find_subfolder(parent: Path, info: DatasetInfo) -> Path | None:
    """Return the subfolder of a data set inside a folder of data sets, if it exists."""
    folders = (parent / name for name in (info.name, *info.folders))
    return next((folder for folder in folders if folder.is_dir()), None)


def suggest_subfolder(root: Path, info: DatasetInfo) -> str:
    """Return the end of an error message: a subfolder that may be the intended root."""
    folder = find_subfolder(root, info)
    return "" if folder is None else f"; did you mean {folder}?"
