"""Where a run notes its numbers, and what its parts share: the folder of the run, and pictures with captions."""

import math
import tempfile
import traceback
from functools import cache
from pathlib import Path
from types import SimpleNamespace

SCENES, SEED = 36, 20261127
ASK = "Describe the picture."
# Of the run: its folder, and that of the toys. `__main__.py` sets them.
RUN = SimpleNamespace(folder=Path(tempfile.gettempdir()), toys=Path(tempfile.gettempdir()))
PARTS = {}


def part(function):
    """Makes a function a part, named as it is."""
    PARTS[function.__name__.replace("_", "-")] = function
    return function


class Book:
    """What a part gives: {key: number, text, flag or None}, and apart from it the words of errors, and failures."""

    def __init__(self):
        self.values, self.messages, self.failed = {}, {}, []

    def note(self, key, value):
        """Notes a value; lists and dicts one by one."""
        value = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(value, (list, tuple)):
            value = dict(enumerate(value))
        if isinstance(value, dict):
            for name, cell in value.items():
                self.note(f"{key}/{name}", cell)
            return
        if key in self.values:
            raise KeyError(f"{key} is noted twice")
        is_finite = not isinstance(value, float) or math.isfinite(value)
        self.values[key] = value if is_finite else str(value)

    def error(self, key, message):
        """Notes that there is an error, and its words, without the folder of this run."""
        if message is not None:
            self.values[f"{key}/has error"] = True
            self.messages[key] = str(message).replace(str(RUN.folder), "FOLDER").replace(str(RUN.toys), "TOYS")

    def table(self, key, table, names=None):
        """Notes a score table; `names` tell its rows apart."""
        for row in range(len(table)):
            name = f"{key}/{names[row] if names else row}"
            self.note(name, dict(zip(table.aspects, table.scores[row], strict=True)))
            if len(table.aspects) > 1:
                self.note(f"{name}/reward", table.reward[row])
            self.note(f"{name}/truncated", bool(table.truncated[row]))
            self.note(name, {text: column[row] for text, column in table.texts.items()})
            self.error(name, table.errors.get(row))
        self.note(f"{key}/mean", table.mean())


def attempt(book, key, do):
    """Does one of many things; if it fails, that is said, and the others go on."""
    try:
        do()
    except Exception as error:
        traceback.print_exc()
        book.error(key, f"{type(error).__name__}: {error}")
        book.failed.append(f"{key}: {type(error).__name__}: {error!s:.300}")


@cache
def scenes():
    """The drawn scenes: picture, references, captions by kind."""
    from reward.scenes import make_dataset

    rows = list(make_dataset(SCENES, seed=SEED))
    return [
        {"image": row["image"], "references": row["refs"], "captions": captions_of(row, rows[number - 1])}
        for number, row in enumerate(rows)
    ]


def captions_of(row, other):
    """Captions of a row: good ones, wrong ones (some of another picture), odd ones and none."""
    good, rated = row["refs"][0], row["cand"]
    return {
        "good": good,
        "rated": rated,
        "other": other["refs"][0],
        "other rated": other["cand"],
        "first": good.split(".")[0] + ".",
        "backwards": " ".join(reversed(rated.split())),
        "capitals": rated.upper(),
        "empty": "",
        "dots": "...",
        "blank": " \u200b\n",
        "none": None,
        "long": " ".join([good, rated] * 4),
        "chinese": "草地上有一颗红色的星星。",
        "russian": "Красная звезда на траве, «два круга» - ёж 3.",
        "emoji": "\u2b50\U0001f534 a red star!",
        "loop": "A heart " * 12 + "a heart.",
        "again": rated,
        "thought": f"<think>Is it a star? 0.3?</think>\n{rated}",
        "cut thought": "<think>It is a",
        "word": "Star",
    }


def flat(count=SCENES, kinds=None):
    """Names, images, captions and references of the first images; `kinds`: only these captions, in one text."""
    chosen = []
    for number, scene in enumerate(scenes()[:count]):
        for kind, text in scene["captions"].items():
            if kinds is None or kind in kinds.split(", "):
                chosen.append((f"{number} {kind}", scene["image"], text, scene["references"]))
    return tuple(map(list, zip(*chosen, strict=True)))
