"""What rewards give as trainers call them."""

import math

from same_numbers.book import ASK, flat, part


def called(book, key, reward, count=4, kinds=None, **columns):
    """Notes what a reward gives to completions in both forms, what it logs, and what it counts."""
    names, images, captions, references = flat(count, kinds)
    told = [[{"role": "assistant", "content": text}] for text in captions]
    question = {"type": "text", "text": ASK}
    asked = [[{"role": "user", "content": [{"type": "image", "image": image}, question]}] for image in images]
    calls = {
        "plain": {"prompts": [ASK] * len(names), "completions": captions, "image": images, "references": references},
        "chats": {"prompts": asked, "completions": told, "refs": references},
        "lists": {"prompts": asked, "completions": captions, "images": [[image] for image in images]},
        "no image": {"prompts": [ASK] * len(names), "completions": told, "references": [None] * len(names)},
    }
    for form, call in calls.items():
        logged = {}
        extra = {}

        def log_metric(name, value, logged=logged):
            logged.setdefault(name, []).append(value)

        try:
            given = reward(**call | columns, log_metric=log_metric, log_extra=extra.__setitem__)
        except Exception as error:
            book.error(f"{key}, {form}", f"{type(error).__name__}: {error}")
            continue
        book.note(f"{key}, {form}", dict(zip(names, given, strict=True)))
        book.note(
            f"{key}, {form}, logged", {name: [len(each), math.fsum(each) / len(each)] for name, each in logged.items()}
        )
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
    weighted = VelaReward(weights={"desc": 1, "rel": 2, "flu": 0.5}, strip_thinking=False, name="weighted")
    for key, reward in {"vela": vela, "weighted": weighted, "beitscore": beitscore}.items():
        called(book, key, reward)
    for metric in ("clipscore", "refclipscore", "unigram", "length", "bleu4", "rouge_l", "meteor", "unigram_avg"):
        called(book, metric, MetricReward(metric, device="cpu"))
    for aspect in VelaReward().aspects():
        called(book, aspect.__name__, aspect, count=2)
    together = VelaReward(name="together").aspects()
    call = {"prompts": [ASK] * len(names), "completions": captions, "image": images}
    book.note("aspects of one call", {aspect.__name__: aspect(**call) for aspect in together})
    parts = [vela, beitscore, LengthReward(4, 60, margin=30)]
    for how in ("mean", "harmonic", "geometric", "product", "min"):
        called(book, how, CombinedReward(parts, how), count=2)
    called(book, "weights", CombinedReward(parts, weights=[2, 1, 0.5], name="mine"), count=2)
    ruled = CombinedReward(parts[1:], lambda table: np.where(table[:, 1] > 0.5, table[:, 0], -1.0), name="ruled")
    texts = {
        "no higher": LengthReward(high=30),
        "slopes": LengthReward(20, 60, margin=15, name="slopes"),
        "relative": LengthReward(0.5, 2.0, relative=True, margin=0.25, name="relative"),
        "words twice": RepetitionReward(1, window=20),
        "pairs twice": RepetitionReward(2, window=40, strip_thinking=False),
        "ruled": ruled,
        "careful": CombinedReward(["length", "unigram", LengthReward(high=40, margin=9)], weights=[0.1, 1, -0.5]),
    }
    for key, reward in texts.items():
        called(book, key, reward)
    for key, reward in {"vela": vela, "beitscore": beitscore, **texts}.items():
        book.note(f"{key}, rewards(samples)", dict(zip(names, reward.rewards(samples), strict=True)))
    book.table("vela, score", vela.score(images, captions, references), names)
    own = VelaReward(references_column="truths", image_column="shot", name="own")
    book.note("own columns", own([ASK] * len(names), captions, shot=images, truths=references, references=captions))
    called(book, "raises", MetricReward("length", on_error="raise"))
    called(book, "raises not", MetricReward("length", on_error="raise"), kinds="good, dots, empty, chinese")
    called(book, "by ones", MetricReward("clipscore", batch_size=1, name="by_ones"), count=2)
