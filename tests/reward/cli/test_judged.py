"""`capreward score` with a tiny judge on this machine and behind a server."""

from __future__ import annotations

import base64
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.reward.cli.conftest import Run
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.loopback_judge import loopback_judge
from tests.toys.rating_judges import save_rating_judge, save_yes_judge, strict_llava

pytestmark = pytest.mark.slow

FIRST = {"fleur": "0", "harmoniceval": "12345"}  # {metric: the first digits of its scores}


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


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


@pytest.mark.parametrize(("metric", "main", "questions"), [("fleur", "smoothed", 2), ("harmoniceval", "overall", 10)])
def test_a_model_here_and_behind_a_server(
    metric: str, main: str, questions: int, run: Run, data: Path, models: dict[str, Path]
) -> None:
    here, there, again = (data.with_name(f"{name}.jsonl") for name in ("here", "there", "again"))
    _, err = run("score", data, "-m", f"{metric}={models[metric]}", "--device", "cpu", "-o", here)
    assert "scored 4 rows" in err
    assert "1 not scored (candidate)" in err
    assert f"{questions} questions answered by the judge" in err
    first, second, *bad = read_lines(here)
    assert (first["reward"], second["reward"]) == pytest.approx((first[main], second[main]))
    assert first["reward"] != second["reward"]
    assert [row["reward"] for row in bad] == [None, None]
    with loopback_judge(*strict_llava(FIRST[metric])) as server:
        line = ["score", data, "-m", f"{metric}={server.endpoint}#tiny", "--cache", data.with_name("answers.db")]
        assert "cost 0.0" in run(*line, "--set", "prices=[2,8]", "-o", there)[1]
        asked = len(server.requests)
        assert asked == questions + 2  # whether system messages arrive
        run(*line, "-o", again)
        assert len(server.requests) == asked  # a rerun into another file asks nothing
    rows = read_lines(there)
    assert rows == read_lines(again)
    # the server lists 20 tokens, not all
    assert [row["reward"] for row in rows[:2]] == pytest.approx([first["reward"], second["reward"]], abs=1e-4)


def test_settings_are_part_of_the_run_and_reach_the_metric(run: Run, data: Path, models: dict[str, Path]) -> None:
    output = data.with_name("scores.jsonl")
    line = ["score", data, "-m", f"fleur={models['fleur']}", "--device", "cpu", "-o", output]
    run(*line)
    before = output.read_text()
    _, err = run(*line)
    assert "is complete already" in err
    assert "questions answered" not in err
    for other in ("use_references=false", "pad_images=true"):
        assert "not of this run (other input, metric or settings)" in run(*line, "--set", other, code=1)[1]
    assert output.read_text() == before
    run(*line, "--set", "explanation=before", "--set", "draws=3", "--overwrite")
    rows = read_lines(output)
    assert [bool(row["explanation"]) for row in rows] == [True, True, False, False]
    assert [row["reward"] for row in rows] == [row["sampled"] for row in rows]


def test_questions_boxes_and_tasks_come_from_columns(run: Run, tmp_path: Path) -> None:
    Image.new("RGB", (32, 32), "white").save(tmp_path / "a.png")
    rows: list[dict[str, Any]] = [{"ask": "What is it?", "kind": "VDU"}]
    rows += [{"kind": "REG", "bbox": [8, 8, *size]} for size in ([16, 10], [30, 30])]
    data = write_lines(tmp_path / "mixed.jsonl", [{"image": "a.png", "candidate": "A wall.", **row} for row in rows])
    output = tmp_path / "scores.jsonl"
    with loopback_judge(*strict_llava("12345")) as server:
        line = ["score", data, "-m", f"harmoniceval={server.endpoint}", "-o", output, "--set", "criteria=[correctness]"]
        run(*line, "--question-column", "ask", "--task-column", "kind", "--box-column", "bbox")
        asked = {"What is it?" in str(each): each for each in server.requests}
        shown = asked[False]["messages"][-1]["content"][0]["image_url"]["url"]
        picture = Image.open(BytesIO(base64.b64decode(shown.partition(",")[2])))
        seen = [picture.getpixel((x, y)) for x, y in ((8, 8), (23, 17), (12, 12), (25, 19))]
        assert seen == [(255, 0, 0)] * 2 + [(255, 255, 255)] * 2
        scored = read_lines(output)
        assert [row["reward"] is None for row in scored] == [False, False, True]
        assert "inside the image of 32 x 32" in scored[2]["error"]
        line += ["--set", "task=documents", "--overwrite"]
        assert "needs a column with the question" in run(*line, code=1)[1]


def test_prompts_rubrics_and_questions_of_ones_own(run: Run, tmp_path: Path) -> None:
    Image.new("RGB", (16, 16), "red").save(tmp_path / "a.png")
    row = {"image": "a.png", "caption": "A dog.", "mine": ["It is short."], "questions": {"Is it red?": "yes"}}
    data, folder = write_lines(tmp_path / "data.jsonl", [row]), save_yes_judge(tmp_path / "yes")
    prompt = tmp_path / "mine.yaml"
    prompt.write_text('ask: "Is this right? {caption}"\nread: yes\n')
    for metric, setting in (("judge", f"prompt={prompt}"), ("rubric", "column=mine"), ("questions", "sees_image=true")):
        output = tmp_path / f"{metric}.jsonl"
        run("score", data, "-m", f"{metric}={folder}", "--set", setting, "-o", output)
        assert read_lines(output)[0]["reward"] is not None
    assert 0 < read_lines(tmp_path / "judge.jsonl")[0]["grade"] < 1
