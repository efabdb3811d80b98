"""Small benchmarks in the layouts of their authors, by name, and scores as FLEUR's authors publish them."""

import io
import zipfile
from typing import Any

from reward.metaeval.benchmarks.contrast import SUGARCREPE, VALSE
from tests.reward.metaeval.small_benchmarks import write_files
from tests.toys.pictures import png

Files = dict[str, Any]
RED, GREEN, BLUE, WHITE = COLOURS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255))


def parquet(rows, image=None):
    """As the Hub has it; a column of colours becomes one of encoded images."""
    from datasets import Dataset, Image

    columns = dict(rows)
    if image is not None:
        columns[image] = [{"bytes": png(colour), "path": None} for colour in columns[image]]
    table = Dataset.from_dict(columns)
    buffer = io.BytesIO()
    (table if image is None else table.cast_column(image, Image())).to_parquet(buffer)
    return buffer.getvalue()


PASCAL = {
    category: [
        {"image": f"2008_{place}.jpg", "captions": ["A dog.", "A cat."], "label": place % 2}
        | {"references": [f"reference {k} of {place}" for k in range(8)]}
    ]
    for place, category in enumerate(("HC", "HI", "HM", "MM"))
}
FOIL = {
    "images": [{"id": 42, "file_name": "COCO_42.jpg"}],
    "annotations": [
        {"id": 7, "image_id": 42, "foil": True, "caption": "A cat runs."},
        {"id": 7, "image_id": 42, "foil": False, "caption": "A dog runs."},
        {"id": 7, "image_id": 42, "foil": True, "caption": "A horse runs."},
        {"id": 8, "image_id": 42, "foil": False, "caption": "Grass."},
    ],
}
COCO_TEXTS = ("One dog.", "A dog  runs. ", "", "A brown dog.", "A lawn.", "Fur.", "Outside.")
COCO = {"annotations": [{"id": n, "image_id": 42, "caption": text} for n, text in enumerate(COCO_TEXTS)]}
NOCAPS = {"image_path": "13.jpg", "references": ["A baby.", " "], "domain": "near-domain"}
NOCAPS |= {"baseline": "A kid in a shirt.", "foil": "A kid in a skirt."}
CREPE = {"filename": "42.jpg", "negative_caption": "Grass on a dog."}
LONG = {"image": "1.jpg", "correct": "Two red dogs.", "incorrect": "Three red dogs.", "category": "counting"}
EXAMPLE = {"caption_0": "a dog on a man", "caption_1": "a man on a dog", "tag": "Noun"}
EXAMPLES = [
    EXAMPLE | {"id": number, "image_0": f"ex_{number}_img_0", "image_1": f"ex_{number}_img_1", **more}
    for number, more in enumerate(({"collapsed_tag": "Object"}, {}))
]
POLARIS = {
    "refs": [["A dog.", ""], ["A cat."], ["A dog.", ""], ["A dog.", ""]],
    "cand": ["One.", "Two.", "Three.", "One."],
    "img": [RED, GREEN, RED, RED],
    "human_score": [0.25, 0.5, 1.0, 0.75],
}
NEBULA = {
    "file_name": ["1.jpg", "2.jpg", "1.jpg"],
    "image": [RED, GREEN, RED],
    "refs": [["A dog."], None, ["Another."]],
}
NEBULA |= {"mt": ["One.", None, "Two."], "human_score": [1.0, 0.5, None]}  # nobody rated the third
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


def valse():
    """A foil for which two of three annotators took the caption, and one that is not valid."""
    row = {"dataset": "SWiG", "image_file": "run.jpg", "foil": "A man sits."}
    taken = {str(votes): row | {"mturk": {"caption": votes}} for votes in (2, 1)}
    return {f"{name}.json": {key: own | {"caption": name} for key, own in taken.items()} for name in VALSE}


def winoground():
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        for place, colour in enumerate(COLOURS):
            packed.writestr(f"images/ex_{place // 2}_img_{place % 2}.png", png(colour))
    return {"data/examples.jsonl": EXAMPLES, "data/images.zip": archive.getvalue()}


def flickr(config):
    """A row for each rating, in the folder of the configuration as on the Hub, whose card names it."""
    card = f"---\nconfigs:\n- config_name: {config}\n  data_files:\n  - split: test\n    path: {config}/*\n---\n"
    rows = {"imgid": ["1.jpg"] * 3 + ["2.jpg"], "cand": ["A."] * 3 + ["B."], "refs": [["C.", "D."]] * 3 + [["E."]]}
    return {"README.md": card, f"{config}/test-0.parquet": parquet({**rows, "human_score": [1, 2, 2, 4]})}


def longcap_arena():
    """A split for each part and aspect; fluency has other rows, in another order."""
    rows = {"file_name": ["1.jpg", "1.jpg", "2.jpg"], "image": [RED, RED, GREEN]}
    rows |= {"refs": [["A dog."], ["A dog."], []], "cand": ["One.", "Two.", "One."]}
    files = {}
    for name, scores in {"desc": [0.0, 0.5, 0.75], "rel": [0.25, 0.5, 0.75], "flu": [1.0, 0.5, 0.75]}.items():
        split = {**rows, "score": scores}
        kept = {column: cells[:0:-1] if name == "flu" else cells for column, cells in split.items()}
        files[f"data/dci_val.{name}-00000-of-00001.parquet"] = parquet(kept, "image")
        files[f"data/dci_test.{name}-00000-of-00001.parquet"] = parquet({**split, "cand": ["Three."] * 3}, "image")
    return files


LAYOUTS = {
    "pascal-50s": lambda: {"pascal_50s.json": PASCAL},
    "foil": lambda: {"foilv1.0_test_2017.json": FOIL, "annotations/captions_val2014.json": COCO},
    "nocaps-foil": lambda: {"nocaps-val-foil.json": [NOCAPS]},
    "sugarcrepe": lambda: {f"data/{name}.json": {"1": CREPE | {"caption": name}} for name in SUGARCREPE},
    "valse": valse,
    "longcapvlcp": lambda: {"pairs.jsonl": [LONG, {**LONG, "category": "action"}]},
    "winoground": winoground,
    "polaris": lambda: {"data/test-00000-of-00001.parquet": parquet(POLARIS, "img")},
    "nebula": lambda: {"data/test-00000-of-00001.parquet": parquet(NEBULA, "image")},
    "flickr8k-expert": lambda: flickr("expert"),
    "flickr8k-cf": lambda: flickr("crowdflower"),
    "longcap-arena": longcap_arena,
    "vicr": lambda: {"vicr.csv": VICR, "images/1.jpg": b""},
    "genai-bench": lambda: {"genai_image.json": GENAI, "SDXL/00000.png": b""},
    "evalmuse-40k": lambda: {
        "train_list.json": [{"prompt": f"shapes {n}", "img_path": f"SDXL/{n}.png", "total_score": 4.5} for n in (7, 8)]
    },
}


def write_layout(folder, name):
    return write_files(folder, LAYOUTS[name]())


def scores_of_fleur(number, *scores, label=None):
    """A block of a text file as FLEUR's authors write it, for a pair of `PASCAL`."""
    lines = [f"image file : VOC2012/JPEGImages/2008_{number}.jpg", *([] if label is None else [f"label : {label}", ""])]
    for caption, score in zip(("A dog.", "A  cat."), scores, strict=False):
        lines += [f"caption : {caption}", "model score : 0.5", f"our score : {score}", ""]
    return "\n".join(lines)
