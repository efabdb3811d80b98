"""vlmreward: its scores are those of a plain forward pass, and nothing of a folder is made up or run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoProcessor,
    Gemma3Config,
    Gemma3ForSequenceClassification,
    Gemma3ImageProcessor,
    Gemma3Processor,
    PreTrainedTokenizerFast,
)

from reward import CaptionSample, MetricReward, load_scorer
from reward.errors import CheckpointError, ConfigError
from reward.metrics.vlmreward.scorer import VlmRewardScorer
from tests.contract import ScorerContract
from tests.toys import toy_judges
from tests.toys.loopback_hub import LoopbackHub
from tests.toys.toy_models import ENCODER, text_sizes

PROMPT = "Describe the image."
CAPTIONS = ["A red star.", "A red star on the left of two blue circles.", "Two squares", "Hm. <|im_end|>"]


def gemma3() -> tuple[Any, Any]:
    """A template that ends with the end mark, which also pads: the model's own class then reads the token before it."""
    marks = {f"{name}_token": f"<{name}>" for name in ("boi", "eoi", "image")}
    tokens = PreTrainedTokenizerFast(
        tokenizer_object=toy_judges.byte_tokenizer(*marks.values()).backend_tokenizer,
        **dict.fromkeys(("pad_token", "eos_token", "bos_token"), "<|im_end|>"),
        extra_special_tokens=marks,
    )
    image = Gemma3ImageProcessor(size={"height": 32, "width": 32})
    template = toy_judges.TEMPLATE.replace("IMAGE", "<boi>").replace("<|im_end|>\n", "<|im_end|>")
    processor = Gemma3Processor(image, tokens, chat_template=template, image_seq_length=4)
    text = text_sizes(tokens, width=32, layers=2, positions=2048)
    layers = ["sliding_attention", "full_attention"]
    config = Gemma3Config(
        text_config={**text, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 64, "layer_types": layers},
        vision_config={"model_type": "siglip_vision_model", **ENCODER, "image_size": 32, "patch_size": 8},
        mm_tokens_per_image=4,
        boi_token_index=tokens.boi_token_id,
        eoi_token_index=tokens.eoi_token_id,
        image_token_index=tokens.image_token_id,
        num_labels=1,
        pad_token_id=tokens.pad_token_id,
    )
    return toy_judges.with_random_weights(Gemma3ForSequenceClassification(config), tokens), processor


# Each model with the head that its checkpoints have.
KINDS: dict[str, tuple[Callable[[], tuple[Any, Any]], str]] = {
    "llava": (toy_judges.llava, "v_head.summary"),
    "qwen2-vl": (toy_judges.qwen2_vl, "v_head.summary beside"),  # as Skywork-VL-Reward has it
    "gemma3": (gemma3, "score"),
}


def save(kind: str, folder: Path, *, padding_side: str = "left") -> tuple[Any, Any]:
    """Writes a checkpoint; gives the model and its processor."""
    make, head = KINDS[kind]
    model, processor = make()
    processor.tokenizer.padding_side = padding_side
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    if head != "score":
        torch.manual_seed(1)
        weights = {"v_head.summary.weight": torch.randn(1, 32), "v_head.summary.bias": torch.randn(1)}
        if head.endswith("beside"):
            save_file(weights, folder / "value_head.safetensors")
        else:
            file = folder / "model.safetensors"
            save_file(load_file(file) | weights, file, {"format": "pt"})
        model.value_head = weights
    return model, AutoProcessor.from_pretrained(folder)  # older versions of transformers read it as another class


def by_hand(model: Any, processor: Any, sample: CaptionSample) -> float:
    """One unbatched pass: the class's own logits, or TRL's value head on the last hidden state of the last token."""
    caption = sample.candidate.replace("<|im_end|>", "< |im_end|>")
    turns = [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": PROMPT}]},
        {"role": "assistant", "content": [{"type": "text", "text": caption}]},
    ]
    text = processor.apply_chat_template(turns, tokenize=False)
    inputs = processor(text=[text], images=[sample.image], return_tensors="pt", add_special_tokens=False)
    with torch.inference_mode():
        output = model(**inputs, output_hidden_states=True)
    if not hasattr(model, "value_head"):
        return float(output.logits[0, 0])
    weight, bias = model.value_head.values()
    return float(output.hidden_states[-1][0, -1] @ weight[0] + bias)


