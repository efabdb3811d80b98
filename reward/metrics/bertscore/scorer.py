"""BertScorer: matches the tokens of a caption and of its references by the cosine of their states."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch.nn import functional

from reward.backbones.fit import foreign_errors
from reward.backbones.language import CaptionIds, PlainTextEncoder, pad_rows, token_budget_batches
from reward.backbones.pretrained import load_network
from reward.errors import ConfigError
from reward.metrics.bertscore import SPEC
from reward.metrics.saving import BorrowedScorer
from reward.metrics.scorer import CandidateScores, Group

# The layers that agree best with people, as the authors' package has them.
_LAYERS = {"bert-base-uncased": 9, "bert-large-uncased": 18, "roberta-base": 10, "roberta-large": 17}
_TOKENS_PER_PASS = 8192  # on a GPU, which wants much work at once
_TOKENS_PER_PASS_CPU = 512  # a CPU is fastest while the states between two layers fit its caches


class BertScorer(BorrowedScorer):
    """BERTScore, without weights of rare words and without rescaling; of each aspect, the best reference counts.

    Scores are those of the authors' package, bert-score 0.3.13. Texts that are too long are cut and flagged.

    Args:
        model: a BERT or RoBERTa of transformers, such as `"FacebookAI/roberta-large"` (the authors' choice for
            English), in float32 by default; its layers after `layer` are dropped.
        tokenizer: its tokenizer.
        layer: whose states are compared, from 1 on; `from_pretrained` knows that of bert-base-uncased,
            bert-large-uncased, roberta-base and roberta-large.

    Raises:
        ConfigError: the model has no such layer, or is of another kind.
    """

    spec = SPEC
    settings = ("layer",)
    needs = "a BERT or RoBERTa, such as 'FacebookAI/roberta-large'"
    window_size = 128  # the states of all tokens of a window are in memory

    def __init__(self, model: Any, tokenizer: Any, *, layer: int) -> None:
        kind, layers = model.config.model_type, model.config.num_hidden_layers
        if kind not in ("bert", "roberta"):
            raise ConfigError(f"bertscore needs a BERT or RoBERTa, such as 'FacebookAI/roberta-large', got a {kind!r}")
        if not 1 <= layer <= layers:
            raise ConfigError(f"layer must be from 1 to {layers}, the layers of this model, got {layer}")
        # The layers behind it would be computed for nothing: 7 of 24 of roberta-large.
        model.encoder.layer = model.encoder.layer[:layer]
        self.model, self.tokenizer, self.layer = model, tokenizer, layer
        space_before, positions = "", model.config.max_position_embeddings
        if kind == "roberta":  # reads words with the space before them, and does not use two positions
            space_before, positions = " ", positions - 2
        encode = PlainTextEncoder(tokenizer, before=space_before)
        most = min(tokenizer.model_max_length, positions)
        self._ids = CaptionIds(encode, start=tokenizer.cls_token_id, end=tokenizer.sep_token_id, most_tokens=most)

    @classmethod
    def _load(cls, folder: Path, *, name: str, device: Any, dtype: Any, layer: int | None = None) -> BertScorer:
        from transformers import AutoModel, AutoTokenizer

        layer = layer or _LAYERS.get(Path(name).name.lower())
        if layer is None:
            raise ConfigError(
                f"BERTScore does not know which layer of {name!r} to compare; it knows those of {', '.join(_LAYERS)}. "
                "For another model, write a folder that names the layer: "
                f"BertScorer.from_pretrained({name!r}, layer=...).save_pretrained(FOLDER)"
            )
        # published files of RoBERTa have no pooler, which is not needed
        model = load_network(folder, AutoModel, "BERT", dtype=dtype, add_pooling_layer=False)
        with foreign_errors(f"{name!r}: its tokenizer (tokenizer*.json, vocab.*)"):
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        return cls(model.to(device), tokenizer, layer=layer)

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        """Scores (K, 3): F1, precision and recall, each of the reference for which it is highest."""
        texts = dict.fromkeys(text for group in groups for text in (*group.rows, *group.references))
        states, cut = self._encode(list(texts), batch_size)
        scores, truncated = [], []
        for group in groups:
            candidates = [states[candidate] for candidate in group.rows]
            references = [states[reference] for reference in group.references]
            scores.append(greedy_matches(candidates, references).max(axis=1))
            references_cut = not cut.isdisjoint(group.references)
            truncated += [references_cut or candidate in cut for candidate in group.rows]
        return CandidateScores(np.clip(np.concatenate(scores), *SPEC.range), truncated)

    def _encode(self, texts: list[str], batch_size: int | None) -> tuple[dict[str, np.ndarray], set[str]]:
        """{text: states of length 1 (tokens, d)}, and the texts that were cut."""
        ids_of_texts = []
        cut: set[str] = set()
        for text in texts:
            ids, is_long = self._ids(text)
            ids_of_texts.append(ids)
            if is_long:
                cut.add(text)
        device = self.model.device
        budget = _TOKENS_PER_PASS_CPU if device.type == "cpu" else _TOKENS_PER_PASS
        states: dict[str, np.ndarray] = {}
        for rows in token_budget_batches([len(ids) for ids in ids_of_texts], budget, batch_size):
            batch = [ids_of_texts[row] for row in rows]
            input_ids, mask = pad_rows(batch, value=self.tokenizer.pad_token_id, device=device)
            hidden = self.model(input_ids, attention_mask=mask).last_hidden_state
            unit = functional.normalize(hidden.float(), dim=-1).cpu().numpy()
            for row, row_states in zip(rows, unit, strict=True):
                states[texts[row]] = row_states[: len(ids_of_texts[row])]  # without the padding
        return states, cut


def greedy_matches(candidates: Sequence[np.ndarray], references: Sequence[np.ndarray]) -> np.ndarray:
    """F1, precision and recall of each pair: means over tokens of the cosine with the closest token of the other text.

    The marks at both ends may be the closest token, but do not count themselves, as in the authors' package.

    Args:
        candidates, references: states of the tokens of each text, of length 1, (tokens, d), with the marks.

    Returns:
        Array (candidates, references, 3); all three are 0 if a text has no token between the marks.

    Example:
        >>> mark, red, star = np.eye(3)
        >>> greedy_matches([np.stack([mark, red, star, mark])], [np.stack([mark, star, mark])])[0, 0, 1:]
        array([0.5, 1. ])
    """
    # One product for the tokens of all texts: a candidate is a range of its rows, a reference a range of its columns.
    cosines = np.concatenate(candidates) @ np.concatenate(references).T
    precision = _means(np.maximum.reduceat(cosines, _starts(references), axis=1), candidates)
    recall = _means(np.maximum.reduceat(cosines, _starts(candidates), axis=0).T, references).T
    # A text without a token between its two marks has nothing to match.
    has_tokens = np.outer(_lengths(candidates) > 2, _lengths(references) > 2)
    precision, recall = precision * has_tokens, recall * has_tokens
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros_like(total), where=total != 0)
    return np.stack([f1, precision, recall], axis=-1)


def _lengths(texts: Sequence[np.ndarray]) -> np.ndarray:
    return np.array([len(states) for states in texts])


def _starts(texts: Sequence[np.ndarray]) -> np.ndarray:
    """The first row of each text, where the states of all texts stand one after the other."""
    lengths = _lengths(texts)
    return np.cumsum(lengths) - lengths


def _means(values: np.ndarray, texts: Sequence[np.ndarray]) -> np.ndarray:
    """Means (texts, ...) over the tokens between the marks, of values (tokens of all texts, ...)."""
    starts, lengths = _starts(texts), _lengths(texts)
    values = values.astype(np.float64)
    values[starts] = 0  # the first marks
    values[starts + lengths - 1] = 0  # the last marks
    return np.add.reduceat(values, starts, axis=0) / np.maximum(1, lengths - 2)[:, None]
