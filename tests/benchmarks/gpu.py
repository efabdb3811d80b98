"""What only a GPU answers, in one run of about a quarter of an hour, offline: a CSV file a stage, and a page to paste.

    make gpu                                # runs/gpu.md and runs/gpu/STAGE.csv; a card of 24 GB or more
    make gpu GPU="--only scores sizes"      # these stages alone
    make gpu GPU="--small"                  # without a card: the embedded networks on the CPU, to try the script

A stage that fails or lacks memory says so, and the others go on. Weights are random or embedded. A policy with random
weights writes tokens without meaning, so the metrics rate captions of the papers' length in their place.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import transformers
import trl
from datasets import Dataset, Features
from datasets import Image as ImageFeature
from peft import LoraConfig
from PIL import Image
from rich.console import Console
from rich.table import Table
from transformers import AutoConfig, AutoProcessor, Qwen2_5_VLForConditionalGeneration, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from examples import untrained
from examples.photos_grpo import LORA
from integrations.hf_generate import BestOfN
from integrations.trl import load_policy, make_prompt_dataset
from reward import CaptionSample, MetricReward, load_scorer
from reward.decoding.captioners import prompt_inputs
from reward.metrics.clipscore.scorer import ClipScorer
from reward.scenes import make_dataset
from tests import paper_sizes
from tests.benchmarks import bench_offline, bench_sizes
from tests.benchmarks.measuring import make_table, write_csv
from tests.fake_cuda import GIB

NetworkT = TypeVar("NetworkT")
Row = dict[str, object]
ROOT = Path(__file__).resolve().parents[2]
BF16 = torch.bfloat16
# Largest differences to the CPU's float32, of scores in [0, 1], or for CLIPs in [0, 2.5].
BOUNDS = {"float32": 2e-3, "bfloat16": 0.2}
IMAGES, GROUPS, WORDS = 4, (1, 8, 16), 140
CAPTIONS, PHOTOS, TOKENS, STEPS = 8, 2, 128, 3  # captions of a photo, photos of a step, tokens of a caption
PROMPT = "Describe the image in detail."
MARKS = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")


class Card:
    """A card with the interface of `tests.fake_cuda.FakeDevice`, for `tests.paper_sizes`."""

    name = "cuda"

    def build(self, make: Callable[[], NetworkT], dtype: torch.dtype = torch.float32) -> NetworkT:
        """A network with random weights, made on the card."""
        default = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with torch.device(self.name):
                return make()
        finally:
            torch.set_default_dtype(default)


@contextmanager
def measured() -> Iterator[dict[str, float]]:
    """Context that fills in its `seconds`, and on a card the `GiB` at most."""
    found: dict[str, float] = {}
    card = torch.cuda.is_available()
    if card:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    yield found
    if card:
        torch.cuda.synchronize()
        found["GiB"] = round(torch.cuda.max_memory_allocated() / GIB, 2)
    found["seconds"] = time.perf_counter() - begin


def scorers(small: bool) -> dict[str, Callable[[], Any]]:
    """What makes each metric's scorer, at its paper's size in bfloat16, or small."""
    if small:
        return {name: lambda name=name: load_scorer(name, device="cpu") for name in ("vela", "beitscore", "clipscore")}
    made: dict[str, Callable[[], Any]] = {
        name: lambda make=make: make(Card()) for name, make in bench_sizes.SCORERS.items()
    }
    for name, length in (("clipscore", 77), ("longclipscore", 248)):
        made[name] = lambda length=length: ClipScorer(paper_sizes.clip_towers(Card(), BF16, context_length=length))
    return made | {"bertscore": lambda: paper_sizes.bert(Card(), BF16)}


def paper_rows(count: int, images: int = IMAGES) -> list[CaptionSample]:
    """So many captions of each image, with five references."""
    colors = ("red", "green", "blue", "white", "black", "yellow", "cyan", "magenta")[:images]
    return [row for color in colors for row in paper_sizes.captions_of_one_image(count, words=WORDS, color=color)]


def tests(small: bool, folder: Path) -> Iterator[Row]:
    """The tests marked `gpu`; with --small they are only collected."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "--timeout=150", "tests"]
    done = subprocess.run(command + ["--collect-only"] * small, cwd=ROOT, capture_output=True, text=True, check=False)
    yield {"tests marked gpu": done.stdout.strip().rpartition("\n")[2].strip("= ")}
    if done.returncode:
        raise RuntimeError(f"tests failed:\n{done.stdout[-2000:]}")


