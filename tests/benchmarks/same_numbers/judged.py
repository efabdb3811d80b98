"""Metrics and rewards that ask a judge: one that is scripted, small models made here, and one behind a server."""

import math
import zlib

from same_numbers.book import RUN, attempt, flat, part
from same_numbers.files import note_run, write_lines
from same_numbers.rewards import called
from same_numbers.toys import toy

SHORT = "good, rated, other, first, backwards, chinese, emoji, word"  # a byte is a token of the toys, which are slow
KINDS = "good, rated, other, dots, empty, long, chinese, thought"
RUBRIC = [{"criterion": "It names a star.", "weight": 3}, "It is short.", {"criterion": "It is wrong.", "weight": -1}]
QUESTIONS = [
    {"question": "What is in the sky?", "answer": "moon", "choices": ["sun", "moon", "star"]},
    {"question": "Is there a heart?", "answer": "yes", "weight": 2},
    {"question": "What does the sign say?", "answer": "EXIT"},
]
OWN = {"ask": "Rate it: {caption} Known: {references}", "pattern": "Score: {number}", "scale": "1:5"}


def chance(*words):
    """A number from 0 to 1 that these words always have."""
    return zlib.crc32(repr(words).encode()) / 2**32


def words_of(question):
    """All that a judge is told."""
    pixels = question.image.tobytes() if hasattr(question.image, "tobytes") else question.image
    return question.turns(), zlib.crc32(pixels) if isinstance(pixels, bytes) else str(pixels), question.seed


def scripted(form):
    """A judge whose answers in this form, {n} a number from 0 to 99, are drawn by what it is told."""
    from reward.judges import Answer, ScriptedJudge

    def likely(question):
        words = words_of(question)
        return {token: 0.02 + 0.05 * chance(words, token) for token in [*"0123456789ABCDEFG", "Yes", "No"]}

    def answer(question):
        words = words_of(question)
        number, grade = int(100 * chance(words)), 1 + int(5 * chance(words, 1))
        text = form.format(n=f"{number:02}", d=grade, y="Yes" if number < 50 else "No")
        logs = []
        for position, token in enumerate(text):
            logs.append({token: 0.0})
            if token.isdigit() and position:
                weights = {digit: chance(words, position, digit) for digit in "0123456789"}
                logs[-1] = {digit: math.log(weight / sum(weights.values())) for digit, weight in weights.items()}
        return Answer(text, (*text, "</s>"), (*logs, {"</s>": math.log(0.75), "5": math.log(0.25)}))

    return ScriptedJudge(answer, likely)


def judged(book, key, metric, judge, count, kinds=KINDS, **options):
    """Notes the scores of captions with references, criteria and questions."""
    from reward import CaptionSample, load_scorer

    def write():
        names, images, captions, references = flat(count, kinds)
        columns = {"rubric": RUBRIC, "questions": QUESTIONS}
        rows = zip(names, images, captions, references, strict=True)
        samples = {name: CaptionSample(c, image, r, columns=columns) for name, image, c, r in rows if c}
        book.table(key, load_scorer(metric, judge, **options).score(list(samples.values())), list(samples))

    attempt(book, key, write)


@part
def judged_scripted(book):
    """Each metric and its options, with answers that depend on every word that the judge is told."""
    words = scripted("0.{n}")
    chosen = {
        "fleur": ("fleur", words, {}),
        "fleur, no references": ("fleur", words, {"use_references": False}),
        "fleur, draws": ("fleur", words, {"draws": 3, "temperature": 0.5, "seed": 2}),
        "fleur, explanation": ("fleur", words, {"explain": True, "pad_images": True}),
        "harmoniceval": ("harmoniceval", words, {}),
        "harmoniceval, two": ("harmoniceval", words, {"gamma": 0.5, "criteria": ["fluency", "correctness"]}),
        "harmoniceval, one rating": ("harmoniceval", words, {"criteria": ["overall"]}),
        "harmoniceval, referring": ("harmoniceval", words, {"task": "referring", "max_characters": 100}),
        "vqascore": ("vqascore", words, {}),
        "clair": ("clair", scripted('Well. {{"score": 7.{n}, "reason": "so"}}'), {}),
        "judge": ("judge", words, {}),
        "judge, yes": ("judge", words, {"prompt": "yes"}),
        "judge, grade100": ("judge", scripted("{n}"), {"prompt": "grade100"}),
        "judge, own": ("judge", scripted("I see. Score: {d}"), {"prompt": OWN}),
        "judge, two": ("judge", [scripted("Score: {d}"), scripted("Score: 2")], {"prompt": OWN, "sees_image": False}),
        "rubric": ("rubric", words, {}),
        "questions": ("questions", scripted("{y}"), {}),
        "questions, image": ("questions", scripted("{d} moons"), {"sees_image": True}),
    }
    for key, (metric, judge, options) in chosen.items():
        judged(book, key, metric, judge, 16, **options)


