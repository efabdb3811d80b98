"""The wheel holds all that the package needs, and works without the clone."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import trl

import reward
from tests.wheel import PACKAGES, ROOT, build_wheel

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """What pip would put into site-packages, in a path with a blank."""
    folder = tmp_path_factory.mktemp("site packages")
    with zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("wheel"))) as wheel:
        wheel.extractall(folder)
    return folder


def files(root):
    paths = (path for package in PACKAGES for path in (root / package).rglob("*"))
    return {path.relative_to(root).as_posix() for path in paths if path.is_file() and path.suffix != ".pyc"}


def test_every_file_of_the_packages_is_in_the_wheel_and_nothing_else(unpacked):
    assert files(unpacked) == files(ROOT)
    assert {path.name for path in unpacked.iterdir()} == {*PACKAGES, f"capreward-{reward.__version__}.dist-info"}


def test_the_citation_names_the_version():
    assert f"\nversion: {reward.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


COMMAND = (  # as the script that pip makes of the wheel's entry point
    "import sys; from importlib.metadata import entry_points\n"
    "(point,) = {point for point in entry_points(group='console_scripts') if point.name == 'capreward'}\n"
    "sys.argv = ['capreward', 'demo', '--help']; point.load()()"
)
SCRIPTS = str(Path(trl.__file__).parent / "scripts")  # has a reward.py; comes first on the path in `trl grpo`
NAMES = "from capreward import VelaReward, __version__; import capreward; print(capreward.load_scorer, __version__)"


@pytest.mark.parametrize(
    ("file", "code", "message"),
    [
        (None, COMMAND, "--quick"),
        (None, NAMES, "function load_scorer"),
        (None, f"import sys; sys.path.insert(0, {SCRIPTS!r}); {NAMES}", "function load_scorer"),
        ("reward.py", NAMES, "'reward' of capreward is hidden by "),
        ("reward/__init__.py", "import integrations.trl", "'reward' of capreward is hidden by "),
        ("reward.py", "import runpy; runpy.run_module('capreward', run_name='__main__')", "hidden by "),
        ("integrations/__init__.py", "from reward import VelaReward", "'integrations' of capreward is hidden by "),
    ],
)
def test_it_runs_from_the_wheel_and_names_a_file_of_the_user_that_hides_ours(unpacked, tmp_path, file, code, message):
    (tmp_path / "train.py").write_text(code)
    if file is not None:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("raise SystemExit('it was run')")
        message += str(tmp_path / file)
    command, environment = [sys.executable, tmp_path / "train.py"], {**os.environ, "PYTHONPATH": str(unpacked)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert message in done.stdout + done.stderr
    assert (done.returncode == 0) == (file is None or file.startswith("integrations"))
