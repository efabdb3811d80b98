"""Chats that a data set holds as prompts: read in one form, with their images, up to the user's last turn."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from reward.data.base64_images import BASE64_IMAGES, base64_bytes, data_url_bytes
from reward.data.cells import is_list, parse_list, to_list
from reward.errors import ImageError, InvalidSampleError

PROMPT = "Describe the image in detail."
_FORM = "[{'role': 'user', 'content': 'Describe it.'}, ...], or LLaVA's [{'from': 'human', 'value': ...}, ...]"
_ASSISTANT = ("assistant", "gpt", "model")  # of OpenAI and TRL, of LLaVA, of Gemini
_ROLES = {"system": "system", "user": "user", "human": "user", "tool": "tool"} | dict.fromkeys(_ASSISTANT, "assistant")
IMAGE_TYPES = ("image", "image_url", "input_image")
_TEXT_TYPES = ("text", "input_text", "output_text")
_IMAGE_KEYS = ("image", "path", "url", "base64", "image_url")
# what stands beside an image, or in its place in a column where the blocks of a text have the same keys
_OTHER_KEYS = ["type", "text", "index", "id", "detail", "mime_type", "cache_control", "min_pixels", "max_pixels"]
_OTHER_KEYS += ["total_pixels", "resized_height", "resized_width"]
_MARKER = re.compile(r"\n*<image>\n*")  # where an image stands, in LLaVA's form and in many others
# <image>, <|image_pad|>, <|vision_start|>, <start_of_image>, <image_soft_token>, <|image_1|>, <IMG_CONTEXT>, [IMG]
_PLACEHOLDER = re.compile(
    r"</?\|?(?:(?:[\w-]+[_-]|endof)?(?:image|img)|(?:\w+_)?(?:images|im_patch|vision|video|audio|media))"
    r"(?:placeholder|[_-]\w+|\d+)?\|?/?>|\[IMG(?:_\w+)?\]",
    re.IGNORECASE,
)


def as_prompt(asked: Any, system: str | None = None) -> list[dict[str, Any]]:
    """A prompt as messages that end with the user's last turn.

    What an assistant says after that turn is the answer, which a policy is to write itself. `<image>` in a user's text
    becomes an image part, `{"type": "image"}`; images in the messages are read as `block_image` says.

    Args:
        asked: text; or messages with `role` and `content`, or with `from` and `value` as LLaVA's data have.
        system: system message before a text; None for none.

    Returns:
        Messages with `role` and `content`, a list of parts: `{"type": "text", "text": ...}`, `{"type": "image"}`, or
        `{"type": "image", "image": what load_image takes}`.

    Example:
        >>> chat = [{"from": "human", "value": "<image>\\nWhat is it?"}, {"from": "gpt", "value": "A star."}]
        >>> as_prompt(chat)
        [{'role': 'user', 'content': [{'type': 'image'}, {'type': 'text', 'text': 'What is it?'}]}]
    """
    if isinstance(asked, str) and asked.lstrip().startswith("[{"):  # messages in a table without types
        asked = parse_list(asked)
    if isinstance(asked, str) and asked.strip():
        before = [] if system is None else [{"role": "system", "content": system}]
        return [_message(message) for message in [*before, {"role": "user", "content": asked}]]
    chat = to_list(asked, "a prompt") if is_list(asked) else []
    if not chat or not all(isinstance(message, Mapping) for message in chat):
        raise InvalidSampleError(f"a prompt must be text or a list of messages such as {_FORM}, got {asked!r:.200}")
    if system is not None:
        raise InvalidSampleError("the prompts are whole messages already: write the system message into them")
    messages = [_message(message) for message in chat]
    turns = [place for place, message in enumerate(messages) if message["role"] == "user"]
    if not turns:
        raise InvalidSampleError(f"a prompt needs a turn of the user, got {asked!r:.200}")
    return messages[: turns[-1] + 1]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of either form, with its content as parts."""
    given = {key: value for key, value in message.items() if value is not None}
    role = given.pop("from", None) if "role" not in given else given.pop("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise InvalidSampleError(
            f"a message has the role {role!r}, and roles are {', '.join(_ROLES)}: give messages such as {_FORM}"
        )
    content = given.pop("value", None) if "content" not in given else given.pop("content")
    if content is None and role in ("user", "human", "system"):
        raise InvalidSampleError(f"a message has no content, got {dict(message)!r:.200}: give messages such as {_FORM}")
    parts: list[dict[str, Any]] = []
    blocks = () if content is None else to_list(content, "a content") if is_list(content) else [content]
    for block in blocks:
        parts += _parts(block, _ROLES[role])
    return {"role": _ROLES[role], "content": parts, **given}