@part
def judged_local(book):
    """Small vision-language models of this machine."""
    decimals, grades, words = (toy(f"judge of {kind}") for kind in ("decimals", "grades", "words"))
    judged(book, "fleur", "fleur", decimals, 3, SHORT)
    judged(book, "harmoniceval", "harmoniceval", grades, 3, SHORT)
    judged(book, "judge", "judge", grades, 3, SHORT)
    judged(book, "judge, mean of two", "judge", f"{words},{grades}", 2, SHORT)
    judged(book, "rubric of words", "rubric", words, 3, SHORT, max_characters=300)
    for metric in ("vqascore", "questions"):
        judged(book, f"{metric} of words", metric, words, 3, SHORT)


@part
def judged_server(book):
    """The same model behind chat completions on the loopback interface."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from tests.toys.loopback_judge import loopback_judge

    for kind, metrics in {"words": ("vqascore", "rubric"), "decimals": ("fleur",)}.items():
        folder = toy(f"judge of {kind}")
        model = AutoModelForImageTextToText.from_pretrained(folder).eval()
        with loopback_judge(model, AutoProcessor.from_pretrained(folder)) as server:
            for metric in metrics:
                judged(book, f"{metric} of {kind}", metric, f"{server.endpoint}#tiny", 2, SHORT)


@part
def judged_rewards(book):
    """The rewards that ask a judge, `TournamentReward` among them."""
    from reward import CombinedReward, FleurReward, HarmonicReward, MetricReward, TournamentReward

    words = scripted("0.{n}")
    columns = {"rubric": [RUBRIC] * 8 * 3, "questions": [QUESTIONS] * 8 * 3}
    chosen = {
        "fleur": FleurReward(words),
        "fleur, both": FleurReward(words, {"smoothed": 1, "raw": 2}, name="both"),
        "harmonic": HarmonicReward(words),
        "harmonic, weights": HarmonicReward(words, {"fluency": 1, "clarity": 3}, gamma=0.2, name="clear"),
        "judge": MetricReward("judge", words),
        "vqascore": MetricReward("vqascore", words),
        "clair": MetricReward("clair", scripted('{{"score": 7.{n}}}')),
        "rubric": MetricReward("rubric", words),
        "questions": MetricReward("questions", scripted("{y}")),
        "rubric and more": CombinedReward([MetricReward("rubric", words), "unigram"], "harmonic"),
        "tournament": TournamentReward(words),
        "tournament, few": TournamentReward(words, max_comparisons=5, seed=3, name="few"),
        "tournament, model": TournamentReward(toy("judge of pairs"), max_comparisons=6),
    }
    for key, reward in chosen.items():
        attempt(book, key, lambda: called(book, key, reward, 3, KINDS, **columns))  # noqa: B023
    for aspect in HarmonicReward(words, name="apart").aspects():
        called(book, aspect.__name__, aspect, 1, KINDS, rubric=columns["rubric"][:8])


@part
def judged_files(book):
    """`capreward score` with judges, and `rerank`."""
    folder = RUN.folder / "files"
    folder.mkdir(exist_ok=True)
    names, images, captions, references = flat(3, "good, rated, empty, dots, chinese")
    rows = []
    for name, image, caption, texts in zip(names, images, captions, references, strict=True):
        file = f"j{name.split()[0]}.png"
        image.save(folder / file)
        cells = {"rubric": RUBRIC, "questions": QUESTIONS}
        rows.append({"image": file, "caption": caption, "references": texts, **cells})
    write_lines(folder / "judged.jsonl", rows)
    judge, grades, decimals = toy("judge of words"), toy("judge of grades"), toy("judge of decimals")
    several = [word for name in ("rubric", "questions", "vqascore") for word in ("-m", f"{name}={judge}")]
    runs = {
        "judged several.jsonl": ("score", "judged.jsonl", *several),
        "judged fleur.jsonl": ("score", "judged.jsonl", "-m", f"fleur={decimals}", "-m", f"harmoniceval={grades}"),
        "judged ranked.jsonl": ("rerank", "judged.jsonl", "-m", f"judge={judge}", "--set", "prompt=yes"),
    }
    for output, line in runs.items():
        attempt(book, output, lambda: note_run(book, *line, output=output))  # noqa: B023
