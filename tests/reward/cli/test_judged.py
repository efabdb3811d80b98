"""`capreward score`, `battle` and `caparena-auto` with a tiny judge on this machine and behind a server."""

from __future__ import annotations

import base64
import json
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from reward.judges.pairwise import PairPrompt
from reward.metaeval.arena.caparena_auto import score_auto
from reward.metrics.fleur.prompt import FleurPrompt
from tests.json_lines import read_lines, write_lines
from tests.loopback_judge import loopback_judge
from tests.rating_judges import choosing_llava, save_choosing_judge, save_rating_judge, save_yes_judge, strict_llava
from tests.reward.cli.conftest import Run


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


FIRST = {"fleur": "0", "harmoniceval": "12345"}  # {metric: the first digits of its scores}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """{metric: a model that keeps to its format}."""
    return {metric: save_rating_judge(tmp_path_factory.mktemp(metric), first) for metric, first in FIRST.items()}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = []
    for number, caption in enumerate(("A red field.", "Two dogs and a cat.", "", "A dark blue wall.")):
        Image.new("RGB", (32, 32), (60 * number, 0, 90)).save(tmp_path / f"{number}.png")
        rows.append({"image": f"{number}.png", "caption": caption, "refs": ["A plain field of one colour."]})
    rows[3]["image"] = "absent.png"
    return write_lines(tmp_path / "captions.jsonl", rows)


@pytest.mark.parametrize("metric", ["fleur", "harmoniceval"])
def test_a_model_here_and_behind_a_server(run: Run, data: Path, models: dict[str, Path], metric: str) -> None:
    here, there = data.with_name("here.jsonl"), data.with_name("there.jsonl")
    _, err = run("score", data, "-m", f"{metric}={models[metric]}", "--device", "cpu", "-o", here)
    assert "scored 4 rows" in err
    assert "1 not scored (candidate)" in err
    assert "1 not scored (image)" in err or "1 not scored (metric)" in err
    questions = 2 if metric == "fleur" else 10
    assert f"{questions} questions answered by the judge" in err
    main_score = {"fleur": "smoothed", "harmoniceval": "overall"}[metric]
    scored = read_lines(here)
    assert [row["reward"] is None for row in scored] == [False, False, True, True]
    assert [row["reward"] for row in scored[:2]] == pytest.approx([row[main_score] for row in scored[:2]])
    assert scored[0]["reward"] != scored[1]["reward"]

    with loopback_judge(*strict_llava(FIRST[metric])) as server:
        arguments = ["score", data, "-m", f"{metric}={server.endpoint}#tiny", "--cache", data.with_name("answers.db")]
        assert "cost 0.0" in run(*arguments, "--set", "prices=[2,8]", "-o", there)[1]
        asked = len(server.requests)
        assert asked == questions + 2  # whether system messages arrive
        run(*arguments, "-o", data.with_name("again.jsonl"))
        assert len(server.requests) == asked  # a rerun into another file asks nothing
    for row, other, again in zip(scored, read_lines(there), read_lines(data.with_name("again.jsonl")), strict=True):
        assert other == again
        if row["reward"] is not None:  # the server lists 20 tokens, not all
            assert other["reward"] == pytest.approx(row["reward"], abs=1e-4)


def test_settings_are_part_of_the_run_and_reach_the_metric(run: Run, data: Path, models: dict[str, Path]) -> None:
    output = data.with_name("scores.jsonl")
    arguments = ["score", data, "-m", f"fleur={models['fleur']}", "--device", "cpu", "-o", output]
    run(*arguments)
    before = output.read_text()
    _, err = run(*arguments)
    assert "is complete already" in err
    assert "questions answered" not in err
    for other in ("use_references=false", "second_decimal=written", "pad_images=true"):
        assert "not of this run (other input, metric or settings)" in run(*arguments, "--set", other, code=1)[1]
    assert output.read_text() == before
    values = {**FleurPrompt.of().to_json(), "version": "mine", "references": "Theirs:\n{reference_captions}"}
    data.with_name("mine.yaml").write_text(yaml.safe_dump(values))
    run(*arguments, "--set", f"prompt={data.with_name('mine.yaml')}", "--overwrite", "--quiet")
    assert output.read_text() != before
    run(*arguments, "--set", "explanation=before", "--set", "draws=3", "--overwrite")
    rows = read_lines(output)
    assert [bool(row["explanation"]) for row in rows] == [True, True, False, False]
    assert [row["reward"] for row in rows] == [row["sampled"] for row in rows]

    arguments = ["score", data, "-m", f"harmoniceval={models['harmoniceval']}", "--device", "cpu", "--overwrite"]
    run(*arguments, "--set", "gamma=1", "--set", "task=referring", "-w", "fluency=1", "-o", output)
    row = read_lines(output)[0]
    assert row["reward"] == pytest.approx(row["fluency"])
    criteria = ("correctness", "completeness", "clarity", "fluency", "conciseness")
    assert row["overall"] == pytest.approx(sum(row[name] for name in criteria) / 5)


