"""Every example script, with tiny sizes and models of random weights."""

from __future__ import annotations

import itertools
import json
import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from examples import (
    best_of_n,
    dpo_captioner,
    judge_captions,
    photos_grpo,
    rerank_candidates,
    score_captions,
    untrained,
)
from examples.research import draw_pictures, further_attacks, grpo_captioner
from reward.judges import ScriptedJudge
from tests.toys.json_lines import read_lines
from tests.toys.loopback_judge import loopback_judge
from tests.toys.rating_judges import save_rating_judge, strict_llava

pytestmark = pytest.mark.slow

FOLDER = Path(score_captions.__file__).parent


def test_every_example_is_tested_here():
    packages = {"examples", "examples.research"}
    here = {name for name, value in globals().items() if getattr(value, "__package__", "") in packages}
    scripts = {path.stem for folder in (FOLDER, FOLDER / "research") for path in folder.glob("*.py")}
    assert scripts - {"__init__"} == here


def test_judge_captions_with_a_model_here_and_behind_a_server(tmp_path, capsys):
    folder = save_rating_judge(tmp_path / "model", "012345")
    assert judge_captions.main(["--model", str(folder)]) == 0
    here = capsys.readouterr().out
    assert len(re.findall(r"^  (?:true and complete|with an error|incomplete): ", here, re.MULTILINE)) == 6
    assert int(re.search(r"(\d+) questions, [1-9]", here)[1]) > 0
    with loopback_judge(*strict_llava("012345")) as server:
        arguments = ["--model", "tiny", "--server", server.endpoint, "--cache", str(tmp_path / "answers")]
        judge_captions.main(arguments)
        first, asked = capsys.readouterr().out, len(server.requests)
        judge_captions.main(arguments)
        assert len(server.requests) == asked > 0
        again = capsys.readouterr().out
    assert again.splitlines()[:-1] == first.splitlines()[:-1]
    assert "\n0 questions" in again


def test_judge_captions_ends_with_an_error_where_nothing_was_judged(monkeypatch, capsys):
    silent = ScriptedJudge(lambda question: "no idea", lambda question: {})
    monkeypatch.setattr(judge_captions, "make_judge", lambda *_: silent)
    assert judge_captions.main(["--model", "silent"]) == 1


def test_further_attacks(scene_vela_folder, tmp_path, capsys):
    figures, vela = tmp_path / "new" / "audit.json", f"vela={scene_vela_folder}"
    result = further_attacks.main(["length", vela, "--scenes", "2", "--output", str(figures)])
    printed = capsys.readouterr().out
    for name in further_attacks.ATTACKS:
        assert re.search(rf"^\| {name} \| [12] \| \d+\.\d \[.+ \| \d+\.\d \[", printed, re.MULTILINE), name
    assert re.search(r"^\| '#shapes .+' \| 3\.000 \| \d\.\d{3} \|$", printed, re.MULTILINE)
    shares = {name: finding.wins.value for name, finding in result.metrics["length"].findings.items()}
    assert (shares["colours exchanged"], shares["mirrored"], shares["said again"], shares["absences"]) == (0, 0, 1, 1)
    assert set(json.loads(figures.read_text())["metrics"]) == {"length", vela}


def test_rerank_candidates(scene_vela_folder, capsys):
    arguments = ["--source", str(scene_vela_folder), "--candidates", "5"]
    orders = []
    for weights in ("desc=1", "flu=1"):
        rerank_candidates.main([*arguments, "--weights", weights])
        lines = capsys.readouterr().out.splitlines()
        assert [line[:2] for line in lines] == ["1.", "2.", "3.", "4.", "5."]
        orders.append([line[3:] for line in lines])
    assert sorted(orders[0]) == sorted(orders[1])


@pytest.mark.parametrize(
    ("options", "names"), [(["--without-references"], ["VELA"]), (["--reward", "both"], ["VELA", "BEiTScore"])]
)
def test_best_of_n_by_each_metric_among_the_same_candidates(options, names, models, tmp_path):
    sizes = ["--scenes", "3", "--n", "4", "--max-new-tokens", "8", "--output", str(tmp_path)]
    best_of_n.main([*itertools.chain(*models.values()), *sizes, *options])
    text = (tmp_path / "best_of_n.md").read_text()
    figures = json.loads((tmp_path / "best_of_n.json").read_text())
    assert list(figures["rewards"]) == names
    assert len({json.dumps(rewards) for rewards in figures["rewards"].values()}) == len(names)
    for name, rewards in figures["rewards"].items():
        assert f"| best of 4 by {name} |" in text
        captions = figures["captions"][f"best of 4 by {name}"]
        for chosen, group, own in zip(captions, figures["candidates"], rewards, strict=True):
            assert chosen == group[max(range(4), key=lambda k: -1 if own[k] is None else own[k])]


