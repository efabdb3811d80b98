"""Reasoning is cut from all that a policy or captioner wrote, by one function, and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reward import CaptionSample
from reward.decoding.captioning import caption_images
from reward.decoding.photos import read_images
from reward.decoding.selection import rate_candidates, rerank
from reward.judges import Usage
from reward.judges.chat import Sampled
from reward.rewards.combined_reward import CombinedReward
from reward.rewards.metric_reward import MetricReward
from reward.scoring.batch_scorer import BatchScorer
from reward.scoring.dataset import rerank_dataset, score_dataset

THOUGHT = "<think>Is it red? It is a big red star, I think.</think>\nA red star."
WRITTEN = [THOUGHT, "Red. So I write.</think>A red star.", "<think>And now", "A red star on grass."]
LENGTHS = [3.0, 3.0, None, 5.0]


def by_trainer(reward: Any) -> list[float | None]:
    return list(reward(["Describe."] * 4, WRITTEN))


def by_rewards(reward: Any) -> list[float | None]:
    return list(reward.rewards(list(map(CaptionSample, WRITTEN))))


def by_candidates(reward: Any) -> list[float | None]:
    return rate_candidates([WRITTEN], [None], [()], reward)[0]


def lengths(completions: list[str], **_: Any) -> list[float]:
    return [float(len(text.split())) for text in completions]


def parts() -> Any:
    return CombinedReward([MetricReward("length"), MetricReward("length", name="again")], weights=[1.0, 0.0])


@pytest.mark.parametrize("call", [by_trainer, by_rewards, by_candidates])
@pytest.mark.parametrize("make", [lambda: MetricReward("length"), lambda: MetricReward("length").aspects()[0], parts])
def test_a_caption_is_worth_the_same_with_and_without_reasoning(call: Any, make: Any) -> None:
    assert [value or None for value in call(make())] == LENGTHS  # without a word the lowest, or none


def test_functions_of_users_are_given_captions_too() -> None:
    assert by_candidates(lengths) == LENGTHS
    assert rerank(WRITTEN, reward=lengths) == [3, 0, 1, 2]


@pytest.mark.parametrize("call", [by_trainer, by_rewards, by_candidates])
def test_a_reward_may_be_shown_all(call: Any) -> None:
    assert call(MetricReward("length", strip_thinking=False))[0] == len(THOUGHT.split())


class Captioner:
    """Thinks of the first image before it writes."""

    name = "model"

    def __init__(self) -> None:
        self.usage = Usage()

    def check(self) -> str:
        return self.name

    def sample(self, images: Any, n: int, sampling: Any) -> Any:
        for row, _ in images:
            yield row, [Sampled(text) for text in WRITTEN[:n]]


def test_captions_of_a_folder_are_written_without(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    output = tmp_path / "c.jsonl"
    summary = caption_images(
        read_images(tmp_path),
        Captioner(),
        output,
        metric="length",
        n=3,
        keep_candidates=True,  # type: ignore[arg-type]
    )
    assert json.loads(output.read_text())["caption"] == "A red star."
    assert summary.distinct == pytest.approx(2 / 3)
    assert "think" not in (tmp_path / "c.jsonl.candidates.jsonl").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("form", [".jsonl", ".csv", ".parquet"])
def test_files_of_captions_are_cut_on_request(form: str, tmp_path: Path) -> None:
    import datasets

    data, output = tmp_path / f"d{form}", tmp_path / "s.jsonl"
    rows = datasets.Dataset.from_dict({"candidate": WRITTEN})
    {".jsonl": rows.to_json, ".csv": rows.to_csv, ".parquet": rows.to_parquet}[form](data)
    summary = score_dataset(data, "length", output, strip_thinking=True)
    assert [json.loads(line)["reward"] for line in output.read_text().splitlines()] == LENGTHS
    assert (summary.thinking_cut, summary.errors) == (3, {"candidate": 1})
    assert score_dataset(data, "length", tmp_path / "raw.jsonl").thinking_cut == 0
    scored = BatchScorer("length", strip_thinking=True)({"candidate": WRITTEN})
    assert scored["reward"] == LENGTHS


def test_the_best_of_a_file_is_written_without(tmp_path: Path) -> None:
    data, output = tmp_path / "d.jsonl", tmp_path / "r.jsonl"
    data.write_text(json.dumps({"candidates": WRITTEN[:3]}) + "\n")
    summary = rerank_dataset(data, "length", output, strip_thinking=True)
    row = json.loads(output.read_text())
    assert (row["best"], row["candidates"]) == ("A red star.", ["A red star.", "A red star.", ""])
    assert (summary.thinking_cut, summary.distinct) == (3, 2)
