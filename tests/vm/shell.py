"""Boots the machine of the ring for one command, or for a shell in this terminal.

    sudo .venv/bin/python -m tests.vm.shell 'tc qdisc show; containernet-env run --help'
    sudo .venv/bin/python -m tests.vm.shell          (leave with `exit`)

The project is in /job as it stands here. Results are what the command leaves in /job/out.
"""

from __future__ import annotations

import sys

from tests.vm.machine import Step, fresh_folder, missing, run
from tests.vm.steps import SERVICES

LIMIT_S = 3600.0


def main() -> int:
    """The command's exit status."""
    if (reason := missing()) is not None:
        print(f"no machine can be run here: {reason}", file=sys.stderr)
        return 3
    command = " ".join(sys.argv[1:])
    name = "command" if command else "shell"
    shell = Step(name, command or "exec setsid -c bash -i </dev/ttyS0 >/dev/ttyS0 2>&1", LIMIT_S, told=bool(command))
    steps = [*SERVICES, shell]
    outcome = run(steps, fresh_folder(), LIMIT_S, interactive=not command)
    if command:
        print(outcome.log(name, 10**6))
    for step, status in outcome.statuses.items():
        print(f"{step}: status {status}, {outcome.seconds[step]} s", file=sys.stderr)
    if not outcome.finished:
        print(outcome.console[-3000:], file=sys.stderr)
    print(f"{outcome.wall_s:.0f} s; results are in {outcome.results}", file=sys.stderr)
    return outcome.statuses.get(name, 1)


if __name__ == "__main__":
    raise SystemExit(main())
