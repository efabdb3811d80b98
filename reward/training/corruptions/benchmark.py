"""Makes a benchmark in LongCapVLCP's form: a model that sees the image puts one error late into its long caption."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reward.backbones.clip_tokens import CLIP_TOKENS, clip_length
from reward.errors import ImageError, OutputError
from reward.images import load_image
from reward.metaeval.benchmarks.longcapvlcp import (
    LONGCAPVLCP_CATEGORIES,
    PAIRS_FILE,
    PairBuild,
    build_pairs,
    write_pairs,
)
from reward.training.corruptions.prompts import BENCHMARK_PROMPTS, RewritePrompts, load_prompts
from reward.training.corruptions.rewrites import rewrite_captions

if TYPE_CHECKING:
    from reward.judges import Judge
    from reward.samples import ImageLike

__all__ = ["make_pairs_benchmark"]

_ANYWHERE = "scene text"  # the only errors that may be before CLIP's last token


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

    Raises:
        OutputError: the folder holds pairs already.
        ConfigError, JudgeError, ImageError: see `rewrite_captions`.

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
    built = build_pairs(rows, beyond=beyond, exempt=[_ANYWHERE])
    if len(built.pairs):
        write_pairs(built.pairs, folder)
    return built


def _readable(image: ImageLike) -> bool:
    try:
        load_image(image)
    except ImageError:
        return False
    return True
