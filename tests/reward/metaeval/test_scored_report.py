"""The report of a scored data set: its figures, its inputs, and the page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward.errors import DataError, OutputError
from reward.metaeval.scored import read_scored, write_scored_report
from tests.reward.cli.conftest import Run, run  # noqa: F401  # a fixture
from tests.reward.scoring.small_data import save_greys
from tests.toys.json_lines import write_lines

pytestmark = pytest.mark.slow


def rows_of(folder: Path, *, count: int = 90) -> Path:
    """Scored rows of three images; every tenth has an error."""
    numbers = np.random.default_rng(1)
    rows: list[dict[str, Any]] = []
    for row in range(count):
        failed = row % 10 == 9
        rows.append(
            {
                "image": f"greys/{row % 3}.png",
                "candidate": "a <b> & dog " * (1 + row % 7),
                "relevance": None if failed else row / count,
                "reward": None if failed else float(numbers.normal(0.5, 0.1)),
                "error": f"cannot read 'x{row}.png': {row} bytes" if failed else None,
            }
        )
    save_greys(folder / "greys")
    path = folder / "scores.jsonl"
    write_lines(path, rows)
    return path


class Page(HTMLParser):
    """Pictures, addresses and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.pictures: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        values = dict(attrs)
        assert tag not in ("script", "link", "iframe")
        if tag == "img":
            self.pictures.append(values["src"])

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def test_the_page_needs_nothing_else_and_shows_everything(tmp_path: Path, run: Run) -> None:  # noqa: F811
    now = rows_of(tmp_path)
    (tmp_path / "greys" / "2.png").unlink()
    output = tmp_path / "new" / "report.html"
    _, told = run("report", now, "-o", output, "--examples", "4")
    assert "9 of 90 captions have no reward" in told
    text = output.read_text(encoding="utf-8")
    page = Page(text)
    assert not re.search(r"https?://", text)
    assert "prefers-color-scheme: dark" in text
    plots = "".join(re.findall(r"<svg .*?</svg>", text, re.DOTALL))
    assert not re.search("#(1b2330|5c6878|2f5bea|8a94a3)", plots)  # all colours of the plots are the page's
    shown = " ".join(page.texts)
    for part in ("Scores", "relevance", "Errors: 1 kind", "Best,", "Worst,"):
        assert part in shown
    assert "cannot read …: … bytes 9 10.00 row 10: cannot read 'x9.png': 9 bytes" in " ".join(shown.split())
    assert "a <b> & dog" in shown
    missing = shown.count("no picture: ")
    assert len(page.pictures) + missing == 8
    assert missing > 0
    assert all(source.startswith("data:image/jpeg;base64,") for source in page.pictures)
    with pytest.raises(OutputError, match="is there already"):
        write_scored_report(now, output)


def own_names(folder: Path) -> tuple[Path, Path]:
    """Rows and lists with columns of their own names, two captions an image, in a folder with a blank in its name."""
    data = folder / "my photos"
    save_greys(data)
    rows = [{"pic": f"{row % 3}.png", "said": "a star " * (row + 1) if row else " "} for row in range(6)]
    lists = [{"pic": f"{place}.png", "texts": [rows[place]["said"], rows[place + 3]["said"]]} for place in range(3)]
    return write_lines(data / "rows.jsonl", rows), write_lines(data / "lists.jsonl", lists)


@pytest.mark.parametrize("form", ["rows", "ranked rows", "lists"])
def test_what_was_scored_is_found_again(form: str, tmp_path: Path, run: Run) -> None:  # noqa: F811
    rows, lists = own_names(tmp_path)
    scored, page = tmp_path / "scores.jsonl", tmp_path / "report.html"
    names = ["--image-column", "pic", "--candidate-column", "texts" if form == "lists" else "said"]
    group = ["--group-column", "pic"] if form == "ranked rows" else []
    command = "score" if form == "rows" else "rerank"
    run(command, lists if form == "lists" else rows, "-m", "clipscore", "-o", scored, *names, *group)
    run("report", scored, "-o", page, "--examples", 0)
    assert not Page(page.read_text(encoding="utf-8")).pictures
    _, told = run("report", scored, "-o", page, "--overwrite")
    shown = Page(page.read_text(encoding="utf-8"))
    texts = " ".join(shown.texts)
    by = "rewards" if form == "lists" else "reward"
    assert (len(shown.pictures), f"1 of 6 captions have no {by}" in told) == (5, True)
    for part in ("a star a star a star", "Scored by clipscore (checkpoint: embedded)."):
        assert part in texts
    assert f"clipscore is not shown: it is the same as {by}" in texts
    (tmp_path / "scores.jsonl.summary.json").unlink()
    _, told = run("report", scored, "-o", page, "--overwrite")
    shown = Page(page.read_text(encoding="utf-8"))
    texts = " ".join(shown.texts)
    assert not shown.pictures
    assert "None" not in texts
    for part in ("name it with --candidate-column", "name it with --image-column"):
        assert part in texts
        assert part in told
    run("report", scored, "-o", page, "--overwrite", *names, "--image-root", tmp_path / "my photos")
    assert len(Page(page.read_text(encoding="utf-8")).pictures) == 5


