"""Makes a benchmark in LongCapVLCP's form: a model that sees the image puts one error late into its long caption."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.backbones.clip_tokens import CLIP_TOKENS, clip_length, first_different_token
from reward.data.images import encoded_image, image_key
from reward.errors import OutputError
from reward.metaeval.benchmarks.contrast import PAIRS_FILE
from reward.scoring.writers import write_atomically, write_text
from reward.training.corruptions.prompts import BENCHMARK_PROMPTS, RewritePrompts, load_prompts
from reward.training.corruptions.rewrites import rewrite_captions

if TYPE_CHECKING:
    from reward.data.samples import ImageLike
    from reward.judges import Judge

_ANYWHERE = "scene text"  # the only errors that may be before CLIP's last token


@dataclass(frozen=True)
class PairBuild:
    """What `make_pairs_benchmark` made.

    Args:
        kept: {category: number of pairs}.
        dropped: {reason: number of pairs}.
    """

    kept: dict[str, int]
    dropped: dict[str, int]


def make_pairs_benchmark(
    captions: Sequence[str],
    images: Sequence[ImageLike],
    judge: Judge,
    folder: str | os.PathLike[str],
    *,
    categories: Collection[str] = (),
    prompts: RewritePrompts | None = None,
    beyond: int = CLIP_TOKENS,
    progress: bool = False,
) -> PairBuild:
    """Has a judge rewrite captions, looking at the images, and writes the pairs that `capreward bench` reads.

    A pair is kept only if its captions are equal up to token `beyond` of open_clip's tokenizer, counted from 0 at the
    start token. The judge is asked once for each caption and category, and not where the caption ends before that
    token. Its answers are kept in the folder, so that the same call goes on where one was stopped.

    Args:
        captions: N correct captions.
        images: the image of each, which can be read.
        judge: a vision-language model; another one than wrote the data that a metric was trained on.
        folder: gets `pairs.jsonl` and the images.
        categories: of `prompts`; none takes all.
        prompts: None takes `BENCHMARK_PROMPTS`, whose categories are LongCapVLCP's.
        beyond: first token of CLIP at which captions may differ; errors of scene text may be anywhere.
        progress: whether to show a bar on stderr.

    Returns:
        Counts of the pairs that were kept and dropped. A folder without pairs is not written.

    Source: BEiTScore, sections 4.1 and B, whose pairs all differ after CLIP token 77, except those of scene text.
    """
    folder, prompts = Path(folder), prompts or load_prompts(BENCHMARK_PROMPTS)
    if (folder / PAIRS_FILE).exists():
        raise OutputError(f"{folder / PAIRS_FILE} exists already; name another folder")
    lengths = list(map(clip_length, captions))
    pairs: list[tuple[int, dict[str, Any]]] = []
    dropped: Counter[str] = Counter()
    for category in categories or prompts.changes:
        least = 0 if category == _ANYWHERE else beyond
        asked = [place for place, length in enumerate(lengths) if length > least]
        dropped[f"caption ends before token {least}"] += len(lengths) - len(asked)
        found = rewrite_captions(
            [captions[place] for place in asked],
            judge,
            folder / ".answers",
            categories=[category],
            prompts=prompts,
            images=[images[place] for place in asked],
            progress=progress and bool(asked),
        ).negatives
        for place, negatives in zip(asked, found, strict=True):
            wrong = negatives[0].text if negatives else ""
            token = first_different_token(captions[place], wrong)
            if not negatives:
                dropped["no incorrect caption"] += 1
            elif token is None:
                dropped["caption left unchanged"] += 1
            elif token < least:
                dropped[f"error before token {least}"] += 1
            else:
                row = {"correct": captions[place], "incorrect": wrong, "category": category, "error_token": token}
                pairs.append((place, row))
    if pairs:
        files = {place: _copy(images[place], folder) for place in dict.fromkeys(place for place, _ in pairs)}
        lines = [json.dumps({"image": files[place], **row}, ensure_ascii=False) for place, row in pairs]
        write_text(folder / PAIRS_FILE, "".join(f"{line}\n" for line in lines))
    kept = Counter(row["category"] for _, row in pairs)
    return PairBuild(dict(kept), dict(+dropped))


def _copy(image: ImageLike, folder: Path) -> str:
    """Writes an image into a folder, an encoded one byte for byte; returns its name there."""
    from PIL import Image

    data = encoded_image(image)
    with Image.open(BytesIO(data)) as opened:
        name = f"images/{image_key(data)[:16]}.{str(opened.format).lower()}"
    if not (folder / name).exists():
        (folder / "images").mkdir(exist_ok=True)
        write_atomically(folder / name, partial(Path.write_bytes, data=data))
    return name
