"""`capreward score` with a tiny judge on this machine and behind a server."""

from __future__ import annotations

import base64
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from reward.metrics.fleur.prompt import FleurPrompt
from tests.reward.cli.conftest import Run
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.loopback_judge import loopback_judge
from tests.toys.rating_judges import save_rating_judge, save_yes_judge, strict_llava

pytestmark = pytest.mark.slow


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
