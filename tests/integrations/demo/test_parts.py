"""The parts of the demo one by one: the oracle's verdicts, agreement, choosing, GRPO, captions."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from integrations.demo import choosing
from integrations.demo.agreement import CEILING, caption_samples, measure_agreement, rate_by_clip
from integrations.demo.captioner import load_captioner, write_captions
from integrations.demo.choosing import choose_best, measure_choice
from integrations.demo.grpo import train_with_grpo
from integrations.demo.quality import CLAIMS, MEASURES, compare_systems, judge_captions, mean_quality
from reward import MetricReward, ScoreTable, load_scorer
from reward.errors import CheckpointError
from reward.metaeval import bootstrap_weights, kendall_tau
from reward.metrics.vela import SPEC
from reward.scenes import Action, Oracle, Sign, describe, drop_facts, make_dataset, render, sample_scene

SCENES = [sample_scene(random.Random(f"demo parts {index}")) for index in range(12)]
IMAGES = [render(scene) for scene in SCENES]


@pytest.fixture(scope="module")
def captioner(captioner_folder):
    return load_captioner(captioner_folder)


class TruthScorer:
    """Gives what the raters would say without noise, shrunk to [0, 1]."""

    spec = SPEC

    def __init__(self, rows):
        self.truth = {row["cand"]: json.loads(row["truth"]) for row in rows}

    def score(self, samples, *, batch_size=None, progress=False):
        rows = [[(self.truth[s.candidate][name] - 1) / 4 for name in ("desc", "rel", "flu")] for s in samples]
        return ScoreTable(np.array(rows), self.spec.aspects)


class OracleReward:
    """Chooses by the truth."""

    def rewards(self, samples):
        truth = {render(scene).tobytes(): scene for scene in SCENES}
        return [Oracle().score(s.candidate, truth[s.image.tobytes()]).f1 for s in samples]


def captions_of_quality(keep, seed):
    rng = random.Random(seed)
    return [describe(scene, rng, facts=drop_facts(scene, keep, rng)).text for scene in SCENES]


def test_quality_is_the_oracles_verdict_averaged_within_a_scene_and_compared_scene_by_scene():
    texts = {"full": captions_of_quality(1.0, 0), "poor": captions_of_quality(0.3, 0)}
    found = {name: judge_captions(captions, SCENES) for name, captions in texts.items()}
    assert set(found["full"]) == {*MEASURES, *CLAIMS}
    assert all(not found["full"][name].any() for name in CLAIMS)
    assert found["poor"]["missed_actions"].sum() > 0
    wrong = replace(SCENES[0], action=Action(SCENES[0].entities[0].noun, "push", SCENES[0].entities[1].noun), sign=None)
    told = describe(wrong, random.Random(0)).text
    signed = replace(wrong, action=None, sign=Sign("STOP", 4))
    counts = {name: int(count[0]) for name, count in judge_captions([told], [signed]).items() if name in CLAIMS}
    assert counts == {"false_actions": 1, "missed_actions": 0, "false_signs": 0, "missed_signs": 2}
    assert found["full"]["f1"] == pytest.approx(np.ones(12))
    assert found["full"]["words"][0] == len(texts["full"][0].split())
    both = mean_quality(list(zip(*texts.values(), strict=True)), SCENES)
    assert both["recall"] == pytest.approx((found["full"]["recall"] + found["poor"]["recall"]) / 2)
    means, differences = compare_systems(found, [("full", "poor")], bootstrap_weights(12))
    gap = differences["full - poor"]["f1"]
    assert gap.value == pytest.approx(means["full"]["f1"].value - means["poor"]["f1"].value)
    assert gap.low > 0


def test_agreement_knows_the_truth_from_the_baselines():
    rows = make_dataset(60, 5)
    found = measure_agreement({"VELA": TruthScorer(rows)}, samples=60, seed=5, resamples=200)
    for mode in ("VELA, with references", "VELA, without references"):
        assert found.agreement[mode] == found.agreement[CEILING]
        assert found.differences[mode]["length"]["mean"].low > 0
        assert found.differences_from_rater[mode]["mean"].value > 0
    words = np.array([len(caption.split()) for caption in rows["cand"]])
    assert found.agreement["length"]["rel"].value == pytest.approx(kendall_tau(words, np.array(rows["rel"])))
    assert "CLIP score" not in found.agreement
    assert set(found.against_two) == {"single rater", "VELA, with references", "VELA, without references"}


def test_a_metric_with_one_score_gives_it_for_every_aspect_and_sees_no_references():
    class Words:
        def score(self, samples, *, batch_size=None, progress=False):
            assert not any(sample.references for sample in samples)
            return ScoreTable(np.array([[len(s.candidate.split())] for s in samples], dtype=float), ("overall",))

    found = measure_agreement({"VELA": TruthScorer(make_dataset(30, 5))}, {"words": Words()}, samples=30, seed=5)
    assert found.agreement["words"] == found.agreement["length"]
    assert found.differences["words"]["length"]["mean"].value == 0
    assert found.differences["words"]["VELA, with references"]["rel"].high < 0
    assert "words" in found.against_two
    assert "words" in found.differences_from_rater


def test_clip_score_is_the_cosine_of_the_image_branch(scene_vela_folder):
    scorer = load_scorer("vela", scene_vela_folder, device="cpu")
    samples = caption_samples(make_dataset(40, 5))
    found = rate_by_clip(scorer, samples)  # more than one batch
    branch = scorer.model.image
    for index in (0, 39):
        sample = samples[index]
        with torch.inference_mode():
            image = branch.encode_image(branch.towers.preprocess(sample.image)[None])
            text = branch.encode_candidate(branch.towers.tokenize([sample.candidate])[0])
        assert found[index] == pytest.approx(float(torch.cosine_similarity(image, text)), abs=1e-5)
    scorer.model.image = None
    with pytest.raises(ValueError, match="no image branch"):
        rate_by_clip(scorer, samples)


def test_captions_do_not_depend_on_the_batch_and_repeat_with_the_seed(captioner):
    together = write_captions(*captioner, IMAGES[:3], max_new_tokens=8)
    assert together == [write_captions(*captioner, [image], max_new_tokens=8)[0] for image in IMAGES[:3]]
    first, again, other = (
        write_captions(*captioner, IMAGES[:2], samples=3, temperature=1.0, seed=seed, max_new_tokens=8)
        for seed in (1, 1, 2)
    )
    assert [len(group) for group in first] == [3, 3]
    assert first == again
    assert first != other
    with pytest.raises(ValueError, match="one caption per image, not 2"):
        write_captions(*captioner, IMAGES[:1], samples=2)


def test_the_longest_candidate_wins_when_length_is_the_reward(captioner):
    chosen, candidates, rewards = choose_best(
        *captioner, IMAGES[:3], None, MetricReward("length"), n=6, max_new_tokens=8
    )
    for caption, group, values in zip(chosen, candidates, rewards, strict=True):
        longest = max(len(text.split()) for text in group)
        assert (len(group), len(caption.split()), max(filter(None, values))) == (6, longest, longest)


def test_the_gap_to_the_oracle_is_closed_by_the_oracle_and_not_by_chance(captioner, monkeypatch):
    candidates = [list(group) for group in zip(*(captions_of_quality(0.6, seed) for seed in range(8)), strict=True)]

    def fixed(model, processor, images, references, reward, *, n, seed, max_new_tokens):
        from reward.decoding.selection import rank, rate_candidates

        rewards = rate_candidates(candidates, images, [()] * len(images), reward)
        return [group[rank(own)[0]] for group, own in zip(candidates, rewards, strict=True)], candidates, rewards

    monkeypatch.setattr(choosing, "choose_best", fixed)
    greedy = captions_of_quality(0.3, 0)

    rewards = {"length": MetricReward("length"), "truth": OracleReward()}
    found = measure_choice(*captioner, IMAGES, None, SCENES, rewards, n=8, greedy=greedy, resamples=200)
    assert found.gap_closed["truth"] == pytest.approx(1)
    assert 0 < found.gap_closed["length"] < 1
    assert found.differences["best of 8 by truth - greedy"]["f1"].low > 0
    assert found.differences["best of 8 by the oracle - best of 8 by truth"]["f1"].value == 0
    assert found.differences["best of 8 by length - best of 8 by truth"]["f1"].high < 0
    assert found.captions["best of 8 by truth"] == found.captions["best of 8 by the oracle"]
    mean = np.mean([judge_captions(g, [s] * 8)["f1"] for g, s in zip(candidates, SCENES, strict=True)])
    assert found.means["one sample"]["f1"].value == pytest.approx(mean)


def test_grpo_trains_all_but_the_image_tower_and_resumes(captioner_folder, tmp_path):
    """A training that was stopped ends with the rewards and weights of one that was not."""
    before, processor = load_captioner(captioner_folder)
    rows = make_dataset(3, 6)
    options = {"prompts": 1, "generations": 4, "max_new_tokens": 8, "learning_rate": 1e-2, "save_steps": 1, "steps": 3}

    def trained(folder, on_log, **changed):
        model, _ = load_captioner(captioner_folder)
        reward = MetricReward("length")
        resumed = train_with_grpo(model, processor, reward, rows, folder, on_log=on_log, **(options | changed))
        return model, resumed

    curve: list[dict[str, float]] = []
    whole, resumed = trained(tmp_path / "whole", curve.append)
    assert resumed == 0
    weights = whole.state_dict()
    changed = {name for name, value in before.state_dict().items() if not torch.equal(weights[name], value)}
    assert changed
    assert not any("vision_tower" in name for name in changed)
    assert [entry["step"] for entry in curve] == [1, 2, 3]
    assert {"reward", "oracle_f1", "flaws", "tokens"} <= set(curve[0])
    assert curve[0]["reward"] > 0
    assert not whole.training

    def stop(entry):
        if entry["step"] == 2:  # before it is saved
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "stopped", stop)
    with pytest.raises(CheckpointError, match="a training of 3 steps, not 6"):
        trained(tmp_path / "stopped", stop, steps=6)
    rest: list[dict[str, float]] = []
    again, resumed = trained(tmp_path / "stopped", rest.append)
    assert resumed == 1
    assert rest == curve[1:]
    assert all(torch.equal(weights[name], value) for name, value in again.state_dict().items())


def test_a_captioner_is_loaded_whole_or_not_at_all(captioner_folder, tmp_path):
    """Weights under names that the installed transformers does not know would leave a tower random."""
    shutil.copytree(captioner_folder, tmp_path / "renamed")
    file = tmp_path / "renamed" / "model.safetensors"
    weights = {name.replace("vision_tower", "tower"): value for name, value in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lacks \d+ weights .*vision_tower"):
        load_captioner(tmp_path / "renamed")
