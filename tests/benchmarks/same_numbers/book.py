"""Where a run notes its numbers, and what its parts share: the folder of the run, and pictures with captions."""

import math
import tempfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace

SCENES, SEED = 36, 20261127
ASK = "Describe the picture."
# Of the run: its folder, that of the toys, that of the library, and what went wrong. `__main__.py` sets them.
RUN = SimpleNamespace(folder=Path(tempfile.gettempdir()), toys=Path(tempfile.gettempdir()), tree="", failed=[])
PARTS = {}


def part(function):
    """Makes a function a part, named as it is."""
    PARTS[function.__name__.replace("_", "-")] = function
    return function


class Book:
    """What a part gives: {key: number, text, flag or None}, and the words of errors apart from it."""

    def __init__(self):
        self.values = {}
        self.messages = {}

    def note(self, key, value):
        """Notes a value; lists and dicts one by one."""
        value = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(value, (dict, list, tuple)):
            for name, each in value.items() if isinstance(value, dict) else enumerate(value):
                self.note(f"{key}/{name}", each)
            return
        if key in self.values:
            raise KeyError(f"{key} is noted twice")
        if isinstance(value, float) and not math.isfinite(value):
            value = str(value)
        if not isinstance(value, (float, int, str, type(None))):
            raise TypeError(f"{key} is {value!r:.80}")
        self.values[key] = value

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


# The data: pictures, and captions of each that are good, bad, odd, and none.


@cache
def scenes():
    """The drawn scenes: picture, references, captions by kind."""
    from reward.scenes import make_dataset

    rows = list(make_dataset(SCENES, seed=SEED))
    return [
        {"image": row["image"], "references": row["refs"], "captions": captions_of(row, rows[place - 1])}
        for place, row in enumerate(rows)
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
    chosen = [
        (f"{place} {kind}", scene["image"], text, scene["references"])
        for place, scene in enumerate(scenes()[:count])
        for kind, text in scene["captions"].items()
        if kinds is None or kind in kinds.split(", ")
    ]
    return tuple(map(list, zip(*chosen, strict=True)))


def attempt(book, key, do):
    """Does one of many things; if it fails, that is said, and the others go on."""
    try:
        return do()
    except Exception as error:
        book.error(key, f"{type(error).__name__}: {error}")
        RUN.failed.append(f"{key}: {type(error).__name__}: {error!s:.300}")
        print(f"FAILED: {RUN.failed[-1]}", flush=True)
