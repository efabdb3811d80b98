"""From what a trainer hands over (prompts, completions, data set columns) to candidates, images and references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reward.errors import InvalidSampleError
from reward.samples import CaptionSample, check_encodable, checked_references, is_blank

__all__ = ["CaptionRow", "Problem", "completion_text", "prompt_images", "read_rows"]


@dataclass(frozen=True)
class Problem:
    """Why a row has no score: `kind` is what is counted, `message` tells about this row."""

    kind: str
    message: str


@dataclass(frozen=True, eq=False)
class CaptionRow:
    """One completion with its image and references, or the reason why it cannot be scored.

    `blank` is a caption without a visible character: that is what the policy wrote, so it is no problem of the data.
    """

    candidate: str = ""
    image: Any = None
    references: tuple[str, ...] = ()
    problem: Problem | None = None

    @property
    def blank(self) -> bool:
        return self.problem is None and is_blank(self.candidate)

    def sample(self) -> CaptionSample:
        return CaptionSample(self.candidate, image=self.image, references=self.references)

    def same_as(self, other: CaptionRow) -> bool:
        """Whether both rows score alike, judged without reading pixels: images must be one object or one path."""
        same_image = self.image is other.image or (isinstance(self.image, str) and self.image == other.image)
        return (
            same_image
            and self.candidate == other.candidate
            and self.references == other.references
            and (self.problem is None) == (other.problem is None)
        )


def completion_text(completion: Any) -> str:
    """Gives the caption in a completion.

    Args:
        completion: a string, or a conversation: the text of its last assistant message, where content blocks of type
            text are joined by line breaks and content None (a message of tool calls only) is an empty caption.
            Reasoning such as `<think>...</think>` stays in: a response template of the tokenizer takes it out.

    Raises:
        InvalidSampleError: None, another type, or a conversation without an assistant message.

    Example:
        >>> completion_text([{"role": "assistant", "content": [{"type": "text", "text": "A red star."}]}])
        'A red star.'
    """
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, Sequence) or isinstance(completion, bytes):
        raise InvalidSampleError(
            f"a completion must be a string or a list of messages, got {type(completion).__name__}: {completion!r:.80}"
        )
    for message in reversed(completion):
        if isinstance(message, Mapping) and message.get("role") == "assistant":
            return _content_text(message.get("content"))
    raise InvalidSampleError(f"the completion has no assistant message among its {len(completion)} messages")


def _content_text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        texts = [block.get("text") for block in content if isinstance(block, Mapping) and block.get("type") == "text"]
        return "\n".join(text for text in texts if text)
    raise InvalidSampleError(f"message content must be a string or a list of blocks, got {type(content).__name__}")


def prompt_images(prompt: Any) -> list[Any]:
    """Gives the images inside the messages of a conversational prompt, in order; a plain prompt has none.

    Example:
        >>> prompt_images([{"role": "user", "content": [{"type": "image", "image": "a.png"}]}])
        ['a.png']
    """
    if isinstance(prompt, str) or not isinstance(prompt, Sequence):
        return []
    found = []
    for message in prompt:
        content = message.get("content") if isinstance(message, Mapping) else None
        for block in content if isinstance(content, (list, tuple)) else ():
            # blocks that hold only a placeholder, as Arrow stores them, carry image None
            if isinstance(block, Mapping) and block.get("type") == "image" and block.get("image") is not None:
                found.append(block["image"])
    return found


def read_rows(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    columns: Mapping[str, Any],
    *,
    image_column: str | None = None,
    references_column: str | None = None,
) -> list[CaptionRow]:
    """Reads one row a completion; nothing given is changed.

    The image comes from `image_column` if that is named, else from the columns `images` or `image`, else from the
    messages of the prompt. A caption metric judges one image: a row with several is a problem, not a guess. References
    come from `references_column` if that is named, else from the column `references` if there is one.

    Args:
        prompts: N prompts, plain or conversational.
        completions: N completions, see `completion_text`.
        columns: {name: N values} of the data set; other entries, such as a trainer's state, are left alone.
        image_column, references_column: names of columns that must be there.

    Raises:
        InvalidSampleError: lengths differ, or a named column is not there: faults of the set-up, which no row escapes.
    """
    count = len(completions)
    if len(prompts) != count:
        raise InvalidSampleError(f"got {len(prompts)} prompts and {count} completions; there must be one of each a row")
    image_columns = (
        [image_column] if image_column else [name for name in ("images", "image") if _is_column(columns, name)]
    )
    for name in image_columns:
        _check_column(columns, name, count)
    if references_column:
        _check_column(columns, references_column, count)
    elif _is_column(columns, "references"):
        references_column = "references"
        _check_column(columns, references_column, count)

    rows = []
    for index in range(count):
        sources = [columns[name][index] for name in image_columns]
        if image_column is None:
            sources.append(prompt_images(prompts[index]))
        references = columns[references_column][index] if references_column else ()
        rows.append(_read_row(completions[index], sources, references))
    return rows


def _read_row(completion: Any, image_sources: list[Any], references: Any) -> CaptionRow:
    image, problem = _one_image(image_sources)
    if problem is None:
        try:
            candidate = completion_text(completion)
            check_encodable(candidate, "completion")
        except InvalidSampleError as error:
            problem = Problem("no caption", str(error))
    if problem is None:
        try:
            return CaptionRow(candidate, image, checked_references(references))
        except InvalidSampleError as error:
            problem = Problem("bad references", str(error))
    return CaptionRow(problem=problem)


def _one_image(sources: list[Any]) -> tuple[Any, Problem | None]:
    for source in sources:
        images = [item for item in source if item is not None] if isinstance(source, (list, tuple)) else [source]
        if len(images) > 1:
            message = (
                f"the row has {len(images)} images and a caption is judged against one; name it with image_column="
            )
            return None, Problem("several images", message)
        if images and images[0] is not None:
            return images[0], None
    return None, None


def _is_column(columns: Mapping[str, Any], name: str) -> bool:
    return isinstance(columns.get(name), (list, tuple))


def _check_column(columns: Mapping[str, Any], name: str, count: int) -> None:
    if not _is_column(columns, name):
        there = ", ".join(sorted(key for key in columns if _is_column(columns, key))) or "none"
        raise InvalidSampleError(
            f"the data set has no column {name!r}; its columns here: {there}. "
            "Set image_column= and references_column= to names of your data set, and leave remove_unused_columns=False"
        )
    if len(columns[name]) != count:
        raise InvalidSampleError(f"column {name!r} has {len(columns[name])} values for {count} completions")
