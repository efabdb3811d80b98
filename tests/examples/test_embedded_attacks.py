"""Captions made worse for the training of the embedded metrics, and trainings that go on from a checkpoint."""

from __future__ import annotations

import random
import re
import shutil
from dataclasses import replace

import pytest
import torch

from examples.research import further_attacks
from examples.research.embedded import beit_rate, vela
from examples.research.embedded.attacked import WAYS, broken, candidate_of, draw_sample, is_attacked, worsened
from examples.research.embedded.beit_match import PairMaker
from examples.research.embedded.beit_words import start_from
from reward.audit.attacks import Material, attack
from reward.audit.run import WORSE
from reward.checkpoints import resolve_checkpoint
from reward.metrics.vela.scorer import VelaScorer
from reward.scenes import Oracle, describe, rate_text, sample_scene
from reward.scenes.graph import NOUNS, sample_entity
from reward.sentences import split_sentences


def drawn(way, number=40, **options):
    """(scene, better, worse) of several scenes."""
    rng = random.Random(f"test {way}")
    made = []
    while len(made) < number:
        scene = sample_scene(rng)
        if captions := worsened(scene, rng, way, **options):
            made.append((scene, *captions))
    return made


@pytest.mark.parametrize("way", sorted(set(WAYS)))
def test_a_worsened_caption_is_good_english_and_states_more_errors_or_less(way):
    oracle = Oracle()
    for scene, better, worse in drawn(way):
        before, after = (oracle.score(caption.text, scene) for caption in (better, worse))
        assert not before.wrong
        assert sum(rate_text(worse.text, scene).values()) <= sum(rate_text(better.text, scene).values()) - WORSE
        if way == "left out":  # "the star" may now come before a star
            assert not after.wrong
            assert after.recall < before.recall
            continue
        assert rate_text(worse.text, scene)["flu"] >= 4  # relations that policies pile up are sometimes said twice
        assert after.wrong
        kinds = {claim[0] for claim in after.wrong}
        allowed = {
            "exchange": {"colour", "count", "size", "pattern", "position", "spatial"},
            "recount": {"count"},
            "sign": {"text", "position"},
            "object": {"object", "count", "colour", "size", "pattern", "position"},
            "relations": {"spatial"},
        }
        assert kinds <= allowed[way]


def test_what_is_exchanged_occurs_in_the_picture():
    for scene, _, worse in drawn("exchange"):
        for kind, *_, value in (claim for claim in worse.claims if not scene.is_true(claim)):
            if kind in ("colour", "size", "pattern", "count"):
                assert value in {getattr(entity, kind) for entity in scene.entities}


def test_no_object_is_invented_where_all_kinds_are_there():
    rng = random.Random("test full")
    full = tuple(sample_entity(rng, noun, cell) for cell, noun in enumerate(NOUNS))
    assert worsened(replace(sample_scene(rng), entities=full), rng, "object") is None


def test_both_captions_may_state_errors_beside():
    made = drawn("sign", number=20, errors=2)
    assert sum(rate_text(better.text, scene)["rel"] < 5 for scene, better, _ in made) > 10


def test_draws_hold_worsened_captions_rated_by_the_oracle():
    rng = random.Random("test draws")
    samples = [draw_sample(rng, references=0) for _ in range(300)]
    attacked = [sample for sample in samples if is_attacked(sample)]
    for sample in attacked[:30]:
        text = sample.candidate.caption.text
        assert sample.candidate.ratings == candidate_of(text, sample.scene).ratings
    # good English with few errors: the attacks of the audit hardly ever leave that
    slight = [s for s in attacked if s.candidate.ratings.true["flu"] == 5 and 2 < s.candidate.ratings.true["rel"] < 5]
    assert len(slight) > 0.1 * len(samples)


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """A folder of steps with the tokenizer of what ships."""
    folder = tmp_path_factory.mktemp("states")
    (folder / "tokenizer").mkdir()
    for file in resolve_checkpoint("embedded", metric="vela").glob("tokenizer*.json"):
        shutil.copy(file, folder / "tokenizer")
    return folder


