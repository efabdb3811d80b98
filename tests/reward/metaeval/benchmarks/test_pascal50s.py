"""Pascal-50S: pairs by category, of whose references five are drawn by a seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward.errors import DataError
from reward.metaeval import evaluate, load_benchmark, run_bench, score_benchmark
from reward.metaeval.bench_report import notes
from reward.metaeval.benchmarks.score_files import add_scores
from reward.registry import MetricSource
from tests.reward.cli.conftest import Run, run  # noqa: F401  # a fixture
from tests.reward.metaeval.small_benchmarks import use_metrics

CATEGORIES = ("HC", "HI", "HM", "MM")


def pair(number: int, references: int) -> dict[str, Any]:
    row = {"image": f"2008_{number}.jpg", "captions": ["A dog.", "A cat."], "label": number % 2}
    return row | {"references": [f"reference {k} of {number}" for k in range(references)]}


def write(folder: Path, *, references: int = 48) -> Path:
    """A pair of each category."""
    pairs = {category: [pair(number, references)] for number, category in enumerate(CATEGORIES)}
    folder.mkdir(exist_ok=True)
    (folder / "pascal_50s.json").write_text(json.dumps(pairs))
    return folder


def test_pairs_by_category(tmp_path: Path) -> None:
    found = list(load_benchmark("pascal-50s", write(tmp_path)).rows.itertuples())
    assert [(item.category, item.label) for item in found] == list(zip(CATEGORIES, (0, 1, 0, 1), strict=True))
    assert found[2].captions == ("A dog.", "A cat.")
    assert found[2].references == tuple(f"reference {k} of 2" for k in range(48))
    assert found[2].images[0] == tmp_path / "2008_2.jpg"
    (tmp_path / "JPEGImages").mkdir()
    elsewhere = load_benchmark("pascal-50s", tmp_path / "pascal_50s.json", images=tmp_path / "JPEGImages").rows
    assert elsewhere["images"][1][0] == tmp_path / "JPEGImages" / "2008_1.jpg"


def test_figures_are_means_over_five_draws_of_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_metrics(monkeypatch)
    benchmark = load_benchmark("pascal-50s", write(tmp_path))
    found = score_benchmark(benchmark, "unigram").for_aspects(benchmark)
    assert isinstance(found, np.ndarray)
    assert found.shape == (4, 2, 5)
    drawn = [[each.references for each in benchmark.samples(draw=draw) if each] for draw in range(1, 6)]
    assert {len(set(references)) for draw in drawn for references in draw} == {5}
    assert len({tuple(draw) for draw in drawn}) == 5
    assert len({tuple(int(text.split()[1]) for text in references) for references in drawn[0]}) == 4  # one a pair
    assert drawn[0] == [each.references for each in load_benchmark("pascal-50s", tmp_path).samples() if each]
    scores = np.random.default_rng(0).normal(size=(4, 2, 5))
    scores[..., 1] = scores[:, ::-1, 0]  # a draw that decides otherwise
    several = evaluate(benchmark, scores, resamples=20)
    single = [evaluate(benchmark, scores[..., draw], resamples=20) for draw in range(5)]
    for name, values in several.replicates.items():
        assert values == pytest.approx(np.mean([each.replicates[name] for each in single], axis=0), nan_ok=True)
    for kind, value in several.details["overall"].items():
        assert value == pytest.approx(np.mean([each.details["overall"][kind] for each in single]))
    [table] = run_bench([(benchmark, None)], [MetricSource("unigram"), MetricSource("length")], resamples=20)
    assert "the mean over 5 draws of 5 references" in "\n".join(notes([table], resamples=20))
    assert table.rows[1].scores.shape == (4, 2)  # it reads no references


@pytest.mark.parametrize(("draws", "held", "shown"), [(1, 48, 5), (0, 48, 48), (5, 5, 5)])
def test_one_draw_all_references_or_those_that_the_file_holds(
    tmp_path: Path, draws: int, held: int, shown: int
) -> None:
    benchmark = load_benchmark("pascal-50s", write(tmp_path, references=held), reference_draws=draws)
    assert {len(each.references) for each in benchmark.samples() if each} == {shown}
    assert benchmark.draws == (1 if draws == 1 else 0)


def blocks(number: int, *scores: float, label: int | None = None) -> str:
    """A block as FLEUR's authors write it."""
    lines = [f"image file : VOC2012/JPEGImages/2008_{number}.jpg", *([] if label is None else [f"label : {label}", ""])]
    for caption, score in zip(("A dog.", "A  cat."), scores, strict=False):
        lines += [f"caption : {caption}", "model score : 0.5", f"our score : {score}", ""]
    return "\n".join(lines)


