"""The wheel holds all that the package needs, and works without the clone."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import reward
from tests.wheel import PACKAGES, ROOT, build_wheel

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pip would put into site-packages, in a path with a blank."""
    folder = tmp_path_factory.mktemp("site packages")
    with zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("wheel"))) as wheel:
        wheel.extractall(folder)
    return folder


def run(code: str, unpacked: Path, folder: Path) -> str:
    """What Python prints that finds the unpacked wheel before every other installation of the package."""
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files(root: Path) -> set[str]:
    paths = (path for package in PACKAGES for path in (root / package).rglob("*"))
    return {path.relative_to(root).as_posix() for path in paths if path.is_file() and path.suffix != ".pyc"}


def test_every_file_of_the_packages_is_in_the_wheel(unpacked: Path) -> None:
    assert files(unpacked) == files(ROOT)


def test_the_citation_names_the_version() -> None:
    assert f"\nversion: {reward.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_nothing_else_is_in_the_wheel(unpacked: Path) -> None:
    assert {path.name for path in unpacked.iterdir()} == {*PACKAGES, f"capreward-{reward.__version__}.dist-info"}


def test_the_command_runs_from_the_wheel(unpacked: Path, tmp_path: Path) -> None:
    # The script that pip makes of the wheel's entry point does the same.
    code = (
        "import sys; from importlib.metadata import entry_points\n"
        "(point,) = {point for point in entry_points(group='console_scripts') if point.name == 'capreward'}\n"
        "sys.argv = ['capreward', 'demo', '--help']; point.load()()"
    )
    assert "--quick" in run(code, unpacked, tmp_path)


def test_the_demo_loads_its_models_from_the_wheel(unpacked: Path, tmp_path: Path) -> None:
    code = (
        "import integrations.demo.run, reward; from integrations.trl import load_policy\n"
        "load_policy('embedded')\n"
        "reward.load_scorer('vela', device='cpu'); reward.load_scorer('beitscore', device='cpu')\n"
        "print(integrations.__file__, reward.__file__)"
    )
    assert run(code, unpacked, tmp_path).count(str(unpacked)) == 2


NAMES = "from capreward import VelaReward, __version__; import capreward; print(capreward.load_scorer, __version__)"


@pytest.mark.parametrize(
    ("file", "code", "message"),
    [
        (None, NAMES, "function load_scorer"),
        ("reward.py", NAMES, "'reward' of capreward is hidden by "),
        ("reward/__init__.py", "import integrations.trl", "'reward' of capreward is hidden by "),
        ("reward.py", "import runpy; runpy.run_module('capreward', run_name='__main__')", "hidden by "),
        ("integrations/__init__.py", "from reward import VelaReward", "'integrations' of capreward is hidden by "),
    ],
)
def test_a_file_of_the_user_that_hides_ours_is_named(
    unpacked: Path, tmp_path: Path, file: str | None, code: str, message: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(code)
    if file is not None:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("raise SystemExit('it was run')")
        message += str(tmp_path / file)
    done = subprocess.run(
        [sys.executable, script], env={**os.environ, "PYTHONPATH": str(unpacked)}, capture_output=True, text=True
    )
    assert message in done.stdout + done.stderr
    assert (done.returncode == 0) == (file is None or file.startswith("integrations"))
