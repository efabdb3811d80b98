"""How rows become what TRL's trainers read: stored ones column by column, others as they come."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reward.data.chats import trl_prompts
from reward.data.drawn_images import plain_image
from reward.data.images import load_image
from reward.data.samples import read_references
from reward.errors import ImageError, InvalidSampleError

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

logger = logging.getLogger(__name__)

_NO_IMAGE = "no image"
_AT_ONCE = 64  # images that are held undecoded


@dataclass
class PromptRows:
    """How rows are shaped.

    Args:
        names: {column: its new name}.
        image, references: the columns of images and of references.
        messages: of a row, which has the columns `reads`.
        check: whether images are decoded to find broken ones.
    """

    names: dict[str, str]
    image: str
    references: str | None
    messages: Callable[[Mapping[str, Any]], list[dict[str, Any]]]
    reads: list[str]
    check: bool
    warned: set[str] = field(default_factory=set)

    def stored(self, dataset: Dataset) -> Dataset:
        """Column by column, so that images stay encoded as they are."""
        from datasets import List, Value

        dataset = self._with_images(dataset)
        if self.reads:
            prompts = [self.messages(row) for row in dataset.select_columns(self.reads)]
        else:
            prompts = [self.messages({})] * len(dataset)
        counts = [len(_several(cell)) for cells in _undecoded(dataset, self.image) for cell in cells]
        prompts = trl_prompts(prompts, counts)
        if self.references is not None:
            captions = [self._captions(cell) for cell in dataset[self.references]]
            dataset = dataset.remove_columns(self.references)
            dataset = dataset.add_column(self.references, captions, feature=List(Value("string")))
        if "prompt" in self.names.values():
            dataset = dataset.remove_columns([old for old, new in self.names.items() if new == "prompt"])
        kept = {old: new for old, new in self.names.items() if new not in ("prompt", old)}
        return dataset.rename_columns(kept).add_column("prompt", prompts)

    def _with_images(self, dataset: Dataset) -> Dataset:
        """The rows whose images can be read, the pictures in them being what the rewards see."""
        from datasets import Image, List
        from datasets.utils import tqdm

        name, feature = self.image, dataset.features[self.image]

        def cast(dataset: Dataset, decode: bool) -> Dataset:
            image = Image(decode=decode)
            return dataset.cast_column(name, List(image) if self.names[name] == "images" else image)

        try:
            dataset = cast(dataset, decode=False)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise InvalidSampleError(
                f"column {name!r} must hold images or paths, or lists of them, got {feature}"
            ) from error
        looked_at: list[tuple[str | None, bool]] = []
        with ThreadPoolExecutor() as threads:  # Pillow decodes without Python's lock
            for cells in tqdm(_undecoded(dataset, name), total=-(-len(dataset) // _AT_ONCE), desc="Checking images"):
                looked_at += threads.map(self._looked_at, cells)
        faults, odd = [fault for fault, _ in looked_at], any(is_odd for _, is_odd in looked_at)
        kept = [index for index, fault in enumerate(faults) if fault is None]
        lost = [fault for fault in faults if fault not in (None, _NO_IMAGE)]
        if faults and not kept:
            why = f"that can be read. The first: {lost[0]}" if lost else "in any row"
            raise InvalidSampleError(f"column {name!r} holds no image {why}")
        for count, what in (
            (faults.count(_NO_IMAGE), f"{_NO_IMAGE} in column {name!r}: left out"),
            (len(lost), f"a broken image in column {name!r}: left out. The first: {[*lost, None][0]}"),
        ):
            if count:
                logger.warning("%d of %d rows have %s", count, len(faults), what)
        dataset = dataset if len(kept) == len(faults) else dataset.select(kept)
        if odd:
            dataset = dataset.map(
                lambda cell: {
                    name: [plain_image(one) for one in cell] if isinstance(cell, list) else plain_image(cell)
                },
                input_columns=name,
                features=dataset.features,
                load_from_cache_file=False,
            )
        return cast(dataset, decode=True)

    def _looked_at(self, cell: Any) -> tuple[str | None, bool]:
        """Why a row is left out, and whether an image in it looks different to a policy's processor."""
        fault = self._fault(cell)
        return fault, fault is None and any(plain_image(image) is not image for image in _several(cell))

    def _fault(self, cell: Any) -> str | None:
        from PIL import Image

        images = _several(cell)
        if not images or any(map(_is_missing, images)):
            return _NO_IMAGE
        for image in images if self.check else ():
            try:
                if isinstance(image, (str, bytes, dict, Image.Image)):  # a number is no broken image: it is refused
                    load_image(image)
            except ImageError as error:
                path = image.get("path") if isinstance(image, Mapping) else None
                return str(error) if path is None or path in str(error) else f"{path}: {error}"
        return None

    def keeps(self, row: Mapping[str, Any]) -> bool:
        """Whether the row has images that can be read; says once what is left out."""
        fault = self._fault(row[self.image])
        what = _NO_IMAGE if fault == _NO_IMAGE else "a broken image"
        if fault is not None and what not in self.warned:
            self.warned.add(what)
            first = "" if fault == _NO_IMAGE else f". The first: {fault}"
            logger.warning("a row has %s in column %r: such rows are left out%s", what, self.image, first)
        return fault is None

    def shaped(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The new columns of a row."""
        cell = row[self.image]
        images = [load_image(image) for image in _several(cell)]
        new: dict[str, Any] = {self.names[self.image]: images if isinstance(cell, (list, tuple)) else images[0]}
        new["prompt"] = trl_prompts([self.messages(row)], [len(images)])[0]
        return new if self.references is None else {**new, "references": self._captions(row[self.references])}

    def _captions(self, cell: Any) -> list[str] | None:
        try:
            return list(read_references(cell)) or None
        except InvalidSampleError as error:
            raise InvalidSampleError(
                f"column {self.references!r} must hold a list of captions or one caption, got {cell!r:.200} ({error})"
            ) from None

    def streamed(self, dataset: IterableDataset) -> IterableDataset:
        """Row by row; nothing is known of a row before it is read."""
        from datasets import Image, List

        feature = (dataset.features or {}).get(self.image)
        if isinstance(getattr(feature, "feature", feature), Image):  # a broken one must not end the stream
            undecoded = Image(decode=False)
            dataset = dataset.cast_column(self.image, List(undecoded) if hasattr(feature, "feature") else undecoded)
        gone = [old for old, new in self.names.items() if old != new]
        return dataset.filter(self.keeps).map(self.shaped, remove_columns=gone or None)


def _undecoded(dataset: Dataset, name: str) -> Iterator[list[Any]]:
    """The cells of a column of images as Arrow holds them, dicts of bytes and path or lists of these, in parts."""
    for table in dataset.select_columns(name).with_format("arrow").iter(_AT_ONCE):
        yield table[name].to_pylist()


def _several(cell: Any) -> list[Any]:
    return list(cell) if isinstance(cell, (list, tuple)) else [cell]


def _is_missing(image: Any) -> bool:
    if isinstance(image, Mapping):
        return image.get("bytes") is None and not (image.get("path") or "").strip()
    return image is None or (isinstance(image, str) and not image.strip())
