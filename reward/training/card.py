"""Model card of a trained metric: its data, settings, command and versions, and how it does on held-out data."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reward.backbones.fit import leaves
from reward.metaeval.benchmarks.registry import benchmark_spec, list_benchmarks
from reward.metrics.base import MetricSpec
from reward.optional import installed_versions
from reward.publishing import HUB_ID
from reward.training.config import make_config
from reward.training.data import ALIASES
from reward.training.evaluation import compare_figures
from reward.training.paper import paper_table
from reward.training.record import differences
from reward.training.shares import parse_data

__all__ = ["figure_table", "make_card", "make_staged_card", "package_versions"]

_PACKAGES = ("capreward", "torch", "transformers", "peft", "open_clip_torch", "accelerate", "datasets")


def package_versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that affect a training run.

    Example:
        >>> "torch" in package_versions()
        True
    """
    return installed_versions(_PACKAGES)


def make_card(spec: MetricSpec, facts: Mapping[str, Any], training: Any = None) -> str:
    """The text of README.md for a checkpoint.

    Args:
        spec: facts of the metric.
        facts: of the run: data, config, command, rows, steps, best_step, processes, device, seconds, resumed, figures,
            epoch, for pairs their counts by part and category, what it started from (start or init with before), and
            the preset.
        training: the metric's training module, with the values of the presets and the figures of the paper.

    Returns:
        Markdown with the Hub's YAML head.
    """
    return f"""{_head(spec, facts)}
{_figures(facts, "##")}
{_beside_paper(facts, training)}
## Training

{_course(facts)}{_preset(facts, training)}
- Versions: {_versions()}.

{_command(facts)}

```json
{json.dumps(facts["config"], indent=2)}
```
"""


def make_staged_card(spec: MetricSpec, facts: Mapping[str, Any], training: Any = None) -> str:
    """The text of README.md for a checkpoint that was trained in stages.

    Args:
        spec: facts of the metric.
        facts: config, command, and stages: {name: what `make_card` gets}, in their order.
        training: as for `make_card`.

    Returns:
        Markdown with the Hub's YAML head.
    """
    parts = [_head(spec, facts), "Trained in stages, each from the weights that the one before it kept:"]
    parts[1] += f" {', '.join(facts['stages'])}. The figures of each stage were measured at its end."
    for name, stage in facts["stages"].items():
        parts += [f"## Stage {name}", _figures(stage, "###"), "### Training", _course(stage)]
    if beside := _beside_paper({**facts, "figures": stage["figures"]}, training):
        parts.append(beside)
    settings = f"```json\n{json.dumps(facts['config'], indent=2)}\n```"
    parts += ["## All stages", f"Versions: {_versions()}.{_preset(facts, training)}", _command(facts), settings]
    return "\n\n".join(part.strip() for part in parts) + "\n"


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
    bases = sorted(
        {str(value) for path, value in leaves(facts["config"]["model"]) if path.endswith("backbone") and value}
    )
    hub = [base for base in bases if base.count("/") == 1 and not base.startswith(".") and not Path(base).exists()]
    data = [ALIASES[name] for name in dict.fromkeys(map(_name, _sources(facts))) if name in ALIASES]
    listed = "".join(
        f"{key}:\n" + "".join(f"- {value}\n" for value in values)
        for key, values in (("base_model", hub), ("datasets", data))
        if values
    )
    built = f"Built on {' and '.join(f'`{base}`' for base in bases)}, whose licences apply.\n" if bases else ""
    return f"""---
library_name: capreward
{listed}tags:
- image-captioning
- reward-model
- {spec.name}
---

# {spec.name} checkpoint

Scores captions of images in [{spec.range[0]:g}, {spec.range[1]:g}]; aspects: {", ".join(spec.aspects)}.
Method: {spec.paper}.
{built}
```python
from reward import load_scorer
scorer = load_scorer("{spec.name}", "{HUB_ID}")
```
"""


