"""Run one program, and end it when its caller closes a pipe, or ends for any reason.

Started as a program of its own (``python -I -S guard.py LIFE_FD SIGNUM LEADER_ONLY GRACE_S PROGRAM ARGUMENT...``), as
the leader of a session, never imported. LIFE_FD is the pipe's side to read. At its end the program gets SIGNUM, with
LEADER_ONLY 0 its whole group does, and after GRACE_S seconds SIGKILL. Else this ends as the program does.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys


def main(life: int, signum: int, leader_only: bool, grace_s: float, argv: list[str]) -> int:
    """Returns the program's exit status; ends by the signal that ended it."""
    os.set_inheritable(life, False)
    # Every process of a group gets the signals of the group itself.
    for passed in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(passed, lambda number, frame: None)
    try:
        program = subprocess.Popen(argv)
    except OSError as error:
        print(f"{argv[0]} cannot be started: {error.strerror}", file=sys.stderr)
        return 127
    ended = os.pidfd_open(program.pid)
    poll = select.poll()  # select takes no descriptor above 1023
    poll.register(ended, select.POLLIN)
    poll.register(life, select.POLLIN)
    if ended not in (descriptor for descriptor, _ in poll.poll()):
        program.send_signal(signum) if leader_only else os.killpg(0, signum)
        poll.unregister(life)
        poll.poll(grace_s * 1000)
        # Includes remaining processes of the program's group, and this process.
        os.killpg(0, signal.SIGKILL)
    status = program.wait()
    if status >= 0:
        return status
    if -status not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
    return 128 - status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1", float(sys.argv[4]), sys.argv[5:]))
