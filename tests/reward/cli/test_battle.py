"""`capreward battle` and `capreward caparena-auto` with a tiny model on this machine and behind a server."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from PIL import Image

from reward.arena.pairwise import PairPrompt
from reward.cli.main import main
from tests.choosing_judge import choosing_llava, save_choosing_judge
from tests.loopback_judge import loopback_judge
from tests.reward.cli.conftest import Run

RunBattle: TypeAlias = Callable[..., tuple[int, str]]
BASELINES = ["GPT-4o-0806", "CogVLM2-llama3-chat-19B", "MiniCPM-V2.6-8B"]


@pytest.fixture
def run(run: Run) -> RunBattle:
    """Calls the command; gives (exit code, stderr with line breaks as spaces)."""

    def call(*arguments: object) -> tuple[int, str]:
        code, _, err = run(*arguments)
        return code, err

    return call


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


def records(path: Path) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads(path.read_text())
    return loaded


def test_captions_of_two_models_meet(run: RunBattle, folder: Path, model: Path) -> None:
    output = folder / "battles.json"
    arguments = ["battle", folder / "old.json", f"fresh={folder / 'new.json'}", "-i", folder / "images"]
    arguments += ["--judge", model, "--no-reasons", "--device", "cpu", "-o", output]
    code, err = run(*arguments)
    assert code == 0
    assert "judged 6 battles" in err
    assert "the caption shown first won" in err
    assert "12 questions answered by the judge" in err
    written = records(output)
    assert {frozenset((entry["source1"], entry["source2"])) for entry in written} == {frozenset(("old", "fresh"))}
    for entry in written:
        assert entry[f"caption{1 if entry['source1'] == 'old' else 2}"] == f"old caption of {entry['img']}"
        assert sum(entry["judge_probabilities"]) == pytest.approx(1, abs=1e-5)
        assert entry["judge"] in ("Caption 1 is better.", "Caption 2 is better.", "Tie.")

    code, err = run(*arguments)
    assert code == 0
    assert "is complete already" in err
    assert records(output) == written

    code, err = run("battle", output, *arguments[3:-1], folder / "again.json")  # the output is a file of battles, too
    assert code == 0
    assert records(folder / "again.json") == written


def test_caparena_auto(run: RunBattle, folder: Path, model: Path) -> None:
    output = folder / "mine.json"
    code, err = run(
        *("caparena-auto", folder / "new.json", "--benchmark", folder / "caparena_auto_600.json"),
        *("-i", folder / "images", "-j", model, "--no-reasons", "-o", output, "--name", "mine"),
    )
    assert code == 0
    score = json.loads((folder / "mine.json.score.json").read_text())
    total = 0.0
    for baseline in BASELINES:
        assert f"against {baseline}" in err
        sign = {"Caption 1 is better.": 1, "Caption 2 is better.": -1, "Tie.": 0}
        points = [
            sign[entry["judge"]] * (1 if entry["source1"] == "mine" else -1)
            for entry in records(output)
            if entry["ref_model"] == baseline
        ]
        assert len(points) == 2
        assert score["baselines"][baseline]["score"] == 100 * sum(points) / 2
        total += 100 * sum(points) / 2
    assert score["score"] == pytest.approx(total / 3)
    assert score["mean_words"] == 4
    assert "CapArena-Auto: mine" in err


def test_a_server_that_was_asked_is_not_asked_again(
    run: RunBattle, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with loopback_judge(*choosing_llava()) as server:
        arguments = ["battle", folder / "old.json", folder / "new.json", "-i", folder / "images", "--judge", "tiny"]
        arguments += ["--server", server.endpoint, "--no-reasons", "--prices", "2,8", "--cache", folder / "answers.db"]
        code, err = run(*arguments, "-o", folder / "one.json")
        assert code == 0
        assert "cost" in err
        asked = len(server.requests)
        assert asked == 12
        texts = json.dumps(server.requests)
        assert "> old caption of test_00000.png" in texts
        assert "image_url" in texts
        assert run(*arguments, "-o", folder / "two.json")[0] == 0
        assert len(server.requests) == asked
    assert records(folder / "one.json") == records(folder / "two.json")


def test_answers_that_are_no_verdict_give_none(run: RunBattle, folder: Path, model: Path) -> None:
    arguments = ["battle", folder / "old.json", folder / "new.json", "-i", folder / "images", "-j", model]
    code, err = run(*arguments, "--max-new-tokens", "4", "-o", folder / "b.json")
    assert code == 1
    assert "6 battles have no verdict; the first: the judge gave no line 'Verdict: 1'" in err
    assert "cut at max_new_tokens=4" in err
    assert "error: no battle could be judged" in err


def test_the_prompt_can_be_replaced(run: RunBattle, folder: Path, model: Path) -> None:
    prompt = folder / "prompt.yaml"
    prompt.write_text(json.dumps({**PairPrompt.default().to_json(), "version": "mine", "system": "Compare."}))
    arguments = ["battle", folder / "old.json", folder / "new.json", "-i", folder / "images", "-j", model]
    assert run(*arguments, "--no-reasons", "--prompt", prompt, "-o", folder / "b.json")[0] == 0
    summary = json.loads((folder / "b.json.summary.json").read_text())
    assert summary["run"]["prompt"].startswith("mine ")
    prompt.write_text("system: only this")
    code, err = run(*arguments, "--prompt", prompt, "-o", folder / "c.json")
    assert code == 1
    assert "must hold the fields version, system, reference" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["absent.json"], 1, "error: there is no file"),
        (["old.json", "--references", "new.json"], 2, "is for captions; a file of battles has its references"),
        (["old.json"], 1, "must hold a JSON list of battles, got dict"),
        (["old.json", "images/../old.json"], 2, "two files are named 'old'"),
        (["old.json", "new.json", "--cache", "x"], 2, "is for a server: give --server, too"),
        (["old.json", "new.json", "--server", "http://x/v1", "--device", "cpu"], 2, "is for a model on this machine"),
        (["old.json", "new.json", "--server", "http://x/v1", "--prices", "2"], 2, "is not two numbers"),
        (["old.json", "new.json", "--max-new-tokens", "0"], 2, "--max-new-tokens"),
    ],
)
def test_what_is_wrong_is_said_before_a_model_is_loaded(
    run: RunBattle, folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(folder)
    found = run("battle", *arguments, "--images", "images", "--judge", "no/model", "--output", "o.json")
    assert found[0] == code
    assert message in found[1].replace("│ ", "")
    assert not (folder / "o.json").exists()


def test_caparena_auto_says_where_its_files_are(run: RunBattle, folder: Path) -> None:
    arguments = [
        "caparena-auto",
        folder / "new.json",
        "--images",
        folder / "images",
        "-j",
        "x",
        "-o",
        folder / "o.json",
    ]
    code, err = run(*arguments, "--benchmark", folder / "absent.json")
    assert code == 1
    assert "there is no file" in err
    assert "readme of github.com/njucckevin/CapArena" in err
    (folder / "new.json").write_text('{"test_00000.png": "a"}')
    code, err = run(*arguments, "--benchmark", folder / "caparena_auto_600.json")
    assert code == 1
    assert "5 of the 6 images in the benchmark are missing in the captions of the model: test_00001.png" in err


@pytest.mark.parametrize("command", ["battle", "caparena-auto"])
def test_help_shows_how_to_begin(command: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["capreward", command, "--help"])
    with pytest.raises(SystemExit) as stop:
        main()
    text = capsys.readouterr().out
    assert stop.value.code == 0
    for part in (f"capreward {command}", "--server http://localhost:8000/v1", "--judge Qwen/", "OPENAI_API_KEY"):
        assert part in text
