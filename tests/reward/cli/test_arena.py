"""`capreward arena` on small files of battles: tables, JSON, report, and what is wrong with a file."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reward.judges.pairwise import PairPrompt
from tests.reward.cli.conftest import Run
from tests.reward.metaeval.arena.made_arenas import BASELINES, TABLE_8, WORDS, draw_arena
from tests.toys.rating_judges import save_choosing_judge

pytestmark = pytest.mark.slow


@pytest.fixture
def run(run: Run) -> Run:
    """`capreward arena`."""
    return partial(run, "arena")


@pytest.fixture
def entries() -> list[dict[str, Any]]:
    """300 battles of four models and of people; "model 1" is the best, and writes the shortest captions."""
    battles, points = draw_arena([1.2, 0.4, -0.4, -1.2], 300, images=80, ties=0.2, seed=0)
    rows: list[dict[str, Any]] = []
    for number, (battle, won) in enumerate(zip(battles, points, strict=True)):
        one, two = battle["source1"], battle["source2"]
        row: dict[str, Any] = {**battle, "ref": "words " * 5}
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


def test_ratings_and_agreement_as_tables_and_as_json(run: Run, entries: list[dict[str, Any]], tmp_path: Path) -> None:
    odd = "model <b>[/b] 4"  # is shown as it is
    path = write(tmp_path, json.loads(json.dumps(entries).replace("model 4", odd)))
    out, err = run(path, "--score-column", "good", "--resamples", 50)
    ratings, agreement, bias = re.split("Agreement with people|Bias", out)
    names = [line.split("│")[1].strip() for line in ratings.splitlines() if "model" in line]
    assert names == [*(f"model {number}" for number in range(1, 4)), odd]
    path = write(tmp_path, entries)
    assert "Ratings by people: 302 battles" in ratings
    for name in ("overall", "level 4", "Spearman (Elo)", "judge", "length", "column:good"):
        assert name in agreement
    judge = next(line for line in agreement.splitlines() if "judge" in line)
    assert "100.0 [100.0, 100.0]" in judge
    assert "human" not in bias
    assert "people: the first caption won" in err
    assert "Battles of the source 'human' are left out" in err

    out, err = run(path, "-s", "good", "--json", "--resamples", 50, "--quiet")
    assert err == ""
    figures = json.loads(out)
    assert set(figures["systems"]) == {"human", "model 1", "model 2", "model 3", "model 4"}
    assert figures["decided_by"] == "people"
    assert figures["battles"] == 302
    best = figures["ratings"]["people"]["bradley-terry"]["model 1"]
    assert best["low"] < best["rating"] < best["high"]
    assert "human" not in figures["ratings"]["length"]["elo"]
    good, length = (figures["agreement"][name] for name in ("column:good", "length"))
    assert list(good["levels"]) == ["level 1", "level 2", "level 3", "level 4", "overall"]
    assert good["battles"]["overall"] == 300
    assert good["ranking"]["elo"]["spearman"]["value"] == 1
    assert length["ranking"]["elo"]["spearman"]["value"] == -1  # the best model writes the shortest captions
    assert good["levels"]["overall"]["value"] > length["levels"]["overall"]["value"]
    assert length["bias"]["model 1"]["value"] < -0.5
    assert figures["deciders"]["judge"]["position_bias"]["first"] > 0


def test_a_column_may_be_called_as_a_metric(run: Run, entries: list[dict[str, Any]], tmp_path: Path) -> None:
    named = [{**entry, "length": entry.get("good")} for entry in entries]
    line = ("-s", "length", "-m", "column:good", "-m", "column:length", "--json", "-q", "--resamples", 20)
    figures = json.loads(run(write(tmp_path, named), *line)[0])["agreement"]
    assert list(figures) == ["judge", "column:good", "column:length", "length"]
    assert figures["column:length"] == figures["column:good"] != figures["length"]
    assert "no battle has scores 'wrong'" in run(write(tmp_path, named), "-s", "wrong", "-m", "unigram", code=1)[1]


def test_a_judge_or_a_metric_may_decide(run: Run, entries: list[dict[str, Any]], tmp_path: Path) -> None:
    for entry in entries:
        del entry["winner"]
    out, _ = run(write(tmp_path, entries), "--resamples", 20)
    assert "Ratings by judge: 300 battles" in out
    assert "Agreement" not in out
    for entry in entries:
        entry.pop("judge", None)
    path = write(tmp_path, entries)
    assert "no battle has a winner: give 'winner'" in run(path, code=1)[1]
    out, _ = run(path, "--metric", "length", "--resamples", 20)
    assert "Ratings by length: 300 battles" in out


# The tables of CapArena's paper


def test_the_published_leaderboard_and_ranking_give_the_published_correlations(run: Run, tmp_path: Path) -> None:
    """Table 3 of the paper: .943 and .824."""
    (tmp_path / "table8.json").write_text(json.dumps(TABLE_8 | {"cambrian-34b": -75.0}))
    line = ("--leaderboard", f"auto={tmp_path / 'table8.json'}", "--ranking", "caparena")
    ranks = json.loads(run(*line, "--json")[0])["correlations"]["leaderboard:auto"]["score"]
    assert {kind: round(each["value"], 3) for kind, each in ranks.items()} == {"spearman": 0.943, "kendall": 0.824}
    out, err = run(*line)
    assert re.search("leaderboard:auto . +94.3 . +82.4", out)
    assert "Fixed ranking: CapArena's annotators" in err


def test_the_table_of_metrics_with_judges_and_a_second_annotator(
    run: Run, entries: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Table 2 of the paper, from one file for each judge; the second annotator is on the battles marked in-400."""
    marked = [{**entry, "in-400": number < 40} for number, entry in enumerate(entries)]
    contrary = {words: WORDS[1 - won] for won, words in WORDS.items()}
    turned = [{**entry, "judge": contrary[entry["judge"]]} if "judge" in entry else entry for entry in marked]
    (tmp_path / "turned.json").write_text(json.dumps(turned[::-1]))  # in another order
    second = [{**entry, "winner": "equal"} if number < 10 else entry for number, entry in enumerate(marked)]
    (tmp_path / "second.json").write_text(json.dumps(second))
    (tmp_path / "ranking.json").write_text(json.dumps([f"model {number}" for number in (4, 3, 2, 1, 0)]))
    line = ("--judged", f"contrary={tmp_path / 'turned.json'}", "--annotator", tmp_path / "second.json", "--json", "-q")
    line += ("--resamples", 20, "--pair-weights", "--ranking", tmp_path / "ranking.json")
    figures = json.loads(run(write(tmp_path, marked), *line)[0])
    agreement = figures["agreement"]
    assert agreement["judge"]["levels"]["overall"]["value"] == 1
    ties = sum(entry["winner"] == "equal" for entry in entries) / 300
    assert agreement["contrary"]["levels"]["overall"]["value"] == pytest.approx(ties)
    assert agreement["annotator"]["battles"]["overall"] == 40
    same = sum(one["winner"] == two["winner"] for one, two in zip(marked[:40], second, strict=False)) / 40
    assert agreement["annotator"]["levels"]["overall"]["value"] == pytest.approx(same)
    ranks = {name: row["elo"]["spearman"]["value"] for name, row in figures["correlations"].items()}
    assert ranks["people"] == ranks["judge"] == -1  # the fixed ranking is upside down
    assert ranks["contrary"] == ranks["length"] == 1
    assert figures["weighted"] is True
    out, err = run(tmp_path / "battles.json", *line[:4], *line[6:])
    assert "Spearman (B-T)" in out.split("Correlation with the fixed ranking")[1]
    assert "Spearman" not in out.split("Correlation with the fixed ranking")[0]
    assert "Fixed ranking: ranking.json; 4 models are in it and in the battles" in err
    assert "each battle counts 1 / P" in err


