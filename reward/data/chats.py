"""Chats: the prompts that data sets hold, in one form, and the text and images in messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from reward.data.cells import is_list, parse_list, to_list
from reward.data.image_files import BASE64_IMAGES, base64_bytes, data_url_bytes
from reward.errors import ImageError, InvalidSampleError

PROMPT = "Describe the image in detail."
_FORM = "[{'role': 'user', 'content': 'Describe it.'}, ...], or LLaVA's [{'from': 'human', 'value': ...}, ...]"
_ASSISTANT = ("assistant", "gpt", "model")  # of OpenAI and TRL, of LLaVA, of Gemini
_ROLES = {"system": "system", "user": "user", "human": "user", "tool": "tool"} | dict.fromkeys(_ASSISTANT, "assistant")
_IMAGE_TYPES = ("image", "image_url", "input_image")
_TEXT_TYPES = ("text", "input_text", "output_text")
_IMAGE_KEYS = ("image", "path", "url", "base64", "image_url")
# What else a block of an image may have: settings beside it, and keys of other blocks, which a table fills with None.
_OTHER_KEYS = {"type", "text", "index", "id", "detail", "mime_type", "cache_control"}
_OTHER_KEYS |= {"min_pixels", "max_pixels", "total_pixels", "resized_height", "resized_width"}
_MARKER = re.compile(r"\n*<image>\n*")  # where an image stands, in LLaVA's form and in many others
# <image>, <|image_pad|>, <|vision_start|>, <start_of_image>, <image_soft_token>, <|image_1|>, <IMG_CONTEXT>, [IMG]
_PLACEHOLDER = re.compile(
    r"</?\|?(?:(?:[\w-]+[_-]|endof)?(?:image|img)|(?:\w+_)?(?:images|im_patch|vision|video|audio|media))"
    r"(?:placeholder|[_-]\w+|\d+)?\|?/?>|\[IMG(?:_\w+)?\]",
    re.IGNORECASE,
)


def as_prompt(prompt: Any) -> list[dict[str, Any]]:
    """A prompt as messages that end with the user's last turn.

    What an assistant says after that turn is the answer, which a policy is to write itself. `<image>` in a user's text
    becomes an image part, `{"type": "image"}`; images in the messages are read as `block_image` says.

    Args:
        prompt: text; or messages with `role` and `content`, or with `from` and `value` as LLaVA's data have.

    Returns:
        Messages with `role` and `content`, a list of parts: `{"type": "text", "text": ...}`, `{"type": "image"}`, or
        `{"type": "image", "image": what load_image takes}`.

    Raises:
        InvalidSampleError: neither text nor messages of these forms, no turn of the user, or a placeholder of a chat
            template in a text.
        ImageError: an image in the messages is in no form that is read.

    Example:
        >>> chat = [{"from": "human", "value": "<image>\\nWhat is it?"}, {"from": "gpt", "value": "A star."}]
        >>> as_prompt(chat)
        [{'role': 'user', 'content': [{'type': 'image'}, {'type': 'text', 'text': 'What is it?'}]}]
    """
    if isinstance(prompt, str) and prompt.lstrip().startswith("[{"):  # messages in a table without types
        prompt = parse_list(prompt)
    if isinstance(prompt, str) and prompt.strip():
        return [_read_message({"role": "user", "content": prompt})]
    chat = to_list(prompt, "a prompt") if is_list(prompt) else []
    if not chat or not all(isinstance(message, Mapping) for message in chat):
        raise InvalidSampleError(f"a prompt must be text or a list of messages such as {_FORM}, got {prompt!r:.200}")
    messages = [_read_message(message) for message in chat]
    while messages and messages[-1]["role"] != "user":  # the answer, which the policy is to write
        messages.pop()
    if not messages:
        raise InvalidSampleError(f"a prompt needs a turn of the user, got {prompt!r:.200}")
    return messages


def _read_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of either form as one of `as_prompt`, with its further keys."""
    fields = {key: value for key, value in message.items() if value is not None}
    role = fields.pop("role", fields.pop("from", None))
    content = fields.pop("content", fields.pop("value", None))
    if not isinstance(role, str) or role not in _ROLES:
        raise InvalidSampleError(
            f"a message has the role {role!r}, and roles are {', '.join(_ROLES)}: give messages such as {_FORM}"
        )
    role = _ROLES[role]
    if content is None and role in ("user", "system"):
        raise InvalidSampleError(f"a message has no content, got {dict(message)!r:.200}: give messages such as {_FORM}")
    parts: list[dict[str, Any]] = []
    for block in _blocks(content):
        if _is_image(block):
            image = block_image(block)
            parts.append({"type": "image"} if image is None else {"type": "image", "image": image})
            continue
        text = block
        if isinstance(block, Mapping) and block.get("type") in _TEXT_TYPES:
            text = block.get("text")
        if not isinstance(text, str):
            raise InvalidSampleError(
                "a part of a message must be {'type': 'text', 'text': ...} or {'type': 'image'}, "
                f"got {block!r:.200}"
            )
        parts += _text_parts(text, role)
    return {"role": role, "content": parts, **fields}


def _blocks(content: Any) -> list[Any]:
    """The blocks of a message's content: a text is the only one, and None has none."""
    if is_list(content):
        return to_list(content, "a content")
    return [] if content is None else [content]


