"""verl: the shapes of its calls, then its own loader with our function, our manager and the options of the docs."""

from __future__ import annotations

import asyncio
import inspect
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from integrations.ms_swift import CaptionORM
from integrations.openrlhf import make_reward_func
from integrations.verl import compute_score
from reward.errors import InvalidSampleError
from tests.integrations.frameworks import BLACK, GREY, WHITE, PictureMetric, launch

pytestmark = pytest.mark.slow


def ask(settings: dict[str, Any], *rows: tuple[str, Any, dict[str, Any]]) -> list[dict[str, float]]:
    async def together() -> list[dict[str, float]]:
        calls = [
            compute_score(data_source="a", solution_str=text, ground_truth=truth, extra_info=info, **settings)
            for text, truth, info in rows
        ]
        return await asyncio.gather(*calls)

    return asyncio.run(together())


def test_it_is_a_coroutine_function_as_verl_looks_for_one() -> None:
    assert inspect.iscoroutinefunction(compute_score)


def test_samples_asked_for_one_by_one_are_scored_in_one_call(picture: PictureMetric, tmp_path: Path) -> None:
    WHITE.save(tmp_path / "white.png")
    info = {"num_turns": 2, "rollout_reward_scores": {}, "index": 0}
    forms: list[dict[str, Any]] = [
        {"image": str(tmp_path / "white.png")},
        {"image_path": str(tmp_path / "white.png")},
        {"images": [{"bytes": (tmp_path / "white.png").read_bytes(), "path": None}]},
        {"images": [GREY], "image": None},
    ]
    results = ask(picture.patient, *[("A star.", "A red star.", {**info, **form}) for form in forms])
    assert [result["score"] for result in results] == [1.0, 1.0, 1.0, 0.2]
    assert [set(result) for result in results] == [{"score", "brightness", "words"}] * 4
    assert picture.calls == 1
    assert {sample.references for sample in picture.samples} == {("A red star.",)}


def test_references_of_the_row_come_before_the_ground_truth(picture: PictureMetric) -> None:
    ask(picture.patient, ("A star.", "ignored", {"image": GREY, "references": ["One.", "Two."]}))
    assert picture.samples[0].references == ("One.", "Two.")


def test_a_row_without_a_score_raises_or_gets_what_is_set(picture: PictureMetric) -> None:
    rows = [("A star.", None, {"image": GREY}), ("fail", None, {"image": GREY})]
    with pytest.raises(InvalidSampleError, match="missing=NUMBER"):
        ask(picture.patient, *rows)
    assert [each["score"] for each in ask({**picture.patient, "missing": -1.0}, *rows)] == [0.2, -1.0]


@pytest.mark.parametrize("framework", ["verl", "openrlhf", "ms_swift"])
def test_what_is_set_for_rows_without_a_score_holds_in_the_first_call(
    framework: str, picture: PictureMetric, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first call of a framework that asks for one caption at a time may be of the only broken image."""
    (tmp_path / "broken.png").write_bytes(b"no picture")
    WHITE.save(tmp_path / "white.png")
    settings = {**picture.settings, "missing": -1.0}
    call: dict[str, Callable[[str], Any]] = {
        "verl": lambda path: ask(settings, ("A star.", None, {"image": path}))[0]["score"],
        "openrlhf": lambda path: make_reward_func(**settings)(["Q: A star."], ["Q:"], [json.dumps({"image": path})])[
            "rewards"
        ].item(),
        "ms_swift": lambda path: CaptionORM(**settings)(["A star."], images=[[{"path": path, "bytes": None}]])[0],
    }
    assert [call[framework](str(tmp_path / f"{name}.png")) for name in ("broken", "white")] == [-1.0, 1.0]
    assert "none of the 1 rows of the first call can be scored" in caplog.text


def test_a_data_set_without_images_stops_at_the_first_call(picture: PictureMetric) -> None:
    with pytest.raises(InvalidSampleError, match="none of the 1 rows of the first call"):
        ask(picture.patient, ("A star.", None, {}))


class Tokenizer:
    """Decodes token 7 as a star."""

    def decode(self, ids: Any, skip_special_tokens: bool) -> str:
        return " ".join("star" for token in ids.tolist() if token == 7)


def test_verl_itself_loads_the_function_and_the_manager(picture: PictureMetric) -> None:
    reward = pytest.importorskip("verl.trainer.ppo.reward", reason="verl is not installed", exc_type=ImportError)
    import torch
    from omegaconf import OmegaConf
    from verl import DataProto

    function = {"path": "pkg://integrations.verl", "name": "compute_score", "reward_kwargs": picture.patient}
    module = {"path": "pkg://integrations.verl.reward_manager", "name": "custom_reward_manager"}
    managed = {"source": "importlib", "name": "CaptionRewardManager", "module": module}
    config = OmegaConf.create({"reward": {"custom_reward_function": function, "reward_manager": managed}})
    manager = reward.load_reward_manager(config, Tokenizer(), reward_router_address=None, reward_model_tokenizer=None)

    images = [WHITE, GREY, BLACK, GREY]
    prompts = [
        [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": "Describe."}]}]
        for image in images
    ]
    raw = np.empty(4, dtype=object)
    raw[:] = prompts
    data = DataProto.from_dict(
        tensors={
            "prompts": torch.ones(4, 3, dtype=torch.long),
            "responses": torch.tensor([[7, 7, 0]] * 4),
            "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 0]] * 4),
        },
        non_tensors={
            "raw_prompt": raw,
            "data_source": np.array(["a"] * 4, dtype=object),
            "reward_model": np.array([{"ground_truth": "A star."}] * 4, dtype=object),
            "extra_info": np.array([{}, {}, {}, {"image": WHITE}], dtype=object),
        },
    )

    async def together() -> list[dict[str, Any]]:
        return await asyncio.gather(*[manager.run_single(data[row : row + 1]) for row in range(4)])

    results = manager.loop.run_until_complete(together())
    assert [result["reward_score"] for result in results] == [1.0, 0.2, 0.0, 1.0]
    assert results[0]["reward_extra_info"] == {"score": 1.0, "brightness": 1.0, "words": 3.0}
    assert {sample.candidate for sample in picture.samples} == {"star star"}
    assert picture.calls == 1
    tensor = type(manager).assemble_rm_scores(data, [result["reward_score"] for result in results])
    assert tensor[:, 1].tolist() == pytest.approx([1.0, 0.2, 0.0, 1.0])


def test_the_options_of_the_docs_are_verls() -> None:
    verl = pytest.importorskip("verl", reason="verl is not installed", exc_type=ImportError)
    hydra = pytest.importorskip("hydra", exc_type=ImportError)
    given = shlex.split(launch("verl"))
    assert given[:3] == ["python3", "-m", "verl.trainer.main_ppo"]
    with hydra.initialize_config_dir(str(Path(verl.__file__).parent / "trainer" / "config"), version_base=None):
        config = hydra.compose("ppo_trainer", overrides=given[3:])  # raises for an option that is not there
    settings = config.reward.custom_reward_function.reward_kwargs
    assert settings == {"metric": "remote", "source": "http://127.0.0.1:8123#vela"}
