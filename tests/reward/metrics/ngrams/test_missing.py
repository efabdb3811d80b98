"""What the n-gram metrics say where their package or Java is missing."""

from __future__ import annotations

import sys

import pytest

from reward import load_scorer, metric_spec
from reward.errors import MissingExtraError
from reward.metrics.ngrams import SPECS

NAMES = pytest.mark.parametrize("name", [spec.name for spec in SPECS])


@NAMES
def test_without_the_package_its_extra_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycocoevalcap", None)
    monkeypatch.setitem(sys.modules, "pycocoevalcap.bleu.bleu", None)
    with pytest.raises(MissingExtraError, match=rf"'{name}' needs .*pip install \"capreward\[ngrams\]\""):
        load_scorer(name)
    assert metric_spec(name).extra == "ngrams"


@NAMES
def test_without_java_the_way_to_get_it_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pycocoevalcap")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingExtraError, match=f"'{name}' needs Java.*install a Java runtime"):
        load_scorer(name)
