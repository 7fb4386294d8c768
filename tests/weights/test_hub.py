"""Weights in folders of the Hub's layout, and on a Hub that runs on localhost."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gmaflow import FlowError, FlowEstimator
from gmaflow.errors import OutputError, WeightsError
from gmaflow.weights import ModelCard, fingerprint
from tests.conftest import random_checkpoint
from tests.weights.fake_hub import COMMIT, WRITER, FakeHub, serve_hub

CARD = ModelCard(
    title="Small | fast",
    trained_on="rendered scenes",
    licence="BSD-3-Clause",
    notes="For tests.",
    figures={"Middlebury": 0.31},
)


@pytest.fixture(scope="module")
def estimator() -> FlowEstimator:
    return FlowEstimator(replace(random_checkpoint(), card=CARD), iters=2, device="cpu")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A Hub on localhost, where huggingface_hub looks as if HF_ENDPOINT had named it."""
    constants = pytest.importorskip("huggingface_hub.constants")
    with serve_hub() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield server


@pytest.fixture
def load(hub: FakeHub, tmp_path: Path) -> Callable[..., FlowEstimator]:
    """Load from the fake Hub, on the CPU."""

    def load_it(name: str, **options: Any) -> FlowEstimator:  # noqa: ANN401
        cache = tmp_path / "cache"
        return FlowEstimator.from_pretrained(name, cache_dir=cache, device="cpu", **options)

    return load_it


def test_a_folder_gives_back_what_was_saved(estimator: FlowEstimator, tmp_path: Path) -> None:
    folder = estimator.save_pretrained(tmp_path / "weights" / "small")
    again = FlowEstimator.from_pretrained(folder, iters=3, device="cpu")
    assert fingerprint(again.network) == fingerprint(estimator.network)
    assert (again.iters, again.card) == (3, CARD)
    assert FlowEstimator.from_pretrained(str(folder), device="cpu").config == estimator.config


def test_half_precision_halves_the_file(estimator: FlowEstimator, tmp_path: Path) -> None:
    whole = estimator.save_pretrained(tmp_path / "whole") / "model.safetensors"
    half = estimator.save_pretrained(tmp_path / "half", half=True) / "model.safetensors"
    assert half.stat().st_size < 0.6 * whole.stat().st_size


def test_config_and_card_describe_the_network(estimator: FlowEstimator, tmp_path: Path) -> None:
    folder = estimator.save_pretrained(tmp_path / "small")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert config["model_type"] == "gmaflow"
    assert (config["architecture"], config["small"]) == ("raft-small", True)
    front, text = (folder / "README.md").read_text("utf-8").split("---\n")[1:]
    yaml = pytest.importorskip("yaml").safe_load(front)
    assert yaml["library_name"] == "gmaflow"
    assert yaml["license"] == "bsd-3-clause"
    assert "optical-flow" in yaml["tags"]
    assert r"# Small \| fast" in text
    assert 'from_pretrained("small")' in text
    assert "990,162 parameters" in text
    assert "| Middlebury | 0.31 |" in text


