"""vlmreward: its scores are those of a plain forward pass, and nothing of a folder is made up or run."""

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
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
)

from reward import CaptionSample, MetricReward, load_scorer
from reward.errors import CheckpointError, ConfigError
from tests.contract import ScorerContract
from tests.toys import toy_judges
from tests.toys.toy_captioners import ENCODER, text_sizes

PROMPT = "Describe the image."
CAPTIONS = ["A red star", "A red star on the left of two blue circles.", "Two squares", "Hm. <|im_end|>"]


def gemma3():
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


def llama():
    """A reward model of texts, as trainers of language models use it."""
    tokens = toy_judges.byte_tokenizer()
    tokens.chat_template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    sizes = text_sizes(tokens, width=32, layers=2, positions=2048)
    config = LlamaConfig(**sizes, num_labels=1)
    return toy_judges.with_random_weights(LlamaForSequenceClassification(config), tokens), tokens


# Each model with the head that its checkpoints have.
KINDS = {
    "llava": (toy_judges.llava, "v_head.summary"),
    "qwen2-vl": (toy_judges.qwen2_vl, "v_head.summary beside"),  # as Skywork-VL-Reward has it
    "gemma3": (gemma3, "score"),
    "llama": (llama, "score"),
}


def add_weights(folder, weights, *, left_out="nothing"):
    file = folder / "model.safetensors"
    kept = {name: value for name, value in load_file(file).items() if left_out not in name}
    save_file(kept | weights, file, {"format": "pt"})


def save(kind, folder, *, padding_side="left"):
    """Writes a checkpoint; gives the model and its processor."""
    make, head = KINDS[kind]
    model, processor = make()
    getattr(processor, "tokenizer", processor).padding_side = padding_side
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    if head != "score":
        torch.manual_seed(1)
        weights = {"v_head.summary.weight": torch.randn(1, 32), "v_head.summary.bias": torch.randn(1)}
        if head.endswith("beside"):
            save_file(weights, folder / "value_head.safetensors")
        else:
            add_weights(folder, weights)
        model.value_head = weights
    return model, AutoProcessor.from_pretrained(folder)  # older versions of transformers read it as another class


