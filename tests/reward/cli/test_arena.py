"""`capreward arena` on small files of battles: tables, JSON, report, proposals, and what is wrong with a file."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reward.arena import draw_arena
from reward.battles import read_battles
from tests.reward.cli.conftest import Run

WORDS = {1.0: "Caption 1 is better.", 0.0: "Caption 2 is better.", 0.5: "Tie."}


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """`capreward arena` with a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return partial(run, "arena")


@pytest.fixture
def entries() -> list[dict[str, Any]]:
    """300 battles of four models and of people; "model 1" is the best, and writes the shortest captions."""
    arena, points = draw_arena([1.2, 0.4, -0.4, -1.2], 300, images=80, ties=0.2, seed=0)
    rows: list[dict[str, Any]] = []
    for number, (pair, won, image) in enumerate(zip(arena.pairs, points, arena.images, strict=True)):
        one, two = (arena.systems[place] for place in pair)
        row: dict[str, Any] = {"img": image, "source1": one, "source2": two, "ref": "words " * 5}
        row |= {f"caption{place}": "words " * (2 * int(name[-1])) for place, name in ((1, one), (2, two))}
        row |= {"winner": {1: one, 0: two}.get(won, "equal"), "cluster": f"level {1 + number % 4}"}
        row |= {"judge": WORDS[won], "good": [-int(one[-1]), -int(two[-1])]}
        rows.append(row)
    row = {"img": "x.jpg", "source1": "human", "source2": "model 1", "caption1": "words", "caption2": "words"}
    return [*rows, {**row, "winner": "human"}, {**row, "img": "y.jpg", "winner": "model 1"}]


def write(folder: Path, rows: Any) -> Path:
    path = folder / "battles.json"
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def test_ratings_and_agreement_as_tables(run: Run, entries: list[dict[str, Any]], tmp_path: Path) -> None:
    code, out, err = run(write(tmp_path, entries), "--score-column", "good", "--resamples", 50)
    assert code == 0, err
    ratings, agreement, bias = (
        out.split("Agreement with people")[0],
        *out.split("Agreement with people")[1].split("Bias"),
    )
    assert [line.split("│")[1].strip() for line in ratings.splitlines() if "model" in line] == [
        "model 1",
        "model 2",
        "model 3",
        "model 4",
    ]
    assert "Ratings by people: 302 battles" in ratings
    for name in ("overall", "level 4", "Spearman (Elo)", "judge", "length", "column:good"):
        assert name in agreement
    judge = next(line for line in agreement.splitlines() if "judge" in line)
    assert "100.0 [100.0, 100.0]" in judge
    assert "human" not in bias
    assert "people: the first caption won" in err
    assert "Battles of the source 'human' are left out" in err


def test_json_holds_all_figures(run: Run, entries: list[dict[str, Any]], tmp_path: Path) -> None:
    path = write(tmp_path, entries)
    code, out, err = run(path, "-s", "good", "--json", "--resamples", 50, "--quiet")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert set(found["systems"]) == {"human", "model 1", "model 2", "model 3", "model 4"}
    assert found["decided_by"] == "people"
    assert found["battles"] == 302
    best = found["ratings"]["people"]["bradley-terry"]["model 1"]
    assert best["low"] < best["rating"] < best["high"]
    assert "human" not in found["ratings"]["length"]["elo"]
    good, length = (found["agreement"][name] for name in ("column:good", "length"))
    assert list(good["levels"]) == ["level 1", "level 2", "level 3", "level 4", "overall"]
    assert good["battles"]["overall"] == 300
    assert good["ranking"]["elo"]["spearman"]["value"] == 1
    assert length["ranking"]["elo"]["spearman"]["value"] == -1  # the best model writes the shortest captions
    assert good["levels"]["overall"]["value"] > length["levels"]["overall"]["value"]
    assert length["bias"]["model 1"]["value"] < -0.5
    assert found["deciders"]["judge"]["position_bias"]["first"] > 0
    again = run(path, "-s", "good", "--json", "--resamples", 50, "--quiet")[1]
    assert json.loads(again)["agreement"] == found["agreement"]


