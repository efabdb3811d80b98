"""Steps of GRPO and of best-of-n with a policy of the size of Qwen2.5-VL-3B, and the share of them that rewards take.

A policy with random weights writes tokens without meaning. The metrics are therefore given captions of the papers'
length in their place, so that they do their usual work.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, Features
from datasets import Image as ImageFeature
from peft import LoraConfig
from PIL import Image
from transformers import AutoConfig, AutoProcessor, Qwen2_5_VLForConditionalGeneration
from transformers.trainer_callback import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from examples import photos_grpo, untrained
from examples.research.stored import read_csv
from integrations.hf_generate import BestOfN
from integrations.trl import load_policy, make_prompt_dataset
from reward import MetricReward, load_scorer
from reward.decoding.captioners import prompt_inputs
from tests import paper_sizes
from tests.benchmarks import bench_sizes, photo_memory
from tests.benchmarks.gpu.card import Card, Place
from tests.benchmarks.gpu.results import Report
from tests.benchmarks.gpu.sizes import WORDS, paper_rows
from tests.fake_cuda import GIB

__all__ = ["REWARDS", "best_of_n", "grpo", "photos", "recipe"]

REWARDS: dict[str, Callable[[Any], Any]] = {
    "vela": bench_sizes.SCORERS["vela"],
    "vela-one-prompt": bench_sizes.SCORERS[bench_sizes.ONE_PROMPT],
    "beitscore": bench_sizes.SCORERS["beitscore"],
}
CAPTIONS, PHOTOS, TOKENS, STEPS = 8, 2, 128, 3  # captions of a photo, photos of a step, tokens of a caption
COUNTED = Path(__file__).resolve().parents[3] / "docs/results/photos_memory.csv"
PROMPT = "Describe the image in detail."
MARKS = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")


class TimedReward:
    """A reward function that rates captions of the papers' length, whatever was written, and takes its time."""

    def __init__(self, reward: MetricReward, place: Place) -> None:
        self.reward, self.place = reward, place
        self.seconds: list[float] = []
        self.__name__ = "timed"

    def __call__(self, completions: list[Any], **_: Any) -> list[float]:
        return self.rewards(paper_rows(CAPTIONS, len(completions) // CAPTIONS))

    def rewards(self, samples: Any) -> list[float]:
        """Rates samples, all of which must get a reward."""
        self.place.wait()
        begin = time.perf_counter()
        rewards = self.reward.rewards(samples)
        self.place.wait()
        self.seconds.append(time.perf_counter() - begin)
        if None in rewards:
            raise ValueError(f"no reward: {self.reward.reason(samples[rewards.index(None)])}")
        return [float(value) for value in rewards if value is not None]


class _StepSeconds(TrainerCallback):
    def __init__(self, place: Place) -> None:
        self.place, self.seconds, self.begin = place, list[float](), 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.place.forget_peak()  # building a network takes more than running it
        self.begin = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.place.wait()
        self.seconds.append(time.perf_counter() - self.begin)


class _Words:
    """Stands for a processor whose captions have the papers' length."""

    def batch_decode(self, rows: Any, **_: Any) -> list[str]:
        return [f"{number} star " * (WORDS // 2) for number in range(len(rows))]


def _policies(place: Place) -> Iterator[tuple[str, Callable[[], Any], Any]]:
    """What the policy is, how it is made, and its processor; smaller ones follow, for cards that lack memory."""
    folder = untrained.make_qwen_vl(place.folder / "policy")
    processor = AutoProcessor.from_pretrained(folder)
    if place.simulated:
        yield "small, on the CPU", lambda: load_policy(folder)[0], processor
        return
    small = AutoConfig.from_pretrained(folder)

    def make(layers: int) -> Any:
        config = paper_sizes.qwen_vl("3B")
        text = config.text_config
        text.num_hidden_layers, text.layer_types = layers, text.layer_types[:layers]
        for mark in MARKS:  # those of the processor
            setattr(config, mark, getattr(small, mark))
        return Card().build(lambda: Qwen2_5_VLForConditionalGeneration(config), torch.bfloat16)

    for layers in (36, 18, 6):
        name = "Qwen2.5-VL-3B" if layers == 36 else f"{layers} layers of Qwen2.5-VL-3B"
        yield name, lambda layers=layers: make(layers), processor  # type: ignore[misc]


def _with_room(report: Report, place: Place, work: Callable[[str, Any, Any], None]) -> None:
    """Does the work with the largest policy that the card has room for."""
    for name, make, processor in _policies(place):
        try:
            work(name, make(), processor)
            return
        except torch.cuda.OutOfMemoryError:
            report.note(f"no room for {name}")
        gc.collect()
        torch.cuda.empty_cache()
    raise torch.cuda.OutOfMemoryError("no room for any policy beside this metric")


def _reward(metric: str, make: Callable[[Any], Any], place: Place) -> TimedReward:
    scorer = load_scorer(metric.partition("-")[0], device="cpu") if place.simulated else make(Card())
    return TimedReward(MetricReward(scorer), place)


def _never_ends(model: Any, processor: Any) -> dict[str, Any]:
    """Options of generation with which each caption has all its tokens, and none stands for an image."""
    return {"suppress_tokens": [*(getattr(model.config, mark) for mark in MARKS), processor.tokenizer.eos_token_id]}


def grpo(report: Report, place: Place, metric: str) -> None:
    """Seconds of a step with LoRA, of its reward, and memory."""
    tokens = 8 if place.simulated else TOKENS

    def work(name: str, model: Any, processor: Any) -> None:
        reward = _reward(metric, REWARDS[metric], place)
        step, own = _train(model, processor, reward, place, PHOTOS, tokens, (640, 480))
        report.row(
            f"GRPO with LoRA: a step of {PHOTOS} photos with {CAPTIONS} captions each",
            **{"policy": name, "reward": metric, "tokens a caption": tokens},
            **_shares(step, own, place),
        )

    _with_room(report, place, work)


def photos(report: Report, place: Place) -> None:
    """The memory that docs/PHOTOS.md counts: its 64 captions a step, its photos, and Long-CLIP as the reward."""
    tokens, count = (8, 2) if place.simulated else (256, photo_memory.CAPTIONS // CAPTIONS)
    height, width = (14 * patches for patches in photo_memory.SIDE)

    def work(name: str, model: Any, processor: Any) -> None:
        reward = _reward("clipscore", photo_memory.make_reward, place)
        step, own = _train(model, processor, reward, place, count, tokens, (width, height), steps=2)
        cells = {"policy": name, "tokens a caption": tokens, **_shares(step, own, place)}
        for row in read_csv(COUNTED):  # counting takes minutes
            if (row["policy"], row["tokens a caption"], row["at once"]) == (name, str(tokens), str(CAPTIONS)):
                cells["GiB counted"] = row["at most"]
        report.row(f"The recipe of docs/PHOTOS.md: a step of {count} photos with {CAPTIONS} captions each", **cells)

    _with_room(report, place, work)


def _train(
    model: Any,
    processor: Any,
    reward: TimedReward,
    place: Place,
    photos: int,
    tokens: int,
    size: tuple[int, int],
    steps: int = STEPS,
) -> tuple[float, float]:
    """Some steps of GRPO with LoRA; the seconds of a step, and those of its reward. The first is not counted."""
    clock = _StepSeconds(place)
    colors = [(20 * number, 90, 160) for number in range(photos)]
    rows = Dataset.from_dict(
        {"image": [Image.new("RGB", (64, 48) if place.simulated else size, color) for color in colors]},
        Features({"image": ImageFeature()}),
    )
    trainer = GRPOTrainer(
        model=model,
        processing_class=processor,
        reward_funcs=[reward],
        train_dataset=make_prompt_dataset(rows, PROMPT),
        peft_config=LoraConfig(**photos_grpo.LORA, task_type="CAUSAL_LM"),
        callbacks=[clock],
        args=GRPOConfig(
            output_dir=str(place.folder / "trainer"),
            max_steps=2 if place.simulated else steps,
            num_generations=CAPTIONS,
            per_device_train_batch_size=CAPTIONS,
            gradient_accumulation_steps=photos,
            max_completion_length=tokens,
            generation_kwargs=_never_ends(model, processor),
            beta=0.0,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=place.simulated,
            bf16=not place.simulated,
        ),
    )
    trainer.train()
    return statistics.median(clock.seconds[1:]), statistics.median(reward.seconds[1:])


def best_of_n(report: Report, place: Place) -> None:
    """Seconds of a call for one photo, of its reward, and memory."""
    tokens = 8 if place.simulated else TOKENS

    def work(name: str, model: Any, processor: Any) -> None:
        image = Image.new("RGB", (64, 48) if place.simulated else (640, 480), "red")
        inputs = prompt_inputs(processor, [image], PROMPT).to(place.device)
        for metric, make in REWARDS.items():
            reward, seconds = _reward(metric, make, place), list[float]()
            decoding = BestOfN(reward, n=CAPTIONS, processor=_Words())
            for _ in range(3):
                place.forget_peak()
                begin = time.perf_counter()
                more = {"max_new_tokens": tokens, "do_sample": True, **_never_ends(model, processor)}
                model.generate(**inputs, **more, custom_generate=decoding, images=[image])
                place.wait()
                seconds.append(time.perf_counter() - begin)
            report.row(
                f"Best of {CAPTIONS}: a call for a photo",
                **{"policy": name, "reward": metric, "tokens a caption": tokens},
                **_shares(min(seconds[1:]), min(reward.seconds[1:]), place),
            )
            del reward, decoding

    _with_room(report, place, work)


def _shares(seconds: float, of_reward: float, place: Place) -> dict[str, str]:
    cells = {"seconds": f"{seconds:.2f}", "of the reward": f"{of_reward:.2f}", "share, %": "", "GiB": "-"}
    cells["share, %"] = f"{100 * of_reward / seconds:.1f}"
    if not place.simulated:
        cells["GiB"] = f"{Card().peak / GIB:.1f}"
    return cells


def recipe(report: Report, place: Place) -> None:
    """The script of docs/PHOTOS.md with untrained models; on a card all its lines run as for photos, in bfloat16."""
    made = place.folder / "models"
    options = ["--output", str(place.folder / "out")]
    if place.simulated:
        options += ["--smoke"]
    else:
        options += ["--images", str(untrained.save_photos(made / "photos"))]
        options += ["--model", str(untrained.make_qwen_vl(made / "policy")), "--steps", "4", "--every", "2"]
        options += ["--metric", "longclipscore", "--source", str(untrained.make_long_clip(made / "longclip.pt"))]
        options += ["--second", "clipscore", "--second-source", str(untrained.make_open_clip(made / "open_clip"))]
        options += ["--captions", "16", "--max-completion-length", "16", "--image-tokens", "16"]
    trainer = photos_grpo.main(options)
    report.note(f"{trainer.state.global_step} steps of the recipe, on {trainer.args.device}")
