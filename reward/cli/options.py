"""The options that commands share, each declared once, in groups that a command takes as one parameter."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reward.data.column_names import names_in_words

if TYPE_CHECKING:
    from reward.registry import MetricSource


# What the options that commands share are called elsewhere: {option, perhaps with its value: words}. A command's own
# table, in `describe`, comes first.
ELSEWHERE = {
    "--device cuda:0": "--gpu --gpus --cuda",
    "--device cpu": "--cpu --no-cuda",
    "--dtype float16": "--fp16 --half",
    "--dtype bfloat16": "--bf16",
    "--dtype": "--precision --torch-dtype",
    "--batch-size": "--batch --bs -b --batchsize",
    "--devices cpu,cpu (a process each; images are read by threads)": "--num-workers --workers --jobs -j",
    "--devices auto": "--num-gpus",
    "--overwrite": "--force -f --yes -y",
    "--output": "--out --save --save-path",
    "--output FILE, in the form that its ending says": "--format --latex --markdown",
    "--caption-column NAME": "--text-column --text-key --caption-key",
    "--quiet": "--silent --no-progress",
    "--metric NAME=CHECKPOINT": "--source --model --checkpoint --ckpt --model-path --model-name --pretrained",
    "--metric NAME=CHECKPOINT@REVISION": "--revision",
    "--model-set NAME=VALUE": "--concurrency --prices --extra-body",
    "--judge-set NAME=VALUE": "--concurrency --prices --extra-body --timeout --retries --top-logprobs",
    "--set NAME=VALUE": "--option --options --param --kwargs --metric-args --concurrency --prices",
}


def describe(common: str = "", synonyms: Mapping[str, str] | None = None) -> Callable[[Any], Any]:
    """What is said of a command's options beside the help of each.

    Args:
        common: names of the options that `--help` shows, the others come with `--help --all`; default: all options.
        synonyms: {words of other tools, with blanks between them: what to write}.
    """

    def note(command: Any) -> Any:
        command.common = {f"--{name}" for name in common.split()}
        command.synonyms = {}
        for words, line in (synonyms or {}).items():
            command.synonyms |= dict.fromkeys(words.split(), line)
        return command

    return note


def named_files(texts: list[str], hint: str) -> dict[str, Path]:
    """Reads FILE or NAME=FILE of each; the name of the file without its ending is the default.

    Raises:
        typer.BadParameter: two have one name; `hint` says of which option or argument.

    Example:
        >>> [(name, str(path)) for name, path in named_files(["a/old.json", "best=new.json"], "FILES").items()]
        [('old', 'a/old.json'), ('best', 'new.json')]
    """
    files: dict[str, Path] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not equals or Path(text).exists():  # a file may have the sign in its name
            name, file = Path(text).stem, text
        if name in files:  # the name stands in tables, and must tell the two apart
            message = f"two files are named {name!r}; write NAME={file} to tell them apart"
            raise typer.BadParameter(message, param_hint=hint)
        files[name] = Path(file)
    return files


def refuse(options: Mapping[str, Any], message: str) -> None:
    """Refuses options that do not go with the others: the first of {parameter: value} whose value is not None.

    Raises:
        typer.BadParameter: one was given.
    """
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(message, param_hint=f"--{name.replace('_', '-')}")


def read_by(function: str, value: str, hint: str | None = None) -> Any:
    """What the function `module:name` makes of a value, before anything is loaded; what it refuses is a wrong line."""
    from reward.errors import CapRewardError

    module, _, name = function.partition(":")
    try:
        return getattr(import_module(module), name)(value)
    except CapRewardError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from error


def checked_by(function: str) -> Callable[[str | None], str | None]:
    """A callback of an option whose value stays as it is, if the function `module:name` takes it."""

    def check(value: str | None) -> str | None:
        if value is not None:
            read_by(function, value)
        return value

    return check


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
JudgeSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--judge-set",
        metavar="NAME=VALUE",
        help="Setting of the model; of a server concurrency, cache (a file that keeps its answers), prices (of a "
        "million tokens read and written, as in [2.5,10]), timeout, retries and extra_body (JSON); of "
        "one here device, dtype, batch_size and revision. Repeat it for several.",
    ),
]
DATA = (  # in the help of arguments
    "A .jsonl, .json, .csv, .tsv (each also with .gz) or .parquet file, a folder of a data set, or the name of one on "
    "the Hub"
)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")]
QuietFigures = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")]
Device = Annotated[
    str | None,
    typer.Option(
        callback=checked_by("reward.backbones.pretrained:usable_device"),
        help="Device, such as cpu or cuda:0; default: a GPU if there is one.",
    ),
]
Dtype = Annotated[str | None, typer.Option(help="Number type, such as bfloat16; default: the model's own.")]
CandidateColumn = Annotated[
    str | None,
    typer.Option(
        "--caption-column", "--candidate-column", help=f"Column of captions; default: {names_in_words('candidate')}."
    ),
]
PromptFile = Annotated[
    Path | None, typer.Option("--prompt", help="YAML file with your own prompt; default: the one that ships.")
]
ImageColumn = Annotated[
    str | None,
    typer.Option(help=f"Column of images or their paths; default: {names_in_words('image')}."),
]
ImageRoot = Annotated[
    Path | None,
    typer.Option(
        help="Folder that relative image paths start from; default: the folder of the data file, else this folder."
    ),
]
Annotations = Annotated[
    Path | None,
    typer.Option(
        help="File with the names of the images by image_id, their references, or both, such as captions_val2014.json."
    ),
]
GroupColumn = Annotated[
    str | None,
    typer.Option(help="For one candidate a row: column of what the candidates of one image share; default: the image."),
]
Split = Annotated[str | None, typer.Option(help="Split to read of a data set with several, such as test.")]


@dataclass(frozen=True, kw_only=True)
class MetricOptions:
    """Which metrics score."""

    metric: Metrics = None
    settings: Settings = None

    def sources(self) -> list[MetricSource]:
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


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Where a data set has images and references."""

    image_column: ImageColumn = None
    references_column: Annotated[
        str | None,
        typer.Option(
            help=f"Column of references, lists or (in CSV) JSON lists; default: {names_in_words('references')}."
        ),
    ] = None
    image_root: ImageRoot = None
    split: Split = None


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """How a metric runs."""

    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Captions the metric scores at a time; default: its own choice.")
    ] = None
    device: Device = None
    dtype: Dtype = None


