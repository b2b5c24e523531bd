"""Where the command begins: before anything is imported that takes time, Ctrl-C ends the process without a word."""

from __future__ import annotations

import signal


def main() -> None:
    """Import and run the command line; until that has taken over, a SIGINT kills as it does any small program."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from containernet_env import cli
    from containernet_env.cli.signals import hear_ctrl_c

    hear_ctrl_c()
    cli.main()


if __name__ == "__main__":
    main()
