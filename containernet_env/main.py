#!/usr/bin/env python3
"""Open the topology of a configuration file: ``sudo python3 containernet_env/main.py -c CONFIG``.

The same as ``containernet-env shell CONFIG``. Whatever Python this is started with, the work is done by
the clone's own virtual environment; an installed copy is part of one.
"""

from __future__ import annotations

import argparse
import os
import sys

PROJECT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COMMANDS = (
    os.path.join(PROJECT, ".venv", "bin", "containernet-env"),
    os.path.join(os.path.dirname(os.path.abspath(sys.executable)), "containernet-env"),
)


def main() -> None:
    """Parse the one option and become ``containernet-env shell``; exit 3 where set-up has not been done."""
    parser = argparse.ArgumentParser(description="Bring a topology up and open the Containernet command line.")
    parser.add_argument("-c", "--config", required=True, metavar="CONFIG", help="topology file (JSON)")
    arguments = parser.parse_args()
    for command in COMMANDS:
        if os.access(command, os.X_OK):
            os.execv(command, [command, "shell", arguments.config])
    print(
        f"Error: {COMMANDS[0]} is missing.\n  Run this first, as root: {os.path.join(PROJECT, 'build.sh')}",
        file=sys.stderr,
    )
    sys.exit(3)


if __name__ == "__main__":
    main()
