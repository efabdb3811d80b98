"""RetrievalReward: captions that tell images apart, those that are all alike, too few images, and several processes."""

import json
import pickle

import numpy as np
import pytest
import torch
from accelerate import PartialState

from reward import RetrievalReward, load_scorer
from reward.errors import ConfigError, InvalidSampleError
from reward.scenes import make_dataset
from tests.toys.toy_clips import toy_clip
from tests.toys.trainer import TrainerLog, call
from tests.toys.two_processes import run_in_two


@pytest.fixture(scope="module")
def drawings():
    rows = make_dataset(6, 5)
    return list(rows["image"]), [references[0] for references in rows["refs"]]


@pytest.fixture(scope="module")
def reward():
    return RetrievalReward(device="cpu").load()


def test_captions_that_are_all_alike_get_the_lowest_and_those_of_one_image_are_compared_with_all(reward, drawings):
    images, captions = drawings
    own = call(reward, captions, image=images)
    vague = call(reward, [f"There is a {caption.split()[-1]}" for caption in captions], image=images)
    assert np.mean(own) > 0.9 > np.mean(vague)
    for caption in (captions[0], "An image."):
        assert np.mean(call(reward, [caption] * 6, image=images)) == pytest.approx(1 / 6)
    # Groups as GRPO has them: each image is a copy, and counts once.
    twice = call(reward, captions * 2, image=images + [image.copy() for image in images])
    assert twice == pytest.approx(own * 2)


def test_it_is_the_softmax_of_the_metrics_cosines_over_its_temperature(drawings):
    images, captions = drawings
    scorer = load_scorer("clipscore", device="cpu")
    towers = scorer.model
    ids, _ = towers.tokenize(["A photo depicts " + caption for caption in captions])
    with torch.inference_mode():
        pictures = towers.encode_image(torch.stack([towers.preprocess(image) for image in images]))
        texts = towers.encode_text(ids)
    cosines = torch.nn.functional.cosine_similarity(texts[:, None], pictures[None], dim=-1).numpy()
    # The temperature is the CLIP's own, in which it was trained.
    powers = np.exp(cosines * scorer.model.clip.logit_scale.exp().item())
    expected = powers.diagonal() / powers.sum(axis=1)
    assert call(RetrievalReward(scorer), captions, image=images) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("metric", "kind"), [("clipscore", "clip of 248 tokens"), ("siglipscore", "siglip")])
def test_any_clip_will_do_and_names_the_reward(metric, kind, drawings, tmp_path):
    images, captions = drawings
    reward = RetrievalReward(metric, toy_clip(tmp_path / "small", kind), device="cpu")
    assert reward.__name__ == "retrieval_small"
    log, columns = TrainerLog(), {}
    rewards = call(reward, [*captions[:-1], "a " * 300], image=images, log_metric=log, log_extra=columns.__setitem__)
    assert columns["retrieval_small/own_image"] == rewards
    assert (reward.range, min(rewards) > 0) == ((0.0, 1.0), True)
    assert log.means["retrieval_small/truncated"] >= 1 / 6
    assert call(pickle.loads(pickle.dumps(reward)), captions[:4], image=images[:4]) == pytest.approx(
        call(reward, captions[:4], image=images[:4])
    )


def test_too_few_images_stop_the_first_call_and_give_none_later(drawings):
    images, captions = drawings
    reward = RetrievalReward(device="cpu")
    rows = {"image": [images[0]] * 4 + images[1:3]}
    message = "the step has 2 different images, and minimum_images is 4: raise per_device_train_batch_size"
    with pytest.raises(InvalidSampleError, match=message):
        call(reward, [*captions[:5], "..."], image=[*rows["image"][:5], images[2]])
    assert None not in call(reward, captions, image=images)
    assert call(reward, [*captions[:5], "..."], **rows) == [None] * 5 + [0.0]
    assert call(RetrievalReward(device="cpu", minimum_images=3), captions, **rows)[0] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metric": "vela"}, "takes one of clipscore, longclipscore, siglipscore, pacscore, got 'vela'"),
        ({"metric": "refclipscore"}, "got 'refclipscore'"),
        ({"minimum_images": 0}, "minimum_images >= 1"),
    ],
)
def test_what_cannot_tell_images_apart_is_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        RetrievalReward(**arguments)


def rate_as_one_of_two(folder):
    rank = PartialState(cpu=True).process_index
    rows = make_dataset(6, 5)
    images, captions = list(rows["image"]), [references[0] for references in rows["refs"]]
    first = slice(0, 2) if rank == 0 else slice(2, 6)
    reward = RetrievalReward(device="cpu", minimum_images=2)
    rewards = [call(reward, captions[first], image=images[first])]
    written = captions[first] if rank == 0 else ["..."] * 4
    rewards.append(call(reward, written, image=images[first]))
    (folder / f"{rank}.json").write_text(json.dumps(rewards))


def test_two_processes_compare_with_the_images_of_both_and_one_without_a_word_keeps_nobody_waiting(
    reward, drawings, tmp_path
):
    images, captions = drawings
    run_in_two(rate_as_one_of_two, tmp_path)
    first, first_again = json.loads((tmp_path / "0.json").read_text())
    second, second_again = json.loads((tmp_path / "1.json").read_text())
    assert first + second == pytest.approx(call(reward, captions, image=images))
    assert second_again == [0.0] * 4
    alone = RetrievalReward(device="cpu", minimum_images=2)
    assert first_again == pytest.approx(call(alone, captions[:2], image=images[:2]))