def _parts(block: Any, role: str) -> list[dict[str, Any]]:
    """A block of a message's content as parts."""
    if isinstance(block, str):
        block = {"type": "text", "text": block}
    kind = block.get("type") if isinstance(block, Mapping) else None
    if kind in IMAGE_TYPES:
        image = block_image(block)
        return [{"type": "image"} if image is None else {"type": "image", "image": image}]
    if kind not in _TEXT_TYPES or not isinstance(block.get("text"), str):
        raise InvalidSampleError(
            f"a part of a message must be {{'type': 'text', 'text': ...}} or {{'type': 'image'}}, got {block!r:.200}"
        )
    pieces = _MARKER.split(block["text"]) if role == "user" else [block["text"]]
    if len(pieces) > 1:
        pieces = [piece if piece.strip() else "" for piece in pieces]
        pieces = [piece if any(pieces[:place]) else piece.lstrip() for place, piece in enumerate(pieces)]
    parts: list[dict[str, Any]] = []
    for place, piece in enumerate(pieces):
        if has_placeholder(piece):
            raise InvalidSampleError(
                f"the {role}'s text has a placeholder of a chat template, which a policy's processor takes for an "
                f"image that is not there: leave it out, got {piece!r:.200}. In the user's text '<image>' may stand "
                "where an image of the row does"
            )
        parts += [{"type": "image"}] if place else []
        parts += [{"type": "text", "text": piece}] if piece else []
    return parts


def has_placeholder(text: str) -> bool:
    """Whether a text has a token that a chat template writes for images, sound or films; a policy's processor takes it
    for an image that is not there, and stops the training.

    Example:
        >>> has_placeholder("A <b>red</b> star."), has_placeholder("<|image_pad|> A star.")
        (False, True)
    """
    return _PLACEHOLDER.search(text) is not None


def block_image(block: Mapping[str, Any]) -> Any:
    """The image of a part of a message, as `load_image` takes it; None for a mere placeholder.

    Trainers' formats have it under `image`, `path`, `url`, `base64` or `image_url` (a text or `{"url": ...}`), as what
    `load_image` takes, as an address `file://...` or `data:...;base64,...`, or as base64. Nothing is downloaded.

    Example:
        >>> block_image({"type": "image", "url": "file:///data/a.png"}), block_image({"type": "image", "image": None})
        ('/data/a.png', None)
    """
    for key in _IMAGE_KEYS:
        image = block.get(key)
        if isinstance(image, Mapping) and image.get("url") is not None:
            image = image["url"]
        if image is not None:
            try:
                return _read(image, key)
            except ImageError as error:
                raise ImageError(f"{key!r} of an image in the messages: {error}") from None
    strange = [key for key, value in block.items() if value is not None and key not in _OTHER_KEYS]
    if strange:
        raise ImageError(
            f"an image in the messages has {', '.join(map(repr, strange))}, which is not read: give the image under "
            f"{', '.join(map(repr, _IMAGE_KEYS))}"
        )
    return None


def _read(image: Any, key: str) -> Any:
    if not isinstance(image, str):
        return image
    scheme = image[:5].lower()
    if scheme == "data:":
        return data_url_bytes(image)
    if scheme == "file:":
        return url2pathname(urlsplit(image).path)
    if key == "base64" or image.startswith(BASE64_IMAGES):
        return base64_bytes("".join(image.split()))
    return image


def completion_text(completion: Any) -> str:
    """The text that a model wrote: the completion itself, or the last message of the assistant in a conversation.

    Reasoning and end marks stay in, see `reward.data.written_captions.caption_in`.

    Args:
        completion: a string, or a list of messages in the form of OpenAI and TRL (`role` and `content`) or of LLaVA
            (`from` and `value`). Blocks of text in a message are joined by line breaks; other blocks say nothing, and
            neither does content None, which a message of tool calls has.

    Raises:
        InvalidSampleError: another type, no message of an assistant, or a block whose text is no string.

    Example:
        >>> completion_text([{"role": "assistant", "content": [{"type": "text", "text": "A red star."}]}])
        'A red star.'
    """
    if isinstance(completion, str):
        return completion
    if not is_list(completion):
        raise InvalidSampleError(
            f"a completion must be a string or a list of messages, got {type(completion).__name__}: {completion!r:.80}"
        )
    messages = to_list(completion, "completion")
    for message in reversed(messages):
        if isinstance(message, Mapping) and (message.get("role") or message.get("from")) in _ASSISTANT:
            return _content_text(message.get("content", message.get("value")))
    raise InvalidSampleError(f"the completion has no assistant message among its {len(messages)} messages")


