"""Draws the pictures of README and docs from the results that are stored in docs/results, as SVG, light and dark.

    python -m examples.research.draw_pictures
    python -m examples.research.draw_pictures --run runs/grpo  # store the results of this run first

Nothing is measured here: a run is what `grpo_captioner` wrote, with the options below the table of docs/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from integrations.demo.quality import judge_captions
from reward.scenes import make_dataset

DOCS = Path(__file__).resolve().parents[2] / "docs"
MEASURES = ("reward", "oracle_f1")


@dataclass(frozen=True)
class Theme:
    """Colours of one version of a picture."""

    paper: str
    ink: str
    soft: str
    reward: str
    truth: str


THEMES = {
    "light": Theme(paper="#ffffff", ink="#1f2328", soft="#9aa4af", reward="#c2560c", truth="#1f6feb"),
    "dark": Theme(paper="#0d1117", ink="#e6edf3", soft="#6e7681", reward="#f0883e", truth="#58a6ff"),
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=DOCS / "results", help="default: docs/results")
    parser.add_argument("--output", type=Path, default=DOCS / "images", help="default: docs/images")
    parser.add_argument("--run", type=Path, help="output folder of grpo_captioner with VELA")
    options = parser.parse_args(argv)
    if options.run is not None:
        store_run(options.run, options.results)
    curves = read_curves(options.results / "grpo_curve.csv")
    example = json.loads((options.results / "grpo_captions.json").read_text(encoding="utf-8"))
    options.output.mkdir(parents=True, exist_ok=True)
    matplotlib.rcParams["svg.hashsalt"] = "capreward"  # the same file for the same results
    for name, theme in THEMES.items():
        pictures = {
            "grpo": training_picture(curves, example, theme),
            "parting": parting_picture(options.results / "parting.csv", theme),
        }
        for picture, figure in pictures.items():
            file = options.output / f"{picture}_{name}.svg"
            figure.savefig(file, metadata={"Date": None}, facecolor=theme.paper)
            print(file)


def store_run(run: Path, results: Path) -> None:
    """Stores the curves of all seeds, and the drawing with the median gain of F1, its caption before and after."""
    folders = sorted(run.glob("seed_*/GRPO_with_VELA"))
    if not folders:
        raise SystemExit(f"{run} holds no seed_*/GRPO_with_VELA: give the output folder of grpo_captioner")
    curves = [
        pd.read_json(folder / "curve.jsonl", lines=True).assign(seed=folder.parent.name[5:]) for folder in folders
    ]
    table = pd.concat(curves)[["seed", "step", "reward", "oracle_f1"]].astype({"step": int})
    table.to_csv(results / "grpo_curve.csv", index=False, float_format="%.4f")
    seed = int(json.loads((run / "options.json").read_text(encoding="utf-8"))["scene_seed"])
    written = {
        name: [own[0] for own in json.loads((folder / "captions_greedy.json").read_text(encoding="utf-8"))]
        for name, folder in (("before", run / "base"), ("after", folders[0]))
    }
    scenes = make_dataset(len(written["before"]), seed)["scene"]
    f1 = {name: judge_captions(captions, scenes)["f1"] for name, captions in written.items()}
    gains = np.asarray(f1["after"]) - np.asarray(f1["before"])
    index = int(np.argsort(gains, kind="stable")[len(gains) // 2])  # the median, so that no one picks it
    example: dict[str, Any] = {"dataset_seed": seed, "index": index}
    for name, captions in written.items():
        example |= {name: captions[index], f"{name}_f1": float(f1[name][index])}
    (results / "grpo_captions.json").write_text(json.dumps(example, indent=1), encoding="utf-8")


def read_curves(file: Path) -> dict[str, np.ndarray]:
    """{measure: array (seeds, steps)} for the reward and the oracle's F1."""
    table = pd.read_csv(file, comment="#")
    return {measure: table.pivot(index="seed", columns="step", values=measure).to_numpy() for measure in MEASURES}


