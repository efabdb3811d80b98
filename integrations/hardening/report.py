"""The rounds of a hardening side by side, as JSON and Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reward.metaeval.report import Grid, versions
from reward.scoring.runs import write_json
from reward.scoring.writers import write_text

__all__ = ["write_report"]

_HEADS = (
    "round",
    "captions",
    "chosen",
    "reward",
    "rating",
    "tau-c, chosen",
    "tau-c, val",
    "attacks won",
    "worst attack",
)


def write_report(
    folder: Path, settings: Mapping[str, Any], reports: Sequence[Mapping[str, Any]], command: str | None
) -> None:
    """Writes `harden.json` and `harden.md`.

    Args:
        folder: of both.
        settings: of the run.
        reports: of the metric at the start, and of each round.
        command: that made it.
    """
    rows, parts = [], []
    for number, each in enumerate(reports):
        won = each["attacks"]
        worst = max(won, key=lambda name: won[name], default="-")
        cells = [str(number), *["-"] * 5, "-"]
        if number:
            figures = [each["mean_reward"], each["mean_rating"]]
            taus = [100 * each["tau_c_of_chosen"], 100 * each["before"]["tau_c"], 100 * each["after"]["tau_c"]]
            cells = [str(number), str(each["captions"]), str(each["chosen"]), *(f"{value:.3f}" for value in figures)]
            cells += [f"{taus[0]:.1f}", f"{taus[1]:.1f} to {taus[2]:.1f}"]
            left_out = ", ".join(f"{count} {reason}" for reason, count in each["left_out"].items()) or "none"
            unrated = f" {each['unrated']} were not rated." if each["unrated"] else ""
            examples = [
                f"- {row['reason']}; rated {row['rating']:.2f}: {' '.join(row['caption'].split())}"
                for row in each["examples"]
            ]
            parts += [f"## Round {number}", f"Left out: {left_out}.{unrated}", "\n".join(examples)]
        attacks = [f"{100 * np.mean(list(won.values())):.1f} %", f"{worst} {100 * won[worst]:.0f} %"] if won else "--"
        rows.append((*cells, *attacks))
    grid = Grid("Rounds", _HEADS, tuple(rows))
    notes = (
        "Round 0 is the metric at the start. Reward and rating: means of the chosen captions, in [0, 1]. "
        "tau-c, chosen: Kendall's tau-c x 100 of rewards and ratings of the chosen captions, before the metric was "
        "trained on them. tau-c, val: before and after the training, on the validation parts weighted by their shares. "
        "Attacks won: mean over the attacks of `capreward audit`."
    )
    if not any(each["attacks"] for each in reports):
        notes += " No attacks: the images have no references to attack."
    text = "\n\n".join([f"# Hardening of {settings['metric']}", f"`{command}`", grid.markdown(), notes, *parts])
    facts = {"command": command, "versions": versions(), "settings": settings, "rounds": reports}
    write_json(folder / "harden.json", facts)
    write_text(folder / "harden.md", text + "\n")
