"""Training on from a checkpoint, and on several data sets with shares."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import DatasetDict
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from reward.errors import CheckpointError, ConfigError, DataError, OutputError
from reward.scenes import make_dataset
from reward.training.loop import train
from reward.training.sampling import draw_shares
from reward.training.shares import make_shares, parse_data, rows_per_epoch
from tests.reward.training.small_runs import (
    TWO,
    record,
    same_weights,
    small_beitscore,
    small_config,
    small_data,
    train_until_killed,
    weights,
)


def test_only_a_number_after_the_last_colon_is_a_share(tmp_path: Path) -> None:
    (tmp_path / "mine:0.3").mkdir()
    texts = ["scenes", "a/b:.25", r"C:\data", r"C:\other:1e-1", f"{tmp_path}/mine:0.3", f"{tmp_path}/none:0.3"]
    sources = ["scenes", "a/b", r"C:\data", r"C:\other", f"{tmp_path}/mine:0.3", f"{tmp_path}/none"]
    assert parse_data(texts) == dict(zip(sources, [None, 0.25, None, 0.1, None, 0.3], strict=True))
    assert make_shares(parse_data(["a", "b", "c:0.5"])) == {"a": 0.25, "b": 0.25, "c": 0.5}
    assert make_shares(Path("a")) == {"a": 1.0}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a:0.3"], "'a' is the only data set, so it has no share: leave out :0.3"),
        (["a", "b:0"], "the share of 'b' must be a number above 0 and below 1, got 0"),
        (["a", "b:-0.1"], "above 0 and below 1, got -0.1"),
        (["a", "b:nan"], "above 0 and below 1, got nan"),
        (["a", "b:0.6", "c:0.4"], "shares of b, c sum to 1 and leave nothing for a: lower them"),
        (["a:0.6", "b:0.3"], "shares of a, b sum to 0.9, not to 1: leave one out"),
        (["a", "a:0.3"], "names 'a' twice"),
    ],
)
def test_unusable_shares_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_shares(parse_data(texts))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=4), st.data())
def test_an_epoch_has_the_shares_and_repeats_no_row_before_all_were_used(sizes: list[int], data: Any) -> None:
    parts = data.draw(st.lists(st.integers(1, 9), min_size=len(sizes), max_size=len(sizes)))
    shares = {str(place): part / sum(parts) for place, part in enumerate(parts)}
    try:
        counts = rows_per_epoch(dict(zip(shares, sizes, strict=True)), shares)
    except ConfigError as error:
        assert "less than one row" in str(error)  # noqa: PT017 - only where a share is too small
        return
    assert counts["0"] == sizes[0]
    for name, count in counts.items():
        assert abs(count - sizes[0] * shares[name] / shares["0"]) <= 0.5
    drawn = draw_shares([[0] * size for size in sizes], list(counts.values()), "0 0")
    uses = [drawn.count(row) for row in range(sum(sizes))]
    for size, count in zip(sizes, counts.values(), strict=True):
        own, uses = uses[:size], uses[size:]
        assert sum(own) == count
        assert max(own) - min(own) <= 1


@pytest.fixture
def extra(tmp_path: Path) -> str:
    """Rated scenes without a part to stop by."""
    DatasetDict({"train": make_dataset(2, seed=9)}).save_to_disk(tmp_path / "extra")
    return str(tmp_path / "extra")


def test_a_mixed_run_reports_each_set_and_ends_as_an_unbroken_one(
    extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, config = {"scenes": None, extra: 0.25}, small_config(reference_free_rate=0.5, max_references=1)
    result = train("vela", data, tmp_path / "whole", config)
    facts = record(tmp_path / "whole")
    assert facts["data"] == ["scenes:0.75", f"{extra}:0.25"]
    assert facts["epoch"] == {"scenes": 36, extra: 12}  # three ratings a caption; 6 of `extra` are there
    assert result.steps == 2 * 8
    assert result.figures["val"]["tau_c"] == result.figures["val of scenes"]["tau_c"]
    card = (tmp_path / "whole" / "README.md").read_text()
    for text in ("`scenes:0.75`", f"`{extra}:0.25`", "| val of scenes |"):
        assert text in card

    train_until_killed("vela", tmp_path / "killed", config, monkeypatch, batches=11, data=data)
    with pytest.raises(OutputError, match=r"data was \['scenes:0.75'.* and is \['scenes:0.5'"):
        train("vela", {"scenes": 0.5, extra: 0.5}, tmp_path / "killed", config, resume=True)
    train("vela", data, tmp_path / "killed", config, resume=True)
    assert same_weights(tmp_path / "whole", tmp_path / "killed")


def test_pairs_and_ratings_of_two_sets_stop_by_their_weighted_mean(tmp_path: Path) -> None:
    small_data().save_to_disk(tmp_path / "mine")
    mine = str(tmp_path / "mine")
    result = train("beitscore", {"scenes": 0.5, mine: 0.5}, tmp_path / "run", small_beitscore(stages=TWO))
    for name, measure in (("1a", "accuracy"), ("2", "tau_c")):
        figures = result.stages[name].figures
        both = [figures[f"val of {source}"][measure] for source in ("scenes", mine)]
        assert figures["val"][measure] == pytest.approx(sum(both) / 2)
    history = record(result.stages["1a"].folder)["history"]
    assert any("eval_share_loss" in entry for entry in history)
    assert record(result.stages["1a"].folder)["epoch"] == {"scenes": 8, mine: 8}
    assert list(result.stages["2"].figures) == ["val", "val of scenes", f"val of {mine}"]


def test_sets_that_do_not_fit_are_named(extra: str, tmp_path: Path) -> None:
    bare = small_data()
    del bare["train"]
    bare.save_to_disk(tmp_path / "no_train")
    for data, config, message in (
        ({extra: None, f"{extra}/": 0.3}, small_config(), "none of the data sets .* has a part 'val' to stop by"),
        ({"scenes": None, str(tmp_path / "no_train"): 0.3}, small_config(), "no_train': .*has no part 'train'"),
        ({"scenes": None, extra: 0.01}, small_config(), "beside the 36 rows of 'scenes'.*is less than one row"),
        ({"scenes": None, extra: 0.3}, small_config(data="scenes"), "setting data names 'scenes', beside 2 data sets"),
    ):
        with pytest.raises((DataError, ConfigError), match=message):
            train("vela", data, tmp_path / "run", config)
    assert not list((tmp_path / "run").iterdir())


@pytest.mark.parametrize("metric", ["vela", "beitscore"])
def test_a_checkpoint_goes_on_with_its_weights_and_says_whether_it_helped(metric: str, tmp_path: Path) -> None:
    make = {"vela": small_config, "beitscore": small_beitscore}[metric]
    one: dict[str, Any] = {"stages": dict.fromkeys(("1a", "1b", "1c", "2"))} if metric == "beitscore" else {}
    first = train(metric, "scenes", tmp_path / "first", make(**one, loss="mse"))
    still = make(**one, loss="mse", learning_rate=1e-12, max_steps=1)
    bare = type(still)(**{**still.to_dict(), "model": {}})
    with pytest.warns(UserWarning, match="the training did not help on the part 'val': Kendall's tau-c x 100 was"):
        second = train(metric, "scenes", tmp_path / "second", bare, init=tmp_path / "first")
    assert second.before == pytest.approx(first.figures["val"])
    before, after = weights(tmp_path / "first"), weights(tmp_path / "second")
    assert all(torch.allclose(before[name], after[name], atol=1e-8) for name in before)
    for name in ("config.json", "tokenizer.json"):
        assert (tmp_path / "first" / name).read_text() == (tmp_path / "second" / name).read_text()
    assert f"Went on from the checkpoint `{tmp_path / 'first'}`" in (tmp_path / "second" / "README.md").read_text()

    wide = {"vela": {"text": {"architecture": {"hidden_size": 64}}}, "beitscore": {"config": {"hidden_size": 64}}}
    stated = {"vela": r"model\.text\.architecture\.hidden_size is 64", "beitscore": r"model\.config\.hidden_size is 64"}
    with pytest.raises(ConfigError, match=rf"{stated[metric]}, and of the checkpoint (32|16)\. Leave them out"):
        train(metric, "scenes", tmp_path / "run", make(**one, loss="mse", model=wide[metric]), init=tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "broken")
    lost = next(name for name in before if name.endswith("weight"))
    save_file({name: value for name, value in before.items() if name != lost}, tmp_path / "broken/model.safetensors")
    with pytest.raises(CheckpointError, match=lost.split(".")[-2] if "." in lost else lost):
        train(metric, "scenes", tmp_path / "run", bare, init=tmp_path / "broken")
    with pytest.raises(CheckpointError, match="is a checkpoint of metric"):
        train({"vela": "beitscore", "beitscore": "vela"}[metric], "scenes", tmp_path / "run", bare, init=first.folder)


def test_a_resumed_run_keeps_its_state_and_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small_config(epochs=2)
    start = train("vela", "scenes", tmp_path / "start", small_config(seed=3, max_steps=2)).folder
    whole = train("vela", "scenes", tmp_path / "whole", config, init=start)
    train_until_killed("vela", tmp_path / "killed", config, monkeypatch, batches=16, init=start)
    assert record(tmp_path / "killed")["before"] == whole.before
    with pytest.raises(OutputError, match=r"with other settings: init was .* and is None"):
        train("vela", "scenes", tmp_path / "killed", config, resume=True)
    with pytest.raises(OutputError, match=r"init\.source was .*start.* and is .*whole.*init\.fingerprint was"):
        train("vela", "scenes", tmp_path / "killed", config, resume=True, init=tmp_path / "whole")
    resumed = train("vela", "scenes", tmp_path / "killed", config, resume=True, init=start)
    assert same_weights(tmp_path / "whole", tmp_path / "killed")
    assert resumed.before == whole.before
