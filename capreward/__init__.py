"""The public names of `reward`, under the name that pip knows: `from capreward import VelaReward`."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reward import *  # noqa: F403


def _place_of_reward() -> str | None:
    found = find_spec("reward")  # a file of the user's is not run
    return None if found is None else found.origin


_place = _place_of_reward()
# `trl grpo` runs a script from a folder that has a reward.py, too, and comes first where modules are looked for.
if _place and Path(_place).parts[-3:] == ("trl", "scripts", "reward.py"):
    sys.path.remove(str(Path(_place).parent))
    _place = _place_of_reward()
if not _place or not Path(_place).samefile(Path(__file__).parents[1] / "reward" / "__init__.py"):
    raise ImportError(f"the package 'reward' of capreward is hidden by {_place}: rename that, such as to my_reward.py")

from reward import __all__, __dir__, __getattr__, __version__  # noqa: E402, F401
