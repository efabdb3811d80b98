"""The rewards caprl, claims and claimdiff on scenes, with the oracle as judge: agreement with raters, audit, tokens.

    python -m examples.research.judged_rewards
    python -m examples.research.judged_rewards --scenes 20 --audit 4
    python -m examples.research.judged_rewards --metric fleur=runs/judge/fleur

Agreement is Kendall's tau-c times 100 with raters, with 95 % intervals. "slips .2" is an oracle that chooses wrongly in
a fifth of its answers by letter or digit. Tokens are those of CLIP's vocabulary.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from open_clip.tokenizer import SimpleTokenizer

from reward import CaptionSample, load_scorer
from reward.audit.report import attack_grid, level_grid
from reward.audit.run import audit, scene_rows
from reward.judges import Answer, Question
from reward.metaeval import markdown_table
from reward.metaeval.benchmarks import load_benchmark
from reward.metaeval.evaluation import compare, evaluate
from reward.metaeval.scoring import score_benchmark
from reward.metric_source import MetricSource
from reward.metrics.caprl.scorer import CapRLScorer
from reward.metrics.claimdiff.scorer import ClaimDiffScorer
from reward.metrics.claims.scorer import ClaimsScorer
from reward.scenes import Scene, make_candidate, make_dataset, make_references, render, sample_scene
from reward.scenes.judge import OracleJudge

RESAMPLES, GROUP = 1000, 8


class CountingJudge(OracleJudge):
    """Counts questions, images, and tokens read and written."""

    def __init__(self, scenes: Sequence[Scene]) -> None:
        super().__init__(scenes)
        self.counts, self.tokens = Counter[str](), SimpleTokenizer()

    def generate(self, questions: Sequence[Question], **options: Any) -> list[Answer]:
        answers = super().generate(questions, **options)
        self._count(questions, sum(len(self.tokens.encode(answer.text)) for answer in answers))
        return answers

    def answer_distribution(self, questions: Sequence[Question], answers: Sequence[str]) -> np.ndarray:
        self._count(questions, len(questions))
        return super().answer_distribution(questions, answers)

    def _count(self, questions: Sequence[Question], written: int) -> None:
        self.counts["questions"] += len(questions)
        self.counts["images"] += sum(question.image is not None for question in questions)
        self.counts["read"] += sum(len(self.tokens.encode(f"{each.system}\n{each.text}")) for each in questions)
        self.counts["written"] += written


def scorers_of(scenes: Sequence[Scene], judge: type[OracleJudge] = OracleJudge) -> dict[str, Any]:
    """The rewards, each with a judge of its own."""
    return {
        "caprl": CapRLScorer(judge(scenes)),
        "claims": ClaimsScorer(judge(scenes)),
        "claims, precision alone": ClaimsScorer(judge(scenes), use_references=False),
        "claimdiff": ClaimDiffScorer(judge(scenes)),
    }


def cost_table(number: int) -> str:
    """What a caption costs, in groups of captions of an image as a trainer scores them."""
    rng = random.Random("cost of judged rewards")
    scenes = [sample_scene(rng) for _ in range(number)]
    samples = []
    for scene in scenes:
        image, references = render(scene), make_references(scene, rng, 2)
        samples += [CaptionSample(make_candidate(scene, rng).caption.text, image, references) for _ in range(GROUP)]
    kinds = ("questions", "images", "read", "written")
    lines = [f"| a caption, {GROUP} of an image | {' | '.join(kinds)} |", "|---" * 5 + "|"]
    for name, scorer in scorers_of(scenes, CountingJudge).items():
        scorer.score(samples)
        lines.append(f"| {name} | {' | '.join(f'{scorer.judge.counts[kind] / len(samples):.1f}' for kind in kinds)} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=150, help="captions that raters rated; default: %(default)s")
    parser.add_argument("--audit", type=int, default=40, help="scenes of the audit; default: %(default)s")
    parser.add_argument(
        "--metric", action="append", default=[], type=MetricSource.parse, help="one more metric: NAME or NAME=SOURCE"
    )
    options = parser.parse_args(argv)
    benchmark = load_benchmark("scenes", part="seed 2026", limit=options.scenes)
    scenes = [Scene.from_json(text) for text in make_dataset(options.scenes, 2026)["scene"]]
    others = {name: load_scorer(name) for name in ("vela", "beitscore", "length")}
    others |= {each.name: load_scorer(each.name, each.source, revision=each.revision) for each in options.metric}
    careless = {"judge": OracleJudge(scenes, slips=0.2)}
    compared = {"caprl, slips .2": CapRLScorer(**careless), "claims, slips .2": ClaimsScorer(**careless)}
    compared["claimdiff, normalized_diff"] = ClaimDiffScorer(OracleJudge(scenes), form="normalized_diff")
    agreement, scores = {}, {}
    for name, scorer in (scorers_of(scenes) | compared | others).items():
        scores[name] = score_benchmark(benchmark, scorer).for_aspects(benchmark)
        agreement[name] = evaluate(benchmark, scores[name], resamples=RESAMPLES).estimates
    print(markdown_table(agreement, list(agreement["vela"]), title=f"tau-c, {options.scenes} scenes"), end="\n\n")
    differences = {
        f"{name} - vela": compare(
            benchmark, scores[name], scores["vela"], resamples=RESAMPLES, permutations=1
        ).differences
        for name in scores
        if name != "vela"
    }
    print(markdown_table(differences, list(agreement["vela"]), title="difference", signed=True), end="\n\n")
    print(cost_table(options.audit), end="\n\n")
    rows = scene_rows(options.audit, seed=0)
    audited = scorers_of([row.scene for row in rows if row.scene is not None])
    result = audit(audited | others, rows, resamples=RESAMPLES)
    for grid in (attack_grid(result), level_grid(result)):
        print(f"{grid.title}\n\n{grid.markdown()}\n")


if __name__ == "__main__":
    main()