def _content_text(content: Any) -> str:
    """The text of a message's content: blocks of text are joined by line breaks, in all that reads chats."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = []
    for block in to_list(content, "the content of a message"):
        if isinstance(block, str):
            texts.append(block)
        elif isinstance(block, Mapping) and block.get("type", "text") in _TEXT_TYPES and block.get("text") is not None:
            if not isinstance(block["text"], str):
                raise InvalidSampleError(f"the text of a message block must be a string, got {block['text']!r:.80}")
            texts.append(block["text"])
    return "\n".join(text for text in texts if text)


def prompt_images(prompt: Any) -> list[Any]:
    """The images in the messages of a conversation, in order, as `load_image` takes them; a text has none.

    For the keys under which a block holds its image, see `block_image`.

    Example:
        >>> prompt_images([{"role": "user", "content": [{"type": "image", "path": "a.png"}]}])
        ['a.png']
    """
    if not is_list(prompt):
        return []
    images = []
    for message in to_list(prompt, "prompt"):
        content = message.get("content") if isinstance(message, Mapping) else None
        if not is_list(content):
            continue
        for block in to_list(content, "content"):
            if isinstance(block, Mapping) and block.get("type") in IMAGE_TYPES:
                images.append(block_image(block))
    return [image for image in images if image is not None]  # a mere placeholder holds none


def join_texts(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts of a message with neighbouring texts made one, joined by a line break as in `completion_text`.

    Example:
        >>> join_texts([{"type": "image"}, {"type": "text", "text": "Look."}, {"type": "text", "text": "What is it?"}])
        [{'type': 'image'}, {'type': 'text', 'text': 'Look.\\nWhat is it?'}]
    """
    joined: list[dict[str, Any]] = []
    for part in parts:
        if joined and part["type"] == joined[-1]["type"] == "text":
            joined[-1] = {**part, "text": _content_text([joined[-1], part])}
        else:
            joined.append(part)
    return joined


def trl_prompts(prompts: Sequence[list[dict[str, Any]]], images: Sequence[int]) -> list[list[dict[str, Any]]]:
    """What `as_prompt` gave, in TRL's form, the same for all.

    The contents are texts if TRL puts all images where they belong by itself, before the first user's text. Else they
    are lists of parts, with `{"type": "image"}` where each of the row's images stands.

    Args:
        prompts: N prompts.
        images: of each row, how many it has.

    Example:
        >>> trl_prompts([as_prompt("<image> What is it?"), as_prompt("Describe it.")], [1, 1])[0]
        [{'role': 'user', 'content': 'What is it?'}]
        >>> [part["type"] for part in trl_prompts([as_prompt("What is in <image>?")], [1])[0][0]["content"]]
        ['text', 'image', 'text']
    """
    for prompt, count in zip(prompts, images, strict=True):
        shown = sum(_images_of(message) for message in prompt)
        if shown not in (0, count):
            raise InvalidSampleError(
                f"a prompt shows {shown} images ('<image>' or image parts), but its row has {count}: show each once, "
                f"or none, and all come first. The prompt: {prompt!r:.200}"
            )
    if all(_is_plain(prompt) for prompt in prompts):
        return [[{**message, "content": _text_of(message)} for message in prompt] for prompt in prompts]
    return [_with_parts(prompt, count) for prompt, count in zip(prompts, images, strict=True)]


def _images_of(message: Mapping[str, Any]) -> int:
    return sum(part["type"] == "image" for part in message["content"])


def _text_of(message: Mapping[str, Any]) -> str:
    return "".join(part["text"] for part in message["content"] if part["type"] == "text")


def _is_plain(prompt: Sequence[Mapping[str, Any]]) -> bool:
    """Whether each message is one text, but for images before that of the first user's turn."""
    user = next(message for message in prompt if message["role"] == "user")
    for message in prompt:
        kinds = [part["type"] for part in message["content"]]
        if kinds[_images_of(message) if message is user else 0 :] not in ([], ["text"]):
            return False
    return True


def _with_parts(prompt: Sequence[Mapping[str, Any]], images: int) -> list[dict[str, Any]]:
    shown = sum(_images_of(message) for message in prompt)
    messages = []
    for message in prompt:
        parts = [{"type": "image"} if part["type"] == "image" else part for part in message["content"]]
        if not shown and message["role"] == "user":
            parts, shown = [{"type": "image"}] * images + parts, images
        messages.append({**message, "content": parts})
    return messages
