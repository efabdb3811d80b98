"""What goes into a metric and comes out: CaptionSample, ScoreTable, and the names of the columns that hold captions.

The table of column names is the only one: commands, data sets and rewards read it.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np

from reward.errors import ConfigError, DataError, InvalidSampleError, did_you_mean
from reward.values import is_list, listed, or_none, values_of
from reward.weights import list_names, normalise_weights

if TYPE_CHECKING:
    import torch
    from PIL import Image

__all__ = [
    "COLUMN_NAMES",
    "CaptionSample",
    "ImageLike",
    "ScoreTable",
    "check_batch_size",
    "check_encodable",
    "check_samples",
    "checked_references",
    "clean_references",
    "column_names",
    "find_column",
    "is_blank",
    "is_wordless",
    "named",
    "one_image",
    "read_references",
]

# A path, encoded bytes, an open binary file, a PIL image, an array of pixels (numpy, torch), the dict that a
# `datasets.Image` column gives undecoded, or a list of one of these; see `reward.images.load_image`.
ImageLike: TypeAlias = (
    "str | os.PathLike[str] | bytes | IO[bytes] | Image.Image | np.ndarray | torch.Tensor | dict[str, Any] | list[Any]"
)

# Invisible characters that Unicode classes as letters, marks or symbols: those with the property
# Default_Ignorable_Code_Point in Unicode 16, which `unicodedata` does not know, and the blank Braille pattern.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\u2800]"
)

# For each role: names that are taken in this order, and synonyms, of which at most one may be there.
COLUMN_NAMES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "candidate": (("candidate",), ("cand", "caption")),
    "candidates": (("candidates",), ("cands", "captions")),
    # `images` first: where both are there, TRL shows `images` to the policy; `file_name` is what imagefolder reads
    "image": (("images", "image"), ("file_name", "image_path", "img")),
    "references": (("references",), ("refs",)),
    "question": (("question",), ()),
}


@dataclass(frozen=True, eq=False)
class CaptionSample:
    """One caption to be scored.

    Args:
        candidate: the caption, with at least one visible character.
        image: the image it describes, or None for metrics that need none. Not opened here.
        references: zero or more captions written by people; None means none. A single string is refused, because Python
            would read it as a list of one-letter references.
        question: what the candidate answers, if it is an answer and not a caption; read by metrics whose spec says so.
        task: what the candidate is, such as `"referring"`; None leaves it to the metric. Read by `harmoniceval` alone.

    Raises:
        InvalidSampleError: a field has the wrong type, is blank, or is not valid Unicode.

    Example:
        >>> CaptionSample("A red star on grass.", references=["There is a star."]).references
        ('There is a star.',)
    """

    candidate: str
    image: ImageLike | None = None
    references: Sequence[str] = ()
    question: str | None = None
    task: str | None = None

    def __post_init__(self) -> None:
        for name, text in (("question", self.question), ("task", self.task)):
            if text is not None and (not isinstance(text, str) or is_blank(text)):
                raise InvalidSampleError(f"{name} must be a text that is not blank, or None, got {text!r:.80}")
            check_encodable(text or "", name)
        if not isinstance(self.candidate, str):
            raise InvalidSampleError(
                f"candidate must be a string, got {type(self.candidate).__name__}: {self.candidate!r:.80}"
            )
        if is_blank(self.candidate):
            raise InvalidSampleError("candidate is empty: a caption needs at least one visible character")
        check_encodable(self.candidate, "candidate")
        object.__setattr__(self, "references", checked_references(self.references))


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores of N samples on A aspects, in the order of the samples; larger is better.

    Args:
        scores: float array (N, A); NaN where a sample could not be scored.
        aspects: A names, in the order of the columns.
        errors: {row: message} for every row that holds NaN, and for one that lacks a text it was to have.
        truncated: bool array (N,): True where some text of the sample was cut to fit the model.
        aliases: {short name: aspect}, accepted by `column` and `combine`. A metric's tables have those of its `spec`.
        texts: {name: a text or None of each sample}, such as a judge's explanations.

    Example:
        >>> table = ScoreTable(np.array([[0.2, 0.8]]), ("descriptiveness", "relevance"), aliases={"rel": "relevance"})
        >>> float(table.combine({"rel": 1.0})[0]), float(table.column("rel")[0])
        (0.8, 0.8)
    """

    scores: np.ndarray
    aspects: tuple[str, ...]
    errors: dict[int, str] = field(default_factory=dict)
    truncated: np.ndarray = None  # type: ignore[assignment]  # __post_init__ makes it an array
    aliases: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    texts: Mapping[str, Sequence[str | None]] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        scores = np.asarray(self.scores, dtype=np.float64)
        if scores.ndim != 2 or scores.shape[1] != len(self.aspects):
            raise ValueError(f"scores must have shape (N, {len(self.aspects)}), got {scores.shape}")
        object.__setattr__(self, "scores", scores)
        none_cut = np.zeros(len(scores), dtype=bool)
        truncated = none_cut if self.truncated is None else np.asarray(self.truncated, dtype=bool)
        if truncated.shape != (len(scores),):
            raise ValueError(f"truncated must have shape ({len(scores)},), got {truncated.shape}")
        object.__setattr__(self, "truncated", truncated)

    def __len__(self) -> int:
        return len(self.scores)

    def column(self, aspect: str) -> np.ndarray:
        """Scores of one aspect, by its name or its short name, shape (N,).

        Raises:
            ConfigError: no such aspect.
        """
        name = self.aliases.get(aspect, aspect)
        if name not in self.aspects:
            raise ConfigError(f"no aspect is named {aspect!r}; known: {list_names(self.aspects, self.aliases)}")
        return self.scores[:, self.aspects.index(name)]

    def combine(self, weights: Mapping[str, float] | None = None) -> np.ndarray:
        """Weighted mean over the aspects, shape (N,); NaN where a weighted aspect is NaN.

        Args:
            weights: {aspect or short name: weight}; None weighs all alike. See `normalise_weights`.
        """
        return weighted_mean(self.scores, normalise_weights(weights, self.aspects, self.aliases))


