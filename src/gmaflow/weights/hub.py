"""Weights on the Hugging Face Hub, or in a local folder of the same layout.

    model.safetensors   weights in gmaflow's format, with the network's config and card in it
    config.json         the config again, for people and for the Hub's download counter
    README.md           the model card that the Hub shows

Only `model.safetensors` is read back. Folders need no extra; the Hub needs `gmaflow[hub]`.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from gmaflow.errors import OutputError, WeightsError, import_extra, os_reason
from gmaflow.io.paths import as_path, write_text
from gmaflow.version import __version__
from gmaflow.weights.checkpoint import (
    Checkpoint,
    ModelCard,
    describe,
    load_checkpoint,
    save_checkpoint,
    shipped_weights,
)

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
CARD_FILE = "README.md"
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
"""How the Hub writes a repository's name: owner/name."""

CARD = """\
---
library_name: gmaflow
license: {licence_id}
tags:
- optical-flow
- motion-estimation
- {family}
---

# {title}

Weights of an optical flow network for gmaflow: `{network}`, {parameters:,} parameters.

```python
from gmaflow import FlowEstimator  # pip install 'gmaflow[hub]'

estimator = FlowEstimator.from_pretrained("{name}")
flow = estimator("frame1.png", "frame2.png")
flow.save_picture("flow.png")
```

| | |
|---|---|
| network | `{network}` |
| trained on | {trained_on} |
| licence | {licence} |
{notes}{figures}"""


def load_pretrained(
    name: str | Path,
    *,
    revision: str | None = None,
    token: str | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
) -> Checkpoint:
    """Load weights from a local folder, or else the Hub; see `FlowEstimator.from_pretrained`."""
    if as_path(name, WeightsError).is_dir():
        return _load_folder(Path(name))
    repository = _repository_name(name)
    hub = _import_hub()
    with _explain_hub_errors(repository, revision):
        file = hub.hf_hub_download(
            repository,
            WEIGHTS_FILE,
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            library_name="gmaflow",
            library_version=__version__,
        )
    return load_checkpoint(file)


def save_pretrained(
    folder: str | Path, checkpoint: Checkpoint, *, half: bool = False, name: str | None = None
) -> Path:
    """Write weights, config and model card into a folder, and return the folder.

    An existing README.md is kept: it may have been edited by hand. `name` is what the card's
    example loads; default: the name of the folder.
    """
    folder = as_path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise OutputError(f"cannot create the folder {folder} ({os_reason(err)})") from None
    save_checkpoint(folder / WEIGHTS_FILE, checkpoint, half=half)
    write_text(folder / CONFIG_FILE, config_json(checkpoint))
    if not (folder / CARD_FILE).exists():
        write_text(folder / CARD_FILE, model_card(checkpoint, name or folder.resolve().name))
    return folder


def push_to_hub(
    repository: str,
    checkpoint: Checkpoint,
    *,
    half: bool = False,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str = "Upload gmaflow weights",
) -> str:
    """Upload weights, config and model card to the Hub, and return the commit's address.

    See `FlowEstimator.push_to_hub`. A README.md that is already there is kept.
    """
    if not REPOSITORY.fullmatch(str(repository)):
        raise WeightsError(f"{repository!r} is not a repository's name; give owner/name")
    api = _import_hub().HfApi(token=token, library_name="gmaflow", library_version=__version__)
    with TemporaryDirectory() as temporary, _explain_hub_errors(repository, revision, write=True):
        folder = save_pretrained(temporary, checkpoint, half=half, name=repository)
        api.create_repo(repository, private=private, exist_ok=True)
        if api.file_exists(repository, CARD_FILE, revision=revision):
            (folder / CARD_FILE).unlink()
        commit = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            revision=revision,
            commit_message=commit_message,
        )
    return str(commit.commit_url)


def config_json(checkpoint: Checkpoint) -> str:
    about = {
        "model_type": "gmaflow",
        "architecture": describe(checkpoint.config),
        "gmaflow_version": __version__,
        **asdict(checkpoint.config),
    }
    return json.dumps(about, indent=2) + "\n"


