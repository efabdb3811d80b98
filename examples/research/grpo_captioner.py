"""GRPO of the embedded captioner with a caption metric.

    python -m examples.research.grpo_captioner --output runs/grpo
    python -m examples.research.grpo_captioner --seeds 0 1 2 --output runs/grpo
    python -m examples.research.grpo_captioner --reward both --steps 300 --scenes 400 --output runs/grpo_both

Held-out scenes are captioned by the base and by what GRPO made of it, greedy and sampled. Of several seeds, the tables
give the mean and each one. With --monitor, a second metric watches the training: `trainer/monitor.jsonl` of each run
holds what it saw and, beside it, the oracle's F1 and flaws. Every piece is kept in the output folder: stopped, the same
command goes on from the last piece or saved step. Writes grpo.md and grpo.json, which says at which step a training
went on after a stop.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from integrations.demo.captioner import MAX_NEW_TOKENS, write_captions
from integrations.demo.grpo import Written, make_trainer
from integrations.demo.quality import MEASURES, compare_systems, mean_quality, write_systems
from integrations.demo.run import SEED
from integrations.trl import ResumeWeights, RewardMonitor, last_checkpoint, load_policy
from reward import BeitScoreReward, CombinedReward, LengthReward, RetrievalReward, VelaReward
from reward.scenes import make_dataset

if TYPE_CHECKING:
    from datasets import Dataset

METRICS = {
    "vela": "VELA",
    "beitscore": "BEiTScore",
    "both": "0.7 VELA + 0.3 BEiTScore",
    "vela_retrieval": "0.7 VELA + 0.3 RetrievalReward",
    "length": "LengthReward(high=10)",
    "length_retrieval": "0.7 LengthReward(high=10) + 0.3 RetrievalReward",
}
DECODING = ("greedy", "sampled")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reward", choices=METRICS, default="vela", help="default: %(default)s")
    parser.add_argument("--vela", default="embedded", help="checkpoint of VELA")
    parser.add_argument("--beitscore", default="embedded", help="checkpoint of BEiTScore")
    parser.add_argument("--captioner", default="embedded", help="checkpoint of the captioner")
    parser.add_argument("--steps", type=int, default=200, help="default: %(default)s")
    parser.add_argument("--prompts", type=int, default=8, help="scenes per step; default: %(default)s")
    parser.add_argument("--generations", type=int, default=8, help="captions per scene; default: %(default)s")
    parser.add_argument("--lr", type=float, default=2e-4, help="learning rate; default: %(default)s")
    parser.add_argument("--scenes", type=int, default=200, help="held-out scenes; default: %(default)s")
    parser.add_argument("--scene-seed", type=int, default=SEED, help="of the scenes; default: %(default)s")
    parser.add_argument(
        "--samples", type=int, default=4, help="sampled captions a held-out scene; default: %(default)s"
    )
    parser.add_argument("--max-new-tokens", type=int, default=MAX_NEW_TOKENS, help="default: %(default)s")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the trainings; default: 0")
    parser.add_argument("--monitor", choices=["vela", "beitscore"], help="watch the training with this second metric")
    parser.add_argument("--monitor-source", default="embedded", help="its checkpoint; default: %(default)s")
    parser.add_argument("--monitor-every", type=int, default=10, help="steps between two looks; default: %(default)s")
    parser.add_argument("--monitor-scenes", type=int, default=200, help="that it looks at; default: %(default)s")
    parser.add_argument("--output", type=Path, required=True, help="folder for all pieces, grpo.md and grpo.json")
    options = parser.parse_args(argv)
    check_options(options, parser)

    seeds: list[int] = list(dict.fromkeys(options.seeds))
    rows = make_dataset(options.scenes, options.scene_seed)
    written = _captions("base", options.output, 0, rows, options)
    trained = f"GRPO with {METRICS[options.reward]}"
    resumed: dict[str, int] = {}
    of_seeds = []
    for seed in seeds:
        folder = options.output / f"seed_{seed}"
        of_seeds.append(_captions(trained, folder, seed, rows, options))
        resumed[f"{trained}, seed {seed}"] = json.loads((_piece(folder, trained) / "resumed.json").read_text())
    for name in of_seeds[0]:  # a scene's captions of all seeds together: their mean is that of the seeds
        written[name] = [list(chain(*groups)) for groups in zip(*(of[name] for of in of_seeds), strict=True)]
    if len(seeds) > 1:
        for seed, of_seed in zip(seeds, of_seeds, strict=True):
            written |= {f"{name}, seed {seed}": captions for name, captions in of_seed.items()}

    quality = {name: mean_quality(captions, list(rows["scene"])) for name, captions in written.items()}
    for name, captions in written.items():
        # Captions of different trainings may be equal, and have lost nothing by it.
        trainings = [of_seed[name] for of_seed in of_seeds] if name in of_seeds[0] else [captions]
        quality[name]["distinct"] = np.mean([_distinct(training) for training in trainings], axis=0)
    pairs = [(f"{trained}, {way}", f"base, {way}") for way in DECODING]
    means, differences = compare_systems(quality, pairs)
    stops = [f"{run} went on at step {step}" for run, step in resumed.items() if step]
    note = (
        f"Captions of {len(rows)} scenes not trained on (seed {options.scene_seed}), mean of "
        f"{len(seeds)} training seed{'s' * (len(seeds) > 1)}; intervals are over scenes. "
        + (f"Stopped: {'; '.join(stops)}." if stops else "No training was stopped.")
    )
    asked = {name: str(value) for name, value in vars(options).items()}
    figures = {"options": asked, "resumed": resumed, "means": means, "differences": differences}
    write_systems(options.output, "grpo", figures, [note], (*MEASURES, "distinct"))


def make_reward(options: argparse.Namespace) -> Any:
    """The reward function asked for."""
    name, device = options.reward, "cpu"
    if name == "beitscore":
        return BeitScoreReward(options.beitscore, name=name, device=device)
    first: Any
    if name.startswith("length"):
        first = LengthReward(high=10, margin=50)
    else:
        first = VelaReward(options.vela, name="vela", device=device)
    if name in ("vela", "length"):
        return first
    second: Any = RetrievalReward(device=device)
    if name == "both":
        second = BeitScoreReward(options.beitscore, name="beitscore", device=device)
    return CombinedReward([first, second], weights=[0.7, 0.3], name=name)


def check_options(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Makes the output folder; refuses one whose pieces were made with other options. More seeds change none."""
    options.output.mkdir(parents=True, exist_ok=True)
    asked = {name: str(value) for name, value in vars(options).items() if name not in ("output", "seeds")}
    file = options.output / "options.json"
    earlier = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else asked
    changed = [
        f"{name}={value} (was {earlier.get(name)})" for name, value in asked.items() if value != earlier.get(name)
    ]
    if changed:
        parser.error(
            f"{options.output} holds pieces made with other options: {', '.join(changed)}; name another folder"
        )
    file.write_text(json.dumps(asked), encoding="utf-8")