def training_picture(curves: dict[str, np.ndarray], example: dict[str, Any], theme: Theme) -> Figure:
    """Reward and truth over the steps of a GRPO run, and one picture with its caption before and after."""
    figure = Figure(figsize=(10, 3.6))
    axes = figure.add_axes((0.07, 0.15, 0.35, 0.72))
    lines = {"reward": ("reward (VELA)", theme.reward), "oracle_f1": ("truth (oracle F1, not trained on)", theme.truth)}
    for measure, (label, colour) in lines.items():
        steps = np.arange(1, curves[measure].shape[1] + 1)
        for seed in curves[measure]:
            axes.plot(steps, seed, color=colour, alpha=0.25, lw=0.8)
        axes.plot(steps, curves[measure].mean(axis=0), color=colour, lw=2, label=label)
    axes.set_xlabel("GRPO step", color=theme.ink)
    axes.set_ylabel("mean of the step's captions", color=theme.ink)
    _paint(axes, theme)
    axes.legend(frameon=False, labelcolor=theme.ink, loc="lower right")
    seeds, count = curves["reward"].shape
    axes.set_title(f"GRPO with VELA: {count} steps, {seeds} seeds", color=theme.ink, fontsize=11)

    scene = figure.add_axes((0.46, 0.2, 0.2, 0.6))
    scene.imshow(make_dataset(example["index"] + 1, example["dataset_seed"])[example["index"]]["image"])
    scene.set_title("A drawing not trained on", color=theme.ink, fontsize=11)
    scene.set_axis_off()
    place = 0.9
    for title, name, colour in (("Before", "before", theme.ink), ("After", "after", theme.truth)):
        caption = textwrap.fill(example[name], 46)
        figure.text(0.68, place, f"{title} (F1 {example[name + '_f1']:.2f})", color=colour, fontsize=10, weight="bold")
        figure.text(0.68, place - 0.04, caption, color=theme.ink, fontsize=8.5, va="top", linespacing=1.35)
        place -= 0.1 + 0.0445 * (caption.count("\n") + 1)
    return figure


def parting_picture(file: Path, theme: Theme) -> Figure:
    """What the monitor of a training saw: the optimised reward, a second metric and the truth, and when it warned."""
    rows = pd.read_csv(file, comment="#", keep_default_na=False)
    figure = Figure(figsize=(10, 3.6))
    names = {"reward": ("optimised reward", theme.reward), "second": ("second metric", theme.soft)}
    names["oracle_f1"] = ("oracle F1, which the monitor does not see", theme.truth)
    panels = {"Rewards and truth": names, "Language flaws": {"flaws": ("flaws of a caption", theme.ink)}}
    for place, (title, lines) in enumerate(panels.items()):
        axes = figure.add_axes((0.07 + 0.51 * place, 0.15, 0.40, 0.7))
        for name, (label, colour) in lines.items():
            axes.plot(rows["step"], rows[name], color=colour, lw=2, label=label)
        for step, warned in zip(rows["step"], rows["warned"], strict=True):
            for warning in warned.split():
                axes.axvline(step, color=theme.ink, lw=1, ls=":")
                top = axes.get_xaxis_transform()  # x in steps, y as a share of the axes
                axes.text(step, 1.01, f" {warning}", color=theme.ink, fontsize=8, transform=top, ha="left")
        axes.set_xlabel("GRPO step", color=theme.ink)
        axes.set_ylabel("mean of the checked captions", color=theme.ink)
        axes.set_title(title, color=theme.ink, fontsize=11, pad=16)
        _paint(axes, theme)
        axes.legend(frameon=False, labelcolor=theme.ink, fontsize=9, loc="lower right")
    return figure


def _paint(axes: Any, theme: Theme) -> None:
    axes.set_facecolor(theme.paper)
    axes.tick_params(which="both", colors=theme.ink)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(theme.soft)


if __name__ == "__main__":
    main()
