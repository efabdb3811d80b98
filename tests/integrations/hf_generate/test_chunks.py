"""BestOfN that decodes its candidates a few rows at a time: as many, as likely, each of its own prompt and image."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
import torch
from transformers import DynamicCache, LogitsProcessor, LogitsProcessorList

from integrations.hf_generate import BestOfN, best_of_n
from reward.decoding.selection import rank
from reward.errors import ConfigError
from tests.integrations.hf_generate.test_best_of_n import IMAGES, KINDS, Letters, captioner, run


class Watch(LogitsProcessor):
    """Sees what every step of decoding sees, and keeps the first scores of each part."""

    def __init__(self):
        self.rows, self.first_scores, self.length = [], [], None

    def __call__(self, input_ids, scores):
        self.rows.append(len(input_ids))
        if self.length is None or input_ids.shape[1] == self.length:
            self.length = input_ids.shape[1]
            self.first_scores.append(scores.clone())
        return scores


@KINDS
@pytest.mark.parametrize(
    ("n", "k", "chunk", "rows"),
    [
        *((4, k, None, {rows}) for k, rows in ((1, 8), (2, 8), (3, 12))),  # 3 does not divide 4
        *((7, 1, 4, {4, 2}), (5, 2, 7, {4}), (3, 1, 2, {2}), (4, 1, 9, {8})),
    ],
)
def test_the_k_best_of_n_come_back_prompt_by_prompt_from_at_most_so_many_rows_at_once(kind, n, k, chunk, rows):
    watch, reward = Watch(), Letters()
    options = {"num_return_sequences": k, "do_sample": True, "logits_processor": LogitsProcessorList([watch])}
    _, texts, strategy = run(kind, n, reward, chunk=chunk, **options)
    assert set(watch.rows) == rows
    assert [len(captions) for captions in strategy.last.captions] == [n, n]
    assert len({caption for captions in strategy.last.captions for caption in captions}) > 3
    for prompt in range(2):
        captions, rewards = strategy.last.captions[prompt], strategy.last.rewards[prompt]
        assert rewards == [len(caption) + 100.0 * prompt if caption else None for caption in captions]
        assert strategy.last.chosen[prompt] == rank(rewards)[:k]
        assert texts[prompt * k : (prompt + 1) * k] == [captions[i] for i in strategy.last.chosen[prompt]]
    assert all(sample.image is IMAGES[0] or sample.image is IMAGES[1] for sample in reward.samples)


@KINDS
@pytest.mark.parametrize("n", [4, 5])
def test_candidates_are_what_plain_generate_samples_under_the_same_seed(kind, n):
    model, processor, inputs, start = captioner(kind)
    torch.manual_seed(3)
    plain = model.generate(**inputs, max_new_tokens=6, do_sample=True, num_return_sequences=n)
    texts = [text.strip() for text in processor.batch_decode(plain[:, start:], skip_special_tokens=True)]
    _, _, strategy = run(kind, n, include_greedy=False)
    assert [caption for captions in strategy.last.captions for caption in captions] == texts
    assert len(set(texts)) > 3


@KINDS
@pytest.mark.parametrize(("chunk", "parts"), [(None, [5]), (4, [2, 2, 1])])
def test_every_candidate_is_conditioned_on_its_own_prompt_and_image(kind, chunk, parts):
    model, _, inputs, _ = captioner(kind)
    options = {"do_sample": False, "return_dict_in_generate": True, "output_logits": True}
    expected = model.generate(**inputs, max_new_tokens=6, **options).logits[0]
    assert not torch.allclose(expected[0], expected[1], atol=1e-3)
    watch = Watch()
    run(kind, 5, chunk=chunk, logits_processor=LogitsProcessorList([watch]))
    assert [len(scores) // 2 for scores in watch.first_scores] == parts
    for scores in watch.first_scores:
        repeated = expected.repeat_interleave(len(scores) // 2, dim=0)
        torch.testing.assert_close(scores, repeated, atol=1e-4, rtol=1e-4)


@KINDS
def test_with_one_likely_token_a_step_parts_make_no_difference(kind):
    options = {"top_k": 1, "repetition_penalty": 1.3}
    whole, _, strategy = run(kind, 5, **options)
    parts, _, again = run(kind, 5, chunk=2, **options)
    assert again.last == strategy.last
    assert torch.equal(whole, parts)


def test_processors_that_remember_start_anew_in_every_part():
    options = {"top_k": 1, "guidance_scale": 1.5}
    _, _, strategy = run("llava", 5, **options)
    _, _, again = run("llava", 5, chunk=4, **options)
    assert again.last == strategy.last


def test_every_part_has_a_cache_of_its_own():
    model, _, _, _ = captioner("llava")
    _, _, strategy = run("llava", 5, top_k=1)
    cache = DynamicCache(config=model.config.get_text_config())
    cache.prefetch_stream = threading.Lock()  # as a stream of CUDA, it cannot be copied
    _, _, again = run("llava", 5, chunk=4, top_k=1, past_key_values=cache)
    assert again.last == strategy.last


def test_parts_draw_from_the_same_distribution():
    model, processor, inputs, _ = captioner("llava")
    logits = model.generate(
        **inputs, max_new_tokens=1, do_sample=False, return_dict_in_generate=True, output_logits=True
    ).logits[0]
    strategy = BestOfN(Letters(), 400, processor, images=IMAGES, chunk=150)
    torch.manual_seed(0)
    model.generate(**inputs, custom_generate=strategy, max_new_tokens=1, top_k=0)
    special = set(processor.tokenizer.all_special_ids)
    words = ["" if i in special else processor.tokenizer.convert_ids_to_tokens(i) for i in range(logits.shape[1])]
    for captions, probabilities in zip(strategy.last.captions, logits.softmax(-1).tolist(), strict=True):
        expected = Counter()
        for word, probability in zip(words, probabilities, strict=True):
            expected[word] += 400 * probability
        drawn = Counter(captions)
        often = [word for word in expected if expected[word] >= 5]
        assert len(often) > 5
        assert sum((drawn[word] - expected[word]) ** 2 / expected[word] for word in often) < 2.5 * len(often)


@KINDS
def test_an_output_object_holds_sequences_and_rewards(kind):
    output, texts, strategy = run(kind, 5, chunk=2, return_dict_in_generate=True)
    assert set(output.keys()) == {"sequences", "reward_scores"}
    assert type(output) is type(run(kind, 2, return_dict_in_generate=True)[0])
    assert output.reward_scores.tolist() == [max(filter(None, rewards)) for rewards in strategy.last.rewards]
    assert len(texts) == 2
    whole, _, _ = run(kind, 2, chunk=4, return_dict_in_generate=True, output_scores=True)
    assert whole.scores is not None  # a single part has everything


def test_parts_of_processes_that_step_together_are_as_many_as_those_of_the_others(monkeypatch):
    def all_reduce(tensor, op):
        if op == torch.distributed.ReduceOp.MAX:
            tensor.fill_(3)  # another process has more rows, and needs three parts

    monkeypatch.setattr(best_of_n, "processes_step_together", lambda model: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    watch = Watch()
    _, _, strategy = run("llava", 7, chunk=8, logits_processor=LogitsProcessorList([watch]))
    assert [len(scores) // 2 for scores in watch.first_scores] == [3, 2, 2]
    assert [len(captions) for captions in strategy.last.captions] == [7, 7]


def test_parts_need_a_token_to_fill_up_with(monkeypatch):
    model, _, _, _ = captioner("llava")
    monkeypatch.setattr(model.generation_config, "pad_token_id", None)
    monkeypatch.setattr(model.generation_config, "eos_token_id", None)
    with pytest.raises(ConfigError, match="set pad_token_id"):
        run("llava", 5, chunk=4)
