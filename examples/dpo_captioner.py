"""DPO of the embedded captioner on pairs that a caption metric chose, judged by the oracle.

    python examples/dpo_captioner.py --output runs/dpo
    python examples/dpo_captioner.py --seeds 0 1 2 --output runs/dpo

The captioner samples captions of training scenes, VELA scores them, and `make_preference_dataset` makes pairs of them.
Held-out scenes are captioned before and after DPO, greedy and sampled. The control has the same captions, with the
scores dealt out at random within each scene. Writes dpo.md and dpo.json.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trl import DPOConfig, DPOTrainer

from integrations.demo.captioner import MAX_NEW_TOKENS, PROMPT, write_captions
from integrations.demo.grpo import Written, decode_both_ways
from integrations.demo.quality import compare_systems, mean_quality, write_systems
from integrations.demo.run import SEED
from integrations.trl import load_policy, make_preference_dataset
from reward import VelaReward
from reward.decoding.preferences import PreferenceRules
from reward.decoding.selection import rate_candidates
from reward.scenes import make_dataset

if TYPE_CHECKING:
    from datasets import Dataset

TRAINED, SHUFFLED = "DPO with VELA", "DPO with shuffled scores"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vela", default="embedded", help="checkpoint of VELA")
    parser.add_argument("--captioner", default="embedded", help="checkpoint of the captioner")
    parser.add_argument("--train-scenes", type=int, default=200, help="default: %(default)s")
    parser.add_argument("--candidates", type=int, default=8, help="captions a training scene; default: %(default)s")
    parser.add_argument("--margin", type=float, default=0.05, help="default: %(default)s")
    parser.add_argument("--length-ratio", type=float, help="most times that a pair's longer caption is as long")
    parser.add_argument("--beta", type=float, default=0.1, help="of DPO; default: %(default)s")
    parser.add_argument("--lr", type=float, default=5e-5, help="learning rate; default: %(default)s")
    parser.add_argument("--batch", type=int, default=8, help="pairs a step; default: %(default)s")
    parser.add_argument("--epochs", type=float, default=2.0, help="default: %(default)s")
    parser.add_argument("--scenes", type=int, default=200, help="held-out scenes; default: %(default)s")
    parser.add_argument("--samples", type=int, default=2, help="sampled captions of each; default: %(default)s")
    parser.add_argument("--max-new-tokens", type=int, default=MAX_NEW_TOKENS, help="default: %(default)s")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of sampling and training; default: 0")
    parser.add_argument("--output", type=Path, required=True, help="folder for dpo.md and dpo.json")
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)

    held_out = make_dataset(options.scenes, SEED)
    written = _written(load_policy(options.captioner), held_out, "base", options)
    counts: dict[str, Any] = {}
    of_seeds: list[Written] = []
    for seed in dict.fromkeys(options.seeds):
        rows = scored_candidates(seed, options)
        made: Written = {}
        for name in (TRAINED, SHUFFLED):
            pairs = make_pairs(rows, seed, options, shuffled=name == SHUFFLED)
            counts[f"{name}, seed {seed}"] = len(pairs)
            print(f"{name}, seed {seed}: {len(pairs)} pairs", flush=True)
            captioner = train_with_dpo(pairs, options.output / f"trainer_{seed}", seed, options)
            made |= _written(captioner, held_out, name, options)
        of_seeds.append(made)
        written |= {f"{name}, seed {seed}": captions for name, captions in made.items()}
    for name in of_seeds[0]:  # a scene's captions of all seeds together: their mean is that of the seeds
        groups = zip(*(made[name] for made in of_seeds), strict=True)
        written[name] = [list(chain(*group)) for group in groups]

    quality = {name: mean_quality(captions, list(held_out["scene"])) for name, captions in sorted(written.items())}
    compared = [
        (f"{way}, {TRAINED}", f"{way}, {other}") for way in ("greedy", "sampled") for other in ("base", SHUFFLED)
    ]
    means, differences = compare_systems(quality, compared)
    note = (
        f"Captions of {len(held_out)} scenes not trained on (seed {SEED}), mean of {len(of_seeds)} "
        f"seed{'s' * (len(of_seeds) > 1)}; intervals are over scenes. Pairs: {counts}."
    )
    asked = {name: str(value) for name, value in vars(options).items()}
    figures = {"options": asked, "pairs": counts, "means": means, "differences": differences}
    write_systems(options.output, "dpo", figures, [note])


def scored_candidates(seed: int, options: argparse.Namespace) -> Dataset:
    """Training scenes with sampled captions and the metric's scores of them."""
    rows = make_dataset(options.train_scenes, SEED + 1 + seed)
    model, processor = load_policy(options.captioner)
    images, sizes = list(rows["image"]), {"max_new_tokens": options.max_new_tokens}
    captions = write_captions(model, processor, images, samples=options.candidates, seed=seed, **sizes)
    scores = rate_candidates(captions, images, list(rows["refs"]), VelaReward(options.vela, device="cpu"))
    return rows.select_columns("image").add_column("candidates", captions).add_column("rewards", scores)


def make_pairs(rows: Dataset, seed: int, options: argparse.Namespace, *, shuffled: bool) -> Dataset:
    """A pair of each scene whose best and worst caption differ enough."""
    if shuffled:
        rng = random.Random(seed)
        dealt = [rng.sample(scores, len(scores)) for scores in rows["rewards"]]
        rows = rows.remove_columns("rewards").add_column("rewards", dealt)
    rules = PreferenceRules(margin=options.margin, length_ratio=options.length_ratio)
    return make_preference_dataset(rows, PROMPT, rules=rules)


def train_with_dpo(pairs: Dataset, folder: Path, seed: int, options: argparse.Namespace) -> tuple[Any, Any]:
    """The captioner after DPO on the CPU; its image tower keeps its weights."""
    model, processor = load_policy(options.captioner)
    model.model.vision_tower.requires_grad_(False)
    config = DPOConfig(
        output_dir=str(folder),
        num_train_epochs=options.epochs,
        per_device_train_batch_size=options.batch,
        learning_rate=options.lr,
        beta=options.beta,
        max_length=None,  # a cut prompt would lose image tokens
        seed=seed,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        logging_steps=10,
        disable_tqdm=True,
        report_to="none",
        save_strategy="no",
    )
    DPOTrainer(model=model, args=config, train_dataset=pairs, processing_class=processor).train()
    return model.eval(), processor


def _written(captioner: tuple[Any, Any], held_out: Dataset, name: str, options: argparse.Namespace) -> Written:
    sizes = {"samples": options.samples, "max_new_tokens": options.max_new_tokens}
    return decode_both_ways(*captioner, list(held_out["image"]), name, **sizes)


if __name__ == "__main__":
    main()
