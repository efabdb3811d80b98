"""Writes the checkpoints that ship, each with its card, from what the steps left."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from examples.research.embedded.beit_words import start_from
from examples.research.embedded.domain import make_domain
from examples.research.embedded.tokenizer import load_tokenizer
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.metrics.beitscore.tokenizer import BeitScoreTokenizer

__all__ = ["EXPORTS", "export", "name_as_on_the_hub"]

CARD = """---
library_name: {library}
license: apache-2.0
tags: [image-captioning, synthetic, {tag}]
---

# {title}

{summary}

**For trials and tests only.** It knows drawings of coloured shapes (`reward.scenes`) and nothing else: on photos its
output means nothing.{check}

- Data: synthetic scenes of `reward.scenes`, drawn anew at every step from string seeds ("vision 1 0", ...): no scene of
  `make_dataset`, which draws from seeds of another form.
- Made by `python -m examples.research.embedded.make`, seeds and sizes as in that folder.
- Updates of the last run of each step: {training}
- Weights are stored in float16.
{history}
"""


def _card(output: Path, steps: Sequence[str], history: str | None, **texts: str) -> str:
    states = {step: output / step / "last.pt" for step in steps}
    counts = {step: torch.load(file, weights_only=True)["step"] for step, file in states.items() if file.is_file()}
    done = [f"{step} {count} steps" for step, count in counts.items()]
    unmeasured = "\nNo time or held-out figures were given to this card (`--history`)."
    # Only a metric looks at captions and images that others give it.
    unlike = " Images and captions unlike those of the scenes are counted as `out_of_domain`: docs/METRICS.md."
    check = unlike if texts["tag"] == "reward-model" else ""
    return CARD.format(check=check, training=", ".join(done) + ".", history=history or unmeasured, **texts)


def _export_vela(output: Path, folder: Path, history: str | None) -> None:
    from reward.metrics.vela.scorer import VelaScorer

    card = _card(
        output,
        ["vision", "text", "align", "language", "both"],
        history,
        library="capreward",
        tag="reward-model",
        title="VELA, embedded",
        summary="A small VELA: a 0.9 M Qwen2, and a CLIP whose text tower reads 248 tokens.",
    )
    scorer = VelaScorer.from_pretrained(output / "both" / "model", device="cpu")
    scorer.domain = make_domain()
    scorer.save_pretrained(folder, dtype=torch.float16, card=card)


def _export_captioner(output: Path, folder: Path, history: str | None) -> None:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    source = output / "captioner" / "model"
    model = AutoModelForImageTextToText.from_pretrained(source, dtype=torch.float16, trust_remote_code=False)
    model.save_pretrained(folder)
    AutoProcessor.from_pretrained(source, trust_remote_code=False).save_pretrained(folder)
    name_as_on_the_hub(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["dtype"] = "float32"  # stored in half, computed in full: what from_pretrained does unless told otherwise
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    card = _card(
        output,
        ["captioner"],
        history,
        library="transformers",
        tag="image-text-to-text",
        title="Captioner of the scenes, embedded",
        summary=(
            "A small LLaVA with the image tower of the embedded VELA and attention heads of 32, which engines for the "
            "CPU serve. Few of its training captions were complete; most left facts out and some had one wrong, so "
            "its likeliest caption is incomplete: something for best-of-N and GRPO to improve on. It follows two "
            'prompts, "Describe the picture." and "Describe the picture briefly."'
        ),
    )
    (folder / "README.md").write_text(card)


def name_as_on_the_hub(weights: Path) -> None:
    """Gives the image tower the key names of the LLaVAs on the Hub, the only ones that every transformers 5 reads."""
    tensors = {
        re.sub(r"^vision_tower\.(?!vision_model\.)", "vision_tower.vision_model.", key): tensor
        for key, tensor in load_file(weights).items()
    }
    save_file(tensors, weights, metadata={"format": "pt"})


def _export_beitscore(output: Path, folder: Path, history: str | None) -> None:
    card = _card(
        output,
        ["beit_vision", "beit_words", "beit_match", "beit_rate"],
        history,
        library="capreward",
        tag="reward-model",
        title="BEiTScore, embedded",
        summary="A small BEiTScore: a BEiT-3 of six layers, 128 wide, that reads 36 patches and up to 384 tokens.",
    )
    aided, _ = start_from("beit_rate", output)
    tokenizer = BeitScoreTokenizer.from_fast(load_tokenizer(output), max_tokens=aided.model.config.max_text_tokens)
    scorer = BeitScoreScorer(aided.model.eval(), tokenizer)
    scorer.domain = make_domain()
    scorer.save_pretrained(folder, dtype=torch.float16, card=card)


EXPORTS: Mapping[str, Callable[[Path, Path, str | None], None]] = {
    "vela": _export_vela,
    "captioner": _export_captioner,
    "beitscore": _export_beitscore,
}


def export(output: Path, assets: Path, names: Sequence[str], history: Mapping[str, str]) -> None:
    """Writes the named checkpoints into folders of `assets`.

    Args:
        output: where the steps left their states.
        names: keys of `EXPORTS`.
        history: {name: markdown for its card}.
    """
    for name in names:
        EXPORTS[name](output, assets / name, history.get(name))
