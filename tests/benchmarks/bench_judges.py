"""Speed and tokens per caption of the judges, beside VELA and BEiTScore, on the same captions in one run."""

from __future__ import annotations

import argparse
import logging
import math
import random
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from reward import CaptionSample, TournamentReward, load_scorer
from reward.arena.pairwise import PairPrompt, PairwiseJudge
from reward.errors import CheckpointError
from reward.judges import LocalJudge, Question, ScriptedJudge
from reward.metrics.fleur.scorer import FleurScorer
from reward.metrics.harmoniceval.scorer import HarmonicScorer
from reward.scenes import make_candidate, render, sample_scene
from tests.benchmarks.measuring import bench_parser, make_table, measure_seconds, record

PROMPTS = Path(__file__).parents[2] / "examples" / "research" / "judge_scenes"
FLEUR_PROMPT, HARMONIC_PROMPT = PROMPTS / "fleur.yaml", PROMPTS / "harmoniceval.yaml"
GRADE_TOKENS = 5  # 0.85 and the end: what a judge writes that was taught to, and the most that any other writes here

Run = Callable[[], Any]


def parse() -> argparse.Namespace:
    """Command line of the benchmark."""
    parser = bench_parser(__doc__)
    parser.add_argument(
        "--judge",
        default=str(files("reward") / "assets" / "captioner"),
        help="vision-language model; default: the embedded captioner, whose answers are no grades but cost the same",
    )
    parser.add_argument("--vela", default="embedded", help="folder or Hub id; default: %(default)s")
    parser.add_argument("--beitscore", default="embedded", help="folder or Hub id; default: %(default)s")
    parser.add_argument("--images", type=int, default=8, help="default: %(default)s")
    parser.add_argument("--group", type=int, default=8, help="captions of an image; default: %(default)s")
    parser.add_argument("--comparisons", type=int, default=8, help="pairs a group; default: %(default)s")
    return parser.parse_args()


def make_samples(options: argparse.Namespace) -> list[CaptionSample]:
    """Captions of mixed quality, `group` of each image, without references."""
    rng = random.Random("bench judges")
    samples = []
    for _ in range(options.images):
        scene = sample_scene(rng)
        image = render(scene)
        samples += [CaptionSample(make_candidate(scene, rng).caption.text, image) for _ in range(options.group)]
    return samples


def judge_runs(judge: Any, samples: list[CaptionSample], options: argparse.Namespace) -> dict[str, Run]:
    """The three judges over one model; the tiny tokenizer spells out most words, and the model reads 512 tokens."""
    fleur = FleurScorer(judge, prompt=FLEUR_PROMPT, max_new_tokens=GRADE_TOKENS)
    harmonic = HarmonicScorer(judge, prompt=HARMONIC_PROMPT)
    short = {"system": "Rate.", "captions": "1:\n{first}\n2:\n{second}", "ask_answer": "1 or 2 or 0:"}
    prompt = replace(PairPrompt.default(), **short)
    pairwise = PairwiseJudge(judge, reasons=False, prompt=prompt)
    tournament = TournamentReward(pairwise, max_comparisons=options.comparisons)
    captions, images = [sample.candidate for sample in samples], [sample.image for sample in samples]
    return {
        "fleur": lambda: fleur.score(samples),
        "harmoniceval": lambda: harmonic.score(samples),
        "pairwise": lambda: tournament([""] * len(captions), captions, image=images),
    }


def load_judge(options: argparse.Namespace, *, share: bool) -> LocalJudge:
    """The judge; sharing has no switch, since it changes nothing but the time, which is what is to be seen here."""
    judge = LocalJudge.from_pretrained(options.judge, device=options.device)
    if not share:
        judge.reader.shares = {True: False, False: False}
    return judge


def counted_tokens(judge: LocalJudge, run: Run) -> tuple[int, int]:
    """Tokens that a run reads and writes."""
    before = replace(judge.usage)
    run()
    return judge.usage.input_tokens - before.input_tokens, judge.usage.output_tokens - before.output_tokens


def measure(
    options: argparse.Namespace, samples: list[CaptionSample]
) -> tuple[dict[str, dict[str, float]], float, str]:
    """Figures by way, the largest difference that sharing makes, and a remark on what is left out."""
    shared, whole = (load_judge(options, share=share) for share in (True, False))
    judged, read = judge_runs(shared, samples, options), judge_runs(whole, samples, options)
    runs: dict[str, Run] = dict(judged) | {f"{way}, whole": run for way, run in read.items()}
    remark = ""
    for metric, source in (("vela", options.vela), ("beitscore", options.beitscore)):
        try:
            scorer = load_scorer(metric, source, device=options.device)
        except CheckpointError as error:
            remark = f"No row for {metric}: {error}"
        else:
            runs[metric] = lambda scorer=scorer: scorer.score(samples)
    for run in runs.values():
        run()  # warms up, and lets a judge find out once that sharing is exact
    tokens = {way: counted_tokens(shared, run) for way, run in judged.items()}
    tokens |= {f"{way}, whole": counted_tokens(whole, run) for way, run in read.items()}
    asked: list[Question] = []
    spy = ScriptedJudge(distribution=lambda question: asked.append(question) or {"1": 1.0})
    judge_runs(spy, samples, options)["harmoniceval"]()
    answers = [judge.answer_distribution(asked, list("12345")) for judge in (shared, whole)]
    seconds = measure_seconds(runs, options.repeats, options.device)
    figures = {way: {"captions/s": len(samples) / min(times)} for way, times in seconds.items()}
    for way, (inputs, outputs) in tokens.items():
        figures[way] |= {"tokens read": inputs / len(samples), "tokens written": outputs / len(samples)}
    return figures, float(np.abs(answers[0] - answers[1]).max()), remark


def main() -> None:
    """Prints a table of speed and tokens."""
    options = parse()
    logging.getLogger("reward").setLevel(logging.ERROR)  # an untaught judge's answers cannot be read as grades
    samples = make_samples(options)
    figures, difference, remark = measure(options, samples)
    words = sum(len(sample.candidate.split()) for sample in samples) / len(samples)
    table = make_table(
        f"{options.images} images of {options.group} captions of {words:.0f} words, {options.comparisons} pairs "
        f"a group, no references, {options.device}, {torch.get_num_threads()} threads",
        [
            *("", "captions/s", "times\nVELA's time"),
            *("tokens read\na caption", "tokens written\na caption", "tokens for\n1,000 captions"),
        ],
    )
    for way, row in figures.items():
        slower = figures["vela"]["captions/s"] / row["captions/s"] if "vela" in figures else math.nan
        counts = ["-"] * 3
        if "tokens read" in row:
            total = 1000 * (row["tokens read"] + row["tokens written"])
            counts = [f"{row['tokens read']:.0f}", f"{row['tokens written']:.1f}", f"{total:,.0f}"]
        if not math.isnan(slower):
            record({f"{way}, times VELA's time": slower})
        table.add_row(way, f"{row['captions/s']:.1f}", f"{slower:.2f}", *counts)
    console = Console(width=120)
    console.print(table)
    console.print(
        '"whole": each question is read from its first token on; else what questions about an image share is read '
        f"once. Largest difference of a probability: {difference:.1e}. {remark}"
    )


if __name__ == "__main__":
    main()
