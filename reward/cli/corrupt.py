"""`capreward corrupt`: wrong captions of true ones, to train a metric on or, with --benchmark, to test it with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reward.cli import options, terminal
from reward.cli.judges import JudgeSettings, read_settings
from reward.cli.summaries import print_done, print_usage

if TYPE_CHECKING:
    from reward.scoring.sources import Source


@options.describe(
    "output judge judge-set rewrite words retrieve benchmark prompt per-band device seed caption-column image-column "
    "overwrite quiet",
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
        typer.Option("--output", "-o", help="A .parquet file, such as pairs/train.parquet; with --benchmark a folder."),
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
    judge_set: JudgeSettings = None,
    rewrite: Annotated[
        str | None,
        typer.Option(
            help="With --judge, kinds of errors, as in action,count; default: the paper's, which are spatial, "
            "actant_swap, action, noun_attribute, count and scene_text."
        ),
    ] = None,
    prompt: Annotated[
        Path | None, typer.Option(help="YAML file with prompts of your own; default: the one that ships.")
    ] = None,
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
    per_band: Annotated[
        int, typer.Option(min=1, help="Most retrieved captions of each band: easy, medium and hard.")
    ] = 30,
    device: options.Device = None,
    benchmark: Annotated[
        bool, typer.Option("--benchmark", help="Make a benchmark of long captions with one error each.")
    ] = False,
    beyond: Annotated[
        int,
        typer.Option(min=0, help="With --benchmark: first CLIP token at which captions may differ but in scene text."),
    ] = 77,
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

    With --benchmark, pairs in the form of LongCapVLCP:

    ```
    capreward corrupt docci.jsonl --benchmark -o my-pairs \\
        --judge https://api.openai.com/v1#gpt-4o-2024-08-06
    capreward bench --benchmark longcapvlcp --data my-pairs -m beitscore
    ```

    The model then sees the image, too. A pair is kept only if its captions are equal up to the token where a CLIP stops
    reading. Take another model than the one that made the training data.
    """
    from reward.judges.sources import load_judge

    if judge is None:
        options.refuse({"rewrite": rewrite, "prompt": prompt, "judge_set": judge_set}, "goes with --judge")
    if retrieve is None:
        options.refuse({"spm": spm}, "goes with --retrieve")
    if benchmark and judge is None:
        raise typer.BadParameter("goes with --judge, which rewrites the captions", param_hint="--benchmark")
    from reward.scoring.writers import refuse_address
    from reward.training.corruptions.benchmark import make_pairs_benchmark
    from reward.training.corruptions.datasets import PAPER_REWRITES, CaptionRows, caption_and_image, make_corrupted
    from reward.training.corruptions.prompts import BENCHMARK_PROMPTS, load_prompts
    from reward.training.corruptions.sampler import WORD_LEVEL

    source, kinds = _open(data, columns.split), _names(rewrite)
    asked: Any = None if judge is None else load_judge(judge, lazily=True, **read_settings(judge_set))
    prompts = load_prompts(prompt or (BENCHMARK_PROMPTS if benchmark else None))
    how: dict[str, Any] = {"prompts": prompts, "progress": not run.quiet}
    try:
        if benchmark:
            refuse_address(output)
            found = caption_and_image(source, candidate_column, columns.image_column)
            rows = CaptionRows(source, *found, columns.image_root)
            how |= {"categories": kinds, "beyond": beyond}
            built = make_pairs_benchmark(rows.captions, list(rows.images()), asked, output, **how)
            counts, dropped, nothing = built.kept, built.dropped, "no pair was kept, so nothing was written"
            done = f"{sum(counts.values()):,} pairs -> {output}"
        else:
            how |= {"words": WORD_LEVEL if words == "all" else _names(words), "rewrites": kinds or PAPER_REWRITES}
            how |= {"retriever": None if retrieve is None else _retriever(retrieve, spm, device, per_band)}
            how |= {"caption_column": candidate_column, "image_column": columns.image_column, "seed": seed}
            how |= {"image_root": columns.image_root, "overwrite": run.overwrite}
            made = make_corrupted(source, output, judge=asked, **how)
            if made.already_done:
                print_done(made.output, "data and settings", "made")
            counts, dropped, nothing = made.counts, made.dropped, "no wrong caption could be made"
            done = f"{made.rows:,} captions -> {output}"
        _report(counts, dropped, done, None if sum(counts.values()) else nothing, run.quiet)
    finally:
        print_usage([] if asked is None else [asked.usage], quiet=run.quiet)


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _open(data: str, split: str | None) -> Source:
    from reward.scoring.readers import open_source
    from reward.training.published import CAPTIONS, load_captions

    name, _, folder = data.partition("=")
    return open_source(load_captions(name, Path(folder)) if folder and name in CAPTIONS else data, split=split)


def _retriever(source: str, spm: Path | None, device: str | None, per_band: int) -> Any:
    from reward.backbones.clip_loading import load_clip
    from reward.backbones.pretrained import usable_device
    from reward.metrics.beitscore.retrieval import load_beit3_towers
    from reward.training.corruptions.datasets import Retriever

    towers = (
        load_clip(source, device=usable_device(device))
        if spm is None
        else load_beit3_towers(source, spm, device=device)
    )
    return Retriever(towers, source, per_band=per_band)


def _report(counts: dict[str, int], dropped: dict[str, int], done: str, nothing: str | None, quiet: bool) -> None:
    """Prints how many wrong captions of each kind there are, and what was left out; exits with 1 if there are none."""
    console = terminal.console(stderr=True)
    for kind, count in counts.items():
        if not count or not quiet:
            console.print(f"{kind}: {count:,} wrong captions", style=None if count else "yellow")
    for reason, count in ({} if quiet else dropped).items():
        console.print(f"{count:,} left out: {reason}", style="yellow")
    if nothing:
        console.print(f"error: {nothing}", style="red")
        raise typer.Exit(1)
    if not quiet:
        console.print(done, style="green")
