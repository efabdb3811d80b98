"""From a data set of images and references to the columns that TRL's trainers and our rewards read."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from integrations.trl.prompt_rows import (
    readable_rows,
    rows_of,
    with_format_of,
    with_images_of_prompts,
    with_transform,
    without_format,
)
from reward.errors import DataError, ImageError, InvalidSampleError
from reward.images import load_image, plain_image
from reward.rewards.chats import PROMPT, as_prompt, trl_prompts
from reward.samples import find_column, read_references

if TYPE_CHECKING:
    import pandas as pd
    from datasets import Dataset, DatasetDict, IterableDataset, IterableDatasetDict

    DatasetT = TypeVar("DatasetT", Dataset, IterableDataset, DatasetDict, IterableDatasetDict)

__all__ = ["make_prompt_dataset"]

logger = logging.getLogger(__name__)

_TEXTS = ("string", "large_string", "string_view")
_MISSING = ("null", "float16", "float32", "float64")  # how a column without any value is typed


def make_prompt_dataset(
    dataset: DatasetT | Sequence[Mapping[str, Any]] | pd.DataFrame,
    prompt: str | Callable[[dict[str, Any]], str] | None = None,
    *,
    system: str | None = None,
    image_column: str | None = None,
    references_column: str | None = None,
    prompt_column: str | None = None,
    check_images: bool = True,
) -> DatasetT | Dataset:
    """Gives each row a prompt for a vision-language policy, its image or images, and its references.

    The prompt is conversational, as TRL wants it beside images: TRL puts the images before the text of the first user
    message, or where `<image>` stands in a user's text. A prompt ends with the user's last turn. Rows that lack an
    image are left out, with a warning that counts them: TRL cannot mix them with others. So are rows with a broken
    image, on which the policy's processor would stop the training. Each image is decoded once to find them; web
    addresses are not fetched for it.

    The policy sees the picture that the rewards see: images that its processor would show otherwise (16-bit grey,
    transparency) become PNGs of what `reward.images.load_image` gives.

    Columns may have any names. Those that are not named by an option are found under the names that the rewards and
    `capreward score` know: the image under `images`, `image`, `file_name`, `image_path` or `img`, the references under
    `references` or `refs`. A prompt's column is used only if it is named.

    Args:
        dataset: rows with an image each, or a list of images: `datasets.Image`, or paths (relative to the working
            directory). Streaming data sets and dicts of splits are taken, too, and so are a list of dicts and a
            DataFrame.
        prompt: what the policy is asked: a text, or a function that gets the row as a dict, without its images, and
            returns the text. None without `prompt_column`: "Describe the image in detail."
        system: system message, or None for none.
        image_column: holds the image or the images; becomes `image` or `images`.
        references_column: holds a list of reference captions, or one; becomes `references`.
        prompt_column: holds the text that the policy is asked, or whole messages in TRL's or LLaVA's form; becomes
            `prompt`, see `reward.rewards.chats.as_prompt`. Without an image column, the images are those in its
            messages.
        check_images: whether to look for broken images. False saves the time, where all are known to be good.

    Returns:
        The data set (of a list or a DataFrame, a `Dataset`) with the columns `prompt`, `image` or `images` and, if
        there are any, `references`; its other columns stay.

    Raises:
        DataError: a column is not there, or several could be meant.
        InvalidSampleError: a column is of another type, or in the way of a new one, a prompt is neither text nor
            messages, holds a placeholder of a chat template or shows more images than its row has, or no row has an
            image that can be read. A streaming data set raises it when the row is read.

    Example:
        >>> from datasets import Dataset
        >>> from PIL import Image
        >>> picture = Image.new("RGB", (96, 96), "red")
        >>> rows = Dataset.from_dict({"picture": [picture], "refs": [["A red star."]], "object": ["star"]})
        >>> rows = make_prompt_dataset(rows, lambda row: f"Describe the {row['object']}.", image_column="picture")
        >>> rows.remove_columns(["image", "object"])[0]["prompt"][0]["content"]
        'Describe the star.'
    """
    from datasets import Dataset, IterableDataset  # on use, here and below: a large package

    if prompt is not None and prompt_column is not None:
        raise InvalidSampleError("give either prompt or prompt_column")
    if isinstance(dataset, dict):
        options = {"system": system, "image_column": image_column, "references_column": references_column}
        parts = {
            split: make_prompt_dataset(part, prompt, prompt_column=prompt_column, check_images=check_images, **options)
            for split, part in dataset.items()
        }
        return type(dataset)(parts)

    if not isinstance(dataset, (Dataset, IterableDataset)):
        dataset = rows_of(dataset, prompt_column)
    given = dataset
    is_transformed = isinstance(given, Dataset) and given.format["type"] == "custom"
    if isinstance(given, Dataset) and not is_transformed:
        dataset = without_format(given, (image_column, references_column, prompt_column))
    columns = _list_columns([next(readable_rows(given))[1]] if is_transformed else dataset)
    if prompt_column is not None and prompt_column not in columns:
        raise DataError(f"prompt_column= names {prompt_column!r}, which is no column; there are {', '.join(columns)}")
    image = find_column("image", columns, image_column, option="image_column=")
    if image is None and prompt_column is not None and not is_transformed:
        dataset = with_images_of_prompts(dataset, prompt_column)
        columns = _list_columns(dataset)
    image = find_column("image", columns, image_column, option="image_column=", needed_by="make_prompt_dataset")
    assert image is not None  # it is needed
    references = find_column("references", columns, references_column, option="references_column=")
    new_names = {image: "images" if columns[image] else "image"}
    new_names |= {old: new for old, new in ((references, "references"), (prompt_column, "prompt")) if old is not None}
    _check_free(new_names, columns)

    asked = PROMPT if prompt is None else prompt

    def messages(row: Mapping[str, Any]) -> list[dict[str, Any]]:
        if prompt_column is not None:
            return as_prompt(row[prompt_column], system)
        if isinstance(asked, str):
            return as_prompt(asked, system)
        return as_prompt(asked({name: value for name, value in row.items() if name != image}), system)

    if isinstance(dataset, IterableDataset):
        return _streamed(dataset, new_names, messages, check_images)
    if is_transformed:
        return with_transform(dataset, new_names, *_for_rows(new_names, messages, check_images))
    dataset = _with_images(dataset, image, columns[image], check_images)
    if prompt_column is None and isinstance(asked, str):
        prompts = [messages({})] * len(dataset)
    else:
        seen = dataset.remove_columns(image) if prompt_column is None else dataset.select_columns(prompt_column)
        rows = seen.with_format(None) if seen.column_names else itertools.repeat({}, len(dataset))
        prompts = [messages(row) for row in rows]
    cells = _undecoded(dataset, image) if columns[image] else itertools.repeat(None, len(dataset))
    prompts = trl_prompts(prompts, [1 if cell is None else len(cell) for cell in cells])
    if prompt_column is not None:
        dataset = dataset.remove_columns(prompt_column)
    for old in (image, references):
        if old is not None and old != new_names[old]:
            dataset = dataset.rename_column(old, new_names[old])
    if references is not None:
        dataset = _with_reference_lists(dataset, references)
    return with_format_of(given, dataset.add_column("prompt", prompts), new_names)


def _list_columns(dataset: Dataset | IterableDataset | list[dict[str, Any]]) -> dict[str, bool]:
    """For each column, whether its cells are lists."""
    from datasets import LargeList, List

    if not isinstance(dataset, list) and dataset.features is not None:
        return {name: isinstance(feature, (List, LargeList)) for name, feature in dataset.features.items()}
    first: dict[str, Any] = next(iter(dataset), {})  # a stream that does not say what it holds
    return {name: isinstance(cell, (list, tuple)) for name, cell in first.items()}


def _check_free(new_names: Mapping[str, str], columns: Mapping[str, bool]) -> None:
    if "prompt" in columns and "prompt" not in new_names.values():
        raise InvalidSampleError(
            "the data set has a column 'prompt' already: use it with prompt_column='prompt', or remove it first"
        )
    for old, new in new_names.items():
        if new != old and new in columns:
            raise InvalidSampleError(
                f"column {old!r} should become {new!r}, but there is such a column already: remove it first"
            )
        if new == "image" and old != "images" and "images" in columns:
            raise InvalidSampleError(
                "TRL would show the column 'images' to the policy instead of 'image': remove or rename it"
            )


def _lacks_image(cell: Any) -> bool:
    if isinstance(cell, (list, tuple)):
        return not cell or any(_lacks_image(image) for image in cell)
    if isinstance(cell, Mapping):
        return cell.get("bytes") is None and not (cell.get("path") or "").strip()
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _streamed(
    dataset: IterableDataset,
    new_names: Mapping[str, str],
    messages: Callable[[Mapping[str, Any]], list[dict[str, Any]]],
    check_images: bool,
) -> IterableDataset:
    """The same row by row; nothing is known of a row before it is read."""
    from datasets import Image, List

    image = next(iter(new_names))
    feature = (dataset.features or {}).get(image)
    if isinstance(getattr(feature, "feature", feature), Image):  # read below: a broken one must not end the stream
        undecoded = Image(decode=False)
        dataset = dataset.cast_column(image, List(undecoded) if hasattr(feature, "feature") else undecoded)
    has_image, shaped = _for_rows(new_names, messages, check_images)
    gone = [old for old, new in new_names.items() if old != new]
    return dataset.filter(has_image).map(shaped, remove_columns=gone or None)


def _for_rows(
    new_names: Mapping[str, str], messages: Callable[[Mapping[str, Any]], list[dict[str, Any]]], check_images: bool
) -> tuple[Callable[[Mapping[str, Any]], bool], Callable[[Mapping[str, Any]], dict[str, Any]]]:
    """Whether a row is kept, and its new columns."""
    (image, target), *others = new_names.items()
    warned: set[str] = set()

    def warn_once(what: str, more: str = "") -> None:
        if what not in warned:
            warned.add(what)
            logger.warning("a row has %s in column %r: such rows are left out%s", what, image, more)

    def has_image(row: Mapping[str, Any]) -> bool:
        if _lacks_image(row[image]):
            warn_once("no image")
            return False
        fault = _fault(row[image]) if check_images else None
        if fault is not None:
            warn_once("a broken image", f". The first: {fault}")
        return fault is None

    def shaped(row: Mapping[str, Any]) -> dict[str, Any]:
        cell = row[image]
        opened = [_opened(one) for one in cell] if isinstance(cell, (list, tuple)) else _opened(cell)
        count = len(cell) if isinstance(cell, (list, tuple)) else 1
        new = {target: opened, "prompt": trl_prompts([messages(row)], [count])[0]}
        for old, name in others:
            if name == "references":
                new[name] = _captions(old, row[old])
        return new

    return has_image, shaped


def _opened(image: Any) -> Any:
    """What the rewards see in an image."""
    from datasets import Image

    if _is_address(image):
        image = Image().decode_example({"path": _path_of(image), "bytes": None})  # downloads, which load_image refuses
    return load_image(image)


def _path_of(image: Any) -> str | None:
    """The path of an image that is not at hand as bytes or pixels."""
    if isinstance(image, Mapping):
        return None if image.get("bytes") is not None else image.get("path")
    return image if isinstance(image, str) else None


def _is_address(image: Any) -> bool:
    return "://" in (_path_of(image) or "")


def _fault(cell: Any) -> str | None:
    """Why an image, or the first of several that is broken, cannot be read; None if all can, or it is no image."""
    from PIL import Image

    for image in cell if isinstance(cell, (list, tuple)) else [cell]:
        try:
            if isinstance(image, (str, bytes, dict, Image.Image)) and not _is_address(image):
                load_image(image)
        except ImageError as error:
            path = image.get("path") if isinstance(image, Mapping) else None
            return str(error) if path is None or path in str(error) else f"{path}: {error}"
    return None


def _is_odd(cell: Any) -> bool:
    return any(plain_image(image) is not image for image in (cell if isinstance(cell, list) else [cell]))


def _looked_at(cells: Sequence[Any], check: bool) -> dict[str, list[Any]]:
    with ThreadPoolExecutor() as threads:  # Pillow decodes without Python's lock
        faults = list(threads.map(_fault, cells)) if check else [None] * len(cells)
        return {"fault": faults, "odd": list(threads.map(_is_odd, cells))}


def _undecoded(dataset: Dataset, name: str) -> Iterator[Any]:
    """The cells of a column of images as Arrow holds them: paths, bytes, or dicts of both."""
    for table in dataset.select_columns(name).with_format("arrow").iter(64):
        yield from table[name].to_pylist()


def _cast(dataset: Dataset, name: str, *, decode: bool = True) -> Dataset:
    from datasets import Image, LargeList, List

    image = Image(decode=decode)
    several = isinstance(dataset.features[name], (List, LargeList))
    return dataset.cast_column(name, List(image) if several else image)


def _with_images(dataset: Dataset, name: str, several: bool, check: bool) -> Dataset:
    """The rows whose images can be read; a processor that is given None beside images stops the training."""
    from datasets import Features, Image, Value

    feature = dataset.features[name]
    inner = feature.feature if several else feature
    encoded = getattr(inner, "dtype", None) in ("string", "large_string", "binary", "large_binary")
    encoded = encoded or (isinstance(inner, dict) and set(inner) <= {"bytes", "path"})
    if not encoded and not isinstance(inner, Image):
        raise InvalidSampleError(f"column {name!r} must hold images or paths, or lists of them, got {feature}")
    if several or encoded or dataset.data.column(name).null_count:
        kept = [index for index, cell in enumerate(_undecoded(dataset, name)) if not _lacks_image(cell)]
        if not kept and len(dataset):
            raise InvalidSampleError(f"column {name!r} holds no image in any row")
        if len(kept) < len(dataset):
            logger.warning(
                "%d of %d rows have no image in column %r: left out", len(dataset) - len(kept), len(dataset), name
            )
            dataset = dataset.select(kept)
    if not len(dataset):
        return _cast(dataset, name) if encoded else dataset
    seen = dataset.select_columns(name).with_format("arrow")  # undecoded
    seen = seen.map(
        lambda cells: _looked_at(cells.to_pylist(), check),
        batched=True,
        batch_size=64,
        input_columns=name,
        remove_columns=name,
        features=Features({"fault": Value("string"), "odd": Value("bool")}),
        load_from_cache_file=False,  # a file may have changed
        keep_in_memory=True,
        desc="Checking images",
    ).with_format(None)
    faults, odd = seen["fault"][:], seen["odd"][:]
    broken = [index for index, fault in enumerate(faults) if fault is not None]
    if len(broken) == len(dataset):
        raise InvalidSampleError(f"column {name!r} holds no image that can be read. The first: {faults[0]}")
    if broken:
        logger.warning(
            "%d of %d rows have a broken image in column %r: left out. The first: %s",
            *(len(broken), len(dataset), name, faults[broken[0]]),
        )
    return _with_plain_images(_cast(dataset, name) if encoded else dataset, name, faults, odd)


def _with_plain_images(dataset: Dataset, name: str, faults: Sequence[str | None], odd: Sequence[bool]) -> Dataset:
    """The rows without a fault, in order; in the odd ones the images are what the rewards see in them."""
    from datasets import concatenate_datasets

    def plain(cell: Any) -> dict[str, Any]:
        return {name: [plain_image(image) for image in cell] if isinstance(cell, list) else plain_image(cell)}

    kept = [index for index, fault in enumerate(faults) if fault is None]
    places = [index for index in kept if odd[index]]
    if places:
        chosen = _cast(dataset.with_format(None).select(places), name, decode=False)
        made = chosen.map(plain, input_columns=name, features=chosen.features, load_from_cache_file=False)
        place_of = {index: len(dataset) + number for number, index in enumerate(places)}
        dataset = concatenate_datasets([dataset, _cast(made, name)])
        return dataset.select([place_of.get(index, index) for index in kept])
    return dataset if len(kept) == len(dataset) else dataset.select(kept)


def _with_reference_lists(dataset: Dataset, name: str) -> Dataset:
    from datasets import LargeList, List, Value

    lists, feature = List(Value("string")), dataset.features["references"]
    inner = getattr(getattr(feature, "feature", feature), "dtype", None)
    if isinstance(feature, (List, LargeList)) and inner in (*_TEXTS, "null"):
        return dataset if inner == "string" and isinstance(feature, List) else dataset.cast_column("references", lists)
    if not isinstance(feature, Value) or inner not in (*_TEXTS, *_MISSING):
        raise _no_captions(name, str(feature))
    captions = [_captions(name, cell) for cell in dataset["references"]]
    return dataset.remove_columns("references").add_column("references", captions, feature=lists)


def _captions(name: str, cell: Any) -> list[str] | None:
    try:
        return list(read_references(cell)) or None
    except InvalidSampleError as error:
        raise _no_captions(name, f"{cell!r:.200} ({error})") from None


def _no_captions(name: str, held: str) -> InvalidSampleError:
    return InvalidSampleError(f"column {name!r} must hold a list of captions or one caption, got {held}")
