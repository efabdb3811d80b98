"""`capreward arena` on small files of battles: tables, JSON, a judge that decides, and exit codes."""

import json
import re
from functools import partial

import pandas as pd
import pytest
from PIL import Image

from reward.judges.pairwise import PairPrompt
from tests.reward.metaeval.arena.made_arenas import WORDS, draw_arena
from tests.toys.pages import rows_of
from tests.toys.toy_judges import save_choosing_judge

pytestmark = pytest.mark.slow

FEW = ("--resamples", 20)


@pytest.fixture
def run(run):
    return partial(run, "arena")


@pytest.fixture
def entries():
    """300 battles of four models and one of people; "model 1" is the best, and writes the shortest captions."""
    battles, points = draw_arena([1.2, 0.4, -0.4, -1.2], 300, images=80, ties=0.2, seed=0)
    rows = []
    for number, (battle, won) in enumerate(zip(battles, points, strict=True)):
        one, two = (int(battle[source][-1]) for source in ("source1", "source2"))
        row = {**battle, "ref": "words " * 5, "caption1": "words " * 2 * one, "caption2": "words " * 2 * two}
        row |= {"winner": {1: battle["source1"], 0: battle["source2"]}.get(won, "equal"), "judge": WORDS[won]}
        rows.append({**row, "cluster": f"level {1 + number % 4}", "good": [-one, -two]})
    person = {"img": "x.jpg", "source1": "human", "source2": "model 1", "winner": "human"}
    return [*rows, {**person, "caption1": "words", "caption2": "words"}]


def write(folder, rows, name="battles.json"):
    (folder / name).write_text(json.dumps(rows), encoding="utf-8")
    return folder / name


def test_tables_and_json_and_a_column_that_is_called_as_a_metric(run, entries, tmp_path):
    odd = "model <b>[/b] 4"  # is shown as it is
    rows = json.loads(json.dumps(entries).replace("model 4", odd))
    path = write(tmp_path, [{**entry, "length": entry.get("good")} for entry in rows])
    line = (path, "-s", "length", "-m", "column:good", *FEW)
    out, err = run(*line, "-o", tmp_path / "new" / "table.csv")
    table = pd.read_csv(tmp_path / "new" / "table.csv", index_col=0)
    assert table.index.tolist() == ["human", "model 1", "model 2", "model 3", odd]
    assert (table["Elo low"] <= table["Elo"]).all()
    ratings, agreement, bias = re.split("Agreement with people|Bias", out)
    assert odd in ratings
    assert re.search(r"judge .* 100\.0 \[100\.0, 100\.0\]", agreement)
    assert ("human" in bias, len(re.findall(r" [+-]\d+\.\d \[", bias)) > 3) == (False, True)  # a bias has its sign
    assert "people: the first caption won" in err
    assert "Battles of the source 'human' are left out" in err

    out, err = run(*line, "--json", "--quiet")
    figures = json.loads(out)
    best = rows_of(figures, "Ratings by people: 301 battles")["model 1"]["Bradley-Terry"]
    assert best["low"] < best["value"] < best["high"]
    voters = rows_of(figures, "Agreement with people")
    assert list(voters) == ["judge", "column:good", "length", "column:length"]
    good, length = (voters[name] for name in ("column:good", "length"))
    assert voters["column:length"] == {**good, "name": "column:length"}
    assert list(good)[1:6] == ["overall", "level 1", "level 2", "level 3", "level 4"]
    # The best model writes the shortest captions.
    assert (good["Spearman (Elo)"]["value"], length["Spearman (Elo)"]["value"], err) == (100, -100, "")
    assert rows_of(figures, "Bias")["model 1"]["length"]["value"] < -50


def test_a_judge_or_a_metric_may_decide(run, entries, tmp_path):
    out, _ = run(write(tmp_path, [{**entry, "winner": None} for entry in entries]), *FEW)
    assert "Ratings by judge: 300 battles" in out
    assert "Agreement" not in out
    path = write(tmp_path, [{**entry, "winner": None, "judge": None} for entry in entries])
    assert "no battle has a winner: give 'winner'" in run(path, code=1)[1]
    assert "Ratings by length: 300 battles" in run(path, "--metric", "length", *FEW)[0]