def test_questions_boxes_and_tasks_come_from_columns(run: Run, tmp_path: Path) -> None:
    Image.new("RGB", (32, 32), "white").save(tmp_path / "a.png")
    rows: list[dict[str, Any]] = [{"ask": "What is it?", "kind": "VDU"}]
    rows += [{"kind": "REG", "bbox": [8, 8, *size]} for size in ([16, 10], [30, 30])]
    data = write_lines(tmp_path / "mixed.jsonl", [{"image": "a.png", "candidate": "A wall.", **row} for row in rows])
    output = tmp_path / "scores.jsonl"
    with loopback_judge(*strict_llava("12345")) as server:
        line = ["score", data, "-m", f"harmoniceval={server.endpoint}", "-o", output]
        line += ["--set", "criteria=[correctness]", "--overwrite"]
        columns = ["--question-column", "ask", "--task-column", "kind", "--box-column", "bbox"]
        run(*line, *columns)
        assert "is complete already" in run(*line[:-1], *columns)[1]
        asked = {"What is it?" in str(each): each for each in server.requests}
        shown = asked[False]["messages"][-1]["content"][0]["image_url"]["url"]
        picture = Image.open(BytesIO(base64.b64decode(shown.partition(",")[2])))
        seen = [picture.getpixel((x, y)) for x, y in ((8, 8), (23, 17), (12, 12), (25, 19))]
        assert seen == [(255, 0, 0)] * 2 + [(255, 255, 255)] * 2
        scored = read_lines(output)
        assert [row["reward"] is None for row in scored] == [False, False, True]
        assert "inside the image of 32 x 32" in scored[2]["error"]
        assert "needs a column with the question" in run(*line, "--set", "task=documents", code=1)[1]


def test_what_was_judge_is_answered_with_the_line_to_type(run: Run) -> None:
    line = "judge data.jsonl --metric fleur --judge M --server http://x/v1 --explain after --no-references -o s.jsonl"
    told = "capreward score data.jsonl -m 'fleur=http://x/v1#M' -o s.jsonl"
    _, err = run(*line.split(), code=2)
    assert err.endswith(f"Write {told} --set explanation=after --set use_references=false")
    _, err = run("judge", "d.jsonl", "-m", "fleur", "-j", "gpt", "--server=openai", code=2)
    assert err.endswith("Write capreward score d.jsonl -m 'fleur=https://api.openai.com/v1#gpt'")
    assert "Write capreward corrupt --benchmark" in run("pairs-benchmark", "d.jsonl", code=2)[1]


# battle and caparena-auto

