"""`capreward caption`: captions images with a model, choosing among candidates by a metric."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from reward.cli import options, terminal
from reward.cli.terminal import print_done, print_usage

if TYPE_CHECKING:
    from reward.decoding.captioners import LocalCaptioner, ServerCaptioner
    from reward.decoding.captioning import CaptioningSummary

_FEW = (
    ", so there is little to choose from: raise --temperature. A server of transformers samples only where the model's "
    'generation_config.json has "do_sample": true; vLLM takes top_k and top_p from there, unless it is started with '
    "--generation-config vllm"
)


@options.describe(
    "model metric set weights n prompt temperature max-tokens seed keep-candidates output device cache overwrite quiet",
    synonyms={
        "--images --image-root": "IMAGES, without an option",
        "--server --served-model": "--model ADDRESS#NAME",
        "--num --num-candidates --num-samples --num-return-sequences --best-of": "-n",
    },
)
def caption(
    images: Annotated[str, typer.Argument(help="Folder of images, an image, or a data file with their paths.")],
    metrics: options.MetricOptions,
    model: Annotated[
        str,
        typer.Option(
            help="Folder or Hub id of a vision-language model, `embedded` (small, for trials), or the address of an "
            "OpenAI-compatible server, such as http://localhost:8000/v1, and #NAME if it has several models. Its key "
            "is read from $OPENAI_API_KEY."
        ),
    ],
    columns: options.InputOptions,
    device: options.DeviceOptions,
    speed: options.SpeedOptions,
    run: options.RunOptions,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .jsonl file; default: IMAGES.captions.jsonl beside them.")
    ] = None,
    n: Annotated[
        int | None, typer.Option("--n", "-n", help="Candidates an image; default: 16, and 1 without --metric.")
    ] = None,
    keep_candidates: Annotated[
        bool,
        typer.Option("--keep-candidates", help="Leave all candidates with their scores in OUTPUT.candidates.jsonl."),
    ] = False,
    weights: options.Weights = None,
    model_set: Annotated[
        list[str] | None,
        typer.Option(
            "--model-set",
            metavar="NAME=VALUE",
            help="Setting of a server: concurrency, prices (of a million tokens read and written, as in [2.5,10]), or "
            "extra_body, JSON for each request. Repeat it for several.",
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="What the model is asked; default: Describe the image in detail. `embedded` is asked what it was "
            "trained on: Describe the picture. It also knows: Describe the picture briefly."
        ),
    ] = None,
    temperature: Annotated[float, typer.Option(help="Temperature of sampling.")] = 1.0,
    top_p: Annotated[
        float,
        typer.Option(
            help="Sample from the likeliest tokens with this probability together; at 1, a server does what it does "
            "by default."
        ),
    ] = 1.0,
    max_tokens: Annotated[int, typer.Option(help="Most tokens of a caption.")] = 256,
    seed: Annotated[
        int | None, typer.Option(help="Makes a model on this machine repeatable; a server may heed it.")
    ] = None,
    chunk: Annotated[
        int | None, typer.Option(help="Candidates of an image to ask for, or to sample, at a time; default: all.")
    ] = None,
) -> None:
    """Caption images: sample candidates from a model, and keep the one that a metric likes best.

    Without a metric, each image gets one caption: `capreward caption photos --model MODEL`.

    By the weighted mean of several metrics: `-m vela=my-vela -m beitscore=my-beitscore -w vela=0.7,beitscore=0.3`.

    By a model behind a server, which you start with `vllm serve MODEL`, and by one on this machine:

    ```
    capreward caption photos --model http://localhost:8000/v1 -n 16 \\
        -m longclipscore=BeichenZhang/LongCLIP-L -o captions.jsonl
    capreward caption photos --model Qwen/Qwen3-VL-4B-Instruct \\
        -m clipscore=ViT-L-14:openai -o captions.jsonl
    ```

    The output has one row an image: `image`, `caption`, `reward`, and `error` where candidates are missing. Images come
    from a folder and the folders in it, or from the column of a data file, which may also hold references for the
    metric.

    Candidates are saved as they come and scored afterwards. After Ctrl-C or a kill, run the same command again to
    continue. Candidates of an unfinished run with the same settings are kept, even with --overwrite. Images that lack
    candidates are tried again.
    """
    from reward.decoding.captioners import EMBEDDED_PROMPT, Sampling
    from reward.decoding.captioning import caption_images
    from reward.decoding.photos import read_images
    from reward.scoring.writers import output_beside

    prompt = prompt or (EMBEDDED_PROMPT if model == "embedded" else Sampling.prompt)
    sampling = Sampling(
        prompt=prompt, temperature=temperature, top_p=top_p, max_tokens=max_tokens, seed=seed, chunk=chunk
    )
    sources = metrics.sources() if metrics.metric or metrics.settings else None
    speed.check_cache()
    scoring = {**vars(device), **vars(speed), "weights": options.weights_option(weights)}
    # Before the images are read, so that a wrong address or folder ends the command at once.
    captioner = _captioner(model, model_set, device.device)
    try:
        summary = caption_images(
            read_images(images, **vars(columns)),
            captioner,
            output or output_beside(images, "captions").with_suffix(".jsonl"),
            metric=sources,
            n=n,
            sampling=sampling,
            keep_candidates=keep_candidates,
            overwrite=run.overwrite,
            progress=not run.quiet,
            **{name: value for name, value in scoring.items() if value is not None},
        )
    finally:  # what was paid for before a Ctrl-C is said, too
        print_usage([captioner.usage], by="model", quiet=run.quiet)
    _report(summary, quiet=run.quiet)


def _captioner(model: str, settings: list[str] | None, device: str | None) -> ServerCaptioner | LocalCaptioner:
    from reward.decoding.captioners import LocalCaptioner, ServerCaptioner

    if not model.startswith(("http://", "https://")):
        options.refuse({"model_set": settings}, "is for a server: give --model its address")
        return LocalCaptioner(model, device=device)
    address, _, name = model.partition("#")
    return ServerCaptioner(address, name or None, **options.model_settings(settings))


def _report(summary: CaptioningSummary, *, quiet: bool) -> None:
    console = terminal.console(stderr=True)
    if summary.already_done:
        print_done(summary.output, "images and settings", "asked")
    for reason, count in list(summary.problems.items())[:5]:
        console.print(f"no caption for {count} of {summary.images} images: {reason}", style="yellow")
    if summary.to_try_again:
        console.print(f"the same command tries {summary.to_try_again} of them again", style="yellow")
    if not quiet:
        if summary.truncated:
            cut = f"{summary.truncated} of {summary.candidates} candidates were cut at --max-tokens"
            console.print(cut, style="yellow")
        if summary.distinct is not None:
            line = f"distinct among the candidates of an image: {summary.distinct:.0%}"
            if summary.distinct > 0.5:
                console.print(line)
            else:
                console.print(line + _FEW, style="yellow")
        if summary.mean_of_all is not None:
            console.print(f"mean reward: {summary.mean_of_all:.3f} of all, {summary.mean_of_chosen:.3f} of the chosen")
        line = f"captioned {summary.captioned} of {summary.images} images from {summary.candidates} candidates"
        if summary.resumed:
            line += f" ({summary.resumed} of them from an earlier run)"
        console.print(f"{line} -> {summary.output}", style="green")
    if not summary.captioned:
        console.print("error: no image could be captioned", style="red")
        raise typer.Exit(1)
