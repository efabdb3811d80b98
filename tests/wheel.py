"""The wheel of this package, built without network from a copy of the sources: `python -m tests.wheel FOLDER`."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("capreward", "reward", "integrations")
BUILD = "import sys, hatchling.build; print(hatchling.build.build_wheel(sys.argv[1]))"


def build_wheel(folder):
    """Builds the wheel into a folder with the hatchling of this environment; the clone stays as it is."""
    with tempfile.TemporaryDirectory(prefix="capreward-wheel-") as copy:
        for name in (".gitignore", "pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, copy)
        for name in PACKAGES:
            shutil.copytree(ROOT / name, Path(copy) / name, ignore=shutil.ignore_patterns("__pycache__"))
        command = [sys.executable, "-c", BUILD, str(folder)]
        built = subprocess.run(command, cwd=copy, check=True, capture_output=True, text=True)
    return folder / built.stdout.split()[-1]


if __name__ == "__main__":
    print(build_wheel(Path(sys.argv[1])))
