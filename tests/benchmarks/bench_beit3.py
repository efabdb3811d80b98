"""Speed and memory of our BEiT-3 encoder and of the reference formulation, and of groups of captions, in one run."""

from __future__ import annotations

import argparse
import io
import json
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import PreTrainedTokenizerFast

from reward import CaptionSample
from reward.metrics.beitscore import BeitScoreModel
from reward.metrics.beitscore.config import PRESETS, BeitScoreConfig
from reward.metrics.beitscore.scorer import BeitScoreScorer
from reward.metrics.beitscore.tokenizer import BeitScoreTokenizer
from tests.benchmarks.measuring import (
    bench_parser,
    in_fresh_process,
    make_table,
    measure_cell,
    measure_memory,
    measure_seconds,
    record,
    times_and_memory,
)

WAYS = ("reference", "ours")


def parse() -> argparse.Namespace:
    """Command line of the benchmark."""
    parser = bench_parser(__doc__, counts="the median", cells=["BATCH", "LENGTH"])
    parser.add_argument("--preset", default="base", choices=["base", "large"], help="width of the encoder")
    parser.add_argument("--layers", type=int, default=2, help="layers of the random encoder")
    parser.add_argument("--tokens", type=int, default=84, help="tokens of a caption; 84 make 985 with the image")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4], help="captions a batch")
    parser.add_argument("--lengths", type=int, nargs="*", default=[20, 250, 1022], help="tokens of a caption, batch 1")
    parser.add_argument("--groups", type=int, nargs="+", default=[2, 8], help="captions of one image")
    return parser.parse_args()


class ReferenceEncoder(nn.Module):
    """The same weights in the published formulation.

    One sequence that every multiway module splits and joins again; attention weights are written out, masked with minus
    infinity, and their softmax is taken in float32.
    """

    def __init__(self, model: BeitScoreModel) -> None:
        super().__init__()
        self.beit3 = model.beit3

    def forward(self, image: torch.Tensor, ids: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        beit3 = self.beit3
        vision, text = beit3.embed_image(image), beit3.embed_text(ids, padding)
        split = vision.shape[1]
        x = torch.cat([vision, text], dim=1)
        hidden = torch.cat([padding.new_zeros(vision.shape[:2]), padding], dim=1)

        def multiway(pair: Any, x: torch.Tensor) -> torch.Tensor:
            first, second = x.split([split, x.shape[1] - split], dim=1)
            return torch.cat([pair.A(first), pair.B(second)], dim=1)

        for layer in beit3.encoder.layers:
            x = x + self._attend(layer.self_attn, multiway(layer.self_attn_layer_norm, x), hidden, multiway)
            x = x + multiway(layer.ffn, multiway(layer.final_layer_norm, x))
        return multiway(beit3.encoder.layer_norm, x)

    @staticmethod
    def _attend(attention: Any, x: torch.Tensor, hidden: torch.Tensor, multiway: Any) -> torch.Tensor:
        batch, length, width = x.shape
        heads, size = attention.heads, width // attention.heads

        def split_heads(x: torch.Tensor) -> torch.Tensor:
            return x.view(batch, length, heads, size).transpose(1, 2).reshape(batch * heads, length, size)

        query = split_heads(multiway(attention.q_proj, x) * size**-0.5)
        key, value = split_heads(multiway(attention.k_proj, x)), split_heads(multiway(attention.v_proj, x))
        weights = torch.bmm(query, key.transpose(1, 2)).view(batch, heads, length, length)
        weights = weights.masked_fill(hidden[:, None, None], float("-inf")).view(batch * heads, length, length)
        weights = torch.softmax(weights, dim=-1, dtype=torch.float32).type_as(weights)
        mixed = torch.bmm(weights, value).view(batch, heads, length, size).transpose(1, 2).reshape(batch, length, width)
        return multiway(attention.out_proj, multiway(attention.inner_attn_ln, mixed))


def make_config(options: argparse.Namespace, **changes: int) -> BeitScoreConfig:
    """A published width with fewer layers and a small vocabulary, which costs no time."""
    return replace(PRESETS[options.preset], layers=options.layers, vocab_size=1000, drop_path=0.0, **changes)


def make_model(options: argparse.Namespace, **changes: int) -> BeitScoreModel:
    """Random weights."""
    torch.manual_seed(0)
    return BeitScoreModel(make_config(options, **changes)).to(options.device, getattr(torch, options.dtype)).eval()


def make_runs(
    options: argparse.Namespace, batch: int, length: int, **changes: int
) -> dict[str, Callable[[], torch.Tensor]]:
    """The functions to compare: images and captions (of lengths that differ a little) to the image's CLS states."""
    model = make_model(options, **changes)
    reference = ReferenceEncoder(model)
    numbers = torch.Generator().manual_seed(1)
    side = model.config.image_size
    image = torch.randn(batch, 3, side, side, generator=numbers).to(options.device)
    ids = torch.randint(3, 1000, (batch, length), generator=numbers).to(options.device)
    lengths = torch.tensor([max(1, length - 2 * row) for row in range(batch)])
    padding = (torch.arange(length)[None] >= lengths[:, None]).to(options.device)
    return {
        "reference": lambda: reference(image, ids, padding)[:, 0],
        "ours": lambda: model.beit3(image, ids, padding)[0][:, 0],
    }


def measure(options: argparse.Namespace, what: str, batch: int, length: int) -> Any:
    """Seconds of both formulations with the largest difference of their states ("times"), those of `measure_group`
    ("group"), or megabytes that one pass of the way `what` adds at its peak, over the model."""
    if what == "group":
        return measure_group(options, batch)
    with torch.inference_mode():
        if what != "times":
            make_runs(options, 1, 4, image_size=32)[what]()  # libraries take memory of their own at the first call
            return measure_memory(make_runs(options, batch, length)[what], options.device)
        runs = make_runs(options, batch, length)
        states = {way: run() for way, run in runs.items()}  # which also warms up
        times = _medians(options, runs)
    return {**times, "difference": float((states["ours"] - states["reference"]).abs().max())}


def _medians(options: argparse.Namespace, runs: dict[str, Callable[[], Any]]) -> dict[str, float]:
    seconds = measure_seconds(runs, options.repeats, options.device)
    return {way: statistics.median(times) for way, times in seconds.items()}


def make_samples(count: int, tokens: int) -> list[CaptionSample]:
    """Captions of a photo's size of noise, as JPEG bytes in an object of their own each, as trainers hand them over."""
    pixels = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).resize((1600, 1200)).save(file, "JPEG")
    return [
        CaptionSample(
            " ".join(f"w{(row + word) % 900}" for word in range(tokens - 2)), bytes(bytearray(file.getvalue()))
        )
        for row in range(count)
    ]