TRAINING = ["--steps", "2", "--prompts", "1", "--generations", "4", "--max-new-tokens", "8", "--lr", "0.01"]


@pytest.mark.parametrize("reward", ["beitscore", "both"])
def test_grpo_with_other_rewards_and_a_monitor(reward, models, tmp_path):
    sizes = ["--scenes", "2", "--samples", "1", "--output", str(tmp_path)]
    monitor = ["--monitor", "vela", "--monitor-source", models["vela"][1], "--monitor-scenes", "10"]
    watched = monitor if reward == "beitscore" else []
    grpo_captioner.main([*itertools.chain(*models.values()), *TRAINING, *sizes, *watched, "--reward", reward])
    name = grpo_captioner.METRICS[reward]
    text = (tmp_path / "grpo.md").read_text()
    assert f"| GRPO with {name}, greedy |" in text
    steps = read_lines(tmp_path / "seed_0" / f"GRPO with {name}".replace(" ", "_") / "curve.jsonl")
    assert all(-1 < step["reward"] < 1 and step["flaws"] >= 0 for step in steps)
    assert ("fluency" in steps[0]) == (reward != "beitscore")
    if watched:
        checks = read_lines(next(tmp_path.rglob("monitor.jsonl")))
        row = next(iter(checks[0]["rows"].values()))
        assert row["second"] is not None
        assert set(row["rewards"]) == {"beitscore", "oracle_f1", "flaws"}


def test_grpo_again_from_what_is_kept(models, tmp_path, monkeypatch):
    sizes = ["--scenes", "3", "--samples", "2", "--output", str(tmp_path)]
    arguments = [*models["vela"], *models["captioner"], *TRAINING, *sizes]
    grpo_captioner.main(arguments)
    text = (tmp_path / "grpo.md").read_text()
    for row in ("base, sampled", "GRPO with VELA, greedy", "GRPO with VELA, sampled"):
        assert f"| {row} |" in text
    assert "mean of 1 training seed; intervals are over scenes. No training was stopped." in text
    trained = tmp_path / "seed_0" / "GRPO_with_VELA"
    captions = [(folder / "captions_sampled.json").read_text() for folder in (tmp_path / "base", trained)]
    assert captions[0] != captions[1]
    assert len(read_lines(trained / "curve.jsonl")) == 2

    seeds = []
    make = grpo_captioner.make_trainer

    def watched(*given, seed, **options):
        seeds.append(seed)
        return make(*given, seed=seed, **options)

    monkeypatch.setattr(grpo_captioner, "make_trainer", watched)
    (trained / "captions_greedy.json").unlink()
    (tmp_path / "grpo.md").unlink()
    grpo_captioner.main(arguments)
    assert (tmp_path / "grpo.md").read_text() == text
    assert seeds == []

    (trained / "resumed.json").write_text("1")  # as a training that stopped leaves it
    grpo_captioner.main([*arguments, "--seeds", "0", "1"])
    assert seeds == [1]
    assert "Stopped: GRPO with VELA, seed 0 went on at step 1." in (tmp_path / "grpo.md").read_text()
    figures = json.loads((tmp_path / "grpo.json").read_text())
    assert list(figures["resumed"].values()) == [1, 0]
    for run in ("GRPO with VELA, sampled", "GRPO with VELA, greedy"):
        mean, *each = (figures["means"][name]["words"]["value"] for name in (run, f"{run}, seed 0", f"{run}, seed 1"))
        assert mean == pytest.approx(sum(each) / 2)

    results = shutil.copytree(draw_pictures.DOCS / "results", tmp_path / "results")
    draw_pictures.main(["--run", str(tmp_path), "--results", str(results), "--output", str(tmp_path / "images")])
    assert "<!-- Before (F1 " in (tmp_path / "images" / "grpo_light.svg").read_text()


