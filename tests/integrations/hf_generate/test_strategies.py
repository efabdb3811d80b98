"""Every strategy with every kind of model, and what each must give in cases where that is known."""

from __future__ import annotations

import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList

from integrations.hf_generate import (
    PRESETS,
    STRATEGIES,
    AdaptiveBestOfN,
    BestOfN,
    BlockwiseBestOfN,
    MinimumBayesRisk,
    SpeculativeRejection,
)
from reward.decoding.mbr import expected_utilities
from reward.decoding.selection import rank
from reward.errors import ConfigError
from tests import toy_captioners
from tests.integrations.hf_generate.test_best_of_n import IMAGES, Letters, captioner

ALL_KINDS = ("llava", "qwen2_vl", "vit_bert", "blip")


def model_of(kind, rows=slice(None)):
    """A model, what decodes its output, inputs for the prompts in `rows`, and the length of the prompt."""
    model, processor, inputs, start = captioner(kind)
    if kind in ("vit_bert", "blip") or rows == slice(None):
        return model, processor, {name: value[rows] for name, value in inputs.items()}, start
    single = toy_captioners.llava_inputs(processor, IMAGES[rows], ["Describe"])
    return model, processor, single, single["input_ids"].shape[1]


def generate(kind, strategy, rows=slice(None), seed=3, **options):
    model, _, inputs, _ = model_of(kind, rows)
    torch.manual_seed(seed)
    given = {"custom_generate": strategy, "images": IMAGES[rows], "max_new_tokens": 10}
    return model.generate(**inputs, **{**given, **options})


def decoder(kind):
    return model_of(kind)[1]


class Watch(LogitsProcessor):
    """Keeps the scores that follow each prefix, and writes given tokens, if there are any."""

    def __init__(self, start=0, forced=None):
        self.seen, self.start, self.forced = {}, start, forced

    def __call__(self, input_ids, scores):
        for row, ids in enumerate(input_ids.tolist()):
            self.seen.setdefault(tuple(ids), []).append(scores[row][scores[row].isfinite()])
        if self.forced is None:
            return scores
        forced = torch.full_like(scores, -torch.inf)
        return forced.scatter(1, self.forced[:, input_ids.shape[1], None], 0.0)


class OnlyTheFirstTokenIsDrawn(LogitsProcessor):
    """Leaves the likeliest token only, except where captions begin: so a caption follows from its first token."""

    def __init__(self, start):
        self.start = start

    def __call__(self, input_ids, scores):
        if input_ids.shape[1] == self.start:
            return scores
        return torch.full_like(scores, -torch.inf).scatter(1, scores.argmax(-1, keepdim=True), 0.0)


