"""`capreward corrupt` and `pairs-benchmark`: wrong captions of true ones, to train a metric on and to test it with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reward.cli import options, terminal
from reward.cli.judge_options import JudgeOptions
from reward.cli.reports import print_done, print_usage

if TYPE_CHECKING:
    from reward.judges import Judge
    from reward.scoring.readers import Source

__all__ = ["corrupt", "pairs_benchmark"]

Captions = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="As for `capreward score`, or NAME=FOLDER with published files of foil, textcaps, localized-narratives or "
        "pixelprose (with --split train or val).",
    ),
]


@dataclass(frozen=True, kw_only=True)
class RewriterOptions(JudgeOptions):
    """Which model rewrites captions that it reads without their images, if any."""

    judge: Annotated[
        str | None,
        typer.Option(
            "--judge",
            "-j",
            help="The model that rewrites: folder or Hub id of a language model or vision-language model; with "
            "--server, its name there.",
        ),
    ] = None  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class RetrievalOptions:
    """Which model finds captions of other images."""

    retrieve: Annotated[
        str | None,
        typer.Option(
            help="The model that retrieves: a CLIP as for the metric clipscore, or with --spm the file of BEiT-3's "
            "weights for retrieval, such as beit3_large_itc_patch16_224.pth."
        ),
    ] = None
    spm: Annotated[Path | None, typer.Option(help="BEiT-3's sentencepiece file, beit3.spm.")] = None
    per_band: Annotated[
        int, typer.Option(min=1, help="Most retrieved captions of each band: easy, medium and hard.")
    ] = 30


def corrupt(
    data: Captions,
    output: Annotated[Path, typer.Option("--output", "-o", help="A .parquet file, such as pairs/train.parquet.")],
    rewriter: RewriterOptions,
    retrieval: RetrievalOptions,
    columns: options.InputOptions,
    run: options.RunOptions,
    candidate_column: options.CandidateColumn = None,
    rewrite: Annotated[
        str | None,
        typer.Option(
            help="With --judge, kinds of errors, as in action,count; default: the paper's, which are spatial, "
            "actant_swap, action, noun_attribute, count and scene_text."
        ),
    ] = None,
    prompt: options.PromptFile = None,
    words: Annotated[
        str | None,
        typer.Option(
            help="Word-level errors, as in shuffle_words,repeat_noun, or all. Training makes them on demand anyway."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of word-level errors and of what is drawn from each band.")] = 0,
) -> None:
    """Make wrong captions of true ones, as rows that `capreward train beitscore` reads.

    ```
    capreward corrupt textcaps=FOLDER --split train --judge Qwen/Qwen3-30B-A3B-Instruct-2507 --rewrite scene_text \\
        --retrieve beit3_large_itc_patch16_224.pth --spm beit3.spm --output pairs/train.parquet
    capreward corrupt captions.jsonl --judge MODEL --server http://localhost:8000/v1 -o pairs/train.parquet
    capreward train beitscore --preset paper --data pairs --output my-beitscore
    ```

    A row of the output has the image, the caption, and a list of wrong captions for each kind of error. Wrong captions
    that the data hold already stay. Make `val.parquet` beside `train.parquet` with the same options, so that both have
    the same columns.

    The rewriter reads the caption alone. Answers that change nothing, explain themselves or change too much are left
    out, and counted. After Ctrl-C or a kill, run the same command again to continue: answers and embeddings are saved
    beside the output, in hidden files.
    """
    from reward.training.corruptions.datasets import PAPER_REWRITES, Retriever, make_corrupted
    from reward.training.corruptions.prompts import load_prompts
    from reward.training.corruptions.sampler import WORD_LEVEL

    if rewriter.judge is None:
        names = ("server", "concurrency", "cache", "prices", "extra_body", "batch_size", "revision", "dtype")
        given = {name: getattr(rewriter, name) for name in names}
        options.refuse({**given, "rewrite": rewrite, "prompt": prompt}, "goes with --judge")
    if retrieval.retrieve is None:
        options.refuse({"spm": retrieval.spm}, "goes with --retrieve")
    prompts = load_prompts(prompt)
    source = _open(data, columns.split)
    judge = None if rewriter.judge is None else rewriter.make(_load_rewriter)
    retriever = None
    if retrieval.retrieve is not None:
        towers = _towers(retrieval.retrieve, retrieval.spm, rewriter.device)
        retriever = Retriever(towers, retrieval.retrieve, per_band=retrieval.per_band)
    try:
        made = make_corrupted(
            source,
            output,
            words=WORD_LEVEL if words == "all" else _names(words) if words else (),
            judge=judge,
            rewrites=_names(rewrite) if rewrite else PAPER_REWRITES,
            prompts=prompts,
            retriever=retriever,
            caption_column=candidate_column,
            image_column=columns.image_column,
            image_root=columns.image_root,
            seed=seed,
            overwrite=run.overwrite,
            progress=not run.quiet,
        )
    finally:
        if judge is not None:
            print_usage(judge.usage, quiet=run.quiet)
    console = terminal.console(stderr=True)
    if made.already_done:
        print_done(made.output, "data and settings", "made")
    _report(made.counts, made.dropped, quiet=run.quiet)
    if not run.quiet:
        console.print(f"{made.rows:,} captions -> {made.output}", style="green")
    if not sum(made.counts.values()):
        console.print("error: no wrong caption could be made", style="red")
        raise typer.Exit(1)


def pairs_benchmark(
    data: Captions,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the benchmark; made if absent.")],
    judge: JudgeOptions,
    columns: options.InputOptions,
    candidate_column: options.CandidateColumn = None,
    rewrite: Annotated[
        str | None, typer.Option("--rewrite", help="Kinds of errors, as in 'action,scene text'; default: all six.")
    ] = None,
    prompt: options.PromptFile = None,
    beyond: Annotated[
        int, typer.Option(min=0, help="First CLIP token at which captions may differ (anywhere for scene text).")
    ] = 77,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no summary.")] = False,
) -> None:
    """Make a benchmark of long captions with one error, in the form of LongCapVLCP.

    ```
    capreward pairs-benchmark docci.jsonl --judge gpt-4o-2024-08-06 --server openai --output my-pairs
    capreward pairs-benchmark docci.jsonl --judge Qwen/Qwen2.5-VL-7B-Instruct --server http://localhost:8000/v1 -o pairs
    capreward bench --benchmark longcapvlcp --data my-pairs --metric beitscore
    ```

    A vision-language model sees the image and rewrites its caption, once for each of six kinds of errors. A pair is
    kept only if its captions are equal up to the token where a CLIP stops reading. Take another model than the one that
    made the training data. After Ctrl-C or a kill, run the same command again to continue.
    """
    from reward.scoring.writers import refuse_address
    from reward.training.corruptions.benchmark import make_pairs_benchmark
    from reward.training.corruptions.prompts import BENCHMARK_PROMPTS, load_prompts

    refuse_address(output)
    prompts = load_prompts(prompt or BENCHMARK_PROMPTS)
    captions, images = _captions(_open(data, columns.split), candidate_column, columns)
    asked = judge.make()
    try:
        built = make_pairs_benchmark(
            captions,
            images,
            asked,
            output,
            categories=_names(rewrite) if rewrite else tuple(prompts.changes),
            prompts=prompts,
            beyond=beyond,
            progress=not quiet,
        )
    finally:
        print_usage(asked.usage, quiet=quiet)
    _report(built.kept, built.dropped, quiet=quiet)
    console = terminal.console(stderr=True)
    if not len(built.pairs):
        console.print("error: no pair was kept, so nothing was written", style="red")
        raise typer.Exit(1)
    if not quiet:
        console.print(f"{len(built.pairs):,} pairs -> {output}", style="green")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _open(data: str, split: str | None) -> Source:
    from reward.scoring.readers import open_source
    from reward.training.published import PUBLISHED, load_published

    name, _, folder = data.partition("=")
    return open_source(load_published(name, Path(folder)) if folder and name in PUBLISHED else data, split=split)


def _captions(source: Source, candidate: str | None, columns: options.InputOptions) -> tuple[list[str], list[Any]]:
    from reward.training.corruptions.datasets import CaptionRows

    rows = CaptionRows(source, candidate, columns.image_column, columns.image_root)
    rows.check()
    return rows.captions, list(rows.images())


def _load_rewriter(model: str, **settings: Any) -> Judge:
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as SEEING

    from reward.judges import LocalJudge
    from reward.judges.language_model import load_language_model

    try:
        kind = AutoConfig.from_pretrained(model, revision=settings.get("revision"), trust_remote_code=False).model_type
    except (OSError, ValueError):  # the loader says what is wrong
        return LocalJudge.from_pretrained(model, **settings)
    return LocalJudge.from_pretrained(model, **settings) if kind in SEEING else load_language_model(model, **settings)


def _towers(source: str, spm: Path | None, device: str | None) -> Any:
    from reward.backbones.clip_loading import load_clip
    from reward.backbones.pretrained import usable_device
    from reward.metrics.beitscore.retrieval import load_beit3_towers

    return (
        load_clip(source, device=usable_device(device))
        if spm is None
        else load_beit3_towers(source, spm, device=device)
    )


def _report(counts: dict[str, int], dropped: dict[str, int], *, quiet: bool) -> None:
    """Prints how many wrong captions of each kind there are, and what was left out."""
    console = terminal.console(stderr=True)
    for kind, count in counts.items():
        if not count or not quiet:
            console.print(f"{kind}: {count:,} wrong captions", style=None if count else "yellow")
    for reason, count in dropped.items():
        if not quiet:
            console.print(f"{count:,} left out: {reason}", style="yellow")
