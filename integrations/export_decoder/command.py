"""`capreward export-decoder`: a strategy as a repository that `generate(custom_generate=...)` takes by name."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from reward import __version__
from reward.cli import options, terminal
from reward.cli.score import Weights
from reward.errors import ConfigError, OutputError

__all__ = ["export_decoder"]

_MARK = "Written by `capreward export-decoder`"
_CODE = '''\
"""{mark} {version}: {strategy} with capreward."""

import json

try:  # outside of `try`, transformers would take the module for a package to install
    from integrations.hf_generate.by_name import generate_by_name
except ImportError as error:
    raise ImportError(
        "this needs capreward {version} or newer: pip install -U 'capreward>={version}'. If it is installed, a folder "
        f"or module of yours that is named 'integrations' hides it: rename that ({{error}})"
    ) from error

SETTINGS = json.loads(r"""
{settings}
""")


def generate(*inputs, model, **arguments):
    return generate_by_name(SETTINGS, *inputs, model=model, **arguments)
'''
# transformers shows the line if it is not met; pip passes over the comment
_REQUIREMENTS = "# {mark}\ncapreward>={version}  # pip install -U 'capreward>={version}'\n"
_WHAT = {
    "best-of-n": "Samples n captions of each image and returns the one with the highest reward.",
    "blockwise": "Writes n continuations of a caption at a time and goes on from those with the highest reward.",
    "speculative-rejection": "Begins n captions of each image and drops those with the lowest reward meanwhile.",
    "adaptive": "Samples up to n captions of each image, and stops where more are not expected to gain anything.",
    "minimum-bayes-risk": "Samples n captions of each image and returns the one that agrees best with the others.",
}
_CARD = """\
---
library_name: transformers
tags:
  - custom_generate
---

<!-- {mark} {version} -->

## Description

{what} Needs `pip install -U "capreward>={version}"`. The metric is loaded at the first call and kept. A call can change
`n`; the other settings are fixed in `custom_generate/generate.py`:

```json
{settings}
```

## Base model

None: it decodes any compatible model.

## Model compatibility

Captioners of transformers 5, decoder-only (Qwen2-VL, LLaVA) and encoder-decoders (BLIP, VisionEncoderDecoder). Beams, a
streamer, an assistant model, and a static or paged cache are refused.

## Additional Arguments

- `processor`: the model's processor or tokenizer. `tokenizer=` does as well; one of them is required.
- `images` (`list`): one image per prompt, a file name or a PIL image, for metrics that look at it.
- `references` (`list[list[str]]`): reference captions of each prompt, for metrics that read them.
- `n` (`int`, *optional*): candidates per image.
- `chunk` (`int`, *optional*): decodes at most so many rows at once, to save memory.

All others are those of `generate`. Candidates are sampled, by its `temperature`, `top_p`, ...;
`num_return_sequences=k` with `do_sample=True` returns the k best, best first.

## Output Type changes

With `return_dict_in_generate=True`, the output also has `reward_scores`.

## Example usage

