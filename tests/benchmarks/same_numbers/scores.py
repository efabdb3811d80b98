"""What `scorer.score` gives: shipped weights, forms of data, checkpoints made here."""

from same_numbers.book import RUN, attempt, flat, part, scenes
from same_numbers.toys import toy


def scored(book, metric, *source, count=None, key="", **options):
    """Notes the scores of all captions with references, and without where the metric needs none."""
    from reward import load_scorer

    scorer = load_scorer(metric, *source, device="cpu", **options)
    if scorer.spec.needs_corpus:
        scorer = scorer.fit([scene["references"] for scene in scenes()])
    names, images, captions, references = flat(count)
    key = key or metric
    book.table(f"{key}, references", scorer.score(images, captions, references=references), names)
    if not scorer.spec.needs_references:
        book.table(f"{key}, none", scorer.score(images, captions), names)


@part
def embedded(book):
    """Every metric with shipped weights, or none, on all captions."""
    from reward import list_metrics, metric_spec

    for metric in list_metrics():
        spec = metric_spec(metric)
        book.note(f"spec of {metric}", [*spec.aspects, *spec.range, spec.needs_image, spec.needs_references])
        if (spec.has_embedded or spec.needs_corpus) and metric != "spice":  # which needs Stanford CoreNLP's models
            scored(book, metric)
    for metric in ("vela", "beitscore", "clipscore", "refclipscore", "unigram", "length", "bleu4"):
        scored(book, f"{metric}_avg", count=3)


@part
def forms(book):
    """The same data in some forms that `score` takes, and in batches of other sizes."""
    from datasets import Dataset

    from reward import CaptionSample, load_scorer

    _, images, captions, references = flat(3, "good, rated, other, dots, long, chinese, again, thought")
    rows = [{"image": a, "caption": b, "refs": c} for a, b, c in zip(images, captions, references, strict=True)]
    for metric in ("vela", "beitscore", "refclipscore", "unigram", "rouge_l", "length"):
        scorer = load_scorer(metric, device="cpu")
        data = {
            "dicts": (rows,),
            "samples": ([CaptionSample(row["caption"], row["image"], row["refs"]) for row in rows],),
            "dataset": (Dataset.from_list(rows),),
            "one image": (images[0], captions[:8], references[0]),
        }
        for form, values in data.items():
            book.table(f"{metric}, {form}", scorer.score(*values))
        for size in (1, 3, 1000):
            book.table(f"{metric}, {size} at a time", scorer.score(images, captions, references, batch_size=size))
        scorer.save_pretrained(RUN.folder / f"saved {metric}")
        book.table(f"{metric}, saved", load_scorer(metric, RUN.folder / f"saved {metric}", device="cpu").score(rows))


@part
def checkpoints(book):
    """Metrics that come without weights, on small random ones."""
    from tests.toys.toy_clips import TYPES

    chosen = []  # metric, checkpoint, number of images, options
    for kind in TYPES:
        for metric in ("siglipscore", "clipscore") if kind.startswith("siglip") else ("clipscore", "refclipscore"):
            chosen.append((metric, kind, 8, {}))
    chosen += [(name, "open clip", 8, {}) for name in ("clipscore", "refclipscore", "pacscore", "refpacscore")]
    chosen += [
        ("pacscore_avg", "open clip", 3, {}),
        ("longclipscore", "clip of 248 tokens", 8, {}),
        ("clipscore", "clip", 2, {"prefix": ""}),
        ("bertscore", "bert", 6, {"layer": 2}),
        ("bertscore", "bert", 2, {"layer": 1}),
        ("crossencoder", "reranker", 6, {}),
        ("crossencoder", "reranker", 2, {"activation": "none"}),
        ("vlmreward", "reward model", 4, {}),
        ("vlmreward", "reward model", 2, {"prompt": "What is there?"}),
    ]
    for metric, kind, count, options in chosen:
        key = f"{metric} of {kind} {options or ''}".strip()
        attempt(book, key, lambda: scored(book, metric, toy(kind), count=count, key=key, **options))  # noqa: B023
