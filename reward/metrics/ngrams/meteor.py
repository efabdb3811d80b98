"""METEOR of single captions, by the Java program of pycocoevalcap."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from reward.errors import CapRewardError
from reward.metrics.ngrams import METEOR
from reward.metrics.ngrams.java import java_command
from reward.metrics.ngrams.scorer import NgramScorer, Words
from reward.optional import require

# Bytes of questions that wait for an answer: what any pipe takes at once. With more, the program could stop reading
# because nobody reads its answers, while we wait for it to read.
_WAITING_BYTES = 4096
_SCORED_AT_ONCE = 1000  # captions whose statistics are turned into scores by one question
_PURPOSE = f"metric {METEOR.name!r}"
# From the program's own folder, since it cannot find a table in a path with a space.
PARAPHRASES = os.path.join("data", "paraphrase-en.gz")


class MeteorScorer(NgramScorer):
    """METEOR 1.5 with its English settings: matches of words, stems, synonyms and paraphrases, best reference.

    The program takes seconds to start, so all scorers of a Python process share one Java process, which ends with
    Python. Its memory grows with the square of a text's length, so texts are cut after 500 words.
    """

    spec = METEOR
    most_words = 500

    def rate(self, items: Sequence[Words]) -> Sequence[float]:
        """METEOR of each caption."""
        with _asking:
            program = _programs.get(os.getpid())
            if program is None or program.process.poll() is not None:
                program = _programs[os.getpid()] = _Program()
            try:
                return program.scores(items)
            except BaseException:  # the next call would read the answer to an interrupted question
                program.close()
                raise


class _Program:
    """The program METEOR. It reads and answers line by line."""

    def __init__(self) -> None:
        package = require("pycocoevalcap.meteor.meteor", extra="ngrams", purpose=_PURPOSE)
        folder = Path(package.__file__ or "").parent
        arguments = ["-Xmx2G", "-jar", package.METEOR_JAR, "-", "-", "-stdio", "-l", "en", "-norm"]
        arguments += ["-a", PARAPHRASES]
        # A pipe that is not read would fill up and stop the program.
        self.messages = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the program runs
        self.process = subprocess.Popen(
            java_command(arguments, purpose=_PURPOSE),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.messages,
        )
        self.close = weakref.finalize(self, _end, self.process, os.getpid())

    def scores(self, items: Sequence[Words]) -> list[float]:
        """Score of each caption.

        Raises:
            CapRewardError: the program has ended.
        """
        scores: list[float] = []
        statistics: list[str] = []
        waiting: deque[int] = deque()  # the lengths of questions without an answer, so that the program never idles
        for candidates, references in items:
            for candidate in candidates:
                texts = [text.replace("|||", " ") for text in (*references, candidate)]
                question = _line("SCORE", *texts)
                while waiting and sum(waiting) + len(question) > _WAITING_BYTES:
                    statistics.append(self._answer())
                    waiting.popleft()
                if len(statistics) + len(waiting) >= _SCORED_AT_ONCE:
                    scores += self._evaluate(statistics, waiting)
                self._write(question)
                waiting.append(len(question))
        return scores + self._evaluate(statistics, waiting)

    def _evaluate(self, statistics: list[str], waiting: deque[int]) -> list[float]:
        """The scores of captions whose statistics have come or are waited for; both are then empty."""
        statistics += [self._answer() for _ in waiting]
        self._write(_line("EVAL", *statistics))
        scores = [float(self._answer()) for _ in statistics]
        self._answer()  # their mean
        statistics.clear()
        waiting.clear()
        return scores

    def _write(self, question: bytes) -> None:
        assert self.process.stdin is not None
        try:
            # Not through the buffer of `stdin`: a process forked now would write its copy of the buffer when it ends.
            while question:
                written = os.write(self.process.stdin.fileno(), question)
                question = question[written:]
        except BrokenPipeError:
            pass  # the program has ended, and reading gives the reason

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode().strip()
        if not line or line.startswith("Error"):
            self.messages.seek(0)
            message = line or self.messages.read().decode(errors="replace").strip()[-2000:] or "without a word"
            raise CapRewardError(f"{_PURPOSE}: the Java program ended or refused a caption: {message}")
        return line


def _line(*parts: str) -> bytes:
    return (" ||| ".join(parts) + "\n").encode()


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner:  # a forked child must not end the program of its parent
        process.kill()
        process.communicate()


_programs: dict[int, _Program] = {}  # by the process that started them: a fork must not read its parent's answers
_asking = threading.Lock()
