"""Checkpoint folders: finding, reading and writing them."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from reward.data.json_files import read_json
from reward.errors import CheckpointError, DataError, did_you_mean, first_line

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)

CONFIG_FILE = "config.json"
OPEN_CLIP_CONFIG = "open_clip_config.json"
SENTENCE_TRANSFORMERS_CONFIG = "config_sentence_transformers.json"
WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "README.md"
WEIGHT_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
CheckpointKind = Literal["checkpoint", "clip", "judge", "model"]

# An old one of these beside the new tokenizer would be read with it.
_TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    *("vocab.json", "vocab.txt", "merges.txt", "tokenizer.model", "beit3.spm"),
)

_ASSETS = Path(__file__).parents[1] / "assets"
# What a checkpoint needs, in its own folder and not below it. Python files and pickles of a repository are not fetched,
# nor weights in another layout or precision, such as `consolidated.safetensors`.
HUB_WEIGHTS = ("model.safetensors", "model*-of-*.safetensors", "adapter_model*.safetensors", "value_head.safetensors")
HUB_FILES = (*HUB_WEIGHTS, "*.json", "*.txt", "*.model", "*.spm", "*.jinja", "*.md")
NOT_HUB_FILES = ("*/*",)
_loading = threading.RLock()


def resolve_checkpoint(
    checkpoint: str | os.PathLike[str], *, model: str, revision: str | None = None, subfolders: bool = False
) -> Path:
    """Finds the folder of a checkpoint, and downloads it from the Hub if needed.

    Args:
        checkpoint: `"embedded"` (shipped with this package), an existing folder, or a Hub id such as `"name/repo"`.
        model: what it is a checkpoint of, for messages and the embedded folder: the name of a metric, or "captioner".
        revision: branch, tag or commit of a Hub id.
        subfolders: whether files below a repository's own folder are fetched, too: JSON and weights in safetensors.

    Returns:
        A local folder, whose files are not checked.

    Raises:
        CheckpointError: there is no such checkpoint, the Hub cannot be reached, or see `check_revision`.
    """
    text = os.fspath(checkpoint)
    check_revision(checkpoint, revision)
    if text == "embedded":
        assets = _ASSETS / model
        if not (assets / CONFIG_FILE).is_file():
            raise CheckpointError(f"no {model} checkpoint is shipped with this package; give a folder or a Hub id")
        warn_embedded()
        return assets
    folder = local_folder(checkpoint, model=model)
    if folder is not None:
        return folder
    if subfolders:
        return hub_folder(text, model, revision, (*HUB_FILES, "*/model.safetensors"), ())
    return hub_folder(text, model, revision)


def local_folder(checkpoint: str | os.PathLike[str], *, model: str) -> Path | None:
    """The folder of a checkpoint; None if it may be a Hub id. `model` is as in `resolve_checkpoint`."""
    text = os.fspath(checkpoint)
    folder = Path(text)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise CheckpointError(f"{model} checkpoint {text!r} is a file; give the folder that holds {CONFIG_FILE}")
    owner, slash, name = text.partition("/")
    if slash and name and "/" not in name and owner not in (".", "..") and os.path.isdir(owner):
        raise CheckpointError(
            f"{model} checkpoint folder {text!r} does not exist; a folder {owner!r} is here, so it counts as a path. "
            f"The Hub's: hf download {text} --local-dir {text}"
        )
    # A Hub id has one slash at most, and not at its ends.
    is_path = not isinstance(checkpoint, str) or os.path.isabs(text) or text.startswith((".", "~"))
    if is_path or text.endswith("/") or text.count("/") > 1:
        raise CheckpointError(f"{model} checkpoint folder {text!r} does not exist")
    return None


def config_folder(checkpoint: str | os.PathLike[str], revision: str | None = None) -> Path:
    """The folder of any checkpoint, of a Hub id one with its config files alone: what says which metric it is of."""
    check_revision(checkpoint, revision)
    folder = local_folder(checkpoint, model="the")
    if folder is not None:
        return folder
    configs = (CONFIG_FILE, OPEN_CLIP_CONFIG, SENTENCE_TRANSFORMERS_CONFIG)
    return hub_folder(os.fspath(checkpoint), "the", revision, configs)


def check_revision(checkpoint: str | os.PathLike[str], revision: str | None) -> None:
    """Refuses a revision of what has none: only what is on the Hub has branches, tags and commits."""
    text = os.fspath(checkpoint)
    is_local = text == "embedded" or text.startswith(("http://", "https://")) or Path(text).is_dir()
    if revision is not None and is_local:
        raise CheckpointError(f"revision={revision!r} needs a Hub id, but source is {text!r}: leave the revision out")


def check_checkpoint(checkpoint: str | os.PathLike[str], *, metric: str, kind: CheckpointKind) -> None:
    """Refuses what is seen to be no checkpoint of a metric without loading anything. Hub ids are not looked up.

    Args:
        checkpoint: a folder, a Hub id, or for `kind="clip"` what `load_clip` takes; `"embedded"` passes.
        metric: name of the metric, which a folder of this library must name in its config.json.
        kind: see `reward.metrics.base.MetricSpec`.

    Example:
        >>> check_checkpoint("my-vela", metric="vela", kind="checkpoint")
        Traceback (most recent call last):
        ...
        reward.errors.CheckpointError: vela: there is no folder 'my-vela' here, and a Hub id has the form 'name/repo'
    """
    if checkpoint == "embedded":
        return
    if kind == "clip":
        if isinstance(checkpoint, str):
            checkpoint = checkpoint.removeprefix("local-dir:").removeprefix("hf-hub:")
        # An architecture of open_clip and a tag, or a file of weights.
        if ":" in os.fspath(checkpoint) or os.path.isfile(checkpoint):
            return
    folder = local_folder(checkpoint, model=metric)
    if folder is None:
        _check_hub_id(os.fspath(checkpoint), metric, kind)
    elif kind == "checkpoint" or named_metric(folder) is not None:
        read_config(folder, metric=metric)


def _check_hub_id(text: str, metric: str, kind: CheckpointKind) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        if "/" not in text and kind != "model":  # some models of the Hub's first days have no owner in their id
            raise HFValidationError("a Hub id has the form 'name/repo'")
        validate_repo_id(text)
    except HFValidationError as error:
        reason = first_line(error).rstrip(".")
        if kind == "clip":
            reason += ", or ARCHITECTURE:TAG of open_clip such as 'ViT-B-32:openai'"
        elif kind == "judge":
            reason += f". A model behind a server is written http://localhost:8000/v1#{text}"
        hint = did_you_mean(text, [path.name for path in Path().iterdir() if path.is_dir()])
        if hint:
            reason += "." + hint
        raise CheckpointError(f"{metric}: there is no folder {text!r} here, and {reason}") from None


@cache
def warn_embedded() -> None:
    """Warns once: not in processes that this one starts, and in a distributed run on the first one only."""
    if os.environ.get("RANK", "0") == "0" and multiprocessing.parent_process() is None:
        logger.warning("embedded weights know drawings only; for photos: `capreward metrics --for photos`")


def hub_folder(
    repo_id: str,
    model: str,
    revision: str | None = None,
    files: Sequence[str] = HUB_FILES,
    without: Sequence[str] = NOT_HUB_FILES,
) -> Path:
    """The folder of the Hub's cache with some files of a repository, downloaded if they are not there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError, LocalEntryNotFoundError

    repository = repo_id
    if revision is not None:
        repository += f" at revision {revision}"
    where = f"{model} checkpoint: there is no folder {repo_id!r} here, and"
    try:
        return Path(
            snapshot_download(repo_id, revision=revision, allow_patterns=list(files), ignore_patterns=list(without))
        )
    except HFValidationError as error:
        raise CheckpointError(f"{where} it is no valid Hub id: {first_line(error)}") from error
    except (LocalEntryNotFoundError, HTTPError, OSError) as error:
        if isinstance(error, HfHubHTTPError) and not isinstance(error, LocalEntryNotFoundError):
            reply = " ".join(str(error).split())
            raise CheckpointError(
                f"{where} the Hub refuses {repository}: {reply:.300}. Log in with `hf auth login`"
            ) from error
        raise CheckpointError(
            f"{where} as a Hub id {repository} is not in the local cache and the Hub cannot be reached "
            f"({first_line(error)}). Check the network, HF_ENDPOINT and HF_HUB_OFFLINE, or download it elsewhere with "
            f"`hf download {repo_id} --local-dir FOLDER` and give the folder"
        ) from error


