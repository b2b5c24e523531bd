#!/usr/bin/env python3
"""Open the topology of a configuration file: ``sudo python3 containernet_env/main.py -c CONFIG``.

The same as ``containernet-env shell CONFIG``. Whatever Python this is started with, the work is done by
the checkout's own virtual environment.
"""

from __future__ import annotations

import argparse
import os
import sys

PROJECT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COMMAND = os.path.join(PROJECT, ".venv", "bin", "containernet-env")


def main() -> None:
    """Parse the one option and become ``containernet-env shell``; exit 3 where set-up has not been done."""
    parser = argparse.ArgumentParser(description="Bring a topology up and open the Containernet command line.")
    parser.add_argument("-c", "--config", required=True, metavar="CONFIG", help="topology file (JSON)")
    arguments = parser.parse_args()
    if not os.access(COMMAND, os.X_OK):
        print(
            f"Error: {COMMAND} is missing.\n  Run this first, as root: {os.path.join(PROJECT, 'build.sh')}",
            file=sys.stderr,
        )
        sys.exit(3)
    os.execv(COMMAND, [COMMAND, "shell", arguments.config])


if __name__ == "__main__":
    main()
