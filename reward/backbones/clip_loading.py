"""Loads CLIP: open_clip models, CLIP and Long-CLIP in their original layout, and the small CLIP of the scenes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from reward.backbones.clip import ClipTokenizer, ClipTowers, HubClipTokenizer, make_bpe_tokenizer
from reward.backbones.clip_config import OPEN_CLIP_CONFIG, build_clip, check_open_clip
from reward.backbones.fit import check_fit, foreign_errors
from reward.backbones.language import PlainTextEncoder
from reward.backbones.pretrained import read_tokenizer
from reward.checkpoints import (
    WEIGHT_SUFFIXES,
    WEIGHTS_FILE,
    names_path,
    read_config,
    resolve_checkpoint,
    unsharded_loading,
)
from reward.errors import CheckpointError, ConfigError
from reward.tensors import load_strict, load_tensors, read_header, refuse_integers, refuse_stored_integers

__all__ = ["load_clip", "load_shipped_clip", "towers_of_architecture"]

_LONG_CLIP_FILES = {"BeichenZhang/LongCLIP-L": "longclip-L.pt", "BeichenZhang/LongCLIP-B": "longclip-B.pt"}
_KEPT_POSITIONS = 20  # Long-CLIP keeps the first 20 text positions of CLIP and learns a second table for the others
_NOT_WEIGHTS = ("input_resolution", "context_length", "vocab_size")  # sizes that OpenAI's files hold among the weights
_NEEDED = (
    "visual.conv1.weight",
    "visual.positional_embedding",
    "visual.proj",
    "positional_embedding",
    "text_projection",
    "token_embedding.weight",
)
_ACTIVATIONS = ("quick_gelu", "gelu")
_OF_LAION = "openClip_"  # how the authors of PAC-S name what they trained on from LAION's CLIP, and below from OpenAI's
_OF_OPENAI = ("clip_ViT-", "PAC++_clip_")
_SHIPPED = "image.towers.clip."  # prefix of the weights of the CLIP in the embedded VELA


def towers_of_architecture(architecture: dict[str, Any], tokenizer: Any) -> ClipTowers:
    """Builds towers with random weights from a checkpoint's configuration; the caller must load or train them.

    Args:
        architecture: `{"model_cfg", "preprocess_cfg"}` as in an open_clip_config.json, and `"tokenizer"` with the ids
            `{"start", "end", "pad"}`.
        tokenizer: a `transformers` tokenizer.
    """
    model_cfg = architecture["model_cfg"]
    context_length = model_cfg["text_cfg"]["context_length"]
    texts = ClipTokenizer(PlainTextEncoder(tokenizer), **architecture["tokenizer"], context_length=context_length)
    return ClipTowers(build_clip(model_cfg), texts, architecture.get("preprocess_cfg"))


def load_clip(
    source: str | os.PathLike[str],
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    activation: str | None = None,
) -> ClipTowers:
    """Loads the towers of a CLIP model, in eval mode.

    Args:
        source: one of
            - an open_clip model on the Hub, `"hf-hub:org/name"` or `"org/name"`;
            - an architecture of open_clip with a tag of its weights, `"ViT-B-32:openai"`, see
              `open_clip.list_pretrained()`;
            - a folder with `open_clip_config.json` and `open_clip_model.safetensors`, plain or as `"local-dir:path"`;
            - a CLIP or Long-CLIP checkpoint in its original key layout: a `.pt` or `.safetensors` file, or a folder
              that holds one; `"BeichenZhang/LongCLIP-L"` is fetched from the Hub. A file of PAC-S must have the name
              that its authors gave it, because only the name of openClip_ViT-L-14.pth says that it is LAION's CLIP.
        device, dtype: of the weights; by default the CPU and float32.
        activation: of a checkpoint in the original layout, `"quick_gelu"` or `"gelu"`. Its weights do not say; needed
            where neither an open_clip_config.json beside the file, nor what is known of the file does.

    Returns:
        The towers; features of `encode_image` and `encode_text` are not normalised.

    Raises:
        CheckpointError: there is no such source, its weights do not fit, or its activation is not known. No weight is
            ever left at a random value.
        ConfigError: no such activation, or one for a source that states its own.

    Example:
        >>> towers = load_clip("tests/golden/longclip_tiny_weights.safetensors")
        >>> towers.context_length, towers.image_size, towers.embed_dim
        (248, 32, 32)
    """
    name = os.fspath(source)
    path = Path(name.removeprefix("local-dir:"))
    if activation not in (None, *_ACTIVATIONS):
        raise ConfigError(f"activation must be one of {', '.join(_ACTIVATIONS)}, got {activation!r}")
    original = _original_file(name, path)
    if original is not None:
        towers = _load_original(original, activation)
    elif activation is not None:
        raise ConfigError(f"CLIP {name!r} is no file in the original layout: it states its activation itself")
    elif path.is_dir():
        towers = _load_open_clip(f"local-dir:{path}")
    elif name.startswith("local-dir:"):
        raise CheckpointError(f"no folder {str(path)!r}")
    elif names_path(name):
        raise CheckpointError(f"CLIP checkpoint {name!r} does not exist")
    elif ":" in name and not name.startswith("hf-hub:"):
        towers = _load_open_clip(*name.split(":", 1))
    else:
        towers = _load_open_clip(name if name.startswith("hf-hub:") else f"hf-hub:{name}")
    return towers.to(device=device, dtype=dtype or torch.float32).eval()


def _original_file(name: str, path: Path) -> Path | None:
    """The file of a checkpoint in the original layout; None if the source is another one."""
    if name in _LONG_CLIP_FILES and not path.exists():
        return _download(name, _LONG_CLIP_FILES[name])
    if not path.is_dir() or (path / OPEN_CLIP_CONFIG).is_file():
        return path if path.is_file() else None
    files = sorted(file for file in path.iterdir() if file.suffix in WEIGHT_SUFFIXES)
    if len(files) != 1:
        names = ", ".join(file.name for file in files) or "none"
        raise CheckpointError(
            f"{str(path)!r} holds no open_clip_config.json; a folder with a checkpoint in the original layout must "
            f"hold exactly one weight file, but it holds: {names}"
        )
    return files[0]


def _load_original(file: Path, activation: str | None) -> ClipTowers:
    with foreign_errors(repr(str(file))):
        stored = load_tensors(file)
        refuse_integers({key: value for key, value in stored.items() if key not in _NOT_WEIGHTS}, where=repr(str(file)))
        tensors = _without_lora(stored)
    if not all(key in tensors for key in _NEEDED):
        raise CheckpointError(
            f"{str(file)!r} is not a CLIP or Long-CLIP checkpoint in the original key layout; for an open_clip model "
            "name the folder that holds its open_clip_config.json"
        )
    metadata = read_header(file).metadata if file.suffix == ".safetensors" else {}
    with foreign_errors(repr(str(file))):  # shapes of which no CLIP can be made
        model_cfg, state = _of_original_layout(tensors, metadata)
        stated = _stated(file)
        model_cfg["quick_gelu"] = _is_quick(file, stored, stated, activation)
        shapes = {key: tuple(value.shape) for key, value in state.items()}
        check_fit(lambda: build_clip(model_cfg), shapes, settings=model_cfg, where=repr(str(file)))
        clip = build_clip(model_cfg)
    load_strict(clip, state, where=str(file))
    from open_clip import SimpleTokenizer

    texts = make_bpe_tokenizer(SimpleTokenizer(context_length=model_cfg["text_cfg"]["context_length"]))
    of_laion = {"mean": [0.5] * 3, "std": [0.5] * 3} if file.name.startswith(_OF_LAION) else None
    return ClipTowers(clip, texts, stated.get("preprocess_cfg", of_laion))


def _stated(file: Path) -> dict[str, Any]:
    """The open_clip_config.json beside a file; {} if there is none."""
    path = file.with_name(OPEN_CLIP_CONFIG)
    config: Any = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not isinstance(config, dict) or (config and not isinstance(config.get("model_cfg"), dict)):
        raise CheckpointError(f"{str(path)!r} has no model_cfg")
    return config


def _is_quick(
    file: Path, stored: Mapping[str, torch.Tensor], stated: Mapping[str, Any], activation: str | None
) -> bool:
    """Whether a checkpoint in the original layout was trained with QuickGELU: weights of both have the same names.

    What is told wins, then the configuration beside the file, then what is known: Long-CLIP and OpenAI's own files,
    which hold a second table of positions or sizes among the weights, and the files of PAC-S, by their names.
    """
    if activation is not None:
        return activation == "quick_gelu"
    if stated:
        return bool(stated["model_cfg"].get("quick_gelu", False))
    if "positional_embedding_res" in stored or any(name in stored for name in _NOT_WEIGHTS):
        return True
    if file.name.startswith((_OF_LAION, *_OF_OPENAI)):
        return not file.name.startswith(_OF_LAION)
    raise CheckpointError(
        f"{str(file)!r} does not say with which activation it was trained, and with the other its scores are wrong: "
        "give activation='quick_gelu' (OpenAI's weights and what was trained on from them) or activation='gelu' (most "
        f"of open_clip's own). For a command, put {OPEN_CLIP_CONFIG} beside the file and name the file; "
        '{"model_cfg": {"quick_gelu": false}} is enough in it'
    )


def _without_lora(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights that PAC-S++ runs with: those of attention and `conv1` get their LoRA, with alpha 1.

    The others hold theirs already, as the authors' code reads its checkpoints. Without LoRA nothing changes.
    """
    merged = {key: value for key, value in tensors.items() if "lora_" not in key}
    for key, weight in merged.items():
        stem = key.replace("in_proj_weight", "in_proj_weight_").removesuffix("weight") + "lora_"
        if f"{stem}A" in tensors and ".mlp." not in key:
            first, second = tensors[f"{stem}A"].float(), tensors[f"{stem}B"].float()
            rank = len(first) // (weight.shape[-1] if weight.ndim == 4 else 1)  # a convolution's has one for each row
            merged[key] = weight.float() + (second @ first).view_as(weight) / rank
    return merged


