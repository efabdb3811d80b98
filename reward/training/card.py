"""Model card of a trained metric: its data, settings, command and versions, and how it does on held-out data."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from reward.metrics.base import MetricSpec

__all__ = ["make_card", "package_versions"]

_PACKAGES = ("capreward", "torch", "transformers", "peft", "open_clip_torch", "accelerate", "datasets")


def package_versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide a training run; those not installed are left out.

    Example:
        >>> "torch" in package_versions()
        True
    """
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def make_card(spec: MetricSpec, facts: Mapping[str, Any]) -> str:
    """The text of README.md for a checkpoint.

    Args:
        spec: facts of the metric.
        facts: of the run: data, config, command, rows, steps, best_step, processes, device, seconds, resumed, figures.

    Returns:
        Markdown with the Hub's YAML head.
    """
    config = facts["config"]
    kept = f"step {facts['best_step']} of {facts['steps']}"
    device = f"{facts['processes']} process{'es' * (facts['processes'] > 1)} on {facts['device']}"
    command = f"```\n{facts['command']}\n```" if facts["command"] else "From Python, by `reward.training.loop.train`."
    rows = ", ".join(f"{part} {n}" for part, n in facts["rows"].items())
    time = f"{facts['seconds']} s" + (" since the last resume" if facts["resumed"] else "")
    versions = ", ".join(f"{name} {number}" for name, number in package_versions().items())
    aspects = ", ".join(spec.aspects)
    return f"""---
library_name: capreward
tags:
- image-captioning
- reward-model
- {spec.name}
---

# {spec.name} checkpoint

Scores captions of images in [{spec.range[0]:g}, {spec.range[1]:g}]; aspects: {aspects}. Method: {spec.paper}.

```python
from reward import load_scorer
scorer = load_scorer("{spec.name}", "<this folder or its Hub id>")
```

## Agreement with the ratings

Kendall's tau-c x 100 per aspect and their mean. Training stopped by the part `{config["validation_part"]}`, so its
figures are a little too good; the other parts were not looked at before the end.

{_table(spec, facts["figures"])}

## Training

- Data: `{facts["data"]}`; rated captions (one aspect each): {rows}.
- Kept: {kept}, the best on `{config["validation_part"]}`. Seed {config["seed"]}. {time}, {device}.
- Versions: {versions}.

{command}

```json
{json.dumps(config, indent=2)}
```
"""


def _table(spec: MetricSpec, figures: Mapping[str, Mapping[str, float]]) -> str:
    columns = [*spec.aspects, "mean", "MSE", "n"]
    lines = [f"| part | {' | '.join(columns)} |", f"|---{'|---:' * len(columns)}|"]
    for part, found in figures.items():
        taus = [found.get(f"tau_c_{aspect}") for aspect in spec.aspects] + [found["tau_c"]]
        cells = ["" if tau is None else f"{100 * tau:.1f}" for tau in taus]
        lines.append(f"| {part} | {' | '.join(cells)} | {found['mse']:.4f} | {found['n']:g} |")
    return "\n".join(lines)