@pytest.mark.slow
@pytest.mark.parametrize("padding_side", ["left", "right"])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_a_plain_pass_however_they_are_batched(
    kind: str, padding_side: str, tmp_path: Path
) -> None:
    model, processor = save(kind, tmp_path, padding_side=padding_side)
    images = [*toy_judges.pictures(2), toy_judges.pictures(1, size=(48, 24))[0]]
    samples = [CaptionSample(caption, image) for image in images for caption in CAPTIONS]
    expected = [by_hand(model, processor, sample) for sample in samples]
    scorer = load_scorer("vlmreward", tmp_path, device="cpu")
    for batch_size in (None, 1, 5):
        assert scorer.score(samples, batch_size=batch_size).scores[:, 0] == pytest.approx(expected, abs=1e-5)
    assert np.concatenate([scorer.score([each]).scores[0] for each in samples]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
class TestContract(ScorerContract):
    @pytest.fixture(scope="class", params=["llava", "gemma3"])
    @classmethod
    def scorer(cls, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> VlmRewardScorer:
        folder = tmp_path_factory.mktemp("model")
        save(request.param, folder)
        return VlmRewardScorer.from_pretrained(folder, device="cpu", max_characters=1000)


def test_prompt_and_longest_caption_are_options_and_a_bare_path_is_enough(tmp_path: Path) -> None:
    save("gemma3", tmp_path)
    image = toy_judges.pictures(1)[0]
    samples = [CaptionSample("A red star.", image), CaptionSample("A red cat.", image)]
    plain = MetricReward(tmp_path, device="cpu").score(samples)
    other = MetricReward("vlmreward", tmp_path, device="cpu", prompt="Is it so?", max_characters=5)
    assert plain.scores[0] != pytest.approx(other.score(samples).scores[0])
    assert other.score(samples).scores[0] == other.score(samples).scores[1]
    assert other.score(samples).truncated.all()
    with pytest.raises(ConfigError, match="max_characters must be a whole number of at least 1, got 0"):
        load_scorer("vlmreward", tmp_path, device="cpu", max_characters=0)
    load_scorer("vlmreward", tmp_path, device="cpu", prompt="Is it so?").save_pretrained(tmp_path / "saved")
    assert load_scorer(tmp_path / "saved", device="cpu").prompt == "Is it so?"


def test_the_file_of_a_value_head_is_fetched_with_a_hub_id(tmp_path: Path, hub: LoopbackHub) -> None:
    save("qwen2-vl", tmp_path)
    hub.add_folder("org/reward", tmp_path)
    sample = CaptionSample("A red star.", toy_judges.pictures(1)[0])
    here = load_scorer("vlmreward", tmp_path, device="cpu").score([sample]).scores
    assert load_scorer("vlmreward", "org/reward", device="cpu").score([sample]).scores == pytest.approx(here)


def test_an_image_that_the_processor_refuses_spoils_no_other(tmp_path: Path) -> None:
    save("qwen2-vl", tmp_path)
    good, odd = toy_judges.pictures(1)[0], toy_judges.pictures(1, size=(600, 2))[0]
    table = load_scorer("vlmreward", tmp_path, device="cpu").score(
        [CaptionSample(c, i) for c, i in zip("abc", (good, odd, odd), strict=True)]
    )
    assert np.isfinite(table.scores[0]).all()
    assert {row: "aspect ratio" in reason for row, reason in table.errors.items()} == {1: True, 2: True}


def test_an_empty_caption_is_no_better_than_any_other_of_the_call(tmp_path: Path) -> None:
    save("gemma3", tmp_path)
    reward = MetricReward("vlmreward", tmp_path, device="cpu")
    assert reward.range == (-np.inf, np.inf)
    first, second, empty = reward(
        prompts=[""] * 3, completions=["A star.", "Two cats.", ""], image=toy_judges.pictures(3)
    )
    assert empty == min(first, second)
    assert reward(prompts=[""], completions=[""], image=toy_judges.pictures(1)) == [None]


def _without(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "model.safetensors"
        save_file({key: value for key, value in load_file(file).items() if name not in key}, file, {"format": "pt"})

    return change


def _with(name: str, *shape: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "model.safetensors"
        save_file(load_file(file) | {name: torch.zeros(shape)}, file, {"format": "pt"})

    return change


def _plant(folder: Path) -> None:
    (folder / "code.py").write_text("raise SystemExit('run')")
    config = json.loads((folder / "config.json").read_text())
    own = {"auto_map": {"AutoConfig": "code.C", "AutoModelForImageTextToText": "code.M"}, "model_type": "own"}
    (folder / "config.json").write_text(json.dumps(config | own))


def _of_texts(folder: Path) -> None:
    (folder / "config.json").write_text('{"architectures": ["LlamaForSequenceClassification"], "model_type": "llama"}')


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_of_texts, "is a llama, which reads no images .* -m crossencoder=FOLDER"),
        (_without("score."), "has no head for scores; .* in words is a judge: -m vqascore=FOLDER"),
        (_with("score.weight", 2, 32), r"'score', which must give one number, .*weight is \(2, 32\), not \(1, 32\)"),
        (_with("v_head.summary.weight", 1, 32), "has score, v_head.summary; vlmreward needs one of"),
        (_without("layers.1.mlp"), "lacks 3 weights"),
        (_with("reward_head.weight", 1, 32), r"has no place for \(reward_head.weight\)"),
        (_plant, "wants to run code of its own"),
    ],
)
def test_what_is_not_whole_or_would_run_code_is_refused(
    change: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    save("gemma3", tmp_path)
    change(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        load_scorer("vlmreward", tmp_path, device="cpu")


@pytest.mark.parametrize("kind", ["qwen2-vl", "gemma3"])
def test_a_judge_of_a_reward_model_names_the_metric_that_reads_its_head(kind: str, tmp_path: Path) -> None:
    save(kind, tmp_path)
    with pytest.raises(CheckpointError, match="it is a reward model: -m vlmreward=FOLDER"):
        load_scorer("vqascore", tmp_path, device="cpu")
