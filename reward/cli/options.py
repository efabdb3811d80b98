"""The options that commands share, each declared once, in groups that a command takes as one parameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from reward.metaeval.benchmarks import Benchmark


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Gives typer a command whose parameters that are dataclasses are replaced by their fields.

    The command itself is still called with the dataclasses.
    """
    groups: dict[str, tuple[Any, list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group = parameter.annotation
        if isinstance(group, type) and is_dataclass(group):
            options = list(inspect.signature(group, eval_str=True).parameters.values())
            groups[parameter.name] = (group, [option.name for option in options])
            parameters += options
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**values: Any) -> None:
        for name, (group, options) in groups.items():
            values[name] = group(**{option: values.pop(option) for option in options})
        command(**values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


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
        if name in files:
            message = f"two files are named {name!r}; write NAME={file} to tell them apart"
            raise typer.BadParameter(message, param_hint=hint)
        files[name] = Path(file)
    return files


def refuse(given: Mapping[str, Any], message: str) -> None:
    """Refuses options that do not go with the others: the first of {parameter: value} whose value is not None.

    Raises:
        typer.BadParameter: one was given.
    """
    for name, value in given.items():
        if value is not None:
            raise typer.BadParameter(message, param_hint=f"--{name.replace('_', '-')}")


def read_by(place: str, value: str, hint: str | None = None) -> Any:
    """What the function `module:name` makes of a value, before anything is loaded; what it refuses is a wrong line."""
    from reward.errors import CapRewardError

    module, _, name = place.partition(":")
    try:
        return getattr(import_module(module), name)(value)
    except CapRewardError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from error


def _checked_by(place: str) -> Callable[[str | None], str | None]:
    """A callback of an option whose value stays as it is, if the function `module:name` takes it."""

    def check(value: str | None) -> str | None:
        if value is not None:
            read_by(place, value)
        return value

    return check


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else, on stdout.")]
QuietFigures = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks.")]
Device = Annotated[
    str | None,
    typer.Option(
        callback=_checked_by("reward.backbones.pretrained:usable_device"),
        help="Device, such as cpu or cuda:0; default: a GPU if there is one.",
    ),
]
Dtype = Annotated[str | None, typer.Option(help="Number type, such as bfloat16; default: the model's own.")]
Data = Annotated[
    Path,
    typer.Argument(
        help="A .jsonl, .json, .csv, .tsv (each also with .gz) or .parquet file, a folder of a data set, or the name "
        "of one on the Hub."
    ),
]
Annotations = Annotated[
    Path | None,
    typer.Option(
        help="File with the names of the images by image_id, their references, or both, such as captions_val2014.json."
    ),
]
CandidateColumn = Annotated[
    str | None,
    typer.Option(
        "--caption-column", "--candidate-column", help="Column of captions; default: candidate, else cand or caption."
    ),
]
StripThinking = Annotated[
    bool,
    typer.Option(
        "--strip-thinking",
        help="Score captions without reasoning (`<think>...</think>`), marks of answers (`<answer>`) and end marks.",
    ),
]
DropImages = Annotated[
    bool,
    typer.Option("--drop-images", help="Leave the pictures that the data hold out of the output, but for their paths."),
]
PromptFile = Annotated[
    Path | None, typer.Option("--prompt", help="YAML file with your own prompt; default: the one that ships.")
]


ImageColumn = Annotated[
    str | None,
    typer.Option(help="Column of images or their paths; default: images or image, else file_name, image_path or img."),
]
ImageRoot = Annotated[
    Path | None,
    typer.Option(
        help="Folder that relative image paths start from; default: the folder of the data file, else this folder."
    ),
]
Split = Annotated[str | None, typer.Option(help="Split to read of a data set with several, such as test.")]


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Where a data set has images and references."""

    image_column: ImageColumn = None
    references_column: Annotated[
        str | None,
        typer.Option(help="Column of references, lists or (in CSV) JSON lists; default: references, else refs."),
    ] = None
    image_root: ImageRoot = None
    split: Split = None


@dataclass(frozen=True, kw_only=True)
class ColumnOptions(InputOptions):
    """Where a data set has images and references, and what the new columns are called."""

    prefix: Annotated[
        str, typer.Option(help="Put before the names of the new columns, to tell several runs apart.")
    ] = ""


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
            callback=_checked_by("reward.scoring.devices:parse_devices"),
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
            callback=_checked_by("reward.checkpoints.caches:parse_size"),
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

    def given(self) -> dict[str, Any]:
        """The options that were given.

        Raises:
            typer.BadParameter: the size of a cache, without the cache.
        """
        if self.cache is None:
            refuse({"cache_size": self.cache_size}, "is for a cache: give --cache, too")
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class SelectionOptions:
    """Which rows are written, once all are scored."""

    top: Annotated[
        str | None,
        typer.Option(
            callback=_checked_by("reward.scoring.selection:Selection"),
            help="Write only the best rows by reward: a number of rows, or a share such as 30%.",
        ),
    ] = None
    min_reward: Annotated[float | None, typer.Option(help="Write only rows with this reward or a higher one.")] = None
    dedupe: Annotated[
        bool, typer.Option("--dedupe", help="Of rows with one image and the same captions, write the first only.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What happens to earlier results, and what is printed."""

    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a finished output, and discard an unfinished run.")
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no summary.")] = False


def parse_map(text: str | None) -> dict[str, float]:
    """Reads `poor=1,good=2`.

    Raises:
        typer.BadParameter: not of that form.

    Example:
        >>> parse_map("A is slightly better=1, tie=0")
        {'A is slightly better': 1.0, 'tie': 0.0}
    """
    words: dict[str, float] = {}
    if not text:
        return words
    for part in text.split(","):
        word, equals, number = part.rpartition("=")
        try:
            words[word.strip()] = float(number if equals else "")
        except ValueError:
            raise typer.BadParameter(f"{part!r} is not of the form WORD=NUMBER", param_hint="--rating-map") from None
    return words


# Benchmarks


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """What part of a benchmark is used, and how its statistics are computed."""

    images: Annotated[
        Path | None, typer.Option(help="Folder that relative image paths start from; default: that of the data.")
    ] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N items of the benchmark.")] = None
    reference_draws: Annotated[
        int,
        typer.Option(min=0, help="Of Pascal-50S: draws of 5 references, whose mean is given; 0 takes all references."),
    ] = 5
    resamples: Annotated[int, typer.Option(min=1, help="Number of resamples of the bootstrap.")] = 1000
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the bootstrap.")] = 0


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


def read_benchmarks(
    names: Sequence[str], data: Path | None, parts: Sequence[str], options: BenchmarkOptions
) -> list[tuple[Benchmark, str | None]]:
    """Loads the benchmarks that the options name, each with its path.

    Raises:
        typer.BadParameter: options that do not go together.
        DataError: there is no such benchmark, or its files are not as they should be.
    """
    from reward.metaeval.benchmarks import benchmark_spec, load_benchmark

    if not names:
        raise typer.BadParameter("is missing; `capreward bench --list` shows which there are", param_hint="--benchmark")
    if len(names) > 1:
        single = {"data": data, "part": parts or None, "images": options.images}
        refuse(single, "goes with one --benchmark; write NAME=PATH for several")
    loaded: list[tuple[Benchmark, str | None]] = []
    for text in names:
        name, equals, path = text.partition("=")
        benchmark_spec(name)
        if equals and (data is not None or not path):
            problem = "gives a path twice" if path else "has no path"
            raise typer.BadParameter(f"{text!r} {problem}: write NAME=PATH, or --data PATH", param_hint="--benchmark")
        file = path if equals else data
        no_parts: list[str | None] = [None]
        for part in parts or no_parts:
            benchmark = load_benchmark(
                name,
                file,
                part=part,
                images=options.images,
                limit=options.limit,
                reference_draws=options.reference_draws,
            )
            loaded.append((benchmark, None if file is None else str(file)))
    return loaded
