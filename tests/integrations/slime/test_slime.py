"""slime: the shapes of its calls, then its own `async_rm` and `batched_async_rm`, where a clone is on the path."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from integrations.slime import custom_rm
from reward.errors import InvalidSampleError
from tests.integrations.frameworks import BLACK, GREY, WHITE, PictureMetric, launch, options


def row(**fields: Any) -> Any:
    return SimpleNamespace(**{"prompt": "Describe.", "response": "A star.", "label": None, "metadata": {}, **fields})


def test_images_wherever_a_sample_holds_them(picture: PictureMetric) -> None:
    message = {"role": "user", "content": [{"type": "image", "image": GREY}]}
    samples = [
        row(multimodal_inputs={"images": [WHITE], "videos": None}, label="A red star."),
        row(multimodal_inputs={"images": None}, prompt=[message], metadata={"references": ["One.", "Two."]}),
        row(multimodal_inputs={"images": [WHITE]}, metadata={"image": BLACK}),
    ]
    args = SimpleNamespace(capreward=picture.patient)

    async def together() -> list[Any]:
        return await asyncio.gather(*[custom_rm(args, sample) for sample in samples])

    assert asyncio.run(together()) == [1.0, 0.2, 0.0]
    assert asyncio.run(custom_rm(args, samples)) == [1.0, 0.2, 0.0]  # a group
    assert picture.calls == 2
    assert [sample.references for sample in picture.samples[:3]] == [("A red star.",), ("One.", "Two."), ()]


def test_a_sample_without_a_score(picture: PictureMetric) -> None:
    samples = [row(multimodal_inputs={"images": [GREY]}, response=text) for text in ("fail", "A star.")]
    with pytest.raises(InvalidSampleError, match="missing=NUMBER"):
        asyncio.run(custom_rm(SimpleNamespace(capreward=picture.patient), samples))
    args = SimpleNamespace(capreward={**picture.patient, "missing": 0.5})
    assert asyncio.run(custom_rm(args, samples)) == [0.5, 0.2]


def test_slime_itself_loads_and_calls_the_function(picture: PictureMetric) -> None:
    hub = pytest.importorskip("slime.rollout.rm_hub", reason="no clone of slime is on the path", exc_type=ImportError)
    from slime.utils.types import Sample

    args = SimpleNamespace(custom_rm_path="integrations.slime.custom_rm", capreward=picture.patient)
    samples = [Sample(response="A star.", multimodal_inputs={"images": [image]}) for image in (WHITE, GREY)]

    async def together() -> list[float]:
        return await asyncio.gather(*[hub.async_rm(args, sample) for sample in samples])

    assert asyncio.run(together()) == [1.0, 0.2]
    assert asyncio.run(hub.batched_async_rm(args, samples)) == [1.0, 0.2]


def test_the_options_of_the_docs_are_slimes() -> None:
    slime = pytest.importorskip("slime.utils.misc", reason="no clone of slime is on the path", exc_type=ImportError)
    source = (Path(slime.__file__).parent / "arguments.py").read_text(encoding="utf-8")
    megatron = {"--load"}  # which slime reads from Megatron's parser
    assert options("slime") - megatron <= set(re.findall(r'"(--[\w-]+)"', source))
    assert "integrations.slime.custom_rm" in launch("slime")
