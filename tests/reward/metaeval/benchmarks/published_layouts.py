"""Every benchmark in the layout of its authors, small, and the items that must be read from it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from reward.metaeval.benchmarks.contrast import SUGARCREPE, VALSE
from tests.reward.metaeval.small_benchmarks import write_files
from tests.toys.pictures import png

Files = dict[str, Any]
COLOURS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255))
RED, GREEN, *_ = COLOURS


class Item(NamedTuple):
    """An item as it must be read; an image that the files hold is its colour, another one its path."""

    images: Any
    captions: Any
    judgment: Any = None  # ratings, those of one aspect without its name, or the place of the better caption
    references: tuple[str, ...] = ()
    category: str = ""
    image_id: str | None = None  # None: not looked at


class Layout(NamedTuple):
    """Files, made when they are written, and their items."""

    files: Callable[[], Files]
    items: list[Item]


def write_layout(folder: Path, name: str) -> Path:
    return write_files(folder, LAYOUTS[name].files())


def parquet(rows: Mapping[str, list[Any]], image: str | None = None) -> bytes:
    """As the Hub has it; a column of colours becomes one of encoded images."""
    from datasets import Dataset, Image

    columns = dict(rows)
    if image is not None:
        columns[image] = [{"bytes": png(colour), "path": None} for colour in columns[image]]
    table = Dataset.from_dict(columns)
    buffer = io.BytesIO()
    (table if image is None else table.cast_column(image, Image())).to_parquet(buffer)
    return buffer.getvalue()


# Pairs

PASCAL = {
    category: [
        {"image": f"2008_{place}.jpg", "captions": ["A dog.", "A cat."], "label": place % 2}
        | {"references": [f"reference {k} of {place}" for k in range(8)]}
    ]
    for place, category in enumerate(("HC", "HI", "HM", "MM"))
}
FOILED = {"id": 7, "foil_id": 1, "image_id": 42, "target_word": "dog", "foil_word": "cat", "foil": True}
WHOLE = {"foil": False, "target_word": "ORIG", "foil_word": "ORIG", "foil_id": 0, "image_id": 42}
FOIL = {
    "images": [{"id": 42, "file_name": "COCO_42.jpg"}],
    "annotations": [
        FOILED | {"caption": "A cat runs."},
        WHOLE | {"id": 7, "caption": "A dog runs."},
        FOILED | {"foil_id": 2, "foil_word": "horse", "caption": "A horse runs."},
        WHOLE | {"id": 8, "caption": "Grass."},
    ],
}
COCO_TEXTS = ("One dog.", "A dog  runs. ", "", "A brown dog.", "A lawn.", "Fur.", "Outside.")
COCO = {"annotations": [{"id": n, "image_id": 42, "caption": text} for n, text in enumerate(COCO_TEXTS)]}
NOCAPS = {"image_path": "13.jpg", "references": ["A baby.", " "], "domain": "near-domain"}
NOCAPS |= {"baseline": "A kid in a shirt.", "foil": "A kid in a skirt."}
CREPE = {"filename": "42.jpg", "negative_caption": "Grass on a dog."}
VALSED = {"dataset": "SWiG", "image_file": "run.jpg", "foil": "A man sits."}
LONG = {"image": "1.jpg", "correct": "Two red dogs.", "incorrect": "Three red dogs.", "category": "counting"}


def foil() -> Files:
    return {"foilv1.0_test_2017.json": FOIL, "annotations/captions_val2014.json": COCO}


def valse() -> Files:
    """A foil for which two of three annotators took the caption, and one that is not valid."""
    taken = {str(votes): {"mturk": {"caption": votes}} for votes in (2, 1)}
    return {f"{name}.json": {key: VALSED | {"caption": name} | own for key, own in taken.items()} for name in VALSE}


# Quadruples

EXAMPLE = {"caption_0": "a dog on a man", "caption_1": "a man on a dog", "tag": "Noun"}
EXAMPLES = [
    EXAMPLE | {"id": number, "image_0": f"ex_{number}_img_0", "image_1": f"ex_{number}_img_1", **more}
    for number, more in enumerate(({"collapsed_tag": "Object"}, {}))
]


def winoground() -> Files:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        for place, colour in enumerate(COLOURS):
            packed.writestr(f"images/ex_{place // 2}_img_{place % 2}.png", png(colour))
    return {"data/examples.jsonl": EXAMPLES, "data/images.zip": archive.getvalue()}


# Ratings

POLARIS: dict[str, list[Any]] = {
    "refs": [["A dog.", ""], ["A cat."], ["A dog.", ""], ["A dog.", ""]],
    "cand": ["One.", "Two.", "Three.", "One."],
    "img": [RED, GREEN, RED, RED],
    "human_score": [0.25, 0.5, 1.0, 0.75],
}
NEBULA = {
    "file_name": ["1.jpg", "2.jpg", "1.jpg"],
    "image": [RED, GREEN, RED],
    "refs": [["A dog."], None, ["Another."]],
    "mt": ["One.", None, "Two."],
    "human_score": [1.0, 0.5, None],  # nobody rated the third
}
FLICKR = {"imgid": ["1.jpg"] * 3 + ["2.jpg"], "cand": ["A."] * 3 + ["B."], "refs": [["C.", "D."]] * 3 + [["E."]]}
COMPOSITE = {"image": ["a.jpg"], "refs": [["A dog."]], "cand": ["One."], "score": [0.5]}
VICR = """\
image,caption,subset,num_ratings,ratings,rating_2,rating_3
http://x.org/val2014/1.jpg,a dog,test,3,4,3,5
http://x.org/val2014/2.jpg,"a cat, too",train,2,1,2,
3.jpg,a bird,test,1,,2,
4.jpg,nobody,test,0,,,
"""
GENAI = {
    "00000": {"prompt": "A red ball.", "models": {"DALLE_3": [5, 4, 5], "SDXL": [1, None, 2]}},
    "00001": {"prompt": "Two cats.", "models": {"DALLE_3": [3, 3, 3], "SDXL": [None]}},
}
EVALMUSE = {"prompt": "shapes 8", "img_path": "SDXL/1.png", "total_score": 4.5}


def flickr(config: str, scores: list[float]) -> Files:
    """A row for each rating, in the folder of the configuration as on the Hub, whose card names it."""
    card = f"---\nconfigs:\n- config_name: {config}\n  data_files:\n  - split: test\n    path: {config}/*\n---\n"
    return {"README.md": card, f"{config}/test-0.parquet": parquet({**FLICKR, "human_score": scores})}


def composite() -> Files:
    """Splits that a card names."""
    files = "  - split: test\n    path: parts/x*\n  - split: train\n    path: [parts/y.parquet]\n"
    card = f"---\nconfigs:\n- config_name: default\n  data_files:\n{files}---\n# Data\n"
    other = parquet({**COMPOSITE, "cand": ["Two."]})
    return {"README.md": card, "parts/x.parquet": parquet(COMPOSITE), "parts/y.parquet": other, "images/a.jpg": b""}


def longcap_arena() -> Files:
    """A split for each part and aspect, whose rows come in other orders."""
    rows = {"file_name": ["1.jpg", "1.jpg", "2.jpg"], "image": [RED, RED, GREEN]}
    rows |= {"refs": [["A dog."], ["A dog."], []], "cand": ["One.", "Two.", "One."]}
    files = {}
    for name, scores in {"desc": [0.0, 0.5, 0.75], "rel": [0.25, 0.5, 0.75], "flu": [1.0, 0.5, 0.75]}.items():
        split = {**rows, "score": scores}
        kept = {column: cells[:0:-1] if name == "flu" else cells for column, cells in split.items()}
        files[f"data/dci_val.{name}-00000-of-00001.parquet"] = parquet(kept, "image")
        files[f"data/dci_test.{name}-00000-of-00001.parquet"] = parquet({**split, "cand": ["Three."] * 3}, "image")
    return files


ASPECTS = ("descriptiveness", "relevance", "fluency")
LAYOUTS: dict[str, Layout] = {
    "pascal-50s": Layout(
        lambda: {"pascal_50s.json": PASCAL},
        [
            Item(row["image"], tuple(row["captions"]), row["label"], tuple(row["references"]), category, row["image"])
            for category, [row] in PASCAL.items()
        ],
    ),
    "foil": Layout(
        foil,
        [
            Item("COCO_42.jpg", ("A dog runs.", text), 0, ("One dog.", "A brown dog.", "A lawn.", "Fur."), "", "42")
            for text in ("A cat runs.", "A horse runs.")
        ],
    ),
    "nocaps-foil": Layout(
        lambda: {"nocaps-val-foil.json": [NOCAPS]},
        [Item("13.jpg", ("A kid in a shirt.", "A kid in a skirt."), 0, ("A baby.",), "near-domain", "13.jpg")],
    ),
    "sugarcrepe": Layout(
        lambda: {f"data/{name}.json": {"1": CREPE | {"caption": name}} for name in SUGARCREPE},
        [Item("42.jpg", (name, "Grass on a dog."), 0, (), name, "42.jpg") for name in SUGARCREPE],
    ),
    "valse": Layout(valse, [Item("run.jpg", (name, "A man sits."), 0, (), name, "SWiG/run.jpg") for name in VALSE]),
    "longcapvlcp": Layout(
        lambda: {"pairs.jsonl": [LONG, {**LONG, "category": "action"}]},
        [Item("1.jpg", ("Two red dogs.", "Three red dogs."), 0, (), kind, "1.jpg") for kind in ("counting", "action")],
    ),
    "winoground": Layout(
        winoground,
        [
            Item(COLOURS[:2], ("a dog on a man", "a man on a dog"), None, (), "Object", "0"),
            Item(COLOURS[2:], ("a dog on a man", "a man on a dog"), None, (), "Noun", "1"),
        ],
    ),
    "polaris": Layout(
        lambda: {"data/test-00000-of-00001.parquet": parquet(POLARIS, "img")},
        [
            Item(RED, "One.", (0.25, 0.75), ("A dog.",)),
            Item(GREEN, "Two.", (0.5,), ("A cat.",)),
            Item(RED, "Three.", (1.0,), ("A dog.",)),
        ],
    ),
    "nebula": Layout(
        lambda: {"data/test-00000-of-00001.parquet": parquet(NEBULA, "image")},
        [Item(RED, "One.", (1.0,), ("A dog.",), "", "1.jpg"), Item(GREEN, "", (0.5,), (), "", "2.jpg")],
    ),
    "composite": Layout(composite, [Item("images/a.jpg", "One.", (0.5,), ("A dog.",), "", "a.jpg")]),
    "flickr8k-expert": Layout(
        lambda: flickr("expert", [1, 2, 2, 4]),
        [Item("1.jpg", "A.", (1, 2, 2), ("C.", "D."), "", "1.jpg"), Item("2.jpg", "B.", (4,), ("E.",), "", "2.jpg")],
    ),
    "flickr8k-cf": Layout(
        lambda: flickr("crowdflower", [0.5, 0.5, 0, 1]),
        [
            Item("1.jpg", "A.", (0.5, 0.5, 0), ("C.", "D."), "", "1.jpg"),
            Item("2.jpg", "B.", (1,), ("E.",), "", "2.jpg"),
        ],
    ),
    "longcap-arena": Layout(
        longcap_arena,
        [
            Item(RED, "One.", {"descriptiveness": (0.0,), "relevance": (0.25,)}, ("A dog.",), "", "1.jpg"),
            Item(RED, "Two.", dict.fromkeys(ASPECTS, (0.5,)), ("A dog.",), "", "1.jpg"),
            Item(GREEN, "One.", dict.fromkeys(ASPECTS, (0.75,)), (), "", "2.jpg"),
        ],
    ),
    "vicr": Layout(
        lambda: {"vicr.csv": VICR, "images/1.jpg": b""},
        [Item("images/1.jpg", "a dog", (4, 3, 5), (), "", "1.jpg"), Item("3.jpg", "a bird", (2,), (), "", "3.jpg")],
    ),
    "genai-bench": Layout(
        lambda: {"genai_image.json": GENAI, "SDXL/00000.png": b""},
        [
            Item("DALLE_3/00000", "A red ball.", (5, 4, 5), (), "DALLE_3", "DALLE_3/00000"),
            Item("SDXL/00000.png", "A red ball.", (1, 2), (), "SDXL", "SDXL/00000"),
            Item("DALLE_3/00001", "Two cats.", (3, 3, 3), (), "DALLE_3", "DALLE_3/00001"),
        ],
    ),
    "evalmuse-40k": Layout(
        lambda: {"train_list.json": [EVALMUSE]},
        [Item("SDXL/1.png", "shapes 8", (4.5,), (), "SDXL", "SDXL/1.png")],
    ),
}


def scores_of_fleur(number: int, *scores: float, label: int | None = None) -> str:
    """A block of a text file as FLEUR's authors write it, for a pair of `PASCAL`."""
    lines = [f"image file : VOC2012/JPEGImages/2008_{number}.jpg", *([] if label is None else [f"label : {label}", ""])]
    for caption, score in zip(("A dog.", "A  cat."), scores, strict=False):
        lines += [f"caption : {caption}", "model score : 0.5", f"our score : {score}", ""]
    return "\n".join(lines)
