import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gmaflow.errors import DatasetError, FlowError
from gmaflow.evaluation.metrics import Figures
from gmaflow.evaluation.paper_tables import (
    FINAL_COMPONENTS,
    PaperTable,
    Run,
    TableCell,
    as_latex,
    as_markdown,
    as_plain,
    make_tables,
    measure_runs,
    open_trials,
)
from gmaflow.model import MODELS, NetworkConfig
from gmaflow.weights import Checkpoint, ModelCard
from tests.data.trees import things as things_scene
from tests.evaluation.conftest import random_estimator, write_sintel

GMA = MODELS["gma"]


def make_run(
    name: str, config: NetworkConfig, trained_on: str = "stage:things", origin: str = "gmaflow"
) -> Run:
    card = ModelCard(title=name, trained_on=trained_on)
    checkpoint = Checkpoint(config=config, tensors={}, card=card, origin=origin)
    return Run(name=name, checkpoint=checkpoint)


def figures(epe: float, fl: float = 0.0) -> Figures:
    return Figures(epe=epe, px1=0.0, px3=0.0, px5=0.0, fl=fl, pixels=1, images=1)


@pytest.mark.parametrize(
    ("config", "method", "components"),
    [
        (MODELS["raft"], "RAFT", ()),
        (MODELS["raft-small"], None, ()),
        (MODELS["gma-p"], "GMA (+p)", ()),
        (MODELS["gma-p-only"], "GMA (p only)", ()),
        (GMA, "GMA", FINAL_COMPONENTS),
        (replace(GMA, learned_alpha=False), None, ("1",)),
        (replace(GMA, combination="replace"), None, ("replace",)),
        (replace(GMA, residual=False), None, ("w/o residual",)),
        (replace(GMA, residual=False, learned_alpha=False), None, ()),
        (replace(GMA, num_heads=2), None, ()),
        (replace(MODELS["gma-p"], residual=False), None, ()),
    ],
)
def test_the_config_determines_the_row(
    config: NetworkConfig, method: str | None, components: tuple[str, ...]
) -> None:
    run = make_run("mine", config)
    assert (run.method, run.components) == (method, components)
    assert ("no row in either table" in run.about) == (not method and not components)


@pytest.mark.parametrize(
    ("trained_on", "origin", "training"),
    [
        ("stage:chairs", "gmaflow", "C"),
        ("stage:things", "gmaflow", "C+T"),
        ("stage:kitti", "gmaflow", "C+T+S/K"),
        ("scenes:mix", "gmaflow", "other data"),
        ("unknown", "published", "C+T+S/K"),
    ],
)
def test_the_training_data_is_reported(trained_on: str, origin: str, training: str) -> None:
    run = make_run("gma-sintel", GMA, trained_on, origin)
    assert run.training == training
    assert (trained_on in run.about) == (training == "other data")


@pytest.fixture
def tables() -> tuple[PaperTable, ...]:
    runs = [
        make_run("mine_1", GMA),
        make_run("fixed", replace(GMA, learned_alpha=False)),
        make_run("own", MODELS["raft"], "scenes:mix"),
    ]
    measured = {
        "mine_1": {("sintel", "clean"): figures(1.204), ("kitti-2015", "occ"): figures(4.0, 12.34)},
        "fixed": {("sintel", "clean"): figures(1.5)},
        "own": {("sintel", "clean"): figures(3.0)},
    }
    return make_tables(runs, measured, [])


def test_bold_and_parentheses_are_the_papers_own(tables: tuple[PaperTable, ...]) -> None:
    table = tables[0]
    bold = [
        (row.block, row.label, text)
        for row in table.rows
        for text, best, _ in table.cells(row)
        if row.source == "paper" and best
    ]
    seen = "C+T+S/K"
    assert bold == [
        ("C+T", "RAFT", "2.71"),
        ("C+T", "GMA (+p)", "16.6"),
        ("C+T", "GMA", "1.30"),
        ("C+T", "GMA", "4.69"),
        (seen, "GMA (p only)", "(0.56)"),
        (seen, "GMA (p only)", "(1.2)"),
        (seen, "GMA", "(0.62)"),
        (seen, "GMA", "(1.06)"),
        (seen, "GMA", "(1.2)"),
    ]


def test_runs_stand_below_the_papers_rows(tables: tuple[PaperTable, ...]) -> None:
    variants, ablations = tables
    assert [row.source for row in variants.rows if row.source != "paper"] == ["mine_1", "own"]
    mine = next(i for i, row in enumerate(variants.rows) if row.source == "mine_1")
    assert (variants.rows[mine - 1].label, variants.rows[mine - 1].source) == ("GMA", "paper")
    assert variants.rows[mine].values == (1.204, None, 4.0, 12.34)
    assert variants.rows[-1].block == "other data"
    ours = [(row.label, row.source) for row in ablations.rows if row.source != "paper"]
    assert ours == [
        ("1", "fixed"),
        ("alpha", "mine_1"),
        ("concatenate", "mine_1"),
        ("w/ residual", "mine_1"),
    ]
    best = [row for row in ablations.rows if list(ablations.cells(row))[3].best]
    assert [row.label for row in best if row.source == "mine_1"] == ["alpha"]


