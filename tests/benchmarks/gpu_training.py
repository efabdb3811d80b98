"""Policies with random weights on a GPU: a step of GRPO with two rewards, and best-of-n. See `gpu`."""

from datasets import Dataset, Features
from datasets import Image as ImageFeature
from peft import LoraConfig
from PIL import Image
from transformers import AutoConfig, AutoProcessor, Qwen2_5_VLForConditionalGeneration
from trl import GRPOConfig, GRPOTrainer

from examples import untrained
from examples.photos_grpo import LORA
from integrations.hf_generate import BestOfN
from integrations.trl import load_policy, make_prompt_dataset
from reward import MetricReward
from reward.decoding.captioners import prompt_inputs
from tests.benchmarks.gpu_scoring import BF16, WORDS, Card, measured, paper_rows, scorers
from tests.toys import paper_sizes

CAPTIONS, PHOTOS, TOKENS = 8, 8, 256  # as docs/PHOTOS.md: 64 captions of 256 tokens a step
PROMPT = "Describe the image in detail."
MARKS = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")


class TimedReward:
    """A reward function that rates captions of the papers' length, whatever was written, and takes its time."""

    def __init__(self, scorer):
        self.reward, self.seconds, self.__name__ = MetricReward(scorer), [], scorer.spec.name

    def __call__(self, completions, **_):
        return self.rewards(paper_rows(CAPTIONS, len(completions) // CAPTIONS))

    def rewards(self, samples):
        """Rates samples, as `BestOfN` asks."""
        with measured() as found:
            rewards = self.reward.rewards(samples)
        self.seconds.append(found["seconds"])
        return rewards


class _Words:
    """Stands for a processor whose captions have the papers' length."""

    def batch_decode(self, rows, **_):
        return [f"{number} star " * (WORDS // 2) for number in range(len(rows))]


def policy(small, folder):
    """A policy of the size of Qwen2.5-VL-3B, its processor, and options with which each caption has all its tokens."""
    source = untrained.make_qwen_vl(folder / "policy")
    processor = AutoProcessor.from_pretrained(source)
    if small:
        model = load_policy(source)[0]
    else:
        config, own = paper_sizes.qwen_vl("3B"), AutoConfig.from_pretrained(source)
        for mark in MARKS:  # those of the processor
            setattr(config, mark, getattr(own, mark))
        model = Card().build(lambda: Qwen2_5_VLForConditionalGeneration(config), BF16)
    kept_out = [*(getattr(model.config, mark) for mark in MARKS), processor.tokenizer.eos_token_id]
    return model, processor, {"suppress_tokens": kept_out}


def grpo(small, folder):
    """Seconds of a step of GRPO with LoRA and two rewards at the size of docs/PHOTOS.md, and the rewards' share."""
    photos, made = 2 if small else PHOTOS, scorers(small)
    pictures = [Image.new("RGB", (64, 48) if small else (640, 480), (20 * each, 90, 160)) for each in range(photos)]
    rows = make_prompt_dataset(Dataset.from_dict({"image": pictures}, Features({"image": ImageFeature()})), PROMPT)
    model, processor, never_ends = policy(small, folder)
    rewards = [TimedReward(made[name]()) for name in ("clipscore", "beitscore" if small else "vela")]
    args = GRPOConfig(
        output_dir=str(folder / "trainer"),
        max_steps=1,
        logging_steps=1,
        num_generations=CAPTIONS,
        per_device_train_batch_size=CAPTIONS,
        gradient_accumulation_steps=photos,
        max_completion_length=8 if small else TOKENS,
        generation_kwargs=never_ends,
        beta=0.0,
        save_strategy="no",
        report_to="none",
        use_cpu=small,
        bf16=not small,
    )
    lora = LoraConfig(**LORA, task_type="CAUSAL_LM")
    parts = {"train_dataset": rows, "peft_config": lora, "processing_class": processor}
    trainer = GRPOTrainer(model=model, reward_funcs=rewards, args=args, **parts)
    with measured() as found:
        trainer.train()
    seconds = min(line["step_time"] for line in trainer.state.log_history if "step_time" in line)
    each = {reward.__name__: min(reward.seconds) for reward in rewards}
    yield {"step": f"GRPO, {photos * CAPTIONS} captions"} | _shares(seconds, each, found)


def best_of_n(small, folder):
    """Seconds of a call of best-of-8 for one photo, and the share of its reward."""
    model, processor, never_ends = policy(small, folder)
    image = Image.new("RGB", (64, 48) if small else (640, 480), "red")
    inputs = prompt_inputs(processor, [image], PROMPT).to("cpu" if small else Card.name)
    more = {"max_new_tokens": 8 if small else 128, "do_sample": True, **never_ends}
    made = scorers(small)
    for name in ("vela", "beitscore", "clipscore"):
        reward, seconds = TimedReward(made[name]()), []
        decoding = BestOfN(reward, n=CAPTIONS, processor=_Words())
        for _ in range(2):
            with measured() as found:
                model.generate(**inputs, **more, custom_generate=decoding, images=[image])
            seconds.append(found["seconds"])
        yield {"step": "best of 8"} | _shares(min(seconds[1:]), {name: min(reward.seconds[1:])}, found)
        del reward, decoding


def _shares(seconds, each, found):
    return {
        "seconds": f"{seconds:.2f}",
        "of the rewards": ", ".join(f"{name} {part:.2f}" for name, part in each.items()),
        "share, %": f"{100 * sum(each.values()) / seconds:.1f}",
        "GiB": found.get("GiB", ""),
    }
