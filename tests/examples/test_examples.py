"""Every example script and the notebook, with tiny sizes and models of random weights."""

import contextlib
import csv
import io
import json
import logging
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image
from transformers import AutoProcessor

from examples import best_of_n, dpo_captioner, judge_captions, photos_grpo, rerank_candidates, score_captions, untrained
from examples.research import (
    claims_frontier,
    draw_pictures,
    further_attacks,
    grpo_captioner,
    long_caption_pairs,
    reward_model,
)
from reward.judges import ScriptedJudge
from reward.metaeval import load_benchmark
from tests.toys.json_lines import read_lines, write_lines
from tests.toys.loopback_judge import loopback_judge
from tests.toys.pages import rows_of
from tests.toys.rewriting_server import rewriting_server
from tests.toys.toy_judges import strict_llava

pytestmark = pytest.mark.slow

FOLDER = Path(score_captions.__file__).parent
TRAINING = ["--steps", "2", "--prompts", "1", "--generations", "4", "--max-new-tokens", "8", "--lr", "0.01"]


def options_of(models, *names):
    return [option for name in names or models for option in models[name]]


def test_every_example_is_tested_here():
    packages = {"examples", "examples.research"}
    here = {name for name, value in globals().items() if getattr(value, "__package__", "") in packages}
    scripts = {path.stem for folder in (FOLDER, FOLDER / "research") for path in folder.glob("*.py")}
    assert scripts - {"__init__", "reproduce"} == here  # that one has a file of its own


def test_score_captions(scene_vela_folder, capsys):
    score_captions.main(["--source", str(scene_vela_folder)])
    printed = capsys.readouterr().out
    assert len(re.findall(r"descriptiveness 0\.\d\d, relevance 0\.\d\d, fluency 0\.\d\d", printed)) == 4
    complete, mistaken = re.findall(r"(?:complete|errors): (.+)", printed)[:2]
    assert complete != mistaken


def test_rerank_candidates(scene_vela_folder, capsys):
    rerank_candidates.main(["--source", str(scene_vela_folder), "--candidates", "5", "--weights", "flu=1"])
    lines = capsys.readouterr().out.splitlines()
    assert [line[:2] for line in lines] == ["1.", "2.", "3.", "4.", "5."]


def test_judge_captions_behind_a_server_whose_answers_are_kept(tmp_path, capsys):
    with loopback_judge(*strict_llava("012345")) as server:
        arguments = ["--model", "tiny", "--server", server.endpoint, "--cache", str(tmp_path / "answers")]
        assert judge_captions.main(arguments) == 0
        first, asked = capsys.readouterr().out, len(server.requests)
        judge_captions.main(arguments)
        assert len(server.requests) == asked > 0
        again = capsys.readouterr().out
    assert len(re.findall(r"^  (?:true and complete|with an error|incomplete): ", first, re.MULTILINE)) == 6
    assert again.splitlines()[:-1] == first.splitlines()[:-1]
    assert "\n0 questions" in again


def test_judge_captions_ends_with_an_error_where_nothing_was_judged(monkeypatch):
    silent = ScriptedJudge(lambda question: "no idea", lambda question: {})
    monkeypatch.setattr(judge_captions, "make_judge", lambda *_: silent)
    assert judge_captions.main(["--model", "silent"]) == 1


def test_further_attacks(scene_vela_folder, tmp_path, capsys):
    figures, vela = tmp_path / "new" / "audit.json", f"vela={scene_vela_folder}"
    result = further_attacks.main(["length", vela, "--scenes", "2", "--output", str(figures)])
    printed = capsys.readouterr().out
    for name in further_attacks.ATTACKS:
        assert re.search(rf"^\| {name} \| [12] \| \d+\.\d \[.+ \| \d+\.\d \[", printed, re.MULTILINE), name
    shares = {name: finding.wins.value for name, finding in result.metrics["length"].findings.items()}
    assert (shares["colours exchanged"], shares["mirrored"], shares["said again"], shares["absences"]) == (0, 0, 1, 1)
    assert set(rows_of(json.loads(figures.read_text()))["mirrored"]) == {"attack", "captions", "length", vela}


def test_a_reward_model_is_trained_audited_and_trained_against(tmp_path):
    sizes = ["--pairs", "6", "--held-out", "3", "--captions", "2", "--audited", "2", "--steps", "1", "--scenes", "2"]
    reward_model.main([*sizes, "--max-new-tokens", "24", "--output", str(tmp_path)])
    attacks = list(csv.DictReader((tmp_path / "audit.csv").read_text().splitlines()[1:]))
    assert {"truncation", "other image"} <= {row["attack"] for row in attacks}
    captions = list(csv.DictReader((tmp_path / "grpo.csv").read_text().splitlines()[1:]))
    assert [row["captions"] for row in captions][::3] == ["greedy, before", "sampled, after"]


