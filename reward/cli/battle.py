"""The options of `capreward arena` that have a judge decide battles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reward.cli import options, terminal
from reward.cli.terminal import print_done, print_usage

if TYPE_CHECKING:
    from reward.metaeval.arena.battles import Battle


@dataclass(frozen=True, kw_only=True)
class JudgingOptions:
    """Which model decides battles, if any, and how."""

    judge: Annotated[
        str | None,
        typer.Option(
            "--judge",
            "-j",
            help="Have this model decide: folder or Hub id of a vision-language model, or ADDRESS#NAME of one behind "
            "an OpenAI-compatible server, as in http://localhost:8000/v1#NAME. Its key is read from $OPENAI_API_KEY.",
        ),
    ] = None
    judge_set: options.JudgeSettings = None
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="With --judge a .json file: the battles with its verdicts. Without, an .html, .md, .tex or .csv file "
            "of the tables, or a folder.",
        ),
    ] = None
    auto: Annotated[
        Path | None,
        typer.Option(help="Let the models meet the baselines of CapArena-Auto: the authors' caparena_auto_600.json."),
    ] = None
    one_order: Annotated[
        bool | None,
        typer.Option(
            "--one-order",
            help="Ask once, in the order of the file, instead of in both orders. That costs half as much, but the "
            "judge's preference for a position does not cancel out.",
        ),
    ] = None
    no_reasons: Annotated[
        bool | None,
        typer.Option(
            "--no-reasons",
            help="Read the probabilities of the verdicts instead of having reasons written: much faster. The most "
            "probable verdict counts, by the mean of both orders.",
        ),
    ] = None
    prompt: options.PromptFile = None
    overwrite: Annotated[
        bool | None, typer.Option("--overwrite", help="Replace a finished output, and discard an unfinished run.")
    ] = None

    @property
    def report(self) -> Path | None:
        """Where tables go: the output, if it is not for verdicts."""
        is_for_verdicts = self.judge is not None or self.output is None or self.output.suffix.lower() == ".json"
        return None if is_for_verdicts else self.output

    def read(
        self, files: Sequence[str], images: Path, seed: int, figures: options.FigureOptions
    ) -> tuple[list[Battle], int]:
        """Battles of files, or those that the judge decides; and how many it did not answer.

        Raises:
            typer.BadParameter: options that do not go together.
            typer.Exit: no battle could be judged.
        """
        from reward.judges.loading import load_judge
        from reward.judges.pairwise import PairwiseJudge
        from reward.metaeval.arena import read_battles
        from reward.metaeval.arena.judging import judge_battles

        if self.judge is None:
            # All options of this group but --judge itself, of which none is true unless it was written.
            of_judge = {name: value or None for name, value in vars(self).items() if name != "output"}
            options.refuse(of_judge, "goes with --judge")
            if self.report is None:
                message = "ending in .json is for the verdicts of --judge; tables go to .html, .md, .tex or .csv"
                options.refuse({"output": self.output}, message)
            entries = []
            for path in files:
                entries += read_battles(path)
            return entries, 0
        if self.output is None:
            raise typer.BadParameter("is missing: where are the verdicts to be kept?", param_hint="--output")
        battles = self._battles(files, seed)
        # Lazily: what is wrong with the battles, or complete already, is said before a model of gigabytes is loaded.
        judge = load_judge(self.judge, lazily=True, **options.model_settings(self.judge_set))
        pairwise = PairwiseJudge(
            judge,
            reasons=not self.no_reasons,
            both_orders=not self.one_order,
            prompt=self.prompt,
        )
        try:
            judged = judge_battles(
                battles,
                pairwise,
                self.output,
                image_root=images,
                references=not figures.no_references,
                overwrite=bool(self.overwrite),
                progress=not figures.quiet,
            )
        finally:
            print_usage([judge.usage], quiet=figures.quiet)
        console = terminal.console(stderr=True)
        if judged.already_done:
            print_done(self.output, "battles and settings", "asked")
        # The exit code of a run that failed altogether, such as with a wrong key, must not be that of a success.
        if not any("judge" in battle for battle in judged.battles):
            problems = [battle["judge_error"] for battle in judged.battles if "judge_error" in battle]
            console.print(f"error: no battle could be judged; the first: {problems[0]}", style="red")
            raise typer.Exit(1)
        if not figures.quiet:
            line = f"judged {sum('judge' in battle for battle in judged.battles)} battles"
            if judged.resumed:
                line += f" ({judged.resumed} of them by an earlier run)"
            console.print(f"{line} -> {self.output}", style="green")
        return judged.battles, judged.unanswered

    def _battles(self, files: Sequence[str], seed: int) -> list[Battle]:
        """The battles of one file, or of the captions of models."""
        from reward.metaeval.arena.battles import (
            make_auto_battles,
            make_battles,
            read_auto,
            read_battles,
            read_captions,
        )

        if self.auto is None and len(files) == 1:
            return read_battles(files[0])
        captions = {model: read_captions(path) for model, path in options.named_files([*files], "BATTLES").items()}
        if self.auto is None:
            return make_battles(captions, seed=seed)
        items = read_auto(self.auto)
        battles = []
        for model in captions:
            battles += make_auto_battles(items, captions[model], model, seed=seed)
        return battles
