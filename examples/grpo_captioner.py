"""GRPO of the embedded captioner with a caption metric, and the controls that say what is more than sharpening.

    python examples/grpo_captioner.py --output runs/grpo
    python examples/grpo_captioner.py --reward both --steps 300 --scenes 400 --output runs/grpo_both

Held-out scenes are captioned by: the base, greedy, sampled at temperature 1 and at 0.5; the same after GRPO with the
metric; and after GRPO with the same rewards dealt out at random within each scene. Every piece is kept in the output
folder: stopped, the same command goes on from the last piece or saved step. Writes grpo.md and grpo.json.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from integrations.demo.captioner import MAX_NEW_TOKENS, load_captioner, write_captions
from integrations.demo.grpo import Written, train_with_grpo
from integrations.demo.quality import MEASURES, compare_systems, mean_quality
from integrations.demo.results import SEED
from reward import BeitScoreReward, VelaReward, WeightedReward
from reward.metaeval import bootstrap_weights, markdown_table
from reward.scenes import make_dataset

METRICS = {"vela": "VELA", "beitscore": "BEiTScore", "both": "VELA and BEiTScore"}
SHUFFLED = "GRPO with shuffled rewards"
# {name: temperature}; None is greedy
DECODING = {"greedy": None, "sampled": 1.0, "sampled at 0.5": 0.5}


class ShuffledReward:
    """Another reward's numbers, dealt out at random among the captions of each scene: training without information."""

    def __init__(self, reward: Any, group: int, seed: int) -> None:
        self.reward, self.group, self.rng = reward, group, random.Random(seed)
        self.__name__ = reward.__name__

    def __call__(self, *arguments: Any, **columns: Any) -> list[float | None]:
        rewards = self.reward(*arguments, **columns)
        for start in range(0, len(rewards), self.group):
            part = rewards[start : start + self.group]
            self.rng.shuffle(part)
            rewards[start : start + self.group] = part
        return rewards


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reward", choices=METRICS, default="vela", help="both weighs them 0.7 and 0.3; default: vela")
    parser.add_argument("--vela", default="embedded", help="checkpoint of VELA")
    parser.add_argument("--beitscore", default="embedded", help="checkpoint of BEiTScore")
    parser.add_argument("--captioner", default="embedded", help="checkpoint of the captioner")
    parser.add_argument("--steps", type=int, default=200, help="default: %(default)s")
    parser.add_argument("--prompts", type=int, default=8, help="scenes a step; default: %(default)s")
    parser.add_argument("--generations", type=int, default=8, help="captions a scene; default: %(default)s")
    parser.add_argument("--lr", type=float, default=2e-4, help="learning rate; default: %(default)s")
    parser.add_argument("--scenes", type=int, default=200, help="held-out scenes; default: %(default)s")
    parser.add_argument(
        "--samples", type=int, default=4, help="sampled captions a held-out scene; default: %(default)s"
    )
    parser.add_argument("--max-new-tokens", type=int, default=MAX_NEW_TOKENS, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the training; default: %(default)s")
    parser.add_argument("--output", type=Path, required=True, help="folder for all pieces, grpo.md and grpo.json")
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    _check_options(options, parser)

    rows = make_dataset(options.scenes, SEED)
    written: Written = {}
    trained = f"GRPO with {METRICS[options.reward]}"
    for run in ("base", trained, SHUFFLED):
        folder = options.output / run.replace(" ", "_")
        if not all(_captions_file(folder, way).is_file() for way in DECODING):
            model, processor = trained_captioner(run, folder, options)
            for way, temperature in DECODING.items():
                samples = 1 if temperature is None else options.samples
                captions = write_captions(
                    model,
                    processor,
                    list(rows["image"]),
                    samples=samples,
                    temperature=temperature,
                    max_new_tokens=options.max_new_tokens,
                )
                _captions_file(folder, way).write_text(json.dumps(captions), encoding="utf-8")
        for way in DECODING:
            written[f"{run}, {way}"] = json.loads(_captions_file(folder, way).read_text(encoding="utf-8"))

    quality = {name: mean_quality(captions, list(rows["scene"])) for name, captions in written.items()}
    pairs = [(f"{trained}, {way}", f"{other}, {way}") for way in DECODING for other in ("base", SHUFFLED)]
    pairs += [(f"{trained}, {way}", "base, sampled at 0.5") for way in ("greedy", "sampled")]
    means, differences = compare_systems(quality, pairs, bootstrap_weights(len(rows)))
    tables = [
        f"Oracle's verdict on captions of {len(rows)} scenes not trained on (seed {SEED}).",
        markdown_table(means, MEASURES, title="captions"),
        markdown_table(differences, MEASURES, title="paired difference", signed=True),
    ]
    text = "\n\n".join(tables) + "\n"
    figures = {
        "options": {name: str(value) for name, value in vars(options).items()},
        "means": {name: {measure: asdict(cell) for measure, cell in row.items()} for name, row in means.items()},
        "differences": {
            name: {measure: asdict(cell) for measure, cell in row.items()} for name, row in differences.items()
        },
    }
    (options.output / "grpo.md").write_text(text, encoding="utf-8")
    (options.output / "grpo.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")
    print(text)


def _check_options(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuses to go on in a folder whose pieces were made with other options."""
    asked = {name: str(value) for name, value in vars(options).items() if name != "output"}
    file = options.output / "options.json"
    if file.is_file():
        earlier = json.loads(file.read_text(encoding="utf-8"))
        changed = [
            f"{name}={asked[name]} (was {earlier.get(name)})" for name in asked if asked[name] != earlier.get(name)
        ]
        if changed:
            parser.error(
                f"{options.output} holds pieces made with other options: {', '.join(changed)}; name another folder"
            )
    file.write_text(json.dumps(asked), encoding="utf-8")


def make_reward(options: argparse.Namespace) -> Any:
    """The reward function asked for."""
    made: dict[str, Any] = {}
    if options.reward != "beitscore":
        made["vela"] = VelaReward(options.vela, name="vela", device="cpu")
    if options.reward != "vela":
        made["beitscore"] = BeitScoreReward(options.beitscore, name="beitscore", device="cpu")
    if options.reward == "both":
        return WeightedReward([(made["vela"], 0.7), (made["beitscore"], 0.3)], name="both")
    return made[options.reward]


def trained_captioner(run: str, folder: Path, options: argparse.Namespace) -> tuple[Any, Any]:
    """The captioner of a run, trained unless that was done before; its curve is in `curve.jsonl`."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "model").is_dir():
        return load_captioner(folder / "model")
    model, processor = load_captioner(options.captioner)
    if run == "base":
        return model, processor
    reward = make_reward(options)
    if run == SHUFFLED:
        reward = ShuffledReward(reward, options.generations, options.seed)

    def on_log(entry: dict[str, float]) -> None:
        with (folder / "curve.jsonl").open("a", encoding="utf-8") as curve:
            curve.write(json.dumps(entry) + "\n")
        print(run, ", ".join(f"{name} {value:.3g}" for name, value in entry.items()), flush=True)

    train_with_grpo(
        model,
        processor,
        reward,
        make_dataset(options.steps * options.prompts, SEED + 1),
        folder / "trainer",
        steps=options.steps,
        prompts=options.prompts,
        generations=options.generations,
        learning_rate=options.lr,
        max_new_tokens=options.max_new_tokens,
        seed=options.seed,
        on_log=on_log,
        save_steps=25,
    )
    unfinished = folder / "model.partial"
    model.save_pretrained(unfinished)
    processor.save_pretrained(unfinished)
    unfinished.replace(folder / "model")  # a folder of this name is whole
    return model, processor


def _captions_file(folder: Path, way: str) -> Path:
    return folder / f"captions_{way.replace(' ', '_')}.json"


if __name__ == "__main__":
    main()
