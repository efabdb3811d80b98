"""The two towers of CLIP, and how images and captions become their inputs."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import nn

from reward.backbones.fit import foreign_errors
from reward.backbones.language import CHARACTERS_PER_TOKEN, CaptionIds, Remembered
from reward.checkpoints.caches import TensorCache
from reward.checkpoints.fingerprints import fingerprint_network
from reward.errors import ImageError

if TYPE_CHECKING:
    from PIL import Image

# Token ids (B, context_length), int64, of B captions, and for each caption whether it was cut to fit.
CaptionTokenizer: TypeAlias = Callable[[Sequence[str]], tuple[torch.Tensor, list[bool]]]

_MOST_STRETCH = 500  # largest ratio of an image's sides; scaled to 224 pixels, such an image takes 75 MB


class ClipTowers(nn.Module, ABC):
    """The two towers of a CLIP, with its image transform and its tokenizer, whatever library it comes from."""

    clip: Any  # the network
    tokenizer: CaptionTokenizer  # does not parse control tokens in the texts
    context_length: int  # tokens that it reads of a caption
    embed_dim: int  # size of the features
    preprocess_cfg: dict[str, Any]  # the settings of `preprocess`
    # A SigLIP's probability that image and caption match is sigmoid(scale * cosine + bias); None for another CLIP.
    scale_and_bias: tuple[float, float] | None = None

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device

    def tokenize(self, texts: Sequence[str]) -> tuple[torch.Tensor, list[bool]]:
        """Token ids (B, context_length), int64, and for each text whether it was cut to fit."""
        return self.tokenizer(texts)

    @abstractmethod
    def preprocess(self, image: Image.Image) -> Any:
        """What `encode_image` reads of an RGB image, on the CPU.

        Levels (3, H, W), uint8, which `encode_image` normalises; or normalised pixels, float32; or, where a network
        reads more than pixels, a dict of tensors.

        Raises:
            ImageError: the image is so long and thin that scaling it would take hundreds of megabytes.
        """

    def read_ahead(self, texts: Sequence[str]) -> None:
        """Tokenises texts that will be encoded later, in a thread beside the network, so that their ids are ready then.

        Only ClipTokenizer remembers them, and may be used by two threads at a time; with another nothing is done.
        """
        if isinstance(self.tokenizer, ClipTokenizer):
            for text in texts:
                self.tokenizer.ids(text)

    def feature_caches(
        self, folder: str | os.PathLike[str], size: int | str, code: str, *facts: Any
    ) -> dict[str, TensorCache]:
        """{"images": a store on disk of image features}, so that new captions of known images cost the captions only.

        Scores are equal up to rounding, as between batch sizes. Entries are found by the weights as they are now.

        Args:
            folder: of the store; made if absent.
            size: most bytes of the store, as a number or such as `"20GB"`.
            code: fingerprint of the code that makes the features.
            facts: what else the features depend on beside these towers.

        Raises:
            ConfigError: the folder cannot be written, or the size is wrong.
        """
        # Weights do not say with which activation a network computes; its `repr` does.
        towers = (self.preprocess_cfg, repr(self), self.device.type)
        fingerprint = fingerprint_network(self, code, *towers, *facts)
        return {"images": TensorCache(folder, "images", fingerprint, size=size)}

    @abstractmethod
    def encode_image(self, pixels: Any) -> torch.Tensor:
        """Image features (B, embed_dim), not normalised, of what `stacked_on` makes of B preprocessed images."""

    @abstractmethod
    def encode_text(self, ids: torch.Tensor) -> torch.Tensor:
        """Text features (B, embed_dim), not normalised, of token ids (B, context_length) on any device.

        Pass ids that are on the CPU: the longest caption is looked up there, and the CPU need not wait for a GPU.
        """


class OpenClipTowers(ClipTowers):
    """The towers of a model of open_clip.

    Args:
        clip: an open_clip model with `encode_image` and `encode_text`.
        tokenizer: see ClipTowers.
        preprocess_cfg: open_clip's preprocessing settings (size, mean, std, interpolation, resize_mode).
    """

    def __init__(
        self,
        clip: Any,
        tokenizer: CaptionTokenizer,
        preprocess_cfg: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        from open_clip.transform import PreprocessCfg, image_transform_v2

        self.clip = clip
        self.tokenizer = tokenizer
        sides = clip.visual.image_size  # a number, or (height, width)
        self.image_size: int = sides if isinstance(sides, int) else sides[0]
        self.preprocess_cfg = {**(preprocess_cfg or {}), "size": self.image_size}
        with foreign_errors("preprocess_cfg"):
            transform = image_transform_v2(PreprocessCfg(**self.preprocess_cfg), is_train=False)
            # The last two steps make a tensor and normalise it: this takes less time on the network's device.
            self._scaling_steps = transform.transforms[:-2]
            normalize = transform.transforms[-1]
            # A value for each channel: any other number of values raises here.
            mean, std = np.asarray([normalize.mean, normalize.std], dtype=float).reshape(2, 3)
        self.mean, self.std = tuple(mean.tolist()), tuple(std.tolist())
        text_tower = getattr(clip, "text", clip)
        self.context_length = text_tower.context_length
        # A tower may not say how long its features are; then the last matrix does.
        embed_dim = getattr(clip.visual, "output_dim", None) or getattr(text_tower, "output_dim", None)
        self.embed_dim = embed_dim if isinstance(embed_dim, int) else clip.text_projection.shape[1]

    def preprocess(self, image: Image.Image) -> torch.Tensor:
        if self.preprocess_cfg.get("resize_mode") != "squash":
            refuse_thin(image)
        for step in self._scaling_steps:
            image = step(image)
        return torch.from_numpy(np.array(image, dtype=np.uint8).transpose(2, 0, 1))

    def encode_image(self, pixels: torch.Tensor) -> torch.Tensor:
        levels = normalized(pixels, self.mean, self.std)
        dtype = next(self.clip.visual.parameters()).dtype
        features: torch.Tensor = self.clip.encode_image(levels.to(dtype))
        return features

    def encode_text(self, ids: torch.Tensor) -> torch.Tensor:
        from open_clip import CLIP

        clip = self.clip
        # Tokens after the end token have no effect if attention is causal, and the features are those of that token.
        ends_early = type(clip) is CLIP and clip.attn_mask is not None and clip.text_pool_type in ("argmax", "eos")
        if not ends_early:
            features: torch.Tensor = clip.encode_text(ids.to(self.device))
            return features
        if clip.text_pool_type == "argmax":  # CLIP's end token has the highest id of its vocabulary
            ends = ids.argmax(1)
        else:
            ends = (ids == clip.text_eos_id).int().argmax(1)
        longest = int(ends.max()) + 1
        return _encode_text_up_to_end(clip, ids[:, :longest].to(self.device))


def _encode_text_up_to_end(clip: Any, ids: torch.Tensor) -> torch.Tensor:
    """`clip.encode_text` for rows without the padding that all of them share, which gives the same features.

    open_clip itself always encodes all positions, 248 for Long-CLIP.
    """
    from open_clip.transformer import text_global_pool

    length = ids.shape[1]
    dtype = clip.transformer.get_cast_dtype()
    states = clip.token_embedding(ids).to(dtype) + clip.positional_embedding[:length].to(dtype)
    states = clip.ln_final(clip.transformer(states, attn_mask=clip.attn_mask[:length, :length]))
    features = text_global_pool(states, ids, clip.text_pool_type, eos_token_id=clip.text_eos_id)
    if clip.text_projection is None:
        return features
    if isinstance(clip.text_projection, nn.Linear):
        return clip.text_projection(features)
    return features @ clip.text_projection


class ClipTokenizer:
    """Captions as rows of one length: start token, caption, end token, padding; see `CaptionIds`.

    Args:
        encode: gives the ids of a text without start and end token; it must not parse control tokens.
        start, end, pad: ids of these tokens.
        context_length: length of every row.
    """

    def __init__(
        self, encode: Callable[[str], list[int]], *, start: int, end: int, pad: int, context_length: int
    ) -> None:
        self.ids = CaptionIds(encode, start=start, end=end, most_tokens=context_length)
        self.pad, self.context_length = pad, context_length

    def __call__(self, texts: Sequence[str]) -> tuple[torch.Tensor, list[bool]]:
        """Token ids (B, context_length), int64, and for each text whether it was cut."""
        ids = np.full((len(texts), self.context_length), self.pad, dtype=np.int64)
        cut = []
        for row, text in zip(ids, texts, strict=True):
            tokens, was_cut = self.ids(text)
            row[: len(tokens)] = tokens
            cut.append(was_cut)
        return torch.from_numpy(ids), cut


def make_bpe_tokenizer(tokenizer: Any) -> ClipTokenizer:
    """ClipTokenizer on OpenAI's CLIP vocabulary, which Long-CLIP and most open_clip models use.

    Args:
        tokenizer: open_clip's SimpleTokenizer; it is changed.
    """
    import regex

    # The pattern of open_clip matches control tokens first; this one leaves them out.
    words = r"""'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"""
    tokenizer.pat = regex.compile(words, regex.IGNORECASE)
    tokenizer.cache = _NoCache()
    return ClipTokenizer(
        _BpeEncoder(tokenizer),
        start=tokenizer.sot_token_id,
        end=tokenizer.eot_token_id,
        pad=0,
        context_length=tokenizer.context_length,
    )


