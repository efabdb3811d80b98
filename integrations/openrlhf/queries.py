"""Reads what OpenRLHF sends: the response behind its prompt, and a label with the image."""

from __future__ import annotations

import json
from typing import Any

from reward.data.cells import missing_to_none
from reward.data.samples import read_references
from reward.data.written_captions import without_ends
from reward.errors import InvalidSampleError

_SHORTEST_END = 8  # characters of the prompt's end that the query must hold


def response_of(query: str, prompt: str) -> str:
    """The response in a query, which is prompt and response as the tokenizer decodes them, special tokens included.

    The prompt in the query may differ from the prompt: with images, it holds hundreds of placeholders where the prompt
    has one, and the tokenizer may compose letters. The response therefore starts behind the longest end of the prompt
    that the query holds. Where the prompt holds this end n times, as with the same question in two turns, the n-th in
    the query counts: a response may repeat it.

    Args:
        query: prompt and response.
        prompt: the prompt with the chat template applied.

    Returns:
        The response, without the marks that end its turn.

    Raises:
        InvalidSampleError: the query does not hold the end of the prompt.

    Example:
        >>> prompt = "<|user|><|image|>Describe.<|end|><|assistant|>"
        >>> response_of("<|user|><|image|><|image|>Describe.<|end|><|assistant|>A red star.<|end|>", prompt)
        'A red star.'
    """
    length = _length_of_shared_end(query, prompt)
    if not prompt or length < min(_SHORTEST_END, len(prompt)):
        raise InvalidSampleError(
            f"the query does not hold the end of its prompt, {prompt[-40:]!r}: send prompts with the chat template "
            "applied (--data.apply_chat_template), and queries decoded with special tokens"
        )
    end = prompt[-length:]
    position = query.find(end)
    in_prompt = prompt.find(end)
    while in_prompt + length < len(prompt):
        in_prompt = prompt.find(end, in_prompt + 1)
        later = query.find(end, position + 1)
        if later < 0:  # the query begins within the prompt
            break
        position = later
    return without_ends(query[position + length :])


def _length_of_shared_end(query: str, prompt: str) -> int:
    """The length of the longest end of the prompt that the query holds, by bisection: it holds all shorter ones."""
    low = 0
    high = len(prompt)
    while low < high:
        middle = (low + high + 1) // 2
        if prompt[-middle:] in query:
            low = middle
        else:
            high = middle - 1
    return low


def read_label(label: Any) -> tuple[str | None, list[str] | None, dict[str, Any]]:
    """Image and references in a label, the JSON text `{"image": PATH OR DATA URL, "references": [...]}`.

    Returns:
        (path, data URL or None; references or None; all that the label holds).

    Raises:
        InvalidSampleError: no such JSON, or fields of other types.

    Example:
        >>> read_label('{"image": "photos/1.jpg", "references": "A dog runs."}')
        ('photos/1.jpg', ['A dog runs.'], {'image': 'photos/1.jpg', 'references': 'A dog runs.'})
    """
    fields = label
    if isinstance(label, str):
        try:
            fields = json.loads(label)
        except (ValueError, RecursionError):
            fields = None
    if not isinstance(fields, dict) or ("image" not in fields and "references" not in fields):
        raise InvalidSampleError(
            f'a label must be JSON such as {{"image": "photos/1.jpg", "references": ["A dog."]}}, got {label!r:.80}; '
            "name its column with --data.label_key"
        )
    image = missing_to_none(fields.get("image"))
    references = list(read_references(fields.get("references"))) or None
    if image is not None and not isinstance(image, str):
        raise InvalidSampleError(f"a label's image must be a text, got {fields!r:.80}")
    return image, references, fields