def test_what_caption_wrote_is_shown_with_its_candidates(tmp_path: Path, run: Run) -> None:  # noqa: F811
    folder = save_greys(tmp_path / "my photos")
    (folder / "broken.png").write_bytes(b"none")
    output, page = tmp_path / "captions.jsonl", tmp_path / "report.html"
    sampling = ["--n", 2, "--max-tokens", 8, "--seed", 0, "--keep-candidates"]
    run("caption", "--model", "embedded", folder, "-m", "clipscore", "-o", output, *sampling)
    run("report", output, "-o", page)
    shown = Page(page.read_text(encoding="utf-8"))
    texts = " ".join(shown.texts)
    assert "Scored by clipscore (checkpoint: embedded)." in texts
    assert "1 of 4 captions have no reward" in texts
    assert len(shown.pictures) == 3
    run("report", f"{output}.candidates.jsonl", "-o", page, "--overwrite")
    texts = " ".join(Page(page.read_text(encoding="utf-8")).texts)
    assert "3 rows with 6 candidates." in texts
    assert "Scored by clipscore (checkpoint: embedded)." in texts


def test_equal_rows_are_shown_once_and_no_row_is_best_and_worst(tmp_path: Path) -> None:
    def read(scores: list[float], captions: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        rows = [
            {"image": "a.png", "candidate": text, "reward": score} for text, score in zip(captions, scores, strict=True)
        ]
        found = read_scored(write_lines(tmp_path / "scores.jsonl", rows), examples=2)
        return tuple([*zip(kept["row"], kept["count"], strict=True)] for kept in (found.best, found.worst))  # type: ignore[return-value]

    assert read([0.9, 0.1, 0.9, 0.5, 0.9, 0.2, 0.1], "xyxzxwy") == ([(1, 3), (4, 1)], [(2, 2), (6, 1)])
    assert read([0.9, 0.5, 0.1, 0.9], "xyzx") == ([(1, 2), (2, 1)], [(3, 1)])
    assert read([0.5, 0.5, 0.5], "xyx") == ([(1, 2), (2, 1)], [])


def test_figures_are_of_all_captions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reward.metaeval.scored._BATCH", 7)
    rows = [{"image": f"{row // 4}", "candidate": "a b", "reward": ((row * 79) % 91) / 91} for row in range(90)]
    found = read_scored(write_lines(tmp_path / "scores.jsonl", rows), examples=3)
    order = sorted(range(90), key=lambda row: rows[row]["reward"])
    assert [row - 1 for row in found.best["row"]] == order[:-4:-1]
    assert [row - 1 for row in found.worst["row"]] == order[:3]
    assert found.scores["reward"].tolist() == [row["reward"] for row in rows]


def test_candidates_in_lists_count_one_by_one(tmp_path: Path) -> None:
    lists: list[dict[str, Any]] = [
        {"image": "a.png", "candidates": ["a", "b", "c"], "rewards": [0.5, None, 0.7], "fluency": [0.1, 0.2, 0.3]},
        {"image": "b.png", "candidates": None, "rewards": None, "fluency": None, "error": "broken"},
    ]
    found = read_scored(write_lines(tmp_path / "lists.jsonl", lists))
    assert (found.rows, list(found.notes())) == (2, ["2 of 4 captions have no rewards"])
    assert [found.scores[name].dropna().tolist() for name in found.scores] == [[0.5, 0.7], [0.1, 0.2, 0.3]]
    assert [*zip(found.best["caption"], found.best["row"], strict=True)] == [("c", 1), ("a", 1)]
    assert found.errors.to_dict() == {2: "broken"}
    lists[0]["fluency"] = [0.5]
    with pytest.raises(DataError, match=r"'rewards' and other columns of .* hold lists of different lengths"):
        read_scored(write_lines(tmp_path / "lists.jsonl", lists))


def test_pictures_of_moved_data_are_left_out(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.chdir(tmp_path)
    save_greys(tmp_path / "greys")
    rows = [{"pic": f"greys/{row}.png", "image": "none.png", "said": "a " * (row + 1)} for row in range(3)]
    write_lines(tmp_path / "data.jsonl", rows)
    named = ["--candidate-column", "said", "--image-column", "pic"]
    run("score", "data.jsonl", "-m", "length", "-o", "scores.jsonl", *named)
    _, told = run("report", "scores.jsonl", "-o", "scores.html")
    assert "report on 3 rows" in told
    assert "--image-root" not in told
    (tmp_path / "greys").rename(tmp_path / "moved")
    _, told = run("report", "scores.jsonl", "-o", "moved.html")
    assert "3 pictures are left out, as they could not be read; the first: image file" in told
    assert told.count("name the folder that image paths start from with --image-root") == 1
