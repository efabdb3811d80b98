"""python -m tests.benchmarks.gpu"""

from __future__ import annotations

import sys

from tests.benchmarks.gpu.command import main

if __name__ == "__main__":  # processes for devices import this file, too
    sys.exit(main())
