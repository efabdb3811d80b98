"""The rule that says when reward and truth part: on planted cases, and by simulation; repetition and variety."""

from __future__ import annotations

import numpy as np
import pytest

from reward.errors import DataError
from reward.metaeval.audit.diversity import distinct, repetition, share_a_sentence
from reward.metaeval.audit.parting import check_parting, check_rise


def measures(reward, truth, *, images=50, noise=0.05, seed=0):
    """Both measures of each image at each check, around these means."""
    draws = np.random.default_rng(seed).normal(0, noise, (2, len(reward), images))
    return np.array(reward)[:, None] + draws[0], np.array(truth)[:, None] + draws[1]


RISING, FALLING = [0.1, 0.2, 0.3, 0.4, 0.5], [0.7, 0.8, 0.8, 0.7, 0.6]


def test_reward_up_and_truth_down_have_parted():
    verdict = check_parting(*measures(RISING, FALLING))
    assert verdict.parted
    assert verdict.best in (1, 2)
    assert verdict.fall == pytest.approx(0.2, abs=0.03)
    assert verdict.fall_z > 10
    assert verdict.rise > 0.15
    assert check_parting(*measures(RISING, [0.7, 0.8, 0.8, 0.8, 0.74])).parted  # one check alone, by more than 4.5


@pytest.mark.parametrize(
    ("reward", "truth"),
    [
        (RISING, RISING),
        (RISING, [0.5] * 5),
        ([0.5] * 5, [0.5] * 5),
        (RISING, [0.7, 0.8, 0.8, 0.8, 0.77]),  # one check alone, by 4.1 standard errors
        (RISING, [0.7, 0.8, 0.6, 0.8, 0.8]),  # it came back
        (RISING[:1], FALLING[:1]),
    ],
)
def test_other_runs_have_not(reward, truth):
    verdict = check_parting(*measures(reward, truth))
    assert (verdict.parted, verdict.fallen) == (False, False)


def test_measures_that_fall_together_have_fallen_and_not_parted():
    verdict = check_parting(*measures(FALLING, FALLING))
    assert (verdict.parted, verdict.fallen) == (False, True)
    assert check_parting(*measures(RISING, FALLING)).fallen


def test_few_images_or_missing_values_are_never_parted():
    rewards, truths = measures(RISING, FALLING, images=9)
    assert not check_parting(rewards, truths).parted
    rewards, truths = measures(RISING, FALLING, images=30)
    rewards[:, ::2] = np.nan
    assert check_parting(rewards, truths).parted  # 15 images are left
    truths[:, 1:15:2] = np.nan
    assert not check_parting(rewards, truths).parted
    assert not check_parting(np.full((3, 20), np.nan), np.full((3, 20), np.nan)).parted
    with pytest.raises(DataError, match="shape"):
        check_parting(rewards, truths[:, 1:])


@pytest.mark.parametrize("scored", [3, 20])
def test_a_check_at_which_only_easy_images_had_a_score_is_compared_on_those(scored):
    """Its mean is the highest of all, and with three images the rule could never have spoken again."""
    rewards, truths = measures(RISING, FALLING)
    truths[:, :20] += 0.5
    truths[0, scored:] = np.nan
    verdict = check_parting(rewards, truths)
    assert verdict.parted
    assert verdict.best in (1, 2)
    assert verdict.images == 50
    assert verdict.fall == pytest.approx(0.2, abs=0.03)
    truths[1:4] = np.nan  # only the first is left to compare with
    verdict = check_parting(rewards, truths)
    assert (verdict.best, verdict.images) == ((4, 50) if scored == 3 else (0, 20))


def test_the_scales_do_not_matter():
    rewards, truths = measures(RISING, FALLING, noise=0.3)
    first, second = check_parting(rewards, truths), check_parting(100 * rewards - 7, 0.01 * truths)
    assert (first.parted, first.best) == (second.parted, second.best)
    assert first.fall_z == pytest.approx(second.fall_z)


def share_called_parted(truth, images, correlation):
    """Of 100 runs of 20 checks whose reward rises; the noise of an image goes on from check to check."""
    random, parted = np.random.default_rng(0), 0
    for _ in range(100):
        noise = random.standard_normal((2, len(truth), images))
        for check in range(1, len(truth)):
            noise[:, check] = correlation * noise[:, check - 1] + np.sqrt(1 - correlation**2) * noise[:, check]
        rewards, truths = np.array([LEARNING, truth])[:, :, None] + 0.15 / np.sqrt(2) * noise
        parted += any(check_parting(rewards[:end], truths[:end]).parted for end in range(2, len(truth) + 1))
    return parted / 100


STEPS = np.arange(21)
LEARNING = 0.2 * (1 - np.exp(-STEPS / 3)) + 0.01 * STEPS


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_simulated_runs_give_few_false_alarms_and_find_large_falls(correlation):
    rise, fall = LEARNING[STEPS.clip(max=8)], np.clip((STEPS - 8) / 6, 0, 1)
    assert share_called_parted(0 * STEPS, 50, correlation) <= 0.09  # 5 %, and what 100 runs leave uncertain
    assert share_called_parted(rise - 0.1 * fall, 50, correlation) >= 0.9
    assert share_called_parted(rise - 0.05 * fall, 200, correlation) >= 0.85


def test_a_share_that_rises_far_beyond_the_start():
    draws = np.random.default_rng(0).random((4, 40))
    assert check_rise(draws < np.array([[0.1], [0.1], [0.6], [0.6]]), least=0.2)
    assert not check_rise(draws < np.array([[0.1], [0.6], [0.1], [0.6]]), least=0.2)
    assert not check_rise(draws < 0.5, least=0.2)
    assert not check_rise(draws[:, :5] < np.array([[0.0], [1.0], [1.0], [1.0]]), least=0.2)


def test_repetition_does_not_grow_with_the_length_of_ordinary_text():
    draws = np.random.default_rng(0).zipf(1.3, 900).clip(max=400)
    ordinary = [f"word{number}" for number in draws]
    short, long = repetition(" ".join(ordinary[:100])), repetition(" ".join(ordinary))
    assert long == pytest.approx(short, abs=0.06)
    assert repetition(" ".join(ordinary), window=900) > long + 0.05  # as it would be without windows
    assert repetition("the heart is above " * 30) > 0.85
    assert repetition("") == repetition("A star.") == 0


def test_distinct_falls_when_all_captions_are_alike():
    varied = [f"one thing{number} lies beside another{number}" for number in range(50)]
    assert distinct(varied) > 0.7 > 0.2 > distinct(varied[:1] * 50)
    assert distinct(varied[:40]) == pytest.approx(distinct(varied[:20]), abs=0.05)
    assert distinct([]) == 0


def test_captions_that_share_a_sentence():
    captions = ["It is night. A red star.", "Dr. Who waves. it is NIGHT.", "夜です。星。", "", "It is night"]
    assert share_a_sentence(captions) == [True, True, False, False, True]
    assert share_a_sentence(["It is night. It is night.", "A star.", "A star."]) == [False, True, True]
    assert share_a_sentence(["A star"] * 3) == [True] * 3
    assert share_a_sentence(["", " ", "?", "?"]) == [False] * 4
    assert share_a_sentence([]) == []
