import json
from dataclasses import replace
from pathlib import Path

from gmaflow.weights import ModelCard, load_checkpoint, save_checkpoint
from tests.cli.conftest import Run


def test_list_names_every_model(run: Run) -> None:
    outcome = run("weights", "list")
    assert outcome.code == 0
    assert "gma-p-only" in outcome.out
    assert "raft-small" in json.loads(run("weights", "list", "--json").out)


def test_show_describes_a_file(run: Run, weights: dict[str, Path]) -> None:
    about = json.loads(run("weights", "show", weights["gma"], "--json").out)
    assert (about["model"], about["parameters"], about["format"]) == ("gma", 5_879_873, "gmaflow")
    assert about["config"]["num_heads"] == 1
    outcome = run("weights", "show", weights["raft-small.pth"])
    assert "raft-small" in outcome.out
    assert "990,162" in outcome.out
    assert "published" in outcome.out


def test_shipped_weights_are_shown_by_name(run: Run) -> None:
    about = json.loads(run("weights", "show", "gma", "--json").out)
    assert about["model"] == "gma"
    assert about["card"]["licence"] == "BSD-3-Clause"


def test_convert_there_and_back(run: Run, weights: dict[str, Path], tmp_path: Path) -> None:
    ours, theirs = tmp_path / "a.safetensors", tmp_path / "b.pth"
    outcome = run("weights", "convert", weights["raft-small.pth"], ours)
    assert (outcome.code, outcome.err) == (0, "")
    assert "raft-small" in outcome.out
    assert run("weights", "convert", ours, theirs).code == 0
    first, last = load_checkpoint(weights["raft-small.pth"]), load_checkpoint(theirs)
    assert all(first.tensors[name].equal(last.tensors[name]) for name in first.tensors)


def test_convert_to_the_model_that_it_is(
    run: Run, weights: dict[str, Path], tmp_path: Path
) -> None:
    target = tmp_path / "a.safetensors"
    assert run("weights", "convert", weights["gma.pth"], target, "--model", "gma-p").code == 0
    assert load_checkpoint(target).config.attention == "content+position"


def test_convert_keeps_existing_files(run: Run, weights: dict[str, Path], tmp_path: Path) -> None:
    target = tmp_path / "a.safetensors"
    target.write_text("precious")
    outcome = run("weights", "convert", weights["raft-small"], target)
    assert "exists; add --overwrite" in outcome.complaint
    assert target.read_text() == "precious"
    assert (
        run("weights", "convert", weights["raft-small"], target, "--overwrite", "--half").code == 0
    )


