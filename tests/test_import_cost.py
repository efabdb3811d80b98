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
import json, sys, time
heavy = set("torch torchvision transformers trl datasets open_clip peft accelerate pandas pyarrow scipy".split())
start, loaded = time.perf_counter(), {}
for line in sys.argv[1:]:
    exec(line)
    loaded[line] = sorted(set(sys.modules) & heavy)
print(json.dumps([time.perf_counter() - start, loaded]))
"""


def cost(*lines):
    """Seconds that lines take in a new process, and the heavy libraries that are loaded after each."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, *lines], check=True, capture_output=True, text=True)
    seconds, loaded = json.loads(done.stdout)
    return seconds, loaded


def test_no_heavy_library_is_loaded():
    assert cost(*LINES)[1] == {line: [] for line in LINES}


def test_import_reward_is_quick():
    # About 0.01 s on an idle machine; the promise is 0.5 s. The best of three, since other work may slow one.
    assert min(cost("import reward")[0] for _ in range(3)) < 0.5


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
    commands = {"app", "main", "options", "terminal", "score", "chosen", "engines", "summaries"}
    assert {name.split(".")[2] for name in loaded if name.startswith("reward.cli.")} == commands
    unused = ("reward.judges", "reward.metrics.function", "reward.scoring.devices", "reward.scoring.batch_scorer")
    assert [name for name in loaded if name in unused] == []
    assert len(loaded) < 90
