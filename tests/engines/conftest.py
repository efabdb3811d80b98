"""Skips the files of engines unless they are asked for, and makes what their tests share."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.environments import program

ROOT = Path(__file__).parents[2]
# Not read for doctests: what runs in an engine's environment imports what only that has.
collect_ignore_glob = ["[!_t]*.py"]


class _Left(pytest.Module):
    """A test file that is not even imported."""

    reason = ""

    def collect(self):
        pytest.skip(self.reason, allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    engine = module_path.stem.removeprefix("test_")
    if os.environ.get("CAPREWARD_TEST_ENGINES") and program(engine, "python") is not None:
        return None
    module = _Left.from_parent(parent, path=module_path)
    module.reason = f"real engines run on their own: make test-engines ENGINE={engine}"
    return module


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(900))  # an engine takes half a minute to start


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    from reward.scenes import render, sample_scene

    folder = tmp_path_factory.mktemp("photos")
    for number in range(12):
        render(sample_scene(random.Random(number))).save(folder / f"{number:02}.png")
    return folder


@pytest.fixture(scope="session")
def captioner():
    from reward.checkpoints.folders import resolve_checkpoint

    return resolve_checkpoint("embedded", model="captioner")


@pytest.fixture(scope="session")
def judge(tmp_path_factory):
    from tests.engines.judge_model import save_judge

    folder = tmp_path_factory.mktemp("judge")
    save_judge(folder)
    return folder


@pytest.fixture
def start(monkeypatch):
    """Starts `capreward` with some arguments in a process of its own."""

    def started(*arguments):
        command = [sys.executable, "-m", "reward.cli.main", *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    return started