SOURCES = [{"temperature": 0.5}, {"top_k": 3, "n": 2}, {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 9.0}]
CASES = {
    "best-of-n": [{"sources": SOURCES, "n": 8}, {"temperature": 5.0, "n": 4}],
    "blockwise": [{"block": 3, "keep": 2, "n": 3, "chunk": 4}, {"keep": 3, **PRESETS["clip-guided"]}],
    "speculative-rejection": [{"n": 6, "segment": 3}, {"n": 6, "memory": 250}],
    "adaptive": [{"n": 7, "threshold": 2.0}],
    "minimum-bayes-risk": [{"n": 6, "keep": 3}],
}


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_runs_with_every_model(kind, name):
    for arguments in CASES[name]:
        reward = Letters()
        strategy = STRATEGIES[name](reward, processor=decoder(kind), **arguments)
        asked = {"num_return_sequences": 2, "do_sample": True} if kind != "blip" else {}  # BLIP has no use for it
        output = generate(kind, strategy, return_dict_in_generate=True, **asked)
        k, last = asked.get("num_return_sequences", 1), strategy.last
        assert len(output.sequences) == len(output.reward_scores) == 2 * k
        start = model_of(kind)[3]
        texts = decoder(kind).batch_decode(output.sequences[:, start:], skip_special_tokens=True)
        assert [text.strip() for text in texts] == [
            captions[place] for captions, chosen in zip(last.captions, last.chosen, strict=True) for place in chosen
        ]
        for prompt, (captions, rewards) in enumerate(zip(last.captions, last.rewards, strict=True)):
            assert k <= len(captions) == len(rewards)
            assert len(last.chosen[prompt]) == k
            words = [len(caption.split()) for caption in captions]
            assert last.tokens[prompt] >= (max if name == "blockwise" else sum)(words)  # blocks share beginnings
            assert last.scored[prompt] > 0
        assert sum(last.scored) == len(reward.samples)
        pairs = {(id(sample.image), sample.candidate) for sample in reward.samples}
        assert len(pairs) == len(reward.samples)  # none is scored twice
        if name in ("speculative-rejection", "adaptive"):
            assert last.rewards == [
                [len(caption) + 100.0 * prompt if caption else None for caption in last.captions[prompt]]
                for prompt in range(2)
            ]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_cached_blocks_give_the_logits_of_an_uncached_run(kind):
    model, processor, inputs, start = model_of(kind)
    more = {"sequence_bias": {(decoder_id(processor, "."),): 3.0}}  # more sentences, of different lengths
    images = [getattr(model.config, name, None) for name in ("image_token_id", "vision_start_token_id")]
    if any(images):  # a sampled one would ask for another image
        more["suppress_tokens"] = [token for token in images if token is not None]
    for arguments in ({"block": 2, "keep": 2, "n": 3}, {"keep": 2, "n": 4, "chunk": 5}):
        watch = Watch()
        strategy = BlockwiseBestOfN(Letters(), processor=processor, **arguments)
        output = generate(kind, strategy, logits_processor=LogitsProcessorList([watch]), **more)
        forced = Watch(forced=output)
        options = {"max_new_tokens": output.shape[1] - start, "use_cache": False, "do_sample": False, **more}
        again = model.generate(**inputs, logits_processor=LogitsProcessorList([forced]), **options)
        assert torch.equal(again, output)
        compared = 0
        end = {model.generation_config.pad_token_id, model.generation_config.eos_token_id}
        for prefix, (*expected,) in forced.seen.items():
            for scores in expected if prefix[-1] not in end else ():
                difference = min(float((scores - other).abs().max()) for other in watch.seen[prefix])
                assert difference < 1e-5
                compared += 1
        assert compared > 8


def decoder_id(processor, word):
    return getattr(processor, "tokenizer", processor).convert_tokens_to_ids(word)


@pytest.mark.parametrize("kind", ["llava", "vit_bert"])
@pytest.mark.parametrize("block", ["sentence", 3])
def test_one_continuation_is_plain_sampling(kind, block):
    one = slice(0, 1)
    model, processor, inputs, _ = model_of(kind, one)
    options = {"max_new_tokens": 20, "do_sample": True, "sequence_bias": {(decoder_id(processor, "."),): 3.0}}
    for seed in range(3):
        strategy = BlockwiseBestOfN(Letters(), n=1, processor=processor, block=block)
        blocks = generate(kind, strategy, one, seed, **options)
        torch.manual_seed(seed)
        assert torch.equal(blocks, model.generate(**inputs, **options))
        assert strategy.last.scored[0] > 1


def test_a_choice_at_temperature_0_is_best_of_n():
    results = {}
    for temperature in (None, 0.0, 1e-9, 1e9):
        given = {} if temperature is None else {"temperature": temperature}
        strategy = BestOfN(Letters(), 8, decoder("llava"), **given)
        generate("llava", strategy)
        results[temperature] = strategy.last
    assert results[0.0] == results[None]
    assert results[1e-9].captions == results[1e9].captions == results[None].captions  # only the choice differs
    best = [max(filter(None, rewards)) for rewards in results[None].rewards]
    assert [
        rewards[chosen[0]] for rewards, chosen in zip(results[1e-9].rewards, results[1e-9].chosen, strict=True)
    ] == best


def test_adaptive_with_threshold_0_is_best_of_n():
    adaptive = AdaptiveBestOfN(Letters(), n=12, processor=decoder("llava"), threshold=0.0)
    fixed = BestOfN(Letters(), 12, decoder("llava"), chunk=8)  # in rounds of four, too
    only = {"suppress_tokens": [decoder_id(decoder("llava"), "<pad>")]}  # it also stands for what is not written
    assert torch.equal(generate("llava", adaptive, **only), generate("llava", fixed, **only))
    assert adaptive.last == fixed.last


