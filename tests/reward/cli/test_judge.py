"""`capreward judge` with a tiny model on this machine and behind a server."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from PIL import Image

from reward.metrics.fleur.prompt import FleurPrompt
from tests.json_lines import read_lines, write_lines
from tests.loopback_judge import loopback_judge
from tests.rating_judges import save_rating_judge, strict_llava
from tests.reward.cli.conftest import Run


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """{metric: a model that keeps to its format}."""
    return {
        metric: save_rating_judge(tmp_path_factory.mktemp(metric), first)
        for metric, first in (("fleur", "0"), ("harmoniceval", "12345"))
    }


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
    _, err = run("judge", data, "-m", metric, "--judge", models[metric], "--device", "cpu", "-o", here)
    assert "judged 4 rows" in err
    assert "1 not scored (candidate)" in err
    assert "1 not scored (image)" in err or "1 not scored (metric)" in err
    questions = 2 if metric == "fleur" else 10
    assert f"{questions} questions answered by the judge" in err
    main_score = {"fleur": "smoothed", "harmoniceval": "overall"}[metric]
    scored = read_lines(here)
    assert [row["reward"] is None for row in scored] == [False, False, True, True]
    assert [row["reward"] for row in scored[:2]] == pytest.approx([row[main_score] for row in scored[:2]])
    assert scored[0]["reward"] != scored[1]["reward"]

    first = "0" if metric == "fleur" else "12345"
    with loopback_judge(*strict_llava(first)) as server:
        arguments = ["judge", data, "-m", metric, "--judge", "tiny", "--server", server.endpoint]
        arguments += ["--cache", data.with_name("answers.db"), "--prices", "2,8"]
        assert "cost 0.0" in run(*arguments, "-o", there)[1]
        assert len(server.requests) == questions
        run(*arguments, "-o", data.with_name("again.jsonl"))
        assert len(server.requests) == questions  # a rerun into another file asks nothing
    for row, other, again in zip(scored, read_lines(there), read_lines(data.with_name("again.jsonl")), strict=True):
        assert other == again
        if row["reward"] is not None:  # the server lists 20 tokens, not all
            assert other["reward"] == pytest.approx(row["reward"], abs=1e-4)


def test_a_finished_run_is_known_again(run: Run, data: Path, models: dict[str, Path]) -> None:
    output = data.with_name("scores.jsonl")
    arguments = ["judge", data, "-m", "fleur", "--judge", models["fleur"], "--device", "cpu", "-o", output]
    run(*arguments)
    before = output.read_text()
    _, err = run(*arguments)
    assert "is complete already" in err
    assert "questions answered" not in err
    for other in (["--no-references"], ["--second-decimal", "written"], ["--pad-images"]):
        assert "not of this run (other input, metric or settings)" in run(*arguments, *other, code=1)[1]
    assert output.read_text() == before
    values = {**FleurPrompt.default().to_json(), "version": "mine", "references": "Theirs:\n{reference_captions}"}
    data.with_name("mine.yaml").write_text(yaml.safe_dump(values))
    run(*arguments, "--prompt", data.with_name("mine.yaml"), "--overwrite", "--quiet")
    assert output.read_text() != before


def test_weights_and_gamma_reach_the_metric(run: Run, data: Path, models: dict[str, Path]) -> None:
    output = data.with_name("scores.jsonl")
    arguments = ["judge", data, "-m", "harmoniceval", "--judge", models["harmoniceval"], "--device", "cpu"]
    arguments += ["--gamma", "1", "--task", "referring", "-w", "fluency=1", "-o", output]
    run(*arguments)
    row = read_lines(output)[0]
    assert row["reward"] == pytest.approx(row["fluency"])
    criteria = ("correctness", "completeness", "clarity", "fluency", "conciseness")
    assert row["overall"] == pytest.approx(sum(row[name] for name in criteria) / 5)
