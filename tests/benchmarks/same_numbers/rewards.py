"""What rewards give as trainers call them."""

from collections import defaultdict
from statistics import fmean

from same_numbers.book import ASK, flat, part


def called(book, key, reward, count=4, kinds=None, **columns):
    """Notes what a reward gives to completions in both forms, what it logs, and what it counts."""
    names, images, captions, references = flat(count, kinds)
    completions = [[{"role": "assistant", "content": text}] for text in captions]
    question = {"type": "text", "text": ASK}
    prompts = [[{"role": "user", "content": [{"type": "image", "image": image}, question]}] for image in images]
    calls = {
        "plain": {"prompts": [ASK] * len(names), "completions": captions, "image": images, "references": references},
        "chats": {"prompts": prompts, "completions": completions, "refs": references},
        "lists": {"prompts": prompts, "completions": captions, "images": [[image] for image in images]},
        "no image": {"prompts": [ASK] * len(names), "completions": completions, "references": [None] * len(names)},
    }
    for form, call in calls.items():
        means, extra = defaultdict(list), {}
        log = {"log_metric": lambda name, value: means[name].append(value), "log_extra": extra.__setitem__}  # noqa: B023
        try:
            values = reward(**call, **columns, **log)
        except Exception as error:
            book.error(f"{key}, {form}", f"{type(error).__name__}: {error}")
            continue
        book.note(f"{key}, {form}", dict(zip(names, values, strict=True)))
        book.note(f"{key}, {form}, logged", {name: [len(means[name]), fmean(means[name])] for name in means})
        book.note(f"{key}, {form}, extra", extra)
    book.note(f"{key}, name", reward.__name__)
    book.note(f"{key}, failures", dict(getattr(reward, "failures", {})))


@part
def rewards(book):
    """All rewards that ask no judge."""
    import numpy as np

    from reward import (
        BeitScoreReward,
        CaptionSample,
        CombinedReward,
        LengthReward,
        MetricReward,
        RepetitionReward,
        VelaReward,
    )

    names, images, captions, references = flat(4, "good, rated, other, dots, long, chinese, thought")
    samples = [CaptionSample(b, a, c) for a, b, c in zip(images, captions, references, strict=True)]
    vela, beitscore = VelaReward(), BeitScoreReward()
    parts = [vela, beitscore, LengthReward(4, 60, margin=30)]
    weights = {"desc": 1, "rel": 2, "flu": 0.5}
    made = {
        "vela": vela,
        "weighted": VelaReward(weights=weights, strip_thinking=False, name="weighted"),
        "beitscore": beitscore,
        "no higher": LengthReward(high=30),
        "slopes": LengthReward(20, 60, margin=15, name="slopes"),
        "relative": LengthReward(0.5, 2.0, relative=True, margin=0.25, name="relative"),
        "words twice": RepetitionReward(1, window=20),
        "pairs twice": RepetitionReward(2, window=40, strip_thinking=False),
        "ruled": CombinedReward(parts[1:], lambda table: np.where(table[:, 1] > 0.5, table[:, 0], -1.0), name="ruled"),
        "careful": CombinedReward(["length", "unigram", LengthReward(high=40, margin=9)], weights=[0.1, 1, -0.5]),
    }
    for key, reward in made.items():
        called(book, key, reward)
        book.note(f"{key}, rewards(samples)", dict(zip(names, reward.rewards(samples), strict=True)))
    for metric in ("clipscore", "refclipscore", "unigram", "length", "bleu4", "rouge_l", "meteor", "unigram_avg"):
        called(book, metric, MetricReward(metric, device="cpu"))
    for aspect in VelaReward().aspects():
        called(book, aspect.__name__, aspect, count=2)
    for how in ("mean", "harmonic", "geometric", "product", "min"):
        called(book, how, CombinedReward(parts, how), count=2)
    called(book, "weights", CombinedReward(parts, weights=[2, 1, 0.5], name="mine"), count=2)
    called(book, "raises", MetricReward("length", on_error="raise"))
    called(book, "raises not", MetricReward("length", on_error="raise"), kinds="good, dots, empty, chinese")
    book.table("vela, score", vela.score(images, captions, references), names)
