"""Makes every embedded checkpoint from nothing: runs the steps in order and writes the folders of reward/assets.

    python -m examples.embedded.make --output runs/embedded
    python -m examples.embedded.make --output runs/embedded --only export

Each step goes on from its last save, so a stopped run is started again with the same command.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
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

- Data: synthetic scenes of `reward.scenes`, drawn anew at every step from string seeds ("vision 1 0", ...).
- Made by: `python -m examples.embedded.make`; steps, seeds and sizes are that folder's defaults.
- Trained on two CPU cores ({machine}), weights stored in float16.
- Training: {training}

## Held-out figures

{figures}
"""


def _training(output: Path, folders: list[str]) -> str:
    """Steps done, as the saved states tell."""
    parts = []
    for folder in folders:
        saved = torch.load(output / folder / "last.pt", weights_only=True)
        parts.append(f"{folder} {saved['step']} steps")
    return ", ".join(parts) + "."


def export(output: Path, figures: dict[str, str]) -> None:
    """Writes reward/assets/vela and reward/assets/captioner from what the steps left under `output`."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from reward.metrics.vela.scorer import VelaScorer

    missing = "not measured when this card was written; see examples/evaluate_vela.py and examples/grpo_vela.py"
    card = CARD.format(
        library="capreward",
        tag="reward-model",
        title="VELA, embedded",
        summary="A small VELA: a 0.9 M Qwen2, and a CLIP whose text tower reads 248 tokens.",
        machine=platform.machine(),
        training=_training(output, ["vision", "text", "align", "language", "both"]),
        figures=figures.get("vela", missing),
    )
    scorer = VelaScorer.from_pretrained(output / "both" / "model", device="cpu")
    scorer.save_pretrained(ASSETS / "vela", dtype=torch.float16, card=card)

    source, target = output / "captioner" / "model", ASSETS / "captioner"
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
        machine=platform.machine(),
        training=_training(output, ["vision", "captioner"]),
        figures=figures.get("captioner", missing),
    )
    (target / "README.md").write_text(card)


def main() -> None:
    """Runs the steps asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/embedded"), help="states and logs of the steps")
    parser.add_argument("--only", nargs="+", choices=[*STEPS, "export"], help="these steps instead of all")
    parser.add_argument("--figures", type=Path, help='JSON {"vela": markdown, "captioner": markdown} for the cards')
    options = parser.parse_args()
    for name in options.only or [*STEPS, "export"]:
        if name == "export":
            export(options.output, json.loads(options.figures.read_text()) if options.figures else {})
            continue
        module, *arguments = STEPS[name]
        subprocess.run(
            [sys.executable, "-m", f"examples.embedded.{module}", "--output", str(options.output), *arguments],
            check=True,
        )


if __name__ == "__main__":
    main()
