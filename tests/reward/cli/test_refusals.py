"""What a command cannot do, it says in one line; exit code 1 is for data and 2 for options, and nothing is written."""

import pytest

from reward.cli.app import COMMANDS

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


def run_line(run, line, code):
    rest = "" if " -o " in line else REST.get(line.split()[0], "")
    return run(*f"{line} {rest}".split(), code=code)[1]


WRONG_LINES = {  # {line: message}; exit code 2
    "metrics --size": "it needs the name of a metric",
    "metrics vela length": "several metrics go with --size",
    "score data.jsonl": "--metric: is missing: which metric scores?",
    "score data.jsonl length": "unexpected extra argument(s) (length). Write -m length",
    "score data.jsonl -m vela --source runs/a": "No such option: --source. Write --metric NAME=CHECKPOINT",
    "score data.jsonl -m bertscore=x --layer 5": "for an option of the metric write --set layer=VALUE",
    "score data.jsonl -m length --gpu 0": "No such option: --gpu. Write --device cuda:0",
    "score data.jsonl -m length --text-column x": "Write --caption-column NAME",
    "score data.jsonl -m length --refs r.json": "Write --annotations FILE, or --references-column NAME of the data",
    "score data.jsonl -m length --threshold .5": "Write --min-reward NUMBER",
    "score data.jsonl -m length --workers 2": "processes on this machine are --devices cpu,cpu",
    "rerank data.jsonl -m length --references r": "No such option: --references. Nearest: --references-column",
    "score data.jsonl -m length --images d": "Write --image-root FOLDER",
    "score data.jsonl rated.jsonl -m length": "quote a pattern, so that the shell leaves it as it is: '*.jsonl'",
    "serve --api-key x": "Write CAPREWARD_TOKEN=TOKEN before the command",
    "serve --max-pixel 9": "Nearest: --max-pixels",
    "report x --ranking x": "No such option: --ranking. There are --overwrite, --quiet, --output, --by,",
    "score data.jsonl -m length --num-workers 2": "Write --devices cpu,cpu",
    "score data.jsonl -m length --devices 2": "devices=2 may be a number of devices or of one: write cuda:2",
    "score data.jsonl -m length --devices cpu,gpu": "device 'gpu' cannot be used: ",
    "score data.jsonl -m vela --cache-size 1GB": "is for a cache: give --cache, too",
    "score data.jsonl -m length --address auto": "--address: goes with --engine ray",
    "score data.jsonl -m length --engine dask": "no engine is named 'dask'; there are: ",
    "score data.jsonl -m length --engine ray --split test": "--split: is for data sets of `datasets`",
    "caption good.png -o o.jsonl": "Missing option '--model'. Folder or Hub id of a vision-language model, `embedded`",
    "pairs data.jsonl -m length -o p.parquet": "Write capreward score DATA -m METRIC -o SCORED first",
    "compare a.jsonl b.jsonl --latex": "Write --output FILE, in the form that its ending says",
    "generate photos": "Write capreward caption IMAGES --model MODEL",
    "caption good.png --model-set concurrency=2": "--model-set: is for a server: give --model its address",
    "bench -m length": "is missing; `capreward bench --list` shows",
    f"{FLICKR}=rated.jsonl -b scenes --images x": "goes with one --benchmark",
    f"{FLICKR} --data rated.jsonl": "No such option: --data. Write --benchmark NAME=PATH",
    "bench rated.jsonl -b scenes": "--benchmark: stands for RATINGS: give one of them",
    "bench -b scenes --rating-column anna": "is for RATINGS of your own",
    "bench -b scenes --limit 2 -s a=absent*.txt": "there is no file absent*.txt",
    "arena": "only --leaderboard NAME=FILE --ranking FILE needs no battles",
    "arena battles.json --judged battles.json --judged a/battles.json": "two files are named 'battles'",
    "arena battles.json --annotator battles.json": "is the file of the first annotator itself",
    "arena battles.json --leaderboard a=one.json": "--leaderboard: goes with --ranking",
    "arena battles.json --one-order": "--one-order: goes with --judge",
    "arena battles.json -o battles.json": "tables go to .html, .md, .tex or .csv",
    "compare data.jsonl": "compare takes two files or more, got 1",
    "compare data.jsonl old/data.jsonl": "two files are named 'data'; write NAME=old/data.jsonl",
    "compare a.jsonl b.jsonl --names A": "Write NAME=FILE for each file, without an option",
    "arena one.json two.json -j no/model": "--output: is missing: where are the verdicts to be kept?",
    f"arena one.json two.json {JUDGED} --judge-set extra_body=2,": "'extra_body=2,' is not JSON, as in extra_body=",
    "battle one.json two.json": "Write capreward arena --judge MODEL -o FILE",
    "metrcs": "Nearest: metrics",
    "rouge": "There are score, rerank, caption,",
    "evaluate rated.jsonl": "Write capreward score DATA -m METRIC (captions), or capreward bench RATINGS -m METRIC",
    "clean data.jsonl": "Write capreward score DATA -m METRIC --top 30% -o FILE",
    "dedup data.jsonl": "Write capreward score DATA -m METRIC --dedupe -o FILE",
    "benchmarks": "Write capreward bench --list",
    "grpo": "Write trl grpo --model_name_or_path MODEL --reward_funcs capreward.vela_reward",
    "agreement": "Write capreward bench RATINGS -m METRIC",
    "list": "Write capreward metrics",
    "train": "is missing: of the metrics beitscore, vela",
    "train vela --model x": "Write trl grpo --model_name_or_path MODEL",
    "train vela rated.jsonl": "Write --data rated.jsonl",
    "train vela --private": "--private: goes with --push-to ORG/NAME",
    "train vela --push-to a/b --seed 0 --seed 1": "one checkpoint: train the seeds without it, then run this",
    "corrupt good.jsonl --rewrite count": "--rewrite: goes with --judge",
    "corrupt good.jsonl --concurrency 4": "No such option: --concurrency. Write --judge-set NAME=VALUE",
}
WRONG_DATA = {  # {line: message}; exit code 1
    "score data.jsonl -m vela,length": "of several write -m vela -m length",
    "score data.jsonl -m bertscore -m vela --set layer=5": "the metrics: write --set bertscore.layer=5",
    "score data.jsonl -m bertscore --set layer": "--set 'layer' is not of the form NAME=VALUE, as in layer=5",
    "score data.jsonl -m json.dumps": "a function is written json:dumps",
    "score data.jsonl -m judge": "write judge=http://localhost:8000/v1#MODEL",
    "score data.jsonl -m judge=http://127.0.0.1:9/v1": "check the address, as in http://localhost:8000/v1#MODEL",
    "score data.jsonl -m judge:gpt-4o": "a checkpoint is written judge=http://localhost:8000/v1#gpt-4o",
    "score data.jsonl -m judge=a/b --set prompt=absent.yaml": "prompt file 'absent.yaml' cannot be read",
    "score data.jsonl -m bertscore": "write bertscore=CHECKPOINT with a BERT or RoBERTa, such as",
    "score data.jsonl -m vela=./no": "folder './no' does not exist",
    "score data.jsonl -m length --devices cpu,cpu --device cpu": "or devices= (--devices), not both",
    "score data.jsonl -m length --engine ray": "output o.jsonl must be a folder: Ray writes parts into it",
    "report rated.jsonl -o o.html": "name the scores with --by",
    "report data.jsonl --by candidate -o o.html": "row 1: column 'candidate' must hold scores, got",
    "caption absent": "error: there is no folder or file absent",
    "caption good.png --split test": "--split (split=) is for a data file, and good.png is none",
    "caption good.png --model embedded -n 4 -o o.jsonl": "go with a --metric (metric=), which chooses the caption",
    "caption good.png --temperature 0": "--temperature 0 writes the same caption n times: raise it, or",
    "caption good.png --model ./absent -m length -o o.jsonl": "captioner checkpoint folder './absent' does",
    "caption good.png --model ./empty -m length -o o.jsonl": "has no config.json; it holds no checkpoint-*",
    "caption good.png --model embedded -m unigram -o o.jsonl": "metric 'unigram' needs references: give",
    "caption good.png --model embedded -m length -m vela -o o.jsonl": "--weights length=0.5,vela=0.5",
    "bench prose.jsonl -m length --rating-column text": "holds texts, not a number: name the column of ratings with",
    f"{FLICKR}=absent.jsonl": "absent.jsonl does not exist. Flickr8k-Expert needs",
    f"{FLICKR}=rated.jsonl -m length -s some": "no score column 'some'; its score columns: good, bad",
    f"{FLICKR}=rated.jsonl -m length --against other": "no row is named 'other'; the rows: length",
    f"{FLICKR}=rated.jsonl -m length -o data.jsonl/report": "error: cannot write",
    f"{FLICKR}=rated.jsonl -m length -o notes.md": "notes.md is there already, and is no report of capreward",
    f"{FLICKR}=rated.jsonl -m length -o b.xlsx": "must end in .json, .md, .html, .tex, .csv, or be a folder",
    "arena empty": "error: folder empty holds no .json file of battles",
    "arena battles.json --judged a=battles.json": "battles.json has no verdict of a judge ('judge')",
    "arena battles.json --ranking caparena": "only 0 of the models are in the ranking of CapArena's",
    f"arena one.json {JUDGED} --auto battles.json": "battles.json must hold {image: ",
    "train my_metric --push-to a/b --seed 0 --seed 1": "no metric is named 'my_metric'",
    "train vela --preset huge": "vela has no preset 'huge'; known: authors-code, paper, paper-clip",
    "train beitscore --preset paper": "the scenes have no errors of the kind",
    "corrupt data.jsonl": "nothing to make: ask for words (--words), rewrites (--judge) or retrieval",
    "corrupt good.jsonl --words shout": "words: unknown shout; known: repeat_noun",
    "corrupt good.jsonl --judge x --rewrite shout": "rewrites: unknown shout; known: spatial",
    "corrupt foil=absent --words all": "absent holds no foilv1.0_train_2017.json",
    "metrics length --size": "metric 'length' has no network of its own",
}
DRAWS = ("report ", f"{FLICKR}=rated.jsonl -m length -o")


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [(line, 2, message) for line, message in WRONG_LINES.items()]
    + [(line, 1, message) for line, message in WRONG_DATA.items()],
)
def test_what_is_wrong_is_one_line(line, code, message, run, folder):
    if line.startswith(DRAWS):
        pytest.importorskip("matplotlib")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert message in run_line(run, line, code)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