def test_a_folder_in_the_layout_of_caparena_auto_gives_the_leaderboard(run: Run, tmp_path: Path) -> None:
    """A file for each model beside the benchmark; one model is a baseline and does not meet itself."""
    folder, strength = tmp_path / "caparena_auto", {"good": 2, "base": 1, "poor": 0, "other": 1}
    folder.mkdir()
    (folder / "caparena_auto_600.json").write_text("{}")
    for model in ("good", "base", "poor"):
        rows = []
        for number in range(8):
            pair = [model, ("base", "other")[number % 2]]
            if pair[0] == pair[1]:
                continue
            pair = pair[:: 1 if number % 3 else -1]
            judge = WORDS[(strength[pair[0]] - strength[pair[1]] > 0) + 0.5 * (strength[pair[0]] == strength[pair[1]])]
            row = {"img": f"{number}.jpg", "caption1": "a b", "caption2": "a b", "ref": "c", "judge": judge}
            rows.append({**row, "source1": pair[0], "source2": pair[1], "ref_model": ("base", "other")[number % 2]})
        rows[-1]["judge"] = "I cannot say."
        (folder / f"{model}.json").write_text(json.dumps(rows))
    (tmp_path / "ranking.json").write_text('{"source": "me", "ranking": {"poor": 1, "base": 5, "good": 7}}')
    out, err = run(folder, "--ranking", tmp_path / "ranking.json", "--resamples", 20)
    board = [re.findall(r"[\w.-]+", row) for row in out.split("CapArena-Auto by judge")[1].splitlines()[4:7]]
    assert [row[:2] for row in board] == [["good", "87.50"], ["base", "0.00"], ["poor", "-87.50"]]
    assert board[1][2:] == ["0.00", "0.00", "2.00", "3", "of", "4"]
    assert re.search("judge .* 100.0 . +100.0 .$", out.split("Kendall (score)")[1].splitlines()[2])
    assert "a tie; 0 against itself" in err
    assert "judge: 3 without a result; the first:" in err
    twice = run(folder, folder / "good.json", code=1)[1]
    assert "'good' is on '0.jpg' twice: give the battles of each model, by one judge, once" in twice


