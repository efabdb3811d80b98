"""`capreward corrupt`: from true captions to data that training reads."""

import pyarrow.parquet as pq
import pytest
from PIL import Image

from reward.registry import metric_spec
from reward.training.config import TrainingConfig
from reward.training.rows import load_rows
from tests.toys.json_lines import write_lines
from tests.toys.rewriting_server import rewriting_server
from tests.toys.toy_clips import small_clip

pytestmark = pytest.mark.slow


@pytest.fixture
def captions(tmp_path, monkeypatch):
    """Six captions of three images, and two that cannot be used."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    for number in range(3):
        Image.new("RGB", (8, 8), (80 * number, 0, 0)).save(tmp_path / f"{number}.png")
    rows = [{"image": f"{n % 3}.png", "caption": f"A red dog lies on {n} stones. It sleeps."} for n in range(6)]
    return write_lines(tmp_path / "captions.jsonl", [*rows, {"image": "none.png", "caption": "A."}, {"image": "0.png"}])


def test_words_rewrites_and_retrieved_captions_become_rows_to_train_on(run, captions):
    clip, folder = small_clip(captions.parent / "clip"), captions.parent / "pairs"
    with rewriting_server(lambda caption: caption.replace("red", "blue")) as (address, asked):
        line = ["--judge", f"{address}#m", "--rewrite", "noun_attribute,action"]
        line += ["--words", "shuffle_words", "--retrieve", clip, "-o", folder / "train.parquet"]
        _, err = run("corrupt", captions, *line)
        assert "noun_attribute: 6 wrong captions" in err
        assert "1 left out: image cannot be read 1 left out: no caption" in err
        assert [message["role"] for message in asked[0]] == ["system", "user"]
        assert "is complete already" in run("corrupt", captions, *line)[1]
        (folder / "train.parquet").unlink()
        run("corrupt", captions, *line)  # the answers are kept
        assert len(asked) == 12
        assert "is not of this run" in run("corrupt", captions, *line, "--seed", 1, code=1)[1]
        run("corrupt", captions, *line[:-1], folder / "val.parquet")  # with the same options, so the same columns
    rows = pq.read_table(folder / "train.parquet").to_pylist()
    assert rows[5]["incorrect_action"] == ["A blue dog lies on 5 stones. It sleeps."]
    assert (folder / rows[5]["file_name"]).samefile(captions.parent / "2.png")
    retrieved = {text for band in ("easy", "medium", "hard") for text in rows[5][f"incorrect_retrieved_{band}"]}
    assert retrieved
    assert retrieved <= {row["caption"] for row in rows if row["file_name"] != rows[5]["file_name"]}

    kinds = ("noun_attribute", "retrieved", "shuffle")
    parts = load_rows(metric_spec("beitscore"), [str(folder)], TrainingConfig(loss="bce", categories=kinds))
    assert parts["train"].counts() == parts["val"].counts() == dict.fromkeys(kinds, 6)
    assert parts["train"].left_out == {"action": 6}
    assert parts["train"][1]["sample"].candidate.startswith("A blue dog")
