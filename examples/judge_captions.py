"""Has a vision-language model judge captions of one picture: FLEUR, HarmonicEval, and each caption against the next.

On this machine, with any image-and-text model of transformers (a folder or a Hub id):

    python examples/judge_captions.py --model llava-hf/llava-1.5-7b-hf

Behind a server that speaks OpenAI's protocol. For vLLM, `pip install "capreward[judges]"`, then in another terminal

    vllm serve Qwen/Qwen2.5-VL-7B-Instruct --max-logprobs 20

and here, with answers kept in a folder so that a second run asks nothing:

    python examples/judge_captions.py --model Qwen/Qwen2.5-VL-7B-Instruct \
        --server http://localhost:8000/v1 --cache runs/answers
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from reward import CaptionSample
from reward.judges import Judge, LocalJudge, ServerJudge
from reward.judges.pairwise import JudgePair, PairwiseJudge
from reward.metrics.fleur.scorer import FleurScorer
from reward.metrics.harmoniceval.scorer import HarmonicScorer
from reward.scenes import describe, drop_facts, make_error, render, sample_scene


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder or Hub id; with --server, the model's name there")
    parser.add_argument("--server", metavar="URL", help="base address of the server, up to /v1")
    parser.add_argument("--cache", type=Path, help="with --server: folder for its answers")
    parser.add_argument("--seed", type=int, default=7, help="of the scene")
    options = parser.parse_args(argv)
    if options.cache is not None and options.server is None:
        parser.error("--cache is for a server's answers: give --server, too")

    rng = random.Random(f"judge captions {options.seed}")
    scene = sample_scene(rng)
    image = render(scene)
    captions = {
        "true and complete": describe(scene, rng).text,
        "with an error": describe(make_error(scene, "attribute", rng) or scene, rng).text,
        "incomplete": describe(scene, rng, facts=drop_facts(scene, 0.2, rng)).text,
    }

    judge = make_judge(options.model, options.server, options.cache)
    answers = 0
    samples = [CaptionSample(text, image=image) for text in captions.values()]
    for title, scorer in (("FLEUR", FleurScorer(judge)), ("HarmonicEval", HarmonicScorer(judge))):
        table = scorer.score(samples)
        answers += len(samples) - len(table.errors)
        print(f"\n{title}: {', '.join(table.aspects)}")
        for row, name in enumerate(captions):
            scores = "  ".join(f"{score:.3f}" for score in table.scores[row])
            print(f"  {name}: {table.errors.get(row, scores)}")

    names, texts = list(captions), list(captions.values())
    pairs = [JudgePair(a, b, image) for a, b in itertools.pairwise(texts)]
    verdicts = PairwiseJudge(judge).compare(pairs)
    print("\nThe better caption, asked in both orders:")
    for (first, second), verdict in zip(itertools.pairwise(names), verdicts, strict=True):
        print(f"  {first} / {second}: {verdict.error or {'A': first, 'B': second}.get(verdict.winner, 'a tie')}")
        answers += verdict.error is None

    usage = judge.usage
    print(f"\n{usage.answered} questions, {usage.input_tokens} tokens read, {usage.output_tokens} written.")
    return 0 if answers else 1


def make_judge(model: str, server: str | None, cache: Path | None) -> Judge:
    """A model on this machine, or behind a server whose key, if it wants one, is in OPENAI_API_KEY."""
    if server is None:
        return LocalJudge.from_pretrained(model)
    return ServerJudge(model, server, cache=cache)


if __name__ == "__main__":
    sys.exit(main())
