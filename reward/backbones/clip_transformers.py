"""CLIPs of transformers: CLIP, SigLIP and whatever else `AutoModel` gives that embeds images and captions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image

from reward.backbones.clip import ClipTowers, normalized, refuse_thin
from reward.backbones.fit import foreign_errors
from reward.backbones.language import CHARACTERS_PER_TOKEN
from reward.backbones.pretrained import load_pretrained
from reward.errors import CheckpointError

TRANSFORMERS_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")  # how transformers calls its files
# Networks whose features do not change with padding on the right, which they may be spared.
_IGNORE_PADDING = ("clip", "metaclip_2", "altclip", "chinese_clip")
_POSITIONS_COUNT = ("clip",)  # whose tokenizers may still say 77 where a longer table of positions was trained


class ProcessorTokens:
    """Captions in the tokens of a processor, which are those of `AutoProcessor` but for control tokens in the text.

    Args:
        tokenizer: a tokenizer of transformers. If its settings say `do_lower_case`, captions are lowered, as those of
            SigLIP 2 were in training: its tokenizer forgets to.
        context_length: length of every row.

    Example:
        >>> from transformers import BertTokenizer
        >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "red", "star"]
        >>> tokens = ProcessorTokens(BertTokenizer({word: number for number, word in enumerate(words)}), 5)
        >>> ids, cut = tokens(["A star", "a red red red star"])
        >>> ids.tolist(), cut
        ([[2, 5, 7, 3, 0], [2, 5, 6, 6, 3]], [False, True])
    """

    def __init__(self, tokenizer: Any, context_length: int) -> None:
        self.tokenizer, self.context_length = tokenizer, context_length
        self.lowers = bool(tokenizer.init_kwargs.get("do_lower_case"))
        control: list[str] = []
        for name, token in tokenizer.special_tokens_map.items():
            if name != "unk_token":
                control += [token] if isinstance(token, str) else token
        self.control = frozenset(tokenizer.convert_tokens_to_ids(control))
        whole = tokenizer("a").input_ids
        bare = tokenizer("a", add_special_tokens=False).input_ids
        if set(bare) <= {tokenizer.unk_token_id}:  # transformers makes one up where there are no files
            raise CheckpointError("its tokenizer knows no letter: is tokenizer.json beside the weights?")
        first = next(index for index in range(len(whole)) if whole[index : index + len(bare)] == bare)
        self.start, self.end = whole[:first], whole[first + len(bare) :]
        self.pad: int = tokenizer.pad_token_id
        self.pads_right = tokenizer.padding_side == "right"

    def __call__(self, texts: Sequence[str]) -> tuple[torch.Tensor, list[bool]]:
        """Token ids (B, context_length), int64, and for each text whether it was cut."""
        most_characters = CHARACTERS_PER_TOKEN * self.context_length
        room = self.context_length - len(self.start + self.end)
        beginnings = [(text.lower() if self.lowers else text)[:most_characters] for text in texts]
        rows = self.tokenizer(beginnings, add_special_tokens=False, split_special_tokens=True, verbose=False).input_ids
        ids = torch.full((len(texts), self.context_length), self.pad)
        cut = []
        for row, text, row_ids in zip(rows, texts, ids, strict=True):
            tokens = [token for token in row if token not in self.control]
            cut.append(len(tokens) > room or len(text) > most_characters)
            tokens = [*self.start, *tokens[:room], *self.end]
            if self.pads_right:
                row_ids[: len(tokens)] = torch.tensor(tokens)
            else:
                row_ids[-len(tokens) :] = torch.tensor(tokens)
        return ids, cut

    def mask(self, ids: torch.Tensor) -> torch.Tensor:
        """Mask (B, L), int64, of rows: 1 where a token is, also an end token that has the id of the padding."""
        is_pad = ids == self.pad
        if self.pads_right and self.pad in self.end:
            return (is_pad.cumsum(1) <= 1).long()
        return (~is_pad).long()


class TransformersTowers(ClipTowers):
    """The towers of a model of transformers with `get_image_features` and `get_text_features`.

    Args:
        clip: the model.
        processor: with a tokenizer and an image processor.
    """

    def __init__(self, clip: Any, processor: Any) -> None:
        super().__init__()
        self.clip = clip
        self.kind: str = clip.config.model_type
        text = clip.config.text_config
        size = getattr(clip.config, "projection_dim", None) or getattr(text, "projection_size", None)
        self.embed_dim = int(size or text.hidden_size)
        self.tokenizer = self.tokens = ProcessorTokens(processor.tokenizer, _context_length(clip.config, processor))
        self.context_length = self.tokens.context_length
        self.image_processor = processor.image_processor
        self.preprocess_cfg = settings = self.image_processor.to_dict()
        self.mean = tuple(settings.get("image_mean") or ())
        self.std = tuple(settings.get("image_std") or ())
        # To scale levels to [0, 1] and to normalise them takes less time on the network's device. So the processor is
        # asked for levels, unless it does more with them, as that of a SigLIP 2 of any image size (NaFlex) does.
        self._options: dict[str, bool] = {}
        is_usual = settings.get("do_rescale") and settings.get("do_normalize") and len(self.mean) == len(self.std) == 3
        if is_usual and abs(255 * settings.get("rescale_factor", 0) - 1) <= 1e-6:
            self._options = {"do_rescale": False, "do_normalize": False}
            tensors = self._processed(Image.new("RGB", (64, 64)))
            pixels = tensors["pixel_values"]
            if len(tensors) > 1 or pixels.dtype != torch.uint8 or pixels.ndim != 3 or len(pixels) != 3:
                self._options = {}

    def preprocess(self, image: Image.Image) -> Any:
        """See `ClipTowers.preprocess`; the dict is that of a SigLIP 2 of any image size."""
        if (self.preprocess_cfg.get("size") or {}).get("shortest_edge"):
            refuse_thin(image)
        tensors = self._processed(image)
        return tensors["pixel_values"] if set(tensors) == {"pixel_values"} else tensors

    def _processed(self, image: Image.Image) -> dict[str, torch.Tensor]:
        tensors = self.image_processor(image, return_tensors="pt", **self._options)
        return {name: tensor[0] for name, tensor in tensors.items()}

    def encode_image(self, pixels: torch.Tensor | Mapping[str, torch.Tensor]) -> torch.Tensor:
        inputs = dict(pixels) if isinstance(pixels, Mapping) else {"pixel_values": pixels}
        inputs["pixel_values"] = normalized(inputs["pixel_values"], self.mean, self.std).to(self.clip.dtype)
        return self._features(self.clip.get_image_features(**inputs))

    def encode_text(self, ids: torch.Tensor) -> torch.Tensor:
        mask = self.tokens.mask(ids)
        if self.kind in _IGNORE_PADDING and self.tokens.pads_right:
            longest = int(mask.sum(1).max())
            ids, mask = ids[:, :longest], mask[:, :longest]
        inputs = {"input_ids": ids.to(self.device)}
        if "attention_mask" in self.tokens.tokenizer.model_input_names:
            inputs["attention_mask"] = mask.to(self.device)
        return self._features(self.clip.get_text_features(**inputs))

    def _features(self, output: Any) -> torch.Tensor:
        features = getattr(output, "pooler_output", output)
        if not isinstance(features, torch.Tensor) or features.shape[-1] != self.embed_dim:
            raise CheckpointError(f"a {self.kind!r} of transformers has no embeddings that can be compared")
        return features[:, 0] if features.ndim == 3 else features  # FLAVA maps all states, and compares the first


def load_transformers_clip(checkpoint: str | os.PathLike[str]) -> TransformersTowers:
    """Loads the towers of a model of transformers, in float32, without running its code.

    Args:
        checkpoint: a folder that `save_pretrained` wrote, with its processor, or a Hub id.
    """
    from transformers import AutoModel, AutoProcessor

    where = f"CLIP {os.fspath(checkpoint)!r}"
    check_kind(checkpoint, where)
    clip, processor = load_pretrained(checkpoint, AutoModel, AutoProcessor, "CLIP", strict=True)
    with foreign_errors(where):
        return TransformersTowers(clip, processor)


def check_kind(checkpoint: str | os.PathLike[str], where: str) -> None:
    """Refuses what is no CLIP by its configuration, before its weights are read."""
    from transformers import CONFIG_MAPPING, MODEL_MAPPING, AutoConfig, PreTrainedConfig

    with foreign_errors(f"{where}: its config.json"):
        settings, _ = PreTrainedConfig.get_config_dict(checkpoint)
        kind = settings.get("model_type")
        network = None
        if kind in CONFIG_MAPPING:
            config = AutoConfig.from_pretrained(checkpoint, trust_remote_code=False)
            network = MODEL_MAPPING.get(type(config), None)
    if kind not in CONFIG_MAPPING and settings.get("auto_map"):
        raise CheckpointError(f"{where} is a {kind!r}, which runs code of its own; that is refused, take another CLIP")
    if not hasattr(network, "get_image_features") or not hasattr(network, "get_text_features"):
        raise CheckpointError(
            f"{where} is a {kind!r}, which does not embed both images and captions; take a CLIP or a SigLIP, such as "
            "'openai/clip-vit-large-patch14'"
        )


def _context_length(config: Any, processor: Any) -> int:
    """Tokens that a CLIP reads of a caption: what its processor says, else its positions or its tokenizer's length."""
    stated = getattr(processor, "text_kwargs", {}).get("max_length")
    positions: int = config.text_config.max_position_embeddings
    if config.model_type in _POSITIONS_COUNT:
        return positions
    return int(min(stated or positions, positions, processor.tokenizer.model_max_length))
