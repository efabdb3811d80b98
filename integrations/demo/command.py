"""`capreward demo`: everything this package does, on held-out synthetic scenes, in two minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for report.html, figures.json and the scored files.")
    ] = Path("capreward-demo"),
    quick: Annotated[
        bool, typer.Option(help="Tiny sizes: shows that everything runs, but its figures mean nothing.")
    ] = False,
) -> None:
    """Show what the embedded metrics can do: agreement, best-of-N, GRPO, offline scoring. Offline, on the CPU.

    All of it runs on scenes that no model was trained on. Ctrl-C stops; what was done so far is in the report.
    """
    import logging
    import time
    import warnings

    import datasets
    import transformers
    from rich.console import Console

    from integrations.demo.run import QUICK, Sizes, run_demo

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    # TRL 1.16 calls transformers by names that will go; nothing a user of the demo could do about it.
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    console = Console(highlight=False)
    start = time.perf_counter()
    loading = logging.getLogger("reward.checkpoints.folders")
    loading.setLevel(logging.ERROR)  # the report says what the embedded checkpoints are good for
    try:
        results = run_demo(output, QUICK if quick else Sizes(), console=console)
    finally:
        loading.setLevel(logging.NOTSET)
    seconds = time.perf_counter() - start
    if results["stopped"]:
        console.print(f"stopped during {results['stopped']}; what was done so far is in the report", style="yellow")
    console.print(f"{seconds:.0f} s; report: {output / 'report.html'}, figures: figures.json beside it", markup=False)
    if results["stopped"]:
        raise typer.Exit(130)
