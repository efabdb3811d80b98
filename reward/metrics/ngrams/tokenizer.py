"""Splits captions into words as the n-gram metrics count them: Penn Treebank tokens, lower case, no punctuation."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from reward.errors import CapRewardError
from reward.metrics.ngrams.java import run_java
from reward.optional import require

__all__ = ["tokenize"]

_PACKAGE = "pycocoevalcap.tokenizer.ptbtokenizer"
_KEPT_TEXTS, _KEPT_CHARACTERS = 50_000, 2_000
# Starting Java takes longer than the work, and metrics ask for the same texts in turn. Without a lock, which a process
# forked at the wrong moment would wait for in vain: other threads may add texts or clear it at any time.
_kept: dict[str, str] = {}


def tokenize(texts: Iterable[str], *, purpose: str) -> dict[str, str]:
    """Words of each text, joined by single spaces; one Java process for all of them.

    The tokens of a text do not depend on the others.

    Args:
        texts: any texts.
        purpose: the metric that asks, for messages.

    Returns:
        {text: its words}; words are empty for a text of nothing but punctuation.

    Raises:
        MissingExtraError: the package pycocoevalcap or Java is not there.
    """
    wanted = list(dict.fromkeys(texts))
    found = {text: words for text in wanted if (words := _kept.get(text)) is not None}
    new = [text for text in wanted if text not in found]
    if new:
        fresh = dict(zip(new, _tokenize(new, purpose), strict=True))
        found |= fresh
        if len(_kept) + len(fresh) > _KEPT_TEXTS:
            _kept.clear()
        _kept.update({text: words for text, words in fresh.items() if len(text) <= _KEPT_CHARACTERS})
    return found


def _tokenize(texts: list[str], purpose: str) -> list[str]:
    package = require(_PACKAGE, extra="ngrams", purpose=purpose)
    jar = Path(package.__file__ or "").with_name(package.STANFORD_CORENLP_3_4_1_JAR)
    arguments = ["-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"]
    # An empty line after each text: whether a full stop ends a sentence is seen from what follows it.
    lines = "".join(" ".join(text.split()) + "\n\n" for text in texts)
    output = run_java([*arguments, "-encoding", "UTF-8"], lines, purpose=purpose).split("\n")
    if len(output) != 2 * len(texts) + 1:
        raise CapRewardError(f"{purpose}: the tokenizer gave {len(output)} lines for {len(texts)} texts")
    mute = set(package.PUNCTUATIONS)
    return [" ".join(word for word in line.split() if word not in mute) for line in output[: 2 * len(texts) : 2]]
