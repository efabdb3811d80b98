"""Policies that TRL has trained: loaded from a checkpoint, and given their weights back when a training goes on."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from transformers import AutoModelForImageTextToText, AutoProcessor, PreTrainedModel
from transformers.trainer_callback import TrainerCallback, TrainerState

from reward.backbones.fit import foreign_errors
from reward.backbones.pretrained import load_network, refuse_unfit
from reward.checkpoints.folders import resolve_checkpoint
from reward.checkpoints.weight_files import refuse_stored_integers
from reward.errors import CheckpointError, ConfigError

logger = logging.getLogger(__name__)

_ADAPTER_FILE = "adapter_config.json"


def load_policy(
    checkpoint: str | os.PathLike[str],
    *,
    base: str | os.PathLike[str] | PreTrainedModel | None = None,
    dtype: torch.dtype | str = "auto",
    **options: Any,
) -> tuple[Any, Any]:
    """Loads a vision-language policy and its processor from a checkpoint of a full fine-tune or of an adapter (LoRA).

    Every weight comes from the checkpoint, or from an adapter's base: one that is missing or left over raises.

    To go on with a training, make the trainer as in the first run and add `ResumeWeights` instead: TRL loads the
    reference of its KL term (`beta` above 0) from where the policy was loaded.

    Args:
        checkpoint: folder such as `out/checkpoint-500`, a Hub id, or `"embedded"`: a small LLaVA that ships with this
            package and knows synthetic scenes only.
        base: what an adapter was trained on: a folder, a Hub id or the model itself. None takes what the adapter names.
        dtype: of the weights; "auto" takes that of the checkpoint.
        options: further arguments of `from_pretrained`, such as `attn_implementation`. Code in a checkpoint runs only
            with `trust_remote_code=True`.

    Returns:
        (model, processor), the model on the CPU in eval mode: a `PreTrainedModel`, or a trainable `PeftModel`.

    Example:
        >>> model, processor = load_policy("embedded")
        >>> type(model).__name__
        'LlavaForConditionalGeneration'
    """
    for name in ("peft_config", "lora"):
        if name in options:
            raise ConfigError(f"load_policy takes no {name}=: give peft_config=LoraConfig(...) to the trainer")
    # The package has its LLaVA for captions, not for training: it lies in the folder "captioner".
    folder = resolve_checkpoint(checkpoint, model="captioner" if checkpoint == "embedded" else "policy")
    options["dtype"] = dtype
    if (folder / _ADAPTER_FILE).is_file():
        model = _load_adapted(folder, base, options)
    elif base is not None:
        raise CheckpointError(f"policy {str(folder)!r} has no {_ADAPTER_FILE}, so it needs no base")
    else:
        model = load_network(folder, AutoModelForImageTextToText, "policy", strict=True, **options)
    with foreign_errors(f"policy {str(folder)!r}: its processor (tokenizer*.json, *processor*.json)"):
        processor = AutoProcessor.from_pretrained(folder, trust_remote_code=bool(options.get("trust_remote_code")))
    return model.eval(), processor


def _load_adapted(folder: Path, base: str | os.PathLike[str] | PreTrainedModel | None, options: dict[str, Any]) -> Any:
    """The trainable PeftModel of an adapter's folder on its base; see `load_policy`."""
    from peft import PeftModel

    if base is None:
        with foreign_errors(f"{str(folder / _ADAPTER_FILE)!r}"):
            base = json.loads((folder / _ADAPTER_FILE).read_text(encoding="utf-8")).get("base_model_name_or_path")
        if not base:
            raise CheckpointError(f"adapter {str(folder)!r} does not name what it was trained on: give base=")
    if not isinstance(base, PreTrainedModel):
        base_folder = resolve_checkpoint(base, model="policy")
        base = load_network(base_folder, AutoModelForImageTextToText, "policy", strict=True, **options)
    with foreign_errors(f"adapter {str(folder)!r}"):
        model = PeftModel.from_pretrained(base, folder, is_trainable=True)
    _load_adapter(model, folder)
    return model


def _load_adapter(model: Any, folder: Path) -> None:
    """Loads the active adapter strictly; PEFT itself only warns of missing weights and ignores those left over."""
    name = model.active_adapters[0]
    adapter_folder = folder / name  # where PEFT saves adapters other than "default"
    if not adapter_folder.is_dir():
        adapter_folder = folder
    keys = model.load_adapter(adapter_folder, name, is_trainable=True)
    refuse_stored_integers(adapter_folder.glob("adapter_model.*"), model, where=f"adapter {str(folder)!r}")
    refuse_unfit(f"adapter {str(folder)!r}", missing=keys.missing_keys, left=keys.unexpected_keys)


