"""Judges whose replies are written down beforehand, token by token: a scripted one, a network, and behind a server."""

import json
import math
import re
from contextlib import contextmanager

import torch
from tokenizers import pre_tokenizers
from transformers import DynamicCache, GenerationConfig, LlamaConfig, LlavaProcessor

from reward.judges import Answer, LocalJudge, ScriptedJudge, ServerJudge
from tests.toys.loopback_http import send, serving
from tests.toys.toy_captioners import special_ids
from tests.toys.toy_judges import MERGES, TEMPLATE, byte_tokenizer, llava

_WORDS = ("Yes", "yes", "YES", "No", "no", "NO", "\uff12", "\uff14", "\u0662", "\u0664")
_OTHER = {
    **{"Yes": "No", "yes": "no", "YES": "NO", "B": "A", "b": "a", "\uff14": "\uff12", "\u0664": "\u0662"},
    **{"4": "2", "8": "6", "5": "3", "2": "1", "1": "2", "0": "1"},
}
_DECOYS = ("1", "5", "Yes", "No", "A", "B")
_END = "<|im_end|>"


def number_of(text):
    """The number of the reply that a question asks for: that of its first caption, `Reply 7.`; 0 without one."""
    caption = re.search(r"Reply (\d+)\.", text)
    return int(caption[1]) if caption else 0


class Replies:
    """Replies with probabilities, by the tokens of a small tokenizer.

    In a marked reply `«...»` is the answer. Each token of it has .8, and another answer .2. At all other tokens but
    white space the digits 1 and 5, Yes and No, and the letters A and B are alternatives, which must not count.

    Args:
        marked: the replies.
    """

    def __init__(self, marked):
        words = [*_WORDS, *re.findall(r"[^\W\d_]{2,}", " ".join(marked))]
        self.tokenizer = byte_tokenizer("<image>", "<think>", "</think>", merges=[*MERGES, *_merges(words)])
        self.answers = [self._answer(text) for text in marked]

    def ids(self, text):
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _answer(self, marked):
        start, text = marked.find("\u00ab"), marked.replace("\u00ab", "").replace("\u00bb", "")
        end = marked.find("\u00bb") - 1
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        tokens = [*(self.tokenizer.decode([token]) for token in encoded["input_ids"]), _END]
        rows = []
        for token, (_, last) in zip(tokens, [*encoded["offset_mapping"], (0, 0)], strict=True):
            core = token.strip()
            weights = {token: 1.0, "?": 1e-9}
            if start < last <= end and core in _OTHER:
                weights = {token: 0.8, token.replace(core, _OTHER[core]): 0.2}
            elif core and core.isascii() and core not in (_END, *_DECOYS) and not start < last <= end:
                weights = {token: 0.7} | dict.fromkeys(_DECOYS, 0.05)
            rows.append({alternative: math.log(weight) for alternative, weight in weights.items()})
        return Answer(text, tuple(tokens), tuple(rows))

    def scripted(self):
        return ScriptedJudge(lambda question: self.answers[number_of(question.text)])

    def local(self, **options):
        _, llavas = llava()
        processor = LlavaProcessor(
            llavas.image_processor, self.tokenizer, patch_size=8, chat_template=TEMPLATE.replace("IMAGE", "<image>")
        )
        return LocalJudge(_Writer(self), processor, **options)

    @contextmanager
    def served(self):
        def answer(handler, body):
            send(handler, json.dumps(_completion(self.answers[number_of(body.decode())])).encode())

        with serving(answer) as address:
            yield ServerJudge("tiny", f"{address}/v1", retries=0)


class _Writer(torch.nn.Module):
    """A causal network that writes the reply which a prompt asks for; its cache holds the tokens themselves."""

    dtype, device = torch.float32, torch.device("cpu")

    def __init__(self, replies):
        super().__init__()
        self.replies = replies
        self.config = LlamaConfig(vocab_size=len(replies.tokenizer), max_position_embeddings=100_000)
        self.generation_config = GenerationConfig(**special_ids(replies.tokenizer))
        self.opening = replies.ids("<|im_start|>assistant\n")
        self.written = [(*replies.ids(answer.text), *replies.ids(_END)) for answer in replies.answers]
        self.numbers = {}

    def forward(self, input_ids, attention_mask, past_key_values=None, **_):
        cache = DynamicCache() if past_key_values is None else past_key_values
        tokens = input_ids[:, None, :, None].double()
        ids = cache.update(tokens, tokens, 0)[0][:, 0, :, 0].long()
        rows = [self.next(row[mask.bool()].tolist()) for row, mask in zip(ids, attention_mask, strict=True)]
        return _Output(torch.stack(rows)[:, None], cache)

    def next(self, ids):
        """Logits (V,) of the token behind a prompt and the beginning of a reply."""
        start = len(ids) - ids[::-1].index(self.opening[0]) - 1 + len(self.opening)
        prompt, written = tuple(ids[:start]), tuple(ids[start:])
        if prompt not in self.numbers:
            self.numbers[prompt] = number_of(self.replies.tokenizer.decode(prompt))
        number = self.numbers[prompt]
        logits = torch.full((len(self.replies.tokenizer),), -1e4)
        reply = self.written[number]
        if reply[: len(written)] != written or len(written) == len(reply):
            return logits
        for text, value in self.replies.answers[number].logprobs[len(written)].items():
            token = reply[len(written)] if text == self.replies.answers[number].tokens[len(written)] else None
            [token] = [token] if token is not None else self.replies.ids(text)
            logits[token] = value
        return logits


class _Output:
    def __init__(self, logits, cache):
        self.logits, self.past_key_values = logits, cache


def _merges(words):
    """The merges that make one token of each word, from the bytes on."""
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    merges = {}
    for word in words:
        [(letters, _)] = bytes_of.pre_tokenize_str(word)
        for length in range(1, len(letters)):
            merges[letters[:length], letters[length]] = None
    return list(merges)


def _completion(answer):
    content = [
        {
            "token": token,
            "logprob": row[token],
            "top_logprobs": [{"token": other, "logprob": value} for other, value in row.items()],
        }
        for token, row in zip(answer.tokens, answer.logprobs, strict=True)
    ]
    choice = {"index": 0, "finish_reason": "stop", "logprobs": {"content": content}}
    choice["message"] = {"role": "assistant", "content": answer.text}
    return {"model": "tiny", "choices": [choice], "usage": {"prompt_tokens": 400, "completion_tokens": 1}}
