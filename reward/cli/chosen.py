"""Which metrics score, with which settings and weights: the options that all commands share that score."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from reward.registry import MetricSource

Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        "-m",
        help="Name of a metric, see `capreward metrics`, or NAME=CHECKPOINT with a folder, Hub id or ID@REVISION; the "
        "checkpoint alone, if it says which metric it is for. Repeat it for several.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Option of the metric, as in layer=5 or, of several metrics, bertscore.layer=5; `capreward metrics NAME` "
        "shows which there are. Repeat it for several.",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        "-w",
        help="Weights in the reward: of aspects, as in desc=1,rel=2,flu=1, or of several metrics, as in "
        "vela=0.7,clipscore=0.3 (and of their aspects, as in vela_desc=1). They are divided by their sum; a negative "
        "one is a penalty. Default: the metric's own, mostly equal.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class MetricOptions:
    """Which metrics score."""

    metric: Metrics = None
    settings: Settings = None

    def chosen(self) -> list[MetricSource]:
        """The metrics, at least one; see `read_metrics`.

        Raises:
            typer.BadParameter: there is none.
        """
        if not self.metric:
            raise typer.BadParameter(
                "is missing: which metric scores? `capreward metrics --for photos` lists them. A first one: "
                "-m clipscore=ViT-B-32:openai",
                param_hint="--metric",
            )
        return read_metrics(self.metric, self.settings)


def read_metrics(metrics: Sequence[str], settings: Sequence[str] | None = None) -> list[MetricSource]:
    """The metrics of `--metric`, with the options of `--set`.

    Raises:
        ConfigError: an option that the metric does not have, or that is of one of several metrics without its name.
        UnknownMetricError, CheckpointError: see `MetricSource.parse`.

    Example:
        >>> [metric.options for metric in read_metrics(["bertscore", "length"], ["bertscore.layer=5"])]
        [(('layer', 5),), ()]
    """
    from reward.errors import ConfigError
    from reward.metrics.options import dry_scorer
    from reward.registry import MetricSource

    sources = list(dict.fromkeys(MetricSource.parse(text) for text in metrics))
    for text in settings or ():
        number, name, value = _setting(text, sources)
        source = sources[number]
        if name in dict(source.options):
            raise ConfigError(f"--set gives {name} of {source.name} twice; leave out all but one")
        sources[number] = replace(source, options=(*source.options, (name, value)))
    for source in sources:
        if source.options:
            dry_scorer(source.loads, dict(source.options))
    return sources


def _setting(text: str, sources: Sequence[MetricSource]) -> tuple[int, str, Any]:
    """The number of the metric that a text of `--set` is for, the name and the value."""
    from reward.errors import ConfigError
    from reward.metrics.options import check_options, takes_option
    from reward.registry import metric_spec

    left, equals, value = text.partition("=")
    metric, dot, name = left.rpartition(".")
    if not equals or not name:
        raise ConfigError(f"--set {text!r} is not of the form NAME=VALUE, as in layer=5")
    numbers = list(range(len(sources)))
    if dot:
        metric = metric_spec(metric).name
        numbers = [number for number in numbers if sources[number].name == metric]
    if len(numbers) != 1:
        takers = [source for source in sources if takes_option(source.spec, name)] or sources
        lines = " or ".join(f"--set {source.name}.{name}={value}" for source in takers)
        raise ConfigError(f"--set {text} does not say for which of the metrics: write {lines}")
    check_options(sources[numbers[0]].loads, [name], own=True)
    return numbers[0], name, read_value(value)


def read_value(text: str) -> Any:
    """A number, true, false, null or a list in brackets as YAML reads them; anything else is a text as it stands.

    1e-3 is a number, and 1:5 is none, which YAML 1.1 sees the other way round.

    Example:
        >>> [read_value(text) for text in ("5", "1e-3", "true", "[a, b]", "1:5", " Rate it: {caption}")]
        [5, 0.001, True, ('a', 'b'), '1:5', ' Rate it: {caption}']
    """
    import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

    try:
        value = float(text) if re.fullmatch(r"[-+]?\d+e[-+]?\d+", text) else yaml.safe_load(text)
    except yaml.YAMLError:  # such as a pattern
        return text
    if not text or (isinstance(value, str) and text[0] not in "'\""):  # with the blanks at its ends
        return text
    if isinstance(value, list) and text.endswith("]"):
        return tuple(value)
    is_scalar = value is None or isinstance(value, (bool, int, float, str))
    return value if is_scalar and ":" not in text else text


def parse_weights(text: str | None) -> dict[str, float] | None:
    """Reads `desc=1,rel=2`; what is not of that form is a wrong line.

    Example:
        >>> parse_weights("desc=1, rel=0.5")
        {'desc': 1.0, 'rel': 0.5}
    """
    from reward.cli.options import read_by

    return None if text is None else read_by("reward.aspect_weights:parse_weights", text, "--weights")
