"""Checkpoint folders: finding, reading, writing and publishing them."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = [
    "CONFIG_FILE",
    "WEIGHTS_FILE",
    "load_strict",
    "load_tensors",
    "push_checkpoint",
    "read_config",
    "resolve_checkpoint",
    "save_checkpoint",
    "shape_faults",
    "unsharded_loading",
]

logger = logging.getLogger(__name__)

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "README.md"

_ASSETS = Path(__file__).parent / "assets"
# Data files only: Python files and pickles of a repository are not fetched.
_HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.spm", "*.jinja", "*.md")
_loading = threading.RLock()


def _renew_lock() -> None:
    global _loading
    _loading = threading.RLock()


if hasattr(os, "register_at_fork"):  # a thread that was loading in the parent does not exist in the child
    os.register_at_fork(after_in_child=_renew_lock)


def resolve_checkpoint(source: str | os.PathLike[str], *, metric: str, revision: str | None = None) -> Path:
    """Finds the folder of a checkpoint, and downloads it from the Hub if needed.

    Args:
        source: `"embedded"` (shipped with this package), an existing folder, or a Hub id such as `"name/repo"`.
        metric: name of the metric, for the embedded folder and for messages.
        revision: branch, tag or commit of a Hub id.

    Returns:
        A local folder. `read_config` and `load_strict` check its files.

    Raises:
        CheckpointError: there is no such checkpoint, the Hub cannot be reached, or `revision` is given for a folder.
    """
    text = os.fspath(source)
    if text == "embedded":
        folder = _ASSETS / metric
        if not (folder / CONFIG_FILE).is_file():
            raise CheckpointError(f"no {metric} checkpoint is shipped with this package; give a folder or a Hub id")
        _warn_embedded()
        return folder
    folder = Path(text)
    if folder.is_dir():
        if revision is not None:
            raise CheckpointError(f"revision={revision!r} needs a Hub id, but {text!r} is a local folder")
        return folder
    if folder.exists():
        raise CheckpointError(f"{metric} checkpoint {text!r} is a file; give the folder that holds {CONFIG_FILE}")
    if not isinstance(source, str) or folder.is_absolute() or text.startswith((".", "~")) or text.count("/") > 1:
        raise CheckpointError(f"{metric} checkpoint folder {text!r} does not exist")
    return _download(text, metric, revision)


@cache
def _warn_embedded() -> None:
    """Warns once a process, and in a distributed run only on the first one."""
    if os.environ.get("RANK", "0") == "0":
        logger.warning(
            'source "embedded" is a small checkpoint that ships with this package and was trained on synthetic scenes: '
            "it is for trials and tests, and says nothing about photos. For photos give as source a checkpoint trained "
            "on them (`capreward train`), or a published CLIP for the metrics on CLIP"
        )


def _download(repo_id: str, metric: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        HTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    at = repo_id if revision is None else f"{repo_id} at revision {revision}"
    try:
        return Path(snapshot_download(repo_id, revision=revision, allow_patterns=list(_HUB_FILES)))
    except GatedRepoError as error:
        reason = f"{at} is gated: ask for access on its page, then log in with `hf auth login`"
        raise CheckpointError(f"{metric} checkpoint: {reason} ({_first_line(error)})") from error
    except RepositoryNotFoundError as error:
        reason = f"{repo_id!r} is neither a folder here nor a repository that you can see on the Hub"
        raise CheckpointError(f"{metric} checkpoint: {reason} ({_first_line(error)})") from error
    except RevisionNotFoundError as error:
        raise CheckpointError(f"{metric} checkpoint: {repo_id} has no revision {revision!r}") from error
    except HFValidationError as error:
        reason = f"{repo_id!r} is neither a folder here nor a valid Hub id"
        raise CheckpointError(f"{metric} checkpoint: {reason} ({_first_line(error)})") from error
    except (LocalEntryNotFoundError, HTTPError, OSError) as error:
        raise CheckpointError(
            f"{metric} checkpoint: {at} is not in the local cache and the Hub cannot be reached "
            f"({_first_line(error)}). Check the network, HF_ENDPOINT and HF_HUB_OFFLINE; or download it elsewhere with "
            f'`hf download {repo_id} --local-dir FOLDER` and give the folder; or use source="embedded" if there is one.'
        ) from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def named_metric(folder: str | os.PathLike[str]) -> str | None:
    """Name of the metric in the config.json of a checkpoint folder; None if there is none."""
    try:
        name = json.loads((Path(folder) / CONFIG_FILE).read_text(encoding="utf-8"))["metric"]
    except (OSError, ValueError, KeyError, TypeError):  # no file, no JSON, or JSON of another kind
        return None
    return name if isinstance(name, str) else None


def read_config(folder: str | os.PathLike[str], *, metric: str) -> dict[str, Any]:
    """Reads the `config.json` of a checkpoint folder and checks that it belongs to the metric.

    Raises:
        CheckpointError: no such file, not a JSON object, or a checkpoint of another metric.
    """
    path = Path(folder) / CONFIG_FILE
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{str(folder)!r} is not a {metric} checkpoint: it has no {CONFIG_FILE}") from None
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or not JSON
        raise CheckpointError(f"{str(path)!r} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{str(path)!r} must hold a JSON object, got {type(config).__name__}")
    if config.get("metric") != metric:
        other = config.get("metric")
        kind = f"of metric {other!r}" if other else "of no metric of this library (no 'metric' key)"
        raise CheckpointError(f"{str(folder)!r} is a checkpoint {kind}, but a checkpoint of {metric!r} is needed")
    return config


def load_tensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Reads named tensors onto the CPU without running any code of the file.

    Args:
        path: `.safetensors`, or a PyTorch file (`.pt`, `.pth`, `.bin`), which may hold nothing but tensors and plain
            containers. The state dict may be under the key `state_dict` or `model`.

    Raises:
        CheckpointError: the file is missing, damaged, of another kind, or a pickle that would run code.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"weights file {str(path)!r} does not exist")
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{str(path)!r} is not a readable safetensors file: {error}") from error
    if path.suffix in (".pt", ".pth", ".bin"):
        return _load_pickled(path)
    raise CheckpointError(f"{str(path)!r} has an unknown suffix; known: .safetensors, .pt, .pth, .bin")


def _load_pickled(path: Path) -> dict[str, Tensor]:
    import pickle

    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{str(path)!r} is damaged or holds more than tensors, and is refused because loading it could run code: "
            f"{_first_line(error)} If you trust its maker, convert it to .safetensors first."
        ) from error
    except (OSError, RuntimeError, EOFError, ValueError) as error:
        raise CheckpointError(f"{str(path)!r} is not a readable PyTorch file: {_first_line(error)}") from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise CheckpointError(f"{str(path)!r} does not hold a dict of tensors")
    return dict(content)


def load_strict(module: nn.Module, tensors: Mapping[str, Tensor], *, where: str) -> None:
    """Loads tensors into a module. Every key must be present and have the right shape, and none may be left over.

    If a key does not fit, the module is not changed: no network ever scores with random weights.

    Args:
        module: its `state_dict()` states the keys and shapes.
        tensors: {key: tensor}; cast to the module's dtypes.
        where: the source of the tensors, for messages.

    Raises:
        CheckpointError: the keys do not fit, or the module is on the device "meta".
    """
    needed = {key: tuple(value.shape) for key, value in module.state_dict().items()}
    faults = shape_faults(needed, {key: tuple(value.shape) for key, value in tensors.items()})
    if faults:
        raise CheckpointError(f"{where} {faults}. Refusing to score with wrong weights.")
    empty = [name for name, parameter in module.named_parameters() if parameter.is_meta]
    if empty:
        raise CheckpointError(f"{where}: {_listed('the network has no memory for', empty)}; build it on a real device")
    module.load_state_dict(dict(tensors), strict=True)


def shape_faults(needed: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]]) -> str:
    """Describes how some tensors differ from the needed ones, for a message; empty if they fit.

    Example:
        >>> shape_faults({"weight": (2, 3), "bias": (2,)}, {"weight": (2, 4)})
        'lacks 1 key (bias); has mis-shaped 1 key (weight is (2, 4), not (2, 3))'
    """
    shapes = [
        f"{key} is {given[key]}, not {shape}" for key, shape in needed.items() if key in given and given[key] != shape
    ]
    faults = [
        _listed("lacks", [key for key in needed if key not in given]),
        _listed("has unknown", [key for key in given if key not in needed]),
        _listed("has mis-shaped", shapes),
    ]
    return "; ".join(filter(None, faults))


def _listed(verb: str, keys: list[str]) -> str:
    if not keys:
        return ""
    more = f", and {len(keys) - 5} more" if len(keys) > 5 else ""
    return f"{verb} {len(keys)} key{'s' * (len(keys) > 1)} ({', '.join(keys[:5])}{more})"


def save_checkpoint(
    folder: str | os.PathLike[str], *, config: Mapping[str, Any], tensors: Mapping[str, Tensor], card: str
) -> None:
    """Writes `config.json`, `model.safetensors` and `README.md`; other files of the folder stay.

    The three files are first written under temporary names. Then the old config is removed, and the files are moved
    into place, the new config last. So a crash leaves the old checkpoint, the new one, or a folder without config,
    which `read_config` refuses, but never a mixture.

    Args:
        folder: made if absent.
        config: JSON values, with the metric's name under `"metric"`.
        tensors: {key: tensor}, on any device.
        card: text of the model card.

    Raises:
        CheckpointError: the config lacks `"metric"`, or the folder cannot be written.
    """
    from safetensors.torch import save_file

    if not config.get("metric"):
        raise CheckpointError("a checkpoint's config must name its metric under the key 'metric'")
    config_text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    folder = Path(folder)
    staged = {name: folder / f".{name}.{os.getpid()}.tmp" for name in (WEIGHTS_FILE, CARD_FILE, CONFIG_FILE)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"checkpoint folder {str(folder)!r} cannot be made: {error}") from error
    try:
        save_file(_unshared(tensors), staged[WEIGHTS_FILE], metadata={"format": "pt"})
        staged[CARD_FILE].write_text(card, encoding="utf-8")
        staged[CONFIG_FILE].write_text(config_text, encoding="utf-8")
        for path in staged.values():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        (folder / CONFIG_FILE).unlink(missing_ok=True)
        for name, path in staged.items():
            path.replace(folder / name)
    except OSError as error:
        raise CheckpointError(f"checkpoint folder {str(folder)!r} cannot be written: {error}") from error
    finally:
        for path in staged.values():
            path.unlink(missing_ok=True)


def _unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies tensors that share memory, such as tied embeddings, because safetensors refuses them."""
    seen: set[int] = set()
    plain = {}
    for key, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        if tensor.untyped_storage().data_ptr() in seen or tensor.untyped_storage().nbytes() != tensor.nbytes:
            tensor = tensor.clone()
        seen.add(tensor.untyped_storage().data_ptr())
        plain[key] = tensor
    return plain


