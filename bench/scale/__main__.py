"""Run as ``.venv/bin/python bench/scale``, from anywhere; it needs no root and a few minutes of one core."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    if not __package__:
        # Run as a directory, which Python then puts first: its modules are bench.scale's, never top-level ones.
        sys.path[0] = str(Path(__file__).resolve().parents[2])
    from bench.scale.cli import main

    sys.exit(main())
