"""The examples on arenas: what the length of captions decides, coverage of intervals, battles saved by choosing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from examples.research import arena_coverage, arena_length, arena_selection


def test_the_length_baseline_behaves_as_in_caparena(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the published lengths and scores of the models: agreement near the paper's, falling from level to level.

    Then one model's captions lengthen: the metric's bias for it grows with the words, and agreement with the people,
    who do not care, falls battle by battle and in the ranking.
    """
    path = tmp_path / "figures.json"
    rows = arena_length.main(["--lengthen", "50,200", "--resamples", "20", "--json", str(path)])
    first = rows[0]
    levels = [first.levels[name].value for name in ("level 1", "level 2", "level 3", "level 4")]
    assert levels == sorted(levels, reverse=True)
    for name, published in arena_length.PAPER.items():
        assert first.levels[name].value == pytest.approx(published, abs=0.04), name
    assert 0 < first.ranking["elo"]["kendall"].value < first.ranking["elo"]["spearman"].value < 0.85
    assert first.ties == pytest.approx(first.human_ties, abs=0.02)

    names = arena_length.LENGTHENED, "GPT-4o-0806"
    longer, other = ([found.bias[name].value for found in rows.values()] for name in names)
    assert longer[0] + 0.2 < longer[1] < longer[2]
    assert other[0] > other[1] > other[2]  # it loses battles against the lengthened model
    overall = [found.levels["overall"].value for found in rows.values()]
    assert overall[0] - 0.01 > overall[1] > overall[2]
    assert rows[200].ranking["elo"]["spearman"].value < first.ranking["elo"]["spearman"].value - 0.05
    assert rows[200].mean_bias > first.mean_bias
    assert json.loads(path.read_text())["0"]["levels"]["overall"][0] == overall[0]
    assert "| agreement of the length | with made verdicts | with people, in CapArena |" in capsys.readouterr().out


def test_coverage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.json"
    sizes = ["--arenas", "12", "--models", "4", "--battles", "120", "--images", "60", "--resamples", "5"]
    found = arena_coverage.main([*sizes, "--json", str(path)])
    assert found[arena_coverage.EXACT].covered.value > 0.8
    assert found[arena_coverage.ELO].covered.value < 0.8
    figures = json.loads(path.read_text())
    assert figures["options"]["models"] == 4
    assert figures["ratings"]["Elo"]["ordered"] == found["Elo"].ordered
    assert "| Bradley-Terry |" in capsys.readouterr().out


def test_selection(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.json"
    sizes = ["--runs", "2", "--models", "5", "--checkpoints", "30,60", "--batch", "20"]
    found = arena_selection.main([*sizes, "--json", str(path)])
    assert found["chosen"].shape == (2, 2, 3)
    assert (np.diff(found["chosen"][:, :, 0], axis=1) < 0).all()  # more battles, narrower intervals
    assert json.loads(path.read_text())["options"]["checkpoints"] == [30, 60]
    assert "| 60 | chosen |" in capsys.readouterr().out
