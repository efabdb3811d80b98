"""`capreward score` with a judge behind a server; what judges do with settings is in `tests/reward/metrics`."""

import base64
from io import BytesIO

import pytest
from PIL import Image

from tests.toys.json_lines import read_lines, write_lines
from tests.toys.loopback_judge import loopback_judge
from tests.toys.toy_judges import strict_llava

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def test_answers_are_counted_paid_and_kept(run, tmp_path):
    captions = ("A red field.", "Two dogs and a cat.", "", "A dark blue wall.")
    rows = [{"image": f"{number}.png", "caption": caption} for number, caption in enumerate(captions)]
    for number in range(3):
        Image.new("RGB", (32, 32), (60 * number, 0, 90)).save(tmp_path / f"{number}.png")
    data, there, again = (tmp_path / f"{name}.jsonl" for name in ("captions", "there", "again"))
    write_lines(data, rows)
    with loopback_judge(*strict_llava("0")) as server:
        line = ["score", data, "-m", f"fleur={server.endpoint}#tiny", "--cache", tmp_path / "answers.db"]
        _, err = run(*line, "--set", "prices=[2,8]", "-o", there)
        asked = len(server.requests)
        run(*line, "-o", again)
        assert len(server.requests) == asked == 4  # two ask whether system messages arrive; another file asks nothing
    assert ("2 questions answered by the judge" in err, "cost 0.0" in err) == (True, True)
    first, second, *bad = read_lines(there)
    assert first["reward"] == first["smoothed"] != second["reward"]
    assert [row["reward"] for row in bad] == [0.0, None]  # the lowest for a blank caption
    assert read_lines(again) == [first, second, *bad]


def test_questions_boxes_and_tasks_come_from_columns(run, tmp_path):
    Image.new("RGB", (32, 32), "white").save(tmp_path / "a.png")
    rows = [{"ask": "What is it?", "kind": "VDU"}]
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