def test_adaptive_stops_where_more_would_gain_little():
    fewer = AdaptiveBestOfN(
        Letters(lambda sample: float(len(sample.candidate)) * (sample.image is IMAGES[1])),
        **{"n": 12, "processor": decoder("llava"), "threshold": 0.2, "minimum": 3, "batch": 2},
    )
    generate("llava", fewer)
    used = [len(captions) for captions in fewer.last.captions]
    assert used[0] == 3 < used[1]


@pytest.mark.parametrize("kind", ["llava", "vit_bert"])
def test_speculative_rejection_without_rejection_is_best_of_n(kind):
    options = {"min_new_tokens": 10}  # with all rows in the batch to the end, random numbers are the same
    rejection = SpeculativeRejection(Letters(), n=8, processor=decoder(kind), alpha=0.0, segment=3)
    best = BestOfN(Letters(), 8, decoder(kind))
    assert torch.equal(generate(kind, rejection, **options), generate(kind, best, **options))
    assert rejection.last.captions == best.last.captions


def test_speculative_rejection_is_never_better_than_best_of_n_and_cheaper():
    worse, only = 0, LogitsProcessorList([OnlyTheFirstTokenIsDrawn(model_of("llava")[3])])
    for seed in range(6):
        best = BestOfN(Letters(), 12, decoder("llava"))
        fewer = SpeculativeRejection(Letters(), n=12, processor=decoder("llava"), alpha=0.6, segment=2)
        for strategy in (best, fewer):
            generate("llava", strategy, seed=seed, logits_processor=only)
        assert sum(fewer.last.tokens) < sum(best.last.tokens)
        for prompt in range(2):
            assert set(fewer.last.captions[prompt]) < set(best.last.captions[prompt])
            rewards = [s.last.rewards[prompt][s.last.chosen[prompt][0]] for s in (best, fewer)]
            assert rewards[1] <= rewards[0]
            worse += rewards[1] < rewards[0]
    assert 0 < worse < 12


def test_a_full_memory_is_refused():
    strategy = SpeculativeRejection(Letters(), n=12, processor=decoder("llava"), memory=200)
    with pytest.raises(ConfigError, match=r"memory=200 has no room for the next token of 24 captions of \d+ tokens"):
        generate("llava", strategy)


class Pieces:
    """Decodes token ids of the toy models as pieces of a text."""

    def __init__(self, *pieces):
        self.pieces = dict(enumerate(pieces, start=5))

    def batch_decode(self, rows, skip_special_tokens=False):
        rows = rows.tolist() if isinstance(rows, torch.Tensor) else [list(map(int, row)) for row in rows]
        return ["".join(self.pieces.get(token, "") for token in row) for row in rows]


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ("caption", ["A 3.5 m star.", "A 3.5 m star. Dr. Who ran!", "A 3.5 m star. Dr. Who ran! End."]),
        ("sentences", ["A 3.5 m star.", "Dr. Who ran!", "End."]),
    ],
)
def test_a_sentence_ends_where_the_next_one_begins(rate, expected):
    pieces = Pieces("A", " 3", ".", "5", " m star", ".", " Dr", ".", " Who ran", "!", " End", ".")
    reward = Letters()
    strategy = BlockwiseBestOfN(reward, n=2, processor=pieces, rate=rate)
    allowed = {"prefix_allowed_tokens_fn": lambda row, ids: [4 + len(ids)], "max_new_tokens": 12}
    generate("vit_bert", strategy, **allowed)
    assert [sample.candidate for sample in reward.samples if sample.image is IMAGES[0]] == expected
    assert strategy.last.captions[0][0] == "A 3.5 m star. Dr. Who ran! End."


def test_processors_that_know_their_rows_follow_their_prompt():
    red, blue = (decoder_id(decoder("llava"), word) for word in ("red", "blue"))
    strategy = BlockwiseBestOfN(Letters(), n=3, processor=decoder("llava"), block=2, keep=2)
    generate("llava", strategy, prefix_allowed_tokens_fn=lambda row, ids: [[red], [blue]][row], repetition_penalty=1.3)
    assert [set(captions[0].split()) for captions in strategy.last.captions] == [{"red"}, {"blue"}]