def test_claims_agree_with_the_oracle_and_train_by_two_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(claims_frontier, "WEIGHTS", {"coverage alone": (0.0, 1.0)})
    sizes = ["--captions", "12", "--steps", "1", "--scenes", "2", "--max-new-tokens", "8", "--output", str(tmp_path)]
    claims_frontier.main(sizes)
    first, *lines = (tmp_path / "agreement.csv").read_text().splitlines()
    assert first.endswith(f"python -m examples.research.claims_frontier {' '.join(sizes)}")
    exact = [row for row in csv.DictReader(lines) if "judge" in row["claims; facts"] and row["errs"] == "0.000"]
    assert [row["aspect"] for row in exact] == ["precision", "coverage"]
    # A probability of .95 in place of 1 is all that differs.
    assert all(float(row["difference"]) < 0.05 and float(row["tau_b"]) > 0.9 for row in exact)
    lines = (tmp_path / "frontier.csv").read_text().splitlines()[1:]
    systems = [(row["reward"], row["decoding"]) for row in csv.DictReader(lines)]
    assert systems[::3] == [("untrained", "greedy"), ("coverage alone", "sampled")]


def test_best_of_n_by_each_metric_among_the_same_candidates(models, tmp_path):
    sizes = ["--scenes", "3", "--n", "4", "--max-new-tokens", "8", "--output", str(tmp_path)]
    best_of_n.main([*options_of(models), *sizes, "--reward", "both"])
    figures = json.loads((tmp_path / "best_of_n.json").read_text())
    assert list(figures["rewards"]) == ["VELA", "BEiTScore"]
    for name, rewards in figures["rewards"].items():
        assert f"| best of 4 by {name} |" in (tmp_path / "best_of_n.md").read_text()
        captions = figures["captions"][f"best of 4 by {name}"]
        for chosen, group, own in zip(captions, figures["candidates"], rewards, strict=True):
            assert chosen == group[max(range(4), key=lambda k: -1 if own[k] is None else own[k])]


def test_dpo_with_its_control(models, tmp_path):
    sizes = ["--train-scenes", "4", "--candidates", "4", "--scenes", "2", "--samples", "1", "--max-new-tokens", "8"]
    rest = ["--margin", "0", "--lr", "0.01", "--epochs", "1", "--seeds", "0", "1", "--output", str(tmp_path)]
    dpo_captioner.main([*options_of(models, "vela", "captioner"), *sizes, *rest])
    figures = json.loads((tmp_path / "dpo.json").read_text())
    assert all(1 <= count <= 4 for count in figures["pairs"].values())
    for run in ("sampled, DPO with VELA", "sampled, DPO with shuffled scores"):
        check_mean_of_seeds(figures, run)
    assert "| sampled, DPO with VELA - sampled, base |" in (tmp_path / "dpo.md").read_text()


def check_mean_of_seeds(figures, run):
    mean, *each = (figures["means"][name]["words"]["value"] for name in (run, f"{run}, seed 0", f"{run}, seed 1"))
    assert mean == pytest.approx(sum(each) / 2)


def test_grpo_with_a_monitor_and_again_from_what_is_kept(models, tmp_path, monkeypatch, capsys):
    sizes = ["--scenes", "3", "--samples", "2", "--output", str(tmp_path)]
    monitor = ["--monitor", "beitscore", "--monitor-source", models["beitscore"][1], "--monitor-scenes", "10"]
    arguments = [*options_of(models, "vela", "captioner"), *TRAINING, *sizes, *monitor]
    grpo_captioner.main(arguments)
    text = (tmp_path / "grpo.md").read_text()
    for said in ("| base, sampled |", "| GRPO with VELA, greedy |", "of 1 training seed", "No training was stopped."):
        assert said in text
    trained = tmp_path / "seed_0" / "GRPO_with_VELA"
    base, after = ((folder / "captions_sampled.json").read_text() for folder in (tmp_path / "base", trained))
    assert base != after
    assert all(0 < step["reward"] < 1 and step["flaws"] >= 0 for step in read_lines(trained / "curve.jsonl"))
    row = next(iter(read_lines(trained / "trainer" / "monitor.jsonl")[0]["rows"].values()))
    assert row["second"] is not None
    assert set(row["rewards"]) == {"vela", "oracle_f1", "flaws"}

    seeds, make = [], grpo_captioner.make_trainer

    def watched(*given, seed, **options):
        seeds.append(seed)
        return make(*given, seed=seed, **options)

    monkeypatch.setattr(grpo_captioner, "make_trainer", watched)
    (trained / "captions_greedy.json").unlink()
    grpo_captioner.main(arguments)
    assert (tmp_path / "grpo.md").read_text() == text
    assert seeds == []

    (trained / "resumed.json").write_text("1")  # as a training that stopped leaves it
    grpo_captioner.main([*arguments, "--seeds", "0", "1"])
    assert seeds == [1]
    assert "Stopped: GRPO with VELA, seed 0 went on at step 1." in (tmp_path / "grpo.md").read_text()
    check_mean_of_seeds(json.loads((tmp_path / "grpo.json").read_text()), "GRPO with VELA, sampled")

    with pytest.raises(SystemExit):  # pieces of other options
        grpo_captioner.main([*arguments, "--steps", "5"])
    assert "steps=5 (was 2)" in capsys.readouterr().err

    results = shutil.copytree(draw_pictures.DOCS / "results", tmp_path / "results")
    draw_pictures.main(["--run", str(tmp_path), "--results", str(results), "--output", str(tmp_path / "images")])
    assert "<!-- Before (F1 " in (tmp_path / "images" / "grpo_light.svg").read_text()


