"""A benchmark in LongCapVLCP's form: a model that sees the image puts one error late into its long caption.

    python -m examples.research.long_caption_pairs docci.jsonl --judge https://api.openai.com/v1#gpt-4o-2024-08-06 \
        --output my-pairs
    capreward bench --benchmark longcapvlcp=my-pairs --metric beitscore=my-beitscore

A pair is kept if its captions are equal up to the token where a CLIP stops reading; writing may differ anywhere. Take
another model than the one that wrote the training data. The same line goes on where one was stopped.

Source: BEiTScore, sections 4.1 and B, whose pairs all differ after CLIP's token 77, except those of scene text.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from reward.backbones.clip_tokens import CLIP_TOKENS, clip_length, first_different_token
from reward.errors import DataError
from reward.judges.loading import load_judge
from reward.metaeval.benchmarks.contrast import PAIRS_FILE
from reward.scoring.readers import open_source
from reward.training.corruptions.datasets import CaptionRows, caption_and_image
from reward.training.corruptions.rewrite_prompts import load_prompts
from reward.training.corruptions.rewrites import rewrite_captions

PROMPTS = Path(__file__).with_suffix(".yaml")
ANYWHERE = "scene text"  # the only errors that may stand before CLIP's last token


def main(argv: Sequence[str] | None = None) -> Counter[str]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="as for `capreward corrupt`, with images in files")
    parser.add_argument("--judge", required=True, help="as for `capreward corrupt`")
    parser.add_argument("--rewrite", metavar="NAMES", help="kinds of errors, as in action,counting; default: all")
    parser.add_argument("--beyond", type=int, default=CLIP_TOKENS, help="first token that may differ; default: 77")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="gets pairs.jsonl")
    options = parser.parse_args(argv)
    prompts = load_prompts(PROMPTS)
    categories = options.rewrite.split(",") if options.rewrite else list(prompts.changes)
    source = open_source(options.data)
    rows = CaptionRows(source, *caption_and_image(source, None, None))
    images = list(rows.images())
    if not all(isinstance(image, Path) for image in images):
        raise DataError(f"{options.data} holds images; save them as files and name these in a column image")
    options.output.mkdir(parents=True, exist_ok=True)
    judge = load_judge(options.judge, lazily=True)
    counts: Counter[str] = Counter()
    lines = []
    for category in categories:
        first_token = 0 if category == ANYWHERE else options.beyond
        long = [row for row, caption in enumerate(rows.captions) if clip_length(caption) > first_token]
        rewrites = rewrite_captions(
            [rows.captions[row] for row in long],
            judge,
            options.output / ".answers",
            categories=[category],
            prompts=prompts,
            images=[images[row] for row in long],
        )
        for row, negatives in zip(long, rewrites.negatives, strict=True):
            correct, incorrect = rows.captions[row], negatives[0].text if negatives else ""
            token = first_different_token(correct, incorrect)
            if not negatives or token is None or token < first_token:
                counts["left out"] += 1
                continue
            counts[category] += 1
            image = os.path.relpath(images[row], options.output)
            pair = {"image": image, "correct": correct, "incorrect": incorrect, "category": category}
            lines.append(json.dumps({**pair, "error_token": token}, ensure_ascii=False) + "\n")
    (options.output / PAIRS_FILE).write_text("".join(lines), encoding="utf-8")
    for name, count in counts.items():
        print(f"{name}: {count:,}")
    return counts


if __name__ == "__main__":
    main()
