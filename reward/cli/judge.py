"""`capreward judge`: has a vision-language model rate the captions of a data file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from reward.cli import judge_options, options
from reward.cli.chosen import parse_weights
from reward.cli.reports import print_usage, report_scores

if TYPE_CHECKING:
    from reward.judges import Judge
    from reward.metrics.judge_metric.base import JudgedScorer

__all__ = ["judge"]


_OWN = {  # options that only one metric has
    **dict.fromkeys(("gamma", "task", "criterion", "question_column", "task_column"), "harmoniceval"),
    **dict.fromkeys(("no_references", "second_decimal", "draws", "temperature", "explain"), "fleur"),
}


@dataclass(frozen=True, kw_only=True)
class MetricOptions:
    """The metric and its settings, some of which only one of the metrics has."""

    metric: Annotated[
        Literal["fleur", "harmoniceval", "clair", "vqascore", "judge", "rubric", "questions"],
        typer.Option(
            "--metric",
            "-m",
            help="fleur: one number from 0 to 1. harmoniceval: correctness, completeness, clarity, fluency and "
            "conciseness from 1 to 5, and one number for all of them. clair: is it of the references' image? vqascore: "
            "probability of yes. judge: a grade, in your words with --prompt. rubric, questions: what a column asks.",
        ),
    ]
    prompt: options.PromptFile = None
    no_references: Annotated[
        bool,
        typer.Option(
            "--no-references",
            help="fleur: do not show the judge references, even where there are any.",
        ),
    ] = False
    second_decimal: Annotated[
        Literal["always", "written"] | None,
        typer.Option(
            help="fleur: for an answer such as 0.8, add the second decimal that the judge had in mind (always, the "
            "default), or only smooth second decimals that it wrote, as the authors do (written)."
        ),
    ] = None
    gamma: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="harmoniceval: how to weight the criteria: 1 equally, 0.5 by how sure the judge is; default: 0.75.",
        ),
    ] = None
    task: Annotated[
        Literal["captioning", "question_answering", "referring", "documents"] | None,
        typer.Option(
            help="harmoniceval: what the texts are: captions (default), answers to questions about the image or the "
            "document in it (--question-column), or texts that say which object the red box marks (--box-column)."
        ),
    ] = None
    criterion: Annotated[
        list[str] | None,
        typer.Option(
            help="harmoniceval: rate only this criterion; repeat for several. overall: one rating for everything."
        ),
    ] = None
    question_column: Annotated[
        str | None, typer.Option(help="harmoniceval: column of questions; default: question.")
    ] = None
    task_column: Annotated[
        str | None,
        typer.Option(help="harmoniceval: column of each row's task, named as for --task or IC, VQA, REG, VDU."),
    ] = None
    box_column: Annotated[
        str | None, typer.Option(help="Column of boxes [x, y, width, height], which are drawn into the image in red.")
    ] = None
    draws: Annotated[
        int | None, typer.Option(min=1, help="fleur: use the mean of this many sampled grades, without smoothing.")
    ] = None
    temperature: Annotated[float | None, typer.Option(help="fleur: temperature of sampled grades; default: 1.")] = None
    explain: Annotated[
        Literal["before", "after"] | None,
        typer.Option(help="fleur: have the judge explain its grade, before or after giving it."),
    ] = None
    pad_images: Annotated[
        bool,
        typer.Option(
            "--pad-images",
            help="Pad images to squares, as FLEUR's authors do; by default the model's processor may cut off sides.",
        ),
    ] = False

    def settings(self) -> dict[str, Any]:
        """Settings that only the chosen metric has.

        Raises:
            typer.BadParameter: an option of another metric.
        """
        for name, metric in _OWN.items():
            if self.metric != metric:
                options.refuse({name: getattr(self, name) or None}, f"is for --metric {metric}")
        if self.draws is None:
            options.refuse({"temperature": self.temperature}, "is for sampled grades: give --draws, too")
        else:
            options.refuse({"second_decimal": self.second_decimal}, "is for smoothed scores: leave it out or --draws")
        names = ("gamma", "task", "second_decimal", "draws", "temperature")
        given: dict[str, Any] = {name: getattr(self, name) for name in names}
        given |= {"criteria": self.criterion, "explanation": self.explain}
        if self.metric == "fleur":
            given["use_references"] = not self.no_references
        return {name: value for name, value in given.items() if value is not None}

    def make(self, judge: Judge, settings: dict[str, Any]) -> JudgedScorer:
        """Makes the scorer; `settings` are those of the metric."""
        from reward.registry import metric_spec

        scorer_class: Any = metric_spec(self.metric).scorer_class()
        scorer: JudgedScorer = scorer_class(judge, prompt=self.prompt, pad_images=self.pad_images, **settings)
        return scorer


def judge(
    data: options.Data,
    output: options.ScoresFile,
    metric: MetricOptions,
    judge: judge_options.JudgeOptions,
    columns: options.ColumnOptions,
    run: options.RunOptions,
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            "-w",
            help="Weights of the scores in the column reward, as in correctness=2,fluency=1; default: the one number.",
        ),
    ] = None,
    candidate_column: options.CandidateColumn = None,
    strip_thinking: options.StripThinking = False,
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
    `error` where a caption has no score, for example because the judge's answer could not be read.

    Only fleur needs a model that writes numbers digit by digit (LLaVA-1.5 and Qwen2.5-VL do, GPT-4o does not), and only
    without --draws. A server must report log probabilities, except for clair and fleur with --draws.

    After Ctrl-C or a kill, run the same command again to continue. With --cache no question is ever paid for twice.
    """
    from reward.scoring.dataset import score_dataset

    settings = metric.settings()
    context = {"question": metric.question_column, "task": metric.task_column, "box": metric.box_column}
    model = judge.make()
    try:
        summary = score_dataset(
            data,
            metric.make(model, settings),
            output,
            weights=parse_weights(weights),
            candidate_column=candidate_column,
            strip_thinking=strip_thinking,
            context_columns={what: column for what, column in context.items() if column is not None},
            overwrite=run.overwrite,
            progress=not run.quiet,
            revision=judge.revision,  # this and the next only tell one run from another: the scorer is made already
            dtype=judge.dtype,
            **vars(columns),
        )
        report_scores(summary, quiet=run.quiet, what="judged")
    finally:
        print_usage(model.usage, quiet=run.quiet)
