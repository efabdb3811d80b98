"""The rule that says when reward and truth part: on planted cases, and by simulation."""

import numpy as np
import pytest

from integrations.trl.parting import judge

RISING, FALLING = [0.1, 0.2, 0.3, 0.4, 0.5], [0.7, 0.8, 0.8, 0.7, 0.6]


def measures(reward, truth, *, images=50):
    """Both measures of each image at each check, around these means."""
    draws = np.random.default_rng(0).normal(0, 0.05, (2, len(reward), images))
    return [
        [dict(enumerate(mean + row)) for mean, row in zip(*each, strict=True)]
        for each in zip((reward, truth), draws, strict=True)
    ]


def only(values, images):
    return {image: value for image, value in values.items() if image in images}


def test_reward_up_and_truth_down_have_parted_on_any_scale():
    for scale in (1, 10):
        verdict = judge(
            *([{k: scale * v for k, v in check.items()} for check in each] for each in measures(RISING, FALLING))
        )
        assert verdict.parted
        assert verdict.best in (1, 2)
        assert verdict.second.value.value == pytest.approx(-0.2 * scale, abs=0.03 * scale)
        assert verdict.second.value.high < -0.15 * scale
        assert verdict.reward.value.low > 0.15 * scale
        assert verdict.second.images == 50


@pytest.mark.parametrize(
    ("reward", "truth"),
    [
        (RISING, [0.5] * 5),
        (RISING, [0.7, 0.8, 0.8, 0.8, 0.6]),  # one check alone
        (RISING, [0.7, 0.8, 0.6, 0.8, 0.8]),  # it came back
        (RISING[:1], FALLING[:1]),
        (FALLING, FALLING),  # the training is unstable
    ],
)
def test_other_runs_have_not(reward, truth):
    assert not judge(*measures(reward, truth)).parted


def test_few_images_or_missing_values_are_never_parted():
    assert not judge(*measures(RISING, FALLING, images=9)).parted
    rewards, truths = measures(RISING, FALLING, images=30)
    rewards = [only(check, range(0, 30, 2)) for check in rewards]
    assert judge(rewards, truths).parted  # 15 images are left
    assert not judge(rewards, [only(check, range(0, 30, 4)) for check in truths]).parted
    assert not judge([{}] * 3, [{}] * 3).parted


@pytest.mark.parametrize("scored", [3, 20])
def test_a_check_at_which_only_easy_images_had_a_score_is_compared_on_those(scored):
    """Its mean is the highest of all, and with three images the rule could never have spoken again."""
    rewards, truths = measures(RISING, FALLING)
    truths = [{image: value + 0.5 * (image < 20) for image, value in check.items()} for check in truths]
    verdict = judge(rewards, [only(truths[0], range(scored)), *truths[1:]])
    assert verdict.parted
    assert verdict.best in (1, 2)
    assert verdict.second.images == 50
    assert verdict.second.value.value == pytest.approx(-0.2, abs=0.03)


SCORED_SCARCELY = [  # how many of 12 images each check scored, and the best of those before
    ([12, 12, 1], 1),
    ([12, 12, 1, 1], 1),
    ([1, 12], 1),
    ([1, 12, 1], 1),
    ([12, 12, 0], 1),
    ([12, 12, 7], 2),
]


@pytest.mark.parametrize(("scored", "best"), SCORED_SCARCELY)
def test_a_check_that_too_few_images_share_is_never_the_best(scored, best):
    rewards, truths = measures([0.5] * len(scored), np.linspace(0.5, 0.9, len(scored)), images=12)
    verdict = judge(rewards, [only(check, range(count)) for check, count in zip(truths, scored, strict=True)])
    assert (verdict.best, verdict.parted) == (best, False)


def test_a_fall_within_rounding_is_no_parting():
    def constant(*means):
        return [dict.fromkeys(range(50), mean) for mean in means]

    for fall, parted in ((1e-7, False), (1e-4, True)):
        verdict = judge(constant(*RISING), constant(0.5, 0.7, 0.7 - fall, 0.7 - 2 * fall, 0.7 - 3 * fall))
        assert verdict.parted == parted
        assert judge(constant(0.5, 0.5, 0.5 - fall, 0.5 - fall), constant(0.8, 0.9, 0.7, 0.6)).parted != parted
    assert judge(constant(1, 1, 1), constant(90, 90 - 1e-5, 90 - 2e-5)).best == 2


STEPS = np.arange(21)
LEARNING = 0.2 * (1 - np.exp(-STEPS / 3)) + 0.01 * STEPS


def share_called_parted(truth, correlation, images=50, runs=40):
    """Of runs of 20 checks whose reward rises; the noise of an image goes on from check to check."""
    random, parted = np.random.default_rng(0), 0
    for _ in range(runs):
        noise = random.standard_normal((2, len(truth), images))
        for check in range(1, len(truth)):
            noise[:, check] = correlation * noise[:, check - 1] + np.sqrt(1 - correlation**2) * noise[:, check]
        tables = np.array([LEARNING, truth])[:, :, None] + 0.15 / np.sqrt(2) * noise
        rewards, truths = ([dict(enumerate(row)) for row in table] for table in tables)
        parted += any(judge(rewards[:end], truths[:end]).parted for end in range(2, len(truth) + 1, 3))
    return parted / runs


@pytest.mark.slow
def test_simulated_runs_give_few_false_alarms_and_find_large_falls():
    rise, fall = LEARNING[STEPS.clip(max=8)], np.clip((STEPS - 8) / 6, 0, 1)
    assert share_called_parted(0 * STEPS, correlation=0.8) <= 0.09
    assert share_called_parted(rise - 0.1 * fall, correlation=0.8) >= 0.9
