"""VelaModel: prompts as tokens, a language-model branch, a CLIP branch, and a head. Each part can be run alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional
from transformers.utils import ModelOutput

from reward.backbones.clip import ClipTowers
from reward.backbones.language import PlainTextEncoder, Remembered, decoder_of
from reward.backbones.states import CausalStates, pool_states
from reward.checkpoints.weight_files import load_strict
from reward.errors import CheckpointError, ConfigError
from reward.metrics.vela.backbones import add_lora, make_decoder, make_towers
from reward.metrics.vela.config import FusionSettings, ImageConfig, TextConfig, VelaConfig
from reward.metrics.vela.prompts import PromptLayout

_REFERENCE_MARK, _REFERENCE_SEPARATOR = "- ", "\n"  # before each reference, and between two
_FEWEST_TOKENS = 8  # of a reference that is cut; fewer say nothing
_POSITION_TABLES = ("wpe", "embed_positions", "position_embeddings")  # GPT-2, OPT, and others without rotation


class PromptTokens(NamedTuple):
    """One prompt: the ids before the candidate, the candidate's, those after it, and whether any text was cut."""

    prefix: list[int]
    candidate: list[int]
    tail: list[int]
    truncated: bool


class PromptTokenizer:
    """Turns captions into prompts of token ids.

    Args:
        tokenizer: a `transformers` tokenizer.
        config: prompts and room.

    Raises:
        ConfigError: a rubric leaves no room for a reference in `max_prefix_tokens`.
        ValueError: no cue follows the candidate.
    """

    def __init__(self, tokenizer: Any, config: TextConfig) -> None:
        self.tokenizer, self.config = tokenizer, config
        self._plain = Remembered(PlainTextEncoder(tokenizer))
        framed = tokenizer if config.chat_template else None
        self._mark, self._separator = self._parsed(_REFERENCE_MARK), self._parsed(_REFERENCE_SEPARATOR)
        self._own: dict[tuple[str, bool], tuple[list[int], ...]] = {}
        for aspect, prompt in config.prompts.items():
            for with_references in (False, True):
                layout = PromptLayout.of(prompt, with_references=with_references, tokenizer=framed)
                parts = tuple(self._parsed(part) for part in (layout.start or "", layout.middle, layout.tail))
                self._own[aspect, with_references] = parts
                self._check(aspect, parts, len(self._mark) + _FEWEST_TOKENS if with_references else 0)

    def _check(self, aspect: str, parts: tuple[list[int], ...], smallest_reference: int) -> None:
        start, middle, tail = parts
        if not tail:
            raise ValueError(f"the prompt of {aspect!r} has nothing after the candidate: it needs a cue")
        needed = len(start) + len(middle) + smallest_reference
        if needed > self.config.max_prefix_tokens:
            raise ConfigError(
                f"the rubric of {aspect!r} and the smallest piece of a reference take {needed} tokens, more than "
                f"max_prefix_tokens={self.config.max_prefix_tokens}; raise it (model.text.max_prefix_tokens)"
            )

    def _parsed(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def prefix(self, references: Sequence[str], aspect: str) -> tuple[list[int], bool]:
        """Ids of everything before the candidate, and whether a reference was cut.

        References that do not fit are cut at their ends, the longest first. If a reference would keep fewer than 8
        tokens, the last ones are dropped instead.
        """
        start, middle, _ = self._own[aspect, bool(references)]
        room = self.config.max_prefix_tokens - len(start) - len(middle)
        ids, cut = self._references(tuple(references), room)
        return [*start, *ids, *middle], cut

    def _references(self, references: tuple[str, ...], room: int) -> tuple[list[int], bool]:
        if not references:
            return [], False
        texts = [self._plain(text) for text in references]
        marks = len(self._mark) + len(self._separator)
        room += len(self._separator)  # no separator before the first reference
        cut = sum(len(ids) + marks for ids in texts) > room
        if cut:
            texts = texts[: max(1, room // (marks + _FEWEST_TOKENS))]
            longest = _common_limit([len(ids) for ids in texts], room - marks * len(texts))
            texts = [ids[:longest] for ids in texts]
        joined: list[int] = []
        for position, ids in enumerate(texts):
            joined += [*(self._separator if position else ()), *self._mark, *ids]
        return joined, cut

    def read_ahead(self, texts: Sequence[str]) -> None:
        """Tokenises texts, which are remembered."""
        for text in texts:
            self._plain(text)

    def candidate(self, text: str) -> tuple[list[int], bool]:
        """Ids of the candidate, and whether its end was cut."""
        ids = self._plain(text)
        room = self.config.max_candidate_tokens
        return ids[:room], len(ids) > room

    def tail(self, aspect: str) -> list[int]:
        """Ids of everything after the candidate."""
        return list(self._own[aspect, True][2])

    def __call__(self, candidate: str, references: Sequence[str], aspect: str) -> PromptTokens:
        """The prompt of one candidate for one aspect."""
        return self.many([(candidate, references)], [aspect])[0][0]

    def many(self, texts: Sequence[tuple[str, Sequence[str]]], aspects: Sequence[str]) -> list[list[PromptTokens]]:
        """Prompts of (candidate, references) pairs for several aspects; shared texts are tokenised once."""
        candidates: dict[str, tuple[list[int], bool]] = {}
        prefixes: dict[tuple[tuple[str, ...], str], tuple[list[int], bool]] = {}
        rows = []
        for candidate, references in texts:
            references = tuple(references)
            if candidate not in candidates:
                candidates[candidate] = self.candidate(candidate)
            ids, cut = candidates[candidate]
            row = []
            for aspect in aspects:
                if (references, aspect) not in prefixes:
                    prefixes[references, aspect] = self.prefix(references, aspect)
                prefix, prefix_cut = prefixes[references, aspect]
                row.append(PromptTokens(prefix, ids, self.tail(aspect), prefix_cut or cut))
            rows.append(row)
        return rows


def _common_limit(lengths: Sequence[int], room: int) -> int:
    """The largest length to which all texts can be cut so that together they fit into the room."""
    if sum(lengths) <= room:
        return max(lengths, default=0)
    left = room
    for position, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - position)
        if length > share:
            return share
        left -= length
    raise AssertionError("texts that fit were handled above")


class TextBranch(nn.Module):
    """g_r2c = [mean of the last hidden states over the whole prompt ; the last token's], size 2 * d.

    Args:
        model: a causal language model of transformers; its head is not used.
        tokenizer: its tokenizer.
        config: prompts and room.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, config: TextConfig) -> None:
        super().__init__()
        self.config = config
        self.decoder: Any = decoder_of(model)
        if config.backbone is not None:
            self.decoder.requires_grad_(False)
        if config.lora is not None:
            self.decoder = add_lora(self.decoder, config.lora)
        self.prompts = PromptTokenizer(tokenizer, config)
        _check_room(self.decoder, self.prompts)
        self.size = 2 * self.decoder.config.get_text_config().hidden_size
        self._states = CausalStates(self.decoder)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """g_r2c (B, 2 * d), float32, of one batch (B, L), padded on the right; differentiable."""
        hidden = self.decoder(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
        return pool_states(hidden, attention_mask)

    def encode(
        self, prompts: Sequence[Sequence[PromptTokens]], *, token_budget: int | None = None, max_rows: int | None = None
    ) -> torch.Tensor:
        """g_r2c (N, A, 2 * d) of the prompts of N samples under A aspects, each distinct prefix computed once.

        If the prompts of the aspects differ only in what follows the candidate, candidates are computed once as well.
        """
        tails = [prompt.tail for prompt in prompts[0]]
        if len(tails) > 1 and all(prompt[:2] == row[0][:2] for row in prompts for prompt in row[1:]):
            trunks = [(row[0].prefix, row[0].candidate) for row in prompts]
            return self._states.encode(trunks, branches=tails, token_budget=token_budget, max_rows=max_rows)
        pairs = [(prompt.prefix, [*prompt.candidate, *prompt.tail]) for row in prompts for prompt in row]
        states = self._states.encode(pairs, token_budget=token_budget, max_rows=max_rows)
        return states.view(len(prompts), len(prompts[0]), -1)


def _check_room(decoder: nn.Module, prompts: PromptTokenizer) -> None:
    """Refuses prompts that are longer than a learned position table, on which a run would fail later."""
    config = prompts.config
    longest = max(len(prompts.tail(aspect)) for aspect in config.prompts)
    needed = config.max_prefix_tokens + config.max_candidate_tokens + longest
    for name, module in decoder.named_modules():
        is_table = isinstance(module, nn.Embedding) and name.rsplit(".", 1)[-1] in _POSITION_TABLES
        if is_table and module.num_embeddings < needed:
            raise ValueError(
                f"the language model has {module.num_embeddings} positions, but max_prefix_tokens="
                f"{config.max_prefix_tokens} and max_candidate_tokens={config.max_candidate_tokens} with {longest} "
                f"tokens after them take {needed}: lower these two"
            )


class ImageBranch(nn.Module):
    """g_i2c = [|h_img - h_cand| ; h_img * h_cand], size 2 * d.

    Args:
        towers: the CLIP. A backbone is frozen, as in the paper.
        config: says whether features are normalised.
    """

    def __init__(self, towers: ClipTowers, config: ImageConfig) -> None:
        super().__init__()
        self.towers, self.config = towers, config
        if config.backbone is not None:
            self.towers.requires_grad_(False)
        self.size = 2 * towers.embed_dim

    def encode_image(self, pixels: torch.Tensor) -> torch.Tensor:
        """h_img (B, d), float32, of pixels (B, 3, H, W)."""
        return self._scaled(self.towers.encode_image(pixels))

    def encode_candidate(self, ids: torch.Tensor) -> torch.Tensor:
        """h_cand (B, d), float32, of token ids (B, context_length)."""
        return self._scaled(self.towers.encode_text(ids))

    def _scaled(self, features: torch.Tensor) -> torch.Tensor:
        features = features.float()
        return functional.normalize(features, dim=-1) if self.config.normalise else features

    @staticmethod
    def relate(image: torch.Tensor, candidate: torch.Tensor) -> torch.Tensor:
        """g_i2c (B, 2 * d) of features (B, d) and (B, d)."""
        return torch.cat([(image - candidate).abs(), image * candidate], dim=-1)


class TransformerFusion(nn.Module):
    """Fuses vectors of the given sizes with a transformer: each becomes a token, and what comes out is averaged.

    Source: the VELA paper, appendix F. It gives no details: these are ours.
    """

    def __init__(self, sizes: Sequence[int], settings: FusionSettings) -> None:
        super().__init__()
        self.sizes = list(sizes)
        options: dict[str, Any] = {"activation": "gelu", "batch_first": True, "norm_first": True}
        width = settings.width
        self.inputs = nn.ModuleList(nn.Linear(size, width) for size in sizes)
        block = nn.TransformerEncoderLayer(width, settings.heads, 4 * width, settings.dropout, **options)
        self.encoder = nn.TransformerEncoder(block, settings.layers, nn.LayerNorm(width), enable_nested_tensor=False)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """(..., width) of the vectors side by side (..., sum of sizes)."""
        parts = zip(self.inputs, vectors.flatten(0, -2).split(self.sizes, dim=-1), strict=True)
        tokens = torch.stack([project(part) for project, part in parts], dim=1)
        return self.encoder(tokens).mean(1).view(*vectors.shape[:-1], -1)


@dataclass
class VelaOutput(ModelOutput):
    """Output of `VelaModel.forward`: scores (B,), in [0, 1]."""

    scores: torch.Tensor | None = None


class VelaModel(nn.Module):
    """VELA: y_a = sigmoid(w_a . [g_r2c(a) ; g_i2c] + b_a), with a row of weights for each aspect.

    With the configuration's `fusion`, a transformer stands before the head.

    Source: Matsuda et al., "VELA: An LLM-Hybrid-as-a-Judge Approach for Evaluating Long Image Captions", section 4.

    Args:
        config: see VelaConfig.
        text, image: the branches of the configuration.
        tokenizer: the checkpoint's own tokenizer, for branches with their own architecture; it is saved with the model.
    """

    def __init__(
        self, config: VelaConfig, text: TextBranch | None, image: ImageBranch | None, tokenizer: Any | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.tokenizer = tokenizer
        self.text, self.image = text, image
        sizes = [branch.size // 2 for branch in (text, image) if branch is not None for _ in range(2)]
        fusion = config.fusion
        self.fusion = nn.Identity() if fusion is None else TransformerFusion(sizes, fusion)
        size = sum(sizes) if fusion is None else fusion.width
        rows = len(config.aspects)
        self.weight = nn.Parameter(torch.zeros(rows, size))  # zeros: every score starts at 0.5
        self.bias = nn.Parameter(torch.zeros(rows))

    @classmethod
    def from_config(
        cls,
        config: VelaConfig,
        *,
        tokenizer: Any | None = None,
        dtype: torch.dtype | None = None,
        trust_remote_code: bool = False,
    ) -> VelaModel:
        """Builds a model with an untrained head and untrained adapters.

        Args:
            config: its backbones are loaded; its architectures get random weights.
            tokenizer: the checkpoint's own, which all branches with their own architecture share.
            dtype: of backbones that are loaded here; float32 by default.
            trust_remote_code: whether Python files of the language model may run.

        Raises:
            ValueError: a needed tokenizer is not given.
            CheckpointError: a backbone cannot be loaded.
        """
        text = image = None
        if config.text is not None:
            decoder, text_tokenizer = make_decoder(config.text, tokenizer, dtype, trust_remote_code)
            text = TextBranch(decoder, text_tokenizer, config.text)
        if config.image is not None:
            image = ImageBranch(make_towers(config.image, tokenizer, dtype), config.image)
        return cls(config, text, image, tokenizer if config.has_own_tokenizer else None)

    @property
    def device(self) -> torch.device:
        """Device of the head."""
        return self.weight.device

    def head(self, g_r2c: torch.Tensor | None, g_i2c: torch.Tensor | None) -> torch.Tensor:
        """Scores (N, A) in [0, 1] of g_r2c (N, A, 2 * d_llm) and g_i2c (N, 2 * d_clip); None for an absent branch."""
        parts = []
        if g_r2c is not None:
            parts.append(g_r2c)
        if g_i2c is not None:
            parts.append(g_i2c[:, None].expand(-1, len(self.config.aspects), -1))
        return torch.sigmoid((self.fusion(torch.cat(parts, dim=-1)) * self.weight).sum(-1) + self.bias)

    def forward(
        self,
        aspect: torch.Tensor,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        pixels: torch.Tensor | None = None,
        clip_ids: torch.Tensor | None = None,
        sample: torch.Tensor | None = None,
    ) -> VelaOutput:
        """Scores one padded batch of (sample, aspect) rows, differentiable.

        Args:
            aspect: (B,), int64, index of each row's aspect.
            input_ids, attention_mask: (B, L), prompts padded on the right; None without text branch.
            pixels: (S, 3, H, W); None without image branch.
            clip_ids: (S, context_length); None without image branch.
            sample: (B,), int64, which of the S images and captions a row is about; None means S = B, one to one.
        """
        parts = []
        if self.text is not None:
            if input_ids is None or attention_mask is None:
                raise ValueError("this VELA has a text branch: forward needs input_ids and attention_mask")
            parts.append(self.text(input_ids, attention_mask))
        if self.image is not None:
            if pixels is None or clip_ids is None:
                raise ValueError("this VELA has an image branch: forward needs pixels and clip_ids")
            related = self.image.relate(self.image.encode_image(pixels), self.image.encode_candidate(clip_ids))
            parts.append(related if sample is None else related[sample])
        logits = (self.fusion(torch.cat(parts, dim=-1)) * self.weight[aspect]).sum(-1) + self.bias[aspect]
        return VelaOutput(scores=torch.sigmoid(logits))

    def trained_tensors(self) -> dict[str, torch.Tensor]:
        """The weights of a checkpoint: head, adapters, and all of a branch with its own architecture."""
        kept = {}
        for key, value in self.state_dict().items():
            branch = {"text": self.config.text, "image": self.config.image}.get(key.split(".", 1)[0])
            if branch is None or branch.backbone is None or ".lora_" in key:
                kept[key] = value
        return kept

    def load_trained(self, tensors: dict[str, torch.Tensor], *, where: str) -> None:
        """Loads the weights that `trained_tensors` returns; the keys must be exactly those.

        Raises:
            CheckpointError: keys are missing, left over or of another shape.
        """
        trained = self.trained_tensors()
        frozen = {key: value for key, value in self.state_dict().items() if key not in trained}
        extra = [key for key in tensors if key in frozen]
        if extra:
            raise CheckpointError(f"{where} holds weights of a backbone that the configuration names: {extra[0]}, ...")
        load_strict(self, {**frozen, **tensors}, where=where)