class _NoCache(dict[str, str]):
    """Stays empty. The tokenizer's cache would grow without end and change the scorer's fingerprint."""

    def __setitem__(self, key: str, value: str) -> None:
        pass


class _BpeEncoder:
    """`SimpleTokenizer.encode`, which looks at each word once."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._words = Remembered(self._ids_of_word, 65_536)

    def __call__(self, text: str) -> list[int]:
        ids: list[int] = []
        for word in self.tokenizer.pat.findall(self.tokenizer.clean_fn(text)):
            ids += self._words(word)
        return ids

    def _ids_of_word(self, word: str) -> list[int]:
        tokenizer = self.tokenizer
        letters = "".join(tokenizer.byte_encoder[byte] for byte in word.encode("utf-8"))
        return [tokenizer.encoder[token] for token in tokenizer.bpe(letters).split(" ")]


class HubClipTokenizer:
    """The interface of ClipTokenizer for the tokenizer that an open_clip configuration names."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.tokenizer.tokenizer.split_special_tokens = True  # captions must not produce control tokens
        self.context_length = tokenizer.context_length

    def __call__(self, texts: Sequence[str]) -> tuple[torch.Tensor, list[bool]]:
        # The rest of a very long text would be cut, and would only take time.
        most_characters = CHARACTERS_PER_TOKEN * self.context_length
        beginnings = [text[:most_characters] for text in texts]
        # open_clip's tokenizer cuts without a word, so the one inside it tells how many tokens there are.
        rows = self.tokenizer.tokenizer(beginnings).input_ids
        cut = []
        for text, row in zip(texts, rows, strict=True):
            cut.append(len(row) > self.context_length or len(text) > most_characters)
        return self.tokenizer(beginnings), cut


