"""BertScorer: matches the tokens of a caption and of its references by the cosine of their states."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from reward.backbones.fit import foreign_errors
from reward.backbones.language import PlainTextEncoder, caption_ids, pad_rows, token_budget_batches
from reward.backbones.pretrained import load_network, parse_dtype, usable_device
from reward.checkpoints import named_metric, read_config, resolve_checkpoint, save_checkpoint
from reward.errors import CheckpointError, ConfigError
from reward.metrics.bertscore import SPEC
from reward.metrics.groups import Group
from reward.metrics.scorer import CandidateScores, NetworkScorer

__all__ = ["BertScorer", "greedy_match"]

# The layers that agree best with people, as the authors' package has them.
_LAYERS = {"bert-base-uncased": 9, "bert-large-uncased": 18, "roberta-base": 10, "roberta-large": 17}
_TOKENS_PER_PASS = 8192


class BertScorer(NetworkScorer):
    """BERTScore, without weights of rare words and without rescaling; of each aspect, the best reference counts.

    Scores are those of the authors' package, bert-score 0.3.13. Texts that are too long are cut and flagged.

    Args:
        model: a BERT or RoBERTa of transformers; its layers after `layer` are dropped.
        tokenizer: its tokenizer.
        layer: whose states are compared, from 1 on.
        origin: `{"model", "revision"}` of what `from_pretrained` can load again, for `save_pretrained`.

    Raises:
        ConfigError: the model has no such layer, or is of another kind.
    """

    spec = SPEC
    window_size = 128  # the states of all tokens of a window are in memory

    def __init__(self, model: Any, tokenizer: Any, *, layer: int, origin: dict[str, Any] | None = None) -> None:
        kind, layers = model.config.model_type, model.config.num_hidden_layers
        if kind not in ("bert", "roberta"):
            raise ConfigError(f"bertscore needs a BERT or RoBERTa, such as 'FacebookAI/roberta-large', got a {kind!r}")
        if not 1 <= layer <= layers:
            raise ConfigError(f"layer must be from 1 to {layers}, the layers of this model, got {layer}")
        model.encoder.layer = model.encoder.layer[:layer]
        self.model, self.tokenizer, self.layer, self.origin = model, tokenizer, layer, origin
        roberta = kind == "roberta"  # which reads words with the space before them, and does not use two positions
        self._space = " " * roberta
        self._most_tokens = min(tokenizer.model_max_length, model.config.max_position_embeddings - 2 * roberta)
        self._plain = PlainTextEncoder(tokenizer)

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str] = "embedded",
        *,
        revision: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | str | None = None,
        layer: int | None = None,
    ) -> BertScorer:
        """Loads the model.

        Args:
            source: folder or Hub id of a BERT or RoBERTa, such as `"FacebookAI/roberta-large"` (the authors' choice for
                English), or a folder that `save_pretrained` wrote.
            revision: branch, tag or commit of a Hub id.
            device: the GPU if there is one, by default.
            dtype: such as `"bfloat16"`; float32 by default.
            layer: known for bert-base-uncased, bert-large-uncased, roberta-base and roberta-large, by their names.

        Raises:
            CheckpointError: the source is missing or incomplete, or belongs to another metric.
            ConfigError: the layer is neither given nor known, or see the class.
        """
        from transformers import AutoModel, AutoTokenizer

        name = os.fspath(source)
        if name == "embedded":
            raise CheckpointError("no BERT is shipped with this package; give one, such as 'FacebookAI/roberta-large'")
        if named_metric(name) is not None:
            saved = read_config(name, metric=SPEC.name)
            name, revision, layer = saved["model"], revision or saved["revision"], layer or saved["layer"]
        device, dtype = usable_device(device), parse_dtype(dtype)
        folder = resolve_checkpoint(name, metric=SPEC.name, revision=revision)
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
        name = str(Path(name).absolute()) if Path(name).is_dir() else name
        return cls(model.to(device), tokenizer, layer=layer, origin={"model": name, "revision": revision})

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Writes a folder that names model and layer, without the weights.

        Raises:
            CheckpointError: the scorer was made without `origin`, or the folder cannot be written.
        """
        if self.origin is None:
            raise CheckpointError("this bertscore scorer does not know where its model came from: pass origin=")
        card = f"# bertscore\n\nLayer {self.layer} of {self.origin['model']}. Source: {SPEC.paper}.\n"
        save_checkpoint(folder, config={"metric": SPEC.name, "layer": self.layer} | self.origin, tensors={}, card=card)

    def score_groups(self, groups: list[Group], batch_size: int | None) -> CandidateScores:
        """Scores (K, 3)."""
        texts = dict.fromkeys(text for group in groups for text in (*group.rows, *group.references))
        states, cut = self._read(list(texts), batch_size)
        scores, truncated = [], []
        for group in groups:
            for candidate in group.rows:
                found = [greedy_match(states[candidate], states[reference]) for reference in group.references]
                scores.append(np.max(found, axis=0))
                truncated.append(not cut.isdisjoint((candidate, *group.references)))
        return CandidateScores(np.clip(scores, *SPEC.range), truncated)

    def _read(self, texts: list[str], batch_size: int | None) -> tuple[dict[str, torch.Tensor], set[str]]:
        """{text: states of length 1 (tokens, d)}, and the texts that were cut."""
        encode = lambda text: self._plain(self._space + text)  # noqa: E731
        marks = {"start": self.tokenizer.cls_token_id, "end": self.tokenizer.sep_token_id}
        read = [caption_ids(encode, text, most_tokens=self._most_tokens, **marks) for text in texts]
        states: dict[str, torch.Tensor] = {}
        for rows in token_budget_batches([len(ids) for ids, _ in read], _TOKENS_PER_PASS, batch_size):
            part = [read[row][0] for row in rows]
            ids, mask = pad_rows(part, value=self.tokenizer.pad_token_id, device=self.model.device)
            hidden = self.model(ids, attention_mask=mask).last_hidden_state
            unit = functional.normalize(hidden.float(), dim=-1).cpu()
            states |= {texts[row]: each[: len(own)] for row, each, own in zip(rows, unit, part, strict=True)}
        return states, {text for text, (_, long) in zip(texts, read, strict=True) if long}


def greedy_match(candidate: torch.Tensor, reference: torch.Tensor) -> tuple[float, float, float]:
    """F1, precision and recall of two texts: means over tokens of the cosine with the closest token of the other.

    The marks at both ends may be the closest token, but do not count themselves, as in the authors' package.

    Args:
        candidate, reference: states of the tokens, of length 1, (n, d) and (m, d), with the marks.

    Returns:
        Three numbers; all are 0 if a text has no token between the marks.

    Example:
        >>> mark, red, star = torch.eye(3)
        >>> greedy_match(torch.stack([mark, red, star, mark]), torch.stack([mark, star, mark]))[1:]
        (0.5, 1.0)
    """
    cosines = candidate @ reference.T
    if min(cosines.shape) < 3:
        return 0.0, 0.0, 0.0
    precision, recall = cosines.max(dim=1).values[1:-1].mean(), cosines.max(dim=0).values[1:-1].mean()
    both = float(precision + recall)
    return float(2 * precision * recall) / both if both else 0.0, float(precision), float(recall)