def test_a_card_edited_by_hand_is_kept(estimator: FlowEstimator, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    estimator.save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


def test_up_to_the_hub_and_back(
    estimator: FlowEstimator, hub: FakeHub, load: Callable[..., FlowEstimator]
) -> None:
    address = estimator.push_to_hub("someone/small", token=WRITER)
    assert address == f"{hub.url}/someone/small/commit/{COMMIT}"
    files = hub.repositories["someone/small"]
    assert set(files) == {"README.md", "config.json", "model.safetensors"}
    assert b'from_pretrained("someone/small")' in files["README.md"]

    again = load("someone/small", iters=4)
    assert fingerprint(again.network) == fingerprint(estimator.network)
    assert again.iters == 4
    assert load("someone/small", revision=COMMIT).config == estimator.config
    hub.broken = True
    assert load("someone/small", local_files_only=True).config == estimator.config


def test_a_private_repository_and_a_revision_are_what_was_asked_for(
    estimator: FlowEstimator, hub: FakeHub
) -> None:
    estimator.push_to_hub("someone/open", token=WRITER)
    estimator.push_to_hub("someone/own", token=WRITER, private=True, revision=COMMIT)
    assert hub.private == {"someone/own"}
    assert hub.written_to == ["main", COMMIT]


def test_a_card_on_the_hub_is_kept(estimator: FlowEstimator, hub: FakeHub) -> None:
    hub.repositories["someone/small"] = {"README.md": b"mine"}
    estimator.push_to_hub("someone/small", token=WRITER)
    assert hub.repositories["someone/small"]["README.md"] == b"mine"


def test_every_refusal_of_the_hub_is_one_sentence(
    hub: FakeHub, load: Callable[..., FlowEstimator]
) -> None:
    hub.repositories |= {"someone/empty": {"README.md": b""}, "someone/gated": {}}
    hub.repositories["someone/foreign"] = {"model.safetensors": b"\x08\0\0\0\0\0\0\0{}      "}
    hub.gated.add("someone/gated")
    for name, options, sentence in (
        ("someone/nothing", {}, "someone/nothing is not on the Hub, or is private; check"),
        ("someone/empty", {}, r"someone/empty has no model\.safetensors; give a repository"),
        ("someone/empty", {"revision": "v9"}, "someone/empty has no revision 'v9'; give"),
        ("someone/gated", {}, "someone/gated is gated; ask for access on its page"),
        ("someone/foreign", {}, "only files that gmaflow wrote can be read"),
        ("someone/empty", {"local_files_only": True}, "is not downloaded yet"),
        ("bad--/name..x", {}, "is not a valid name on the Hub"),
    ):
        with pytest.raises(WeightsError, match=sentence) as caught:
            load(name, **options)
        assert "\n" not in str(caught.value)


def test_an_unreachable_hub_is_one_sentence(
    hub: FakeHub,
    load: Callable[..., FlowEstimator],
    estimator: FlowEstimator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub.shutdown()
    hub.server_close()
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between its attempts
    with pytest.raises(WeightsError, match="the Hub cannot be reached; check the connection"):
        load("someone/small")
    with pytest.raises(WeightsError, match=r"someone/small cannot be reached .*check"):
        estimator.push_to_hub("someone/small", token=WRITER)


def test_no_permission_to_write_is_one_sentence(estimator: FlowEstimator, hub: FakeHub) -> None:
    hub.repositories["another/small"] = {}
    for name in ("someone/small", "another/small"):
        with pytest.raises(WeightsError, match=f"{name} cannot be written: no permission") as err:
            estimator.push_to_hub(name, token="hf_reader")
        assert "\n" not in str(err.value)
    assert hub.repositories == {"another/small": {}}
    for name in ("small", "a/b/c", "some one/small", ""):
        with pytest.raises(WeightsError, match="is not a repository's name; give owner/name"):
            estimator.push_to_hub(name, token=WRITER)


def test_names_that_are_not_folders_are_explained(
    estimator: FlowEstimator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("./nowhere", "no/such/folder", "nowhere", Path("no/where")):
        with pytest.raises(WeightsError, match=r"there is no folder .*give an existing folder, or"):
            FlowEstimator.from_pretrained(name)
    with pytest.raises(WeightsError, match=r"has no model\.safetensors; give one that save_pre"):
        FlowEstimator.from_pretrained(tmp_path)
    estimator.save_pretrained("small")
    with pytest.raises(WeightsError, match=r"is a file; load it with FlowEstimator\("):
        FlowEstimator.from_pretrained("small/model.safetensors")
    with pytest.raises(WeightsError, match="ships with gmaflow; load it with FlowEstimator"):
        FlowEstimator.from_pretrained("gma")
    with pytest.raises(FlowError, match="iters"):
        FlowEstimator.from_pretrained("small", iters=0)
    with pytest.raises(OutputError, match="cannot create the folder"):
        estimator.save_pretrained("small/config.json")


def test_without_the_extra_only_folders_work(
    estimator: FlowEstimator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    folder = estimator.save_pretrained(tmp_path / "small")
    assert FlowEstimator.from_pretrained(folder, device="cpu").config == estimator.config
    for attempt in (
        lambda: FlowEstimator.from_pretrained("someone/small"),
        lambda: estimator.push_to_hub("someone/small"),
    ):
        with pytest.raises(WeightsError, match=r"pip install 'gmaflow\[hub\]'"):
            attempt()
