"""No command keeps the last of a repeated option in silence."""

from __future__ import annotations

import pytest
from typer.core import TyperOption
from typer.main import get_command

from reward.cli.app import app
from tests.reward.cli.conftest import Run

OPTIONS = {
    name: [option for option in command.params if isinstance(option, TyperOption)]
    for name, command in get_command(app).commands.items()  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_every_option_of_one_value_is_refused_when_repeated(run: Run, name: str) -> None:
    single = [option for option in OPTIONS[name] if not option.is_flag and not option.multiple]
    for option in single:
        _, err = run(name, option.opts[0], "first", option.opts[-1], "second", code=2)
        assert f"Invalid value for {max(option.opts, key=len)}: takes one value, got first and second; " in err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("score data.jsonl -w desc=1 --weights rel=2", "write --weights desc=1,rel=2"),
        ("score data.jsonl --devices cuda:0 --devices cuda:1", "write --devices cuda:0,cuda:1"),
    ],
)
def test_says_how_one_value_holds_both(run: Run, line: str, told: str) -> None:
    assert told in run(*line.split(), code=2)[1]


def test_equal_values_flags_and_lists_may_be_repeated(run: Run) -> None:
    line = "score absent.jsonl -m length -m unigram -o o.jsonl -o o.jsonl --quiet --quiet"
    assert "error: there is no file absent.jsonl" in run(*line.split(), code=1)[1]
