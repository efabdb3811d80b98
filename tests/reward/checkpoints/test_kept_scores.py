"""A kept score belongs to all that made it: what changed is scored anew or refused, and what is the same goes on."""

import os
import pickle
import shutil
import sqlite3
from functools import partial
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from datasets.fingerprint import Hasher
from PIL import Image

from reward import load_scorer
from reward.checkpoints.fingerprint_objects import fingerprint_object
from reward.decoding.captioners import LocalCaptioner, Sampling
from reward.decoding.captioning import caption_images
from reward.decoding.photos import read_images
from reward.errors import CheckpointError, OutputError
from reward.judges import LocalJudge
from reward.judges.loading import LazyJudge
from reward.scoring import BatchScorer, score_dataset
from reward.scoring.kept import Kept
from reward.scoring.runs import OtherRunError
from tests.reward.scoring.small_data import save_greys
from tests.toys.json_lines import write_lines

pytestmark = pytest.mark.slow

CAPTIONER = Path(str(files("reward") / "assets" / "captioner"))
ROWS = [{"image": f"photos/{number}.png", "caption": "a red star"} for number in range(3)]


def test_a_finished_output_is_of_its_scorer_and_its_photos(tmp_path):
    save_greys(tmp_path / "photos")
    data, output = write_lines(tmp_path / "data.jsonl", ROWS), tmp_path / "out.jsonl"
    assert not score_dataset(data, load_scorer("clipscore", device="cpu"), output).already_done
    scorer = load_scorer("clipscore", device="cpu")  # another object, equal in all
    assert score_dataset(data, scorer, output).already_done
    photo = tmp_path / "photos" / "1.png"
    facts, other = photo.stat(), photo.with_name("other.png")
    other.write_bytes(photo.read_bytes())
    os.utime(other, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    other.replace(photo)  # of equal size and time
    with pytest.raises(OutputError, match=r"images of .* were replaced"):
        score_dataset(data, scorer, output)
    scorer.model = None  # all that a scorer holds counts
    with pytest.raises(OutputError, match="exists already"):
        score_dataset(data, scorer, output)


def test_a_run_of_what_cannot_be_told_says_so_and_is_done_again(tmp_path):
    seen = {}

    def words(samples):
        seen.update({sample.candidate: 1.0 for sample in samples})
        return [seen[sample.candidate] for sample in samples]

    data, output = write_lines(tmp_path / "data.jsonl", ROWS), tmp_path / "out.jsonl"
    with pytest.warns(UserWarning, match=r"words: this run cannot go on after a stop.*'seen': it holds a dict"):
        score_dataset(data, words, output)
    with pytest.warns(UserWarning, match="cannot go on"), pytest.raises(OutputError, match="exists already"):
        score_dataset(data, words, output)


def test_paid_answers_of_a_run_that_cannot_be_read_are_not_thrown_away(tmp_path):
    file = tmp_path / "answers"
    with Kept(file, {"judge": "a"}) as kept:
        kept.add(["yes", "no"])
    with Kept(file, {"judge": "a"}) as kept:
        assert list(kept) == ["yes", "no"]
    with pytest.raises(OtherRunError, match="judge was 'a', now 'b'"):
        Kept(file, {"judge": "b"})
    with sqlite3.connect(file) as rows:
        rows.execute("UPDATE kept SET checksum = 0 WHERE key = 'facts'")
    with pytest.warns(UserWarning, match="1 damaged"), pytest.raises(OtherRunError, match="move it away"):
        Kept(file, {"judge": "a"})
    with Kept(file, {"judge": "b"}, overwrite=True) as kept:
        assert not list(kept)


def test_a_checkpoint_retrained_into_its_folder_is_another(tmp_path):
    scorer, folder = load_scorer("vela", device="cpu"), tmp_path / "vela"
    scorer.save_pretrained(folder)
    batch = {"image": [Image.new("RGB", (96, 96), "red")], "caption": ["a red star"]}

    def made():
        return BatchScorer("vela", source=folder, device="cpu", added_only=True)

    old = made()
    before, name, copy = old(batch)["reward"], Hasher.hash(made()), pickle.dumps(made())
    assert Hasher.hash(old) == name  # having scored makes it no other
    assert pickle.loads(copy)(batch)["reward"] == before
    loaded = fingerprint_object(load_scorer("vela", folder, device="cpu"))
    with torch.no_grad():
        for weight in scorer.model.parameters():
            weight.mul_(0.7)
    scorer.save_pretrained(folder)
    assert made()(batch)["reward"] != before
    assert Hasher.hash(made()) != name
    assert fingerprint_object(load_scorer("vela", folder, device="cpu")) != loaded
    assert old(batch)["reward"] == before
    for use in (lambda: pickle.loads(copy)(batch), lambda: pickle.dumps(old)):
        with pytest.raises(CheckpointError, match="Make a new BatchScorer"):
            use()


def test_a_judge_is_its_weights_and_dtype_loaded_or_not(tmp_path):
    shutil.copytree(CAPTIONER, tmp_path / "judge")

    def names(**settings):
        load = partial(LocalJudge.from_pretrained, str(tmp_path / "judge"), device="cpu", **settings)
        return [LazyJudge(load, str(tmp_path / "judge")).fingerprint, load().fingerprint]

    before = names()
    assert names() == before
    assert not {*names(dtype="bfloat16")} & {*before}
    (tmp_path / "judge" / "chat_template.jinja").write_text("{{ messages[0].role }}")
    assert not {*names()} & {*before}


def test_stored_captions_belong_to_the_weights_of_the_captioner(tmp_path):
    shutil.copytree(CAPTIONER, tmp_path / "captioner")
    save_greys(tmp_path / "photos")

    def caption():
        captioner = LocalCaptioner(tmp_path / "captioner", device="cpu")
        options = {"metric": "length", "n": 1, "sampling": Sampling(max_tokens=4)}
        return caption_images(read_images(tmp_path / "photos"), captioner, tmp_path / "out.jsonl", **options)

    caption()
    assert caption().already_done
    with (tmp_path / "captioner" / "config.json").open("a") as file:
        file.write("\n")  # stands for other weights
    with pytest.raises(OutputError, match="exists already"):
        caption()
