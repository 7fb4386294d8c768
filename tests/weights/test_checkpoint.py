import json
import logging
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from gmaflow.errors import WeightsError
from gmaflow.model import MODELS, FlowNetwork
from gmaflow.weights import (
    Checkpoint,
    ModelCard,
    describe,
    find_checkpoint,
    fingerprint,
    load_checkpoint,
    name_weights,
    save_checkpoint,
)
from gmaflow.weights.published import to_published
from tests.conftest import random_checkpoint, random_images
from tests.io import bombs

CARD = ModelCard(title="a test", trained_on="nothing", licence="BSD-3-Clause", figures={"x": 1.5})


def make_checkpoint(model: str = "raft-small") -> Checkpoint:
    return replace(random_checkpoint(model), card=CARD)


@pytest.mark.parametrize("model", MODELS)
def test_saved_checkpoints_are_loaded_back(model: str, tmp_path: Path) -> None:
    saved = make_checkpoint(model)
    save_checkpoint(tmp_path / "a.safetensors", saved)
    loaded = load_checkpoint(tmp_path / "a.safetensors")
    assert (loaded.config, loaded.card) == (saved.config, saved.card)
    assert all(torch.equal(loaded.tensors[name], saved.tensors[name]) for name in saved.tensors)


def test_half_precision_halves_the_file_and_rounds(tmp_path: Path) -> None:
    saved = make_checkpoint()
    save_checkpoint(tmp_path / "whole.safetensors", saved)
    save_checkpoint(tmp_path / "half.safetensors", saved, half=True)
    whole, half = ((tmp_path / f"{n}.safetensors").stat().st_size for n in ("whole", "half"))
    assert 0.49 < half / whole < 0.52
    loaded = load_checkpoint(tmp_path / "half.safetensors")
    for name, value in loaded.tensors.items():
        assert value.dtype == saved.tensors[name].dtype
        torch.testing.assert_close(value, saved.tensors[name], atol=1e-3, rtol=1e-3)


def test_a_checkpoint_builds_its_network(tmp_path: Path) -> None:
    saved = make_checkpoint("gma")
    save_checkpoint(tmp_path / "a.safetensors", saved)
    network = load_checkpoint(tmp_path / "a.safetensors").build()
    assert not network.training
    assert saved.num_parameters == sum(p.numel() for p in network.parameters()) == 5_879_873
    images = random_images(1, 48, 64)
    torch.testing.assert_close(network(*images, iters=1).flow, saved.build()(*images, iters=1).flow)


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("prefix", ["module.", ""])
def test_published_files_load_with_every_wrapper(
    wrapped: bool, prefix: str, tmp_path: Path
) -> None:
    saved = make_checkpoint()
    theirs = {prefix + n: v for n, v in to_published(saved.tensors, saved.config).items()}
    torch.save({"state_dict": theirs, "epoch": 1} if wrapped else theirs, tmp_path / "a.pth")
    loaded = load_checkpoint(tmp_path / "a.pth")
    assert loaded.origin == "published"
    assert all(torch.equal(loaded.tensors[name], saved.tensors[name]) for name in saved.tensors)


def test_writing_the_authors_format_and_reading_it(tmp_path: Path) -> None:
    saved = make_checkpoint("raft")
    save_checkpoint(tmp_path / "a.pth", saved)
    assert all(name.startswith("module.") for name in torch.load(tmp_path / "a.pth"))
    loaded = load_checkpoint(tmp_path / "a.pth")
    assert all(torch.equal(loaded.tensors[name], saved.tensors[name]) for name in saved.tensors)


def test_the_assumed_attention_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_checkpoint(tmp_path / "a.pth", make_checkpoint("gma-p"))
    with caplog.at_level(logging.WARNING):
        assert load_checkpoint(tmp_path / "a.pth").config == MODELS["gma"]
    assert "assuming gma" in caplog.text
    caplog.clear()
    assert load_checkpoint(tmp_path / "a.pth", model=MODELS["gma-p"]).config == MODELS["gma-p"]
    assert not caplog.text