def _download(repo_id: str, filename: str) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(repo_id, filename))
    except (OSError, ValueError) as error:  # every error of the client is one of these
        raise CheckpointError(
            f"there is no folder {repo_id!r} here, and as a Hub id its {filename} cannot be fetched: {error}. Download "
            "it once where there is a network, and pass the path of the file."
        ) from error


def _load_open_clip(name: str, tag: str | None = None) -> ClipTowers:
    import open_clip
    from open_clip.pretrained import get_pretrained_cfg

    whole = name if tag is None else f"{name}:{tag}"
    config = check_open_clip(name, _download)
    try:
        with unsharded_loading():
            # open_clip only warns if the weights were trained with the other activation
            gelu = tag is not None and bool(get_pretrained_cfg(name, tag).get("quick_gelu", False))
            clip = open_clip.create_model(name, pretrained=tag, require_pretrained=True, force_quick_gelu=gelu)
            # overrides tokenizer_kwargs of the configuration, which could allow code
            trust = {"trust_remote_code": False} if config.get("text_cfg", {}).get("hf_tokenizer_name") else {}
            tokenizer = open_clip.get_tokenizer(name, **trust)
    except Exception as error:  # open_clip raises many built-in errors for files that do not fit
        raise CheckpointError(
            f"cannot load the open_clip model {whole!r}: {error}. Expected a folder or Hub repository with "
            "open_clip_config.json and open_clip_model.safetensors, or ARCHITECTURE:TAG as in "
            "open_clip.list_pretrained()."
        ) from error
    if tag is None:
        scheme, _, place = name.partition(":")
        folder = Path(place) if scheme == "local-dir" else _download(place, OPEN_CLIP_CONFIG).parent
        files = [file for file in sorted(folder.glob("open_clip_*")) if file.suffix in WEIGHT_SUFFIXES]
        refuse_stored_integers(files, clip, where=f"open_clip model {whole!r}")
    texts: ClipTokenizer | HubClipTokenizer
    if isinstance(tokenizer, open_clip.SimpleTokenizer):
        texts = make_bpe_tokenizer(tokenizer)
    else:
        texts = HubClipTokenizer(tokenizer)
    return ClipTowers(clip, texts, dict(open_clip.get_model_preprocess_cfg(clip)))


