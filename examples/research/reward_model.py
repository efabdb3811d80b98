"""A reward model from preferences on drawings: its held-out accuracy, its audit, and what GRPO against it does.

    python -m examples.research.reward_model --output runs/reward_model

The embedded captioner writes several captions of each drawing, and the oracle prefers the one with the highest F1 to
the one with the lowest. The captioner becomes the reward model, with adapters and a head. Then another copy of it is
trained against that reward, and the oracle says what came of it.

Writes audit.csv and grpo.csv, and the run of `capreward train vlmreward` in the folder `reward`. Pairs that are there
are not made again, and a training that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict
from transformers import set_seed

from examples.research.claims_frontier import write_table
from integrations.demo.captioner import write_captions
from integrations.demo.grpo import decode_both_ways, make_trainer
from integrations.demo.quality import judge_captions, mean_quality
from integrations.trl import load_policy
from reward import MetricReward, load_scorer
from reward.metaeval import bootstrap_weights, mean_interval
from reward.metaeval.audit.auditing import audit, scene_rows
from reward.metrics.vlmreward.training import PRESETS, make_model, save_model
from reward.scenes import make_dataset
from reward.training.config import make_config
from reward.training.loop import train
from reward.training.record import read_record

MEASURES = ("f1", "precision", "recall", "faults", "words")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=600, help="scenes of the training; default: %(default)s")
    parser.add_argument("--held-out", type=int, default=200, help="scenes of val and test; default: %(default)s")
    parser.add_argument("--captions", type=int, default=4, help="of a scene; default: %(default)s")
    parser.add_argument("--epochs", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--audited", type=int, default=40, help="scenes of the audit; default: %(default)s")
    parser.add_argument("--steps", type=int, default=24, help="of GRPO, 64 captions each; default: %(default)s")
    parser.add_argument("--lr", type=float, default=5e-4, help="learning rate of GRPO; default: %(default)s")
    parser.add_argument("--scenes", type=int, default=100, help="that judge GRPO; default: %(default)s")
    parser.add_argument("--scene-seed", type=int, default=6408, help="of the scenes; default: %(default)s")
    parser.add_argument("--max-new-tokens", type=int, default=90, help="default: %(default)s")
    parser.add_argument("--output", type=Path, required=True, help="folder of all that is written")
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    words = sys.argv[1:] if argv is None else argv
    command = shlex.join(["python", "-m", "examples.research.reward_model", *words])
    title = f"# {date.today():%d %B %Y} \N{MIDDLE DOT} {command}"
    pairs = options.output / "pairs"
    if not pairs.is_dir():
        sizes = {"train": options.pairs, "val": options.held_out, "test": options.held_out}
        parts = {
            part: preferences(size, options.scene_seed + number, options)
            for number, (part, size) in enumerate(sizes.items())
        }
        DatasetDict(parts).save_to_disk(str(pairs))
    folder = options.output / "reward"
    config = make_config(PRESETS["tiny"], {"epochs": options.epochs, "eval_steps": 25})
    result = train("vlmreward", str(pairs), folder, config, resume=read_record(folder) is not None)
    print(json.dumps(result.figures), flush=True)
    write_table(options.output / "audit.csv", title, audits(folder, config.model, options))
    if options.steps:
        write_table(options.output / "grpo.csv", title, grpo(folder, options))


def preferences(count: int, seed: int, options: argparse.Namespace) -> Dataset:
    """Pairs of the best and the worst of several captions of each scene; scenes with equally good ones give none."""
    rows = make_dataset(count, seed)
    model, processor = load_policy("embedded")
    sizes = {"samples": options.captions, "seed": seed, "max_new_tokens": options.max_new_tokens}
    written = write_captions(model, processor, list(rows["image"]), **sizes)
    pairs: dict[str, list[Any]] = {"image": [], "chosen": [], "rejected": []}
    for row, captions in zip(rows, written, strict=True):
        f1 = judge_captions(captions, [row["scene"]] * len(captions))["f1"]
        if f1.max() > f1.min():
            pairs["image"].append(row["image"])
            pairs["chosen"].append(captions[int(f1.argmax())])
            pairs["rejected"].append(captions[int(f1.argmin())])
    return Dataset.from_dict(pairs)


def audits(folder: Path, settings: Mapping[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    """How often each attack wins before the training, with a new head, and after it."""
    untrained = options.output / "untrained"
    shutil.rmtree(untrained, ignore_errors=True)
    untrained.mkdir()
    set_seed(0)
    save_model(make_model(settings, texts=list), untrained, card="")
    scorers = {name: load_scorer("vlmreward", path) for name, path in (("before", untrained), ("after", folder))}
    result = audit(scorers, scene_rows(options.audited, options.scene_seed))
    table = []
    for attack, finding in result.metrics["after"].findings.items():
        before = result.metrics["before"].findings[attack]
        row: dict[str, Any] = {"attack": attack, "captions": finding.captions, "before": before.wins.value}
        table.append(row | {"after": finding.wins.value, "low": finding.wins.low, "high": finding.wins.high})
        print(table[-1], flush=True)
    return table


def grpo(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The oracle's verdict on captions before and after GRPO against the reward model, greedy and sampled."""
    rows = make_dataset(options.scenes, options.scene_seed + 3)
    weights = bootstrap_weights(len(rows))
    reward = MetricReward("vlmreward", folder)
    model, processor = load_policy("embedded")
    table = []
    for name in ("before", "after"):
        if name == "after":
            trainer = make_trainer(
                model,
                processor,
                reward,
                make_dataset(options.steps * 8, options.scene_seed + 4),
                options.output / "trainer",
                max_new_tokens=options.max_new_tokens,
                on_log=lambda entry: print(json.dumps(entry), flush=True),
                max_steps=options.steps,
                learning_rate=options.lr,
            )
            trainer.train()
            model.eval()
        sizes = {"samples": 2, "max_new_tokens": options.max_new_tokens}
        written = decode_both_ways(model, processor, list(rows["image"]), name, **sizes)
        for decoding, captions in written.items():
            quality = mean_quality(captions, rows["scene"])
            images: list[Any] = []
            flat: list[str] = []
            for image, group in zip(rows["image"], captions, strict=True):
                images += [image] * len(group)
                flat += group
            scores = reward.score(images, flat).scores
            row: dict[str, Any] = {"captions": decoding, "reward": float(scores.mean())}
            for measure in MEASURES:
                interval = mean_interval(quality[measure], weights)
                row |= {measure: interval.value, f"{measure}_low": interval.low, f"{measure}_high": interval.high}
            table.append(row)
            print(row, flush=True)
    return table


if __name__ == "__main__":
    main()
