"""Calls the `capreward` command inside the test's own process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeAlias

import pytest

from reward.cli.main import main

Run: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Calls the command; gives (exit code, stdout, stderr with line breaks as spaces)."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("CAPREWARD_DEBUG", raising=False)

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["capreward", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        code = stop.value.code
        return (0 if code is None else int(code)), captured.out, " ".join(captured.err.split())

    return call
