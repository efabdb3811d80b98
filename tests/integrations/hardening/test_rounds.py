"""Whole rounds with small networks, and a writer of captions that does not need one."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from integrations.hardening import rounds
from integrations.hardening.rating import read_rows, write_rows
from integrations.hardening.rounds import Hardening, harden, training_settings
from reward.errors import ConfigError, DataError, OutputError
from reward.scenes import Scene, describe
from reward.training.loop import train
from tests.reward.training.small_runs import Killed, record, same_weights, small_beitscore, small_config

SIZES = {"scenes_train": 6, "scenes_val": 5, "batch_size": 4}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("checkpoints")
    plain = {"stages": dict.fromkeys(("1a", "1b", "1c", "2")), "loss": "l1", "max_steps": 2}
    train("beitscore", "scenes", folder / "beitscore", small_beitscore(**plain))
    train("vela", "scenes", folder / "vela", small_config(max_steps=2))
    return {name: str(folder / name) for name in ("vela", "beitscore")}


class Writer:
    """True captions of scenes, and each cut short and doubled."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []

    def __call__(self, checkpoint: str, folder: Path, rows: Sequence[Mapping[str, Any]], seed: int) -> list[list[str]]:
        self.calls.append((checkpoint, [Path(row["image"]).name for row in rows]))
        texts = [describe(Scene.from_json(row["scene"]), random.Random(seed)).text for row in rows]
        return [[text, text[: len(text) // 2], f"{text} {text}"] for text in texts]


def settings_of(metric: str, source: str, **changes: Any) -> Hardening:
    own = {"rater": "scenes", "second": "unigram", "rule": "disagreement", "count": 4, "rate": 6, "audited": 2}
    training = training_settings(metric, SIZES).to_dict()
    return Hardening(metric=metric, source=source, training=training, **{**own, **changes})


def test_rounds_go_on_after_kills_and_end_as_unbroken_ones(
    checkpoints: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of("beitscore", checkpoints["beitscore"])
    whole = Writer()
    assert harden(settings, tmp_path / "whole", whole, rounds=2, command="capreward harden") is None
    first, second = whole.calls
    assert (first[0], second[0]) == (checkpoints["beitscore"], str(tmp_path / "whole" / "round_1" / "metric"))
    assert set(first[1]).isdisjoint(second[1])
    report = json.loads((tmp_path / "whole" / "harden.json").read_text())["rounds"]
    assert [len(report), report[2]["chosen"], report[2]["captions"]] == [3, 6, 12]
    assert report[0]["attacks"].keys() == report[2]["attacks"].keys()
    assert record(tmp_path / "whole" / "round_2" / "metric")["data"][1].endswith("round_2/ratings:0.3")
    table = (tmp_path / "whole" / "harden.md").read_text()
    for text in ("`capreward harden`", "| 2 | 12 | 6 |", "against the second metric; rated"):
        assert text in table

    def dying(*_: Any, **__: Any) -> None:
        raise Killed

    killed = Writer()
    for step in ("score_dataset", "choose_captions", "rate_on_scenes", "train", "_attacks_won"):
        with monkeypatch.context() as patch:
            patch.setattr(rounds, step, dying)
            with pytest.raises(Killed):
                harden(settings, tmp_path / "killed", killed, rounds=2)
    assert harden(settings, tmp_path / "killed", killed, rounds=2) is None
    assert len(killed.calls) == 2
    for number in (1, 2):
        names = [tmp_path / run / f"round_{number}" / "metric" for run in ("whole", "killed")]
        assert same_weights(*names)
    with pytest.raises(OutputError, match=r"other settings: settings\.rate was 6 and is 7"):
        harden(settings_of("beitscore", checkpoints["beitscore"], rate=7), tmp_path / "killed", killed)


def test_captions_wait_for_people(checkpoints: dict[str, str], tmp_path: Path) -> None:
    settings = settings_of("vela", checkpoints["vela"], rater="people", rule="novelty", second=None)
    writer, folder = Writer(), tmp_path / "run" / "round_1"
    for _ in range(2):
        assert harden(settings, tmp_path / "run", writer) == folder / "to_rate.jsonl"
    assert len(writer.calls) == 1
    rows = read_rows(folder / "to_rate.jsonl")
    assert (folder / rows[0]["image"]).is_file()
    assert [rows[0][name] for name in ("descriptiveness", "relevance", "fluency")] == [None] * 3
    assert "deviations from the captions rated before" in rows[0]["reason"]
    write_rows(folder / "rated.jsonl", rows)
    with pytest.raises(DataError, match="no row has a rating"):
        harden(settings, tmp_path / "run", writer)
    full = [{**row, "descriptiveness": n % 5 + 1, "relevance": 3, "fluency": 5} for n, row in enumerate(rows[:-1])]
    write_rows(folder / "rated.jsonl", [*full, rows[-1]])
    assert harden(settings, tmp_path / "run", writer) is None
    report = json.loads((folder / "report.json").read_text())
    assert (report["unrated"], len(report["examples"])) == (1, 3)
    assert "1 were not rated" in (tmp_path / "run" / "harden.md").read_text()


def test_contradictions_are_refused_before_anything_is_written(checkpoints: dict[str, str], tmp_path: Path) -> None:
    source = checkpoints["vela"]
    for changes, message in (
        ({"second": None}, "the rule disagreement needs a second metric"),
        ({"rule": "random"}, "the rule random compares with no second metric: leave 'unigram' out"),
        ({"rater": f"vela={source}"}, "the rater is the metric itself"),
        ({"images": "my/photos"}, "the oracle rates captions of scenes only, and the images are 'my/photos'"),
        ({"share": 1.0}, "the share of new ratings must be above 0 and below 1, got 1"),
        ({"count": 0}, "images and captions a round must be at least 1"),
    ):
        with pytest.raises(ConfigError, match=message):
            settings_of("vela", source, **changes)
    with pytest.raises(DataError, match="does not exist"):
        harden(settings_of("vela", source, data={"./absent": None}), tmp_path / "run", Writer())
    assert not (tmp_path / "run").exists()