def test_the_real_published_checkpoint(raft_small_file: Path) -> None:
    checkpoint = load_checkpoint(raft_small_file)
    assert describe(checkpoint.config) == "raft-small"
    assert checkpoint.num_parameters == 990_162


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_loading_weights_does_not_load_torchs_compiler(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    save_checkpoint(path, make_checkpoint())
    program = f"""
import sys
from gmaflow import load_checkpoint
load_checkpoint({str(path)!r}).build()
assert "torch._dynamo.symbolic_convert" not in sys.modules  # it takes two seconds
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_network_is_no_file_of_weights() -> None:
    network = FlowNetwork(MODELS["raft-small"])
    for weights in (network, network.state_dict()):
        with pytest.raises(
            WeightsError, match=f"^the weights are of type {type(weights).__name__}; use a "
        ):
            find_checkpoint.__wrapped__(weights)  # type: ignore[attr-defined]


def test_a_model_that_differs_from_the_file_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "a.safetensors", make_checkpoint("raft"))
    with pytest.raises(WeightsError, match="holds raft, but gma was requested"):
        load_checkpoint(tmp_path / "a.safetensors", model=MODELS["gma"])


class Evil:
    """What a malicious pickle does when it is opened."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch pwned",)


def test_a_malicious_pickle_is_refused_without_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"fnet.conv1.weight": Evil()}, tmp_path / "zip.pth")
    (tmp_path / "bare.pth").write_bytes(pickle.dumps({"a": Evil()}))
    for name in ("zip.pth", "bare.pth"):
        with pytest.raises(WeightsError, match=f"{name}: refused.*could run untrusted code"):
            load_checkpoint(tmp_path / name)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("keep", [0, 5, 100, 20_000, 0.5, 0.999])
def test_truncated_files_are_refused(suffix: str, keep: float, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    save_checkpoint(path, make_checkpoint())
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(WeightsError, match=f"a{suffix}: "):
        load_checkpoint(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello, this is no checkpoint")
    torch.save([1, 2, 3], tmp_path / "list.pth")
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "linear.pth")
    save_file({"a": torch.ones(1)}, tmp_path / "foreign.safetensors")
    os.mkfifo(tmp_path / "pipe.pth")
    for name, complaint in {
        "a.txt": "not a weights file",
        "list.pth": "not named tensors",
        "linear.pth": "not the tensors of a RAFT or GMA network",
        "foreign.safetensors": "no description of the network by gmaflow",
        "nowhere.pth": "does not exist",
        "": "is a folder",
        "pipe.pth": "is not a regular file",
    }.items():
        with pytest.raises(WeightsError, match=complaint):
            load_checkpoint(tmp_path / name)


def test_a_description_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    for about in ("{", "{}", "[]", json.dumps({"config": {"wings": 2}}), "[" * 5000):
        save_file({"a": torch.ones(1)}, path, {"gmaflow": about})
        with pytest.raises(WeightsError, match="written by a newer gmaflow"):
            load_checkpoint(path)


def test_a_lying_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", 2**60) + b"{}")
    with pytest.raises(WeightsError, match="truncated or damaged"):
        load_checkpoint(path)


def test_a_path_that_is_not_text_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.safetensors")
    save_checkpoint(path, make_checkpoint())
    with pytest.raises(WeightsError, match="its path is not UTF-8; rename the file or its folder"):
        load_checkpoint(path)


def test_a_built_network_is_a_copy() -> None:
    checkpoint = make_checkpoint()
    network = checkpoint.build()
    torch.nn.init.zeros_(network.features.conv_in.weight)
    assert checkpoint.tensors["features.conv_in.weight"].abs().sum() > 0


def test_building_draws_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = make_checkpoint()
    monkeypatch.setattr(torch.random, "fork_rng", lambda **_options: nullcontext())
    before = torch.get_rng_state()
    built = checkpoint.build().state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(built[name], value) for name, value in checkpoint.tensors.items())


def test_building_does_not_change_the_random_state() -> None:
    checkpoint = make_checkpoint()
    before = torch.get_rng_state()
    checkpoint.build()
    assert torch.equal(torch.get_rng_state(), before)


