"""A metric's scores on benchmarks of each form: the columns, their values, intervals, ties and what is left out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.metaeval import average_precision, compare, evaluate, roc_auc
from reward.metaeval.benchmarks import load_benchmark
from tests.reward.metaeval.small_benchmarks import CORRELATIONS, correlation, pairs, quadruples, rated


def values(found):
    return {name: column.value for name, column in found.estimates.items()}


def test_the_published_scores_of_fleur_give_the_published_correlations(shared_folder):
    path = shared_folder / "data" / "flickr8k_expert_fleur.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"the scores that FLEUR's authors published are not at {path}")
    benchmark = load_benchmark("flickr8k-expert", path)
    found = {name: evaluate(benchmark, benchmark.columns[name], resamples=20) for name in ("fleur", "fleur_raw")}
    assert [f"{100 * found[name].estimates['overall'].value:.1f}" for name in found] == ["53.0", "34.9"]
    assert found["fleur"].counts == {"overall": 3 * 5664}
    assert (found["fleur"].scored, found["fleur"].images) == (5664, 1000)
    assert found["fleur"].ties["overall"] < 0.001 < 0.5 < found["fleur_raw"].ties["overall"]
    assert not any(item.captions[0] in item.references for item in benchmark.rows.itertuples())


# Ratings


def test_each_rating_is_a_judgment_or_their_mean_is():
    ratings = [[1, 2, 2], [3, 4, 4], [2, 2, 1], [4, 3], [1, 1, 1]]  # raters may differ in number
    scores = np.array([0.2, 0.7, 0.7, 0.9, 0.1])
    every = np.repeat(scores, [len(given) for given in ratings]), np.concatenate(ratings)
    means = scores, np.array([np.mean(given) for given in ratings])
    for judgments, sides, count in (("single", every, 14), ("mean", means, 5)):
        found = evaluate(rated(ratings, judgments=judgments), scores, resamples=10)
        expected = {name.replace("-", "_"): correlation(name, *sides) for name in CORRELATIONS}
        assert found.details["overall"] == pytest.approx(expected)
        assert found.estimates["overall"].value == pytest.approx(expected["tau_c"])
        assert (found.counts, found.ties, found.headline) == ({"overall": count}, {"overall": 1 / 10}, "overall")


def test_aspects_have_columns_and_a_mean_and_a_metric_may_score_each():
    truth = dict(zip(("rel", "flu"), np.random.default_rng(0).normal(size=(2, 30)), strict=True))
    benchmark = rated([{name: (truth[name][k],) for name in truth} for k in range(30)])
    both = evaluate(benchmark, {name: column[:, None] for name, column in truth.items()}, resamples=20)
    assert values(both) == {"rel": 1, "flu": 1, "mean": 1}
    one = evaluate(benchmark, truth["rel"], resamples=20)
    assert one.headline == "mean"
    assert one.estimates["rel"].value == 1 > one.estimates["flu"].value
    assert one.replicates["mean"] == pytest.approx((one.replicates["rel"] + one.replicates["flu"]) / 2)
    assert set(one.ties) == set(one.counts) == set(one.details) == {"rel", "flu"}


def test_categories_of_rated_captions_are_evaluated_alone_too():
    scores, tasks = np.random.default_rng(0).normal(size=31), ["VQA", "IC"] * 15 + ["REG"]
    ratings = [
        {"clarity": (score,)} | ({"fluency": (-score,)} if task == "IC" else {})
        for score, task in zip(scores, tasks, strict=True)
    ]
    found = evaluate(rated(ratings, categories=tasks), scores, resamples=20)
    assert list(found.by_category) == ["IC", "VQA"]  # one caption has no correlation
    assert list(found.by_category["VQA"].estimates) == ["clarity"]
    alone = evaluate(rated(ratings[1:30:2]), scores[1:30:2], resamples=20)
    assert found.by_category["IC"].estimates == alone.estimates
    assert list(alone.estimates) == ["clarity", "fluency", "mean"]
    assert (found.by_category["IC"].counts, alone.by_category) == ({"clarity": 15, "fluency": 15}, {})
    some = evaluate(rated([[1], [2], [3], [4]], categories=["", "", "IC", "IC"]), np.arange(4), resamples=5)
    assert list(some.by_category) == ["IC"]


def test_what_has_no_score_is_left_out_and_counted():
    rng = np.random.default_rng(0)
    ratings, images = rng.integers(1, 6, (40, 2)).tolist(), [f"{k // 2}" for k in range(40)]
    scores = rng.normal(size=(40, 1))
    some = np.where(np.arange(40)[:, None] < 10, np.nan, scores)
    found = evaluate(rated(ratings, images), some, resamples=30)
    assert (found.scored, found.images, found.counts) == (30, 15, {"overall": 60})
    assert found.estimates == evaluate(rated(ratings[10:], images[10:]), scores[10:], resamples=30).estimates


@settings(max_examples=15, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 4), st.lists(st.integers(1, 3), min_size=1, max_size=3)), min_size=2, max_size=9
    ),
    seed=st.integers(0, 99),
    statistic=st.sampled_from(list(CORRELATIONS)),
)
def test_replicates_are_the_values_of_explicit_resamples_of_images(rows, seed, statistic):
    images = [f"image {k % 4}" for k in range(len(rows))]
    scores, ratings = np.array([score for score, _ in rows]), [given for _, given in rows]
    found = evaluate(rated(ratings, images, statistic), scores, resamples=4, seed=seed)
    kinds = len(set(images))
    draws = np.random.default_rng(seed).multinomial(kinds, np.full(kinds, 1 / kinds), size=4)
    for value, times in zip(found.replicates["overall"][1:], draws, strict=True):
        if kinds == 1:
            assert np.isnan(value)
            continue
        drawn = [k for k in range(len(rows)) for _ in range(times[k % 4])]
        x = [scores[k] for k in drawn for _ in ratings[k]]
        y = [rating for k in drawn for rating in ratings[k]]
        assert value == pytest.approx(correlation(statistic, x, y), abs=1e-9, nan_ok=True)


def test_equal_scores_two_captions_and_one_image_say_little():
    constant = evaluate(rated([[1], [2], [3]]), np.ones(3), resamples=5)
    assert np.isnan([constant.estimates["overall"].value, *constant.details["overall"].values()]).all()
    assert constant.ties["overall"] == 1
    two = evaluate(rated([[1], [2]]), np.array([0.1, 0.2]), resamples=50).estimates["overall"]
    assert vars(two) == {"value": 1, "low": 1, "high": 1}  # a resample of one caption twice has no correlation
    alone = evaluate(rated([[1], [2], [3]], ["one"] * 3), np.arange(3), resamples=5)
    assert (alone.images, alone.estimates["overall"].value) == (1, 1)
    assert np.isnan([alone.estimates["overall"].low, alone.estimates["overall"].high]).all()


# Pairs and quadruples

numbers = st.integers(-3, 3)  # few values, so that there are ties


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(numbers, numbers, st.sampled_from("ab"), st.booleans()), min_size=2, max_size=25))
def test_pairs_have_categories_their_mean_and_all_together_by_their_definitions(rows):
    labels, categories = [int(second) for *_, second in rows], [category for *_, category, _ in rows]
    scores = np.array([pair[:2] if label == 0 else pair[1::-1] for pair, label in zip(rows, labels, strict=True)])
    found = evaluate(pairs(labels, categories), scores, resamples=3)
    names = sorted(set(categories))
    columns = [*names, "mean", "overall"] if len(names) > 1 else names
    assert (list(found.estimates), found.headline) == (columns, "mean" if len(names) > 1 else names[0])
    for name in columns:
        if name == "mean":
            assert found.estimates["mean"].value == pytest.approx(np.mean([values(found)[each] for each in names]))
            continue
        own = [(c, i) for c, i, category, _ in rows if name in (category, "overall")]
        right = [1.0 if c > i else 0.5 if c == i else 0.0 for c, i in own]
        cross = [1.0 if c > i else 0.5 if c == i else 0.0 for c, _ in own for _, i in own]
        captions = np.array(own).ravel(), np.array([1, 0] * len(own))
        assert roc_auc(*captions) == pytest.approx(np.mean(cross))
        expected = {"accuracy": np.mean(right), "auc": np.mean(cross), "ap": average_precision(*captions)}
        assert found.details[name] == pytest.approx(expected)
        assert found.estimates[name].value == pytest.approx(expected["accuracy"])
        assert (found.counts[name], found.ties[name] * len(own)) == (len(own), pytest.approx(right.count(0.5)))


RIGHT, WRONG, UNSCORED = (1.0, 0.0), (0.0, 1.0), (np.nan, np.nan)
TIED = [(0.5, 0.5), RIGHT, (0.2, 0.2), WRONG]
FOURS = [(0.9, 0.2, 0.3, 0.8), (0.9, 0.2, 0.85, 0.87), (0.5, 0.5, 0.1, 0.9), (np.nan,) * 4]


@pytest.mark.parametrize(
    ("benchmark", "scores", "columns", "headline", "scored", "rule"),
    [
        (pairs([0, 0, 1, 0], ties="half"), TIED, {"overall": 0.5}, "overall", 4, "count half"),
        (pairs([0, 0, 1, 0], ties="wrong"), TIED, {"overall": 0.25}, "overall", 4, "are wrong"),
        (pairs([0, None, 1, 1], ["foil"] * 4), [RIGHT, RIGHT, RIGHT, UNSCORED], {"foil": 0.5}, "foil", 2, ""),
        # Pairs without a category are in "overall" alone, also where these have no score.
        (
            pairs([0] * 6, [*"aabb", "", ""]),
            [RIGHT] * 5 + [WRONG],
            {"a": 1, "b": 1, "mean": 1, "overall": 5 / 6},
            "mean",
            6,
            "",
        ),
        (pairs([0] * 4, [*"aa", "", ""]), [RIGHT] * 2 + [UNSCORED] * 2, {"a": 1, "overall": 1}, "overall", 2, ""),
        (pairs([0] * 2, [*"ab"], headline="overall"), [RIGHT, WRONG], None, "overall", 2, ""),
        (quadruples(4), FOURS, {"text": 2 / 3, "image": 1, "group": 2 / 3}, "group", 3, "strict"),
    ],
)
def test_columns_headline_and_ties_are_those_of_the_benchmark(benchmark, scores, columns, headline, scored, rule):
    found = evaluate(benchmark, np.array(scores), resamples=5)
    assert columns is None or values(found) == pytest.approx(columns)
    assert (found.headline, found.scored, rule in found.tie_rule) == (headline, scored, True)
    if headline == "group":
        assert found.ties == pytest.approx({"text": 1 / 3, "image": 0, "group": 1 / 3})


@pytest.mark.parametrize(
    ("benchmark", "scores", "message"),
    [
        (rated([[1], [2]]), np.ones((2, 2)), r"shape \(2, 1\): a row per item.*got \(2, 2\)"),
        (rated([{"a": (1,), "b": (2,)}] * 2), {"a": np.ones(2)}, "scores lack the aspect 'b'; they have: a"),
        (rated([[1], [2]]), np.array([1, np.inf]), "hold 1 infinite numbers; use NaN for no score"),
        (rated([[1], [2]]), np.array([1, np.nan]), "1 captions of Made have a score and a rating of 'overall'"),
        (rated([{"mean": (1,), "b": (2,)}] * 2), np.ones(2), "no aspect may be named 'mean'"),
        (pairs([0, 1], ["mean", "b"]), np.ones((2, 2)), "no category may be named 'mean'"),
        (pairs([0, 1], ["a", "b"]), np.array([[1, 0], [1, np.nan]]), "no pair of the category 'b' of Made has both"),
        (quadruples(2), np.full((2, 4), np.nan), "no quadruple of Made has all four scores"),
    ],
)
def test_scores_that_do_not_fit_are_refused(benchmark, scores, message):
    with pytest.raises(ValueError, match=message):
        evaluate(benchmark, scores)


# Two metrics


def test_differences_are_those_of_the_same_resamples():
    rng = np.random.default_rng(0)
    ratings = rng.normal(size=(30, 2))
    benchmark = rated([{"a": (a,), "b": (b,)} for a, b in ratings], [str(k // 2) for k in range(30)])
    given = [
        {name: (ratings + noise * rng.normal(size=(30, 2)))[:, [k]] for k, name in enumerate("ab")} for noise in (1, 3)
    ]
    found = compare(benchmark, *given, resamples=80)
    first, second = (evaluate(benchmark, scores, resamples=80) for scores in given)
    for name in ("a", "b", "mean"):
        difference = first.replicates[name] - second.replicates[name]
        assert found.differences[name].value == pytest.approx(difference[0])
        assert found.differences[name].low == pytest.approx(np.quantile(difference[1:], 0.025))
        assert found.p_values[name] == pytest.approx(2 * (1 + (difference[1:] <= 0).sum()) / 81)
    assert found.headline == "mean"


def test_a_metric_does_not_differ_from_itself_and_one_image_says_nothing():
    scores, ratings = np.arange(9.0), [[n % 4] for n in range(9)]
    assert compare(rated(ratings), scores, np.exp(scores), resamples=20).p_values["overall"] == 1
    assert np.isnan(compare(rated(ratings, ["one"] * 9), scores, -scores, resamples=9).p_values["overall"])


def test_of_two_metrics_items_count_that_both_have_scored():
    rng = np.random.default_rng(0)
    ratings, place = rng.integers(1, 5, (40, 1)).tolist(), np.arange(40)
    first, second = rng.normal(size=(2, 40))
    some = np.where(place < 5, np.nan, first), np.where(place > 30, np.nan, second)
    found = compare(rated(ratings), *some, resamples=20)
    alone = compare(rated(ratings[5:31]), first[5:31], second[5:31], resamples=20)
    assert found.scored == 26
    assert (found.differences, found.p_values) == (alone.differences, alone.p_values)