BASELINES = ["GPT-4o-0806", "CogVLM2-llama3-chat-19B", "MiniCPM-V2.6-8B"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose answers begin with 1, 2 or 0."""
    return save_choosing_judge(tmp_path_factory.mktemp("judge"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images, the captions of two models, and CapArena-Auto's file, all small."""
    (tmp_path / "images").mkdir()
    auto = {}
    for number in range(6):
        name = f"test_{number:05}.png"
        Image.new("RGB", (32, 32), (40 * number, 0, 90)).save(tmp_path / "images" / name)
        captions = {"human": f"A person saw {number}.", **{base: f"{base} saw {number}." for base in BASELINES}}
        auto[name] = {"captions": captions, "ref_model": BASELINES[number % 3]}
    (tmp_path / "caparena_auto_600.json").write_text(json.dumps(auto))
    for model in ("old", "new"):
        (tmp_path / f"{model}.json").write_text(json.dumps({name: f"{model} caption of {name}" for name in auto}))
    return tmp_path


def records(path: Path) -> Any:
    return json.loads(path.read_text())


def test_captions_of_two_models_meet(run: Run, folder: Path, model: Path) -> None:
    output = folder / "battles.json"
    arguments = ["battle", folder / "old.json", f"fresh={folder / 'new.json'}", "-i", folder / "images"]
    arguments += ["--judge", model, "--no-reasons", "--judge-set", "device=cpu", "-o", output]
    _, err = run(*arguments)
    assert "judged 6 battles" in err
    assert "the caption shown first won" in err
    assert "12 questions answered by the judge" in err
    written = records(output)
    assert {frozenset((entry["source1"], entry["source2"])) for entry in written} == {frozenset(("old", "fresh"))}
    for entry in written:
        assert entry[f"caption{1 if entry['source1'] == 'old' else 2}"] == f"old caption of {entry['img']}"
        assert sum(entry["judge_probabilities"]) == pytest.approx(1, abs=1e-5)
        assert entry["judge"] in ("Caption 1 is better.", "Caption 2 is better.", "Tie.")

    assert "is complete already" in run(*arguments)[1]
    assert records(output) == written
    run("battle", output, *arguments[3:-1], folder / "again.json")  # the output is a file of battles, too
    assert records(folder / "again.json") == written


def test_caparena_auto(run: Run, folder: Path, model: Path) -> None:
    output = folder / "mine.json"
    line = ("caparena-auto", folder / "new.json", "--benchmark", folder / "caparena_auto_600.json", "--name", "mine")
    _, err = run(*line, "-i", folder / "images", "-j", model, "--no-reasons", "-o", output)
    score = json.loads((folder / "mine.json.score.json").read_text())
    assert Counter(entry["ref_model"] for entry in records(output)) == dict.fromkeys(BASELINES, 2)
    assert all(f"against {baseline}" in err for baseline in BASELINES)
    assert score == score_auto(records(output), "mine", BASELINES).to_json()
    assert score["mean_words"] == 4
    assert "CapArena-Auto: mine" in err


def test_caparena_auto_of_many_models_is_a_leaderboard(run: Run, folder: Path, model: Path) -> None:
    """The second model is a baseline of the first."""
    output = folder / "battles.json"
    line = ("caparena-auto", f"mine={folder / 'new.json'}", f"{BASELINES[0]}={folder / 'old.json'}")
    line += ("--benchmark", folder / "caparena_auto_600.json", "-i", folder / "images", "-j", model, "--no-reasons")
    assert "is for the captions of one model" in run(*line, "-o", output, "--name", "x", code=2)[1]
    _, err = run(*line, "-o", output)
    assert "CapArena-Auto: " in err
    scores = records(folder / "battles.json.score.json")["models"]
    mine, baseline = sorted(scores, key=lambda score: score["model"], reverse=True)
    battles = records(output)
    assert len(battles) == 6 + 4
    assert mine == score_auto(battles[:6], "mine", BASELINES).to_json()
    assert baseline == score_auto(battles[6:], BASELINES[0], BASELINES).to_json()
    assert baseline["baselines"][BASELINES[0]]["itself"]
    figures = json.loads(run("arena", output, "--json", "-q", "--resamples", 20)[0])
    assert figures["caparena_auto"]["judge"] == scores
    assert scores[0]["score"] >= scores[1]["score"]


def test_a_server_that_was_asked_is_not_asked_again(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with loopback_judge(*choosing_llava()) as server:
        arguments = ["battle", folder / "old.json", folder / "new.json", "-i", folder / "images", "--no-reasons"]
        arguments += ["--judge", f"{server.endpoint}#tiny", "--judge-set", "prices=2,8"]
        arguments += ["--judge-set", f"cache={folder / 'answers.db'}"]
        assert "cost" in run(*arguments, "-o", folder / "one.json")[1]
        asked = len(server.requests)
        assert asked == 12 + 2  # whether system messages arrive
        texts = json.dumps(server.requests)
        assert "> old caption of test_00000.png" in texts
        assert "image_url" in texts
        run(*arguments, "-o", folder / "two.json")
        assert len(server.requests) == asked
    assert records(folder / "one.json") == records(folder / "two.json")


def test_the_prompt_can_be_replaced(run: Run, folder: Path, model: Path) -> None:
    prompt = folder / "prompt.yaml"
    prompt.write_text(json.dumps({**PairPrompt.of().to_json(), "version": "mine", "system": "Compare."}))
    arguments = ["battle", folder / "old.json", folder / "new.json", "-i", folder / "images", "-j", model]
    run(*arguments, "--no-reasons", "--prompt", prompt, "-o", folder / "b.json")
    summary = json.loads((folder / "b.json.summary.json").read_text())
    assert summary["run"]["prompt"].startswith("mine ")
    _, err = run(*arguments, "--max-new-tokens", "4", "-o", folder / "d.json", code=1)
    assert "6 battles have no verdict; the first: the judge gave no line 'Verdict: 1'" in err
    assert "cut at max_new_tokens=4" in err
    prompt.write_text("system: only this")
    _, err = run(*arguments, "--prompt", prompt, "-o", folder / "c.json", code=1)
    assert "lacks the field 'version'; the fields are version, system, reference" in err


def test_options_on_the_command_line_are_part_of_a_kept_score(run: Run, tmp_path: Path) -> None:
    folder = save_yes_judge(tmp_path / "yes")
    Image.new("RGB", (16, 16), "red").save(tmp_path / "a.png")
    row = {"image": "a.png", "caption": "A dog.", "mine": ["It is short."], "questions": {"Is it red?": "yes"}}
    (tmp_path / "data.jsonl").write_text(json.dumps(row))
    prompt, output = tmp_path / "mine.yaml", tmp_path / "s.jsonl"
    prompt.write_text('ask: "Is this right? {caption}"\nread: yes\n')
    line = ["score", tmp_path / "data.jsonl", "-m", f"judge={folder}", "--set", f"prompt={prompt}", "-o", output]
    run(*line)
    assert 0 < json.loads(output.read_text())["grade"] < 1
    prompt.write_text('ask: "Is this wrong? {caption}"\nread: yes\n')
    assert "is not of this run" in run(*line, code=1)[1]
    for metric, setting in (("rubric", "column=mine"), ("questions", "sees_image=true"), ("judge", "prompt=yes")):
        run(*line[:2], "-m", f"{metric}={folder}", "--set", setting, "-o", tmp_path / f"{metric}.jsonl")
    run(*line[:2], "-m", f"harmoniceval={folder}", "-o", tmp_path / "h.jsonl")  # which needs no question by default
