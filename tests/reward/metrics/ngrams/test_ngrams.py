"""N-gram metrics beside the package and by hand, the words they count, and what is said where something is missing."""

import gzip
import importlib.util
import random
import re
import shutil
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from reward import CaptionSample, load_scorer
from reward.errors import MissingExtraError
from reward.metrics.base import fitted
from reward.metrics.ngrams import SPECS, meteor
from reward.metrics.ngrams import java as programs
from reward.metrics.ngrams.java import tokenize
from tests.contract import SAMPLES, ScorerContract

pytestmark = pytest.mark.slow

has_package = importlib.util.find_spec("pycocoevalcap") is not None
java = pytest.mark.skipif(not (has_package and shutil.which("java")), reason="needs pycocoevalcap and a Java runtime")
PUBLISHED = {"bleu4": 30.8, "rouge_l": 32.3, "cider": 43.9}  # tau-c x 100 in table 1 of FLEUR's paper


@pytest.fixture(scope="module", autouse=True)
def empty_table(tmp_path_factory):
    """METEOR reads its 60 MB of paraphrases for ten seconds; here it has none."""
    table = tmp_path_factory.mktemp("meteor") / "none.gz"
    table.write_bytes(gzip.compress(b""))
    if has_package:
        [folder] = importlib.util.find_spec("pycocoevalcap.meteor").submodule_search_locations
        assert (Path(folder) / meteor.PARAPHRASES).is_file()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meteor, "PARAPHRASES", str(table))
        patch.setattr(meteor, "_programs", {})
        yield
        for program in meteor._programs.values():
            program.close()


@java
class TestNgrams(ScorerContract):
    """BLEU-4 stands for the four orders; SPICE has models that nobody has here."""

    @pytest.fixture(scope="class", params=["bleu4", "rouge_l", "meteor", "cider"])
    @classmethod
    def scorer(cls, request):
        return fitted(load_scorer(request.param), [sample.references for sample in SAMPLES])


@pytest.mark.parametrize("name", [spec.name for spec in SPECS])
def test_what_is_missing_is_told_with_the_way_to_get_it(name, monkeypatch):
    if has_package:
        with monkeypatch.context() as without_java:
            without_java.setenv("PATH", "")
            with pytest.raises(MissingExtraError, match=f"'{name}' needs Java.*install a Java runtime"):
                load_scorer(name)
    monkeypatch.setitem(sys.modules, "pycocoevalcap", None)
    monkeypatch.setitem(sys.modules, "pycocoevalcap.bleu.bleu", None)
    with pytest.raises(MissingExtraError, match=rf"'{name}' needs .*pip install \"capreward\[ngrams\]\""):
        load_scorer(name)


def score(name, candidate, *references):
    return float(load_scorer(name).score([CaptionSample(candidate, references=references)]).scores[0, 0])


@java
@pytest.mark.parametrize("name", ["bleu1", "bleu2", "bleu3", "bleu4", "rouge_l"])
def test_scores_are_those_of_the_package_for_any_captions(name):
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.rouge.rouge import Rouge

    rng = random.Random(name)

    def text():
        return " ".join(rng.choice(("a", "dog", "red", "star", "runs", "on")) for _ in range(rng.randint(1, 9)))

    samples = [CaptionSample(text(), references=[text() for _ in range(rng.randint(1, 4))]) for _ in range(60)]
    samples.append(CaptionSample("cats", references=["a dog"]))  # no word in common
    references = {row: list(sample.references) for row, sample in enumerate(samples)}
    candidates = {row: [sample.candidate] for row, sample in enumerate(samples)}
    if name == "rouge_l":
        expected = Rouge().compute_score(references, candidates)[1]
    else:
        expected = Bleu(4).compute_score(references, candidates, verbose=0)[1][int(name[-1]) - 1]
    assert np.array_equal(load_scorer(name).score(samples).scores[:, 0], expected)
    assert score(name, "! …", "! …", "a") == 0.0  # no word


@java
@pytest.mark.parametrize("name", ["bleu4", "rouge_l", "meteor", "cider"])
def test_an_accent_is_one_word_however_it_is_stored(name):
    text = "Un caf\u00e9 cr\u00e8me"
    stored = unicodedata.normalize("NFD", text)
    scorer = fitted(load_scorer(name), [[text], ["a dog"], ["a star"]])
    first, second = (CaptionSample(candidate, references=[text, "a dog"]) for candidate in (text, stored))
    scores = scorer.score([first, second, CaptionSample(text, references=[stored, "a dog"])]).scores[:, 0]
    assert scores[0] == scores[1] == scores[2] > 0


