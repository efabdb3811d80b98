"""`capreward judge`: has a vision-language model rate the captions of a data file."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reward.cli import judge_options, options

if TYPE_CHECKING:
    from reward.metrics.judged import JudgedScorer
    from reward.scoring.summary import ScoringSummary

__all__ = ["judge"]


class JudgeMetric(str, Enum):
    """The metrics that ask a judge about one caption."""

    fleur = "fleur"
    harmoniceval = "harmoniceval"


class SecondDecimal(str, Enum):
    """How FLEUR smooths an answer with one decimal."""

    always = "always"
    written = "written"


class Task(str, Enum):
    """The tasks of HarmonicEval that need nothing but image and text."""

    captioning = "captioning"
    referring = "referring"


def judge(
    data: options.Data,
    metric: Annotated[
        JudgeMetric,
        typer.Option(
            "--metric",
            "-m",
            help="fleur: one number from 0 to 1. harmoniceval: correctness, completeness, clarity, fluency and "
            "conciseness from 1 to 5, and one number of them.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="A .parquet or .jsonl file.")],
    judge: judge_options.JudgeModel,
    server: judge_options.Server = None,
    concurrency: judge_options.Concurrency = None,
    cache: judge_options.Cache = None,
    prices: judge_options.Prices = None,
    prompt: judge_options.PromptFile = None,
    no_references: Annotated[
        bool, typer.Option("--no-references", help="fleur: do not show the judge references, even where there are any.")
    ] = False,
    second_decimal: Annotated[
        SecondDecimal | None,
        typer.Option(
            help="fleur: for an answer such as 0.8, add what the judge thought of as second decimal (always, the "
            "default), or only smooth second decimals that it wrote, as the authors do (written)."
        ),
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="harmoniceval: how to weigh the criteria: 1 all alike, 0.5 by how sure the judge is; default: 0.75.",
        ),
    ] = None,
    task: Annotated[
        Task | None,
        typer.Option(
            help="harmoniceval: captioning (default), or referring: texts that tell which object the red box marks."
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            "-w",
            help="Weights of the scores in the column reward, as in correctness=2,fluency=1; default: the one number.",
        ),
    ] = None,
    candidate_column: Annotated[
        str | None,
        typer.Option(help="Column of captions; default: candidate, else cand or caption."),
    ] = None,
    image_column: options.ImageColumn = None,
    references_column: options.ReferencesColumn = None,
    image_root: options.ImageRoot = None,
    split: options.Split = None,
    prefix: options.Prefix = "",
    pad_images: Annotated[
        bool,
        typer.Option(
            "--pad-images",
            help="Pad images to squares, as FLEUR's authors do; by default the model's processor may cut off sides.",
        ),
    ] = False,
    batch_size: judge_options.BatchSize = None,
    revision: options.Revision = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Have a vision-language model rate every caption of a file, looking at the image.

    By a model on this machine, and by one behind a vLLM server, which you start with `vllm serve MODEL`:

    ```
    capreward judge captions.jsonl --metric fleur --judge llava-hf/llava-1.5-7b-hf -o scores.jsonl
    capreward judge captions.jsonl --metric fleur --judge MODEL --server http://localhost:8000/v1 -o scores.jsonl
    ```

    A line of captions.jsonl, with `references` if there are any:

    ```
    {"image": "photos/1.jpg", "candidate": "A dog runs.", "references": ["A dog is running."]}
    ```

    `capreward score --help` shows other forms of data.

    Image paths start at the folder of the file. The output has the rows of the input with the scores, `reward`, and
    `error` where a caption has no score, because the judge's answer could not be read, say.

    fleur needs a model that writes digits one by one (LLaVA-1.5 and Qwen2.5-VL do, GPT-4o does not), harmoniceval does
    not. A server must report log probabilities.

    Stopped or killed, the same command goes on where it was. With --cache no question is ever paid for twice.
    """
    settings = _settings(metric, no_references=no_references, second_decimal=second_decimal, gamma=gamma, task=task)
    asking = judge_options.make_judge(
        judge,
        server=server,
        cache=cache,
        concurrency=concurrency,
        prices=prices,
        revision=revision,
        device=device,
        dtype=dtype,
        batch_size=batch_size,
    )

    def run() -> ScoringSummary:
        from reward.registry import metric_spec
        from reward.scoring.dataset import score_dataset

        scorer: JudgedScorer = metric_spec(metric.value).scorer_class()(
            asking, prompt=prompt, pad_images=pad_images, **settings
        )
        return score_dataset(
            data,
            scorer,
            output,
            weights=options.parse_weights(weights),
            candidate_column=candidate_column,
            image_column=image_column,
            references_column=references_column,
            image_root=image_root,
            split=split,
            prefix=prefix,
            overwrite=overwrite,
            progress=not quiet,
            # the scorer is made already; these only tell one run from another
            revision=revision,
            dtype=dtype,
        )

    try:
        options.report(run, quiet=quiet, what="judged")
    finally:
        if not quiet and asking.usage.answered + asking.usage.cached:
            typer.echo(judge_options.usage_line(asking.usage), err=True)


def _settings(
    metric: JudgeMetric,
    *,
    no_references: bool,
    second_decimal: SecondDecimal | None,
    gamma: float | None,
    task: Task | None,
) -> dict[str, Any]:
    """Settings of the scorer; an option of the other metric is refused.

    Raises:
        typer.BadParameter: an option that the metric does not have.
    """
    if metric is JudgeMetric.fleur:
        for name, value in (("--gamma", gamma), ("--task", task)):
            if value is not None:
                raise typer.BadParameter("is for --metric harmoniceval", param_hint=name)
        second = {} if second_decimal is None else {"second_decimal": second_decimal.value}
        return {"use_references": not no_references, **second}
    if second_decimal is not None:
        raise typer.BadParameter("is for --metric fleur", param_hint="--second-decimal")
    if no_references:
        raise typer.BadParameter("is for --metric fleur; harmoniceval never shows them", param_hint="--no-references")
    given = {"gamma": gamma, "task": None if task is None else task.value}
    return {name: value for name, value in given.items() if value is not None}
