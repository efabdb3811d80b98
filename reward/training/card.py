"""Model card of a trained metric: what was trained, on which data, with which settings, its figures, and its use."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from reward.backbones.fit import leaves
from reward.checkpoints.publishing import HUB_ID
from reward.metrics.base import MetricSpec
from reward.training.config import PAIR_LOSSES
from reward.training.figures import compare_figures
from reward.training.splits import VALIDATION, hub_id


def make_card(spec: MetricSpec, facts: Mapping[str, Any]) -> str:
    """The text of README.md for a checkpoint: Markdown with the Hub's YAML head.

    Args:
        spec: facts of the metric.
        facts: the record of the run, with `stages`, the records of its stages, if it had any.
    """
    parts = [_head(spec, facts)]
    for name, stage in (facts.get("stages") or {"": facts}).items():
        title, (heads, *rows) = figure_table(stage["figures"])
        if name:
            title = f"Stage {name}: {title}"
        lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        parts += [f"## {title}", table, _course(stage)]
    parts.append("## Settings")
    if facts["command"]:
        parts.append(f"```\n{facts['command']}\n```")
    parts.append(f"```json\n{json.dumps(facts['config'], indent=2)}\n```")
    return "\n\n".join(parts) + "\n"


def figure_table(*runs: Mapping[str, Mapping[str, float]]) -> tuple[str, list[list[str]]]:
    """A title for the figures, and a table of them with one column per part.

    Args:
        runs: {part: {name: figure}}, see `reward.training.stage.TrainingResult`. Of several runs, such as with several
            seeds, the table has means and standard deviations (of a sample: the divisor is the number of runs less 1).

    Returns:
        A title, and rows of equally many cells, heads first.

    Example:
        >>> figure_table({"val": {"accuracy": 0.75, "accuracy_noun": 0.75, "auc": 0.8, "n": 8}})
        ('Pairs ranked right x 100', [['', 'val'], ['noun', '75.0'], ['mean', '75.0'], ['AUC', '80.0'], ['pairs', '8']])
    """
    figures = runs[0]
    # Parts may lack a figure: an aspect that they do not rate, a kind of error that they do not have.
    names: dict[str, None] = {}
    for figures_of_part in figures.values():
        names |= dict.fromkeys(figures_of_part)
    if "accuracy" in names:
        title, prefix = "Pairs ranked right x 100", "accuracy"
    else:
        title, prefix = "Kendall's tau-c x 100", "tau_c"
    # (head, name of the figure, its scale, digits) of each row; errors and counts are no percentages.
    formats = []
    for name in names:
        if name.startswith(f"{prefix}_"):
            formats.append((name.removeprefix(f"{prefix}_"), name, 100, 1))
    formats.append(("mean", prefix, 100, 1))
    if prefix == "accuracy":
        if "low" in names:  # the interval of the mean, which older records do not have
            formats += [("lowest of 95 %", "low", 100, 1), ("highest of 95 %", "high", 100, 1)]
        formats += [("AUC", "auc", 100, 1), ("pairs", "n", 1, 0)]
    else:
        formats += [("MSE", "mse", 1, 4), ("n", "n", 1, 0)]
    if len(runs) > 1:
        title += f", mean ± standard deviation of {len(runs)} runs"

    rows = [["", *figures]]
    for head, name, scale, digits in formats:
        cells = [head]
        for part in figures:
            values = [run[part].get(name) for run in runs]
            cells.append(_cell(values, scale, digits, spread=name != "n"))
        rows.append(cells)
    return title, rows


def _cell(values: Sequence[float | None], scale: int, digits: int, *, spread: bool) -> str:
    """The mean of the runs' figures, and with `spread` their standard deviation; "-" where no run has the figure."""
    scaled = [scale * value for value in values if value is not None]
    if not scaled:
        return "-"
    text = f"{statistics.fmean(scaled):.{digits}f}"
    if len(scaled) == 1 or not spread:
        return text
    return f"{text} ± {statistics.stdev(scaled):.{digits}f}"


def _head(spec: MetricSpec, facts: Mapping[str, Any]) -> str:
    """The Hub's YAML head, the title, and how to load the checkpoint."""
    data = [*_as_list(facts["data"]), *facts["config"]["data"], *facts["config"]["pairs"]]
    names = dict.fromkeys(name.partition("=")[0] for name in data)
    data_sets = [address for address in map(hub_id, names) if address]
    backbones = set()
    for path, value in leaves(facts["config"]["model"]):
        address = str(value)
        is_on_hub = address.count("/") == 1 and not address.startswith((".", "/")) and not Path(address).exists()
        if path.endswith("backbone") and value and is_on_hub:
            backbones.add(address)
    head = ModelCardData(
        library_name="capreward",
        base_model=sorted(backbones) or None,
        datasets=data_sets or None,
        tags=["image-captioning", "reward-model", spec.name],
    )
    return f"""---
{head.to_yaml()}
---

# {spec.name} checkpoint

Scores captions of images in [{spec.range[0]:g}, {spec.range[1]:g}]; aspects: {", ".join(spec.aspects)}.
Method: {spec.paper}. The licences of what it was built on and trained on apply.

```python
from reward import load_scorer
scorer = load_scorer("{spec.name}", "{HUB_ID}")
```"""


def _course(facts: Mapping[str, Any]) -> str:
    """What a run, or a stage, was trained on, and what came of it."""
    config = facts["config"]
    kind = "rated captions (one aspect each)"
    names = config["data"]
    if config["loss"] in PAIR_LOSSES:
        kind = "captions of pairs"
        names = config["pairs"]
    data = ", ".join(f"`{name}`" for name in names or _as_list(facts["data"]))
    sizes = ", ".join(f"{part} {rows}" for part, rows in facts["rows"].items())
    lines = [
        f"- Data: {data}; {kind}: {sizes}.",
        f"- Kept: step {facts['best_step']} of {facts['steps']}, the best on `{VALIDATION}`. Seed {config['seed']}.",
    ]
    if "init" in facts:
        words, _ = compare_figures(facts["before"], facts["figures"][VALIDATION])
        lines.append(f"- Went on from the checkpoint `{facts['init']['source']}`. On `{VALIDATION}` {words}.")
    return "\n".join(lines)


def _as_list(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]