```py
from transformers import AutoModelForImageTextToText, AutoProcessor

processor = AutoProcessor.from_pretrained("Qwen/Qwen2.5-VL-3B-Instruct")
model = AutoModelForImageTextToText.from_pretrained("Qwen/Qwen2.5-VL-3B-Instruct", device_map="auto")
content = [{{"type": "image", "path": "picture.jpg"}}, {{"type": "text", "text": "Describe the picture."}}]
inputs = processor.apply_chat_template(
    [{{"role": "user", "content": content}}],
    add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt",
).to(model.device)
best = model.generate(
    **inputs, custom_generate={name}, trust_remote_code=True,  # the folder, or its id on the Hub
    processor=processor, images=["picture.jpg"], max_new_tokens=100,
)
print(processor.batch_decode(best[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)[0])
```
"""


@options.with_groups
def export_decoder(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write; made if absent.")],
    strategy: Annotated[str, typer.Option(help=f"One of: {', '.join(_WHAT)}.")],
    checkpoint: options.CheckpointOptions,
    metric: Annotated[
        str | None, typer.Option("--metric", "-m", help="Name of a metric; only minimum-bayes-risk can do without.")
    ] = None,
    weights: Weights = None,
    n: Annotated[int, typer.Option(help="Candidates an image, where a call does not say.")] = 16,
    option: options.StrategyOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Write into a folder with files; only earlier exports are replaced.")
    ] = False,
) -> None:
    """Write a decoding strategy as a folder that `generate` of transformers takes by name.

    ```
    capreward export-decoder best_of_n --strategy best-of-n --metric vela
    hf upload USER/best_of_n best_of_n
    ```

    Then `model.generate(..., custom_generate="best_of_n", trust_remote_code=True, processor=..., images=[...])` works
    with the folder or the Hub id, wherever capreward is installed; its README.md has the arguments. The metric is
    loaded once here, to see that it can be. In the folder of a model, the strategy becomes what `generate` does if the
    model is loaded with `trust_remote_code=True`.
    """
    from reward.decoding.strategies import parse_options
    from reward.scoring.writers import refuse_address

    refuse_address(folder)
    local = Path(checkpoint.source).is_dir()
    source = str(Path(checkpoint.source).resolve()) if local else checkpoint.source
    settings = {"strategy": strategy, "n": n, "options": parse_options(option or ()), "metric": metric}
    settings |= {"source": source, "revision": checkpoint.revision, "weights": options.parse_weights(weights)}
    _check(settings)
    facts = {"mark": _MARK, "version": __version__, "settings": json.dumps(settings, indent=4), "strategy": strategy}
    texts = {
        "custom_generate/generate.py": _CODE.format(**facts),
        "custom_generate/requirements.txt": _REQUIREMENTS.format(**facts),
        "README.md": _CARD.format(what=_WHAT[strategy], name=json.dumps(folder.resolve().name), **facts),
    }
    console = terminal.console(stderr=True)
    if _is_foreign(folder / "README.md"):
        texts["custom_generate/README.md"] = texts.pop("README.md")
    _write(folder, texts, overwrite)
    if "README.md" not in texts:
        console.print("README.md is not from an export and stays: give it the tag custom_generate", style="yellow")
    if local:
        console.print(f"works on this machine only, where {source} is: --source takes a Hub id, too", style="yellow")
    console.print(f"wrote {', '.join(texts)} in {folder}", style="green")


def _check(settings: dict[str, Any]) -> None:
    """Refuses what could not decode."""
    from integrations.hf_generate.by_name import make_strategy
    from reward.registry import load_scorer

    strategy, metric, source = settings["strategy"], settings["metric"], settings["source"]
    if strategy not in _WHAT:
        raise ConfigError(f"no strategy is named {strategy!r} (--strategy); there are: {', '.join(_WHAT)}")
    if metric is None and strategy != "minimum-bayes-risk":
        raise ConfigError(
            f"strategy {strategy!r} chooses by a metric: give one, such as --metric vela. Only minimum-bayes-risk can "
            "do without, and takes the caption that agrees best with the others"
        )
    if metric is None and (source != "embedded" or settings["revision"] or settings["weights"]):
        raise ConfigError("--source, --revision and --weights are those of a metric: give --metric, too")
    for name in settings["options"]:
        if name in ("n", "reward", "processor", "images", "references", "chunk"):
            raise ConfigError(f"--option {name}: {'is --n' if name == 'n' else 'is given with each call of generate'}")
    make_strategy(settings, SimpleNamespace(batch_decode=None))  # in place of the processor of a call
    if metric is not None:
        load_scorer(metric, source, revision=settings["revision"])


def _write(folder: Path, texts: dict[str, str], overwrite: bool) -> None:
    try:
        if not overwrite and folder.is_dir() and any(folder.iterdir()):
            raise OutputError(f"folder {folder} holds files: --overwrite replaces an earlier export, and leaves others")
        for name in texts:
            if _is_foreign(folder / name):
                raise OutputError(f"{folder / name} is not from capreward: move it away, or choose another folder")
        (folder / "custom_generate").mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise OutputError(f"cannot write into {folder}: {error.strerror}") from error


def _is_foreign(path: Path) -> bool:
    return path.exists() and _MARK.encode() not in path.read_bytes()
