"""Data sets as lists of pairs, opened by name.

Their folders come from an option, the environment, or the config file,
~/.config/gmaflow/data.toml:

    data = "/data"                    # a folder that contains data sets
    [roots]
    sintel = "/other/MPI-Sintel"      # a data set stored elsewhere
"""

import logging
import os
import shlex
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gmaflow.data.catalog import DATASETS, DatasetInfo, dataset_info
from gmaflow.data.layouts import DirectoryCache
from gmaflow.data.pairs import FlowPair, FlowSample
from gmaflow.errors import DatasetError
from gmaflow.io.paths import PathLike, expand_home

log = logging.getLogger(__name__)

_PARENT, _CONFIG = "GMAFLOW_DATA", "GMAFLOW_CONFIG"


@dataclass(frozen=True)
class FlowDataset:
    """An immutable list of pairs with a name. `+` joins two data sets, `*` repeats one."""

    name: str
    pairs: tuple[FlowPair, ...]

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> FlowPair:
        return self.pairs[index]

    def __iter__(self) -> Iterator[FlowPair]:
        return iter(self.pairs)

    def __add__(self, other: "FlowDataset") -> "FlowDataset":
        return FlowDataset(f"{self.name} + {other.name}", self.pairs + other.pairs)

    def __mul__(self, times: int) -> "FlowDataset":
        if times < 1:
            raise DatasetError(f"{self.name} cannot be repeated {times} times; give 1 or more")
        return FlowDataset(f"{times} * ({self.name})", self.pairs * times)

    def __rmul__(self, times: int) -> "FlowDataset":
        return self * times

    def where(self, keep: Callable[[FlowPair], bool]) -> "FlowDataset":
        """Return the pairs for which `keep` is true."""
        return FlowDataset(self.name, tuple(pair for pair in self.pairs if keep(pair)))

    def load(self, index: int) -> FlowSample:
        """Read the files of one pair."""
        return self.pairs[index].load()


def open_dataset(
    name: str,
    root: PathLike | None = None,
    *,
    split: str | None = None,
    passes: str | Sequence[str] | None = None,
    cameras: Sequence[str] | None = None,
    directions: Sequence[str] | None = None,
) -> FlowDataset:
    """List the pairs of a data set without reading images.

    Pairs with missing files are skipped with a warning.

    Args:
        name: sintel, things, kitti-2015 ...; `gmaflow data list` prints all names.
        root: its folder; by default from the environment or the config file.
        split: training, validation, test ...; by default the first one, which is training where
            it exists.
        passes: clean, final, albedo; for KITTI occ or noc; several are joined in order. By default
            the first.
        cameras: left, right; by default those published for training.
        directions: forward, backward; by default both.

    Raises:
        DatasetError: the folder is missing or has no complete pair, or the split or pass is
            unknown.
    """
    info = dataset_info(name)
    split = _choose(info, "split", split, info.splits)
    wanted = [passes] if isinstance(passes, str) or passes is None else passes
    names = [_choose(info, "pass", name, info.passes) for name in wanted]
    folder = find_root(info, root)
    cameras_to_keep = cameras or info.cameras

    def keep(pair: FlowPair) -> bool:
        from_camera = not cameras_to_keep or pair.camera in cameras_to_keep
        return from_camera and (not directions or pair.direction in directions)

    cache = DirectoryCache()
    sets = [_open_pass(info, cache, folder, split, name, keep) for name in names]
    joined = sets[0]
    for another in sets[1:]:
        joined += another
    return joined


def find_missing(
    cache: DirectoryCache, pairs: Sequence[FlowPair]
) -> tuple[tuple[FlowPair, ...], tuple[Path, ...]]:
    """Return the complete pairs, and the missing files of the others."""
    complete, missing = [], []
    for pair in pairs:
        absent = [path for path in pair.files if not cache.has(path)]
        missing += absent
        if not absent:
            complete.append(pair)
    return tuple(complete), tuple(dict.fromkeys(missing))


