"""What a command cannot do, it says in one line; exit code 1 is for data and 2 for options, and nothing is written."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from reward.cli.app import COMMANDS
from tests.reward.cli.conftest import Run

pytestmark = pytest.mark.slow

# What the lines of a command have in common. No model is at these places, so that one looked for too early shows.
REST = {
    "score": "-o o.jsonl",
    "caption": "-m length -o o.jsonl --model embedded",
    "train": "-o trained",
    "corrupt": "-o o.parquet",
}
FLICKR = "bench -b flickr8k-expert"
JUDGED = "-j no/model -o o.json"
with_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs matplotlib")


def run_line(run: Run, line: str, code: int) -> str:
    rest = "" if " -o " in line else REST.get(line.split()[0], "")
    return run(*f"{line} {rest}".split(), code=code)[1]


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("metrics --for drawings", 2, "'drawings' is not one of 'photos'"),
        ("metrics vela --for photos", 2, "leave out the metric 'vela' or --for"),
        ("metrics --markdown", 2, "--markdown: it needs --for photos"),
        (
            "score data.jsonl -m lenght",
            1,
            "error: no metric is named 'lenght'. Nearest: length, bleu1, bleu2; a checkpoint",
        ),
        ("score data.jsonl -m length -w colour=1", 1, "error: weights name an unknown aspect 'colour'; known: length"),
        ("score data.jsonl -m length -w length=nan", 1, "must be a finite number, got nan"),
        ("score data.jsonl -m length -w length", 2, "'length' is not of the form NAME=NUMBER"),
        ("score data.jsonl -m length --candidate-column text", 1, "error: --candidate-column names 'text', which"),
        ("score data.jsonl -m length --batch-size 0", 2, "--batch-size"),
        ("score data.jsonl -m vela --source runs/a", 2, "No such option: --source. Write -m vela=runs/a"),
        ("score data.jsonl -m vela=a/b --revision=v2", 2, "No such option: --revision. Write -m vela=a/b@v2"),
        ("score data.jsonl --metric clipscore --model X", 2, "No such option: --model. Write -m clipscore=X"),
        ("score data.jsonl -m bertscore=x --layer 5", 2, "No such option: --layer. Write --set layer=5"),
        ("score data.jsonl -m length --gpu 0", 2, "No such option: --gpu. Write --device cuda:0"),
        ("score data.jsonl -m length --references r", 2, "No such option: --references. Nearest: --references-column"),
        ("score data.jsonl length", 2, "unexpected extra argument(s) (length): write -m length"),
        ("score data.jsonl", 2, "--metric: is missing: which metric scores?"),
        ("score data.jsonl -m vela,length", 1, "of several write -m vela -m length"),
        ("score data.jsonl -m bertscore --set layr=5", 1, "metric 'bertscore' has no option 'layr'; it has layer"),
        (
            "score data.jsonl -m bertscore -m vela --set layer=5",
            1,
            "the metrics: write --set bertscore.layer=5",
        ),
        ("score data.jsonl -m bertscore --set layer", 1, "--set 'layer' is not of the form NAME=VALUE, as in layer=5"),
        ("score data.jsonl -m judge=a/b --set prompt=absent.yaml", 1, "prompt file 'absent.yaml' cannot be read"),
        ("score data.jsonl -m bertscore --set layer=5 --set layer=6", 1, "--set gives layer of bertscore twice"),
        ("score good.jsonl -m fleur=./absent/model", 1, "fleur checkpoint folder './absent/model' does not exist"),
        ("score data.jsonl -m vela=./no", 1, "folder './no' does not exist"),
        ("rerank data.jsonl -m length -m unigram -o o.jsonl", 1, "as in --weights length=0.5,unigram=0.5"),
        ("caption good.png -m length -m vela -o o.jsonl --model embedded", 1, "--weights length=0.5,vela=0.5"),
        ("score data.jsonl -m length --devices cpu,gpu", 2, "device 'gpu' cannot be used: "),
        ("score data.jsonl -m length --devices cpu,cpu --device cpu", 1, "or devices= (--devices), not both"),
        ("score data.jsonl -m vela --cache-size 1GB", 2, "is for a cache: give --cache, too"),
        ("score data.jsonl -m vela --cache here --cache-size 1", 2, "must be such as 20GB or 500MB"),
        ("score data.jsonl -m vela --cache data.jsonl", 1, "the cache 'data.jsonl' cannot be written"),
        ("score data.jsonl -m length --address auto", 2, "--address: goes with --engine ray"),
        ("score data.jsonl -m length --engine dask", 2, "no engine is named 'dask'; there are: "),
        ("score data.jsonl -m length --engine ray --split test", 2, "--split: is for data sets of `datasets`"),
        ("score data.jsonl -m length --engine ray", 1, "output o.jsonl must be a folder: Ray writes Parquet parts"),
        ("score none.jsonl -m length --engine ray -o out", 1, "error: there is no file none.jsonl"),
        ("score [bold]none.jsonl -m length", 1, "error: there is no file [bold]none.jsonl"),
        ("report rated.jsonl -o o.htm", 1, "must end in .html"),
        pytest.param("report rated.jsonl -o o.html", 1, "name the scores with --by", marks=with_matplotlib),
        pytest.param("report data.jsonl --by candidate -o o.html", 1, "holds string, no scores", marks=with_matplotlib),
        ("caption absent", 1, "error: there is no folder or file absent"),
        ("caption absent.jpg", 1, "error: there is no folder or file absent.jpg"),
        ("caption empty", 1, "error: folder empty holds no images (.jpg, .png, .webp, ...), but no files"),
        ("caption good.png --split test", 1, "--split (split=) is for a data file, and good.png is none"),
        ("caption good.png --n 0", 1, "error: --n (n=) must be at least 1, got 0"),
        ("caption good.png --temperature 0", 1, "--temperature 0 writes the same caption n times: raise it, or"),
        ("caption good.png --temperature nan", 1, "temperature must be at least 0 and finite, got nan"),
        ("caption good.png --top-p 0", 1, "top_p must be above 0 and at most 1, got 0.0"),
        ("caption good.png --chunk 0", 1, "chunk must be at least 1, got 0"),
        ("caption good.png --model-set concurrency=2", 2, "--model-set: is for a server: give --model its address"),
        ("caption good.png --model ./absent -m length -o o.jsonl", 1, "captioner checkpoint folder './absent' does"),
        ("caption good.png --model embedded -m unigram -o o.jsonl", 1, "metric 'unigram' needs references: give"),
        ("caption --images good.png", 2, "No such option: --images. Write capreward caption IMAGES, without an option"),
        ("caption good.png --model embedded -m length -o o.csv", 1, "o.csv must end in .jsonl"),
        ("bench -m length", 2, "is missing; `capreward bench --list` shows"),
        (f"{FLICKR} -d absent.jsonl", 1, "absent.jsonl does not exist. Flickr8k-Expert needs"),
        (f"{FLICKR}=rated.jsonl -m length=", 1, "'length=' is not a metric: write NAME, or NAME=CHECKPOINT"),
        (f"{FLICKR}=rated.jsonl -b scenes -d rated.jsonl", 2, "goes with one --benchmark; write NAME=PATH"),
        (f"{FLICKR}=rated.jsonl -d rated.jsonl", 2, "gives a path twice"),
        (f"{FLICKR}=", 2, "has no path"),
        (f"{FLICKR}=rated.jsonl --part test", 1, "has no part 'test'"),
        (f"{FLICKR}=rated.jsonl -m length --limit 0", 2, "--limit"),
        pytest.param(f"{FLICKR}=rated.jsonl -m length -o data.jsonl", 1, "error: cannot write", marks=with_matplotlib),
        (f"{FLICKR}=empty.jsonl -m length", 1, "empty.jsonl"),
        (f"{FLICKR}=data.jsonl -m length", 1, "data.jsonl"),  # which holds no ratings
        ("arena", 2, "only --leaderboard NAME=FILE --ranking FILE needs no battles"),
        ("arena empty", 1, "error: folder empty holds no .json file of battles"),
        ("arena battles.json --judged a=battles.json", 1, "battles.json has no verdict of a judge ('judge')"),
        ("arena battles.json --judged battles.json --judged a/battles.json", 2, "two files are named 'battles'"),
        ("arena battles.json --annotator battles.json", 2, "is the file of the first annotator itself"),
        ("arena battles.json --ranking one.json", 1, "one.json: the score of 'bad.png' must be a finite number, got"),
        ("arena battles.json --ranking config.json", 1, 'must hold models from best to worst, ["x", "y"], or'),
        ("arena battles.json --ranking caparena", 1, "only 0 of the models are in the ranking of CapArena's"),
        ("arena battles.json --leaderboard a=one.json", 2, "--leaderboard: goes with --ranking"),
        ("arena battles.json --metric vela --images ..", 1, "looks at the images"),
        ("arena absent.json", 1, "error: there is no file"),
        ("arena battles.json --one-order", 2, "--one-order: goes with --judge"),
        ("arena one.json two.json -j no/model", 2, "--output: is missing: where are the verdicts to be kept?"),
        (f"arena one.json {JUDGED} --auto battles.json", 1, "battles.json must hold {image: "),
        (f"arena one.json ./../here/one.json {JUDGED}", 2, "two files are named 'one'"),
        (f"arena one.json two.json {JUDGED} --judge-set cache=x", 1, "a model on this machine has no setting 'cache'"),
        (f"arena one.json two.json {JUDGED} --judge-set prices=2", 2, "'prices=2' is not two numbers, as in prices="),
        (f"arena one.json two.json {JUDGED} --benchmark x", 2, "No such option: --benchmark. Write --auto"),
        ("battle one.json two.json", 2, "Write capreward arena --judge MODEL -o FILE (capreward arena --help)"),
        ("judge data.jsonl -m fleur", 2, "Write capreward score DATA -m METRIC=MODEL (capreward score --help)"),
        ("caparena-auto one.json", 2, "Write capreward arena --auto caparena_auto_600.json"),
        ("train vela --preset huge", 1, "vela has no preset 'huge'; known: paper, paper-clip"),
        ("train beitscore --preset paper", 1, "the scenes have no errors of the kind"),
        ("train vela --private", 2, "--private: goes with --push-to ORG/NAME"),
        ("train vela --push-to a/b --seed 0 --seed 1", 2, "one checkpoint: train the seeds without it, then run this"),
        ("train vela --push-to mine", 1, "cannot push to 'mine': write ORG/NAME, with your name or an organisation's"),
        ("train vela --resume", 1, "there is no run to resume in trained"),
        ("train vela --config absent.yaml", 1, "cannot read the config file absent.yaml"),
        ("corrupt data.jsonl", 1, "nothing to make: ask for words (--words), rewrites (--judge) or retrieval"),
        ("corrupt good.jsonl --words shout", 1, "words: unknown shout; known: repeat_noun"),
        ("corrupt good.jsonl --judge x --rewrite shout", 1, "rewrites: unknown shout; known: spatial"),
        ("corrupt good.jsonl --rewrite count", 2, "--rewrite: goes with --judge"),
        ("corrupt good.jsonl --words all --judge-set dtype=x", 2, "--judge-set: goes with --judge"),
        ("corrupt good.jsonl --words all --benchmark", 2, "--benchmark: goes with --judge"),
        ("corrupt good.jsonl --server http://x/v1", 2, "No such option: --server. Write --judge ADDRESS#NAME"),
        ("corrupt good.jsonl --concurrency 4", 2, "No such option: --concurrency. Write --judge-set concurrency=4"),
        ("caption good.png --served-model x", 2, "No such option: --served-model. Write --model ADDRESS#NAME"),
        ("corrupt good.jsonl --words all --spm x", 2, "--spm: goes with --retrieve"),
        ("corrupt good.jsonl --retrieve ./absent", 1, "absent"),
        ("corrupt good.jsonl --words all -o o.jsonl", 1, "output o.jsonl must end in .parquet"),
        ("corrupt foil=absent --words all", 1, "absent holds no foilv1.0_train_2017.json"),
        (
            "corrupt good.jsonl --benchmark --judge ./absent/model --rewrite count -o m",
            1,
            "unknown categories count; known: ",
        ),
        ("metrics length --size", 1, "metric 'length' has no network of its own"),
        ("metrics vela=./absent --size", 1, "absent"),
        ("metrics --size", 2, "it needs the name of a metric"),
        ("metrics vela length", 2, "several metrics go with --size"),
    ],
)
def test_what_is_wrong_is_one_line(line: str, code: int, message: str, run: Run, folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert message in run_line(run, line, code)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


# {command: a line whose data hold nothing to score, and what it says}; commands that are missing here score no data.
NOTHING_SCORED = {
    "score": ("score data.jsonl -m vela", "no caption could be scored"),
    "rerank": ("rerank data.jsonl -m vela -o o.jsonl", ""),
    "audit": ("audit -m vela -d data.jsonl", ""),
    "bench": ("bench -b ratings=rated.jsonl -m vela", "nothing to evaluate for vela"),
    "arena": ("arena one.json two.json -o o.json -j http://127.0.0.1:9/v1#m", "no battle could be judged"),
    "compare": (
        "compare data.jsonl unscored.jsonl -m vela",
        "data.jsonl and unscored.jsonl cannot be compared by vela",
    ),
    "train": ("train vela --data data.jsonl", ""),
    "corrupt": ("corrupt data.jsonl --words all", "data.jsonl has no caption with an image (image cannot be read: 1"),
    "report": ("report unscored.jsonl -o o.html", "no row of unscored.jsonl has a score in 'reward'"),
    "caption": ("caption bad.png", "no image could be captioned; the first: image file"),
    "pairs": ("pairs unscored.jsonl --prompt x -o pairs.jsonl", "no row can be made of the 1 images"),
}


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"metrics", "serve"}))
def test_nothing_scored_is_an_error(command: str, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    line, message = NOTHING_SCORED[command]
    assert "error: " + message in run_line(run, line, 1)
    assert run("--help")[0].count("not one row could be read, scored or judged") == 1


@pytest.mark.parametrize(
    "line",
    [
        "score data.jsonl -m length -o {}/o.jsonl",
        "rerank data.jsonl -m length -o {}/o.jsonl",
        "report rated.jsonl --by good -o {}/o.html",
        "bench -b ratings=rated.jsonl -m length -o {}/report",
        "caption good.png -m length --model embedded -o {}/o.jsonl",
        "arena one.json two.json --judge http://127.0.0.1:9/v1#nobody -o {}/o.json",
        "train vela -o {}/trained",
        "corrupt good.jsonl --words all -o {}/o.parquet",
        "corrupt good.jsonl --benchmark --judge http://127.0.0.1:9/v1#x -o {}/made",
        "demo -o {}/demo",
    ],
)
@pytest.mark.parametrize("address", ["https://a.org", "s3://bucket", "file:///tmp"])
def test_no_folder_is_named_after_an_address(line: str, address: str, run: Run, folder: Path) -> None:
    before = sorted(folder.iterdir())
    message = run(*line.format(address).split(), code=1)[1]
    assert "is an address; nothing is sent there. Give a path on this disk" in message
    assert sorted(folder.iterdir()) == before
