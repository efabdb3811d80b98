"""`python -m capreward`, which is the command `capreward`."""

from __future__ import annotations

from reward.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