def named_metric(folder: str | os.PathLike[str]) -> str | None:
    """Name of the metric in the config.json of a checkpoint folder; None if there is none."""
    try:
        name = read_json(Path(folder) / CONFIG_FILE)["metric"]
    except (DataError, KeyError, TypeError):  # no file, no JSON, or JSON of another kind
        return None
    return name if isinstance(name, str) else None


def read_config(folder: str | os.PathLike[str], *, metric: str) -> dict[str, Any]:
    """Reads the `config.json` of a checkpoint folder and checks that it belongs to the metric."""
    path = Path(folder) / CONFIG_FILE
    if not path.exists():
        raise CheckpointError(f"{str(folder)!r} is not a {metric} checkpoint: it has no {CONFIG_FILE}")
    try:
        config = read_json(path)
    except DataError as error:
        raise CheckpointError(f"{metric} checkpoint: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{str(path)!r} must hold a JSON object, got {type(config).__name__}")
    if config.get("metric") != metric:
        kind = "of no metric of this library (no 'metric' key)"
        if config.get("metric"):
            kind = f"of metric {config['metric']!r}"
        raise CheckpointError(f"{str(folder)!r} is a checkpoint {kind}, but a checkpoint of {metric!r} is needed")
    return config


def save_checkpoint(
    folder: str | os.PathLike[str],
    *,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    card: str,
    write_tokenizer: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Writes `config.json`, `model.safetensors`, `README.md` and a tokenizer; other files of the folder stay.

    All is first written into a folder in the folder. Then the old config is removed and a tokenizer that a new one
    replaces, and the files are moved into place, the new config last. So a crash leaves the old checkpoint, the new
    one, or a folder without config, which `read_config` refuses, but never a mixture.

    Args:
        folder: made if absent.
        config: JSON values, with the metric's name under `"metric"`.
        tensors: {key: tensor}, on any device.
        card: text of the model card.
        write_tokenizer: writes the tokenizer's files, none below the folder that it is given.
    """
    from safetensors.torch import save_file

    if not config.get("metric"):
        raise CheckpointError("a checkpoint's config must name its metric under the key 'metric'")
    config_text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    folder = Path(folder)
    staged = folder / ".saving"
    try:
        shutil.rmtree(staged, ignore_errors=True)  # of a save that was killed
        staged.mkdir(parents=True)
    except OSError as error:
        raise CheckpointError(f"checkpoint folder {str(folder)!r} cannot be made: {error}") from error
    try:
        # copies, since safetensors refuses tensors that share memory, such as tied embeddings
        copies = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in tensors.items()}
        save_file(copies, staged / WEIGHTS_FILE, metadata={"format": "pt"})
        (staged / CARD_FILE).write_text(card, encoding="utf-8")
        write_tokenizer(staged)
        (staged / CONFIG_FILE).write_text(config_text, encoding="utf-8")
        for path in staged.iterdir():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        (folder / CONFIG_FILE).unlink(missing_ok=True)
        if any((staged / name).exists() for name in _TOKENIZER_FILES):
            for name in _TOKENIZER_FILES:
                (folder / name).unlink(missing_ok=True)
        for path in sorted(staged.iterdir(), key=lambda path: path.name == CONFIG_FILE):
            path.replace(folder / path.name)
    except OSError as error:
        raise CheckpointError(f"checkpoint folder {str(folder)!r} cannot be written: {error}") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


@contextmanager
def unsharded_loading() -> Iterator[None]:
    """Context in which models are loaded whole, by one thread at a time, even if a distributed trainer is alive.

    With DeepSpeed ZeRO-3, transformers partitions every model that is loaded. With FSDP's RAM-efficient loading, ranks
    above 0 can get empty parameters. A reward model must be whole on every rank, so both are switched off meanwhile.
    """
    with _loading:
        # No DeepSpeed configuration can be alive before this module is imported.
        deepspeed: Any = sys.modules.get("transformers.integrations.deepspeed")
        config_ref = getattr(deepspeed, "_hf_deepspeed_config_weak_ref", None)
        fsdp = os.environ.get("FSDP_CPU_RAM_EFFICIENT_LOADING")
        if config_ref is not None:
            deepspeed.unset_hf_deepspeed_config()
        os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
        try:
            yield
        finally:
            if config_ref is not None:
                deepspeed._hf_deepspeed_config_weak_ref = config_ref
            if fsdp is None:
                del os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"]
            else:
                os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = fsdp
