"""ms-swift: the shape of its calls, then its own loader of plugins, its registry and its scoring of a batch."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from integrations.ms_swift import CaptionORM
from reward.errors import InvalidSampleError
from tests.integrations.frameworks import GREY, WHITE, PictureMetric, options


def cell(image: Any) -> list[dict[str, Any]]:
    """An image as ms-swift casts it."""
    data = BytesIO()
    image.save(data, "PNG")
    return [{"bytes": data.getvalue(), "path": None}]


def test_a_call_of_the_trainer(picture: PictureMetric) -> None:
    orm = CaptionORM(args=object(), missing=-1.0, **picture.settings)
    messages = [{"role": "user", "content": "<image>Describe."}, {"role": "assistant", "content": "A star."}]
    rewards = orm(
        ["A star.", "fail", " ", "A star."],
        trainer_state=None,
        messages=[messages] * 4,
        prompt_id=["a"] * 4,
        request_id=["b"] * 4,
        finish_reason=["stop"] * 4,
        is_truncated=[False] * 4,
        rollout_infos=[{}] * 4,
        response_token_ids=[[1]] * 4,
        images=[cell(WHITE), cell(WHITE), cell(GREY), None],
        references=[["A red star."]] * 4,
    )
    assert rewards == [1.0, -1.0, 0.0, -1.0]  # a caption without a word is the policy's own doing
    assert picture.samples[0].references == ("A red star.",)


def test_a_row_without_a_score_raises_as_ms_swift_would_count_it_as_zero(picture: PictureMetric) -> None:
    orm = CaptionORM(**picture.settings)
    assert orm(["A star."], images=[cell(WHITE)]) == [1.0]
    with pytest.raises(InvalidSampleError, match="missing=NUMBER"):
        orm(["A star.", "A star."], images=[cell(WHITE), None])


PLUGIN = """
from integrations.ms_swift import register

register("bright", metric="picture", weights={"bright": 1})
register("wordy", metric="picture", weights={"words": 1})
"""


def test_ms_swift_itself_loads_the_plugin_and_calls_the_rewards(picture: PictureMetric, tmp_path: Path) -> None:
    rewards = pytest.importorskip("swift.rewards", reason="ms-swift is not installed", exc_type=ImportError)
    try:
        from swift.callbacks import callbacks_map
        from swift.rl_core.data import GRPOSample
        from swift.rl_core.grpo_algorithm import compute_rewards_per_func
        from swift.rlhf_trainers.utils import resolve_reward_funcs
        from swift.utils import import_external_file
    except ImportError as error:
        pytest.skip(f"a package that ms-swift needs is missing: {error}")
    (tmp_path / "plugin.py").write_text(PLUGIN)
    import_external_file(str(tmp_path / "plugin.py"))
    assert {"bright", "wordy"} <= set(rewards.orms)
    assert "resume_weights" in callbacks_map
    functions, names = resolve_reward_funcs(["bright", "wordy"], args=object())
    assert names == ["bright", "wordy"]
    samples = [
        GRPOSample.from_row(
            {
                "messages": [{"role": "user", "content": "<image>Describe."}, {"role": "assistant", "content": text}],
                "images": cell(image),
                "references": ["A red star."],
            }
        )
        for text, image in [("A star.", WHITE), ("A big star.", GREY)]
    ]
    table = compute_rewards_per_func(samples, functions, [None, None], device="cpu")
    assert table.tolist() == [pytest.approx([1.0, 3.0]), pytest.approx([0.2, 4.0])]  # words of caption and reference


def test_the_options_of_the_docs_are_ms_swifts() -> None:
    swift = pytest.importorskip("swift", reason="ms-swift is not installed", exc_type=ImportError)
    folder = Path(swift.__file__).parent
    source = "".join(file.read_text(encoding="utf-8") for file in folder.rglob("*arg*/**/*.py"))
    source += "".join(file.read_text(encoding="utf-8") for file in folder.rglob("*args*.py"))
    inherited = {"per_device_train_batch_size", "learning_rate", "output_dir"}  # of transformers
    names = {option.removeprefix("--") for option in options("ms-swift")} - inherited
    assert [name for name in sorted(names) if f"{name}:" not in source] == []
    assert len(names) > 8