@java
@pytest.mark.parametrize(("name", "words"), [("rouge_l", 5), ("bleu1", 6)])
@pytest.mark.parametrize("amount", ["1 1/2", "1\u00a01/2"])
def test_a_number_with_a_fraction_is_one_word_of_rouge_as_in_the_package(name, words, amount):
    assert score(name, f"{amount} cups of sugar now", f"{amount} dogs run there here") == pytest.approx(
        (words - 4) / words
    )


@java
def test_meteor_counts_forms_and_punishes_gaps():
    # Content words weigh 0.75, function words 0.25, and a form found as a synonym 0.8 of a word. Precision and recall
    # are equal here, so that is F; words in one piece are not punished.
    same, form, turned = (score("meteor", text, "A dog runs.") for text in ("a dog runs", "A dog ran!", "runs a dog"))
    assert same == pytest.approx(1.0)
    assert form == pytest.approx((0.75 * (1 + 0.8) + 0.25) / (0.75 * 2 + 0.25))
    assert turned < same
    assert score("meteor", "a ||| b c", "a ||| b c", "x") == pytest.approx(1.0)  # the separator in its questions


WORDS = {
    "He is from the U.S.": "he is from the u.s.",
    "The dog's owner can't — won't! — run.": "the dog 's owner ca n't wo n't run",
    "*NL* <b> two\nlines\u2028three\x0bfour\x85five\r\nsix": r".* two lines three four five six",
    "É IŞIK İ 一个红色的圆。": r"é işik .*",
    "!": "",
    **dict.fromkeys(["dogs etc.", "(650) 723", "“quoted” -LRB- ``x''", "🔴 \x00", "Mr. Smith vs. the st."], ".*"),
}


@pytest.fixture
def nothing_cached(monkeypatch):
    monkeypatch.setattr(programs, "_words_of_part", {})


@java
@pytest.mark.usefixtures("nothing_cached")
def test_words_do_not_depend_on_company_or_locale(monkeypatch):
    together = tokenize(list(WORDS), purpose="this test")
    assert [text for text, words in WORDS.items() if not re.fullmatch(words, together[text])] == []
    monkeypatch.setattr(programs, "_words_of_part", {})
    monkeypatch.setenv("LC_ALL", "tr_TR.UTF-8")
    shuffled = random.Random(1).sample(list(WORDS), len(WORDS))
    assert tokenize(shuffled, purpose="this test") == {text: together[text] for text in shuffled}


@java
@pytest.mark.usefixtures("nothing_cached")
def test_words_kept_one_by_one_are_those_of_the_whole_text(monkeypatch):
    rng = random.Random(2)
    words = ["a", "A", "dog's", "it's", "cannot", "gonna", "etc", "no", "St", "U.S", "I", "e-mail", "jr", "what's", "3"]

    def text():
        parts = [rng.choice(words) + rng.choice(["", "", "", ",", " ,"]) for _ in range(rng.randint(0, 7))]
        return " ".join([*parts, rng.choice(words) + rng.choice(["", ".", ".", "!", " ."])])

    texts = list({text() for _ in range(3000)})
    whole = dict(zip(texts, programs._tokenize(texts, "x"), strict=True))
    assert tokenize(texts, purpose="this test") == whole
    assert 0.2 < len(set(texts) - programs._words_of_part.keys()) / len(texts) < 0.8  # some are kept word by word
    monkeypatch.setattr(programs, "run_java", None)
    assert tokenize(["A dog's e-mail, etc."], purpose="this test") == {"A dog's e-mail, etc.": "a dog 's e-mail etc."}


@java
@pytest.mark.timeout(900)
def test_published_correlations_on_flickr8k_expert_come_out(shared_folder):
    from reward.metaeval import kendall_tau
    from reward.metaeval.benchmarks import load_benchmark

    benchmark = load_benchmark("flickr8k-expert", shared_folder / "data" / "flickr8k_expert_fleur.jsonl.gz")
    samples = [sample for sample in benchmark.samples() if sample is not None]
    ratings = np.array([each["overall"] for each in benchmark.rows["ratings"]])
    assert ratings.shape == (len(samples), 3) == (5664, 3)
    found = {}
    for name in PUBLISHED:
        scores = fitted(load_scorer(name), [sample.references for sample in samples]).score(samples).scores[:, 0]
        found[name] = round(100 * kendall_tau(np.repeat(scores, 3), ratings.ravel(), variant="c"), 1)
    assert found == PUBLISHED
