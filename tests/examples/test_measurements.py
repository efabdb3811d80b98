"""Scripts that measure decoding and training on scenes, with tiny sizes, and the pictures of what they find."""

from __future__ import annotations

import csv
import json
import re
import shutil

import pytest

from examples.research import decoding_curve, draw_pictures, pair_sampling, prefix_scores


def test_pair_sampling(models, tmp_path, capsys):
    sizes = ["--pairs", "10", "--steps", "1", "--seeds", "4", "--held-out", "1", "--scenes", "4"]
    pair_sampling.main([*models["beitscore"], *sizes, "--output", str(tmp_path)])
    printed = capsys.readouterr().out
    for name in pair_sampling.VARIANTS:
        assert len(re.findall(rf"^\| {name} \| [01]\.\d{{3}} \[", printed, re.MULTILINE)) == 2, name
    trainings = list(tmp_path.glob("*-4"))
    settings = [json.loads((folder / "training.json").read_text())["config"] for folder in trainings]
    chosen = {(each["sampling"], "foil" in each["categories"]) for each in settings}
    assert chosen == {("pool", True), ("pool", False), ("balanced", True), ("balanced", False)}
    with (tmp_path / "pair_sampling.csv").open(encoding="utf-8") as stream:
        cells = {(row["runs"], row["measure"]): float(row["value"]) for row in csv.DictReader(stream)}
    for one, two in pair_sampling.DIFFERENCES:
        for measure in ("noun", "retrieved", "these seven", "fluency"):
            assert cells[f"{one} - {two}", measure] == pytest.approx(
                cells[one, measure] - cells[two, measure], abs=2e-3
            )


def test_prefix_scores(models, tmp_path):
    arguments = [*models["vela"], *models["beitscore"], "--scenes", "4", "--samples", "4", "--output", str(tmp_path)]
    prefix_scores.main(arguments)  # by the captioner that ships, as others end no sentence
    figures = json.loads((tmp_path / "prefixes.json").read_text())
    guide = figures["after a sentence"]["VELA, descriptiveness"]["F1 so far"]
    assert -1 <= guide["low"] <= guide["value"] <= guide["high"] <= 1
    assert "| cut within a sentence | F1 so far | F1 in the end |" in (tmp_path / "prefixes.md").read_text()


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

    shutil.copytree(draw_pictures.DOCS / "results", tmp_path / "results")
    drawn = ["--results", str(tmp_path / "results"), "--output", str(tmp_path / "images")]
    draw_pictures.main([*drawn, "--decoding", str(tmp_path)])
    assert "<!-- speculative rejection -->" in (tmp_path / "images" / "decoding_dark.svg").read_text()
    with pytest.raises(SystemExit, match="holds no decoding_curve"):
        draw_pictures.main([*drawn, "--decoding", str(tmp_path / "images")])
    with pytest.raises(SystemExit, match=r"holds no seed_\*/\*/trainer/monitor.jsonl"):
        draw_pictures.main([*drawn, "--parting", str(tmp_path)])
    seen = {"measures/second_vela": 0.3, "measures/oracle_f1": 0.4, "measures/flaws": 1, "repetition": 0.1}
    checks = [{"step": step, "figures": {"reward": step / 9, **seen}, "warned": ["parted"][:step]} for step in (0, 5)]
    run = tmp_path / "seed_3" / "GRPO_with_VELA" / "trainer"
    run.mkdir(parents=True)
    lines = [json.dumps(line) for line in ({"second": "second_vela"}, *checks)]
    (run / "monitor.jsonl").write_text("\n".join(lines))
    draw_pictures.main([*drawn, "--parting", str(tmp_path)])
    assert (tmp_path / "results" / "parting.csv").read_text().splitlines()[2] == "5,0.5556,0.3,0.4,1,0.1,parted"
    assert "<!--  parted -->" in (tmp_path / "images" / "parting_light.svg").read_text()
