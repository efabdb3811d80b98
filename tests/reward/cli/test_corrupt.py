"""`capreward corrupt`, also with --benchmark: from true captions to data that training and `bench` read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image

from reward.metaeval.benchmarks import load_benchmark
from reward.registry import metric_spec
from reward.training.config import TrainingConfig
from reward.training.rows import load_rows
from tests.reward.cli.conftest import Run
from tests.toys.json_lines import write_lines
from tests.toys.rewriting_server import rewriting_server
from tests.toys.small_clip import small_clip

pytestmark = pytest.mark.slow

LONG = "A red dog lies on grass. " * 15 + "It guards a red ball."


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


@pytest.fixture
def captions(tmp_path: Path) -> Path:
    """Six captions of three images, and two that cannot be used."""
    for number in range(3):
        Image.new("RGB", (8, 8), (80 * number, 0, 0)).save(tmp_path / f"{number}.png")
    rows = [{"image": f"{n % 3}.png", "caption": f"A red dog lies on {n} stones. It sleeps."} for n in range(6)]
    return write_lines(tmp_path / "captions.jsonl", [*rows, {"image": "none.png", "caption": "A."}, {"image": "0.png"}])


def wrong(row: dict[str, Any], kind: str) -> list[str]:
    found: list[str] = row[f"incorrect_{kind}"]
    return found


def test_words_rewrites_and_retrieved_captions_become_rows_to_train_on(run: Run, captions: Path) -> None:
    clip, folder = small_clip(captions.parent / "clip"), captions.parent / "pairs"
    with rewriting_server(lambda caption: caption.replace("red", "blue")) as (address, asked):
        line: list[Any] = ["--judge", f"{address}#m", "--rewrite", "noun_attribute,action"]
        line += ["--words", "shuffle_words", "--retrieve", clip, "--per-band", 2, "-o", folder / "train.parquet"]
        _, err = run("corrupt", captions, *line)
        assert "noun_attribute: 6 wrong captions" in err
        assert "1 left out: image cannot be read 1 left out: no caption" in err
        assert len(asked) == 12
        assert [message["role"] for message in asked[0]] == ["system", "user"]
        _, err = run("corrupt", captions, *line)
        assert "is complete already" in err
        (folder / "train.parquet").unlink()
        run("corrupt", captions, *line)  # the answers are kept
        assert len(asked) == 12
        _, err = run("corrupt", captions, *line, "--seed", 1, code=1)
        assert "is not of this run" in err
        run("corrupt", captions, *line[:-1], folder / "val.parquet")  # with the same options, so the same columns
    rows = pq.read_table(folder / "train.parquet").to_pylist()
    assert wrong(rows[5], "action") == ["A blue dog lies on 5 stones. It sleeps."]
    assert (folder / rows[5]["file_name"]).samefile(captions.parent / "2.png")
    others = {row["caption"] for row in rows if row["file_name"] != rows[5]["file_name"]}
    retrieved = [text for band in ("easy", "medium", "hard") for text in wrong(rows[5], f"retrieved_{band}")]
    assert retrieved
    assert set(retrieved) <= others

    names = ("noun_attribute", "retrieved", "shuffle")
    parts: Any = load_rows(metric_spec("beitscore"), [str(folder)], TrainingConfig(loss="bce", categories=names))
    assert parts["train"].counts() == dict.fromkeys(names, 6)
    assert parts["val"].counts() == parts["train"].counts()
    assert parts["train"].left_out == {"action": 6}
    assert parts["train"][1]["sample"].candidate.startswith("A blue dog")


def test_wrong_captions_that_came_with_the_data_stay(run: Run, captions: Path) -> None:
    rows = [{"image": "0.png", "caption": "A dog.", "incorrect": "A cat.", "category": "foil", "incorrect_count": "2."}]
    file = write_lines(captions.with_name("foils.jsonl"), rows)
    run("corrupt", file, "--words", "shuffle_words", "-o", captions.with_name("o.parquet"))
    (row,) = pq.read_table(captions.with_name("o.parquet")).to_pylist()
    assert (row["incorrect"], row["category"], wrong(row, "count")) == ("A cat.", "foil", ["2."])
    assert wrong(row, "shuffle_words") == ["Dog a."]


def test_a_benchmark_whose_rewriter_sees_the_images(run: Run, captions: Path) -> None:
    rows = [{"image": "0.png", "caption": LONG}, {"image": "1.png", "caption": "A sign says red."}]
    file, folder = write_lines(captions.with_name("long.jsonl"), rows), captions.with_name("made")

    def late(caption: str) -> str:
        head, red, tail = caption.rpartition("red")
        return head + red.replace("red", "green") + tail

    with rewriting_server(late) as (address, asked):
        line = ["--benchmark", "--judge", f"{address}#m", "--rewrite", "action,scene text", "-o", folder]
        _, err = run("corrupt", file, *line)
        assert len(asked) == 3  # no action in a short caption: no error of it could be past token 77
        assert "image_url" in json.dumps(asked[0])
        assert "1 left out: caption ends before token 77" in err
        assert "3 pairs" in err
        assert "exists already" in run("corrupt", file, *line, code=1)[1]
    pairs = load_benchmark("longcapvlcp", folder).rows
    assert [(pair.category, pair.captions[1]) for pair in pairs.itertuples()] == [
        ("action", late(LONG)),
        ("scene text", late(LONG)),
        ("scene text", "A sign says green."),
    ]


def test_sizes_are_those_that_the_paper_of_beitscore_states(run: Run) -> None:
    """Its table 1: 222.28 and 674.69 million weights; 83.85 and 296.73 GFLOPs, which are multiplications."""
    out, _ = run("metrics", "beitscore=base", "beitscore=large", "beitscore", "--size")
    rows = [[float(cell) for cell in line.split("│")[2:-1]] for line in out.splitlines() if "│ beitscore" in line]
    assert [row[:2] for row in rows[:2]] == [
        pytest.approx([222.28, 83.85], rel=1e-3),
        pytest.approx([674.69, 296.73], rel=1e-3),
    ]
    assert 0.1 < rows[0][2] / rows[0][1] < 0.3
    assert rows[2][0] == 2.28