def test_grpo_refuses_pieces_of_other_options(tmp_path, capsys):
    asked = {"steps": "4"}
    (tmp_path / "options.json").write_text(json.dumps(asked))
    with pytest.raises(SystemExit):
        grpo_captioner.main(["--steps", "5", "--output", str(tmp_path)])
    assert "steps=5 (was 4)" in capsys.readouterr().err


def test_dpo_with_its_control(models, tmp_path):
    sizes = ["--train-scenes", "4", "--candidates", "4", "--scenes", "3", "--samples", "1", "--max-new-tokens", "8"]
    rest = ["--margin", "0", "--lr", "0.01", "--seeds", "0", "1", "--output", str(tmp_path)]
    dpo_captioner.main([*models["vela"], *models["captioner"], *sizes, *rest])
    figures = json.loads((tmp_path / "dpo.json").read_text())
    assert all(1 <= count <= 4 for count in figures["pairs"].values())
    for run in ("sampled, DPO with VELA", "sampled, DPO with shuffled scores"):
        mean, *each = (figures["means"][name]["words"]["value"] for name in (run, f"{run}, seed 0", f"{run}, seed 1"))
        assert mean == pytest.approx(sum(each) / 2)
    assert "| sampled, DPO with VELA - sampled, base |" in (tmp_path / "dpo.md").read_text()


def test_an_example_runs_as_a_script_from_anywhere(scene_vela_folder, tmp_path):
    command = [sys.executable, str(FOLDER / "score_captions.py"), "--source", str(scene_vela_folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"descriptiveness 0\.\d\d, relevance 0\.\d\d, fluency 0\.\d\d", done.stdout)) == 4
    first, second = re.findall(r"(?:complete|errors): (.+)", done.stdout)[:2]
    assert first != second


def test_photos_grpo_on_real_photos_and_again_from_its_checkpoint(tmp_path, capsys):
    out = tmp_path / "out"
    smoke = ["--smoke", "--output", str(out)]
    photos_grpo.main([*smoke, "--steps", "2"])
    assert (out / "model" / "adapter_config.json").is_file()
    assert "longclipscore" in capsys.readouterr().out
    assert [check["step"] for check in read_lines(out / "monitor.jsonl")] == [0, 2]

    trainer = photos_grpo.main(smoke)
    assert trainer.state.global_step == 4
    logged = {name: row for row in trainer.state.log_history for name in row}
    figures = {"reward", "reward_std", "entropy", "completions/clipped_ratio", "eval_reward"}
    assert figures | {"eval_rewards/second/mean", "monitor/parted"} <= set(logged)
    assert [check["step"] for check in read_lines(out / "monitor.jsonl")] == [0, 2, 4]


def test_photos_of_a_folder_and_of_a_file(tmp_path, caplog):
    folder = untrained.save_photos(tmp_path / "my photos")
    (folder / "broken.jpg").write_text("no image")
    rows = [
        {"image": f"my photos/{name}", "references": ["a cat"], "id": number}
        for number, name in enumerate(["chelsea-0.jpg", "broken.jpg", "missing.jpg", "china-1.jpg"])
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with caplog.at_level(logging.WARNING):
        of_folder, of_file = (photos_grpo.read_photos(at, "Look.", 9000) for at in (folder, tmp_path / "rows.jsonl"))
    assert len(of_folder) == 28
    assert of_file["id"][:] == [0, 3]
    assert (of_file[1]["references"], of_file[1]["prompt"][0]["content"]) == (["a cat"], "Look.")
    assert all(8000 < photo.width * photo.height <= 9000 for photo in of_folder["image"])
    assert [line for line in ("1 of 29 rows", "2 of 4 rows", "broken.jpg") if line not in caplog.text] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--images", "absent"], "there is no 'absent'"),
        (["--images", "rows.txt"], "'rows.txt' is neither a folder nor one of .jsonl"),
        (["--images", "."], "needs a GPU that computes in bfloat16, and there is none; else --smoke"),
        ([], "name your photos: --images FOLDER"),
        (["--smoke", "--captions", "12"], "--captions 12 must be a multiple of 8 and of --batch 8"),
    ],
)
def test_photos_grpo_says_what_it_cannot_do(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(photos_grpo, "is_torch_bf16_gpu_available", lambda: False)
    (tmp_path / "rows.txt").write_text("a")
    with pytest.raises(SystemExit):
        photos_grpo.main([*options, "--output", "out"])
    assert message in capsys.readouterr().err
