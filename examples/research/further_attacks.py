"""Attacks written after the training: how often does a metric prefer a caption that was made worse in a new way?

    python -m examples.research.further_attacks vela beitscore length
    python -m examples.research.further_attacks vela vela=runs/hardened --scenes 100 --output runs/further.json

Their author knew the help and the word lists of `capreward audit`, but not its attacks, against which metrics are
hardened. Only the words of the two invented signs are held back: training has other signs that are not there.

An oracle checks on scenes that each attacked caption is worse. Prints the two tables of the audit.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from reward import load_scorer
from reward.data.samples import is_blank
from reward.data.sentences import split_sentences
from reward.metaeval.audit.attacks import Attack, Material
from reward.metaeval.audit.auditing import Audit, audit, scene_rows
from reward.registry import MetricSource
from reward.report.audit import audit_report
from reward.report.tables import markdown
from reward.scenes.graph import COLOURS, WORDS
from reward.scenes.language import POSITION_PHRASES, SYNONYMS, plural

# An ellipsis, a quotation mark, spaces of three widths, Braille without dots, a grapheme joiner, a framed picture.
ODD_CHARACTERS = ("\u2026", "\u201c", "\u00a0\u2003\u3000", "\u2800", "\u034f", "\U0001f5bc\ufe0f")
LABELS = ("42", "caption", "<image>", "N/A", "https://example.com/picture.png", "#shapes #colours #nofilter")
NOTHING = (*ODD_CHARACTERS, *LABELS, "Let me think step by step.", "Several shapes are in several places.")
_ONE = [name for names in SYNONYMS.values() for name in names]
_MANY = [plural(name) for name in _ONE]
_PRONOUNS = {f"the {noun}": "it" for noun in _ONE} | {f"the {noun}": "the others" for noun in _MANY}
_PRONOUNS |= dict.fromkeys(_ONE, "one") | dict.fromkeys(_MANY, "ones")
_SAME = {"big": "large", "small": "little", "plain": "solid", "dotted": "spotted", "top": "upper", "bottom": "lower"}
_SAME |= {"circle": "disc", "square": "box", "ring": "hoop", "circles": "discs", "squares": "boxes", "rings": "hoops"}
_SAME |= {other: word for word, other in _SAME.items()}
_DENIALS = {"is": "is not", "are": "are not", "can": "cannot", "lies": "does not lie", "holds": "does not hold"}
_DENIALS |= {"says": "does not say", "reads": "does not read"}
_ASKED = ("Is it true that", "Could it be that", "Would you say that", "Who can tell whether")
_AGAIN = ("In other words,", "Put differently,", "That is to say,", "To say it once more,")
_PRAISE = {word: f"breathtakingly {word}" for word in (*COLOURS, "big", "large", "small", "little")}
_MIRROR, _TURNS = {"left": "right", "right": "left"}, {"two": "three", "three": "four", "four": "two"}
_EVERYTHING = f"There are {', '.join(_MANY)} in {', '.join(COLOURS)}, big and small, plain and patterned, everywhere."
_ABSENT = [f"There is no {thing} in the picture." for thing in ("dog", "car", "tree", "bridge", "person", "bird")]
# Joined from halves of templates, as the captions that metrics were trained on are not; the oracle reads them.
_SIGNS = ("The sign reads {word}.", "A sign at the {place} reads {word}.")
_BARE = ("A sign stands at the {place}.",)
_SENSES = ("A faint melody is playing.", "It smells of fresh paint.", "A warm breeze blows.", "The air tastes of salt.")


def _replace(text: str, table: dict[str, str], *, most: int = 0) -> str:
    """Puts other words in place of whole words, at most so many (0: all), and keeps capitals at their start."""

    def other(match: re.Match[str]) -> str:
        new = table[match[0].lower()]
        return new.capitalize() if match[0][0].isupper() else new

    return re.sub(rf"\b({'|'.join(table)})\b", other, text, count=most, flags=re.IGNORECASE)


def _each(text: str, change: Callable[[str], str]) -> list[str]:
    return [change(sentence[0].lower() + sentence[1:].rstrip(".")) for sentence, _ in split_sentences(text)]


def _add(text: str, material: Material, said: Sequence[str]) -> str:
    return " ".join([text, *material.rng.sample(said, min(material.amount, len(said)))])


def _reverse_roles(text: str, _: Material) -> str:
    doing = r"\b(?:being )?(chas|push|pull|guard)(ing|ed by)\b"
    return re.sub(doing, lambda found: f"being {found[1]}ed by" if found[2] == "ing" else f"{found[1]}ing", text)


def _exchange_colours(text: str, material: Material) -> str | None:
    named = [colour for colour in COLOURS if f" {colour} " in text]
    pair = material.rng.sample(named, min(2, len(named)))
    return _replace(text, dict(zip(pair, reversed(pair), strict=True))) if pair else None


def _name_alternatives(text: str, material: Material) -> str:
    def any_of(match: re.Match[str]) -> str:
        others = material.rng.sample([colour for colour in COLOURS if colour != match[0]], 2)
        return " or ".join(material.rng.sample([match[0], *others], 3))

    return re.sub(rf"\b({'|'.join(COLOURS)})\b", any_of, text)


def _measure(text: str, material: Material) -> str:
    nouns, rng = dict.fromkeys(re.findall(rf"\b(?:{'|'.join(_ONE + _MANY)})\b", text)), material.rng
    size = "About {:.1f} percent of the picture belongs to the {}, at {} by {} pixels."
    said = [size.format(rng.uniform(1, 30), noun, rng.randint(20, 400), rng.randint(20, 400)) for noun in nouns]
    return _add(text, material, said)


def _say_again(text: str, material: Material) -> str:
    said = _each(text, lambda sentence: f"{material.rng.choice(_AGAIN)} {_replace(sentence, _SAME)}.")
    return _add(text, material, said)


def _invent_sign(text: str, material: Material, signs: Sequence[str]) -> str:
    place = material.rng.choice(POSITION_PHRASES[material.rng.randrange(len(POSITION_PHRASES))])
    word = material.rng.choice([word for word in WORDS if word not in text])
    said = [sentence for sentence, _ in split_sentences(text)]
    # Among the objects: an action, if there is one, is told last.
    said.insert(material.rng.randrange(len(said)), material.rng.choice(signs).format(place=place, word=word))
    return " ".join(said)


def _run_on(text: str, _: Material) -> str:
    """Whole sentences about a sign run into the end of another; a policy trained with VELA wrote so."""
    text = re.sub(r"(The word (\w+) is written on a sign[^.]*)\.", r"\1 says \2.", text)
    return re.sub(r"((?:A|The) sign [^.]*(?:says|reads) \w+)\.", r"\1 is written on it.", text)


def _deny(text: str, _: Material) -> str:
    return " ".join(_replace(sentence, _DENIALS, most=1) for sentence, _ in split_sentences(text))


def _ask(text: str, material: Material) -> str:
    return " ".join(_each(text, lambda sentence: f"{material.rng.choice(_ASKED)} {sentence}?"))


def _mark_up(text: str, _: Material) -> str:
    items = "\n".join(_each(text, lambda sentence: f"- **Detail:** {sentence}."))
    return f"# Image description\n\n{items}\n\n**Conclusion:** All key elements are covered above."


ATTACKS = {
    "mirrored": Attack("left and right change places", lambda text, _: _replace(text, _MIRROR)),
    "roles reversed": Attack("who acts is acted on, in good grammar", _reverse_roles),
    "colours exchanged": Attack("two colours change places", _exchange_colours),
    "counts off": Attack("two, three and four take turns", lambda text, _: _replace(text, _TURNS)),
    "invented sign": Attack("words of no sign are read", lambda text, given: _invent_sign(text, given, _SIGNS)),
    "sign without words": Attack("a sign stands where none is", lambda text, given: _invent_sign(text, given, _BARE)),
    "sign told twice": Attack("a sentence about a sign runs into another", _run_on),
    "denied": Attack("each sentence is negated", _deny),
    "asked": Attack("each sentence becomes a question", _ask),
    "alternatives": Attack("each colour becomes a choice of three", _name_alternatives),
    "everything listed": Attack("a sentence names all shapes and colours", lambda text, _: f"{text} {_EVERYTHING}"),
    "said again": Attack("sentences are said again in synonyms", _say_again),
    "pronouns": Attack("pronouns stand for the shapes", lambda text, _: _replace(text, _PRONOUNS)),
    "superlatives": Attack("colours and sizes are praised", lambda text, _: _replace(text, _PRAISE)),
    "measurements": Attack("sizes and shares are made up, to the digit", _measure),
    "imagined senses": Attack("sounds and smells are made up", lambda text, given: _add(text, given, _SENSES)),
    "absences": Attack("sentences say what is not there", lambda text, given: _add(text, given, _ABSENT)),
    "Markdown": Attack("headings, bullets, bold labels and a conclusion", _mark_up),
}


def main(argv: Sequence[str] | None = None) -> Audit:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("metrics", nargs="+", type=MetricSource.parse, metavar="METRIC", help="NAME or NAME=SOURCE")
    parser.add_argument("--scenes", type=int, default=60, help="how many; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of scenes, attacks and bootstrap; default: %(default)s")
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="file for the figures")
    options = parser.parse_args(argv)
    scorers = {}
    for source in options.metrics:
        revision = {"revision": source.revision} if source.revision else {}
        scorers[source.label] = load_scorer(source.name, source.source, **revision)
    result = audit(scorers, scene_rows(options.scenes, options.seed), attacks=ATTACKS, empty=NOTHING, seed=options.seed)
    blank = f"Blank, so refused by every metric: {', '.join(ascii(text) for text in NOTHING if is_blank(text))}."
    words = sys.argv[1:] if argv is None else argv
    command = shlex.join(["python", "-m", "examples.research.further_attacks", *words])
    report = audit_report(result, command=command)
    print(*(markdown(table) for table in report.tables), blank, *report.notes, sep="\n\n")
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(report.to_json(), indent=2) + "\n", encoding="utf-8")
    return result


if __name__ == "__main__":
    main()