def test_an_unknown_suffix_is_refused_and_nothing_written(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"written as \.safetensors or \.pth"):
        save_checkpoint(tmp_path / "a.bin", make_checkpoint())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_tensors_that_could_not_be_loaded_are_not_saved(suffix: str, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / f"a{suffix}", make_checkpoint()
    wrapped = {f"_orig_mod.{name}": value for name, value in checkpoint.tensors.items()}
    with pytest.raises(
        WeightsError, match=r"do not fit this network: missing .*; unexpected _orig"
    ):
        save_checkpoint(path, replace(checkpoint, tensors=wrapped))
    empty = {name: value.to("meta") for name, value in checkpoint.tensors.items()}
    with pytest.raises(WeightsError, match="not plain numbers"):
        save_checkpoint(path, replace(checkpoint, tensors=empty))
    assert not path.exists()


def test_networks_are_described_by_name_and_difference() -> None:
    assert describe(MODELS["gma-p-only"]) == "gma-p-only"
    assert describe(replace(MODELS["gma"], num_heads=2)) == "gma with num_heads=2"


def test_a_fingerprint_is_of_the_weights_and_of_what_they_are_for() -> None:
    network = make_checkpoint("gma").build()
    same, other = make_checkpoint("gma").build(), make_checkpoint("gma-p").build()
    assert fingerprint(same) == fingerprint(network) != fingerprint(other)
    with torch.no_grad():
        same.features.conv_in.weight[0, 0, 0, 0] += 1
    assert fingerprint(same) != fingerprint(network)


def test_tensors_of_another_network_build_none() -> None:
    odd = Checkpoint(config=MODELS["raft-small"], tensors={"module.x": torch.zeros(1)})
    with pytest.raises(WeightsError, match=r"missing .* unexpected module.x"):
        odd.build()


def test_a_pickle_that_allocates_memory_is_refused(tmp_path: Path) -> None:
    bombs.write_pth_of_zeros(tmp_path / "a.pth")
    statement = "from gmaflow.weights import load_checkpoint; load_checkpoint(path)"
    answer = bombs.read_in_a_process(tmp_path / "a.pth", statement)
    assert answer.startswith("WeightsError a.pth: refused: it holds more than tensors")


def test_a_compressed_checkpoint_is_refused(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(100_000)}, tmp_path / "a.pth")
    with (
        zipfile.ZipFile(tmp_path / "a.pth") as stored,
        zipfile.ZipFile(tmp_path / "b.pth", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in stored.namelist():
            packed.writestr(name, stored.read(name))
    with pytest.raises(WeightsError, match=r"b\.pth: refused: it is compressed"):
        load_checkpoint(tmp_path / "b.pth")


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    """Its directory claims a pickle longer than the file."""
    path = tmp_path / "a.pth"
    torch.save({"module.a": torch.ones(3)}, path)
    raw = bytearray(path.read_bytes())
    entry = raw.index(b"PK\1\2")
    raw[entry + 20 : entry + 28] = 2 * (10**6).to_bytes(4, "little")  # both lengths
    path.write_bytes(raw)
    with pytest.raises(WeightsError):
        load_checkpoint(path)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".tiff"])
def test_an_image_is_not_a_weights_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    Image.new("RGB", (16, 16)).save(path)
    with pytest.raises(WeightsError, match="not a weights file; give a "):
        load_checkpoint(path)


def test_a_card_may_say_whether_a_warm_start_helps(tmp_path: Path) -> None:
    checkpoint = find_checkpoint("gma")
    assert checkpoint.card.warm_start is False
    save_checkpoint(tmp_path / "a.safetensors", checkpoint, half=True)
    assert load_checkpoint(tmp_path / "a.safetensors").card.warm_start is False


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({"warm_start": "yes"}, "warm_start is 'yes', not true or false"),
        ({"title": 3}, "title is 3, not a text"),
        ({"licence": None}, "licence is None, not a text"),
        ({"figures": ["sintel"]}, "figures is .*, not numbers by name"),
        ({"figures": {"sintel": "1.5"}}, "figures is .*, not numbers by name"),
    ],
)
def test_a_card_with_values_of_other_types_is_refused(
    entry: dict[str, object], complaint: str
) -> None:
    card = object.__new__(ModelCard)  # behind the annotations, which the tests enforce
    vars(card).update(asdict(CARD) | entry)
    with pytest.raises(ValueError, match=complaint):
        card.__post_init__()


def test_a_name_that_no_file_can_have_is_refused() -> None:
    for name in (1000 * "a", f"{1000 * 'a'}.pth"):
        with pytest.raises(WeightsError, match="file name too long"):
            find_checkpoint(name)
        with pytest.raises(WeightsError, match="file name too long"):
            name_weights(name)
    for use in (find_checkpoint, name_weights):
        with pytest.raises(WeightsError, match="contains a null byte"):
            use("gm\0a")


def test_a_run_gives_its_best_or_newest_weights(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="contains no trained weights"):
        find_checkpoint(tmp_path)
    for name, title in (("weights", "newest"), ("best", "best")):
        checkpoint = replace(find_checkpoint("raft"), card=ModelCard(title=title))
        save_checkpoint(tmp_path / f"{name}.safetensors", checkpoint, half=True)
        assert find_checkpoint(tmp_path).card.title == title
        assert find_checkpoint(str(tmp_path), model="raft").card.title == title
