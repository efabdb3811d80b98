"""Scores of every metric that runs a network, beside those of the CPU in float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import RobertaConfig, RobertaModel

from examples import untrained
from reward import CaptionSample, load_scorer
from reward.metrics.bertscore.scorer import BertScorer
from reward.scenes import make_dataset
from tests import toy_captioners, toy_judges
from tests.benchmarks.gpu.card import Place
from tests.benchmarks.gpu.results import Report
from tests.fake_cuda import FakeDevice

__all__ = ["BOUNDS", "compare", "scene_rows", "sources"]

# The largest differences of a score, all of which lie in [0, 1], or for CLIPs in [0, 2.5].
BOUNDS = {"float32, without TF32": 1e-4, "float32": 2e-3, "bfloat16": 0.2}
TITLE = "Scores beside the CPU's in float32: largest differences"


def sources(folder: Path) -> dict[str, tuple[str, str]]:
    """{metric: what its weights are, where they are}; random ones are written into the folder."""
    sources = dict.fromkeys(("vela", "beitscore", "clipscore", "refclipscore"), ("embedded", "embedded"))
    sources["longclipscore"] = ("random", str(untrained.make_long_clip(folder / "longclip.pt")))
    sources["bertscore"] = ("random", _bert(folder / "bert"))
    words = [("Y", "e"), ("Ye", "s"), ("N", "o")]  # answers of one token
    model, processor = toy_judges.llava([*toy_judges.MERGES, *words])
    for part in (model, processor):
        part.save_pretrained(folder / "judge")
    sources["harmoniceval"] = sources["vqascore"] = ("random", str(folder / "judge"))
    return sources


def _bert(folder: Path) -> str:
    """A small RoBERTa, and a folder that names a layer of it."""
    tokens = toy_captioners.tokenizer()
    tokens.cls_token, tokens.sep_token = tokens.bos_token, tokens.eos_token
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    torch.manual_seed(0)
    config = RobertaConfig(vocab_size=len(tokens), max_position_embeddings=514, type_vocab_size=1, **sizes)
    for part in (RobertaModel(config, add_pooling_layer=False), tokens):
        part.save_pretrained(folder / "weights")
    BertScorer.from_pretrained(folder / "weights", layer=2, device="cpu").save_pretrained(folder / "named")
    return str(folder / "named")


def scene_rows(scenes: int) -> list[CaptionSample]:
    """Drawings with two captions each, its own and the next one's."""
    rows = list(make_dataset(scenes, 977))
    return [
        CaptionSample(other["cand"], row["image"], row["refs"])
        for number, row in enumerate(rows)
        for other in (row, rows[(number + 1) % len(rows)])
    ]


def compare(report: Report, place: Place) -> None:
    """Fails where a difference is above its bound; simulated, bfloat16 runs on the CPU, and float32 without values."""
    rows = scene_rows(8)
    for name, (weights, source) in sources(place.folder).items():
        few = rows[:4] if name in ("harmoniceval", "vqascore") else rows
        expected = load_scorer(name, source, device="cpu", dtype="float32").score(few).scores
        cells = {"metric": name, "weights": weights, "captions": len(few)}
        for way, bound in BOUNDS.items():
            if place.simulated and way != "bfloat16":
                if way == "float32":
                    _runs_without_values(name, source, few)
                    cells[way] = "runs"
                continue
            with _tf32(way != "float32, without TF32"):
                dtype = way.partition(",")[0]
                found = load_scorer(name, source, device=place.device, dtype=dtype).score(few).scores
            difference = np.where(np.isnan(found) & np.isnan(expected), 0.0, np.abs(found - expected))
            cells[way] = report.check(float(difference.max()), bound, f"{name}, {way}")
        report.row(TITLE, **cells)
    report.note(f"bounds: {', '.join(f'{way} {bound:g}' for way, bound in BOUNDS.items())}")


def _runs_without_values(name: str, source: str, rows: list[CaptionSample]) -> None:
    """Raises where something was left on the CPU."""
    scorer: Any = load_scorer(name, source, device="cpu", dtype="float32")
    gpu = FakeDevice()
    with gpu.run():
        (scorer.judge if hasattr(scorer, "judge") else scorer).model.to(gpu.name)
        scorer.score(rows)


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """PyTorch lets convolutions round to TF32 by default, which matrix products do not."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = allowed and before
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before
