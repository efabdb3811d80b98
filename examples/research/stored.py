"""Measured figures as rows of CSV files: what the scripts leave in a folder, and the files of docs/results."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Row = dict[str, str]

ASPECTS = ("descriptiveness", "relevance", "fluency", "mean")
_QUALITY = {"f1": "f1", "recall": "recall", "precision": "precision", "faults": "flaws", "words": "words"}
_LABELS = {"vela": "VELA", "beitscore": "BEiTScore", "fleur": "FLEUR", "clipscore": "CLIPScore", "cider": "CIDEr"}


def read_csv(file: Path) -> list[Row]:
    """Rows of texts, without the line above them."""
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(line for line in stream if not line.startswith("# ")))


def read_origin(file: Path) -> str:
    """The line above the rows: when and by which command they were measured."""
    with file.open(encoding="utf-8") as stream:
        return stream.readline().removeprefix("# ").strip()


def write_csv(file: Path, rows: list[Row], origin: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8", newline="") as stream:
        stream.write(f"# {origin}\n")
        columns = dict.fromkeys(column for row in rows for column in row)  # not every attack is possible on every image
        writer = csv.DictWriter(stream, list(columns), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def _intervals(figures: Mapping[str, Any], head: str, names: Mapping[str, str], scale: float = 1.0) -> Iterator[Row]:
    """A row for each entry of {name: {measure: interval}}."""
    for name, measured in figures.items():
        row = {head: name}
        for measure, column in names.items():
            for end, key in (("", "value"), ("_low", "low"), ("_high", "high")):
                row[f"{column}{end}"] = f"{scale * measured[measure][key]:.{1 if scale > 1 else 3}f}"
        yield row


def bench(folder: Path) -> list[Row]:
    found = {row["name"]: row for row in _read(folder / "bench.json")["benchmarks"][0]["rows"]}
    estimates = {name: row["estimates"] for name, row in found.items()}
    rows = list(_intervals(estimates, "metric", {name: name for name in ASPECTS}, scale=100))
    for row in rows:
        milliseconds = 1000 * found[row["metric"]]["seconds_per_caption"]
        row["ms_per_caption"] = f"{float(f'{milliseconds:.2g}'):g}"
    return sorted(rows, key=lambda row: -float(row["mean"]))


def attacks(folder: Path) -> list[Row]:
    rows: dict[str, Row] = {}
    for file in sorted(folder.rglob("audit.json")):
        for metric, found in _read(file)["metrics"].items():
            name = metric.partition("=")[0]
            label = _LABELS.get(name, name)
            for attack, finding in found["attacks"].items():
                row = rows.setdefault(attack, {"attack": attack, "captions": str(finding["captions"])})
                for end, bound in ((", wins %", "value"), (", low", "low"), (", high", "high")):
                    row[label + end] = f"{100 * finding['wins'][bound]:.1f}"
                row[f"{label}, change"] = f"{finding['change']['value']:+.3f}"
    return list(rows.values())


def best_of_n(folder: Path) -> list[Row]:
    return list(_intervals(_read(folder / "best_of_n.json")["means"], "captions", _QUALITY))


def decoding(folder: Path) -> list[Row]:
    """Means, and differences to best-of-n with as many tokens, with a mark where the interval excludes 0."""
    found = _read(folder / "decoding_curve.json")
    differences = {name.partition(" - ")[0]: row for name, row in found["differences"].items()}
    rows = []
    for name, means in found["means"].items():
        row = dict(zip(("line", "setting"), name.partition(": ")[::2], strict=True))
        row |= {column: f"{cell['value']:.4f}" for column, cell in means.items()}
        for measure in ("f1", "faults"):
            cell = differences.get(name, {}).get(measure)
            row[f"{measure}_difference"] = "" if cell is None else f"{cell['value']:.3f}"
            row[f"{measure}_mark"] = "**" if cell is not None and cell["low"] * cell["high"] > 0 else ""
        rows.append(row)
    return rows


def offline(folder: Path) -> list[Row]:
    """Rates of a metric, and where its time goes; `network` is all that its networks take."""
    stages = {row["metric"]: row for row in read_csv(folder / "stages.csv")}
    rows = []
    for row in read_csv(folder / "rates.csv"):
        shares = stages[row["metric"]]
        network = sum(float(shares[part]) for part in ("image tower", "prefix", "candidate", "head"))
        rows.append(row | shares | {"network": f"{network:.1f}"})
    return rows


def parting(folder: Path) -> list[Row]:
    """The means of all checks of the monitor, and what it warned of."""
    header, *checks = map(json.loads, next(folder.glob("seed_*/*/trainer/monitor.jsonl")).read_text().splitlines())
    names = {"reward": "reward", "second": f"measures/{header['second']}", "oracle_f1": "measures/oracle_f1"}
    names |= {"flaws": "measures/flaws", "repetition": "repetition"}
    return [
        {"step": str(check["step"])}
        | {name: str(round(check["figures"][column], 4)) for name, column in names.items()}
        | {"warned": " ".join(check["warned"])}
        for check in checks
    ]


def grpo(folder: Path, names: Mapping[str, tuple[str, int]]) -> list[Row]:
    """The untrained captioner, then each run: means over its seeds, intervals over scenes, and the worst seed.

    Args:
        folder: holds a folder of `grpo_captioner` for each run.
        names: {folder of a run: (reward, captions a step)}.
    """
    rows: dict[tuple[str, str, str], Row] = {}
    for run, (reward, captions) in names.items():
        found = _read(folder / run / "grpo.json")
        means, steps = found["means"], found["options"]["steps"]
        trained = next(key for key in means if key.startswith("GRPO with") and key.endswith(", greedy"))
        for key, system in (
            (("untrained", "0", "0"), "base"),
            ((reward, str(captions), steps), trained.removesuffix(", greedy")),
        ):
            row = dict(zip(("reward", "captions", "steps"), key, strict=True))
            for end, way in (("", "greedy"), ("_sampled", "sampled")):
                name = f"{system}, {way}"
                [own] = _intervals({name: means[name]}, "captions", _QUALITY)
                seeds = [cells for other, cells in means.items() if other.startswith(f"{name}, seed ")]
                for measure, column in _QUALITY.items():
                    row |= {f"{column}{end}{bound}": own[f"{column}{bound}"] for bound in ("", "_low", "_high")}
                    worst = max if column in ("flaws", "words") else min
                    values = [cells[measure]["value"] for cells in seeds]
                    row[f"{column}{end}_worst"] = f"{worst(values):.3f}" if values else ""
            rows.setdefault(key, row)
    return list(rows.values())
