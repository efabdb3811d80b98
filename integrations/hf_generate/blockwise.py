"""BlockwiseBestOfN: several continuations a sentence or block, of which the best are continued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from integrations.hf_generate.rows import Call, Pause, Row
from integrations.hf_generate.sentence_ends import SentenceEnds, TokenMarks
from integrations.hf_generate.sources import checked_sources
from integrations.hf_generate.strategy import Drawn, Strategy, whole_number
from reward.decoding.selection import rank
from reward.errors import ConfigError
from reward.functions.wrappers import RatesCaptions
from reward.sentences import split_sentences

__all__ = ["PRESETS", "BlockwiseBestOfN"]

PRESETS: dict[str, dict[str, Any]] = {
    "mrgd": {"keep": 1, "block": "sentence"},
    "clip-guided": {
        **{"n": 3, "keep": 3, "block": "sentence", "rate": "sentences", "likelihood": 0.01},
        "sources": [{"temperature": 0.2, "top_k": 5}],
    },
    "visvm": {
        **{"n": 6, "keep": 1, "block": "sentence", "rate": "sentences"},
        "sources": [
            *({"n": 1, "temperature": t, "top_p": 0.9} for t in (0.1, 0.3, 0.5, 0.7, 0.9)),
            {"n": 1, "do_sample": False},
        ],
    },
}
"""Published settings, for `BlockwiseBestOfN(reward, processor=..., **PRESETS["visvm"])`; the rewards are yours.

