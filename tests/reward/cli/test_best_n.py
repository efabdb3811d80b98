"""`capreward best-n`: curves from rows and from lists, with a page; images with few captions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.json_lines import read_lines, write_lines
from tests.reward.cli.conftest import Run


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    """40 images with 16 captions each, in turn; captions of a high reward are bad ones."""
    pools = np.random.default_rng(1).random((40, 16))
    rows = [
        {"image": f"{image}.png", "caption": "a", "reward": pool[i], "people": min(pool[i], 4 - 4 * pool[i])}
        for i in range(16)
        for image, pool in enumerate(pools)
    ]
    return write_lines(tmp_path / "scores.jsonl", rows)


def test_the_command(run: Run, scored: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out, err = run("best-n", scored, "--held-out", "people", "-o", tmp_path / "curve")
    assert "Expected value of the best of n by reward, 40 images" in out
    assert "people peaks at n = " in err
    assert "it is an upper bound" in err
    figures = json.loads((tmp_path / "curve" / "best-n.json").read_text())
    assert figures["columns"]["reward"]["peak"] is None
    assert 2 <= figures["columns"]["people"]["peak"] <= 6
    assert (tmp_path / "curve" / "best-n.html").read_text().count("<svg") == 2
    # lists, as `rerank` and `caption` write them, give the same
    lists: dict[str, dict[str, Any]] = {}
    for row in read_lines(scored):
        pool = lists.setdefault(row["image"], {"image": row["image"], "rewards": [], "people": []})
        pool["rewards"].append(row["reward"])
        pool["people"].append(row["people"])
    again, _ = run("best-n", write_lines(tmp_path / "l.jsonl", lists.values()), "--held-out", "people", "--json")
    assert list(json.loads(again)["columns"].values()) == list(figures["columns"].values())


def test_images_with_few_captions(run: Run, scored: Path) -> None:
    write_lines(scored, [*read_lines(scored), *({"image": "few.png", "reward": n} for n in range(3))])
    figures, err = run("best-n", scored, "--json")
    assert (len(json.loads(figures)["kl_bound"]), json.loads(figures)["samples"]) == (3, {"3": 1, "16": 40})
    assert "n ends at 3, the fewest captions of an image; --up-to N leaves out images with fewer" in err
    assert "reward always rises with n, also when captions cheat it" in err
    figures, err = run("best-n", scored, "--json", "--up-to", "16")
    assert (len(json.loads(figures)["kl_bound"]), json.loads(figures)["left_out"]) == (16, 1)
    write_lines(scored, [*read_lines(scored), {"image": "one.png", "reward": 1}])
    _, err = run("best-n", scored, code=1)
    assert "41 of 42 images (column 'image') have 2 scored captions or more, and the most is 16." in err
