"""Image and text towers of CLIP: open_clip models, Long-CLIP checkpoints, and models built from a configuration."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from reward.backbones.clip_config import OPEN_CLIP_CONFIG, build_clip, check_open_clip, check_preprocess
from reward.backbones.clip_text import ClipTokenizer, HubClipTokenizer, make_bpe_tokenizer, make_clip_tokenizer
from reward.backbones.fit import check_fit, foreign_errors
from reward.backbones.longclip import clip_from_original_layout, is_original_layout
from reward.errors import CheckpointError, ImageError

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["ClipTowers", "build_clip", "load_clip", "towers_of_architecture"]

_LONG_CLIP_FILES = {
    "BeichenZhang/LongCLIP-L": "longclip-L.pt",
    "BeichenZhang/LongCLIP-B": "longclip-B.pt",
}
_MOST_STRETCH = 500  # of the sides of an image; scaled to 224 pixels, that is 75 MB
_WEIGHT_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")


class ClipTowers(nn.Module):
    """The two towers of a CLIP, with what turns pictures and captions into their inputs.

    Args:
        clip: an open_clip model with `encode_image` and `encode_text`.
        tokenizer: `texts -> (ids, cut)`; must not parse control tokens in the texts.
        preprocess_cfg: open_clip's preprocessing settings (size, mean, std, interpolation, resize_mode).
    """

    def __init__(
        self,
        clip: Any,
        tokenizer: Callable[[Sequence[str]], tuple[torch.Tensor, list[bool]]],
        preprocess_cfg: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        from open_clip.transform import PreprocessCfg, image_transform_v2

        check_preprocess(preprocess_cfg)
        self.clip = clip
        self.tokenizer = tokenizer
        size = clip.visual.image_size
        self.image_size: int = size if isinstance(size, int) else size[0]
        self.preprocess_cfg = {**(preprocess_cfg or {}), "size": self.image_size}
        with foreign_errors("preprocess_cfg"):
            self._transform = image_transform_v2(PreprocessCfg(**self.preprocess_cfg), is_train=False)
        self.context_length: int = getattr(clip, "text", clip).context_length
        self.embed_dim = _embed_dim(clip)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def preprocess(self, image: Image.Image) -> torch.Tensor:
        """Pixels (3, image_size, image_size), float32, of an RGB image.

        Raises:
            ImageError: the image is so long and thin that scaling its short side would take hundreds of megabytes.
        """
        ratio = max(image.size) / min(image.size)
        if self.preprocess_cfg.get("resize_mode", "shortest") != "squash" and ratio > _MOST_STRETCH:
            raise ImageError(
                f"image of {image.width} x {image.height} pixels is too long and thin: its sides may differ by a "
                f"factor of {_MOST_STRETCH} at most; crop it"
            )
        pixels: torch.Tensor = self._transform(image)
        return pixels

    def tokenize(self, texts: Sequence[str]) -> tuple[torch.Tensor, list[bool]]:
        """Token ids (B, context_length), int64, and for each text whether it was cut to fit."""
        return self.tokenizer(texts)

    def encode_image(self, pixels: torch.Tensor) -> torch.Tensor:
        """Image features (B, embed_dim), not normalised, of pixels (B, 3, image_size, image_size)."""
        features: torch.Tensor = self.clip.encode_image(pixels.to(self._dtype()))
        return features

    def encode_text(self, ids: torch.Tensor) -> torch.Tensor:
        """Text features (B, embed_dim), not normalised, of token ids (B, context_length)."""
        features: torch.Tensor
        if self._ends_early():
            features = _encode_text_up_to_end(self.clip, ids)
        else:
            features = self.clip.encode_text(ids)
        return features

    def _ends_early(self) -> bool:
        """Whether nothing behind the end token can matter: causal attention, and pooling at the end token."""
        from open_clip import CLIP

        clip = self.clip
        return type(clip) is CLIP and clip.attn_mask is not None and clip.text_pool_type in ("argmax", "eos")

    def _dtype(self) -> torch.dtype:
        dtype: torch.dtype = next(self.clip.visual.parameters()).dtype
        return dtype


def _encode_text_up_to_end(clip: Any, ids: torch.Tensor) -> torch.Tensor:
    """`clip.encode_text` without the padding that all rows share: the same features for less work.

    open_clip itself always runs all of its positions, 248 for Long-CLIP.
    """
    from open_clip.transformer import text_global_pool

    ends = ids.argmax(1) if clip.text_pool_type == "argmax" else (ids == clip.text_eos_id).int().argmax(1)
    ids = ids[:, : int(ends.max()) + 1]
    length = ids.shape[1]
    dtype = clip.transformer.get_cast_dtype()
    states = clip.token_embedding(ids).to(dtype) + clip.positional_embedding[:length].to(dtype)
    states = clip.ln_final(clip.transformer(states, attn_mask=clip.attn_mask[:length, :length]))
    pooled = text_global_pool(states, ids, clip.text_pool_type, eos_token_id=clip.text_eos_id)
    if isinstance(clip.text_projection, nn.Linear):
        return clip.text_projection(pooled)
    return pooled if clip.text_projection is None else pooled @ clip.text_projection


def _embed_dim(clip: Any) -> int:
    for tower in (clip.visual, getattr(clip, "text", clip)):
        if isinstance(getattr(tower, "output_dim", None), int):
            return int(tower.output_dim)
    return int(clip.text_projection.shape[1])


def towers_of_architecture(architecture: dict[str, Any], tokenizer: Any, clip: nn.Module | None = None) -> ClipTowers:
    """Towers of which a checkpoint holds all weights; they are fresh, and the caller must load or train them.

    Args:
        architecture: `{"model_cfg", "preprocess_cfg"}` as in an open_clip_config.json, and `"tokenizer"` with the ids
            `{"start", "end", "pad"}`.
        tokenizer: a `transformers` tokenizer.
        clip: the network, if there is one already.
    """
    model_cfg = architecture["model_cfg"]
    texts = make_clip_tokenizer(
        tokenizer, **architecture["tokenizer"], context_length=model_cfg["text_cfg"]["context_length"]
    )
    return ClipTowers(clip or build_clip(model_cfg), texts, architecture.get("preprocess_cfg"))


def load_clip(
    source: str | os.PathLike[str],
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> ClipTowers:
    """Loads the towers of a CLIP model, in eval mode.

    Args:
        source: one of
            - an open_clip model on the Hub, `"hf-hub:org/name"` or `"org/name"`;
            - an architecture of open_clip with a tag of its weights, `"ViT-B-32:openai"`, see
              `open_clip.list_pretrained()`;
            - a folder with `open_clip_config.json` and `open_clip_model.safetensors`, plain or as `"local-dir:path"`;
            - a CLIP or Long-CLIP checkpoint in its original key layout: a `.pt` or `.safetensors` file, or a folder
              that holds one; `"BeichenZhang/LongCLIP-L"` is fetched from the Hub.
        device, dtype: where and how to hold the weights; by default on the CPU in float32.

    Returns:
        An object with `.encode_image(pixels)` and `.encode_text(ids)`, which give features that are not normalised,
        `.preprocess(image)`, `.tokenize(texts)`, `.embed_dim`, `.context_length` and `.image_size`.

    Raises:
        CheckpointError: nothing is found at `source`, or the weights do not fit in every key. Weights are never left
            at their random initial values.

    Example:
        >>> towers = load_clip("tests/golden/longclip_tiny_weights.safetensors")
        >>> towers.context_length, towers.image_size, towers.embed_dim
        (248, 32, 32)
    """
    name = os.fspath(source)
    path = Path(name.removeprefix("local-dir:"))
    if name in _LONG_CLIP_FILES and not path.exists():
        towers = _load_original(_download(name, _LONG_CLIP_FILES[name]))
    elif path.is_file():
        towers = _load_original(path)
    elif path.is_dir():
        towers = _load_folder(path)
    elif name.startswith("local-dir:"):
        raise CheckpointError(f"no folder {str(path)!r}")
    elif path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise CheckpointError(f"CLIP checkpoint {name!r} does not exist")
    elif ":" in name and not name.startswith("hf-hub:"):
        towers = _load_open_clip(*name.split(":", 1))
    else:
        towers = _load_open_clip(name if name.startswith("hf-hub:") else f"hf-hub:{name}")
    return towers.to(device=device, dtype=dtype or torch.float32).eval()


def _load_folder(folder: Path) -> ClipTowers:
    if (folder / OPEN_CLIP_CONFIG).is_file():
        return _load_open_clip(f"local-dir:{folder}")
    files = sorted(file for file in folder.iterdir() if file.suffix in _WEIGHT_SUFFIXES)
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise CheckpointError(
            f"{str(folder)!r} holds no open_clip_config.json; a folder with a checkpoint in the original layout must "
            f"hold exactly one weight file, found: {names}"
        )
    return _load_original(files[0])


def _load_original(file: Path) -> ClipTowers:
    from reward.checkpoints import load_strict, load_tensors

    tensors = load_tensors(file)
    if not is_original_layout(tensors):
        raise CheckpointError(
            f"{str(file)!r} is not a CLIP or Long-CLIP checkpoint in the original key layout; for an open_clip model "
            "name the folder that holds its open_clip_config.json"
        )
    metadata = None
    if file.suffix == ".safetensors":
        from safetensors import safe_open

        with safe_open(file, "pt") as opened:
            metadata = opened.metadata()
    with foreign_errors(repr(str(file))):  # shapes of which no CLIP can be made
        model_cfg, state = clip_from_original_layout(tensors, metadata=metadata)
        shapes = {key: tuple(value.shape) for key, value in state.items()}
        check_fit(lambda: build_clip(model_cfg), shapes, settings=model_cfg, where=repr(str(file)))
        clip = build_clip(model_cfg)
    load_strict(clip, state, where=str(file))
    from open_clip import SimpleTokenizer

    texts = make_bpe_tokenizer(SimpleTokenizer(context_length=model_cfg["text_cfg"]["context_length"]))
    return ClipTowers(clip, texts)


def _download(repo_id: str, filename: str) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(repo_id, filename))
    except (OSError, ValueError) as error:  # every error of the client is one of these
        raise CheckpointError(
            f"cannot fetch {filename} of {repo_id} from the Hub: {error}. Download it once where there is a network, "
            "and pass the path of the file."
        ) from error


def _load_open_clip(name: str, tag: str | None = None) -> ClipTowers:
    import open_clip
    from open_clip.pretrained import get_pretrained_cfg

    from reward.checkpoints import ordinary_loading

    whole = name if tag is None else f"{name}:{tag}"
    config = check_open_clip(name, _WEIGHT_SUFFIXES, _download)
    try:
        with ordinary_loading():
            # open_clip only warns of weights that were trained with the other activation, and scores with them
            gelu = tag is not None and bool(get_pretrained_cfg(name, tag).get("quick_gelu", False))
            clip = open_clip.create_model(name, pretrained=tag, require_pretrained=True, force_quick_gelu=gelu)
            # before what the configuration says: its own tokenizer_kwargs must not switch code on
            trust = {"trust_remote_code": False} if config.get("text_cfg", {}).get("hf_tokenizer_name") else {}
            tokenizer = open_clip.get_tokenizer(name, **trust)
    except Exception as error:  # open_clip raises nearly every built-in error for files that do not fit
        raise CheckpointError(
            f"cannot load the open_clip model {whole!r}: {error}. Expected a folder or Hub repository with "
            "open_clip_config.json and open_clip_model.safetensors, or ARCHITECTURE:TAG as in "
            "open_clip.list_pretrained()."
        ) from error
    texts: ClipTokenizer | HubClipTokenizer
    if isinstance(tokenizer, open_clip.SimpleTokenizer):
        texts = make_bpe_tokenizer(tokenizer)
    else:
        texts = HubClipTokenizer(tokenizer)
    return ClipTowers(clip, texts, dict(open_clip.get_model_preprocess_cfg(clip)))
