"""METEOR and SPICE beside programs that stand in for theirs: what is asked, and what happens when they fail."""

import os
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from reward import CaptionSample, load_scorer
from reward.errors import CapRewardError, MissingExtraError
from reward.metrics.ngrams import java as programs
from reward.metrics.ngrams import meteor

pytest.importorskip("pycocoevalcap")

# Stands for `java`: splits texts at spaces; METEOR's score is the share of words that are "dog", told in the protocol
# of the real program; SPICE's the same, in its files.
STAND_IN = """
import json, sys
arguments = sys.argv[1:]
share = lambda text: text.split().count("dog") / len(text.split())
if "edu.stanford.nlp.process.PTBTokenizer" in arguments:
    sys.stdout.write(sys.stdin.read().lower())
elif "meteor-1.5.jar" in arguments:
    print("loading " * 20_000, file=sys.stderr)
    for line in sys.stdin:
        kind, *parts = line.rstrip("\\n").split(" ||| ")
        if "crash" in line:
            sys.exit("out of memory")
        if kind == "SCORE":
            print(share(parts[-1]), len(parts) - 1, flush=True)
        else:
            scores = [float(part.split()[0]) for part in parts]
            print(*scores, sum(scores) / len(scores), sep="\\n", flush=True)
elif "spice-1.0.jar" in arguments:
    rows = json.load(open(arguments[arguments.index("spice-1.0.jar") + 1]))
    if any("crash" in row["test"] for row in rows):
        sys.exit("no model")
    if any("none" in row["test"] for row in rows):
        rows = []
    scores = [{"image_id": row["image_id"], "scores": {"All": {"f": share(row["test"])}}} for row in rows]
    json.dump(scores[::-1], open(arguments[arguments.index("-out") + 1], "w"))
"""


@pytest.fixture(autouse=True)
def stand_in(tmp_path, monkeypatch):
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    script = tmp_path / "java.py"
    script.write_text(STAND_IN)
    # not as the script's own first line, which cannot hold the space of a path
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(script))} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(programs, "_words_of_part", {})
    monkeypatch.setattr(meteor, "_programs", {})
    yield
    for running in meteor._programs.values():
        running.close()


def score(name, *captions):
    samples = [CaptionSample(caption, references=["a dog", "a cat"]) for caption in captions]
    return load_scorer(name).score(samples).scores[:, 0].tolist()


def test_meteor_asks_one_program_that_all_scorers_share():
    assert score("meteor", "a dog", "dog", "a dog", "cat") == [0.5, 1, 0.5, 0]
    first = meteor._programs[os.getpid()].process.pid
    assert score("meteor", "dog dog cat cat") == [0.5]
    assert meteor._programs[os.getpid()].process.pid == first


def test_very_long_texts_are_cut_and_flagged():
    long = CaptionSample("dog " * 500 + "cat " * 500, references=["a dog"])
    table = load_scorer("meteor").score([long, CaptionSample("dog cat", references=["a dog"])])
    assert table.scores[:, 0].tolist() == [1.0, 0.5]
    assert table.truncated.tolist() == [True, False]


def test_meteor_says_why_its_program_ended_and_starts_it_again():
    with pytest.raises(CapRewardError, match=r"(?s)'meteor': the Java program ended.*out of memory"):
        score("meteor", "a dog", "crash")
    assert score("meteor", "a dog") == [0.5]
    meteor._programs[os.getpid()].process.kill()
    meteor._programs[os.getpid()].process.wait()
    assert score("meteor", "dog") == [1.0]


def test_an_interrupted_question_is_not_answered_to_the_next_caller(monkeypatch):
    def stop(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(meteor._Program, "_answer", stop)
        with pytest.raises(KeyboardInterrupt):
            score("meteor", "cat")
    assert score("meteor", "dog") == [1.0]


def test_who_waits_for_the_program_gets_an_answer_also_when_it_ends_for_another():
    def ask(caption):
        try:
            return score("meteor", caption)
        except CapRewardError:
            return "refused"

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, ("crash", "dog") * 4)) == ["refused", [1.0]] * 4


def test_a_forked_child_asks_a_program_of_its_own(monkeypatch):
    assert score("meteor", "dog cat") == [0.5]
    parents = meteor._programs[os.getpid()]
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: 0)
        assert score("meteor", "dog dog") == [1.0]
        assert meteor._programs[0].process.pid != parents.process.pid
        meteor._programs.pop(0).close()
    assert score("meteor", "cat dog") == [0.5]
    assert meteor._programs == {os.getpid(): parents}


def test_spice_reads_the_scores_of_its_program_and_says_which_models_belong_where(tmp_path, monkeypatch):
    from pycocoevalcap.spice import get_stanford_models

    monkeypatch.setattr(get_stanford_models, "SPICELIB", str(tmp_path))
    (tmp_path / "stanford-corenlp-3.6.0.jar").touch()
    with pytest.raises(MissingExtraError, match=rf"needs stanford-corenlp-3.6.0-models.jar in {tmp_path}.*unpack it"):
        load_scorer("spice")
    (tmp_path / "stanford-corenlp-3.6.0-models.jar").touch()
    assert score("spice", "a dog", "cat", "a dog") == [0.5, 0.0, 0.5]
    with pytest.raises(CapRewardError, match="'spice': Java ended with code 1: no model"):
        score("spice", "crash")
    with pytest.raises(CapRewardError, match="0 scores came back for 1 captions"):
        score("spice", "none")
