"""How the flow in a folder was estimated, kept beside it, so that no two ways are ever mixed."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from gmaflow.cli.flow_options import FlowOptions
from gmaflow.cli.pairs import settings
from gmaflow.errors import OutputError, say
from gmaflow.io import atomic_write

if TYPE_CHECKING:
    from gmaflow.inference import FlowEstimator

RECORD = "flow.json"

Record = dict[str, object]


def make_record(options: FlowOptions, estimator: "FlowEstimator") -> Record:
    """Return all that the files of a folder depend on; what was not asked for is left out."""
    from gmaflow.evaluation.judging import fingerprint

    how = settings(estimator)
    # The device is left out: a run may go on elsewhere, as long as its precision stays.
    del how["device"]
    return {
        "frames": str(options.inputs[0].resolve()),
        **how,
        "weights": fingerprint(estimator.network),
        "warm_start": options.warm_start,
        "max_length": options.max_length,
        **({"attention": list(options.attention)} if options.attention else {}),
    }


def check_record(folder: Path, record: Record) -> None:
    """Refuse to go on with what was begun in another way.

    Raises:
        OutputError: The folder's record says so, or is broken.
    """
    path = folder / RECORD
    if not path.is_file():
        say(f"gmaflow: {folder} has no {RECORD}; what is there is taken to be of the same settings")
        return
    try:
        before = json.loads(path.read_text("utf-8"))
        different = [key for key, was in before.items() if record.get(key) != was]
    except (ValueError, AttributeError) as err:
        raise OutputError(f"{path} is broken; add --overwrite to begin anew") from err
    if different:
        key = different[0]
        raise OutputError(
            f"{folder} was begun with {key} {before[key]}, not {record.get(key)}; resume it with "
            "the same options, or choose another folder"
        )


def write_record(folder: Path, record: Record) -> None:
    """Write down how the flow in a folder is estimated."""
    with atomic_write(folder / RECORD) as temporary:
        temporary.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
