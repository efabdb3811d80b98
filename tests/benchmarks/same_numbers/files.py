"""What the command writes and prints."""

import csv
import io
import json
import os
import runpy
import subprocess
import sys
import tarfile
from contextlib import redirect_stderr, redirect_stdout, suppress

from same_numbers.book import ASK, RUN, attempt, flat, part, scenes
from same_numbers.choosing import FUNCTIONS


def command(*words, apart=False):
    """Runs `python -m capreward` in the folder of the data, and gives what it printed.

    A process of its own loads all libraries again, which takes longer than most commands; so most run in this one.
    """
    line, folder = ["capreward", *map(str, words)], RUN.folder / "files"
    if apart:
        paths = {"PYTHONPATH": os.pathsep.join([RUN.tree, os.environ.get("PYTHONPATH", "")])}
        run = [sys.executable, "-m", *line]
        done = subprocess.run(run, cwd=folder, env=os.environ | paths, capture_output=True, text=True)
        code, printed, said = done.returncode, done.stdout, done.stderr
    else:
        before, out, err = (os.getcwd(), sys.argv), io.StringIO(), io.StringIO()
        os.chdir(folder)
        sys.argv = line
        try:
            with redirect_stdout(out), redirect_stderr(err):
                runpy.run_module("capreward", run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as end:
            code = 0 if end.code is None else end.code
        finally:
            os.chdir(before[0])
            sys.argv = before[1]
        printed, said = out.getvalue(), err.getvalue()
    if code:
        raise RuntimeError(f"{' '.join(line)} ended with {code}:\n{said[-2000:]}")
    return printed


def read_rows(path):
    """The rows of an output."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(path).to_pylist()
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file)) if path.suffix == ".csv" else [json.loads(line) for line in file]


def note_file(book, key, path):
    """The rows of an output, but for pictures. Of CSV the cells are texts, and numbers among them are read."""
    for row, cells in enumerate(read_rows(path)):
        for name, cell in cells.items():
            if name == "error":
                book.error(f"{key}/{row}", cell or None)
            elif name not in ("image", "file_name", "png", "id"):
                if path.suffix == ".csv" and name not in ("caption", "references"):
                    with suppress(ValueError):
                        cell = float(cell)
                book.note(f"{key}/{row}/{name}", cell)


def write_files(folder):
    """Captions of the same pictures in all forms; `wild.jsonl` has odd ones, too, and a picture that is broken."""
    import pandas as pd

    (folder / "texts").mkdir(parents=True)
    names, images, captions, references = flat(5, "good, rated, other, long, chinese, thought")
    files = [f"{name.split()[0]}.png" for name in names]
    for file, image in zip(files, images, strict=True):
        image.save(folder / file)
    rows = [{"image": a, "caption": b, "references": c} for a, b, c in zip(files, captions, references, strict=True)]
    odd = flat(3)
    wild = [{"image": f"{a.split()[0]}.png", "caption": b, "refs": c} for a, _, b, c in zip(*odd, strict=True)]
    wild += [{"image": "broken.png", "caption": "A star."}, {"image": "absent.png", "caption": "A star."}]
    wild += [{"image": "0.png", "caption": 3}, {"image": None, "caption": "A star.", "refs": "A red star."}]
    (folder / "broken.png").write_bytes(b"no picture")
    chats = [[{"role": "user", "content": ASK}, {"role": "assistant", "content": row["caption"]}] for row in rows]
    groups = [
        {
            "image": f"{place}.png",
            "candidates": list(filter(None, scene["captions"].values())),
            "references": scene["references"],
        }
        for place, scene in enumerate(scenes()[:5])
    ]
    files_of_lines = {"rows": rows, "wild": wild, "groups": groups}
    files_of_lines["chats"] = [{"image": row["image"], "messages": chat} for row, chat in zip(rows, chats, strict=True)]
    for name, values in files_of_lines.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    frame = pd.DataFrame(rows)
    frame.to_parquet(folder / "rows.parquet")
    frame.assign(references=frame["references"].map(json.dumps)).to_csv(folder / "rows.csv", index=False)
    frame.assign(references=frame["references"].map(json.dumps)).to_csv(folder / "tabs.csv", index=False, sep="\t")
    by_image = {f"{place}.png": list(scene["captions"].values())[:5] for place, scene in enumerate(scenes()[:5])}
    (folder / "by_image.json").write_text(json.dumps(by_image))
    results = [{"image_id": int(row["image"][:-4]), "caption": row["caption"]} for row in rows]
    known = [{"id": place, "file_name": f"{place}.png"} for place in range(5)]
    told = [{"image_id": place, "caption": text} for place in range(5) for text in scenes()[place]["references"]]
    told = [{"id": number, **each} for number, each in enumerate(told)]
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "truths.json").write_text(json.dumps({"images": known, "annotations": told}))
    with tarfile.open(folder / "shard.tar", "w") as tar:
        for number, row in enumerate(rows):
            parts = {"png": (folder / row["image"]).read_bytes(), "txt": row["caption"].encode()}
            parts["json"] = json.dumps({"references": row["references"]}).encode()
            for ending, content in parts.items():
                info = tarfile.TarInfo(f"{number:03}.{ending}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    for place, scene in enumerate(scenes()[:5]):
        scene["image"].save(folder / "texts" / f"{place}.png")
        (folder / "texts" / f"{place}.txt").write_text(scene["captions"]["rated"])
    (folder / "my_metric.py").write_text(FUNCTIONS)


@part
def files(book):
    """`capreward score`, `rerank` and `bench`, on data in all forms."""
    folder = RUN.folder / "files"
    write_files(folder)
    weights = "vela=0.5,beitscore=0.3,refclipscore=0.2"
    three = ("-m", "vela", "-m", "beitscore", "-m", "refclipscore", "--weights", weights)
    words = ("-m", "unigram", "-m", "length", "-m", "bleu4", "-m", "rouge_l")
    runs = {
        "several.jsonl": ("score", "rows.jsonl", *three, "--strip-thinking"),
        "wild vela.jsonl": ("score", "wild.jsonl", "-m", "vela", "--batch-size", 3),
        "wild several.parquet": ("score", "wild.jsonl", "-m", "clipscore", *words),
        "csv.csv": ("score", "rows.csv", *words, "-m", "cider"),
        "tsv.jsonl": ("score", "tabs.csv", "-m", "vela", "--weights", "desc=1,rel=2"),
        "parquet.parquet": ("score", "rows.parquet", "-m", "beitscore", "-m", "meteor"),
        "texts.jsonl": ("score", "texts", "-m", "clipscore", "-m", "length"),
        "coco.jsonl": ("score", "results.json", "--annotations", "truths.json", "-m", "refclipscore", "-m", "unigram"),
        "tar.jsonl": ("score", "shard.tar", "-m", "vela", "--candidate-column", "txt"),
        "images.jsonl": ("score", "by_image.json", "-m", "beitscore", "--prefix", "b_"),
        "chats scored.jsonl": ("score", "chats.jsonl", "-m", "clipscore_avg", "--part-rows", 7),
        "function.jsonl": ("score", "rows.jsonl", "-m", "my_metric.py:length", "-m", "my_metric.py:redness"),
        "ranked.jsonl": ("rerank", "groups.jsonl", "-m", "vela"),
        "ranked several.jsonl": ("rerank", "groups.jsonl", *three, "--strip-thinking"),
        "ranked rows.jsonl": ("rerank", "rows.jsonl", "-m", "beitscore"),
    }
    for output, line in runs.items():
        line = (*line, "-o", output, "--device", "cpu", "--quiet")

        def write(line=line, output=output):
            command(*line, apart=output == "several.jsonl")
            note_file(book, output, folder / output)

        attempt(book, output, write)
    bench = ("bench", "--benchmark", "scenes", "--limit", 40, *words[:4], "-m", "clipscore")
    told = command(*bench, "--resamples", 50, "--json", apart=True)
    for row in json.loads(told)["tables"][0]["rows"]:
        estimates = {}
        for column, cell in row.items():
            if isinstance(cell, dict):
                estimates[column] = {name: number / 100 for name, number in cell.items()}
        book.note(f"bench/{row['name']}", estimates)