def test_published_scores_come_from_the_text_files_of_fleur(tmp_path: Path, run: Run) -> None:  # noqa: F811
    write(tmp_path / "data")
    (tmp_path / "HC.txt").write_text(blocks(0, 0.1, 0.9, label=1) + "\ntrue count : 1\n")
    texts = ["Pascal", blocks(1, 0.1, 0.9, label=1), blocks(2, 0.9), blocks(3, 0.9, 0.8, label=1), blocks(9, 0.1, 0.9)]
    (tmp_path / "MM.txt").write_text("\n".join(texts))
    benchmark = load_benchmark("pascal-50s", tmp_path / "data")
    with pytest.warns(UserWarning, match="1 of 4 labels differ in the files of 'our score', and are taken from there"):
        found = add_scores(benchmark, "our score", [tmp_path / "HC.txt", tmp_path / "MM.txt"])
    nan = float("nan")
    np.testing.assert_array_equal(found.columns["our score"], [[0.1, 0.9], [0.1, 0.9], [nan, nan], [0.9, 0.8]])
    assert (benchmark.rows["label"].tolist(), found.rows["label"].tolist()) == ([0, 1, 0, 1], [1, 1, 0, 1])
    assert add_scores(load_benchmark("scenes", limit=2), "our score", [tmp_path / "HC.txt"]).columns == {}
    for name, text, message in (("other", "", "no line 'other : NUMBER'"), ("our score", "x", "holds no number")):
        (tmp_path / "bad.txt").write_text(blocks(0, 1.0).replace("1.0", text or "1.0"))
        with pytest.raises(DataError, match=message):
            add_scores(benchmark, name, [tmp_path / "bad.txt"])
    line = ("bench", "-b", f"pascal-50s={tmp_path / 'data'}", "--score-column", f"our score={tmp_path}/*.txt")
    (tmp_path / "bad.txt").unlink()
    assert f"there is no file {tmp_path}/no*.txt" in run(*line[:-1], f"our score={tmp_path}/no*.txt", code=2)[1]
    assert "no pair of the category 'HM' of Pascal-50S has both its scores" in run(*line, code=1)[1]


AUTHORS = Path(__file__).parents[5] / "shared" / "data" / "FLEUR"


@pytest.mark.skipif(not AUTHORS.is_dir(), reason=f"no copy of github.com/Yebin46/FLEUR is at {AUTHORS}")
def test_the_scores_of_fleurs_authors_give_the_accuracies_of_their_table_1() -> None:
    data = load_benchmark("pascal-50s", AUTHORS / "annotations")
    with pytest.warns(UserWarning, match="35 of 4000 labels differ"):
        given = add_scores(data, "our score", sorted(AUTHORS.glob("results/fleur_pascal_*.txt")))
    found = evaluate(given, given.columns["our score"], resamples=5).estimates
    assert {name: f"{100 * found[name].value:.1f}" for name in (*CATEGORIES, "mean")} == {
        "HC": "61.3",
        "HI": "99.7",
        "HM": "97.6",
        "MM": "74.2",
        "mean": "83.2",
    }