def scores(small: bool, folder: Path) -> Iterator[Row]:
    """Scores beside those of the CPU in float32; with --small bfloat16 alone, on the CPU."""
    scenes = list(make_dataset(8, 977))
    rows = [
        CaptionSample(other["cand"], row["image"], row["refs"])
        for row, following in zip(scenes, scenes[1:] + scenes[:1], strict=True)
        for other in (row, following)
    ]
    sources = dict.fromkeys(("vela", "beitscore", "clipscore", "refclipscore"), "embedded")
    sources["longclipscore"] = str(untrained.make_long_clip(folder / "longclip.pt"))
    too_far = []
    for name, source in sources.items():
        expected = load_scorer(name, source, device="cpu", dtype="float32").score(rows).scores
        cells: Row = {"metric": name}
        for dtype in ("bfloat16",) if small else tuple(BOUNDS):
            found = load_scorer(name, source, device="cpu" if small else "cuda", dtype=dtype).score(rows).scores
            difference = float(np.nanmax(np.abs(found - expected)))
            cells[f"{dtype}, largest difference"] = f"{difference:.1e}"
            if not difference <= BOUNDS[dtype]:
                too_far.append(f"{name} in {dtype}: {difference:.1e}")
        yield cells
    if too_far:
        raise AssertionError(f"above {BOUNDS}: {', '.join(too_far)}")


def sizes(small: bool, folder: Path) -> Iterator[Row]:
    """Captions a second and memory at the sizes of the papers: the fastest of three calls for four images."""
    for name, make in scorers(small).items():
        scorer = make()
        for count in GROUPS[: 1 if small else None]:
            rows = paper_rows(count)
            scorer.score(rows)
            calls = []
            for _ in range(3):
                with measured() as found:
                    scorer.score(rows)
                calls.append(found)
            best = min(calls, key=lambda call: call["seconds"])
            rate = len(rows) / best["seconds"]
            yield {"metric": name, "captions an image": count, "captions/s": f"{rate:.1f}", "GiB": best.get("GiB", "")}
        del scorer


