"""Importing is cheap: heavy libraries load on use, never on `import reward`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LINES = [
    "import reward",
    "import reward.data.samples, reward.aspect_weights, reward.errors, reward.optional, reward.data.images",
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

sys.argv = ["capreward", *"score rows.jsonl -m length -o scores.jsonl --quiet".split()]
try:
    main()
finally:
    print(json.dumps([name for name in sys.modules if name.startswith("reward.")]))
"""


def test_a_command_loads_itself_and_its_metric_alone(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"caption": "a red star"}\n')
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", COMMAND], cwd=tmp_path, env=environment, check=True, capture_output=True
    )
    loaded = set(json.loads(done.stdout))
    commands = {"app", "main", "options", "terminal", "score", "summaries"}
    assert {name.split(".")[2] for name in loaded if name.startswith("reward.cli.")} == commands
    unused = ("reward.judges", "reward.metrics.function", "reward.scoring.devices", "reward.scoring.batch_scorer")
    assert [name for name in loaded if name in unused] == []
    assert len(loaded) < 90
