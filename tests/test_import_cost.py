"""Heavy libraries load on use: never on `import reward`, and never for a command that does not need them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.toys.json_lines import write_lines
from tests.toys.toy_clips import small_clip

pytestmark = pytest.mark.slow

LINES = [
    "import reward",
    "import reward; reward.list_metrics(); reward.CaptionSample; reward.ScoreTable",
    "import reward; reward.load_scorer('length').score([reward.CaptionSample('a red star')])",
    "import reward.cli.main",
    "import reward.remote.scorer as remote; remote.RemoteScorer('http://127.0.0.1:9', 'vela').spec",
    "import reward.metrics.beitscore",
    "from reward import *; VelaReward('name/repo', {'desc': 1}); CombinedReward([BeitScoreReward()])",
    "import integrations, integrations.demo.command",
]
SCRIPT = """
import json, sys
heavy = set("torch torchvision transformers trl datasets open_clip peft accelerate pandas pyarrow scipy".split())
loaded = {}
for line in sys.argv[1:]:
    exec(line)
    loaded[line] = sorted(set(sys.modules) & heavy)
print(json.dumps(loaded))
"""


def test_no_heavy_library_is_loaded():
    done = subprocess.run([sys.executable, "-c", SCRIPT, *LINES], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == {line: [] for line in LINES}


COMMAND = """
import json, sys
from reward.cli.main import main

sys.argv = ["capreward", *sys.argv[1:]]
try:
    main()
finally:
    print(json.dumps([*sys.modules]))
"""
TABLES = {"pandas", "pyarrow"}  # each imports the other, some versions of pandas always
TRANSFORMERS = {"torch", "torchvision", "transformers", "accelerate", "scipy"}  # which loads the others
HEAVY = {*TABLES, *TRANSFORMERS, "open_clip", "datasets", "ray", "openai", "trl", "peft", "matplotlib"}
# {command: the heavy packages that it may load}
LOADED = {
    "--help": set(),
    "caption --help": set(),
    "metrics": set(),
    "metrics clipscore=clip --check": set(),
    "score rows.jsonl -m length -o length.jsonl": set(),
    "score rows.jsonl -m length -o scores.parquet": TABLES,
    "score rows.jsonl -m clipscore=clip -o clip.jsonl": {*TRANSFORMERS, *TABLES, "open_clip"},
    "rerank lists.jsonl -m length -o ranked.jsonl": set(),
    "pairs scored.jsonl --prompt x -o pairs.parquet": {*TABLES, "datasets"},
    "corrupt rows.jsonl --words all -o wrong.parquet": TABLES,
    "bench --list": set(),
    "bench rated.jsonl -m length --resamples 9": {*TABLES, "scipy"},
    "compare rows.jsonl again.jsonl -m length": TABLES,
    "audit -m length -n 2": TABLES,
    "caption picture.png --model embedded --max-tokens 2 -o captions.jsonl": {*TRANSFORMERS, *TABLES},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands")
    Image.new("RGB", (32, 32)).save(folder / "picture.png")
    row = {"image": "picture.png", "caption": "a red star", "references": ["a red star"]}
    other = {**row, "image": "other.png", "caption": "a blue ring on grass"}
    write_lines(folder / "rows.jsonl", [row, other])
    write_lines(folder / "again.jsonl", [{**row, "caption": "a star"}, other])
    write_lines(folder / "lists.jsonl", [{"candidates": ["a star", "a red star"]}])
    write_lines(folder / "scored.jsonl", [{"image": "picture.png", "candidates": ["a", "b"], "rewards": [1, 2]}])
    write_lines(folder / "rated.jsonl", [{"caption": "a star" * n, "rating": n} for n in range(1, 5)])
    small_clip(folder / "clip")
    return folder


def modules_of(line, folder):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", COMMAND, *line.split()]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("line", LOADED)
def test_a_command_loads_no_heavy_package_that_it_does_not_use(line, folder):
    assert set(modules_of(line, folder)) & HEAVY <= LOADED[line]


def test_a_command_loads_itself_and_its_metric_alone(folder):
    names = modules_of("score rows.jsonl -m length -o scores.jsonl --quiet", folder)
    loaded = {name for name in names if name.startswith("reward.")}
    commands = {"app", "main", "options", "terminal", "score"}
    assert {name.split(".")[2] for name in loaded if name.startswith("reward.cli.")} == commands
    unused = ("reward.judges", "reward.metrics.function", "reward.scoring.devices", "reward.scoring.batch_scorer")
    assert [name for name in loaded if name in unused] == []
    assert len(loaded) < 90
