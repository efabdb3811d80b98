"""BeitScoreTokenizer: captions to padded token ids, with `beit3.spm` or a `tokenizer.json`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from reward.backbones.language import CaptionIds, PlainTextEncoder, pad_rows
from reward.backbones.pretrained import read_tokenizer
from reward.errors import CheckpointError

SPM_FILE = "beit3.spm"
FAST_FILE = "tokenizer.json"

# XLM-R numbers its tokens as fairseq: four control tokens come first, and the pieces of the sentencepiece file follow
# one place later than in that file, which begins with <unk>, <s> and </s>.
_START, _PAD, _END, _UNKNOWN = range(4)
_SPM_HEAD = ("<unk>", "<s>", "</s>")
_SHIFT = 1


class BeitScoreTokenizer:
    """Start token, caption, end token, padding on the right; see `reward.backbones.language.CaptionIds`.

    Control tokens written in a caption stay text.

    Args:
        encode: gives the ids of a text without start and end token; it must not parse control tokens.
        save: writes the file that `from_folder` reads into an existing folder; it becomes a method.
        start, end, pad: ids of the three tokens.
        size: number of tokens.
        max_tokens: longest row, start and end included: a configuration's `max_text_tokens`.
    """

    def __init__(
        self,
        encode: Callable[[str], list[int]],
        save: Callable[[Path], Any],
        *,
        start: int,
        end: int,
        pad: int,
        size: int,
        max_tokens: int,
    ) -> None:
        if max_tokens < 3:
            raise ValueError(f"max_tokens must be at least 3 (start, one token, end), got {max_tokens}")
        self.start, self.end, self.pad, self.size, self.max_tokens = start, end, pad, size, max_tokens
        self._ids = CaptionIds(encode, start=start, end=end, most_tokens=max_tokens)
        self.save = save

    @classmethod
    def from_spm(cls, path: str | os.PathLike[str], *, max_tokens: int = 1022) -> BeitScoreTokenizer:
        """From BEiT-3's sentencepiece file, `beit3.spm`, numbered as in XLM-R.

        Args:
            path: the file.
            max_tokens: see the class.

        Raises:
            CheckpointError: the file is missing or damaged, or its control pieces are not those of XLM-R.
        """
        encode = _SpmEncoder(path)
        size = encode.pieces + _SHIFT
        return cls(encode, encode.save, start=_START, end=_END, pad=_PAD, size=size, max_tokens=max_tokens)

    @classmethod
    def from_fast(cls, tokenizer: Any, *, max_tokens: int) -> BeitScoreTokenizer:
        """From a `PreTrainedTokenizerFast` with start (bos), end (eos) and padding tokens.

        Args:
            tokenizer: is not changed.
            max_tokens: see the class.

        Raises:
            CheckpointError: one of the three tokens is not set.
        """
        ids = {name: getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
        absent = [name for name, token in ids.items() if token is None]
        if absent:
            names = ", ".join(f"{name}_token" for name in absent)
            raise CheckpointError(f"BEiTScore's tokenizer needs {names}, which tokenizer_config.json sets")
        return cls(
            PlainTextEncoder(tokenizer),
            tokenizer.save_pretrained,
            start=ids["bos"],
            end=ids["eos"],
            pad=ids["pad"],
            size=len(tokenizer),
            max_tokens=max_tokens,
        )

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str], *, max_tokens: int) -> BeitScoreTokenizer:
        """From the tokenizer file of a checkpoint folder: `beit3.spm` or `tokenizer.json`.

        Raises:
            CheckpointError: the folder holds neither or both, or the file cannot be read.
        """
        folder = Path(folder)
        files = [name for name in (SPM_FILE, FAST_FILE) if (folder / name).is_file()]
        if len(files) != 1:
            raise CheckpointError(
                f"{str(folder)!r} must hold one of {SPM_FILE} and {FAST_FILE}, found {' and '.join(files) or 'neither'}"
            )
        if files == [SPM_FILE]:
            return cls.from_spm(folder / SPM_FILE, max_tokens=max_tokens)
        return cls.from_fast(read_tokenizer(folder), max_tokens=max_tokens)

    def __call__(self, captions: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor, list[bool]]:
        """Token ids of captions.

        Returns:
            Ids (B, L), int64, L the longest of these captions; padding (B, L), bool, True where padding is; and for
            each caption whether it was cut.
        """
        rows, cut = self.encode(captions)
        ids, padding = self.pad_rows(rows)
        return ids, padding, cut

    def encode(self, captions: Sequence[str]) -> tuple[list[list[int]], list[bool]]:
        """Ids of each caption with start and end token, unpadded, and whether it was cut."""
        pairs = [self._ids(caption) for caption in captions]
        return [ids for ids, _ in pairs], [cut for _, cut in pairs]

    def pad_rows(self, rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and padding (B, L) of rows of ids."""
        ids, mask = pad_rows(rows, value=self.pad)
        return ids, mask == 0


class _SpmEncoder:
    """Text to the ids of XLM-R by a sentencepiece file, which never finds control pieces in a text."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        from sentencepiece import SentencePieceProcessor

        try:
            self.content = Path(path).read_bytes()
        except OSError as error:
            raise CheckpointError(f"sentencepiece file {str(path)!r} cannot be read: {error}") from error
        try:
            self.processor = SentencePieceProcessor(model_proto=self.content)
            self.pieces = self.processor.get_piece_size()
            head = tuple(self.processor.id_to_piece(row) for row in range(min(len(_SPM_HEAD), self.pieces)))
        except (RuntimeError, OSError, ValueError) as error:
            raise CheckpointError(f"{str(path)!r} is not a readable sentencepiece file: {error}") from error
        if head != _SPM_HEAD:
            raise CheckpointError(
                f"{str(path)!r} is not numbered as beit3.spm is: its first pieces are {', '.join(head) or 'none'}, "
                f"not {', '.join(_SPM_HEAD)}"
            )

    def __call__(self, text: str) -> list[int]:
        return [piece + _SHIFT if piece else _UNKNOWN for piece in self.processor.encode(text)]

    def save(self, folder: Path) -> None:
        (folder / SPM_FILE).write_bytes(self.content)
