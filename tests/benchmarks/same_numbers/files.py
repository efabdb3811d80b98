"""What the command writes and prints."""

import csv
import io
import json
import os
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress

from same_numbers.book import RUN, attempt, flat, part, scenes
from same_numbers.choosing import FUNCTIONS


def command(*words):
    """Runs `python -m capreward` in the folder of the data, in this process, and gives what it printed."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    folder, arguments = os.getcwd(), sys.argv
    os.chdir(RUN.folder / "files")
    sys.argv = ["capreward", *map(str, words)]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            runpy.run_module("capreward", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    finally:
        os.chdir(folder)
        sys.argv = arguments
    if code:
        raise RuntimeError(f"{words} ended with {code}:\n{err.getvalue()[-2000:]}")
    return out.getvalue()


def note_run(book, *words, output):
    """Runs a command, and notes the rows of its output but for pictures; numbers in cells of CSV are read."""
    path = RUN.folder / "files" / output
    command(*words, "-o", output, "--device", "cpu", "--quiet")
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        rows = pq.read_table(path).to_pylist()
    else:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file)) if path.suffix == ".csv" else [json.loads(line) for line in file]
    for row, cells in enumerate(rows):
        book.error(f"{output}/{row}", cells.pop("error") or None)
        for name in cells.keys() - {"image"}:
            if path.suffix == ".csv":
                with suppress(ValueError):
                    cells[name] = float(cells[name])
            book.note(f"{output}/{row}/{name}", cells[name])


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_files(folder):
    """Captions of the same pictures in some forms; `wild.jsonl` has odd ones, too, and a picture that is broken."""
    import pandas as pd

    folder.mkdir(exist_ok=True)
    for number, scene in enumerate(scenes()[:5]):
        scene["image"].save(folder / f"{number}.png")
    (folder / "broken.png").write_bytes(b"no picture")
    (folder / "my_metric.py").write_text(FUNCTIONS)

    def rows_of(*chosen):
        names, _, captions, references = flat(*chosen)
        files = [f"{name.split()[0]}.png" for name in names]
        rows = zip(files, captions, references, strict=True)
        return [{"image": file, "caption": caption, "references": texts} for file, caption, texts in rows]

    rows, wild = rows_of(5, "good, rated, other, long, chinese, thought"), rows_of(3)
    wild += [{"image": name, "caption": "A star."} for name in ("broken.png", "absent.png")]
    wild += [{"image": "0.png", "caption": 3}, {"image": None, "caption": "A star.", "references": "A red star."}]
    groups = []
    for number, scene in enumerate(scenes()[:5]):
        candidates = list(filter(None, scene["captions"].values()))
        groups.append({"image": f"{number}.png", "candidates": candidates, "references": scene["references"]})
    for name, lines in {"rows": rows, "wild": wild, "groups": groups}.items():
        write_lines(folder / f"{name}.jsonl", lines)
    frame = pd.DataFrame(rows)
    frame.to_parquet(folder / "rows.parquet")
    frame.assign(references=frame["references"].map(json.dumps)).to_csv(folder / "rows.csv", index=False)
    results = [{"image_id": int(row["image"][:-4]), "caption": row["caption"]} for row in rows]
    known = [{"id": number, "file_name": f"{number}.png"} for number in range(5)]
    texts = [{"image_id": number, "caption": text} for number in range(5) for text in scenes()[number]["references"]]
    annotations = [{"id": number, **text} for number, text in enumerate(texts)]
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "truths.json").write_text(json.dumps({"images": known, "annotations": annotations}))


@part
def files(book):
    """`capreward score`, `rerank` and `bench`."""
    write_files(RUN.folder / "files")
    weights = "vela=0.5,beitscore=0.3,refclipscore=0.2"
    three = ("-m", "vela", "-m", "beitscore", "-m", "refclipscore", "--weights", weights)
    words = ("-m", "unigram", "-m", "length", "-m", "bleu4", "-m", "rouge_l")
    runs = {
        "several.jsonl": ("score", "rows.jsonl", *three, "--strip-thinking"),
        "wild vela.jsonl": ("score", "wild.jsonl", "-m", "vela", "--batch-size", 3),
        "wild several.parquet": ("score", "wild.jsonl", "-m", "clipscore", *words),
        "csv.csv": ("score", "rows.csv", *words, "-m", "cider", "--part-rows", 7),
        "parquet.parquet": ("score", "rows.parquet", "-m", "beitscore", "-m", "meteor"),
        "coco.jsonl": ("score", "results.json", "--annotations", "truths.json", "-m", "refclipscore", "-m", "unigram"),
        "function.jsonl": ("score", "rows.jsonl", "-m", "my_metric.py:length", "-m", "my_metric.py:redness"),
        "ranked several.jsonl": ("rerank", "groups.jsonl", *three, "--strip-thinking"),
        "ranked rows.jsonl": ("rerank", "rows.jsonl", "-m", "beitscore"),
    }
    for output, line in runs.items():
        attempt(book, output, lambda: note_run(book, *line, output=output))  # noqa: B023
    bench = ("bench", "--benchmark", "scenes", "--limit", 40, *words[:4], "-m", "clipscore", "--resamples", 50)
    for row in json.loads(command(*bench, "--json"))["tables"][0]["rows"]:
        for column, cell in row.items():
            if isinstance(cell, dict):
                book.note(f"bench/{row['name']}/{column}", {name: number / 100 for name, number in cell.items()})