def _sources(facts: Mapping[str, Any]) -> list[str]:
    """The data sets that a run was given, without their shares."""
    config, given = facts["config"], facts["data"]
    sources = list(parse_data(given)) if isinstance(given, list) else [given]
    return [*sources, *filter(None, (config["data"], config["pairs"]))]


def _name(source: str) -> str:
    return source.partition("=")[0]


def _beside_paper(facts: Mapping[str, Any], training: Any) -> str:
    paper = getattr(training, "PAPER", None)
    found = paper_table(paper, _sources(facts), facts.get("preset"), facts["figures"])
    return f"\n## Beside the paper\n\n{found[0]}.\n\n{_markdown(found[1])}\n" if found else ""


def _preset(facts: Mapping[str, Any], training: Any) -> str:
    """What the settings of a run are beside those of its preset."""
    if not facts.get("preset"):
        return ""
    values = make_config(training.PRESETS[facts["preset"]]).to_dict()
    changed = differences("", {**values, "seed": None}, {**facts["config"], "seed": None})
    return f"\n- Preset: `{facts['preset']}`, {'; '.join(changed) or 'unchanged'}."


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    heads, *body = rows
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _figures(facts: Mapping[str, Any], level: str) -> str:
    part = facts["config"]["validation_part"]
    table = _markdown(figure_table(facts["figures"])[1])
    if facts["config"]["loss"] == "bce":
        title = "Pairs of a correct and an incorrect caption"
        what = "Share of pairs whose correct caption has the higher score x 100, by kind of error, and their mean."
    else:
        title = "Agreement with the ratings"
        what = "Kendall's tau-c x 100 per aspect and their mean."
    if isinstance(facts["data"], list):
        what += f"\n`{part}` is the mean over the data sets that have this part, weighted by their shares."
    return f"""{level} {title}

{what}
The part `{part}` decided when training stopped, so its figures are slightly too good. The other parts were not used
before the end.

{table}"""


def _course(facts: Mapping[str, Any]) -> str:
    config = facts["config"]
    device = f"{facts['processes']} process{'es' * (facts['processes'] > 1)} on {facts['device']}"
    time = f"{facts['seconds']} s" + (" since the last resume" if facts["resumed"] else "")
    pairs = facts.get("pairs") or {}
    source = (config["pairs"] if config["loss"] == "bce" else config["data"]) or facts["data"]
    sources = ", ".join(f"`{each}`" for each in (source if isinstance(source, list) else [source]))
    what = "captions of pairs" if config["loss"] == "bce" else "rated captions (one aspect each)"
    lines = [f"- Data: {sources}; {what}: {', '.join(f'{k} {n}' for k, n in facts['rows'].items())}."]
    if isinstance(source, list):
        lines.append(f"- An epoch takes of each: {', '.join(f'`{k}` {n}' for k, n in facts['epoch'].items())}.")
    for part, counts in pairs.items():
        lines.append(f"- Pairs, {part}: {', '.join(f'{name} {n}' for name, n in counts.items())}.")
    kept = f"step {facts['best_step']} of {facts['steps']}"
    lines.append(f"- Kept: {kept}, the best on `{config['validation_part']}`. Seed {config['seed']}. {time}, {device}.")
    licences = [benchmark_spec(name).licence for name in map(_name, _sources(facts)) if name in list_benchmarks()]
    lines += [f"- Licence of the data: {licence}." for licence in dict.fromkeys(licences) if licence]
    if "init" in facts:
        lines.append(
            f"- Went on from the checkpoint `{facts['init']['source']}`. On `{config['validation_part']}` "
            f"{compare_figures(facts['before'], facts['figures'][config['validation_part']])[0]}."
        )
    if "start" in facts:
        lines.append(f"- Started from the weights of `{facts['start']}`.")
    return "\n".join(lines)


def _versions() -> str:
    return ", ".join(f"{name} {number}" for name, number in package_versions().items())


def _command(facts: Mapping[str, Any]) -> str:
    return f"```\n{facts['command']}\n```" if facts["command"] else "From Python, by `reward.training.loop.train`."