def _open_pass(
    info: DatasetInfo,
    cache: DirectoryCache,
    root: Path,
    split: str,
    pass_name: str,
    keep: Callable[[FlowPair], bool],
) -> FlowDataset:
    def list_pairs(name: str) -> list[FlowPair]:
        return [pair for pair in info.list_pairs(cache, root, split, name) if keep(pair)]

    listed = list_pairs(pass_name)
    pairs, missing = find_missing(cache, listed)
    title = " ".join(word for word in (info.name, split, pass_name) if word)
    if not pairs:
        reason = f"; {missing[0]} is missing" if missing else ""
        others = [name for name in info.passes if find_missing(cache, list_pairs(name))[0]]
        if others:
            reason += f"; the pass {others[0]} is there"
        example = (info.test_example if split == "test" else "") or info.example
        raise DatasetError(
            f"{root} has no complete pair of {title}{reason}; {info.title} contains {example}"
            f"{info.download_hint}{suggest_subfolder(root, info)}"
        )
    if missing:
        log.warning(
            "%s: skipping %d of %d pairs because %s missing (%s ...); "
            "run `gmaflow data check %s %s` to list them",
            title,
            len(listed) - len(pairs),
            len(listed),
            "1 file is" if len(missing) == 1 else f"{len(missing)} files are",
            missing[0],
            info.name,
            shlex.quote(str(root)),
        )
    return FlowDataset(title, pairs)


def _choose(info: DatasetInfo, what: str, value: str | None, choices: tuple[str, ...]) -> str:
    if value is None:
        return choices[0]
    if value not in choices:
        named = [choice for choice in choices if choice]
        hint = f"choose from {', '.join(named)}" if named else "it has only one"
        raise DatasetError(f"{info.title} has no {what} {value!r}; {hint}")
    return value


# Where data sets are stored


def root_variable(info: DatasetInfo) -> str:
    """Return the environment variable for a data set's root."""
    return "GMAFLOW_" + info.name.upper().replace("-", "_")


def config_path() -> Path:
    if path := os.environ.get(_CONFIG):
        return expand_home(path)
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return expand_home(home) / "gmaflow" / "data.toml"


def find_root(info: DatasetInfo, root: PathLike | None = None) -> Path:
    """Find the folder of a data set; `root` is the folder, if known."""
    configured = look_up_root(info, root)
    if configured is None:
        tried = f"a folder {' or '.join(info.folders)} in {_PARENT}" if info.folders else _PARENT
        raise DatasetError(
            f"no folder is set for {info.title}; give its root, or set {root_variable(info)}, "
            f"{tried}, or {info.name} under [roots] in {config_path()}; "
            f"it contains {info.example}{info.download_hint}"
        )
    folder, setting = configured
    if not folder.is_dir():
        origin = "" if root is not None else f" ({setting} sets it as the root)"
        raise DatasetError(
            f"{folder} is not a folder{origin}; the root of {info.title} contains {info.example}"
            f"{info.download_hint}"
        )
    return folder


def look_up_root(info: DatasetInfo, root: PathLike | None = None) -> tuple[Path, str] | None:
    """Return the configured folder of a data set, existing or not, and the setting it is from."""
    variable, environ = root_variable(info), os.environ
    if root is not None:
        return expand_home(root), "the caller"
    if environ.get(variable):
        return expand_home(environ[variable]), variable
    if environ.get(_PARENT):
        folder = find_subfolder(expand_home(environ[_PARENT]), info)
        if folder is not None:
            return folder, _PARENT
    data, roots = read_config(config_path())
    if info.name in roots:
        return roots[info.name], str(config_path())
    folder = None if data is None else find_subfolder(data, info)
    return None if folder is None else (folder, str(config_path()))


def read_config(path: Path) -> tuple[Path | None, dict[str, Path]]:
    """Read the config file: a folder of data sets, and the roots of single ones by name."""
    if not path.is_file():
        return None, {}
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
    return data, folders


def _folder(config: Path, name: str, value: object) -> Path:
    if not isinstance(value, str):
        raise DatasetError(f"{config}: {name} is {value!r}; expected a folder in quotes")
    return config.parent / expand_home(value)  # absolute paths stay unchanged


def find_subfolder(parent: Path, info: DatasetInfo) -> Path | None:
    """Return the subfolder of a data set inside a folder of data sets, if it exists."""
    folders = (parent / name for name in (info.name, *info.folders))
    return next((folder for folder in folders if folder.is_dir()), None)


def suggest_subfolder(root: Path, info: DatasetInfo) -> str:
    """Return the end of an error message: a subfolder that may be the intended root."""
    folder = find_subfolder(root, info)
    return "" if folder is None else f"; did you mean {folder}?"
