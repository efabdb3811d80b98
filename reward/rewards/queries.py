"""Reads what trainers send: text with end marks, perhaps behind its prompt, a label with the image, data URLs."""

from __future__ import annotations

import base64
import json
import re
from typing import Any
from urllib.parse import unquote_to_bytes

from reward.errors import ImageError, InvalidSampleError
from reward.samples import clean_references
from reward.values import or_none

__all__ = ["base64_bytes", "data_url_bytes", "read_label", "response_of"]

_SHORTEST = 8  # characters of the prompt's end that must be found again
_END = re.compile(r"(\s*(<\|[^|<>]*\|>|</s>|<eos>|<end_of_turn>|<pad>))+\s*$")


def response_of(query: str, prompt: str) -> str:
    """The response in a query, which is prompt and response as the tokenizer decodes them, special tokens included.

    With images, the prompt inside the query holds hundreds of placeholders where the prompt itself has one. The
    response therefore starts after the longest suffix of the prompt that occurs in the query. Its first occurrence
    counts, because a response may repeat it.

    Raises:
        InvalidSampleError: the query does not hold the end of the prompt.

    Example:
        >>> prompt = "<|user|><|image|>Describe.<|end|><|assistant|>"
        >>> response_of("<|user|><|image|><|image|>Describe.<|end|><|assistant|>A red star.<|end|>", prompt)
        'A red star.'
    """
    low, high = 0, len(prompt)
    while low < high:  # every end of an end that is found is found as well
        middle = (low + high + 1) // 2
        low, high = (middle, high) if prompt[-middle:] in query else (low, middle - 1)
    if low < min(_SHORTEST, len(prompt)) or not prompt:
        raise InvalidSampleError(
            f"the query does not hold the end of its prompt, {prompt[-40:]!r}: send prompts with the chat template "
            "applied (--data.apply_chat_template), and queries decoded with special tokens"
        )
    return _END.sub("", query[query.index(prompt[-low:]) + low :])


def read_label(label: Any) -> tuple[str | bytes | None, list[str] | None]:
    """Image and references in a label, the JSON text `{"image": PATH OR DATA URL, "references": [...]}`.

    Returns:
        (path, encoded bytes or None; references or None).

    Raises:
        InvalidSampleError: no such JSON, fields of other types, or a broken data URL.

    Example:
        >>> read_label('{"image": "photos/1.jpg", "references": "A dog runs."}')
        ('photos/1.jpg', ['A dog runs.'])
    """
    try:
        value = json.loads(label) if isinstance(label, str) else label
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not {"image", "references"} & set(value):
        raise InvalidSampleError(
            f'a label must be JSON such as {{"image": "photos/1.jpg", "references": ["A dog."]}}, got {label!r:.80}; '
            "name its column with --data.label_key"
        )
    image, references = or_none(value.get("image")), clean_references(value.get("references"))
    is_list = isinstance(references, list) and all(isinstance(text, str) for text in references)
    if not (image is None or isinstance(image, str)) or not (references is None or is_list):
        raise InvalidSampleError(
            f"a label's image must be a text, and its references a text or a list of texts, got {value!r:.80}"
        )
    if image is not None and image.startswith("data:"):
        try:
            return data_url_bytes(image), references
        except ImageError as error:
            raise InvalidSampleError(f"the image of a label is a data URL that cannot be read: {error}") from None
    return image, references


def data_url_bytes(url: str) -> bytes:
    """What a data URL holds, in base64 or percent-encoded.

    Raises:
        ImageError: it has no comma, or is not base64 although it says so.

    Example:
        >>> data_url_bytes("data:image/png;base64,aGk=")
        b'hi'
    """
    head, comma, data = url.partition(",")
    if not comma:
        raise ImageError("the image's data URL has no comma")
    return base64_bytes(data) if head.lower().endswith(";base64") else unquote_to_bytes(data)


def base64_bytes(text: str) -> bytes:
    """What a text in base64 holds.

    Raises:
        ImageError: it is not base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ImageError(f"the image is not base64: {error}") from None