def test_networks_trained_on_other_data_are_apart_in_the_ablations() -> None:
    runs = [
        make_run("things", GMA),
        make_run("fixed", replace(GMA, learned_alpha=False)),
        make_run("sintel", GMA, "stage:sintel"),
        make_run("own", GMA, "scenes:mix"),
    ]
    clean = {"things": 1.3, "fixed": 1.4, "sintel": 0.6, "own": 1.1}
    measured = {name: {("sintel", "clean"): figures(error)} for name, error in clean.items()}
    table = make_tables(runs, measured, [])[-1]
    column = [column.group for column in table.columns].index("clean", 2)
    ours = {row.source: row for row in table.rows if row.label in ("1", "alpha")}
    cells = {source: list(table.cells(row))[column] for source, row in ours.items()}
    assert cells["sintel"] == TableCell("(0.60)")
    assert cells["things"] == TableCell("1.30", best=True)
    assert cells["own"] == TableCell("1.10")
    named = [line[1].text for line in next(iter(table.blocks()))]
    assert named == ["paper", "fixed", "paper", "things", "sintel (C+T+S/K)", "own (other data)"]


def test_a_part_of_things_is_reported_as_not_comparable(tmp_path: Path) -> None:
    things_scene(tmp_path, "TEST/B/0003")
    shutil.copytree(tmp_path / "frames_cleanpass", tmp_path / "frames_finalpass")
    (data,), notes = open_trials({"things": tmp_path})
    assert len(data.examples) == 8
    assert any("do not compare with the paper's, since" in note for note in notes)
    assert any("has 4 of FlyingThings3D's 7866 left-camera test pairs" in note for note in notes)


def test_all_forms_are_equivalent(tables: tuple[PaperTable, ...]) -> None:
    markdown, latex = as_markdown(tables, ["a note"]), as_latex(tables, ["a note"])
    plain = json.loads(json.dumps(as_plain(tables, ["a note"])))
    assert "|  |  | mine_1 | 1.20 | - | 4.00 | 12.3 |" in markdown
    assert r" &  & mine\_1 & 1.20 & - & 4.00 & 12.3 \\" in latex
    assert "<u>alpha</u>" in markdown
    assert r"\underline{$\alpha$}" in latex
    assert "a note" in markdown
    assert "a note" in latex
    for block in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end", latex, re.DOTALL):
        columns, body = block
        cells = {line.count("&") for line in body.splitlines() if line.endswith(r"\\")}
        assert cells == {len(columns) - 1}
    assert [len(table["rows"]) for table in plain["tables"]] == [len(t.rows) for t in tables]


def test_names_of_runs_do_not_break_a_table(tables: tuple[PaperTable, ...]) -> None:
    named = replace(tables[0], rows=(replace(tables[0].rows[0], source=r"a|b~c^{d}\e"),))
    assert r"a\|b~c^{d}\e" in as_markdown([named], [])
    assert r"a|b\textasciitilde{}c\textasciicircum{}\{d\}\textbackslash{}e" in as_latex([named], [])


def test_runs_are_measured_on_what_is_there(tmp_path: Path) -> None:
    root = write_sintel(tmp_path / "sintel", frames=6)
    trials, notes = open_trials({"sintel": root}, limit=2)
    assert [len(data.examples) for data in trials] == [4]
    assert any("4 of the 2082 published pairs" in note for note in notes)
    raft = make_run("small", MODELS["raft"])
    skipped = make_run("skipped", MODELS["raft-small"])
    measured = measure_runs(
        [raft, skipped],
        trials,
        tmp_path / "out",
        open_estimator=lambda _checkpoint, _padding: random_estimator(),
    )
    assert set(measured) == {"small"}
    assert measured["small"]["sintel", "final"].images == 2


def test_nothing_to_measure_is_refused(tmp_path: Path) -> None:
    nothing = make_run("small", MODELS["raft-small"])
    raft = make_run("raft", MODELS["raft"])
    for runs, message in (([nothing], "no row in either table"), ([raft], "--scenes")):
        with pytest.raises(FlowError, match=message):
            measure_runs(
                runs, [], tmp_path, open_estimator=lambda _checkpoint, _padding: random_estimator()
            )
    with pytest.raises(DatasetError, match="nowhere"):
        open_trials({"kitti-2015": tmp_path / "nowhere"})
