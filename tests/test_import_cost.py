"""Importing is cheap: heavy libraries load on use, never on `import reward`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

HEAVY = (
    "torch",
    "torchvision",
    "transformers",
    "trl",
    "datasets",
    "open_clip",
    "peft",
    "accelerate",
    "pandas",
    "pyarrow",
    "scipy",
)
MEASURE = """
import json, sys, time
start = time.perf_counter()
{code}
seconds = time.perf_counter() - start
print(json.dumps([seconds, sorted(set(sys.modules) & set({heavy!r}))]))
"""


def cost(code: str) -> tuple[float, list[str]]:
    """Seconds that the code takes in a new process, and the heavy libraries that it loads."""
    script = MEASURE.format(code=code, heavy=HEAVY)
    output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    seconds, loaded = json.loads(output)
    return seconds, loaded


@pytest.mark.parametrize(
    "code",
    [
        "import reward",
        "import reward.samples, reward.aspect_weights, reward.errors, reward.optional, reward.images",
        "import reward; reward.list_metrics(); reward.CaptionSample; reward.ScoreTable",
        "import reward; reward.load_scorer('length').score([reward.CaptionSample('a red star')])",
        "import reward.cli.main",
        "import reward.remote.scorer as remote; remote.RemoteScorer('http://127.0.0.1:9', 'vela').spec",
        "import reward.metrics.beitscore",
        "from reward import *; VelaReward('name/repo', {'desc': 1}); CombinedReward([BeitScoreReward()])",
        "import integrations",
    ],
)
def test_no_heavy_library_is_loaded(code: str) -> None:
    assert cost(code)[1] == []


def test_import_reward_is_quick() -> None:
    # About 0.01 s on an idle machine; the promise is 0.5 s. The best of five, since other work may slow one.
    assert min(cost("import reward")[0] for _ in range(5)) < 0.5


def test_beitscore_scores_without_the_compiler_of_pytorch() -> None:
    # Loading it would take a second, a quarter of the time until the first score.
    cost(
        "from PIL import Image; from reward import CaptionSample, load_scorer; "
        "load_scorer('beitscore', device='cpu').score([CaptionSample('a red star', Image.new('RGB', (8, 8)))]); "
        "assert 'torch._dynamo' not in sys.modules"
    )
