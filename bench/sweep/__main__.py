"""Run as ``.venv/bin/python bench/sweep``, as root, from anywhere, on a machine where ./build.sh has been run."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    if not __package__:
        # Run as a directory, which Python then puts first: its modules are bench.sweep's, never top-level ones.
        sys.path[0] = str(Path(__file__).resolve().parents[2])
    from bench.sweep.cli import main

    sys.exit(main())
