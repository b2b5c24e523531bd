"""Where the command begins: before anything is imported that takes time, Ctrl-C ends the process without a word.

This stands outside of ``cli``, whose own import takes such time.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Import and run the command line; until that has taken over, a SIGINT kills as it does any small program."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from containernet_env import cli
    from containernet_env.cli.terminal import hear_ctrl_c

    try:
        hear_ctrl_c()
        cli.main()
    except KeyboardInterrupt:  # before or after what the command line tells of
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