def push_checkpoint(
    folder: str | os.PathLike[str],
    repo_id: str,
    *,
    private: bool = False,
    revision: str | None = None,
    commit_message: str = "Upload checkpoint",
) -> str:
    """Uploads a checkpoint folder to a model repository on the Hub, which is created if needed.

    Args:
        folder: a complete checkpoint.
        repo_id: `"name/repo"`.
        private: whether a new repository is private.
        revision: branch to commit to, created if needed; None is the main branch.
        commit_message: title of the commit.

    Returns:
        Web address of the commit.

    Raises:
        CheckpointError: the folder is incomplete, or the Hub refuses or cannot be reached.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, HTTPError

    absent = [name for name in (CONFIG_FILE, WEIGHTS_FILE, CARD_FILE) if not (Path(folder) / name).is_file()]
    if absent:
        raise CheckpointError(f"{str(folder)!r} is not a complete checkpoint: it has no {', '.join(absent)}")
    api = HfApi()
    try:
        repo = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if revision is not None:
            api.create_branch(repo, branch=revision, exist_ok=True)
        commit = api.upload_folder(
            folder_path=Path(folder),
            repo_id=repo,
            revision=revision,
            commit_message=commit_message,
            allow_patterns=list(_HUB_FILES),
        )
    except (HTTPError, OSError, HFValidationError) as error:
        raise CheckpointError(f"{str(folder)!r} cannot be uploaded to {repo_id}: {_first_line(error)}") from error
    return str(commit.commit_url)


@contextmanager
def unsharded_loading() -> Iterator[None]:
    """Context in which models are loaded whole, even if a distributed trainer is alive.

    With DeepSpeed ZeRO-3, transformers partitions every model that is loaded. With FSDP's RAM-efficient loading, ranks
    above 0 can get empty parameters. A reward model must be whole on every rank, so both are switched off here and
    restored afterwards. Only one thread at a time can be inside.

    Example:
        >>> with unsharded_loading():
        ...     os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"]
        'false'
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