class TimedReward:
    """A reward function that rates captions of the papers' length, whatever was written, and takes its time."""

    def __init__(self, scorer: Any) -> None:
        self.reward, self.seconds = MetricReward(scorer), list[float]()
        self.__name__ = "timed"

    def __call__(self, completions: Sequence[Any], **_: Any) -> list[float | None]:
        return self.rewards(paper_rows(CAPTIONS, len(completions) // CAPTIONS))

    def rewards(self, samples: Sequence[CaptionSample]) -> list[float | None]:
        """Rates samples, as `BestOfN` asks."""
        with measured() as found:
            rewards = self.reward.rewards(samples)
        self.seconds.append(found["seconds"])
        return rewards


class StepSeconds(TrainerCallback):
    """Seconds of each step of a trainer."""

    def __init__(self) -> None:
        self.seconds, self.begin = list[float](), 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.begin = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.perf_counter() - self.begin)


class _Words:
    """Stands for a processor whose captions have the papers' length."""

    def batch_decode(self, rows: Any, **_: Any) -> list[str]:
        return [f"{number} star " * (WORDS // 2) for number in range(len(rows))]


def policy(small: bool, folder: Path) -> tuple[Any, Any, dict[str, Any]]:
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


def grpo(small: bool, folder: Path) -> Iterator[Row]:
    """Seconds of a step of GRPO with LoRA, and the share of its reward."""
    colors = [(20 * number, 90, 160) for number in range(PHOTOS)]
    pictures = [Image.new("RGB", (64, 48) if small else (640, 480), color) for color in colors]
    rows = make_prompt_dataset(Dataset.from_dict({"image": pictures}, Features({"image": ImageFeature()})), PROMPT)
    for name, make in scorers(small).items():
        if name.startswith(("clip", "bert")):
            continue
        model, processor, never_ends = policy(small, folder)
        reward, clock = TimedReward(make()), StepSeconds()
        args = GRPOConfig(
            output_dir=str(folder / "trainer"),
            max_steps=2 if small else STEPS,
            num_generations=CAPTIONS,
            per_device_train_batch_size=CAPTIONS,
            gradient_accumulation_steps=PHOTOS,
            max_completion_length=8 if small else TOKENS,
            generation_kwargs=never_ends,
            beta=0.0,
            save_strategy="no",
            report_to="none",
            use_cpu=small,
            bf16=not small,
        )
        lora = LoraConfig(**LORA, task_type="CAUSAL_LM")
        parts = {"train_dataset": rows, "peft_config": lora, "processing_class": processor, "callbacks": [clock]}
        with measured() as found:
            GRPOTrainer(model=model, reward_funcs=[reward], args=args, **parts).train()
        yield {"reward": name} | _share(clock.seconds[1:], reward.seconds[1:], found)
        del model, reward


def best_of_n(small: bool, folder: Path) -> Iterator[Row]:
    """Seconds of a call of best-of-8 for one photo, and the share of its reward."""
    model, processor, never_ends = policy(small, folder)
    image = Image.new("RGB", (64, 48) if small else (640, 480), "red")
    inputs = prompt_inputs(processor, [image], PROMPT).to("cpu" if small else "cuda")
    more = {"max_new_tokens": 8 if small else TOKENS, "do_sample": True, **never_ends}
    for name, make in scorers(small).items():
        reward, seconds = TimedReward(make()), list[float]()
        decoding = BestOfN(reward, n=CAPTIONS, processor=_Words())
        for _ in range(3):
            with measured() as found:
                model.generate(**inputs, **more, custom_generate=decoding, images=[image])
            seconds.append(found["seconds"])
        yield {"reward": name} | _share(seconds[1:], reward.seconds[1:], found)
        del reward, decoding


def _share(seconds: Sequence[float], of_reward: Sequence[float], found: Mapping[str, float]) -> Row:
    whole, part = min(seconds), min(of_reward)
    share = f"{100 * part / whole:.1f}"
    return {
        "seconds": f"{whole:.2f}",
        "of the reward": f"{part:.2f}",
        "share, %": share,
        "GiB": found.get("GiB", ""),
    }


def files(small: bool, folder: Path) -> Iterator[Row]:
    """`capreward score` of Parquet with pictures inside, beside the bare scorer on the same device."""
    count = 64 if small else 12_000
    options = argparse.Namespace(rows=count, device="cpu" if small else "cuda", dtype=None if small else "bfloat16")
    options.bare = min(count, 1000)
    metrics = ["beitscore", "clipscore"]
    if not small:
        load = paper_sizes.beitscore(Card(), torch.float32)
        type(load_scorer("beitscore", device="cpu"))(*load).save_pretrained(folder / "beitscore")
        metrics = [f"beitscore={folder / 'beitscore'}"]
    bench_offline.write_rows(folder / "data.parquet", rows=count, group=CAPTIONS)
    bench_offline.write_rows(folder / "first.parquet", rows=64, group=CAPTIONS)
    for metric in metrics:
        yield dict(bench_offline.compare(metric, folder, options))


STAGES: dict[str, Callable[[bool, Path], Iterator[Row]]] = {
    "tests": tests,
    "scores": scores,
    "sizes": sizes,
    "grpo": grpo,
    "best-of-n": best_of_n,
    "files": files,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the stages; exit code 1 if one did not end as it should, 2 without a card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small networks on the CPU")
    parser.add_argument("--only", nargs="+", choices=list(STAGES), metavar="STAGE", help=f"of {', '.join(STAGES)}")
    parser.add_argument("--output", type=Path, default=Path("runs/gpu"), help="folder; default: %(default)s")
    options = parser.parse_args(argv)
    if not options.small and not torch.cuda.is_available():
        print(f'torch {torch.__version__} finds no card: try the script by `make gpu GPU="--small"`', file=sys.stderr)
        return 2
    options.output.mkdir(parents=True, exist_ok=True)
    card = "no card, --small" if options.small else torch.cuda.get_device_properties(0).name
    page = options.output.with_suffix(".md")
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}, TRL {trl.__version__}"
    page.write_text(f"# capreward on {card}\n\n{versions}\n", encoding="utf-8")
    failed = []
    for name in options.only or STAGES:
        begin, rows, note = time.monotonic(), list[Row](), ""
        with tempfile.TemporaryDirectory() as folder:
            try:
                for row in STAGES[name](options.small, Path(folder)):
                    print(name, *(f"{key}: {value}" for key, value in row.items()), sep=" | ", flush=True)
                    rows.append(row)
            except Exception as error:  # the other stages go on, and the page says why this one did not
                traceback.print_exc()
                failed.append(name)
                note = f"**{type(error).__name__}**: {str(error).partition(chr(10))[0]:.300}\n"
        table = _table(name, rows)
        write_csv(options.output / f"{name}.csv", table)
        with page.open("a", encoding="utf-8") as file:
            file.write(f"\n## {name}, {time.monotonic() - begin:.0f} s\n\n{_markdown(table)}\n{note}")
        Console(width=130).print(table)
    print(f"-> {page}" + (f"; not as they should be: {', '.join(failed)}" if failed else ""))
    return int(bool(failed))


def _table(title: str, rows: Sequence[Row]) -> Table:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = make_table(title, columns)
    for row in rows:
        table.add_row(*(str(row.get(name, "")) for name in columns))
    return table


def _markdown(table: Table) -> str:
    heads = [str(column.header) for column in table.columns]
    rows = zip(*(column.cells for column in table.columns), strict=True)
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in (heads, ["---"] * len(heads), *rows))


if __name__ == "__main__":
    sys.exit(main())
