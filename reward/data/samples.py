"""What goes into a metric: CaptionSample, and the columns that hold captions, images and references."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np

from reward.data.cells import is_list, missing_to_none, parse_list, to_list
from reward.data.column_names import COLUMN_NAMES, RoleNames, names_in_words
from reward.errors import DataError, InvalidSampleError, did_you_mean

if TYPE_CHECKING:
    import torch
    from PIL import Image

# A path, encoded bytes, an open binary file, a PIL image, an array of pixels (numpy, torch), the dict that a
# `datasets.Image` column gives undecoded, or a list of one of these; see `reward.data.images.load_image`.
ImageLike: TypeAlias = (
    "str | os.PathLike[str] | bytes | IO[bytes] | Image.Image | np.ndarray | torch.Tensor | dict[str, Any] | list[Any]"
)

# Invisible characters that Unicode classes as letters, marks or symbols: those with the property
# Default_Ignorable_Code_Point in Unicode 16, which `unicodedata` does not know, and the blank Braille pattern.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\u2800]"
)


@dataclass(frozen=True, eq=False, init=False)
class CaptionSample:
    """One caption to be scored.

    Args:
        candidate: the caption, with at least one visible character.
        image: the image it describes, or None for metrics that need none. Not opened here.
        references: zero or more captions written by people, see `read_references`; None means none.
        question: what the candidate answers, if it is an answer and not a caption; read by metrics whose spec says so.
        task: what the candidate is, such as `"referring"`; None leaves it to the metric. Read by `harmoniceval` alone.
        columns: {name: cell} of further columns of its row that a metric needs (`MetricSpec.columns`), such as
            `{"rubric": ["It names the dog."]}`. The metric checks them.
        caption: another name of `candidate`.

    Raises:
        InvalidSampleError: a field has the wrong type, is blank, or is not valid Unicode; or both names are given.

    Example:
        >>> CaptionSample("A red star on grass.", references=["There is a star."]).references
        ('There is a star.',)
    """

    candidate: str
    image: ImageLike | None = None
    references: Sequence[str] = ()
    question: str | None = None
    task: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)

    def __init__(
        self,
        candidate: str | None = None,
        image: ImageLike | None = None,
        references: Sequence[str] = (),
        question: str | None = None,
        task: str | None = None,
        columns: Mapping[str, Any] | None = None,
        *,
        caption: str | None = None,
    ) -> None:
        if candidate is not None and caption is not None:
            raise InvalidSampleError("candidate and caption are two names of one text: give one of them")
        if candidate is None:
            candidate = caption
        if not isinstance(candidate, str):
            raise InvalidSampleError(f"candidate must be a string, got {type(candidate).__name__}: {candidate!r:.80}")
        if is_blank(candidate):
            raise InvalidSampleError("candidate is empty: a caption needs at least one visible character")
        if not candidate.isascii():
            check_encodable(candidate, "candidate")
        for name, text in (("question", question), ("task", task)):
            if text is None:
                continue
            if not isinstance(text, str) or is_blank(text):
                raise InvalidSampleError(f"{name} must be a text that is not blank, or None, got {text!r:.80}")
            check_encodable(text, name)
        # The class is frozen, which forbids plain assignment here, too.
        vars(self).update(
            candidate=candidate,
            image=image,
            references=read_references(references),
            question=question,
            task=task,
            columns=columns or {},
        )

    @property
    def caption(self) -> str:
        """The candidate."""
        return self.candidate


def check_batch_size(batch_size: Any) -> None:
    """Raises ValueError if a batch size is neither None, which leaves it to the metric, nor a whole number above 0."""
    if batch_size is None:
        return
    is_whole = isinstance(batch_size, Integral) and not isinstance(batch_size, bool)
    if not is_whole or batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, a whole number or None, got {batch_size!r}")


def is_blank(text: str) -> bool:
    """Whether a text has no visible character: only white space, control characters, and marks without width.

    Example:
        >>> is_blank(" \\u200b\\u3164\\n"), is_blank(".")
        (True, False)
    """
    first = text[:1]
    if first.isascii() and first.isalnum():  # nearly all texts begin so
        return False
    space_or_control = ("Zs", "Zl", "Zp", "Cc", "Cf")
    return all(unicodedata.category(character) in space_or_control for character in _INVISIBLE.sub("", text))


def is_wordless(text: str) -> bool:
    """Whether a text has no letter and no number of any script, such as a blank text, "...", or emoji alone.

    Such a caption makes no claim about the image. Rewards and decoding rank it lowest; scorers do not.

    Example:
        >>> is_wordless(" ?!"), is_wordless("\\u2b50"), is_wordless("3"), is_wordless("\\u661f")
        (True, True, False, False)
    """
    first = text[:1]
    if first.isascii() and first.isalnum():  # nearly all captions begin so
        return False
    return all(unicodedata.category(character)[0] not in "LN" for character in _INVISIBLE.sub("", text))


def check_encodable(text: str, name: str) -> None:
    """Raises InvalidSampleError if a text, which messages call `name`, has a lone surrogate: tokenizers fail on it.

    JSON files can hold such halves of a character, for example of an emoji that was cut.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidSampleError(f"{name} is not valid Unicode: a lone surrogate at position {error.start}") from None


