"""How rows become what TRL's trainers read: stored ones column by column, others as they come."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reward.data.chats import as_prompt, trl_prompts
from reward.data.images import load_image, plain_image
from reward.data.samples import read_references
from reward.errors import ImageError, InvalidSampleError

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

logger = logging.getLogger(__name__)

_CELLS_AT_ONCE = 64  # that are held in memory, with encoded images


@dataclass
class PromptRows:
    """How the rows of a data set become a trainer's.

    Args:
        new_names: {column: its new name}.
        image, references: the columns of images and of references; the latter may be None.
        prompt: text or messages, of all rows.
        prompt_column: holds the prompt of each row; None for rows that have the same.
    """

    new_names: dict[str, str]
    image: str
    references: str | None
    prompt: Any
    prompt_column: str | None
    _has_warned: bool = False

    def shape_stored(self, dataset: Dataset) -> Dataset:
        """Shapes a stored data set column by column, so that images stay encoded as they are."""
        from datasets import List, Value

        dataset = self._with_readable_images(dataset)
        if self.prompt_column is None:
            prompts = [as_prompt(self.prompt)] * len(dataset)
        else:
            prompts = [as_prompt(cell) for cell in dataset[self.prompt_column]]
        counts: list[int] = []
        for cells in _undecoded_cells(dataset, self.image):
            counts += [len(_images_of(cell)) for cell in cells]
        prompts = trl_prompts(prompts, counts)

        if self.references is not None:
            # Texts, lists and None are of several types in Arrow, and a column has one.
            captions = [self._read_captions(cell) for cell in dataset[self.references]]
            dataset = dataset.remove_columns(self.references)
            dataset = dataset.add_column(self.references, captions, feature=List(Value("string")))
        for old, new in self.new_names.items():
            if new == "prompt":
                dataset = dataset.remove_columns(old)
            elif new != old:
                dataset = dataset.rename_column(old, new)
        return dataset.add_column("prompt", prompts)

    def _with_readable_images(self, dataset: Dataset) -> Dataset:
        """The rows whose images can be read, the pictures in them being what the rewards see."""
        from datasets.utils import tqdm

        dataset = self._cast_images(dataset, decode=False)
        faults: list[str | None] = []
        any_looks_different = False
        with ThreadPoolExecutor() as threads:  # Pillow decodes without Python's lock
            total = math.ceil(len(dataset) / _CELLS_AT_ONCE)
            for cells in tqdm(_undecoded_cells(dataset, self.image), total=total, desc="Checking images"):
                for cell, fault in zip(cells, threads.map(self._fault, cells), strict=True):
                    faults.append(fault)
                    if fault is None and not any_looks_different:
                        any_looks_different = any(plain_image(image) is not image for image in _images_of(cell))
        self._report(faults)
        if any(faults):
            dataset = dataset.select([row for row, fault in enumerate(faults) if fault is None])
        # Writing the column anew takes long, and stored images mostly are as processors read them.
        if any_looks_different:
            options = {"features": dataset.features, "load_from_cache_file": False}
            dataset = dataset.map(self._with_plain_images, input_columns=self.image, **options)
        return self._cast_images(dataset, decode=True)

    def _cast_images(self, dataset: Any, *, decode: bool) -> Any:
        import pyarrow as pa
        from datasets import Image, List

        feature: Any = Image(decode=decode)
        if self.new_names[self.image] == "images":
            feature = List(feature)
        try:
            return dataset.cast_column(self.image, feature)
        except (TypeError, ValueError, pa.ArrowNotImplementedError) as error:
            raise InvalidSampleError(
                f"column {self.image!r} must hold images or paths, or lists of them, got {dataset.features[self.image]}"
            ) from error

    def _with_plain_images(self, cell: Any) -> dict[str, Any]:
        if isinstance(cell, list):
            return {self.image: [plain_image(image) for image in cell]}
        return {self.image: plain_image(cell)}

    def _report(self, faults: list[str | None]) -> None:
        """Says how many rows are left out and why; raises if none is left."""
        left_out = [fault for fault in faults if fault is not None]
        if not left_out:
            return
        if len(left_out) == len(faults):
            raise InvalidSampleError(f"column {self.image!r} holds no image that can be read. The first: {left_out[0]}")
        logger.warning(
            f"{len(left_out)} of {len(faults)} rows have no image that can be read in column {self.image!r}: left out. "
            f"The first: {left_out[0]}"
        )

    def _fault(self, cell: Any) -> str | None:
        """Why a row with this cell is left out; None if its images can be read."""
        from PIL import Image

        images = _images_of(cell)
        if not images or any(map(_is_missing, images)):
            return "a row has none"
        for image in images:
            if not isinstance(image, (str, bytes, dict, Image.Image)):
                continue  # a number, say, which is no broken image: it is refused
            try:
                load_image(image)
            except ImageError as error:
                path = image.get("path") if isinstance(image, dict) else None
                if path is None or path in str(error):
                    return str(error)
                return f"{path}: {error}"
        return None

    def shape_stream(self, dataset: IterableDataset) -> IterableDataset:
        """Shapes a stream row by row; nothing is known of a row before it is read."""
        from datasets import Image

        feature = (dataset.features or {}).get(self.image)
        if isinstance(getattr(feature, "feature", feature), Image):
            dataset = self._cast_images(dataset, decode=False)  # a broken image must not end the stream
        old_names = [old for old, new in self.new_names.items() if old != new]
        return dataset.filter(self._is_readable).map(self._shape_row, remove_columns=old_names or None)

    def _is_readable(self, row: Mapping[str, Any]) -> bool:
        """Whether the row has images that can be read; says once what is left out."""
        fault = self._fault(row[self.image])
        if fault is not None and not self._has_warned:
            self._has_warned = True
            logger.warning(
                f"a row has no image that can be read in column {self.image!r}: such rows are left out. "
                f"The first: {fault}"
            )
        return fault is None

    def _shape_row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The new columns of a row."""
        cell = row[self.image]
        images = [load_image(image) for image in _images_of(cell)]
        prompt = as_prompt(self.prompt if self.prompt_column is None else row[self.prompt_column])
        columns: dict[str, Any] = {
            self.new_names[self.image]: images if isinstance(cell, (list, tuple)) else images[0],
            "prompt": trl_prompts([prompt], [len(images)])[0],
        }
        if self.references is not None:
            columns["references"] = self._read_captions(row[self.references])
        return columns

    def _read_captions(self, cell: Any) -> list[str] | None:
        try:
            return list(read_references(cell)) or None
        except InvalidSampleError as error:
            raise InvalidSampleError(
                f"column {self.references!r} must hold a list of captions or one caption, got {cell!r:.200} ({error})"
            ) from None


def _undecoded_cells(dataset: Dataset, name: str) -> Iterator[list[Any]]:
    """The cells of a column of images as Arrow holds them, dicts of bytes and path or lists of these, in parts."""
    for table in dataset.select_columns(name).with_format("arrow").iter(_CELLS_AT_ONCE):
        yield table[name].to_pylist()


def _images_of(cell: Any) -> list[Any]:
    return list(cell) if isinstance(cell, (list, tuple)) else [cell]


def _is_missing(image: Any) -> bool:
    if isinstance(image, Mapping):
        return image.get("bytes") is None and not (image.get("path") or "").strip()
    return image is None or (isinstance(image, str) and not image.strip())
