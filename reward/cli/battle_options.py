"""What `capreward battle` and `capreward caparena-auto` share: options, the pairwise judge, and what is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reward.cli import judge_options, terminal

if TYPE_CHECKING:
    from reward.arena.judging import BattleSummary
    from reward.arena.pairwise import PairwiseJudge
    from reward.arena.verdicts import PositionBias
    from reward.judges import Judge

__all__ = [
    "Images",
    "MaxNewTokens",
    "NoReasons",
    "NoReference",
    "OneOrder",
    "Output",
    "Seed",
    "make_pairwise",
    "print_battles",
]

Images = Annotated[Path, typer.Option("--images", "-i", help="Folder of the images.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="A .json file: the battles with the judge's verdicts.")]
OneOrder = Annotated[
    bool,
    typer.Option(
        "--one-order",
        help="Ask once, in the order of the file, instead of in both orders: half the price, but the judge's liking "
        "for a place is not cancelled.",
    ),
]
NoReasons = Annotated[
    bool,
    typer.Option(
        "--no-reasons",
        help="Read the probabilities of the verdicts instead of having reasons written: much faster. The likeliest "
        "verdict counts, in the mean of both orders.",
    ),
]
NoReference = Annotated[bool, typer.Option("--no-reference", help="Do not show the judge the reference captions.")]
MaxNewTokens = Annotated[int, typer.Option(min=1, help="Most tokens of a written reason and verdict.")]
Seed = Annotated[int, typer.Option(help="Of the order in which the captions of a battle stand in the file.")]


def make_pairwise(
    judge: Judge, *, no_reasons: bool, one_order: bool, prompt: Path | None, max_new_tokens: int
) -> PairwiseJudge:
    """The pairwise judge that the options ask for.

    Raises:
        ConfigError: the prompt file will not do.
    """
    from reward.arena.pairwise import PairPrompt, PairwiseJudge

    wording = PairPrompt.default() if prompt is None else PairPrompt.from_file(prompt)
    return PairwiseJudge(
        judge, reasons=not no_reasons, both_orders=not one_order, prompt=wording, max_new_tokens=max_new_tokens
    )


def print_battles(run: Callable[[], BattleSummary], *, quiet: bool, table: Callable[[BattleSummary], Any]) -> None:
    """Runs battles, prints what came of them on stderr, and exits with the right code.

    Args:
        run: gives the summary.
        quiet: print only what went wrong.
        table: makes the table of results.
    """
    console = terminal.console(stderr=True)
    summary = run()
    for line in _notes(summary):
        console.print(line, style="yellow")
    if not quiet:
        console.print(table(summary))
        if summary.bias.first + summary.bias.second:
            console.print(_bias_line(summary.bias))
        if summary.usage.answered:
            console.print(judge_options.usage_line(summary.usage))
        before = f" ({summary.resumed} of them by an earlier run)" if summary.resumed else ""
        console.print(f"judged {summary.judged} battles{before} -> {summary.output}", style="green")
    if not summary.judged:
        console.print("error: no battle could be judged", style="red")
    if summary.unanswered or not summary.judged:
        raise typer.Exit(1)


def _notes(summary: BattleSummary) -> Iterator[str]:
    if summary.already_done:
        yield (
            f"{summary.output} is complete already, from the same battles and settings; nothing was asked again "
            "(--overwrite does)."
        )
    if summary.human:
        yield f"{summary.human} battles of the source 'human' are left without a verdict"
    if summary.unreadable:
        yield f"{summary.unreadable} battles have no verdict; the first: {summary.examples['unreadable']}"
    if summary.unanswered:
        yield (
            f"{summary.unanswered} battles were not answered; run the same again to ask for them. "
            f"The first: {summary.examples['unanswered']}"
        )


def _bias_line(bias: PositionBias) -> str:
    line = f"the caption shown first won {100 * bias.first_share:.1f}% of the answers with a winner"
    if bias.both_orders:
        line += f"; the two orders disagree in {100 * bias.inconsistency:.1f}% of the pairs"
    return line