NOTHING_SCORED = {  # {line whose data hold nothing to score: what it says}
    "score data.jsonl -m vela": "no caption could be scored",
    "rerank data.jsonl -m vela -o o.jsonl": "",
    "audit -m vela -d data.jsonl": "",
    "bench -b ratings=rated.jsonl -m vela": "nothing to evaluate for vela",
    "arena one.json two.json -o o.json -j http://127.0.0.1:9/v1#m": "no battle could be judged",
    "compare data.jsonl unscored.jsonl -m vela": "data and unscored cannot be compared by vela",
    "train vela --data data.jsonl": "",
    "corrupt data.jsonl --words all": "data.jsonl has no caption with an image (image cannot be read: 1",
    "report unscored.jsonl -o o.html": "no row of unscored.jsonl has a score in 'reward'",
    "caption bad.png": "no image could be captioned; the first: image file",
    "pairs unscored.jsonl --prompt x -o pairs.parquet": "no row can be made of the 1 images",
}


@pytest.mark.parametrize("line", NOTHING_SCORED)
def test_nothing_scored_is_an_error(line, run, folder, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    assert "error: " + NOTHING_SCORED[line] in run_line(run, line, 1)
    assert {line.split()[0] for line in NOTHING_SCORED} == set(COMMANDS) - {"metrics", "serve"}


@pytest.mark.parametrize(
    "line",
    [
        "score data.jsonl -m length -o s3://bucket/o.jsonl",
        "bench -b ratings=rated.jsonl -m length -o s3://bucket/report",
        "caption good.png -m length --model embedded -o s3://bucket/o.jsonl",
        "arena one.json two.json --judge http://127.0.0.1:9/v1#nobody -o https://a.org/o.json",
        "train vela -o s3://bucket/trained",
        "corrupt good.jsonl --words all -o s3://bucket/o.parquet",
        "demo -o s3://bucket/demo",
    ],
)
def test_no_folder_is_named_after_an_address(line, run, folder):
    before = sorted(folder.iterdir())
    assert "is an address; nothing is sent there. Give a path on this disk" in run(*line.split(), code=1)[1]
    assert sorted(folder.iterdir()) == before
