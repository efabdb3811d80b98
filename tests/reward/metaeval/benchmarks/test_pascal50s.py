"""Pascal-50S: five references of many, drawn by a seed, and the scores that FLEUR's authors published beside it."""

import numpy as np
import pytest

from reward.errors import DataError
from reward.metaeval import evaluate, load_benchmark
from reward.metaeval.benchmarks.score_files import add_scores
from tests.reward.metaeval.benchmarks.published_layouts import scores_of_fleur, write_layout


@pytest.fixture
def pascal(tmp_path):
    return load_benchmark("pascal-50s", write_layout(tmp_path / "pascal", "pascal-50s"))


def test_references_are_drawn_for_each_pair_and_draw_and_are_the_same_again(pascal, tmp_path):
    drawn = [[each.references for each in pascal.samples(draw=draw) if each] for draw in range(1, 6)]
    assert {len(set(references)) for draw in drawn for references in draw} == {5}
    assert len({tuple(draw) for draw in drawn}) == 5
    again = load_benchmark("pascal-50s", tmp_path / "pascal", reference_draws=1)
    assert drawn[0] == [each.references for each in again.samples() if each]
    whole = load_benchmark("pascal-50s", tmp_path / "pascal", reference_draws=0)
    assert {len(each.references) for each in whole.samples() if each} == {8}


def test_figures_are_means_over_the_draws(pascal):
    scores = np.random.default_rng(0).normal(size=(4, 2, 5))
    scores[..., 1] = scores[:, ::-1, 0]  # a draw that decides otherwise
    several = evaluate(pascal, scores, resamples=20)
    single = [evaluate(pascal, scores[..., draw], resamples=20) for draw in range(5)]
    for name, values in several.replicates.items():
        assert values == pytest.approx(np.mean([each.replicates[name] for each in single], axis=0), nan_ok=True)
    for kind, value in several.details["overall"].items():
        assert value == pytest.approx(np.mean([each.details["overall"][kind] for each in single]))


def test_published_scores_come_from_text_files_and_bring_their_labels(pascal, tmp_path):
    (tmp_path / "HC.txt").write_text(scores_of_fleur(0, 0.1, 0.9, label=1) + "\ntrue count : 1\n")
    pairs = [scores_of_fleur(1, 0.1, 0.9, label=1), scores_of_fleur(2, 0.9), scores_of_fleur(3, 0.9, 0.8, label=1)]
    (tmp_path / "MM.txt").write_text("\n".join(["Pascal", *pairs, scores_of_fleur(9, 0.1, 0.9)]))
    with pytest.warns(UserWarning, match="1 of 4 labels differ in the files of 'our score', and are taken from there"):
        found = add_scores(pascal, "our score", [tmp_path / "HC.txt", tmp_path / "MM.txt"])
    nothing = [np.nan] * 2  # one of the two captions has no score
    np.testing.assert_array_equal(found.columns["our score"], [[0.1, 0.9], [0.1, 0.9], nothing, [0.9, 0.8]])
    assert (pascal.rows["label"].tolist(), found.rows["label"].tolist()) == ([0, 1, 0, 1], [1, 1, 0, 1])
    assert add_scores(load_benchmark("scenes", limit=2), "our score", [tmp_path / "HC.txt"]).columns == {}
    for name, text, message in (("other", "1.0", "no line 'other : NUMBER'"), ("our score", "x", "holds no number")):
        (tmp_path / "bad.txt").write_text(scores_of_fleur(0, 1.0).replace("1.0", text))
        with pytest.raises(DataError, match=message):
            add_scores(pascal, name, [tmp_path / "bad.txt"])


def test_the_scores_of_fleurs_authors_give_the_accuracies_of_their_table_1(shared_folder):
    authors = shared_folder / "data" / "FLEUR"
    if not authors.is_dir():
        pytest.skip(f"no copy of github.com/Yebin46/FLEUR is at {authors}")
    data = load_benchmark("pascal-50s", authors / "annotations")
    with pytest.warns(UserWarning, match="35 of 4000 labels differ"):
        given = add_scores(data, "our score", sorted(authors.glob("results/fleur_pascal_*.txt")))
    found = evaluate(given, given.columns["our score"], resamples=5).estimates
    shown = {name: f"{100 * found[name].value:.1f}" for name in ("HC", "HI", "HM", "MM", "mean")}
    assert shown == {"HC": "61.3", "HI": "99.7", "HM": "97.6", "MM": "74.2", "mean": "83.2"}
