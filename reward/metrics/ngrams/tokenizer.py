"""Splits captions into the words of the n-gram metrics: Penn Treebank tokens in lower case without punctuation."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from reward.errors import CapRewardError
from reward.metrics.ngrams.java import run_java
from reward.optional import require

__all__ = ["tokenize"]

_PACKAGE = "pycocoevalcap.tokenizer.ptbtokenizer"
_KEPT_TEXTS, _KEPT_CHARACTERS = 50_000, 2_000
# Starting Java takes longer than the work, and several metrics tokenise the same texts in turn. There is no lock: a
# process forked at the wrong moment would wait for it for ever. So other threads may change the dict at any time.
_kept: dict[str, str] = {}


def tokenize(texts: Iterable[str], *, purpose: str) -> dict[str, str]:
    """Words of each text, joined by single spaces; one Java process for all of them.

    The words of a text do not depend on the other texts.

    Args:
        texts: any texts.
        purpose: the metric, for messages.

    Returns:
        {text: its words}; a text of punctuation alone has no words.

    Raises:
        MissingExtraError: the package pycocoevalcap or Java is not installed.
    """
    wanted = list(dict.fromkeys(texts))
    words_of = {text: words for text in wanted if (words := _kept.get(text)) is not None}
    new = [text for text in wanted if text not in words_of]
    if new:
        fresh = dict(zip(new, _tokenize(new, purpose), strict=True))
        words_of |= fresh
        if len(_kept) + len(fresh) > _KEPT_TEXTS:
            _kept.clear()
        _kept.update({text: words for text, words in fresh.items() if len(text) <= _KEPT_CHARACTERS})
    return words_of


def _tokenize(texts: list[str], purpose: str) -> list[str]:
    package = require(_PACKAGE, extra="ngrams", purpose=purpose)
    jar = Path(package.__file__ or "").with_name(package.STANFORD_CORENLP_3_4_1_JAR)
    arguments = ["-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"]
    # With an empty line after each text, its last full stop is read as the end of a sentence.
    lines = "".join(" ".join(text.split()) + "\n\n" for text in texts)
    output = run_java([*arguments, "-encoding", "UTF-8"], lines, purpose=purpose).split("\n")
    if len(output) != 2 * len(texts) + 1:
        raise CapRewardError(f"{purpose}: the tokenizer gave {len(output)} lines for {len(texts)} texts")
    punctuation = set(package.PUNCTUATIONS)
    return [" ".join(word for word in line.split() if word not in punctuation) for line in output[: 2 * len(texts) : 2]]