def test_a_report_with_plots(run: Run, entries: list[dict[str, Any]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    output = tmp_path / "report"
    code, _, err = run(write(tmp_path, entries), "--output", output, "--resamples", 50)
    assert code == 0, err
    assert {path.name for path in output.iterdir()} == {
        "arena.json",
        "arena.md",
        "arena.html",
        "ratings.png",
        "ratings.svg",
        "bias.png",
        "bias.svg",
    }
    assert json.loads((output / "arena.json").read_text())["systems"][-1] == "model 4"
    assert "| model 1 |" in (output / "arena.md").read_text()
    assert "![bias](bias.png)" in (output / "arena.md").read_text()
    page = (output / "arena.html").read_text()
    assert page.count('<svg class="chart"') == 2
    assert "Bradley-Terry" in page
    assert "<script" not in page
    assert (output / "ratings.png").read_bytes().startswith(b"\x89PNG")
    assert ">model 3<" in (output / "ratings.svg").read_text()


def test_a_column_may_be_called_as_a_metric_and_is_read_first(
    run: Run, entries: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = [{**entry, "length": entry.get("good")} for entry in entries]
    line = ("-s", "length", "-m", "column:good", "-m", "column:length", "--json", "-q", "--resamples", 20)
    code, out, err = run(write(tmp_path, named), *line)
    assert code == 0, err
    found = json.loads(out)["agreement"]
    assert list(found) == ["judge", "column:good", "column:length", "length"]
    assert found["column:length"] == found["column:good"] != found["length"]

    def score(*arguments: object, **options: object) -> None:
        raise AssertionError("scored before the columns were read")

    monkeypatch.setattr("reward.arena.by_metric", score)
    code, _, err = run(write(tmp_path, named), "-s", "wrong", "-m", "unigram")
    assert (code, "no battle has scores 'wrong'" in err) == (1, True)


def test_names_are_shown_as_they_are(run: Run, entries: list[dict[str, Any]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    renamed = json.loads(json.dumps(entries[:40]).replace("model 2", "$a^$ <b>[/b]"))
    code, out, err = run(write(tmp_path, renamed), "--output", tmp_path / "report", "--resamples", 20)
    assert code == 0, err
    assert out.count("$a^$ <b>[/b]") == 2
    page = (tmp_path / "report" / "arena.html").read_text()
    assert page.count(">$a^$ &lt;b&gt;[/b]<") == 4  # two tables, two plots


def test_battles_of_a_judge_alone(run: Run, entries: list[dict[str, Any]], tmp_path: Path) -> None:
    judged = [{name: value for name, value in entry.items() if name != "winner"} for entry in entries]
    code, out, err = run(write(tmp_path, judged), "--resamples", 20)
    assert code == 0, err
    assert "Ratings by judge: 300 battles" in out
    assert "Agreement" not in out
    assert "no rating by judge of human" in err


def test_a_metric_decides_where_nobody_else_did(run: Run, entries: list[dict[str, Any]], tmp_path: Path) -> None:
    bare = [{name: value for name, value in e.items() if name not in ("winner", "judge")} for e in entries]
    path = write(tmp_path, bare)
    code, _, err = run(path)
    assert code == 1
    assert "no battle has a winner: give 'winner'" in err
    code, out, err = run(path, "--metric", "length", "--resamples", 20, "--prior", 1)
    assert code == 0, err
    assert "Ratings by length: 300 battles" in out
    assert "Prior: 1 more games" in err


def test_proposals_are_a_file_of_battles(run: Run, entries: list[dict[str, Any]], tmp_path: Path) -> None:
    code, out, err = run(write(tmp_path, entries), "--next", 6, "--seed", 3)
    assert code == 0
    proposed = json.loads(out)
    assert len(proposed) == 6
    assert " x " in err
    read = read_battles(write(tmp_path, proposed))
    met = {(e["img"], frozenset((e["source1"], e["source2"]))) for e in entries}
    assert all((battle.img, frozenset((battle.source1, battle.source2))) not in met for battle in read)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"winner": "nobody"}, (), "'winner' must be one of the two, or 'equal', got 'nobody'"),
        ({"source2": "model 1", "source1": "model 1"}, (), "battle 1 is one of 'model 1' against itself"),
        ({}, ("--metric", "clap"), "no metric is named 'clap'"),
        ({}, ("--metric", "length="), "'length=' is not a metric"),
        ({}, ("--score-column", "bad"), "no battle has scores 'bad'"),
        ({"good": "high"}, ("--score-column", "good"), "'good' must hold two numbers"),
        ({}, ("--metric", "vela"), "looks at the images"),
        ({"judge": "Tie.", "judge_orders": ["both"]}, (), "'judge_orders' must be a list of 'Caption 1 is better.'"),
        ({"judge": "Tie.", "judge_orders": 2}, (), "'judge_orders' must be a list"),
        ({}, ("--prior", "inf"), "the prior must be a finite number of games"),
    ],
)
def test_faults_are_named(
    run: Run,
    entries: list[dict[str, Any]],
    tmp_path: Path,
    change: dict[str, Any],
    options: tuple[str, ...],
    message: str,
) -> None:
    entries[0] |= change
    code, _, err = run(write(tmp_path, entries), *options)
    assert code == 1
    assert message in err
    assert "Traceback" not in err


def test_models_that_never_met_are_named(run: Run, entries: list[dict[str, Any]], tmp_path: Path) -> None:
    kept = [e for e in entries if {e["source1"], e["source2"]} in ({"model 1", "model 2"}, {"model 3", "model 4"})]
    code, _, err = run(write(tmp_path, kept))
    assert code == 1
    assert "no decided battle links these 2 groups of models" in err
    assert "model 1" in err.split("|")[0] and "model 3" in err  # noqa: PT018


def test_a_model_that_won_everything(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    captions = {"caption1": "A dog.", "caption2": "A cat runs."}
    rows = [{"img": str(n), "source1": "x", "source2": "y", "winner": "x", **captions} for n in range(5)]
    path = write(tmp_path, rows)
    code, out, err = run(path, "--resamples", 20, "-o", tmp_path / "report")
    assert code == 0, err
    assert re.search(r"│ x +│ +inf │", out)
    assert "rating by people of x: infinite" in err
    code, out, _ = run(path, "--resamples", 20, "--prior", 1)
    assert "inf" not in out
