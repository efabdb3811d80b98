"""Facts about published checkpoints, readable without loading torch, and the judges that several metrics can ask."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LLAVA_13B", "QWEN_VL_3B", "QWEN_VL_7B", "CheckpointFacts"]

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class CheckpointFacts:
    """What is known of a checkpoint. What nobody has stated or counted stays `"unknown"` or None.

    Args:
        source: what to write as `source=` or `--source`: a name of the Hub or of open_clip, the path of a file that its
            authors publish elsewhere, the folder of a checkpoint that you train, or a service.
        licence: of the weights, as their makers state it.
        download: bytes to fetch, of the backbones if you train it.
        weights: numbers in the networks, counted on their published sizes.
        dtype: in which the scorer holds them unless it is told otherwise.
        gflops: a caption, in billions: counted for eight captions of one image, 60 words each, with five references of
            30 words where the metric reads them.
        note: what one must know besides.

    Example:
        >>> CheckpointFacts("ViT-B-32:openai", weights=151_277_313).memory
        0.5635...
    """

    source: str
    licence: str = "unknown"
    download: int | None = None
    weights: int | None = None
    dtype: str = "float32"
    gflops: float | None = None
    note: str = ""

    @property
    def memory(self) -> float | None:
        """GiB that the weights take."""
        return None if self.weights is None else self.weights * _BYTES[self.dtype] / 2**30


QWEN_VL_7B = CheckpointFacts(
    "Qwen/Qwen2.5-VL-7B-Instruct", "apache-2.0", download=16_584_000_000, weights=8_292_166_656, dtype="bfloat16"
)
QWEN_VL_3B = CheckpointFacts(
    "Qwen/Qwen2.5-VL-3B-Instruct",
    "qwen-research (not commercial)",
    download=7_510_000_000,
    weights=3_754_622_976,
    dtype="bfloat16",
)
LLAVA_13B = CheckpointFacts(
    "llava-hf/llava-1.5-13b-hf", "llama2", download=26_690_000_000, weights=13_351_494_656, dtype="float16"
)
