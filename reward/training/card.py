"""Model card of a trained metric: what was trained, on which data, with which settings, its figures, and its use."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from reward.backbones.fit import leaves
from reward.checkpoints.publishing import HUB_ID
from reward.metrics.base import MetricSpec
from reward.training.evaluation import compare_figures
from reward.training.tables import VALIDATION, hub_id


def make_card(spec: MetricSpec, facts: Mapping[str, Any]) -> str:
    """The text of README.md for a checkpoint: Markdown with the Hub's YAML head.

    Args:
        spec: facts of the metric.
        facts: the record of the run, with `stages`, the records of its stages, if it had any.
    """
    stages = facts.get("stages") or {"": facts}
    parts = [_head(spec, facts)]
    for name, stage in stages.items():
        title, (heads, *rows) = figure_table(stage["figures"])
        lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        parts += [f"## {f'Stage {name}: ' if name else ''}{title}", table, _course(stage)]
    parts += ["## Settings", f"```\n{facts['command']}\n```" if facts["command"] else ""]
    parts.append(f"```json\n{json.dumps(facts['config'], indent=2)}\n```")
    return "\n\n".join(filter(None, parts)) + "\n"


def figure_table(*runs: Mapping[str, Mapping[str, float]]) -> tuple[str, list[list[str]]]:
    """A title for the figures, and a table of them with one column per part.

    Args:
        runs: {part: {name: figure}}, see `reward.training.run.TrainingResult`. Of several runs, such as with several
            seeds, the table has means and standard deviations (of a sample: the divisor is the number of runs less 1).

    Returns:
        A title, and rows of equally many cells, heads first.

    Example:
        >>> figure_table({"val": {"accuracy": 0.75, "accuracy_noun": 0.75, "auc": 0.8, "n": 8}})
        ('Pairs ranked right x 100', [['', 'val'], ['noun', '75.0'], ['mean', '75.0'], ['AUC', '80.0'], ['pairs', '8']])
    """
    figures = runs[0]
    pairs = any("accuracy" in part for part in figures.values())
    title, prefix = ("Pairs ranked right x 100", "accuracy") if pairs else ("Kendall's tau-c x 100", "tau_c")
    names = dict.fromkeys(key for part in figures.values() for key in part if key.startswith(f"{prefix}_"))
    if len(runs) > 1:
        title += f", mean ± standard deviation of {len(runs)} runs"

    def cell(part: str, name: str, scale: int = 100, digits: int = 1) -> str:
        if name not in figures[part]:
            return "-"
        values = [scale * run[part][name] for run in runs]
        text = f"{statistics.fmean(values):.{digits}f}"
        return text if len(runs) == 1 else f"{text} ± {statistics.stdev(values):.{digits}f}"

    rows = [["", *figures]]
    for name in (*names, prefix):
        head = "mean" if name == prefix else name.removeprefix(f"{prefix}_")
        rows.append([head, *(cell(part, name) for part in figures)])
    last = ("AUC", "auc", 100, 1) if pairs else ("MSE", "mse", 1, 4)
    rows.append([last[0], *(cell(part, *last[1:]) for part in figures)])
    rows.append(["pairs" if pairs else "n", *(f"{part['n']:g}" for part in figures.values())])
    return title, rows


def _head(spec: MetricSpec, facts: Mapping[str, Any]) -> str:
    given = [*_listed(facts["data"]), *facts["config"]["data"], *facts["config"]["pairs"]]
    data = list(filter(None, (hub_id(name) for name in dict.fromkeys(each.partition("=")[0] for each in given))))
    found = {str(value) for path, value in leaves(facts["config"]["model"]) if path.endswith("backbone") and value}
    hub = sorted(each for each in found if each.count("/") == 1 and each[0] != "." and not Path(each).exists())
    tags = ["image-captioning", "reward-model", spec.name]
    head = ModelCardData(library_name="capreward", base_model=hub or None, datasets=data or None, tags=tags)
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
    config = facts["config"]
    own = (config["pairs"] if config["loss"] == "bce" else config["data"]) or _listed(facts["data"])
    sources = ", ".join(f"`{each}`" for each in own)
    what = "captions of pairs" if config["loss"] == "bce" else "rated captions (one aspect each)"
    lines = [f"- Data: {sources}; {what}: {', '.join(f'{name} {n}' for name, n in facts['rows'].items())}."]
    kept = f"step {facts['best_step']} of {facts['steps']}, the best on `{VALIDATION}`. Seed {config['seed']}"
    lines.append(f"- Kept: {kept}.")
    if "init" in facts:
        words, _ = compare_figures(facts["before"], facts["figures"][VALIDATION])
        lines.append(f"- Went on from the checkpoint `{facts['init']['source']}`. On `{VALIDATION}` {words}.")
    return "\n".join(lines)


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]
