"""Run as ``.venv/bin/python bench/compare``, from anywhere; it needs no root and about three minutes of one core."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    if not __package__:
        # Run as a directory, which Python then puts first: its modules are bench.compare's, never top-level ones.
        sys.path[0] = str(Path(__file__).resolve().parents[2])
    from bench.compare.cli import main

    sys.exit(main())
