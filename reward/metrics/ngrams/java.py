"""Runs the Java programs of pycocoevalcap, its tokenizer among them, with equal results under every locale."""

from __future__ import annotations

import re
import shutil
import subprocess
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from reward.errors import CapRewardError, MissingExtraError
from reward.optional import require

# UTF-8 and English lower case under any locale; garbage collection in one thread.
_FLAGS = ("-Dfile.encoding=UTF-8", "-Duser.language=en", "-Duser.country=US", "-XX:+UseSerialGC")

_PACKAGE = "pycocoevalcap.tokenizer.ptbtokenizer"
_BETWEEN = "\n\nx\n"
_CACHED_TEXTS = 50_000  # in the cache, at most
_CACHED_CHARACTERS = 2_000  # of one of them, at most
# Starting Java takes longer than the work, and several metrics tokenise the same texts in turn. There is no lock: a
# process forked at the wrong moment would wait for it for ever. So other threads may change the dict at any time.
_words_of_part: dict[str, str] = {}
# In a text of plain words and marks, each is split alike wherever it stands. So they are cached one by one, and most
# new texts need no Java.
_WORD = r"[A-Za-z]+(?:-[A-Za-z]+)*(?:'s)?"
_PLAIN = re.compile(rf"(?:(?:{_WORD},?|,) )*(?:{_WORD}[.!?]?|[.!?])")


def java_command(arguments: Sequence[str], *, purpose: str) -> list[str]:
    """Makes a command line that starts Java.

    Args:
        arguments: of `java`.
        purpose: what needs Java, for the message.

    Raises:
        MissingExtraError: there is no `java` on the PATH.
    """
    java = shutil.which("java")
    if java is None:
        raise MissingExtraError(
            f"{purpose} needs Java, and there is no 'java' on the PATH: install a Java runtime (version 8 or later; "
            "'apt-get install default-jre-headless' on Debian and Ubuntu, 'conda install openjdk' with conda)"
        )
    return [java, *_FLAGS, *arguments]


def run_java(arguments: Sequence[str], text: str, *, purpose: str, folder: Path | None = None) -> str:
    """Runs a Java program on a text, and returns what it prints.

    Args:
        arguments: of `java`.
        text: for its standard input.
        purpose: what needs it, for messages.
        folder: working directory; None is the current one.

    Raises:
        MissingExtraError: Java is not installed.
        CapRewardError: the program failed.
    """
    command = java_command(arguments, purpose=purpose)
    done = subprocess.run(command, input=text.encode(), capture_output=True, cwd=folder, check=False)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip()[-2000:]
        raise CapRewardError(f"{purpose}: Java ended with code {done.returncode}: {last}")
    return done.stdout.decode()


def tokenize(texts: Iterable[str], *, purpose: str) -> dict[str, str]:
    """Words of each text, joined by single spaces: Penn Treebank tokens in lower case without punctuation.

    Texts are read in NFC, so that an accent is the same word however it is stored. One Java process reads all texts.
    The words of a text do not depend on the other texts.

    Args:
        texts: any texts.
        purpose: the metric, for messages.

    Returns:
        {text: its words}; a text of punctuation alone has no words. A fraction after a number is one token with a
        no-break space in it, which pycocoevalcap takes for one word in ROUGE-L, and for two in BLEU and CIDEr.

    Raises:
        MissingExtraError: the package pycocoevalcap or Java is not installed.
    """
    parts_of_text = {text: _parts(text) for text in dict.fromkeys(texts)}
    parts = dict.fromkeys(chain.from_iterable(parts_of_text.values()))
    words: dict[str, str] = {}
    new: list[str] = []
    for part in parts:
        cached = _words_of_part.get(part)  # read once, since another thread may clear the cache
        if cached is None:
            new.append(part)
        else:
            words[part] = cached
    if new:
        tokenized = dict(zip(new, _tokenize(new, purpose), strict=True))
        words |= tokenized
        if len(_words_of_part) + len(tokenized) > _CACHED_TEXTS:
            _words_of_part.clear()
        _words_of_part.update({part: line for part, line in tokenized.items() if len(part) <= _CACHED_CHARACTERS})
    # A part of punctuation alone has no words, and no space stands for it.
    words_of_text = {}
    for text, text_parts in parts_of_text.items():
        words_of_text[text] = " ".join([words[part] for part in text_parts if words[part]])
    return words_of_text


def _parts(text: str) -> list[str]:
    """The parts of a text that are split each on its own: its words if they are plain, else the whole."""
    words = unicodedata.normalize("NFC", text).split()
    collapsed = " ".join(words)
    return words if _PLAIN.fullmatch(collapsed) else [collapsed]


def _tokenize(texts: list[str], purpose: str) -> list[str]:
    package = require(_PACKAGE, extra="ngrams", purpose=purpose)
    jar = Path(package.__file__ or "").with_name(package.STANFORD_CORENLP_3_4_1_JAR)
    # Compiling only once and simply: the program ends before more would pay.
    arguments = [
        "-XX:TieredStopAtLevel=1",
        "-cp",
        str(jar),
        "edu.stanford.nlp.process.PTBTokenizer",
        "-preserveLines",
        "-lowerCase",
    ]
    # With an empty line after each text, its last full stop is read as the end of a sentence. A word after that keeps
    # the next text away, whose first word decides otherwise whether the full stop after a single letter belongs to it.
    lines = "".join(text + _BETWEEN for text in texts)
    output = run_java([*arguments, "-encoding", "UTF-8"], lines, purpose=purpose).split("\n")
    if len(output) != _BETWEEN.count("\n") * len(texts) + 1:
        raise CapRewardError(f"{purpose}: the tokenizer gave {len(output)} lines for {len(texts)} texts")
    punctuation = set(package.PUNCTUATIONS)
    return [" ".join(word for word in line.split(" ") if word and word not in punctuation) for line in output[:-1:3]]
