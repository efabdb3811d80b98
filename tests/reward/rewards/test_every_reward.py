"""What every reward promises a trainer: numbers, None and the lowest; names, logs, copies, and a loud first call."""

import asyncio
import copy
import inspect
import math
import pickle

import pytest

from reward import (
    AsyncReward,
    CaptionSample,
    CombinedReward,
    FleurReward,
    HarmonicReward,
    LengthReward,
    MetricReward,
    RepetitionReward,
    RetrievalReward,
    TournamentReward,
)
from reward.errors import InvalidSampleError
from reward.judges import Answer, ScriptedJudge
from tests.toys import trainer
from tests.toys.toy_scorer import ToyScorer
from tests.toys.trainer import RED, TrainerLog


def top_mark(question):
    return {"5": 1.0}


def written(question):
    """0.85, where 0.80 was as likely."""
    likely = ({"0": 0.0}, {".": 0.0}, {"8": 0.0}, {"5": math.log(0.5), "0": math.log(0.5)})
    return Answer("0.85", ("0", ".", "8", "5"), likely)


# each with its reward of "red star", and of a caption without a word
SEEING = {
    "metric": (lambda: MetricReward(ToyScorer()), 0.5, 0.0),
    "aspect": (lambda: MetricReward(ToyScorer()).aspect("brev"), 0.5, 0.0),
    "asynchronous": (lambda: AsyncReward(MetricReward(ToyScorer())), 0.5, 0.0),
    "combined": (lambda: CombinedReward([MetricReward("length"), MetricReward(ToyScorer())]), 1.25, 0.0),
    "fleur": (lambda: FleurReward(ScriptedJudge(written)), 0.825, 0.0),
    "fleur, as written": (lambda: FleurReward(ScriptedJudge(written), {"raw": 1}), 0.85, 0.0),
    "harmonic": (lambda: HarmonicReward(ScriptedJudge(distribution=top_mark)), 5.0, 1.0),
    "retrieval": (lambda: RetrievalReward(device="cpu", minimum_images=1), 1.0, 0.0),
    "tournament": (lambda: TournamentReward(ScriptedJudge(distribution=top_mark)), 0.5, 0.0),
}
BLIND = {
    "length band": (lambda: LengthReward(1, 2), 1.0, 0.0),
    "repetition": (lambda: RepetitionReward(), 1.0, 0.0),
}


def call(reward, completions, **columns):
    given = trainer.call(reward, completions, **columns)
    return asyncio.run(given) if inspect.iscoroutine(given) else given


@pytest.mark.parametrize(("make", "best", "lowest"), [*SEEING.values(), *BLIND.values()], ids=[*SEEING, *BLIND])
def test_missing_data_give_none_and_captions_without_a_word_the_lowest(make, best, lowest):
    given = call(make(), ["red star", " ", "...", None])
    assert given == [pytest.approx(best), lowest, lowest, None]
    assert all(type(value) is float for value in given[:3])
    assert call(make(), []) == []
    assert call(make(), ["red star"], prompts=None) == [pytest.approx(best)]
    assert make().rewards([CaptionSample("red star", RED)]) == [pytest.approx(best)]  # as decoding asks


@pytest.mark.parametrize("completions", [["", "."], ["", "red"], ["fail", "it will fail"], ["half \ud83d"] * 2])
def test_what_the_policy_wrote_never_stops_a_training(completions):
    assert len(call(MetricReward(ToyScorer()), completions)) == 2
    assert len(call(CombinedReward([MetricReward(ToyScorer())]), completions)) == 2


@pytest.mark.parametrize("make", [make for make, *_ in SEEING.values()], ids=SEEING)
def test_a_first_call_without_any_image_raises_in_every_process_and_later_ones_give_none(make):
    reward = make()
    call(reward, [])  # no row, no first call
    with pytest.raises(InvalidSampleError, match=r"none of the 2 rows of the first call.*column 'image' holds None"):
        call(reward, ["red", "star"], image=[None, None])
    expected = call(reward, ["red star", "red"])
    assert call(reward, ["red", "star"], image=[None, None]) == [None, None]
    for other in (pickle.loads(pickle.dumps(reward)), copy.deepcopy(reward)):
        assert other.__name__ == reward.__name__
        with pytest.raises(InvalidSampleError, match="first call"):
            call(other, ["red"], image=[None])
        assert call(other, ["red star", "red"]) == expected


@pytest.mark.parametrize("make", [make for make, *_ in SEEING.values()], ids=SEEING)
def test_a_mean_over_processes_weighs_each_row_alike(make):
    log = TrainerLog()
    for completions in (["red", None, None], ["a star"] * 4, []):  # each process makes its own reward
        call(make(), completions, log_metric=log)
    shares = [mean for name, mean in log.means.items() if name.endswith("/unscored")]
    assert shares == [pytest.approx(2 / 7)] * len(shares)
    assert shares
