"""What identifies a metric: its checkpoint, its code, and the commit on the Hub."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import reward
from reward.fingerprints import metric_identity
from reward.registry import metric_spec


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a file of a metric's package or of this one, each made of one file a folder; gives the metric's code."""
    names = ("metrics/a.py", "backbones/clip.py", "judges/a.py", "scoring/a.py", "cli/bench.py", "sentences.py")
    for name in ("mymetric/__init__.py", "mymetric/scorer.py", *(f"reward/{name}" for name in names)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(reward, "__file__", str(tmp_path / "reward" / "__init__.py"))
    spec = replace(metric_spec("length"), name="mine", scorer="mymetric.scorer:Mine")

    def change(name: str) -> str:
        (tmp_path / name).write_text("changed")
        found: str = metric_identity(spec, "embedded")["code"]
        return found

    return change


def test_changed_code_of_a_metric_or_of_what_metrics_share_is_another_metric(code: Callable[[str], str]) -> None:
    codes = [code("elsewhere.py"), code("mymetric/formula.py"), code("reward/sentences.py")]
    codes.append(code("reward/backbones/clip.py"))
    assert len(set(codes)) == 4
    assert code("reward/cli/bench.py") == codes[-1]  # what the command line prints changes no score


def test_without_a_network_the_commit_is_the_one_downloaded_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    spec = metric_spec("length")
    assert metric_identity(spec, "somebody/length", revision="v1")["revision"] == "v1"
    refs = tmp_path / "models--somebody--length" / "refs"
    refs.mkdir(parents=True)
    (refs / "v1").write_text("a" * 40)
    assert metric_identity(spec, "somebody/length", revision="v1")["revision"] == "a" * 40
