"""VelaModel: prompts as tokens, a language-model branch, a CLIP branch, and a head. Each part can be run alone.

As in the paper, g_r2c relates references to candidate (the language model) and g_i2c image to candidate (the CLIP).
A branch is a `backbone`, which is frozen, or has an `architecture` of its own, whose weights are in the checkpoint.
Letters of the shapes: N captions, A aspects, B rows of a batch, L tokens of a row, d the size of a branch's vectors.
"""

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
from reward.backbones.lora import add_lora
from reward.backbones.states import CausalStates, pool_states
from reward.errors import ConfigError
from reward.metrics.vela.backbones import make_decoder, make_towers
from reward.metrics.vela.config import FusionSettings, ImageConfig, TextConfig, VelaConfig
from reward.metrics.vela.prompts import lay_out

_REFERENCE_MARK = "- "  # before each reference
_REFERENCE_SEPARATOR = "\n"  # between two references
_FEWEST_TOKENS = 8  # of a reference that is cut; fewer say nothing
_POSITION_TABLES = ("wpe", "embed_positions", "position_embeddings")  # names in networks without rotary positions


class PromptTokens(NamedTuple):
    """One prompt: the ids before the candidate, the candidate's, those after it, and whether any text was cut."""

    prefix: list[int]
    candidate: list[int]
    tail: list[int]
    truncated: bool