class ResumeWeights(TrainerCallback):
    """Gives a trainer the weights of the checkpoint that it resumes from, and at the end those of its best one.

    `Trainer` of transformers 5 expects the names that weights have in memory, but a checkpoint holds the names used on
    the Hub. Where they differ, as in LLaVA and Qwen-VL, `train(resume_from_checkpoint=...)` and
    `load_best_model_at_end` leave these weights out with no more than a logged warning. This callback reads the weights
    as `from_pretrained` does, and raises where they do not fit, also those of adapters (LoRA), which Trainer loads
    correctly. DeepSpeed and FSDP save and load weights by themselves; nothing is done there.

    Within an epoch, the steps that follow are those of a training that never stopped. The order of rows in later epochs
    is TRL's matter, and differs.

    Args:
        checkpoint: the folder given as `resume_from_checkpoint`, if it is not in the trainer's `output_dir`.

    Raises:
        CheckpointError: when training begins, if the checkpoint is not the one that was resumed from, or would itself
            be the reference of the KL term.
        ConfigError: when training begins with `sync_ref_model`, which moves the reference: checkpoints do not hold it.

    Example:
        >>> callback = ResumeWeights()  # GRPOTrainer(..., callbacks=[callback]).train(resume_from_checkpoint=True)
    """

    def __init__(self, checkpoint: str | os.PathLike[str] | None = None) -> None:
        self.checkpoint = checkpoint

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if _is_sharded():
            return
        if getattr(args, "sync_ref_model", False):
            raise ConfigError(
                "sync_ref_model moves the reference policy, which no checkpoint holds, so that the training cannot be "
                "resumed: set sync_ref_model=False, or leave out ResumeWeights"
            )
        if state.global_step == 0:
            return  # a training from its beginning

        folder = Path(self.checkpoint or f"{args.output_dir}/checkpoint-{state.global_step}")
        file = folder / "trainer_state.json"
        # The history of losses tells this training's checkpoint from another's of the same step.
        if not file.is_file() or TrainerState.load_from_json(str(file)).log_history != state.log_history:
            raise CheckpointError(
                f"the training goes on at step {state.global_step}, but not at {str(folder)!r}: give the folder that "
                "it resumes from as ResumeWeights(checkpoint)"
            )
        if getattr(args, "beta", 0.0):
            _check_reference(folder, model)
        _load_weights(model, folder)

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if args.load_best_model_at_end and state.best_model_checkpoint is not None and not _is_sharded():
            _load_weights(model, Path(state.best_model_checkpoint))


def _is_sharded() -> bool:
    return AcceleratorState().distributed_type in (DistributedType.DEEPSPEED, DistributedType.FSDP)


def _load_weights(model: Any, folder: Path) -> None:
    """Gives a model under training the weights of a checkpoint, strictly: of its adapter, if it has one."""
    if getattr(model, "peft_config", None):
        _load_adapter(model, folder)
        return
    dtypes = {parameter.dtype for parameter in model.parameters()}
    # Float32 where the parameters have several dtypes: nothing is rounded on the way.
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.float32
    saved = load_network(folder, type(model), "policy", dtype=dtype, strict=True)
    model.load_state_dict(saved.state_dict())
    logger.warning(
        "all weights are now loaded from %s; ignore Trainer's warnings about missing and unexpected keys", folder
    )


def _check_reference(folder: Path, model: Any) -> None:
    """Raises if TRL has taken the checkpoint that is resumed for the reference, the policy before training."""
    # TRL loads the reference from the model's `name_or_path`. Of a policy that comes with an adapter it keeps a copy, a
    # second adapter `ref`, which the checkpoints of that training hold. Where they do not, it is a copy of theirs.
    adapters = getattr(model, "peft_config", None)
    if adapters:
        is_reference = "ref" in adapters and not (folder / "ref").is_dir()
    else:
        is_reference = bool(model.name_or_path) and folder.resolve() == Path(model.name_or_path).resolve()
    if is_reference:
        raise CheckpointError(
            f"the policy was loaded from {str(folder)!r} before the trainer was made, so that the reference of the KL "
            "term (beta above 0) is that checkpoint: make the trainer with the policy of the first run instead"
        )