def model_card(checkpoint: Checkpoint, name: str) -> str:
    """Return the text of the model card, with the tags by which the Hub files it."""
    card, network = checkpoint.card, describe(checkpoint.config)
    rows = "".join(f"| {data} | {error:g} |\n" for data, error in card.figures.items())
    return CARD.format(
        licence_id=_licence_id(card),
        family="gma" if checkpoint.config.aggregates else "raft",
        title=_one_line(card.title) or name.rsplit("/", maxsplit=1)[-1],
        network=network,
        parameters=checkpoint.num_parameters,
        name=name,
        trained_on=_one_line(card.trained_on),
        licence=_one_line(card.licence),
        notes=f"\n{card.notes}\n" if card.notes else "",
        figures=f"\n| data | end-point error, px |\n|---|---|\n{rows}" if rows else "",
    )


def _load_folder(folder: Path) -> Checkpoint:
    if not (folder / WEIGHTS_FILE).is_file():
        raise WeightsError(
            f"the folder {folder} has no {WEIGHTS_FILE}; give one that save_pretrained wrote"
        )
    return load_checkpoint(folder / WEIGHTS_FILE)


def _repository_name(name: str | Path) -> str:
    """Return a valid repository name, or explain why it is not one."""
    text = str(name)
    if Path(text).is_file():
        raise WeightsError(f"{text} is a file; load it with FlowEstimator({text!r})")
    if text in shipped_weights():
        raise WeightsError(f"{text} ships with gmaflow; load it with FlowEstimator({text!r})")
    if isinstance(name, Path) or not REPOSITORY.fullmatch(text):
        raise WeightsError(
            f"there is no folder {text!r}; give an existing folder, or owner/name on the Hub"
        )
    return text


def _import_hub() -> ModuleType:
    return import_extra("huggingface_hub", "the Hub", extra="hub", error=WeightsError)


@contextmanager
def _explain_hub_errors(
    repository: str, revision: str | None, *, write: bool = False
) -> Iterator[None]:
    """Turn each error of huggingface_hub into one sentence."""
    from huggingface_hub import errors

    # The base of its HTTP errors is the one of the HTTP library that it uses, which is also the
    # base of connection errors. Version 1 uses httpx, version 2 another library.
    http_errors: tuple[type[Exception], ...] = (OSError, *errors.HfHubHTTPError.__bases__)
    try:
        yield
    except errors.GatedRepoError:
        why = "is gated; ask for access on its page, then log in with `hf auth login`"
    except errors.RepositoryNotFoundError:
        why = "is not on the Hub, or is private; check the name, or log in with `hf auth login`"
    except errors.RevisionNotFoundError:
        why = f"has no revision {revision!r}; give one of its branches, tags or commits"
    except errors.LocalEntryNotFoundError:
        why = "is not downloaded yet, and the Hub cannot be reached; check the connection"
    except errors.EntryNotFoundError:
        why = f"has no {WEIGHTS_FILE}; give a repository that push_to_hub wrote"
    except errors.LocalTokenNotFoundError:
        why = "cannot be used without a login; run `hf auth login`"
    except errors.HFValidationError as err:
        why = f"is not a valid name on the Hub ({_one_line(str(err))})"
    except http_errors as err:
        why = _explain_status(err, write=write)
    else:
        return
    raise WeightsError(f"the repository {repository} {why}") from None


def _explain_status(err: Exception, *, write: bool) -> str:
    status = getattr(getattr(err, "response", None), "status_code", None)
    if status in (401, 403):
        action = "written" if write else "read"
        return f"cannot be {action}: no permission; log in with a token that may: `hf auth login`"
    if status is not None:
        return f"cannot be used now: the Hub answered {status}; try again later"
    return f"cannot be reached ({_one_line(str(err)) or type(err).__name__}); check the connection"


def _licence_id(card: ModelCard) -> str:
    """Return a licence as the Hub spells it, or `other`."""
    hub_licences = {"bsd-3-clause", "mit", "apache-2.0", "wtfpl", "cc-by-nc-sa-4.0", "unknown"}
    text = card.licence.strip().lower()
    return text if text in hub_licences else "other"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
