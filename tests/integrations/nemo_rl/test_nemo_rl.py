"""NeMo RL: the shape of its calls; its registries, loader and environment, where a clone is on the path."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from integrations.nemo_rl import rate_conversations
from reward.errors import InvalidSampleError
from tests.integrations.frameworks import GREY, ROOT, WHITE, PictureMetric


def log(image: Any, text: str = "A star.") -> list[dict[str, Any]]:
    shown = [{"type": "image", "image": image}] if image is not None else []
    question = {"role": "user", "content": [*shown, {"type": "text", "text": "Describe."}]}
    return [question, {"role": "assistant", "content": text}]


def test_a_batch(picture: PictureMetric) -> None:
    logs = [log(WHITE), log(None), log(GREY, " ")]
    facts = [{"ground_truth": "A red star."}, {"image": GREY, "references": ["One.", "Two."]}, None]
    assert rate_conversations(logs, facts, **picture.settings) == [1.0, 0.2, 0.0]
    assert [sample.references for sample in picture.samples] == [("A red star.",), ("One.", "Two.")]
    with pytest.raises(InvalidSampleError, match="missing=NUMBER"):
        rate_conversations([log(WHITE), log(WHITE, "fail")], [None, None], **picture.settings)


def test_nemo_rl_itself_takes_environment_and_data_set(picture: PictureMetric, tmp_path: Path) -> None:
    pytest.importorskip("nemo_rl.environments.utils", reason="no clone of NeMo RL is on the path", exc_type=ImportError)
    pytest.importorskip("nemo_rl.data.processors", reason="a package of NeMo RL is missing", exc_type=ImportError)
    from nemo_rl.data.datasets import load_response_dataset
    from nemo_rl.data.processors import PROCESSOR_REGISTRY
    from nemo_rl.distributed.ray_actor_environment_registry import get_actor_python_env
    from nemo_rl.environments.utils import ENV_REGISTRY

    from integrations.nemo_rl.environment import CaptionEnvironment, CaptionEnvironmentActor, register

    register()
    register()  # a second time does no harm
    name = ENV_REGISTRY["vlm"]["actor_class_fqn"]
    assert name == "integrations.nemo_rl.environment.CaptionEnvironmentActor"
    assert get_actor_python_env(name)
    assert hasattr(CaptionEnvironmentActor, "options")  # it is an actor

    WHITE.save(tmp_path / "white.png")
    rows = [{"image": "white.png", "references": [f"A star {i}."]} for i in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    data = load_response_dataset(
        {
            "dataset_name": "integrations.nemo_rl.environment.CaptionDataset",
            "data_path": str(tmp_path / "rows.jsonl"),
            "processor": "caption_data_processor",
            "split_validation_size": 0.25,
        }
    )
    assert (len(data.dataset), len(data.val_dataset), data.task_name) == (3, 1, "captions")
    assert data.processor is PROCESSOR_REGISTRY["caption_data_processor"]
    row = data.dataset[0]
    assert row["image"] == str(tmp_path / "white.png")

    made = data.processor(row, data.task_spec, Processor(), 512, 0)
    assert made["task_name"] == "captions"
    assert made["extra_env_info"]["references"] == row["references"]
    conversation = [*made["message_log"], {"role": "assistant", "content": "A star."}]
    environment = CaptionEnvironment({**picture.settings, "num_workers": 2})
    result = environment.step([conversation], [made["extra_env_info"]])
    assert result.rewards.tolist() == [1.0]
    assert result.terminateds.tolist() == [1.0]
    assert environment.global_post_process_and_metrics({"rewards": result.rewards})[1] == {"mean_reward": 1.0}


class Processor:
    """As much of a vision-language processor as NeMo RL asks for."""

    model_input_names = ("input_ids", "pixel_values")
    tokenizer = SimpleNamespace(model_input_names=["input_ids"])

    def apply_chat_template(self, messages: Any, tokenize: bool = True, **options: Any) -> Any:
        import torch

        return {"input_ids": torch.ones(1, 5, dtype=torch.long)} if tokenize else "Describe."


def test_the_configuration_of_the_docs_has_nemo_rls_keys() -> None:
    loader = pytest.importorskip(
        "nemo_rl.utils.config", reason="no clone of NeMo RL is on the path", exc_type=ImportError
    )
    examples = Path(loader.__file__).parents[2] / "examples" / "configs"
    if not examples.is_dir():
        pytest.skip("the clone of NeMo RL has no examples")
    from omegaconf import OmegaConf

    page = (ROOT / "docs" / "FRAMEWORKS.md").read_text(encoding="utf-8").split("\n## NeMo RL\n")[1]
    ours = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0]
    theirs = OmegaConf.to_container(loader.load_config(str(examples / "vlm_grpo_3B.yaml")), resolve=False)
    for section, values in OmegaConf.to_container(OmegaConf.create(ours)).items():
        if section != "defaults":
            assert section in theirs
            if section == "data":
                assert set(values) <= set(theirs["data"])
                assert set(values["default"]) <= set(theirs["data"]["default"])