def load_shipped_clip(*, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> ClipTowers:
    """Loads the small CLIP of the scenes, in eval mode: for trials and tests, not for photos.

    Args:
        device, dtype: as in `load_clip`.

    Example:
        >>> load_shipped_clip().embed_dim
        256
    """
    folder = resolve_checkpoint("embedded", metric="vela")
    architecture = read_config(folder, metric="vela")["image"]["architecture"]
    towers = towers_of_architecture(architecture, read_tokenizer(folder))
    tensors = load_tensors(folder / WEIGHTS_FILE)
    weights = {key.removeprefix(_SHIPPED): value for key, value in tensors.items() if key.startswith(_SHIPPED)}
    load_strict(towers.clip, weights, where=f"the CLIP in {folder}")
    return towers.to(device=device, dtype=dtype or torch.float32).eval()


def _layers(tensors: Mapping[str, torch.Tensor], prefix: str) -> int:
    return sum(key.startswith(prefix) and key.endswith(".attn.in_proj_weight") for key in tensors)


def _of_original_layout(
    tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Turns a state dict in OpenAI's layout, which Long-CLIP shares, into open_clip's `model_cfg` and state dict.

    Text position i of Long-CLIP is `positional_embedding[i]` for i < 20 and `positional_embedding_res[i]` after that.
    Both are merged into one table, which gives a plain CLIP of open_clip with QuickGELU. Weights become fp32; the
    reader of open_clip would round fp32 files to fp16.

    Args:
        tensors: the state dict, with or without `positional_embedding_res`.
        metadata: may hold `vision_heads` and `text_heads`; otherwise a head is 64 wide, as in every published CLIP.
    """
    state = {key: value.float() for key, value in tensors.items() if key not in _NOT_WEIGHTS}
    second = state.pop("positional_embedding_res", None)
    if second is not None:
        first = state["positional_embedding"]
        if second.shape != first.shape:
            raise CheckpointError(
                f"positional_embedding {tuple(first.shape)} and positional_embedding_res {tuple(second.shape)} differ"
            )
        state["positional_embedding"] = torch.cat([first[:_KEPT_POSITIONS], second[_KEPT_POSITIONS:]])
    vision_width, _, patch_size, _ = state["visual.conv1.weight"].shape
    grid = round((state["visual.positional_embedding"].shape[0] - 1) ** 0.5)
    context_length, text_width = state["positional_embedding"].shape
    vision_heads = int(metadata.get("vision_heads", max(1, vision_width // 64)))
    text_heads = int(metadata.get("text_heads", max(1, text_width // 64)))
    model_cfg = {
        "embed_dim": state["text_projection"].shape[1],
        "quick_gelu": True,
        "vision_cfg": {
            "image_size": grid * patch_size,
            "layers": _layers(state, "visual.transformer.resblocks."),
            "width": vision_width,
            "head_width": vision_width // vision_heads,
            "patch_size": patch_size,
        },
        "text_cfg": {
            "context_length": context_length,
            "vocab_size": state["token_embedding.weight"].shape[0],
            "width": text_width,
            "heads": text_heads,
            "layers": _layers(state, "transformer.resblocks."),
        },
    }
    return model_cfg, state
