"""Scripts that measure decoding and training on scenes, with tiny sizes, and the pictures of what they find."""

from __future__ import annotations

import json

import pytest

from examples.research import decoding_curve, stored


def test_decoding_curve_goes_on_from_what_is_kept_and_is_drawn(models, tmp_path):
    sizes = ["--scenes", "3", "--pool", "16", "--max-new-tokens", "12", "--output", str(tmp_path)]
    decoding_curve.main([*models["vela"], *sizes])  # by the captioner that ships, as others end no sentence
    text = (tmp_path / "decoding_curve.md").read_text()
    figures = json.loads((tmp_path / "decoding_curve.json").read_text())
    means = {name: {column: cell["value"] for column, cell in row.items()} for name, row in figures["means"].items()}
    pool = json.loads((tmp_path / "pool.json").read_text())
    assert means["best of n: 16"]["tokens"] == pytest.approx(sum(pool["tokens"]) / 3)
    assert means["best of n: 16"]["scored"] == pytest.approx(sum(pool["scored"]) / 3)
    assert means["greedy"]["scored"] == 0 < means["MBR, VELA: 4"]["scored"]
    soft = "soft, temperature .05: 16"
    difference = figures["differences"][f"{soft} - best of 16.0"]["f1"]["value"]
    assert difference == pytest.approx(means[soft]["f1"] - means["best of n: 16"]["f1"])

    for piece in ("beams_4.json", "decoding_curve.md"):
        (tmp_path / piece).unlink()
    kept = (tmp_path / "pool.json").stat().st_mtime_ns
    decoding_curve.main([*models["vela"], *sizes])
    assert (tmp_path / "decoding_curve.md").read_text() == text
    assert (tmp_path / "pool.json").stat().st_mtime_ns == kept

    rows = {(row["line"], row["setting"]): row for row in stored.decoding(tmp_path)}
    assert rows["best of n", "16"]["f1_difference"] == ""
    assert float(rows["greedy", ""]["f1"]) == pytest.approx(means["greedy"]["f1"], abs=1e-4)
    assert float(rows["soft, temperature .05", "16"]["f1_difference"]) == pytest.approx(difference, abs=1e-3)