def by_hand(model, processor, sample):
    """One unbatched pass: the class's own logits, or TRL's value head on the last hidden state of the last token."""
    caption = sample.candidate.replace("<|im_end|>", "< |im_end|>")
    user, assistant, images = PROMPT, caption, {}
    if hasattr(processor, "image_processor"):
        user = [{"type": "image"}, {"type": "text", "text": PROMPT}]
        assistant, images = [{"type": "text", "text": caption}], {"images": [sample.image]}
    turns = [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
    text = processor.apply_chat_template(turns, tokenize=False)
    inputs = processor(text=[text], **images, return_tensors="pt", add_special_tokens=False)
    with torch.inference_mode():
        output = model(**inputs, output_hidden_states=True)
    if not hasattr(model, "value_head"):
        return float(output.logits[0, 0])
    weight, bias = model.value_head.values()
    return float(output.hidden_states[-1][0, -1] @ weight[0] + bias)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for kind in ("qwen2-vl", "gemma3", "llama"):
        save(kind, folder / kind)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "padding_side"), [("llava", "right"), ("qwen2-vl", "left"), ("gemma3", "right"), ("llama", "right")]
)
def test_scores_are_those_of_a_plain_pass_however_they_are_batched(kind, padding_side, tmp_path):
    model, processor = save(kind, tmp_path, padding_side=padding_side)
    images = [*toy_judges.pictures(2), toy_judges.pictures(1, size=(48, 24))[0]]
    samples = [CaptionSample(caption, image) for image in images for caption in CAPTIONS]
    expected = [by_hand(model, processor, sample) for sample in samples]
    scorer = load_scorer("vlmreward", tmp_path, device="cpu")
    for batch_size in (None, 1, 5):
        assert scorer.score(samples, batch_size=batch_size).scores[:, 0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
class TestContract(ScorerContract):
    @pytest.fixture(scope="class", params=["gemma3", "llama"])
    @classmethod
    def scorer(cls, request, folder):
        return load_scorer("vlmreward", folder / request.param, device="cpu", max_characters=1000)


def test_prompt_and_longest_caption_are_options_and_a_bare_path_is_enough(folder, tmp_path):
    model, image = folder / "qwen2-vl", toy_judges.pictures(1)[0]
    samples = [CaptionSample("A red star.", image), CaptionSample("A red cat.", image)]
    plain = load_scorer("vlmreward", model, device="cpu").score(samples)
    other = load_scorer("vlmreward", model, device="cpu", prompt="Is it so?", max_characters=5)
    table = other.score(samples)
    assert table.scores[0] == pytest.approx(table.scores[1]) != pytest.approx(plain.scores[0])
    assert table.truncated.all()
    other.save_pretrained(tmp_path)
    assert load_scorer(tmp_path, device="cpu").score(samples).scores == pytest.approx(table.scores)
    assert np.isfinite(MetricReward(folder / "gemma3", device="cpu").score(samples).scores).all()
    blind = MetricReward(folder / "llama", device="cpu")
    assert np.isfinite(blind.rewards([CaptionSample("A red star.")])).all()
    with pytest.raises(ConfigError, match="max_characters must be a whole number of at least 1, got 0"):
        load_scorer("vlmreward", model, device="cpu", max_characters=0)


def test_the_file_of_a_value_head_is_fetched_with_a_hub_id(folder, hub):
    hub.add_folder("org/reward", folder / "qwen2-vl")
    sample = CaptionSample("A red star.", toy_judges.pictures(1)[0])
    here, there = (load_scorer("vlmreward", each, device="cpu") for each in (folder / "qwen2-vl", "org/reward"))
    assert there.score([sample]).scores == pytest.approx(here.score([sample]).scores)


def test_an_image_that_the_processor_refuses_spoils_no_other(folder):
    good, odd = toy_judges.pictures(1)[0], toy_judges.pictures(1, size=(600, 2))[0]
    samples = [CaptionSample(text, image) for text, image in zip("abc", (good, odd, odd), strict=True)]
    table = load_scorer("vlmreward", folder / "qwen2-vl", device="cpu").score(samples)
    assert np.isfinite(table.scores[:, 0]).tolist() == [True, False, False]
    assert all("aspect ratio" in table.errors[row] for row in (1, 2))


def _of_pairs(folder):
    save_file({"classifier.weight": torch.zeros(1, 32)}, folder / "model.safetensors", {"format": "pt"})


WRONG = {
    "of pairs": (_of_pairs, "no head for scores; .* compares captions with references: -m crossencoder=FOLDER"),
    "no head": (
        lambda folder: add_weights(folder, {}, left_out="score."),
        "has no head for scores; .* in words is a judge: -m vqascore=FOLDER;",
    ),
    "a head of two numbers": (
        lambda folder: add_weights(folder, {"score.weight": torch.zeros(2, 32)}),
        r"'score', which must give one number, .*weight is \(2, 32\), not \(1, 32\)",
    ),
    "two heads": (
        lambda folder: add_weights(folder, {"v_head.summary.weight": torch.zeros(1, 32)}),
        "has score, v_head.summary; vlmreward needs one of",
    ),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_what_is_not_whole_or_would_run_code_is_refused(change, message, tmp_path):
    save("gemma3", tmp_path)
    change(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        load_scorer("vlmreward", tmp_path, device="cpu")


@pytest.mark.parametrize("kind", ["qwen2-vl", "gemma3"])
def test_a_judge_of_a_reward_model_names_the_metric_that_reads_its_head(kind, folder):
    with pytest.raises(CheckpointError, match="it is a reward model: -m vlmreward=FOLDER"):
        load_scorer("vqascore", folder / kind, device="cpu")