def test_photos_grpo_on_real_photos_and_again_from_its_checkpoint(tmp_path, capsys):
    out = tmp_path / "out"
    photos_grpo.main(["--smoke", "--output", str(out), "--steps", "2"])
    assert (out / "model" / "adapter_config.json").is_file()
    assert "longclipscore" in capsys.readouterr().out
    trainer = photos_grpo.main(["--smoke", "--output", str(out)])
    assert trainer.state.global_step == 4
    logged = {name for row in trainer.state.log_history for name in row}
    assert {"reward_std", "eval_reward", "eval_rewards/second/mean", "monitor/parted"} <= logged
    assert [check["step"] for check in read_lines(out / "monitor.jsonl")] == [0, 2, 4]


@pytest.mark.parametrize(("patch", "pixels"), [(14, 28 * 28), (16, 32 * 32)])  # Qwen2.5-VL, Qwen3-VL
def test_the_size_of_a_token_is_the_one_of_the_model(patch, pixels, tmp_path):
    processor = AutoProcessor.from_pretrained(untrained.make_qwen_vl(tmp_path / "made"))
    processor.image_processor.patch_size = patch
    processor.save_pretrained(tmp_path / "saved")
    assert photos_grpo.token_pixels(tmp_path / "saved") == pixels


def test_photos_of_a_folder_and_of_a_file(tmp_path, caplog):
    folder = untrained.save_photos(tmp_path / "my photos")
    (folder / "broken.jpg").write_text("no image")
    names = ["chelsea-0.jpg", "broken.jpg", "missing.jpg", "china-1.jpg"]
    rows = [{"image": f"my photos/{name}", "references": ["a cat"], "id": name} for name in names]
    file = write_lines(tmp_path / "rows.jsonl", rows)
    with caplog.at_level(logging.WARNING):
        of_folder, of_file = (photos_grpo.read_photos(at, "Look.", 9000) for at in (folder, file))
    assert (len(of_folder), of_file["id"][:]) == (28, [names[0], names[3]])
    assert (of_file[1]["references"], of_file[1]["prompt"][0]["content"]) == (["a cat"], "Look.")
    assert all(8000 < photo.width * photo.height <= 9000 for photo in of_folder["image"])
    assert "1 of 29 rows" in caplog.text


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


def test_the_notebook_chooses_good_captions_before_and_after_its_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((FOLDER / "first_steps.ipynb").read_text(encoding="utf-8"))
    printed, names = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)
    chosen = [float(found) for found in re.findall(r"^(\d\.\d\d) [A-Z]", printed.getvalue(), re.MULTILINE)]
    assert [reward > 0.6 for reward in chosen] == [True, True], chosen


def test_long_caption_pairs_keep_errors_that_a_clip_does_not_read(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    long = "A red dog lies on grass. " * 15 + "It guards a red ball."
    captions = {"0.png": long, "1.png": "A sign says red.", "2.png": f"Late. {long}"}
    for name in captions:
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    data = [{"image": name, "caption": caption} for name, caption in captions.items()]
    data = write_lines(tmp_path / "captions.jsonl", data)

    def edit(caption):
        return caption.replace("red", "green") if caption.startswith("Late") else "green".join(caption.rsplit("red", 1))

    folder = tmp_path / "pairs"
    with rewriting_server(edit) as (address, asked):
        line = [str(data), "--judge", f"{address}#m", "--rewrite", "action,scene text", "--output", str(folder)]
        counts = long_caption_pairs.main(line)
        assert "image_url" in str(asked[0])
    assert counts == {"action": 1, "scene text": 3, "left out": 1}  # no action in a short caption, none early in a long
    pairs = load_benchmark("longcapvlcp", folder).rows
    assert [pair.captions for pair in pairs.itertuples() if pair.category == "action"] == [(long, edit(long))]