def _is_image(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") in _IMAGE_TYPES


def _text_parts(text: str, role: str) -> list[dict[str, Any]]:
    """A text as parts: in the user's, an image stands at each `<image>`, with no white space between it and a text."""
    pieces = _MARKER.split(text) if role == "user" else [text]
    parts: list[dict[str, Any]] = []
    has_text = False
    for number, piece in enumerate(pieces):
        if has_placeholder(piece):
            raise InvalidSampleError(
                f"the {role}'s text has a placeholder of a chat template, which a policy's processor takes for an "
                f"image that is not there: leave it out, got {piece!r:.200}. In the user's text '<image>' may stand "
                "where an image of the row does"
            )
        if number > 0:
            parts.append({"type": "image"})
        # A chat template puts its own white space around an image.
        if len(pieces) > 1 and not piece.strip():
            continue
        if len(pieces) > 1 and not has_text:
            piece = piece.lstrip()
        if piece:
            parts.append({"type": "text", "text": piece})
            has_text = True
    return parts


def has_placeholder(text: str) -> bool:
    """Whether a text has a token that a chat template writes for images, sound or films.

    A policy's processor takes it for an image that is not there, and stops the training.

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
        if image is None:
            continue
        if not isinstance(image, str):
            return image
        scheme = image[:5].lower()
        try:
            if scheme == "data:":
                return data_url_bytes(image)
            if scheme == "file:":
                return url2pathname(urlsplit(image).path)
            if key == "base64" or image.startswith(BASE64_IMAGES):
                return base64_bytes("".join(image.split()))
        except ImageError as error:
            raise ImageError(f"{key!r} of an image in the messages: {error}") from None
        return image
    unread = [repr(key) for key, value in block.items() if value is not None and key not in _OTHER_KEYS]
    if unread:
        raise ImageError(
            f"an image in the messages has {', '.join(unread)}, which is not read: give the image under "
            f"{', '.join(map(repr, _IMAGE_KEYS))}"
        )
    return None


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
    messages = to_list(completion, "a completion")
    for message in reversed(messages):  # what follows may be the answer of a tool
        if isinstance(message, Mapping) and (message.get("role") or message.get("from")) in _ASSISTANT:
            return _content_text(message.get("content", message.get("value")))
    raise InvalidSampleError(f"the completion has no assistant message among its {len(messages)} messages")


def _content_text(content: Any) -> str:
    """The text of a message's content."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = []
    for block in to_list(content, "the content of a message"):
        text = block
        if isinstance(block, Mapping):
            text = block.get("text") if block.get("type", "text") in _TEXT_TYPES else None
        if text is not None and not isinstance(text, str):
            raise InvalidSampleError(f"the text of a message block must be a string, got {text!r:.80}")
        if text:
            texts.append(text)
    return "\n".join(texts)


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
        if not isinstance(message, Mapping):
            continue
        shown = [block_image(block) for block in _blocks(message.get("content")) if _is_image(block)]
        images += [image for image in shown if image is not None]  # else the block only says where an image stands
    return images


def join_texts(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts of a message with neighbouring texts made one, joined by a line break as in `completion_text`.

    Example:
        >>> join_texts([{"type": "image"}, {"type": "text", "text": "Look."}, {"type": "text", "text": "What is it?"}])
        [{'type': 'image'}, {'type': 'text', 'text': 'Look.\\nWhat is it?'}]
    """
    joined: list[dict[str, Any]] = []
    for part in parts:
        if joined and part["type"] == joined[-1]["type"] == "text":
            joined[-1] = {**part, "text": f"{joined[-1]['text']}\n{part['text']}"}
        else:
            joined.append(part)
    return joined


def trl_prompts(prompts: Sequence[list[dict[str, Any]]], image_counts: Sequence[int]) -> list[list[dict[str, Any]]]:
    """What `as_prompt` gave, in TRL's form, the same for all.

    The contents are texts if TRL puts all images where they belong by itself, before the first user's text. Else they
    are lists of parts, with `{"type": "image"}` where each of the row's images stands.

    Args:
        prompts: N prompts.
        image_counts: of each row, how many images it has.

    Raises:
        InvalidSampleError: a prompt shows some images, but not as many as its row has.

    Example:
        >>> trl_prompts([as_prompt("<image> What is it?"), as_prompt("Describe it.")], [1, 1])[0]
        [{'role': 'user', 'content': 'What is it?'}]
        >>> [part["type"] for part in trl_prompts([as_prompt("What is in <image>?")], [1])[0][0]["content"]]
        ['text', 'image', 'text']
    """
    with_images = [_with_images(prompt, count) for prompt, count in zip(prompts, image_counts, strict=True)]
    with_texts = [messages for messages in map(_with_texts, with_images) if messages is not None]
    # The same form for all rows, since Arrow holds one type a column.
    return with_texts if len(with_texts) == len(prompts) else with_images


def _with_images(prompt: Sequence[Mapping[str, Any]], count: int) -> list[dict[str, Any]]:
    """A prompt with its `count` images as mere placeholders: if it shows none, before the first user's text."""
    messages: list[dict[str, Any]] = []
    shown = 0
    for message in prompt:
        parts = []
        for part in message["content"]:
            if part["type"] == "image":
                shown += 1
                part = {"type": "image"}
            parts.append(part)
        messages.append({**message, "content": parts})
    if shown not in (0, count):
        raise InvalidSampleError(
            f"a prompt shows {shown} images ('<image>' or image parts), but its row has {count}: show each once, or "
            f"none, and all come first. The prompt: {prompt!r:.200}"
        )
    if shown == 0:
        user = next(message for message in messages if message["role"] == "user")
        user["content"] = [{"type": "image"}] * count + user["content"]
    return messages


def _with_texts(prompt: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """A prompt with texts as contents, to which TRL adds the images; None where they would not stand as before."""
    first_of_user = next(message for message in prompt if message["role"] == "user")
    messages = []
    for message in prompt:
        parts = message["content"]
        while message is first_of_user and parts and parts[0]["type"] == "image":
            parts = parts[1:]
        if [part["type"] for part in parts] not in ([], ["text"]):
            return None
        messages.append({**message, "content": parts[0]["text"] if parts else ""})
    return messages
