"""Who votes, and how far votes agree with people's: by level, in the ranking, and the bias for each model."""

import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr

from reward.metaeval.arena import Voter, rate_arena
from reward.metaeval.arena.result import agreement_with_people, battle_table
from reward.metaeval.arena.voters import PositionBias, by_column, by_judge, by_metric, by_people
from reward.registry import MetricSource
from tests.reward.metaeval.arena.made_arenas import draw_arena

ENTRY = {"img": "1.png", "source1": "x", "source2": "y", "caption1": "A dog runs.", "caption2": "A cat."}
FIRST, SECOND = "Caption 1 is better.", "Caption 2 is better."
LENGTH = MetricSource("length")


def battles(*fields):
    return [{**ENTRY, **of_battle} for of_battle in fields]


def test_people_and_judges_have_verdicts_and_a_position_that_they_like():
    people = by_people(battles({"winner": "x"}, {"winner": "x"}, {"winner": "y"}, {"winner": "equal"}, {}))
    # A judge of both orders may like whatever comes first; a text that is no verdict and no answer are errors.
    fields = [{"judge": FIRST}, {"judge": "Tie", "judge_orders": [FIRST, SECOND]}]
    fields += [{"judge": "I like both", "winner": "x"}, {"judge_error": "the server is down"}, {}]
    judge = by_judge(battles(*fields))
    assert people.position == PositionBias(first=2, second=1, ties=1)
    assert judge.position == PositionBias(first=3, both_orders=1, inconsistent=1, reversed=1)
    assert PositionBias(both_orders=4, inconsistent=2, reversed=1).inconsistency == 0.5
    np.testing.assert_array_equal(people.points, [1, 1, 0, 0.5, np.nan])
    np.testing.assert_array_equal(judge.points, [1, 0.5, np.nan, np.nan, np.nan])
    assert (judge.errors, "'judge' must be" in judge.problem) == (2, True)
    assert by_people(battles({}, {"judge": "Tie."})) is None
    assert by_judge(battles({}, {"judge_error": "down"})) is None


def test_scores_in_the_file_give_as_many_ties_as_people_gave():
    """A person's battle and an undecided one have no say in the threshold; the latter still gets a verdict by it."""
    pairs = [[9, 1], [3, 2], [1, 9], [5, 5], [9, None], [2.5, 2], [8, 1]]
    scored = battles(*({"s": pair, "source1": "human" if pair == [5, 5] else "x"} for pair in pairs), {})
    voter = by_column(scored, "s", np.array([1, 0.5, 0, 1, 1, np.nan, 1, 1]))
    np.testing.assert_array_equal(voter.points, [1, 0.5, 0, np.nan, np.nan, 0.5, 1, np.nan])
    assert (voter.threshold, voter.errors) == (1, 3)
    assert by_column(scored, "s", np.full(8, np.nan)).threshold == 0


def test_a_metric_scores_the_captions_and_not_those_by_people(tmp_path):
    scored = battles({}, {"source2": "human"}, {"caption1": " "}, {"caption1": "A cat."})
    voter = by_metric(scored, LENGTH, np.array([1, 1, 1, 0.5]), images=tmp_path)
    np.testing.assert_array_equal(voter.points, [1, np.nan, np.nan, 0.5])
    assert (voter.name, voter.errors, "empty" in voter.problem) == ("length", 1, True)


FACTS = ("img", "source1", "source2", "cluster")
ROWS = ["1 x y 1", "1 x z 1", "2 y z 2", "2 x human 2", "3 z y 2", "4 y x 2"]
SIX = [dict(zip(FACTS, row.split(), strict=True)) for row in ROWS]
PEOPLE = np.array([1, 0.5, 0, 1, 1, np.nan])


def measure(people, points, fought=SIX):
    table = battle_table(fought, [Voter("people", people), Voter("m", points)])
    return agreement_with_people(table, ["m"], resamples=200)["m"]


def test_levels_ties_bias_and_what_is_left_out():
    agreement = measure(PEOPLE, np.array([1, 0, 0, 1, np.nan, 1]))
    levels = {name: interval.value for name, interval in agreement.levels.items()}
    assert levels == pytest.approx({"1": 0.5, "2": 1, "overall": 2 / 3})
    assert agreement.battles == {"1": 2, "2": 1, "overall": 3}  # neither the human's nor the undecided ones
    assert (agreement.without_verdict, agreement.human_ties, agreement.ties) == pytest.approx((1, 1 / 3, 0))
    assert {name: bias.value for name, bias in agreement.bias.items()} == pytest.approx({"x": -0.25, "y": 0, "z": 0.25})
    assert agreement.mean_bias == pytest.approx(1 / 6)


def test_rankings_are_those_of_the_ratings():
    fought, people = draw_arena([1, 0.4, 0, -0.4, -1], 120, images=60, seed=1)
    points = np.random.default_rng(2).choice([0, 0.5, 1], size=120)
    result = rate_arena(fought, [Voter("people", people), Voter("m", points)], resamples=50, seed=5)
    for method, ranking in result.agreement["m"].ranking.items():
        values = [result.ratings[name][method]["rating"].sort_index() for name in ("people", "m")]
        assert ranking["spearman"].value == pytest.approx(spearmanr(*values).statistic)
        assert ranking["kendall"].value == pytest.approx(kendalltau(*values).statistic)
    assert not np.isnan(result.agreement["m"].ranking["bradley-terry"]["kendall"].low)


def test_battles_on_one_image_count_as_one_for_the_interval():
    points = np.repeat(np.random.default_rng(0).random(60) < 0.6, 5).astype(float)  # the same five times on each image
    widths = []
    for images in (np.repeat(np.arange(60), 5), np.arange(300)):
        fought = [{"img": str(image), "source1": "x", "source2": "y"} for image in images]
        interval = measure(np.ones(300), points, fought).levels["overall"]
        widths.append(interval.high - interval.low)
    assert widths[0] == pytest.approx(widths[1] * 5**0.5, rel=0.25)


def test_what_cannot_be_computed_is_said():
    half = Voter("half", np.array([1, np.nan, np.nan, np.nan, np.nan, np.nan]))
    none = Voter("none", np.array([np.nan, np.nan, np.nan, 1, np.nan, 1]))
    result = rate_arena(SIX, [Voter("people", PEOPLE), half, none], resamples=20)
    assert list(result.agreement) == ["half"]
    notes = "\n".join(result.notes)
    assert "no rating by half of z: none of their battles is decided by it" in notes
    assert "rating by half of x, y: no finite maximum of the likelihood" in notes
    apart = [{"img": "1", "source1": one, "source2": two} for one, two in ("xy", "zw", "yz")]
    assert measure(np.ones(3), np.array([1, 1, np.nan]), apart).ranking == {}  # no common one