def find_column(
    role: str, columns: Iterable[str], name: str | None = None, *, option: str, needed_by: str | None = None
) -> str | None:
    """The column that holds what a role means: the one that the user named, else one of a name in `COLUMN_NAMES`.

    Args:
        role: a key of `COLUMN_NAMES`, or the name of a column; anything if `name` is not None.
        columns: names of the columns there are.
        name: what the user named, or None.
        option: how the user names it, such as `"image_column="` or `"--image-column"`, for messages.
        needed_by: what needs the column, such as `"metric 'vela'"`; None if it is optional.

    Returns:
        Its name, which may be in capitals; None where there is none and nobody needs it.

    Raises:
        DataError: there is no column of that name; two synonyms could be meant; or there is none and it is needed.

    Example:
        >>> find_column("image", ["File_Name", "refs"], option="image_column=")
        'File_Name'
    """
    columns = list(columns)
    if name is not None:
        if name not in columns:
            raise DataError(
                f"{option} names {name!r}, which is no column.{did_you_mean(name, columns)} "
                f"The columns are: {join_names(columns)}."
            )
        return name
    column_of = {column.strip().lower(): column for column in columns if isinstance(column, str)}
    column_of |= {column: column for column in columns}  # one that is written exactly so goes before capitals
    names = COLUMN_NAMES.get(role, RoleNames((role,)))
    for first in names.first:
        if first in column_of:
            return column_of[first]
    for synonyms in (names.synonyms, names.common):
        present = [column_of[synonym] for synonym in synonyms if synonym in column_of]
        if len(present) > 1:
            raise DataError(
                f"{role} could be any of {', '.join(present)}: choose one with {option}. "
                f"The columns are: {join_names(columns)}."
            )
        if present:
            return present[0]
    if needed_by is None:
        return None
    raise DataError(
        f"{needed_by} needs a column with the {role}, but none is named {names_in_words(role)}. "
        f"The columns are: {join_names(columns)}. Name it with {option}."
    )


def join_names(columns: Sequence[str], most: int = 30) -> str:
    """Names of columns for a message, at most `most` of them: a file may have thousands.

    Example:
        >>> join_names(["image", "caption", "id"], most=2)
        'image, caption, and 1 more'
    """
    if not columns:
        return "none"
    names = ", ".join(columns[:most])
    if len(columns) > most:
        names += f", and {len(columns) - most} more"
    return names


def one_image(value: Any) -> Any:
    """The image in a cell: the cell itself, or the only one of a list; None where there is none. A number is a name.

    Raises:
        InvalidSampleError: the cell holds several images.

    Example:
        >>> one_image(["a.png", None]), one_image("a.png"), one_image([]), one_image(391895)
        ('a.png', 'a.png', None, '391895')
    """
    if type(value) is list and len(value) == 1:
        value = value[0]
    if hasattr(value, "getbands"):  # a PIL image
        return value
    value = parse_list(missing_to_none(value))
    # Pixels are no list of images, though they are one of rows.
    is_pixels = getattr(value, "ndim", 1) > 1
    if is_list(value) and not is_pixels:
        images = [missing_to_none(item) for item in to_list(value, "image")]
        images = [image for image in images if image is not None]
        if len(images) > 1:
            raise InvalidSampleError(
                f"the row has {len(images)} images, but a caption is judged against one; keep one a row, or name a "
                "column that holds one with image_column="
            )
        value = next(iter(images), None)
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and not value.strip():
        return None
    return value


class References(tuple[str, ...]):
    """What `read_references` gives, which need not be read again."""

    __slots__ = ()


def read_references(value: Any) -> tuple[str, ...]:
    """The references in a cell, as a tuple; blank and missing ones are left out.

    A string is one reference, or the list that it writes, see `reward.data.cells.parse_list`.

    Raises:
        InvalidSampleError: neither a string nor a list, or an item that is no string.

    Example:
        >>> read_references("A red star."), read_references(["A red star.", " ", None]), read_references(None)
        (('A red star.',), ('A red star.',), ())
    """
    if type(value) is References:
        return value
    if type(value) not in (list, tuple):
        value = parse_list(missing_to_none(value))
        if value is None:
            return References()
        value = [value] if isinstance(value, str) else to_list(value, "references")
    references = []
    for position, item in enumerate(value):
        if not isinstance(item, str):
            if missing_to_none(item) is None:
                continue
            raise InvalidSampleError(
                f"references[{position}] must be a string, got {type(item).__name__}: {item!r:.80}"
            )
        if is_blank(item):
            continue
        if not item.isascii():
            check_encodable(item, f"references[{position}]")
        references.append(item)
    return References(references)
