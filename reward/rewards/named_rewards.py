"""VelaReward, BeitScoreReward, FleurReward, HarmonicReward and RemoteReward: MetricReward with their own arguments.

`trl grpo --reward_funcs capreward.vela_reward capreward.beitscore_reward ...` constructs nothing: it takes objects. By
the name `reward` it would take TRL's own file of that name. The two names are made at their first use, and environment
variables set what a constructor would be given:

- `CAPREWARD_VELA_SOURCE`, `CAPREWARD_BEITSCORE_SOURCE`: a checkpoint folder or Hub id; default: the embedded one;
- `CAPREWARD_VELA_WEIGHTS`: weights of the aspects, such as `desc=1,rel=2,flu=1`; default: all alike.

For anything else write a module with `from capreward import VelaReward` and `my_reward = VelaReward(...)` in the
working directory, and give `--reward_funcs module.my_reward`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from reward.aspect_weights import parse_weights
from reward.errors import ConfigError
from reward.metrics.base import Scorer
from reward.metrics.options import split_options
from reward.rewards.completions import RowReader
from reward.rewards.metric_reward import MetricReward

if TYPE_CHECKING:
    from reward.judges import Judge

beitscore_reward: BeitScoreReward  # both are made by __getattr__
vela_reward: VelaReward


@cache
def _from_environment(name: str) -> MetricReward:
    if name == "beitscore_reward":
        return BeitScoreReward(os.environ.get("CAPREWARD_BEITSCORE_SOURCE") or "embedded")
    weights = os.environ.get("CAPREWARD_VELA_WEIGHTS")
    checkpoint = os.environ.get("CAPREWARD_VELA_SOURCE") or "embedded"
    return VelaReward(checkpoint, parse_weights(weights) if weights else None)


# TRL gets the object as an attribute of the module: it is made when it is asked for, so that an import loads nothing.
def __getattr__(name: str) -> MetricReward:
    if name in ("beitscore_reward", "vela_reward"):
        return _from_environment(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class VelaReward(MetricReward):
    """VELA as a reward function: three aspects of a caption, each in [0, 1], given its image and any references.

    Source: Matsuda et al., "VELA: An LLM-Hybrid-as-a-Judge Approach for Evaluating Long Image Captions".

    Args:
        source: `"embedded"` (ships with the package; trained on synthetic scenes, so for trials and tests, not photos),
            a checkpoint folder, or a Hub id.
        weights: {aspect: weight} over descriptiveness, relevance and fluency (desc, rel, flu for short), normalised to
            sum 1; None weighs them alike.
        options: further arguments of `MetricReward`.

    Example:
        >>> reward = VelaReward("name/vela-photos", weights={"desc": 1, "rel": 2, "flu": 1}, name="caption")
        >>> reward.weights
        array([0.25, 0.5 , 0.25])
    """

    def __init__(
        self,
        source: str | os.PathLike[str] = "embedded",
        weights: Mapping[str, float] | None = None,
        **options: Any,
    ) -> None:
        super().__init__("vela", source, weights, **options)


class BeitScoreReward(MetricReward):
    """BEiTScore as a reward function: one score in [0, 1] of a caption, given its image; references are not used.

    Source: "BEiTScore: reference-free image captioning evaluation with an efficient cross-encoder".

    Args:
        source: `"embedded"` (ships with the package; trained on synthetic scenes, so for trials and tests, not photos),
            a checkpoint folder, or a Hub id.
        options: further arguments of `MetricReward`.

    Example:
        >>> BeitScoreReward("name/beitscore-photos", name="faithful")
        BeitScoreReward(name='faithful', source='name/beitscore-photos', weights={'overall': 1.0})
    """

    def __init__(self, source: str | os.PathLike[str] = "embedded", **options: Any) -> None:
        super().__init__("beitscore", source, **options)


class _JudgeReward(MetricReward):
    """A reward whose metric is asked of a judge; `options` are those of its scorer and of `MetricReward`."""

    _metric: ClassVar[str]

    def __init__(
        self,
        judge: str | os.PathLike[str] | Judge,
        weights: Mapping[str, float] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(self._metric, judge, weights, **options)  # type: ignore[arg-type]
        if self.spec.reads_questions:
            raise ConfigError("a reward function is not given the questions that these answer: use the metric's scorer")


class FleurReward(_JudgeReward):
    """FLEUR as a reward function: a number in [0, 1] from a vision-language model that sees image and caption.

    Source: Lee et al., "FLEUR: An Explainable Reference-Free Evaluation Metric for Image Captioning Using a Large
    Multimodal Model".

    Args:
        judge: folder or Hub id of a vision-language model, which is loaded at the first call and left out when pickled;
            a folder of `FleurScorer.save_pretrained`; or a judge of `reward.judges`, such as `ServerJudge`.
        weights: over `smoothed` (FLEUR) and `raw` (the number as written); None takes `smoothed` alone.
        options: settings of `FleurScorer`, such as use_references, prompt, draws and pad_images, and further
            arguments of `MetricReward`.

    Example:
        >>> FleurReward("name/of-a-vision-language-model", name="judge")
        FleurReward(name='judge', source='name/of-a-vision-language-model', weights={'smoothed': 1.0, 'raw': 0.0})
    """

    _metric = "fleur"


class HarmonicReward(_JudgeReward):
    """HarmonicEval as a reward function: five criteria rated from 1 to 5 by a vision-language model, and one score.

    Source: Ohi et al., "Multi-modal, Multi-task, Multi-criteria Automatic Evaluation with Vision Language Models".

    Args:
        judge: folder or Hub id of a vision-language model, which is loaded at the first call and left out when pickled;
            a folder of `HarmonicScorer.save_pretrained`; or a judge of `reward.judges`, such as `ServerJudge`.
        weights: over overall, correctness, completeness, clarity, fluency and conciseness; None takes `overall` alone,
            which has weights of its own for the criteria.
        options: settings of `HarmonicScorer`, such as gamma, task ("captioning" or "referring") and prompt,
            and further arguments of `MetricReward`.

    Example:
        >>> reward = HarmonicReward("name/of-a-vision-language-model", {"correctness": 2, "fluency": 1})
        >>> reward.weights.round(2).tolist()
        [0.0, 0.67, 0.0, 0.0, 0.33, 0.0]
    """

    _metric = "harmoniceval"


class RemoteReward(MetricReward):
    """A metric of a reward service (`capreward serve`) as a reward function; needs no GPU and no weights here.

    It is a `MetricReward` in everything else. The first call raises if the service cannot be reached or serves another
    metric; later, rows without an answer get None and are counted in `failures`. It can be pickled, and then keeps to
    the checkpoint that it found. Calls of several threads go on beside each other. For an asynchronous trainer wrap
    it: `AsyncReward(RemoteReward(...))`.

    Args:
        url: address, such as `"http://127.0.0.1:8123"`; several replicas as a list, or separated by commas.
        metric: which of the service's metrics; None takes its only one, and asks for it at once.
        weights: {aspect: weight}, see `MetricReward`.
        options: settings of `RemoteScorer`, such as api_key, identity, timeout, patience and image_root, and further
            arguments of `MetricReward`, such as name and image_column.

    Example:
        >>> RemoteReward("http://127.0.0.1:8123", "vela", {"rel": 1}).__name__
        'vela_rel'
    """

    def __init__(
        self,
        url: str | Sequence[str],
        metric: str | None = None,
        weights: Mapping[str, float] | None = None,
        **options: Any,
    ) -> None:
        from reward.remote.scorer import RemoteScorer  # on use: it loads a client of HTTP

        if "token" in options:
            raise ConfigError("RemoteReward takes no token=: set CAPREWARD_TOKEN, or give api_key=")
        settings, options = split_options(RemoteScorer, options)
        self.scorer = RemoteScorer(url, metric, **settings)
        super().__init__(self.scorer, weights=weights, **options)
        self.source = ",".join(self.scorer.urls)

    def _load(self) -> tuple[Scorer, RowReader]:
        self.scorer.connect()  # only the service knows what its checkpoint needs
        return super()._load()