def test_pairs_mark_the_words_that_are_false(states):
    _, reader = start_from("", states, str(resolve_checkpoint("embedded", metric="beitscore")))
    rng = random.Random("test pairs")
    seen = 0
    while seen < 30:
        scene = sample_scene(rng)
        if pair := PairMaker(reader)._worsened(scene, rng):
            right, wrong = pair
            assert not any(token.wrong for token in right)
            seen += any(token.wrong for token in wrong)
            assert all(token.fact for token in wrong if token.wrong)


def test_vela_goes_on_from_all_weights_of_a_checkpoint(states, tmp_path):
    folder = resolve_checkpoint("embedded", metric="vela")
    shutil.copytree(states, tmp_path, dirs_exist_ok=True)
    options = ["--output", str(tmp_path), "--start", str(folder), "--frozen-towers", "--batch", "2", "--steps"]
    vela.main([*options, "1", "--lr", "0"])
    before = VelaScorer.from_pretrained(folder, device="cpu").model.state_dict()
    after = VelaScorer.from_pretrained(tmp_path / "both" / "model", device="cpu").model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    vela.main([*options, "2"])  # one further step
    after = VelaScorer.from_pretrained(tmp_path / "both" / "model", device="cpu").model.state_dict()
    moved = {name.partition(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert {"text", "weight"} <= moved
    assert "image" not in moved


def test_beitscore_goes_on_from_all_weights_of_a_checkpoint(states, tmp_path, monkeypatch):
    folder = str(resolve_checkpoint("embedded", metric="beitscore"))
    shutil.copytree(states, tmp_path, dirs_exist_ok=True)
    beit_rate.main(["--output", str(tmp_path), "--start", folder, "--steps", "2", "--lr", "0"])
    before, _ = start_from("", states, folder)
    after, _ = start_from("beit_rate", tmp_path)
    assert all(
        torch.equal(weight, after.model.state_dict()[name]) for name, weight in before.model.state_dict().items()
    )
    assert not torch.equal(before.tagger[1].weight, after.tagger[1].weight)  # which no checkpoint holds


@pytest.mark.parametrize("name", ["invented sign", "sign without words"])
def test_the_invented_signs_are_told_in_words_of_no_training_caption(name):
    rng = random.Random("test sign")
    spoken = {
        sentence
        for _ in range(300)
        for sentence in worsened(sample_scene(rng), rng, "sign", errors=0)[1].text.split(". ")
    }
    for _ in range(40):
        scene = sample_scene(rng)
        caption = describe(scene, rng).text
        _, attacked = attack(name, caption, Material(rng), attacks=further_attacks.ATTACKS)
        before, after = ([sentence for sentence, _ in split_sentences(text)] for text in (caption, attacked))
        [added] = [sentence for sentence in after if sentence not in before]
        assert [sentence for sentence in after if sentence != added] == before
        assert after[-1] == before[-1]  # told among the objects
        assert added.removesuffix(".") not in {sentence.removesuffix(".") for sentence in spoken}
        assert Oracle().read(added).claims
        assert not Oracle().read(added).faults


@pytest.mark.parametrize(
    "form",
    [r"The word (\w+) is written on a sign in the \w+ \w+ (says|reads) \1\.", r"A sign in .* says (\w+) is written"],
)
def test_broken_sentences_tell_a_fact_twice_as_policies_do(form):
    rng = random.Random(form)
    made = (broken(sample_scene(rng), rng, short=True) for _ in range(3000))
    found = [candidate for candidate in made if re.search(form, candidate.caption.text)]
    assert len(found) >= 15
    for candidate in found:
        assert Oracle().read(candidate.caption.text).faults
        assert any(word.damaged for sentence in candidate.caption.sentences for word in sentence.words)


def test_a_sign_told_twice_is_told_in_one_sentence():
    def told(caption):
        return attack("sign told twice", caption, Material(random.Random(0)), attacks=further_attacks.ATTACKS)

    caption = "There is a star. The word TAXI is written on a sign in the lower centre."
    assert told(caption) == (caption, f"{caption[:-1]} says TAXI.")
    assert told("The sign at the top left reads BANK.")[1] == "The sign at the top left reads BANK is written on it."
    assert told("There is a star. A sign stands in the top left.") is None
