"""`capreward corrupt`: wrong captions of true ones, to train a metric on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reward.cli import options, terminal
from reward.cli.terminal import print_done, print_usage

if TYPE_CHECKING:
    from reward.scoring.sources import Source
    from reward.training.corruptions.datasets import Corrupted, Retriever


@options.describe(
    "output judge judge-set rewrite words retrieve prompt device seed caption-column image-column overwrite quiet",
    synonyms={"--model": "--judge", "--server": "--judge ADDRESS#NAME"},
)
def corrupt(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="As for `capreward score`, or NAME=FOLDER with published files of foil, textcaps, "
            "localized-narratives or pixelprose (with --split train or val).",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="A .parquet file, such as pairs/train.parquet."),
    ],
    columns: options.InputOptions,
    run: options.RunOptions,
    judge: Annotated[
        str | None,
        typer.Option(
            "--judge",
            "-j",
            help="The model that rewrites: folder or Hub id of a language model or vision-language model, or "
            "ADDRESS#NAME of one behind an OpenAI-compatible server.",
        ),
    ] = None,
    judge_set: options.JudgeSettings = None,
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
    retrieve: Annotated[
        str | None,
        typer.Option(
            help="The model that finds captions of other images: a CLIP as for the metric clipscore, or with --spm the "
            "file of BEiT-3's weights for retrieval, such as beit3_large_itc_patch16_224.pth."
        ),
    ] = None,
    spm: Annotated[Path | None, typer.Option(help="BEiT-3's sentencepiece file, beit3.spm.")] = None,
    device: options.Device = None,
    candidate_column: options.CandidateColumn = None,
    seed: Annotated[int, typer.Option(help="Seed of word-level errors and of what is drawn from each band.")] = 0,
) -> None:
    """Make wrong captions of true ones, as rows that `capreward train beitscore` reads.

    ```
    capreward corrupt textcaps=FOLDER --split train --rewrite scene_text \\
        --judge Qwen/Qwen3-30B-A3B-Instruct-2507 --output pairs/train.parquet
    capreward corrupt captions.jsonl --judge http://localhost:8000/v1#MODEL \\
        --retrieve ViT-L-14:openai --output pairs/train.parquet
    capreward train beitscore --preset paper --data pairs -o my-beitscore
    ```

    A row of the output has the image, the caption, and a list of wrong captions for each kind of error. Wrong captions
    that the data hold already stay. Make `val.parquet` beside `train.parquet` with the same options, so that both have
    the same columns.

    The rewriter reads the caption alone. Answers that change nothing, explain themselves or change too much are left
    out, and counted. After Ctrl-C or a kill, run the same command again to continue: answers and embeddings are saved
    beside the output, in hidden files.
    """
    from reward.judges.loading import load_judge

    # What goes together is checked before torch and the data are touched.
    if judge is None:
        options.refuse({"rewrite": rewrite, "prompt": prompt, "judge_set": judge_set}, "goes with --judge")
    if retrieve is None:
        options.refuse({"spm": spm}, "goes with --retrieve")
    from reward.training.corruptions.datasets import PAPER_REWRITES, make_corrupted
    from reward.training.corruptions.rewrite_prompts import load_prompts
    from reward.training.corruptions.sampler import WORD_LEVEL

    reader = _open(data, columns.split)
    rewriter = None if judge is None else load_judge(judge, lazily=True, **options.model_settings(judge_set))
    try:
        corrupted = make_corrupted(
            reader,
            output,
            words=WORD_LEVEL if words == "all" else _names(words),
            judge=rewriter,
            rewrites=_names(rewrite) or PAPER_REWRITES,
            prompts=load_prompts(prompt),
            retriever=None if retrieve is None else _retriever(retrieve, spm, device),
            caption_column=candidate_column,
            image_column=columns.image_column,
            image_root=columns.image_root,
            seed=seed,
            overwrite=run.overwrite,
            progress=not run.quiet,
        )
        if corrupted.already_done:
            print_done(corrupted.output, "data and settings", "made")
        _report(corrupted, run.quiet)
    finally:
        print_usage([] if rewriter is None else [rewriter.usage], quiet=run.quiet)


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _open(data: str, split: str | None) -> Source:
    from reward.scoring.readers import open_source
    from reward.training.authors_files import CAPTIONS, load_caption_files

    name, _, folder = data.partition("=")
    if folder and name in CAPTIONS:
        return open_source(load_caption_files(name, Path(folder)), split=split)
    return open_source(data, split=split)


def _retriever(checkpoint: str, spm: Path | None, device: str | None) -> Retriever:
    from reward.backbones.clip_loading import load_clip
    from reward.backbones.pretrained import usable_device
    from reward.metrics.beitscore.retrieval import load_beit3_towers
    from reward.training.corruptions.datasets import Retriever

    if spm is None:
        towers: Any = load_clip(checkpoint, device=usable_device(device))
    else:
        towers = load_beit3_towers(checkpoint, spm, device=device)
    return Retriever(towers, checkpoint)


def _report(corrupted: Corrupted, quiet: bool) -> None:
    """Prints how many wrong captions of each kind there are, and what was left out; exits with 1 if there are none."""
    console = terminal.console(stderr=True)
    for kind, count in corrupted.counts.items():
        if not count:  # said in any case
            console.print(f"{kind}: 0 wrong captions", style="yellow")
        elif not quiet:
            console.print(f"{kind}: {count:,} wrong captions")
    if not quiet:
        for reason, count in corrupted.dropped.items():
            console.print(f"{count:,} left out: {reason}", style="yellow")
    if not any(corrupted.counts.values()):
        console.print("error: no wrong caption could be made", style="red")
        raise typer.Exit(1)
    if not quiet:
        console.print(f"{corrupted.rows:,} captions -> {corrupted.output}", style="green")
