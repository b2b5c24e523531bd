"""Run as ``.venv/bin/python bench/links``, as root, from anywhere."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    if not __package__:
        # Run as a directory, which Python puts first on its path; its modules belong to bench.links.
        sys.path[0] = str(Path(__file__).resolve().parents[2])
    from bench.links.cli import main

    sys.exit(main())