def test_other_judges_and_a_second_annotator_vote_too(run, entries, tmp_path):
    """Table 2 of the paper, from one file for each judge; the second annotator is on the battles marked in-400."""
    marked = [{**entry, "in-400": number < 40} for number, entry in enumerate(entries)]
    contrary = {words: WORDS[1 - won] for won, words in WORDS.items()}
    turned = write(tmp_path, [{**each, "judge": contrary.get(each.get("judge"))} for each in marked[::-1]], "t.json")
    second = [{**entry, "winner": "equal"} if number < 10 else entry for number, entry in enumerate(marked)]
    ranking = write(tmp_path, [f"model {number}" for number in (4, 3, 2, 1, 0)], "ranking.json")
    line = [write(tmp_path, marked), "--judged", f"contrary={turned}", "--annotator", write(tmp_path, second, "s.json")]
    line += ["--pair-weights", "--ranking", ranking, "--leaderboard", f"same={ranking}", "--json", *FEW]
    out, err = run(*line)
    figures = json.loads(out)
    voters = rows_of(figures, "Agreement with people")
    agreed = {name: row["overall"]["value"] / 100 for name, row in voters.items()}
    ties = sum(entry["winner"] == "equal" for entry in entries) / 300
    same = sum(one["winner"] == two["winner"] for one, two in zip(marked[:40], second, strict=False)) / 40
    assert [agreed[name] for name in ("judge", "contrary", "annotator")] == pytest.approx([1, ties, same])
    assert voters["annotator"]["battles"] == 40
    correlations = rows_of(figures, "Correlation with the fixed ranking")
    assert correlations.pop("leaderboard:same")["Spearman (score)"]["value"] == pytest.approx(100)
    ranks = {name: row["Spearman (Elo)"]["value"] for name, row in correlations.items()}
    assert ranks["people"] == ranks["judge"] == -100  # the fixed ranking is upside down
    assert ranks["contrary"] == ranks["length"] == 100
    assert "Fixed ranking: ranking.json; 4 models are in it and in the battles" in err
    assert "each battle counts 1 / P" in err


def test_captions_of_two_models_meet_and_a_judge_decides(run, tmp_path):
    names = [f"{number}.png" for number in range(6)]
    for number, name in enumerate(names):
        Image.new("RGB", (32, 32), (40 * number, 0, 90)).save(tmp_path / name)
    old = write(tmp_path, {name: f"old caption of {name}" for name in names}, "old.json")
    new = write(tmp_path, {name: f"new caption of {name}" for name in names}, "new.json")
    output = tmp_path / "battles.json"
    options = ["--judge", save_choosing_judge(tmp_path / "judge"), "--no-reasons", *FEW, "--output"]
    line = [old, f"fresh={new}", *options, output]
    out, err = run(*line)
    assert ("judged 6 battles" in err, "12 questions answered by the judge" in err) == (True, True)
    assert "Ratings by judge: 6 battles" in out
    for entry in json.loads(output.read_text()):
        assert {entry["source1"], entry["source2"]} == {"old", "fresh"}
        assert entry[f"caption{1 if entry['source1'] == 'old' else 2}"] == f"old caption of {entry['img']}"
        assert sum(entry["judge_probabilities"]) == pytest.approx(1, abs=1e-5)
        assert len(entry["judge_orders"]) == 2
    again, err = run(*line)
    assert ("is complete already" in err, again) == (True, out)
    # The output is a file of battles, too; another prompt is another run.
    prompt = write(tmp_path, {**PairPrompt.of(None).to_json(), "version": "mine", "system": "Compare."}, "prompt.yaml")
    run(output, "--one-order", "--prompt", prompt, *options, tmp_path / "once.json")
    assert {len(entry["judge_orders"]) for entry in json.loads((tmp_path / "once.json").read_text())} == {1}
    assert json.loads((tmp_path / "once.json.summary.json").read_text())["run"]["prompt"].startswith("mine ")
