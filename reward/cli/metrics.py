"""`capreward metrics`: lists the installed metrics."""

from __future__ import annotations

from reward.cli import terminal

__all__ = ["metrics"]


def metrics() -> None:
    """List the installed metrics: aspects, what they need, range, paper.

    An embedded one scores without a checkpoint of yours. One that needs a corpus is fitted on the data's references.

    With `_avg` behind its name, any of them scores a caption by the mean over its sentences.

    ```
    capreward metrics
    ```
    """
    from rich.table import Table

    from reward.registry import list_metrics, metric_spec

    table = Table("metric", "aspects", "needs", "range", "embedded")
    papers: dict[str, list[str]] = {}
    for name in list_metrics():
        spec = metric_spec(name)
        short = {aspect: alias for alias, aspect in spec.aliases.items()}
        aspects = [aspect + (f" ({short[aspect]})" if aspect in short else "") for aspect in spec.aspects]
        needs = ["image"] * spec.needs_image + ["references"] * spec.needs_references + ["corpus"] * spec.needs_corpus
        table.add_row(
            name,
            "\n".join(aspects),
            "\n".join(needs) or "caption only",
            f"{spec.range[0]:g} to {spec.range[1]:g}",
            "yes" if spec.has_embedded else "no",
        )
        papers.setdefault(spec.paper, []).append(name)
    console = terminal.console(stderr=False)
    console.print(table, soft_wrap=False)
    for paper, names in papers.items():
        console.print(f"{', '.join(names)}: {paper}")
