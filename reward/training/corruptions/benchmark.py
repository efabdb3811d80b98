"""Makes a benchmark in LongCapVLCP's form: a model that sees the image puts one error late into its long caption."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.backbones.clip_tokens import CLIP_TOKENS, clip_length, first_different_token
from reward.errors import ImageError, OutputError
from reward.images import image_key, load_image
from reward.metaeval.benchmarks.longcapvlcp import PAIRS_FILE
from reward.samples import is_blank
from reward.training.corruptions.prompts import BENCHMARK_PROMPTS, RewritePrompts, load_prompts
from reward.training.corruptions.rewrites import rewrite_captions

if TYPE_CHECKING:
    from datasets import Dataset

    from reward.judges import Judge
    from reward.samples import ImageLike

# The categories of LongCapVLCP in the BEiTScore paper. Pairs built here share its form, not its sources or size.
LONGCAPVLCP_CATEGORIES = ("actant swap", "action", "counting", "noun/adjective", "spatial relation", "scene text")
_ANYWHERE = "scene text"  # the only errors that may be before CLIP's last token


@dataclass(frozen=True)
class PairBuild:
    """Pairs that `build_pairs` built.

    Args:
        pairs: a data set with the columns image, correct, incorrect, category and error_token.
        kept: {category: number of pairs}.
        dropped: {reason: number of rows}.
    """

    pairs: Dataset
    kept: dict[str, int]
    dropped: dict[str, int]


def make_pairs_benchmark(
    captions: Sequence[str],
    images: Sequence[ImageLike],
    judge: Judge,
    folder: str | os.PathLike[str],
    *,
    categories: Collection[str] = LONGCAPVLCP_CATEGORIES,
    prompts: RewritePrompts | None = None,
    beyond: int = CLIP_TOKENS,
    progress: bool = False,
) -> PairBuild:
    """Has a judge rewrite captions, looking at the images, and writes the pairs that `capreward bench` reads.

    The judge is asked once for each caption and category, and not where the caption ends before token `beyond`. Its
    answers are kept in the folder, so that the same call goes on where one was stopped.

    Args:
        captions: N correct captions.
        images: the image of each.
        judge: a vision-language model; another one than wrote the data that a metric was trained on.
        folder: gets `pairs.jsonl` and the images.
        categories: of `prompts`.
        prompts: None takes `BENCHMARK_PROMPTS`, whose categories are LongCapVLCP's.
        beyond: first token of CLIP at which captions may differ; errors of scene text may be anywhere.
        progress: whether to show a bar on stderr.

    Returns:
        The pairs, and counts of those that were kept and dropped. A folder without pairs is not written.

    Source: BEiTScore, sections 4.1 and B.
    """
    folder, prompts = Path(folder), prompts or load_prompts(BENCHMARK_PROMPTS)
    if (folder / PAIRS_FILE).exists():
        raise OutputError(f"{folder / PAIRS_FILE} exists already; name another folder")
    lengths = [clip_length(caption) if _readable(image) else 0 for caption, image in zip(captions, images, strict=True)]
    written: dict[tuple[int, str], str] = {}
    for category in categories:
        least = 0 if category == _ANYWHERE else beyond
        asked = [place for place, length in enumerate(lengths) if length > least]
        found = rewrite_captions(
            [captions[place] for place in asked],
            judge,
            folder / ".answers",
            categories=[category],
            prompts=prompts,
            images=[images[place] for place in asked],
            progress=progress and bool(asked),
        ).negatives
        pairs = [(place, negatives[0].text) for place, negatives in zip(asked, found, strict=True) if negatives]
        written |= {(place, category): text for place, text in pairs}
    rows = (
        {"image": image, "correct": caption, "incorrect": written.get((place, category)), "category": category}
        for category in categories
        for place, (caption, image) in enumerate(zip(captions, images, strict=True))
    )
    built = build_pairs(rows, beyond=beyond)
    if len(built.pairs):
        write_pairs(built.pairs, folder)
    return built


def build_pairs(rows: Iterable[Mapping[str, Any]], *, beyond: int = CLIP_TOKENS, exempt: str = _ANYWHERE) -> PairBuild:
    """Builds pairs in LongCapVLCP's form, with one error each, past the text that a CLIP reads.

    A pair is kept only if its captions are equal up to token `beyond` of open_clip's tokenizer, counted from 0 at the
    start token.

    Source: the BEiTScore paper, whose pairs all differ after CLIP token 77, except those of scene text.

    Args:
        rows: mappings with image (as for `load_image`), correct (a caption), incorrect (the caption with an error, or
            None if there is none) and category (of the error).
        beyond: first token at which captions may differ; 0 keeps every pair.
        exempt: category whose errors may be anywhere.

    Example:
        >>> from PIL import Image
        >>> row = {"image": Image.new("RGB", (8, 8)), "correct": "A red star lies on a beach.", "category": "action"}
        >>> built = build_pairs([{**row, "incorrect": "A red star rolls on a beach."}] * 2, beyond=4)
        >>> built.kept, built.pairs[0]["incorrect"], built.pairs[0]["error_token"]
        ({'action': 2}, 'A red star rolls on a beach.', 4)
    """
    from datasets import Dataset, Features, Image, Value

    texts = {name: Value("string") for name in ("correct", "incorrect", "category")}
    kept: list[dict[str, Any]] = []
    dropped: Counter[str] = Counter()
    for row in rows:
        least = 0 if row["category"] == exempt else beyond
        token = first_different_token(row["correct"], row["incorrect"] or "")
        if not _readable(row["image"]):
            dropped["image cannot be read"] += 1
        elif clip_length(row["correct"]) <= least:
            dropped[f"caption ends before token {least}"] += 1
        elif is_blank(row["incorrect"] or ""):
            dropped["no incorrect caption"] += 1
        elif token is None:
            dropped["caption left unchanged"] += 1
        elif token < least:
            dropped[f"error before token {least}"] += 1
        else:
            kept.append({**row, "image": _stored(row["image"]), "error_token": token})
    features = Features({"image": Image(), **texts, "error_token": Value("int64")})
    columns = {name: [row[name] for row in kept] for name in features}
    return PairBuild(Dataset.from_dict(columns, features=features), dict(Counter(columns["category"])), dict(dropped))


def write_pairs(pairs: Dataset, folder: str | os.PathLike[str]) -> Path:
    """Writes `pairs.jsonl`, one pair per line, and the images that it names, each once, into a folder.

    Encoded images are copied byte for byte.

    Args:
        pairs: from `build_pairs` or `reward.scenes.make_pair_dataset`: the column image, and columns of plain values.
        folder: made if absent.

    Returns:
        Path of `pairs.jsonl`, which `load_benchmark("longcapvlcp", folder)` reads.
    """
    from datasets import Image
    from PIL import Image as PilImage

    folder = Path(folder)
    path = folder / PAIRS_FILE
    if path.exists():
        raise OutputError(f"{path} exists already; name another folder")
    try:
        (folder / "images").mkdir(parents=True, exist_ok=True)
        lines = []
        for row in pairs.cast_column("image", Image(decode=False)):
            data = row["image"]["bytes"] or Path(row["image"]["path"]).read_bytes()
            with PilImage.open(BytesIO(data)) as opened:
                name = f"images/{image_key(data)[:16]}.{str(opened.format).lower()}"
            if not (folder / name).exists():
                (folder / name).write_bytes(data)
            lines.append(json.dumps({**row, "image": name}, ensure_ascii=False))
        unfinished = path.with_name(path.name + ".partial")
        unfinished.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        os.replace(unfinished, path)
    except OSError as error:
        raise OutputError(f"pairs cannot be written to {str(folder)!r}: {error.strerror or error}") from error
    return path


def _stored(image: Any) -> Any:
    """A readable image as a `datasets.Image` column takes it; an encoded one stays encoded."""
    if isinstance(image, (str, os.PathLike)):
        return os.path.abspath(os.fsdecode(image))
    if isinstance(image, (bytes, bytearray, memoryview)):
        return {"bytes": bytes(image), "path": None}
    if isinstance(image, dict):
        return {"bytes": image.get("bytes"), "path": image.get("path")}
    return load_image(image)


def _readable(image: ImageLike) -> bool:
    try:
        load_image(image)
    except ImageError:
        return False
    return True
