"""Makes every embedded checkpoint from nothing: runs the steps in order and writes the folders of reward/assets.

    python -m examples.embedded.make --output runs/embedded
    python -m examples.embedded.make --output runs/embedded --only export

Each step goes on from its last save, so a stopped run is started again with the same command. `--steps 2` tries the
whole way out in half a minute.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Sequence
from pathlib import Path

import torch

ASSETS = Path(__file__).parents[2] / "reward" / "assets"
STEPS = {
    "tokenizer": ["tokenizer"],
    "vision": ["vision"],
    "text": ["text"],
    "align": ["align"],
    "language": ["language"],
    "vela": ["vela"],
    "vela-text": ["vela", "--branches", "text"],
    "captioner": ["captioner"],
}
CARD = """---
library_name: {library}
license: apache-2.0
tags: [image-captioning, synthetic, {tag}]
---

# {title}

{summary}

**For trials and tests only.** It knows drawings of coloured shapes (`reward.scenes`) and nothing else: on photos its
output means nothing.

- Data: synthetic scenes of `reward.scenes`, drawn anew at every step from string seeds ("vision 1 0", ...): no scene of
  `make_dataset`, which draws from seeds of another form.
- Made by `python -m examples.embedded.make`, seeds and sizes as in that folder.
- Updates: {training}
- Weights are stored in float16.
{history}
"""


def _training(output: Path, folders: list[str]) -> str:
    """Steps done, as the saved states tell."""
    parts = []
    for folder in folders:
        saved = torch.load(output / folder / "last.pt", weights_only=True)
        parts.append(f"{folder} {saved['step']} steps")
    return ", ".join(parts) + "."


def export(output: Path, assets: Path, history: dict[str, str]) -> None:
    """Writes `assets`/vela and `assets`/captioner from what the steps left under `output`."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from reward.metrics.vela.scorer import VelaScorer

    unmeasured = "\nNo time or held-out figures were given to this card (`--history`)."
    card = CARD.format(
        library="capreward",
        tag="reward-model",
        title="VELA, embedded",
        summary="A small VELA: a 0.9 M Qwen2, and a CLIP whose text tower reads 248 tokens.",
        training=_training(output, ["vision", "text", "align", "language", "both"]),
        history=history.get("vela", unmeasured),
    )
    scorer = VelaScorer.from_pretrained(output / "both" / "model", device="cpu")
    scorer.save_pretrained(assets / "vela", dtype=torch.float16, card=card)

    source, target = output / "captioner" / "model", assets / "captioner"
    model = AutoModelForImageTextToText.from_pretrained(source, dtype=torch.float16)
    model.save_pretrained(target)
    AutoProcessor.from_pretrained(source).save_pretrained(target)
    config = json.loads((target / "config.json").read_text())
    config["dtype"] = "float32"  # stored in half, computed in full: what from_pretrained does unless told otherwise
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    card = CARD.format(
        library="transformers",
        tag="image-text-to-text",
        title="Captioner of the scenes, embedded",
        summary=(
            "A small LLaVA. A quarter of its training captions were complete; most left facts out and some had one "
            "wrong, so its likeliest caption is incomplete: something for best-of-N and GRPO to improve on."
        ),
        training=_training(output, ["vision", "captioner"]),
        history=history.get("captioner", unmeasured),
    )
    (target / "README.md").write_text(card)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the steps asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/embedded"), help="states of the steps")
    parser.add_argument("--only", nargs="+", choices=[*STEPS, "export"], help="these steps instead of all")
    parser.add_argument("--steps", help="updates in every step, for a trial; default: each step's own number")
    parser.add_argument("--assets", type=Path, default=ASSETS, help="where checkpoints go; default: reward/assets")
    parser.add_argument("--history", type=Path, help='JSON {"vela": markdown, "captioner": markdown} for the cards')
    options = parser.parse_args(argv)
    for name in options.only or [*STEPS, "export"]:
        if name == "export":
            export(options.output, options.assets, json.loads(options.history.read_text()) if options.history else {})
            continue
        module, *arguments = STEPS[name]
        if options.steps and name != "tokenizer":
            arguments += ["--steps", options.steps]
        importlib.import_module(f"examples.embedded.{module}").main(["--output", str(options.output), *arguments])


if __name__ == "__main__":
    main()