@dataclass(frozen=True, kw_only=True)
class SpeedOptions:
    """How a data set is scored fast: on several devices, and without computing twice what is known."""

    devices: Annotated[
        str | None,
        typer.Option(
            callback=checked_by("reward.scoring.devices:parse_devices"),
            help="A process for each: auto (all GPUs of this machine), or names such as cuda:0,cuda:1 or cpu,cpu.",
        ),
    ] = None
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder for image embeddings, created if absent, so that new captions of the same images cost the "
            "captions only; of a judge, a file for its answers."
        ),
    ] = None
    cache_size: Annotated[
        str | None,
        typer.Option(
            callback=checked_by("reward.checkpoints.caches:parse_size"),
            help="Largest size of the cache on disk, such as 500MB; default: 20GB. When it is full, no more is kept.",
        ),
    ] = None
    part_rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Rows that are scored and saved at a time, at most, and no more than take a minute: what a kill can "
            "cost; default: 64 where a judge is asked, else 512. With --engine, Parquet row groups are joined until "
            "they have as many; default: 50000.",
        ),
    ] = None

    def check_cache(self) -> None:
        """Refuses the size of a cache without the cache (typer.BadParameter)."""
        if self.cache is None:
            refuse({"cache_size": self.cache_size}, "is for a cache: give --cache, too")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What happens to earlier results, and what is printed."""

    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a finished output, and discard an unfinished run.")
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no summary.")] = False


@dataclass(frozen=True, kw_only=True)
class FigureOptions:
    """How metrics are scored for a table of figures, and how the table is printed."""

    no_references: Annotated[
        bool,
        typer.Option("--no-references", help="Withhold the references from the metrics, even where there are any."),
    ] = False
    json: AsJson = False
    quiet: QuietFigures = False

    def scoring(self, device: DeviceOptions) -> dict[str, Any]:
        """Arguments that every function of `reward.metaeval` that scores benchmarks takes."""
        return {
            "references": not self.no_references,
            "progress": not self.quiet,
            **vars(device),
        }


def read_metrics(texts: Sequence[str], settings: Sequence[str] | None = None) -> list[MetricSource]:
    """The metrics of `--metric`, with the options of `--set`; see `MetricSource.parse` and `with_options`."""
    from reward.metrics.options import with_options
    from reward.registry import MetricSource

    return with_options(list(dict.fromkeys(map(MetricSource.parse, texts))), settings or ())


def model_settings(texts: Sequence[str] | None) -> dict[str, Any]:
    """Settings of a model that is asked, of the form NAME=VALUE; the model checks them.

    Raises:
        typer.BadParameter: no JSON where it should be.

    Example:
        >>> model_settings(["concurrency=32", "prices=[2.5,10]", 'extra_body={"top_k": 0}'])
        {'concurrency': 32, 'prices': (2.5, 10), 'extra_body': {'top_k': 0}}
    """
    from reward.metrics.options import read_value

    settings: dict[str, Any] = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        settings[name] = read_value(value)
        if name == "extra_body":
            try:
                settings[name] = json.loads(value)
            except ValueError:
                message = f'{text!r:.80} is not JSON, as in extra_body={{"top_k": 0}}'
                raise typer.BadParameter(message, param_hint="NAME=VALUE") from None
    return settings


def weights_option(text: str | None, hint: str = "--weights") -> dict[str, float] | None:
    """Reads `desc=1,rel=2` of the option `hint`; what is not of that form is a wrong line.

    Example:
        >>> weights_option("desc=1, rel=0.5")
        {'desc': 1.0, 'rel': 0.5}
    """
    return None if text is None else read_by("reward.aspect_weights:parse_weights", text, hint)
