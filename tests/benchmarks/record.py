"""Runs the benchmarks and keeps what they find: JSON with the machine, ratios beside a baseline's, and a picture.

    make bench
    make bench BENCH="--only bench_stages --output runs/bench.json"
    make bench BENCH="--save-baseline"

Only ratios within one run are compared, never seconds, since two machines, or one on two days, differ in those.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from reward.metaeval.report import INK, blank_figure, page_svg
from tests.benchmarks.measuring import make_table

__all__ = ["compare", "main", "stage_picture"]

FOLDER = Path(__file__).resolve().parent
BASELINE = FOLDER / "baseline.json"
TOLERANCE = 1.25  # times, up or down; on a busy machine, ratios of short runs vary by less than this
_COLOURS = ("#c2560c", "#1f6feb", "#2e8b57", "#8957e5", "#bf3989", "#6e7781", "#b7791f")


def machine() -> dict[str, Any]:
    """What the figures of a run depend on."""
    try:
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        facts = ""
    model = re.search(r"^model name\s*:\s*(.+)$", facts, re.MULTILINE)
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="minutes"),
        "cpu": model[1] if model else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,  # of other work, when the run began
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def run(name: str) -> dict[str, Any]:
    """What one benchmark records: {ratios, stages}.

    Raises:
        SystemExit: it fails, or records nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "record.jsonl"
        environment = {**os.environ, "CAPREWARD_BENCH": str(file)}
        done = subprocess.run([sys.executable, "-m", f"tests.benchmarks.{name}"], env=environment, check=False)
        if done.returncode or not file.exists():
            raise SystemExit(f"{name} {'failed' if done.returncode else 'recorded no figures'}")
        found: dict[str, Any] = {"ratios": {}, "stages": {}}
        for line in file.read_text(encoding="utf-8").splitlines():
            for part, values in json.loads(line).items():
                found[part].update(values)
    return found


def compare(now: Mapping[str, float], before: Mapping[str, float]) -> list[tuple[str, str, str, str]]:
    """(what, before, now, verdict) of every ratio of either run.

    Example:
        >>> compare({"faster": 1.5, "new": 2.0}, {"faster": 3.0, "gone": 1.0})
        [('faster', '3.00', '1.50', '0.50 times'), ('new', '-', '2.00', 'new'), ('gone', '1.00', '-', 'not measured')]
    """
    rows = []
    for what in dict.fromkeys([*now, *before]):
        old, new = before.get(what), now.get(what)
        if old is None or new is None:
            verdict = "new" if old is None else "not measured"
        else:
            change = new / old
            verdict = "" if 1 / TOLERANCE <= change <= TOLERANCE else f"{change:.2f} times"
        rows.append((what, *("-" if value is None else f"{value:.2f}" for value in (old, new)), verdict))
    return rows


def stage_picture(stages: Mapping[str, Mapping[str, float]]) -> str:
    """Shares of the time as a stacked bar for each metric: an SVG for light and dark pages."""
    figure, axes = blank_figure(1.0 + 0.4 * len(stages), width=8)
    for row, shares in enumerate(stages.values()):
        left = 0.0
        for colour, (stage, share) in zip(_COLOURS, shares.items(), strict=False):
            axes.barh(row, 100 * share, left=left, color=colour, height=0.6, label=None if row else stage)
            left += 100 * share
    axes.set_yticks(range(len(stages)), list(stages))
    axes.invert_yaxis()
    axes.set_xlabel("share of the time, %")
    figure.legend(loc="outside upper center", ncols=len(_COLOURS), fontsize=7, frameon=False, labelcolor=INK)
    colours = ":root { --ink: #1b2330; --soft: #5c6878; }"
    colours += " @media (prefers-color-scheme: dark) { :root { --ink: #e6eaf1; --soft: #98a4b5; } }"
    svg = page_svg(figure)
    spaces = ' xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return svg.replace("<svg", f"<svg{spaces}", 1).replace(">", f"><style>{colours}</style>", 1)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="names of benchmarks, such as bench_stages; default: all")
    parser.add_argument("--output", type=Path, default=Path("runs/bench.json"), help="default: %(default)s")
    parser.add_argument("--baseline", type=Path, default=BASELINE, help="default: that of the repository")
    parser.add_argument("--save-baseline", action="store_true", help="keep this run's ratios as the baseline")
    options = parser.parse_args(argv)
    known = sorted(path.stem for path in FOLDER.glob("bench_*.py"))
    if unknown := set(options.only or ()) - set(known):
        parser.error(f"no benchmark is named {sorted(unknown)[0]}; there are: {', '.join(known)}")
    record: dict[str, Any] = {"machine": machine(), "ratios": {}, "stages": {}}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    for name in options.only or known:
        print(f"== {name}", flush=True)
        found = run(name)
        record["ratios"] |= {f"{name}: {what}": value for what, value in found["ratios"].items()}
        record["stages"] |= found["stages"]
        options.output.write_text(json.dumps(record, indent=1), encoding="utf-8")  # also if the next one fails
    if record["stages"]:
        options.output.with_suffix(".svg").write_text(stage_picture(record["stages"]), encoding="utf-8")
    console = Console(width=120)
    if options.save_baseline:
        earlier = (
            json.loads(options.baseline.read_text(encoding="utf-8"))["ratios"] if options.baseline.exists() else {}
        )
        text = json.dumps({**record, "ratios": earlier | record["ratios"]}, indent=1)
        options.baseline.write_text(text + "\n", encoding="utf-8")
    elif options.baseline.exists():
        before = json.loads(options.baseline.read_text(encoding="utf-8"))
        ours = {
            what: value for what, value in before["ratios"].items() if what.split(":")[0] in (options.only or known)
        }
        table = make_table(f"Ratios, beside those of {before['machine']['date']}", ["", "before", "now", "changed"])
        rows = compare(record["ratios"], ours)
        for row in rows:
            table.add_row(*row)
        console.print(table)
        console.print(
            f"{sum(row[-1] != '' for row in rows)} of {len(rows)} ratios changed by more than {TOLERANCE} times"
        )
    else:
        console.print(f"nothing to compare with: there is no {options.baseline}; --save-baseline makes it")
    console.print(f"-> {options.output}", highlight=False)


if __name__ == "__main__":
    main()