def measure_group(options: argparse.Namespace, count: int) -> dict[str, float]:
    """Seconds of scoring the captions of one image together, together without sharing, and one by one."""
    words = {word: row for row, word in enumerate(["<p>", "<s>", "</s>", "<u>", *(f"w{row}" for row in range(900))])}
    backend = Tokenizer(models.WordLevel(words, "<u>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<p>", bos_token="<s>", eos_token="</s>")
    model = make_model(options)
    tokenizer = BeitScoreTokenizer.from_fast(fast, max_tokens=model.config.max_text_tokens)
    scorer = BeitScoreScorer(model, tokenizer)
    samples = make_samples(count, options.tokens)
    runs = {
        "one by one": lambda: np.concatenate([scorer.score([sample]).scores for sample in samples]),
        "one group": lambda: scorer.score(samples).scores,
    }
    scores = {way: run() for way, run in runs.items()}
    difference = float(np.abs(scores["one group"] - scores["one by one"]).max())
    shared = {"image": lambda: embed_once(scorer, samples[0])}
    return {**_medians(options, runs), **_medians(options, shared), "difference": difference}


def embed_once(scorer: BeitScoreScorer, sample: CaptionSample) -> torch.Tensor:
    """What a group shares: decoding, scaling and embedding its image."""
    from reward.images import load_image

    pixels = scorer.model.preprocess(load_image(sample.image))  # type: ignore[arg-type]
    with torch.inference_mode():
        return scorer.model.beit3.embed_image(pixels[None].to(scorer.model.device))


def main() -> None:
    """Prints a table of both formulations by batch size and caption length, and one of groups."""
    options = parse()
    if measure_cell(options, measure):
        return
    image_tokens = 1 + make_config(options).patches
    name = f"BEiT-3 {options.preset} width, {options.layers} layers, {options.dtype}, {options.device}"
    heads = ["captions\na batch", "tokens\nof a caption", "tokens\nin all", *(f"{way}\nms / MB added" for way in WAYS)]
    encoders = make_table(
        f"{name}, {torch.get_num_threads()} threads; reference: softmax written out, one sequence",
        [*heads, "ours\ncaptions/s", "times\nfaster", "largest\ndifference"],
    )
    cells = [(batch, options.tokens) for batch in options.batches] + [(1, length) for length in options.lengths]
    for batch, length in cells:
        times, both = times_and_memory(WAYS, batch, length, print_json=options.json)
        sizes = map(str, (batch, length, batch * (image_tokens + length)))
        ratio = times["reference"] / times["ours"]
        record({f"batch {batch}, {length} tokens, reference / ours": ratio})
        faster = f"{batch / times['ours']:.2f}", f"{ratio:.2f}x"
        encoders.add_row(*sizes, *both.values(), *faster, f"{times['difference']:.1e}")

    heads = ["captions", "one by one\nms", "one group\nms", "times\nfaster", "shared image\nms", "captions/s"]
    groups = make_table(
        f"The same encoder in BeitScoreScorer: captions of {options.tokens} tokens of one 1600 x 1200 JPEG",
        [*heads, "largest\ndifference"],
    )
    for count in options.groups:
        times = in_fresh_process("group", count, options.tokens)
        if options.json:
            print(json.dumps({"group": count, "seconds": times}), flush=True)
        alone, together = times["one by one"], times["one group"]
        record({f"group of {count}, one by one / together": alone / together})
        groups.add_row(
            *(str(count), f"{1000 * alone:.0f}", f"{1000 * together:.0f}", f"{alone / together:.2f}x"),
            *(f"{1000 * times['image']:.0f}", f"{count / together:.2f}", f"{times['difference']:.1e}"),
        )
    if not options.json:
        for table in (encoders, groups):
            Console(width=120).print(table)


if __name__ == "__main__":
    main()
