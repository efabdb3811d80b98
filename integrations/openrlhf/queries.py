"""Reads what OpenRLHF sends: the response behind its prompt, and a label with the image."""

from __future__ import annotations

import json
import re
from typing import Any

from reward.data.base64_images import data_url_bytes
from reward.data.cells import missing_to_none
from reward.data.samples import read_references
from reward.errors import ImageError, InvalidSampleError

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


def read_label(label: Any) -> tuple[str | bytes | None, list[str] | None, dict[str, Any]]:
    """Image and references in a label, the JSON text `{"image": PATH OR DATA URL, "references": [...]}`.

    Returns:
        (path, encoded bytes or None; references or None; all that the label holds).

    Raises:
        InvalidSampleError: no such JSON, fields of other types, or a broken data URL.

    Example:
        >>> read_label('{"image": "photos/1.jpg", "references": "A dog runs."}')
        ('photos/1.jpg', ['A dog runs.'], {'image': 'photos/1.jpg', 'references': 'A dog runs.'})
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
    image, references = missing_to_none(value.get("image")), list(read_references(value.get("references"))) or None
    if image is not None and not isinstance(image, str):
        raise InvalidSampleError(f"a label's image must be a text, got {value!r:.80}")
    if image is not None and image.startswith("data:"):
        try:
            return data_url_bytes(image), references, value
        except ImageError as error:
            raise InvalidSampleError(f"the image of a label is a data URL that cannot be read: {error}") from None
    return image, references, value