# A judge decides


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose answers begin with 1, 2 or 0."""
    return save_choosing_judge(tmp_path_factory.mktemp("judge"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images, the captions of two models, and CapArena-Auto's file, all small."""
    auto = {}
    for number in range(6):
        name = f"test_{number:05}.png"
        Image.new("RGB", (32, 32), (40 * number, 0, 90)).save(tmp_path / name)
        captions = {"human": f"A person saw {number}.", **{base: f"{base} saw {number}." for base in BASELINES}}
        auto[name] = {"captions": captions, "ref_model": BASELINES[number % 3]}
    (tmp_path / "caparena_auto_600.json").write_text(json.dumps(auto))
    for model in ("old", "new"):
        (tmp_path / f"{model}.json").write_text(json.dumps({name: f"{model} caption of {name}" for name in auto}))
    return tmp_path


def test_captions_of_two_models_meet(run: Run, folder: Path, model: Path) -> None:
    output = folder / "battles.json"
    line = [folder / "old.json", f"fresh={folder / 'new.json'}", "--judge", model, "--no-reasons", "--resamples", 20]
    out, err = run(*line, "-o", output)
    assert "judged 6 battles" in err
    assert "12 questions answered by the judge" in err
    assert "judge: the first caption won" in err
    assert "Ratings by judge: 6 battles" in out
    written = json.loads(output.read_text())
    assert {frozenset((entry["source1"], entry["source2"])) for entry in written} == {frozenset(("old", "fresh"))}
    for entry in written:
        assert entry[f"caption{1 if entry['source1'] == 'old' else 2}"] == f"old caption of {entry['img']}"
        assert sum(entry["judge_probabilities"]) == pytest.approx(1, abs=1e-5)
        assert len(entry["judge_orders"]) == 2
    again, err = run(*line, "-o", output)
    assert "is complete already" in err
    assert again == out
    run(output, *line[2:], "--one-order", "-o", folder / "once.json")  # the output is a file of battles, too
    assert {len(entry["judge_orders"]) for entry in json.loads((folder / "once.json").read_text())} == {1}


def test_caparena_auto_of_many_models_is_a_leaderboard(run: Run, folder: Path, model: Path) -> None:
    """The second model is a baseline of the first."""
    output = folder / "out.json"
    line = (
        f"mine={folder / 'new.json'}",
        f"{BASELINES[0]}={folder / 'old.json'}",
        "-j",
        model,
        "--no-reasons",
        "--json",
    )
    out, _ = run(*line, "--auto", folder / "caparena_auto_600.json", "-o", output, "-q", "--resamples", 20)
    battles = json.loads(output.read_text())
    assert len(battles) == 6 + 4
    scores = json.loads(out)["caparena_auto"]["judge"]
    assert {score["model"] for score in scores} == {"mine", BASELINES[0]}
    assert scores[0]["score"] >= scores[1]["score"]
    [baseline] = [score for score in scores if score["model"] != "mine"]
    assert baseline["baselines"][BASELINES[0]]["itself"]
    assert json.loads(run(output, "--json", "-q", "--resamples", 20)[0])["caparena_auto"]["judge"] == scores


def test_the_prompt_can_be_replaced_and_no_verdict_is_an_error(run: Run, folder: Path, model: Path) -> None:
    prompt = folder / "prompt.yaml"
    prompt.write_text(json.dumps({**PairPrompt.of(None).to_json(), "version": "mine", "system": "Compare."}))
    line = [folder / "old.json", folder / "new.json", "-j", model, "--resamples", 20]
    run(*line, "--no-reasons", "--prompt", prompt, "-o", folder / "b.json")
    assert json.loads((folder / "b.json.summary.json").read_text())["run"]["prompt"].startswith("mine ")
    _, err = run(*line, "--max-new-tokens", "4", "-o", folder / "d.json", code=1)
    assert "error: no battle could be judged; the first: the judge gave no line 'Verdict: 1'" in err
    assert "cut at max_new_tokens=4" in err
    prompt.write_text("system: only this")
    _, err = run(*line, "--prompt", prompt, "-o", folder / "c.json", code=1)
    assert "lacks the field 'version'; the fields are version, system, reference" in err
