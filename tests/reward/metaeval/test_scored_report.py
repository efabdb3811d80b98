"""The report of a scored data set: its figures against other ways to compute them, its inputs, and the page."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward.errors import DataError, OutputError
from reward.metaeval import kendall_tau, spearman
from reward.metaeval.bootstrap import bootstrap_weights, percentile_interval, resampled_mean
from reward.metaeval.scored import WORDS, read_scored
from reward.metaeval.scored_figures import agreements, candidate_gains, drift, mean_of, population_stability_index
from tests.json_lines import write_lines
from tests.reward.cli.conftest import Run, run  # noqa: F401  # a fixture
from tests.reward.scoring.small_data import save_greys

pytest.importorskip("matplotlib")
from reward.metaeval.scored_report import write_scored_report


def rows_of(folder: Path, *, count: int = 90, shift: float = 0.0) -> Path:
    """Scored rows of three images, a caption length and a source each; every tenth has an error."""
    numbers = np.random.default_rng(1)
    rows: list[dict[str, Any]] = []
    for row in range(count):
        failed = row % 10 == 9
        rows.append(
            {
                "image": f"greys/{row % 3}.png",
                "candidate": "a <b> & dog " * (1 + row % 7),
                "source": ["coco", "cc12m"][row % 2],
                "relevance": None if failed else row / count + shift,
                "reward": None if failed else float(numbers.normal(0.5, 0.1)) + shift,
                "error": f"cannot read 'x{row}.png': {row} bytes" if failed else None,
            }
        )
    save_greys(folder / "greys")
    path = folder / f"scores{shift:g}.jsonl"
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
    now, before = rows_of(tmp_path, shift=0.2), rows_of(tmp_path)
    (tmp_path / "greys" / "2.png").unlink()
    output = tmp_path / "new" / "report.html"
    _, told = run("report", now, "--against", before, "--per", "source", "-o", output, "--examples", "4")
    assert "9 of 90 captions have no reward" in told
    text = output.read_text(encoding="utf-8")
    page = Page(text)
    assert not re.search(r"https?://", text)
    assert "prefers-color-scheme: dark" in text
    plots = "".join(re.findall(r"<svg .*?</svg>", text, re.DOTALL))
    assert not re.search("#(1b2330|5c6878|2f5bea|aab2bf)", plots)  # all colours of the plots are the page's
    shown = " ".join(page.texts)
    for part in ("Drift from scores0.jsonl", "Caption length: reward", "By source: reward", "Errors: 1 kind", "Best,"):
        assert part in shown
    assert "cannot read …: … bytes 9 10.00 row 10: cannot read 'x9.png': 9 bytes" in " ".join(shown.split())
    assert "a <b> & dog" in shown
    missing = shown.count("no picture: ")
    assert len(page.pictures) + missing == 8
    assert missing > 0
    assert all(source.startswith("data:image/jpeg;base64,") for source in page.pictures)
    with pytest.raises(OutputError, match="is there already"):
        write_scored_report(now, output)


def test_best_and_worst_are_of_all_rows_and_figures_of_a_sample_of_whole_images(tmp_path: Path) -> None:
    data = tmp_path / "scores.jsonl"
    rows = [{"image": f"{row // 4}", "candidate": "a b", "reward": ((row * 7919) % 9001) / 9001} for row in range(9000)]
    write_lines(data, rows)
    found = read_scored(data, examples=3, sample=1000)
    assert (found.rows, found.sampled) == (9000, 1000)
    order = sorted(range(9000), key=lambda row: rows[row]["reward"])
    assert [one["row"] - 1 for one in found.best] == order[:-4:-1]
    assert [one["row"] - 1 for one in found.worst] == order[:3]
    _, sizes = np.unique(found.images, return_counts=True)
    assert sorted(sizes.tolist())[-249:] == [4] * 249
    assert found.values["reward"].mean() == pytest.approx(0.5, abs=0.05)
    write_lines(tmp_path / "again.jsonl", rows[::-1])
    again = read_scored(tmp_path / "again.jsonl", sample=1000)
    assert len(set(found.images.tolist()) & set(again.images.tolist())) >= 249  # both sets keep the same images


def test_intervals_are_those_of_the_bootstrap_over_images() -> None:
    numbers = np.random.default_rng(3)
    images = np.repeat(np.arange(200), 4)
    values = numbers.normal(size=200)[images] + numbers.normal(scale=0.3, size=800)
    found = mean_of(values, images)
    weights = bootstrap_weights(800, resamples=4000, clusters=images.tolist())
    expected = percentile_interval(values.mean(), resampled_mean(values, weights))
    assert found.value == pytest.approx(values.mean())
    assert (found.high - found.low) == pytest.approx(expected.high - expected.low, rel=0.06)
    assert (found.high - found.low) > 1.5 * 2 * 1.96 * values.std() / 800**0.5  # rows are not independent
    assert math.isnan(mean_of(values[:4], images[:4]).low)  # one image says nothing of others


def test_drift_of_a_shift_is_paired_by_image(tmp_path: Path) -> None:
    before, now = read_scored(rows_of(tmp_path)), read_scored(rows_of(tmp_path, shift=0.2))
    found = drift(now, before)
    assert set(found) == {"reward", "relevance", WORDS}
    assert found["reward"].difference.value == pytest.approx(0.2)
    # the same captions, shifted: without pairing the interval would be about 0.06 wide
    assert found["reward"].difference.high - found["reward"].difference.low < 1e-6
    assert found["reward"].psi > 0.25
    assert found["reward"].ks > 0.6
    same = drift(before, before)["reward"]
    assert (same.psi, same.ks, same.difference.value) == (0, 0, 0)
    write_lines(tmp_path / "other.jsonl", [{"score": 0.1, "image": "a", "candidate": "a"}])
    with pytest.raises(DataError, match="share no column of scores"):
        drift(now, read_scored(tmp_path / "other.jsonl", by="score"))


def test_population_stability_index_by_hand() -> None:
    expected, actual = np.array([1, 2, 3, 4] * 25), np.array([1] * 40 + [2] * 30 + [3] * 20 + [4] * 10)
    by_hand = sum((q - 0.25) * math.log(q / 0.25) for q in (0.4, 0.3, 0.2, 0.1))
    assert population_stability_index(expected, actual, bins=4) == pytest.approx(by_hand)
    assert population_stability_index(expected, expected) == 0


def own_names(folder: Path) -> tuple[Path, Path]:
    """Rows and lists with columns of their own names, two captions an image, in a folder with a blank in its name."""
    data = folder / "my photos"
    save_greys(data)
    rows = [{"pic": f"{row % 3}.png", "text": "a star " * (row + 1) if row else " "} for row in range(6)]
    lists = [{"pic": f"{place}.png", "texts": [rows[place]["text"], rows[place + 3]["text"]]} for place in range(3)]
    return write_lines(data / "rows.jsonl", rows), write_lines(data / "lists.jsonl", lists)


@pytest.mark.parametrize("form", ["rows", "ranked rows", "lists"])
def test_what_was_scored_is_found_again(form: str, tmp_path: Path, run: Run) -> None:  # noqa: F811
    rows, lists = own_names(tmp_path)
    scored, page = tmp_path / "scores.jsonl", tmp_path / "report.html"
    names = ["--image-column", "pic", "--candidate-column", "texts" if form == "lists" else "text"]
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
    for part in ("a star a star a star", "Scored by clipscore (source: embedded).", "intervals over 3 images"):
        assert part in texts
    assert "trained on drawings" in texts
    assert "trained on drawings" in told
    assert f"clipscore is not shown: it is the same as {by}" in texts
    assert ("The best candidate" in texts) == (form != "rows")
    told_by = tmp_path / "scores.jsonl.summary.json"
    summary = json.loads(told_by.read_text(encoding="utf-8"))
    summary["summary"]["out_of_domain"] = 4
    told_by.write_text(json.dumps(summary), encoding="utf-8")
    run("report", scored, "-o", page, "--overwrite")
    assert "4 of 6 captions, or their images, are unlike" in page.read_text(encoding="utf-8")
    told_by.unlink()
    _, told = run("report", scored, "-o", page, "--overwrite")
    shown = Page(page.read_text(encoding="utf-8"))
    texts = " ".join(shown.texts)
    assert not shown.pictures
    assert "None" not in texts
    for part in ("name it with --candidate-column", "intervals are over rows", "Name it with --image-column"):
        assert part in texts
        assert part in told
    assert "over images" not in texts
    run("report", scored, "-o", page, "--overwrite", *names, "--image-root", tmp_path / "my photos")
    assert len(Page(page.read_text(encoding="utf-8")).pictures) == 5


def test_what_caption_wrote_is_shown_with_its_candidates(tmp_path: Path, run: Run) -> None:  # noqa: F811
    folder = save_greys(tmp_path / "my photos")
    (folder / "broken.png").write_bytes(b"none")
    output, page = tmp_path / "captions.jsonl", tmp_path / "report.html"
    sampling = ["--n", 2, "--max-tokens", 8, "--seed", 0, "--keep-candidates"]
    run("caption", "--model", "embedded", "--images", folder, "-m", "clipscore", "-o", output, *sampling)
    run("report", output, "-o", page)
    shown = Page(page.read_text(encoding="utf-8"))
    texts = " ".join(shown.texts)
    assert "chosen by best-of-n: 2 candidates an image, 6 in all. Mean reward 0." in texts
    assert "4 rows, 1 of them without reward" in texts
    assert len(shown.pictures) == 3
    run("report", f"{output}.candidates.jsonl", "-o", page, "--overwrite")
    texts = " ".join(Page(page.read_text(encoding="utf-8")).texts)
    assert "3 rows with 6 candidates, 0 of them without rewards" in texts
    assert "Scored by clipscore (source: embedded)." in texts


def test_gain_of_the_best_candidate_is_that_of_lists_and_of_ranked_rows(tmp_path: Path) -> None:
    numbers = np.random.default_rng(5)
    rewards, other = numbers.random((40, 4)), numbers.random((40, 4))
    rewards[3, 2] = math.nan
    lists = [
        {
            "image": f"{place}.png",
            "candidates": ["a", "b", "c", "d"],
            "rewards": [None if math.isnan(each) else each for each in row],
            "fluency": others,
        }
        for place, (row, others) in enumerate(zip(rewards.tolist(), other.tolist(), strict=True))
    ]
    lists.append({"image": "40.png", "candidates": None, "rewards": None, "fluency": None, "error": "broken"})
    rows = [
        {"image": row["image"], "candidate": text, "reward": reward, "fluency": fluency, "rank": 1}
        for row in lists[:-1]
        for text, reward, fluency in zip(row["candidates"], row["rewards"], row["fluency"], strict=True)  # type: ignore[arg-type]
    ]
    write_lines(tmp_path / "lists.jsonl", lists)
    write_lines(tmp_path / "rows.jsonl", numbers.permutation(np.array(rows)).tolist())
    of_lists = read_scored(tmp_path / "lists.jsonl")
    assert (of_lists.rows, of_lists.captions, of_lists.unscored, len(of_lists.errors)) == (41, 161, 2, 1)
    for found, by in ((of_lists, "rewards"), (read_scored(tmp_path / "rows.jsonl"), "reward")):
        sizes, gains = candidate_gains(found)
        assert sorted(sizes.tolist()) == [3] + [4] * 39
        best = np.nanargmax(rewards, axis=1)
        gain = np.nanmax(rewards, axis=1) - np.nanmean(rewards, axis=1)
        assert gains[by].gain.value == pytest.approx(gain.mean())
        assert gains[by].gain.low == pytest.approx(gain.mean() - 1.96 * gain.std(ddof=1) / 40**0.5)
        assert gains["fluency"].chosen == pytest.approx(other[np.arange(40), best].mean())
    lists[0]["fluency"] = [0.5]
    write_lines(tmp_path / "lists.jsonl", lists)
    with pytest.raises(DataError, match=r"'rewards' and 'fluency' of .* hold lists of different lengths"):
        read_scored(tmp_path / "lists.jsonl")


def test_two_metrics_are_compared_over_images_and_where_they_disagree(tmp_path: Path, run: Run) -> None:  # noqa: F811
    numbers = np.random.default_rng(2)
    image = np.repeat(np.arange(60), 5)
    first = numbers.random(60)[image] + 0.1 * numbers.random(300)
    second = first + 0.3 * numbers.random(60)[image]
    first[7], second[7] = 2, -1
    save_greys(tmp_path)
    rows = [
        {"image": f"{number}.png", "candidate": f"caption {place}", "vela_reward": x, "b_reward": y, "b_overall": y}
        for place, (number, x, y) in enumerate(zip(image.tolist(), first.tolist(), second.tolist(), strict=True))
    ]
    rows[0] |= {"vela_reward": None, "b_reward": 0.5}
    scored = write_lines(tmp_path / "scores.jsonl", [*rows, rows[7]])
    (found,) = agreements(read_scored(scored), examples=2)
    x, y, of = np.r_[first[1:], 2], np.r_[second[1:], -1], np.r_[image[1:], image[7]]
    assert (found.first, found.second, found.captions, found.images) == ("vela_reward", "b_reward", 300, 60)
    assert found.spearman.value == pytest.approx(spearman(x, y))
    assert found.tau.value == pytest.approx(kendall_tau(x, y, variant="b"))
    weights = bootstrap_weights(300, clusters=of.tolist())
    of_rows = [spearman(np.repeat(x, w), np.repeat(y, w)) for w in weights[:300].astype(int)]
    assert found.spearman.high - found.spearman.low == pytest.approx(
        np.ptp(np.quantile(of_rows, [0.025, 0.975])), rel=0.2
    )
    assert (found.apart[0].place, found.apart[0].alike) == (7, 2)
    assert (found.apart[0].first, found.apart[0].second) == (1.5, 299.5)  # both of the two rows that are the same
    run("report", scored, "-o", tmp_path / "report.html")
    texts = " ".join(Page((tmp_path / "report.html").read_text(encoding="utf-8")).texts)
    assert "vela_reward 2.000, rank 1.5 of 300 · b_reward -1.000, rank 299.5 of 300 · row 8 · 2 rows alike" in texts
    assert f"vela_reward and b_reward 300 60 {found.spearman} {found.tau}" in " ".join(texts.split())


def test_equal_rows_are_shown_once_and_no_row_is_best_and_worst(tmp_path: Path) -> None:
    def read(scores: list[float], captions: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        rows = [
            {"image": "a.png", "candidate": text, "reward": score} for text, score in zip(captions, scores, strict=True)
        ]
        found = read_scored(write_lines(tmp_path / "scores.jsonl", rows), examples=2)
        return tuple([(row["row"], row["count"]) for row in kept] for kept in (found.best, found.worst))  # type: ignore[return-value]

    assert read([0.9, 0.1, 0.9, 0.5, 0.9, 0.2, 0.1], "xyxzxwy") == ([(1, 3), (4, 1)], [(2, 2), (6, 1)])
    assert read([0.9, 0.5, 0.1, 0.9], "xyzx") == ([(1, 2), (2, 1)], [(3, 1)])
    assert read([0.5, 0.5, 0.5, 0.5, 0.5], "xyzwx") == ([(1, 2), (2, 1)], [])


def test_without_images_sets_are_not_paired(tmp_path: Path) -> None:
    before, now = (
        read_scored(
            write_lines(tmp_path / f"{shift}.jsonl", [{"candidate": "a", "reward": row + shift} for row in range(50)])
        )
        for shift in (0, 1)
    )
    found = drift(now, before)["reward"].difference
    assert (found.value, found.high - found.low > 5) == (pytest.approx(1), True)


def test_a_filtered_file_is_read_as_the_scored_one(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.chdir(tmp_path)
    save_greys(tmp_path / "greys")
    rows = [{"pic": f"greys/{row % 3}.png", "image": "none.png", "said": "a " * (row + 1)} for row in range(6)]
    write_lines(tmp_path / "data.jsonl", rows)
    own = ("--candidate-column", "said", "--image-column", "pic")
    run("score", "data.jsonl", "-m", "length", "-o", "scores.jsonl", *own)
    run("filter", "scores.jsonl", "--top", "1", "--per", "image", "-o", "new/good.jsonl")
    _, told = run("report", "new/good.jsonl", "-o", "good.html")
    page = Page((tmp_path / "good.html").read_text(encoding="utf-8"))
    assert "report on 3 rows" in told
    assert "--image-root" not in told
    assert len(page.pictures) == 3
    assert "Scored by length." in page.texts
    (tmp_path / "greys").rename(tmp_path / "moved")
    _, told = run("report", "new/good.jsonl", "-o", "moved.html")
    assert "3 pictures are left out, as they could not be read; the first: image file" in told
    assert told.count("name the folder that image paths start from with --image-root") == 1
