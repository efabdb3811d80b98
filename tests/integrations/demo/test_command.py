"""`capreward demo`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import reward

ASSETS = Path(reward.__file__).parent / "assets"


def capreward(*arguments, cwd):
    environment = {**os.environ, "COLUMNS": "100"}
    command = [sys.executable, "-m", "reward.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)


def test_the_command_is_found_and_helps_without_heavy_imports(tmp_path):
    code = (
        "import sys; sys.argv = ['capreward', 'demo', '--help']\n"
        "from reward.cli.main import main\n"
        "try: main()\nfinally: print(sorted({'torch', 'transformers', 'trl'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert "--quick" in done.stdout
    assert done.stdout.rstrip().endswith("[]")


def test_quick_demo_with_the_embedded_models(tmp_path):
    done = capreward("demo", "--quick", "--output", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "report: out/report.html" in done.stdout
    assert "Warning" not in done.stderr
    figures = json.loads((tmp_path / "out" / "figures.json").read_text())
    assert (figures["vela"], figures["beitscore"]) == ("embedded", "embedded")
    assert figures["grpo"]["differences"]