def make_monitor(trainer: Any, options: argparse.Namespace) -> RewardMonitor:
    """Watches with a second metric; the oracle stands beside it, as rewards of weight 0."""
    kind = {"vela": VelaReward, "beitscore": BeitScoreReward}[options.monitor]
    return RewardMonitor(trainer, kind(options.monitor_source, name=f"second_{options.monitor}", device="cpu"))


def _captions(run: str, folder: Path, seed: int, rows: Dataset, options: argparse.Namespace) -> Written:
    """What a run's captioner writes about the held-out scenes, each way of decoding; read if it is there."""
    folder = _piece(folder, run)
    files = {way: folder / f"captions_{way.replace(' ', '_')}.json" for way in DECODING}
    if not all(file.is_file() for file in files.values()):
        model, processor = trained_captioner(run, folder, seed, options)
        for way in DECODING:
            sizes = {"samples": options.samples, "max_new_tokens": options.max_new_tokens}
            captions = write_captions(model, processor, list(rows["image"]), greedy=way == "greedy", **sizes)
            files[way].write_text(json.dumps(captions), encoding="utf-8")
    return {f"{run}, {way}": json.loads(file.read_text(encoding="utf-8")) for way, file in files.items()}


def trained_captioner(run: str, folder: Path, seed: int, options: argparse.Namespace) -> tuple[Any, Any]:
    """The captioner of a run, trained unless that was done before; its curve is in `curve.jsonl`."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "model").is_dir():
        return load_policy(folder / "model")
    model, processor = load_policy(options.captioner)
    if run == "base":
        return model, processor

    curve = folder / "curve.jsonl"

    def on_log(entry: dict[str, float]) -> None:
        lines = curve.read_text(encoding="utf-8").splitlines() if curve.is_file() else []
        lines = [line for line in lines if json.loads(line)["step"] < entry["step"]]  # steps after a save are repeated
        curve.write_text("".join(f"{line}\n" for line in (*lines, json.dumps(entry))), encoding="utf-8")
        print(run, ", ".join(f"{name} {value:.3g}" for name, value in entry.items()), flush=True)

    asked = {name: getattr(options, name) for name in ("prompts", "generations", "max_new_tokens")}
    asked |= {"max_steps": options.steps, "learning_rate": options.lr, "seed": seed, "save_strategy": "steps"}
    if options.monitor is not None:
        asked |= {"eval_strategy": "steps", "eval_steps": options.monitor_every, "eval_on_start": True}
        asked |= {"num_generations_eval": 1, "evaluated": make_dataset(options.monitor_scenes, options.scene_seed + 2)}
    rows = make_dataset(options.steps * options.prompts, options.scene_seed + 1)
    trained, sizes = folder / "trainer", {"save_steps": 25, "save_total_limit": 1, "on_log": on_log}
    trainer = make_trainer(model, processor, make_reward(options), rows, trained, **asked, **sizes)
    trainer.add_callback(ResumeWeights())
    if options.monitor is not None:
        trainer.add_callback(make_monitor(trainer, options))
    last = last_checkpoint(trained)
    trainer.train(resume_from_checkpoint=last)
    model.eval()
    resumed = 0 if last is None else int(last.name.removeprefix("checkpoint-"))
    (folder / "resumed.json").write_text(json.dumps(resumed), encoding="utf-8")
    unfinished = folder / "model.partial"
    model.save_pretrained(unfinished)
    processor.save_pretrained(unfinished)
    unfinished.replace(folder / "model")  # a folder of this name is whole
    return model, processor


def _distinct(captions: Sequence[Sequence[str]]) -> np.ndarray:
    """Numbers (N,) of which the mean is the number of different captions of N scenes, divided by that of captions."""
    counts = Counter(chain(*captions))
    return np.array([np.mean([1 / counts[caption] for caption in group]) for group in captions])


def _piece(folder: Path, run: str) -> Path:
    return folder / run.replace(" ", "_")


if __name__ == "__main__":
    main()
