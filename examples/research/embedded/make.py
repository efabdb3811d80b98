"""Makes every embedded checkpoint: runs the steps in order and writes the folders of reward/assets.

All begin from nothing, but for the captioner, which takes the image tower of the VELA that ships.

    python -m examples.research.embedded.make --output runs/embedded
    python -m examples.research.embedded.make --output runs/embedded --only export

Each step goes on from its last save, so a stopped run is started again with the same command. `--steps 2` tries the
whole way out in half a minute.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Sequence
from pathlib import Path

from examples.research.embedded.export import EXPORTS, export

ASSETS = Path(__file__).parents[3] / "reward" / "assets"
STEPS = (
    *("tokenizer", "vision", "text", "align", "language", "vela", "captioner"),
    *("beit_vision", "beit_words", "beit_match", "beit_rate"),
)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the steps asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("runs/embedded"), help="states of the steps")
    parser.add_argument("--only", nargs="+", choices=[*STEPS, "export"], help="these steps instead of all")
    parser.add_argument("--steps", help="updates in every step, for a trial; default: each step's own number")
    parser.add_argument("--assets", type=Path, default=ASSETS, help="where checkpoints go; default: reward/assets")
    parser.add_argument(
        "--history", type=Path, help='JSON {"vela": markdown, "captioner": ..., "beitscore": ...} for the cards'
    )
    parser.add_argument(
        "--export", nargs="+", choices=[*EXPORTS], default=[*EXPORTS], help="which checkpoints to write"
    )
    options = parser.parse_args(argv)
    for name in options.only or [*STEPS, "export"]:
        if name == "export":
            history = json.loads(options.history.read_text()) if options.history else {}
            export(options.output, options.assets, options.export, history)
            continue
        steps = ["--steps", options.steps] if options.steps and name != "tokenizer" else []
        module = importlib.import_module(f"examples.research.embedded.{name}")
        module.main(["--output", str(options.output), *steps])


if __name__ == "__main__":
    main()