class PromptTokenizer:
    """Turns captions into prompts of token ids: rubric and references, then the candidate, then the cue for a score.

    The parts of the prompt itself may hold control tokens, as the chat template writes them. References and candidates
    are encoded as plain text, so that no caption can end its turn and write the rest of the prompt.

    Args:
        tokenizer: a `transformers` tokenizer.
        config: its prompt texts, and the most tokens of a prefix and of a candidate.

    Raises:
        ConfigError: a rubric leaves no room for a reference in `max_prefix_tokens`.
        ValueError: no cue follows the candidate.
    """

    def __init__(self, tokenizer: Any, config: TextConfig) -> None:
        self.tokenizer, self.config = tokenizer, config
        # References come again with every caption of their image, so the tokens of texts are remembered.
        self._plain = Remembered(PlainTextEncoder(tokenizer))
        self._mark = self._parse(_REFERENCE_MARK)
        self._separator = self._parse(_REFERENCE_SEPARATOR)
        # {(aspect, whether there are references): ids of start, middle and tail, see `lay_out`}
        self._layouts: dict[tuple[str, bool], tuple[list[int], list[int], list[int]]] = {}
        template = tokenizer if config.chat_template else None
        for aspect, prompt in config.prompts.items():
            for with_references in (False, True):
                start, middle, tail = lay_out(prompt, with_references=with_references, tokenizer=template)
                self._layouts[aspect, with_references] = (self._parse(start), self._parse(middle), self._parse(tail))
            self._check_layout(aspect)

    def _parse(self, text: str) -> list[int]:
        """Ids of a part of the prompt itself, with control tokens."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _check_layout(self, aspect: str) -> None:
        """Refuses a prompt without a cue, or whose own text leaves no room for a reference."""
        start, middle, tail = self._layouts[aspect, True]
        if not tail:
            raise ValueError(f"the prompt of {aspect!r} has nothing after the candidate: it needs a cue")
        needed = len(start) + len(middle) + len(self._mark) + _FEWEST_TOKENS
        if needed > self.config.max_prefix_tokens:
            raise ConfigError(
                f"the rubric of {aspect!r} and the smallest piece of a reference take {needed} tokens, more than "
                f"max_prefix_tokens={self.config.max_prefix_tokens}; raise it (model.text.max_prefix_tokens)"
            )

    @property
    def max_tokens(self) -> int:
        """Most tokens that a prompt can have."""
        longest_tail = max(len(tail) for _, _, tail in self._layouts.values())
        return self.config.max_prefix_tokens + self.config.max_candidate_tokens + longest_tail

    def __call__(self, candidate: str, references: Sequence[str], aspect: str) -> PromptTokens:
        """The prompt of one candidate for one aspect."""
        return self.tokenize([(candidate, references)], [aspect])[0][0]

    def tokenize(self, texts: Sequence[tuple[str, Sequence[str]]], aspects: Sequence[str]) -> list[list[PromptTokens]]:
        """Prompts of N (candidate, references) pairs, each with one prompt for each of A aspects.

        Prompts with equal references and aspect have the same prefix, which is made once. A candidate that is too long
        is cut at its end.
        """
        prefixes: dict[tuple[tuple[str, ...], str], tuple[list[int], bool]] = {}
        prompts = []
        for candidate, references in texts:
            candidate_ids = self._plain(candidate)
            candidate_room = self.config.max_candidate_tokens
            row = []
            for aspect in aspects:
                key = (tuple(references), aspect)
                if key not in prefixes:
                    prefixes[key] = self.prefix(references, aspect)
                prefix, is_cut = prefixes[key]
                _, _, tail = self._layouts[aspect, bool(references)]
                is_cut = is_cut or len(candidate_ids) > candidate_room
                row.append(PromptTokens(prefix, candidate_ids[:candidate_room], tail, is_cut))
            prompts.append(row)
        return prompts

    def prefix(self, references: Sequence[str], aspect: str) -> tuple[list[int], bool]:
        """Ids of everything before the candidate, at most `max_prefix_tokens`, and whether a reference was cut.

        References that do not fit are cut at their ends, the longest first. If they would keep fewer than
        `_FEWEST_TOKENS` tokens, the last ones are dropped instead.
        """
        start, middle, _ = self._layouts[aspect, bool(references)]
        texts = [self._plain(reference) for reference in references]
        frame = len(self._mark) + len(self._separator)  # tokens that each reference takes besides its text
        # The first reference has no separator before it.
        room = self.config.max_prefix_tokens - len(start) - len(middle) + len(self._separator)
        is_cut = sum(map(len, texts)) + frame * len(texts) > room
        if is_cut:
            most_references = max(1, room // (frame + _FEWEST_TOKENS))
            texts = texts[:most_references]
            limit = _common_limit([len(text) for text in texts], room - frame * len(texts))
            texts = [text[:limit] for text in texts]
        ids = [*start]
        for number, text in enumerate(texts):
            if number > 0:
                ids += self._separator
            ids += self._mark
            ids += text
        return ids + middle, is_cut

    def read_ahead(self, texts: Sequence[str]) -> None:
        """Tokenises texts, which are remembered."""
        for text in texts:
            self._plain(text)


def _common_limit(lengths: Sequence[int], room: int) -> int:
    """The largest length to which all texts can be cut so that together they fit into the room."""
    # From the shortest on, each text has an equal share of what is left. What it does not need, longer ones share.
    for number, length in enumerate(sorted(lengths)):
        share = room // (len(lengths) - number)
        if length > share:
            return share
        room -= length
    return max(lengths)  # all fit as they are


class TextBranch(nn.Module):
    """g_r2c = [mean of the last hidden states over the whole prompt ; the last token's], size 2 * d.

    Args:
        model: a causal language model of transformers; its head is not used.
        tokenizer: its tokenizer.
        config: see TextConfig.

    Raises:
        ValueError: the model has fewer positions than a prompt may have tokens.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, config: TextConfig) -> None:
        super().__init__()
        self.config = config
        self.decoder: Any = decoder_of(model)
        if config.backbone is not None:
            self.decoder.requires_grad_(False)
        # After freezing: the adapters are trained.
        if config.lora is not None:
            self.decoder = add_lora(self.decoder, config.lora)
        self.prompts = PromptTokenizer(tokenizer, config)
        _check_positions(self.decoder, self.prompts)
        self.width: int = self.decoder.config.get_text_config().hidden_size
        self._states = CausalStates(self.decoder)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """g_r2c (B, 2 * d), float32, of one batch (B, L), padded on the right; differentiable."""
        # Gradients must reach every token of every row, so training shares no prefixes.
        hidden = self.decoder(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
        return pool_states(hidden, attention_mask)

    def encode(
        self, prompts: Sequence[Sequence[PromptTokens]], *, token_budget: int | None = None, max_rows: int | None = None
    ) -> torch.Tensor:
        """g_r2c (N, A, 2 * d), float32, of the prompts of N captions under A aspects.

        Args:
            prompts: N rows of A prompts.
            token_budget, max_rows: see `CausalStates.encode`.
        """
        # The candidates of a group share a prefix of rubric and references, often many times as long as a candidate. In
        # a causal model, the states of a prefix do not depend on what follows. So CausalStates reads each distinct
        # prefix once, and its keys and values (the prefix cache) serve all candidates. The states equal those of whole
        # prompts, but for rounding.
        if _differ_in_tails(prompts):
            # Only the cue depends on the aspect: each candidate is read once for all aspects, too.
            trunks = [(row[0].prefix, row[0].candidate) for row in prompts]
            tails = [prompt.tail for prompt in prompts[0]]
            return self._states.encode(trunks, branches=tails, token_budget=token_budget, max_rows=max_rows)
        pairs = []
        for row in prompts:
            for prompt in row:
                pairs.append((prompt.prefix, prompt.candidate + prompt.tail))
        states = self._states.encode(pairs, token_budget=token_budget, max_rows=max_rows)
        return states.view(len(prompts), len(prompts[0]), -1)


def _differ_in_tails(prompts: Sequence[Sequence[PromptTokens]]) -> bool:
    """Whether there are several aspects, and the prompts of each caption differ only after the candidate."""
    for row in prompts:
        for prompt in row[1:]:
            if prompt.prefix != row[0].prefix or prompt.candidate != row[0].candidate:
                return False
    return len(prompts[0]) > 1


def _check_positions(decoder: nn.Module, prompts: PromptTokenizer) -> None:
    """Refuses prompts that are longer than a learned position table, on which a run would fail later."""
    for name, module in decoder.named_modules():
        is_table = isinstance(module, nn.Embedding) and name.rsplit(".", 1)[-1] in _POSITION_TABLES
        if is_table and module.num_embeddings < prompts.max_tokens:
            raise ValueError(
                f"the language model has {module.num_embeddings} positions, but prompts take up to "
                f"{prompts.max_tokens}: lower max_prefix_tokens={prompts.config.max_prefix_tokens} or "
                f"max_candidate_tokens={prompts.config.max_candidate_tokens}"
            )


class ImageBranch(nn.Module):
    """g_i2c = [|h_img - h_cand| ; h_img * h_cand], size 2 * d, of CLIP's features of image and candidate.

    Args:
        towers: the CLIP. A backbone is frozen, as in the paper.
        config: says whether features are normalised.
    """

    def __init__(self, towers: ClipTowers, config: ImageConfig) -> None:
        super().__init__()
        self.towers, self.config = towers, config
        if config.backbone is not None:
            self.towers.requires_grad_(False)
        self.width = towers.embed_dim

    def relate(self, image: torch.Tensor, candidate: torch.Tensor) -> torch.Tensor:
        """g_i2c (B, 2 * d), float32, of the towers' features of images (B, d) and candidates (B, d)."""
        # In float32, since the difference of two close vectors of half precision has few digits left.
        image, candidate = image.float(), candidate.float()
        if self.config.normalise:
            image, candidate = functional.normalize(image, dim=-1), functional.normalize(candidate, dim=-1)
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
        parts = vectors.flatten(0, -2).split(self.sizes, dim=-1)
        tokens = torch.stack([project(part) for project, part in zip(self.inputs, parts, strict=True)], dim=1)
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
        sizes = []  # each branch gives two vectors side by side
        for branch in (text, image):
            if branch is not None:
                sizes += [branch.width, branch.width]
        self.fusion: nn.Module = nn.Identity()
        size = sum(sizes)
        if config.fusion is not None:
            self.fusion = TransformerFusion(sizes, config.fusion)
            size = config.fusion.width
        self.weight = nn.Parameter(torch.zeros(len(config.aspects), size))  # zeros: every score starts at 0.5
        self.bias = nn.Parameter(torch.zeros(len(config.aspects)))

    @classmethod
    def from_config(
        cls, config: VelaConfig, *, tokenizer: Any | None = None, dtype: torch.dtype | None = None
    ) -> VelaModel:
        """Builds a model with an untrained head and untrained adapters.

        Args:
            config: its backbones are loaded; its architectures get random weights.
            tokenizer: the checkpoint's own, which all branches with their own architecture share.
            dtype: of backbones that are loaded here; float32 by default.

        Raises:
            ValueError: a branch has its own architecture, and `tokenizer` is None.
            CheckpointError: a backbone cannot be loaded.
        """
        if config.has_own_tokenizer and tokenizer is None:
            raise ValueError("a branch with its own architecture needs tokenizer=")
        text = image = None
        if config.text is not None:
            decoder, text_tokenizer = make_decoder(config.text, tokenizer, dtype)
            text = TextBranch(decoder, text_tokenizer, config.text)
        if config.image is not None:
            image = ImageBranch(make_towers(config.image, tokenizer, dtype), config.image)
        return cls(config, text, image, tokenizer if config.has_own_tokenizer else None)

    @property
    def device(self) -> torch.device:
        """Device of the head."""
        return self.weight.device

    def head(self, g_r2c: torch.Tensor | None, g_i2c: torch.Tensor | None) -> torch.Tensor:
        """Scores (N, A) in [0, 1] of g_r2c (N, A, 2 * d) and g_i2c (N, 2 * d); None for an absent branch."""
        parts = []
        if g_r2c is not None:
            parts.append(g_r2c)
        if g_i2c is not None:  # what relates image and candidate is the same for all aspects
            parts.append(g_i2c[:, None].expand(-1, len(self.config.aspects), -1))
        return self._scores(torch.cat(parts, dim=-1), self.weight, self.bias)

    def _scores(self, vectors: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Scores (...) in [0, 1] of the branches' vectors side by side (..., size), a row of weights for each."""
        return torch.sigmoid((self.fusion(vectors) * weight).sum(-1) + bias)

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
            parts.append(self.text(input_ids, attention_mask))
        if self.image is not None:
            assert clip_ids is not None
            towers = self.image.towers
            g_i2c = self.image.relate(towers.encode_image(pixels), towers.encode_text(clip_ids))
            parts.append(g_i2c if sample is None else g_i2c[sample])
        # The row of weights of each row's aspect: a batch may hold several aspects, as a data set gives them.
        return VelaOutput(scores=self._scores(torch.cat(parts, dim=-1), self.weight[aspect], self.bias[aspect]))