def test_bad_files_are_one_sentence(run: Run, weights: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.pth"
    broken.write_bytes(weights["raft-small.pth"].read_bytes()[:10_000])
    for args in (
        ("weights", "show", broken),
        ("weights", "show", tmp_path / "nowhere"),
        ("weights", "show", weights["gma"], "--model", "gmaa"),
        ("weights", "convert", weights["gma"], tmp_path / "a.onnx"),
        ("weights", "lst"),
    ):
        outcome = run(*args)
        assert outcome.code == 2
        assert outcome.out == ""
        assert outcome.err.startswith("gmaflow: ")
        assert outcome.err.count("\n") == 1
    assert not (tmp_path / "a.onnx").exists()


def test_a_card_cannot_drive_the_terminal(
    run: Run, weights: dict[str, Path], tmp_path: Path
) -> None:
    checkpoint = load_checkpoint(weights["raft-small"])
    path = tmp_path / "w.safetensors"
    card = replace(checkpoint.card, title="\x1b]0;mine\x07 [/b]")
    save_checkpoint(path, replace(checkpoint, card=card))
    outcome = run("weights", "show", path).out
    assert "\x1b" not in outcome
    assert "\\x1b]0;mine\\x07 [/b]" in outcome


def test_average_goes_from_the_first_weights_to_the_second(
    run: Run, weights: dict[str, Path], tmp_path: Path
) -> None:
    first = load_checkpoint(weights["gma"])
    doubled = {name: 2 * value for name, value in first.tensors.items()}
    save_checkpoint(tmp_path / "b.safetensors", replace(first, tensors=doubled))
    target = tmp_path / "mean.safetensors"
    outcome = run("weights", "average", weights["gma"], tmp_path / "b.safetensors", target)
    assert (outcome.code, outcome.err) == (0, "")
    found = load_checkpoint(target).tensors["context.conv_in.weight"]
    assert found.allclose(1.5 * first.tensors["context.conv_in.weight"])
    for share, other in (("0", weights["gma"]), ("1", tmp_path / "b.safetensors")):
        options = ("--share", share, "--overwrite")
        run("weights", "average", weights["gma"], tmp_path / "b.safetensors", target, *options)
        mean, expected = (load_checkpoint(path).tensors for path in (target, other))
        assert all(mean[n].equal(v) for n, v in expected.items() if v.is_floating_point())


def test_the_average_of_many_has_equal_shares_unless_the_last_has_its_own(
    run: Run, weights: dict[str, Path], tmp_path: Path
) -> None:
    first = load_checkpoint(weights["gma"])
    name = "context.conv_in.weight"
    files = []
    for factor in (0, 1, 5):
        files.append(tmp_path / f"{factor}.safetensors")
        changed = {key: factor * value for key, value in first.tensors.items()}
        save_checkpoint(files[-1], replace(first, tensors=changed))
    target = tmp_path / "mean.safetensors"
    for options, expected in (((), 2.0), (("--share", "0.4", "--overwrite"), 0.3 + 0.4 * 5)):
        assert run("weights", "average", *files, target, *options).code == 0
        found = load_checkpoint(target).tensors[name]
        assert found.allclose(expected * first.tensors[name], rtol=1e-5)


def test_an_average_keeps_what_both_cards_say(
    run: Run, weights: dict[str, Path], tmp_path: Path
) -> None:
    first = load_checkpoint(weights["gma"])
    cards = (
        ModelCard(trained_on="scenes", licence="BSD-3-Clause", iters=12, warm_start=False),
        ModelCard(trained_on="more scenes", licence="BSD-3-Clause", iters=32, warm_start=False),
    )
    paths = [tmp_path / f"{number}.safetensors" for number in range(2)]
    for path, card in zip(paths, cards, strict=True):
        save_checkpoint(path, replace(first, card=card))
    assert run("weights", "average", *paths, tmp_path / "mean.safetensors").code == 0
    found = load_checkpoint(tmp_path / "mean.safetensors").card
    assert found.trained_on == "scenes; more scenes"
    assert (found.licence, found.iters, found.warm_start) == ("BSD-3-Clause", None, False)


def test_published_files_are_averaged_as_the_model_that_they_are(
    run: Run, weights: dict[str, Path], tmp_path: Path
) -> None:
    target = tmp_path / "mean.safetensors"
    both = (weights["gma.pth"], weights["gma.pth"])
    assert run("weights", "average", *both, target, "--model", "gma-p").code == 0
    assert load_checkpoint(target).config.attention == "content+position"


def test_what_cannot_be_averaged_is_one_sentence(
    run: Run, weights: dict[str, Path], tmp_path: Path
) -> None:
    target = tmp_path / "mean.safetensors"
    outcome = run("weights", "average", weights["gma"], weights["raft-small"], target)
    assert "only weights of the same network can be averaged, not of gma and" in outcome.complaint
    same = ("weights", "average", weights["gma"], weights["gma"], target)
    assert "use one from 0 to 1" in run(*same, "--share", "nan").complaint
    assert "use one from 0 to 1" in run(*same, "--share", "2").complaint
    assert "got 2 files; give two or more" in run(*same[:4]).complaint
    forgotten = run("weights", "average", *[weights["gma"]] * 3).complaint
    assert "the mean would be written to the last file" in forgotten
    assert not target.exists()
