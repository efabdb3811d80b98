"""What OpenRLHF, slime and vLLM's clients send, as captions to score."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from reward.errors import InvalidSampleError
from reward.functions.completions import completion_text, without_thinking
from reward.functions.queries import response_of
from reward.service.schemas import Image, OpenRlhfRequest, SlimeRequest, VllmContent, VllmInput
from reward.service.scoring import Asked, BadRequest

__all__ = ["asked_by_openrlhf", "asked_by_slime", "asked_by_vllm", "caption_after"]

# What chat templates write before an answer, and what models write behind it.
_ANSWER = re.compile(
    r"<\|im_start\|>assistant\n|<\|start_header_id\|>assistant<\|end_header_id\|>\n*|<start_of_turn>model\n"
    r"|<\|assistant\|>\n?|\[/INST\]|(?:^|\s)ASSISTANT:"
)
_END = re.compile(r"<\|(?:im_end|endoftext|eot_id|eom_id|end|end_of_text)\|>|</s>|<end_of_turn>|<eos>")


def caption_after(query: str, prompt: Any = None) -> str | None:
    """The caption in a decoded sequence of prompt and answer; None if it cannot be told from the prompt.

    The prompt is cut off as `response_of` does. Without a prompt, or where the sequence does not hold its end, the
    caption is what follows the last header of an assistant. Special tokens at its end and reasoning are cut off, too.

    Example:
        >>> caption_after("<|im_start|>user\\n<image><|im_end|>\\n<|im_start|>assistant\\nA red star.<|im_end|>")
        'A red star.'
    """
    try:
        answer = response_of(query, prompt if isinstance(prompt, str) else "")
    except InvalidSampleError:
        headers = list(_ANSWER.finditer(query))
        if not headers:
            return None
        answer = query[headers[-1].end() :]
    return without_thinking(_END.split(answer, maxsplit=1)[0]).strip()


def asked_by_openrlhf(request: OpenRlhfRequest) -> list[Asked]:
    """One caption a query.

    Raises:
        BadRequest: prompts or labels are not as many as queries.
    """
    count = len(request.query)
    for name, values in (("prompts", request.prompts), ("labels", request.labels)):
        if values and len(values) != count:
            raise BadRequest(f"there are {count} queries and {len(values)} {name}")
    asked = []
    for number, query in enumerate(request.query):
        caption = caption_after(query, request.prompts[number] if request.prompts else None)
        asked.append(_asked(caption or "", request.labels[number] if request.labels else None))
        if caption is None:
            asked[-1].problem = "the query neither holds the end of its prompt nor has the header of an assistant"
    return asked


def asked_by_slime(request: SlimeRequest) -> list[Asked]:
    """The only caption of the request."""
    return [_asked(without_thinking(_END.split(request.response, maxsplit=1)[0]).strip(), request.label)]


def _asked(caption: str, label: Any) -> Asked:
    """A caption with the image and references of its label."""
    if isinstance(label, str):
        try:
            label = json.loads(label)
        except (ValueError, RecursionError):
            label = {"image": label} if label.strip() else {}  # a path or data URL alone
    label = {} if label is None else label
    if not isinstance(label, dict):
        return Asked([caption], problem='the label must be such as {"image": "a.jpg", "references": ["A star."]}')
    image, references = label.get("image"), label.get("references")
    references = [references] if isinstance(references, str) else [] if references is None else references
    is_list = isinstance(references, list) and all(isinstance(text, str) for text in references)
    if not (image is None or isinstance(image, str)) or not is_list:
        return Asked([caption], problem="the label's image must be a text, and its references a list of texts")
    return Asked([caption], image, references)


def asked_by_vllm(queries: VllmInput | Sequence[VllmInput], documents: VllmInput | Sequence[VllmInput]) -> list[Asked]:
    """One caption a pair. The image is in either of the two; the document's text is the caption, and the query's a
    reference. If the document is only an image, the query's text is the caption.

    Raises:
        BadRequest: neither one query nor as many as documents, or a pair with two images.
    """
    first, second = _inputs(queries), _inputs(documents)
    if len(first) == 1:
        first = first * len(second)
    if len(first) != len(second):
        raise BadRequest(f"there are {len(first)} queries and {len(second)} documents: give one query, or as many")
    asked = []
    for (text, image), (caption, shown) in zip(first, second, strict=True):
        if image is not None and shown is not None:
            raise BadRequest("query and document have an image each, but a caption is scored against one image")
        image = image if shown is None else shown
        if caption is None:
            asked.append(Asked([text or ""], image))
        else:
            asked.append(Asked([caption], image, [text] if text else []))
    return asked


def _inputs(given: VllmInput | Sequence[VllmInput]) -> list[tuple[str | None, Image | None]]:
    """(text, image) of each input. Several images in one content are several inputs, as in older releases of vLLM."""
    items = [given] if isinstance(given, (str, VllmContent)) else given
    inputs: list[tuple[str | None, Image | None]] = []
    for item in items:
        if isinstance(item, str) or isinstance(item.content, str):
            inputs.append((completion_text(item if isinstance(item, str) else item.content), None))
            continue
        texts = [part.text for part in item.content if part.type == "text" and part.text]
        images = [part.image_url.url for part in item.content if part.image_url is not None]
        text = "\n".join(texts) or None
        inputs += [(text, image) for image in images] or [(text, None)]
    return inputs