`"mrgd"` (arXiv 2508.11616) leaves n to you and rates the caption so far. `"clip-guided"` (2402.15300) and `"visvm"`
(2412.03704) rate sentence by sentence; the first adds a hundredth of the mean log-probability of the tokens.
"""


class BlockwiseBestOfN(Strategy):
    """Writes n continuations of each kept caption, keeps the best, and goes on until all have ended.

    A block is a sentence or a number of tokens. After each block, the `keep` best of the unfinished captions are
    continued, and those that have ended are set aside. Once nothing is left to continue, the best of these wins.
    Every token goes through the model once: a kept caption takes its cache along.

    Finished captions never compete with unfinished ones, because a reward made for whole captions prefers a short
    finished caption to the beginning of a better one. CLIP-guided decoding sets finished captions aside, too, and stops
    after three. In controlled decoding, MRGD and VisVM, the search ends when the best caption of a block is finished.
    On 20 scenes with n=2 and n=4, VELA reaches an oracle F1 of .49 and .51 with that rule and .58 and .58 with the rule
    here; best-of-n with as many tokens reaches .63 and .74. Continuing the search repairs the end of captions, but not
    VELA's judgment of their beginning.

    The dot in "3.5" or "Dr." does not end a sentence. This shows only in what follows, so a block also holds the first
    one or two tokens of the next sentence, which the reward does not see. Metrics were made for whole captions and may
    misjudge the beginning of one.

    For `generate`, images and what is refused see `BestOfN`. Outputs other than `sequences` and `reward_scores` are
    refused, and so are models whose cache cannot be cut, sharded models, and processors that remember what they saw.
    `last.tokens` counts dropped continuations too.

    Args:
        reward, processor, shared: as for `BestOfN`: images, references and chunk.
        n: continuations of each kept caption.
        keep: captions that are kept after each block.
        block: `"sentence"`, or a number of tokens.
        rate: `"caption"` rates the caption so far. `"sentences"` is the mean of the rewards of its sentences, each
            rated alone.
        likelihood: adds so many times the mean log-probability of the caption's tokens.
        sources: where the n continuations come from, as for `BestOfN`; no beams.

    Raises:
        ConfigError: a value is of the wrong type or range; in the call, an option that is not supported.
        InvalidSampleError: in the call, no caption of an image got a reward.

    Example:
        >>> from transformers import PreTrainedTokenizerFast
        >>> from tokenizers import Tokenizer, models
        >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({})))
        >>> BlockwiseBestOfN("length", processor=tokenizer, **PRESETS["visvm"])
        BlockwiseBestOfN(n=6, keep=1, block='sentence', rate='sentences', chunk=None)
    """

    _shown: tuple[str, ...] = ("n", "keep", "block", "rate", "chunk")

    def __init__(
        self,
        reward: RatesCaptions | Any,
        n: int,
        processor: Any,
        *,
        keep: int = 1,
        block: str | int = "sentence",
        rate: str = "caption",
        likelihood: float = 0.0,
        sources: Sequence[Mapping[str, Any]] | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(reward, n, processor, **shared)
        self.keep = whole_number(keep, "keep")
        self.block = block if block == "sentence" else whole_number(block, 'block, unless it is "sentence",')
        if rate not in ("caption", "sentences"):
            raise ConfigError(f'rate must be "caption" or "sentences", got {rate!r:.80}')
        self.rate, self.likelihood = rate, likelihood
        self.sources = checked_sources([{}] if sources is None else sources, self.n, beams=False)
        self._marks: dict[int, TokenMarks] = {}

    def _draw(self, call: Call) -> Drawn:
        pause: Pause = SentenceEnds(self.processor, self._marks) if self.block == "sentence" else self._block_ends
        live = [[start] for start in call.starts(blocks=True)]
        pool: list[list[Row]] = [[] for _ in live]
        scores: list[list[float | None]] = [[] for _ in live]
        while any(live):
            kept = [row for group in live for row in group]
            rows = []
            for count, options in self.sources:
                again = [row for row in kept for _ in range(count)]
                rows += call.write(again, pause, options, logprobs=bool(self.likelihood))
            written = call.grouped(rows)
            texts = self._so_far(call, written)
            rewards = self._rewards(call, written, texts)
            for prompt, rows in enumerate(written):
                going: dict[str, Row] = {}  # equal captions take one place
                for place in rank(rewards[prompt]):
                    if rows[place].cache is not None:
                        going.setdefault(texts[prompt][place], rows[place])
                        continue
                    pool[prompt].append(rows[place])
                    scores[prompt].append(rewards[prompt][place])
                live[prompt] = list(going.values())[: self.keep]
        return self._finished(call, pool, scores)

    def _rewards(self, call: Call, rows: list[list[Row]], texts: list[list[str]]) -> list[list[float | None]]:
        if self.rate == "caption":
            rewards = call.ratings(texts)
        else:
            cut = [[[part for part, _ in split_sentences(text)] for text in group] for group in texts]
            flat = call.ratings([[part for parts in group for part in parts] for group in cut])
            rewards = []
            for group, numbers in zip(cut, map(iter, flat), strict=True):
                rewards.append([_mean([next(numbers) for _ in parts]) for parts in group])
        if not self.likelihood:
            return rewards
        return [
            [
                None if reward is None else reward + self.likelihood * row.logprob / (len(row.ids) - call.prompt_length)
                for reward, row in zip(group, own, strict=True)
            ]
            for group, own in zip(rewards, rows, strict=True)
        ]

    def _so_far(self, call: Call, rows: list[list[Row]]) -> list[list[str]]:
        """The captions so far; of those that were paused after a sentence, without what begins the next one."""
        texts = self._captions(call, rows)
        if self.block != "sentence":
            return texts
        return [
            [text if row.cache is None else _complete(text) for row, text in zip(*group, strict=True)]
            for group in zip(rows, texts, strict=True)
        ]

    def _block_ends(self, tokens: list[int], old: int) -> bool:
        return len(tokens) - old >= int(self.block)


def _complete(text: str) -> str:
    return "".join(part + space for part, space in split_sentences(text)[:-1]).strip()


def _mean(rewards: list[float | None]) -> float | None:
    known = [reward for reward in rewards if reward is not None]
    return sum(known) / len(known) if known else None