def test_a_caption_that_ended_may_lose_to_a_longer_one_and_wins_where_it_is_best():
    red, end = (decoder_id(decoder("llava"), word) for word in ("red", "<eos>"))
    short = Letters(lambda sample: -float(len(sample.candidate)))
    for reward, words in ((short, 1), (Letters(), 10)):
        strategy = BlockwiseBestOfN(reward, n=16, processor=decoder("llava"), block=2, keep=2)
        generate("llava", strategy, prefix_allowed_tokens_fn=lambda row, ids: [red, end])
        for captions, chosen in zip(strategy.last.captions, strategy.last.chosen, strict=True):
            assert len(captions[chosen[0]].split()) == words


def test_minimum_bayes_risk_chooses_what_agrees_with_the_others():
    plain = MinimumBayesRisk(n=8, processor=decoder("llava"))
    hybrid = MinimumBayesRisk(Letters(), n=8, processor=decoder("llava"), keep=3)
    for strategy in (plain, hybrid):
        generate("llava", strategy)
    assert plain.last.captions == hybrid.last.captions
    assert plain.last.scored == [0, 0]
    for prompt, captions in enumerate(plain.last.captions):
        assert plain.last.rewards[prompt] == expected_utilities(captions)[0]
        kept = rank([len(caption) if caption else None for caption in captions])[:3]
        assert {i for i, utility in enumerate(hybrid.last.rewards[prompt]) if utility is not None} <= set(kept)


def test_best_of_poisson_draws_its_numbers():
    strategy = BestOfN(Letters(), 4, decoder("llava"), poisson=True)
    used = []
    for seed in range(8):
        generate("llava", strategy, seed=seed, max_new_tokens=1)
        used += [len(captions) for captions in strategy.last.captions]
    assert min(used) >= 1
    assert len(set(used)) > 3


@pytest.mark.parametrize(
    ("strategy", "arguments", "options", "message"),
    [
        (BestOfN, {"sources": [{"temprature": 1}]}, {}, "dictionary with any of n, do_sample.* got temprature"),
        (BestOfN, {"sources": [{"n": 9}]}, {}, "do not share n=5"),
        (BestOfN, {"sources": [{"num_beam_groups": 2}]}, {}, "needs num_beams"),
        (BestOfN, {"sources": [{}], "include_greedy": True}, {}, "the greedy caption is also a source"),
        (BestOfN, {"temperature": -1}, {}, "at least 0, got -1"),
        (BestOfN, {"poisson": True}, {"num_return_sequences": 2, "do_sample": True}, "leave num_return_sequences=1"),
        (BlockwiseBestOfN, {"sources": [{"num_beams": 5}]}, {}, "got num_beams"),
        (BlockwiseBestOfN, {"block": "word"}, {}, 'block, unless it is "sentence", must be at least 1'),
        (BlockwiseBestOfN, {"rate": "words"}, {}, 'must be "caption" or "sentences"'),
        (BlockwiseBestOfN, {}, {"num_return_sequences": 6, "do_sample": True}, "more than the n=5"),
        (BlockwiseBestOfN, {}, {"guidance_scale": 1.5}, "guidance_scale and SynthID"),
        (BlockwiseBestOfN, {}, {"use_cache": False}, "plain dynamic cache"),
        (BlockwiseBestOfN, {}, {"cache_implementation": "static"}, "static cache"),
        (
            AdaptiveBestOfN,
            {},
            {"output_scores": True, "return_dict_in_generate": True},
            "output_scores cannot be joined",
        ),
        (AdaptiveBestOfN, {"threshold": -0.1}, {}, "threshold must be at least 0"),
        (AdaptiveBestOfN, {"minimum": 1}, {}, "minimum must be at least 2"),
        (SpeculativeRejection, {"alpha": 1}, {}, "alpha, the share that is rejected"),
        (MinimumBayesRisk, {"keep": 6}, {}, "at most n=5"),
        (MinimumBayesRisk, {"utility": "no such metric"}, {}, "no such metric"),
    ],
)
def test_what_is_not_possible_is_refused(strategy, arguments, options, message):
    reward = Letters()
    with pytest.raises((ConfigError, KeyError, LookupError), match=message):
        generate("llava", strategy(reward, n=5, processor=decoder("llava"), **arguments), **options)
    assert not reward.samples