def weighted_mean(scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Sum (N,) of the columns of scores (N, A), each times its weight; NaN where a weighted column is NaN."""
    used = weights != 0  # a column without weight must not spread its NaN
    return scores[:, used] @ weights[used]


def checked_references(references: Any) -> tuple[str, ...]:
    """Checks references and makes them a tuple; None and NaN become an empty tuple.

    Raises:
        InvalidSampleError: a single string, no list (a dict is none: its keys would be scored), or an item that is
            blank or not a string.
    """
    references = or_none(references)
    if references is None:
        return ()
    if isinstance(references, (str, bytes)):
        raise InvalidSampleError("references must be a list of strings, got one string; write [reference] instead")
    items = tuple(values_of(references, "references"))
    for position, item in enumerate(items):
        if not isinstance(item, str):
            raise InvalidSampleError(
                f"references[{position}] must be a string, got {type(item).__name__}: {item!r:.80}"
            )
        if is_blank(item):
            raise InvalidSampleError(f"references[{position}] is empty; leave it out to score without it")
        check_encodable(item, f"references[{position}]")
    return items


def check_samples(samples: Sequence[Any], batch_size: int | None = None) -> None:
    """Checks the arguments of a scorer.

    Raises:
        InvalidSampleError: an item is not a CaptionSample.
        ValueError: see `check_batch_size`.
    """
    check_batch_size(batch_size)
    for row, sample in enumerate(samples):
        if not isinstance(sample, CaptionSample):
            raise InvalidSampleError(f"samples[{row}] must be a CaptionSample, got {type(sample).__name__}")


def check_batch_size(batch_size: Any) -> None:
    """Checks a batch size; None leaves it to the metric.

    Raises:
        ValueError: it is not a whole number of at least 1.
    """
    is_whole = isinstance(batch_size, Integral) and not isinstance(batch_size, bool)
    if batch_size is not None and not (is_whole and batch_size >= 1):
        raise ValueError(f"batch_size must be at least 1, a whole number or None, got {batch_size!r}")


def is_blank(text: str) -> bool:
    """Whether a text has no visible character: only white space, control characters, and marks without width.

    Example:
        >>> is_blank(" \\u200b\\u3164\\n"), is_blank(".")
        (True, False)
    """
    shown = _INVISIBLE.sub("", text)
    return all(unicodedata.category(character) in ("Zs", "Zl", "Zp", "Cc", "Cf") for character in shown)


def is_wordless(text: str) -> bool:
    """Whether a text has no letter and no number of any script, such as a blank text, "...", or emoji alone.

    Such a caption makes no claim about the image. Rewards and decoding rank it lowest; scorers do not treat it
    specially.

    Example:
        >>> is_wordless(" ?!"), is_wordless("\\u2b50"), is_wordless("3"), is_wordless("\\u661f")
        (True, True, False, False)
    """
    return not any(unicodedata.category(character)[0] in "LN" for character in _INVISIBLE.sub("", text))


def check_encodable(text: str, name: str) -> None:
    """Refuses lone surrogates, such as half an emoji in a JSON file: tokenizers fail on them."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidSampleError(f"{name} is not valid Unicode: a lone surrogate at position {error.start}") from None


def column_names(role: str) -> tuple[str, ...]:
    """All names of a role, in the order in which they are taken.

    Example:
        >>> column_names("image")
        ('images', 'image', 'file_name', 'image_path', 'img')
    """
    names, synonyms = COLUMN_NAMES[role]
    return names + synonyms


def find_column(
    role: str, columns: Iterable[str], given: str | None = None, *, option: str, needed_by: str | None = None
) -> str | None:
    """The column that holds what a role means: the one given, else the first known name, else the only synonym.

    Args:
        role: a key of `COLUMN_NAMES`; anything if `given` is not None.
        columns: the existing columns.
        given: the name that the user gave, or None.
        option: how the user gives it, such as `"image_column="` or `"--image-column"`; named in the errors.
        needed_by: what needs the column, such as `"metric 'vela'"`; None if it is optional.

    Returns:
        Its name; None where there is none and nobody needs it.

    Raises:
        DataError: the column given is not there, one that is needed is not there, or several could be meant.

    Example:
        >>> find_column("image", ["file_name", "refs"], option="image_column=")
        'file_name'
        >>> find_column("references", ["file_name", "refs"], "captions", option="references_column=")
        Traceback (most recent call last):
            ...
        reward.errors.DataError: references_column= names 'captions', which is no column. The columns are: file_name, \
refs.
    """
    columns = list(columns)
    if given is not None:
        if given in columns:
            return given
        hint = did_you_mean(given, columns)
        raise DataError(f"{option} names {given!r}, which is no column.{hint} The columns are: {named(columns)}.")
    names, synonyms = COLUMN_NAMES[role]
    for name in names:
        if name in columns:
            return name
    present = [name for name in synonyms if name in columns]
    if len(present) > 1:
        raise DataError(
            f"{role} could be any of {', '.join(present)}: choose one with {option}. The columns are: {named(columns)}."
        )
    if not present and needed_by:
        raise DataError(
            f"{needed_by} needs a column with the {role}, but none is named {' or '.join(column_names(role))}. "
            f"The columns are: {named(columns)}. Name it with {option}."
        )
    return present[0] if present else None


def named(columns: Sequence[str], most: int = 30) -> str:
    """Names of columns for a message, which a file of thousands must not fill.

    Example:
        >>> named(["image", "caption", "id"], most=2)
        'image, caption, and 1 more'
    """
    return ", ".join([*columns[:most], *([f"and {len(columns) - most} more"] if columns[most:] else [])]) or "none"


def one_image(value: Any) -> Any:
    """The image in a cell: the cell itself, or the only one of a list; None where there is none.

    Raises:
        InvalidSampleError: a list of several images, since a caption is judged against one.

    Example:
        >>> one_image(["a.png", None]), one_image("a.png"), one_image([])
        ('a.png', 'a.png', None)
    """
    value = listed(or_none(value))
    if is_list(value) and getattr(value, "ndim", 1) == 1:  # pixels have more
        images = [image for image in map(or_none, values_of(value, "image")) if image is not None]
        if len(images) > 1:
            raise InvalidSampleError(
                f"the row has {len(images)} images, but a caption is judged against one; keep one a row, or name a "
                "column that holds one with image_column="
            )
        value = images[0] if images else None
    return None if isinstance(value, str) and not value.strip() else value


def clean_references(value: Any) -> Any:
    """The references in a cell, not checked: blank and missing ones are left out; None if none is left.

    A string is one reference, or the list that it writes, see `reward.values.listed`.

    Example:
        >>> clean_references("A red star."), clean_references(["A red star.", " "]), clean_references([None])
        (['A red star.'], ['A red star.'], None)
    """
    value = listed(or_none(value))
    if isinstance(value, str):
        value = [value]
    if not is_list(value):
        return value
    items = map(or_none, values_of(value, "references"))
    return [item for item in items if item is not None and not (isinstance(item, str) and is_blank(item))] or None


def read_references(value: Any) -> tuple[str, ...]:
    """The references in a cell, see `clean_references`, as a tuple of strings.

    Raises:
        InvalidSampleError: neither a string nor a list (a dict is none), or an item that is no string.
    """
    return checked_references(clean_references(value))