def refuse_thin(image: Image.Image) -> None:
    """Refuses an image that is too long and thin to be scaled by its shorter side."""
    if max(image.size) / min(image.size) > _MOST_STRETCH:
        raise ImageError(
            f"image of {image.width} x {image.height} pixels is too long and thin: its sides may differ by a "
            f"factor of {_MOST_STRETCH} at most; crop it"
        )


def stacked_on(device: torch.device, images: Sequence[Any]) -> Any:
    """Images (N, 3, H, W) on a device, of N images (3, H, W) on the CPU; of N dicts of tensors, one dict.

    They are joined on the device: on the CPU it took 33 ms for four images, where an H200 then needed 4 ms for all of
    CLIPScore. Images in pinned memory are copied while the CPU goes on.
    """
    if isinstance(images[0], Mapping):
        return {name: stacked_on(device, [image[name] for image in images]) for name in images[0]}
    return torch.stack([torch.as_tensor(image).to(device, non_blocking=True) for image in images])


def normalized(pixels: torch.Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> torch.Tensor:
    """Pixels (N, 3, H, W) as a network reads them, on their device.

    Levels, uint8, become (level / 255 - mean) / std in float32; floats are normalised already and stay as they are.
    """
    if pixels.dtype != torch.uint8:
        return pixels
    pixels = pixels.contiguous().float().div_(255)
    # Channel by channel, because plain numbers need no copy to the device.
    for channel in range(3):
        pixels[..., channel, :, :].sub_(mean[channel]).div_(std[channel])
    return pixels
