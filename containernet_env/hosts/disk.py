"""Disks on which an fsync takes a configured time: the disk emulator lies over the directories of a host's data."""

from __future__ import annotations

import selectors
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from containernet_env.base import clock, programs
from containernet_env.base.errors import MissingRequirementError, RunError

DEVICE = Path("/dev/fuse")
_START_DEADLINE_S = 30.0
_END_DEADLINE_S = 5.0
LATE_NS, LATE_PART = 500_000, 10
"""How much longer than configured an fsync may take, the larger of both: this, or this part of it."""


def check(host: str, median_ns: int, fsync_ns: int | None) -> None:
    """Raise ``RunError`` where an fsync of a host took ``median_ns`` and not the configured time, if there is one."""
    if fsync_ns is not None and not 0 <= median_ns - fsync_ns <= max(LATE_NS, fsync_ns // LATE_PART):
        took = f"an fsync takes {median_ns / 1e6:.3f} ms, and {fsync_ns / 1e6:g} ms are configured"
        raise RunError(f"{host}: {took}: the disk is slower, or the machine is busy")


def require() -> None:
    """Raise ``MissingRequirementError`` where nothing can lie over a directory."""
    if not DEVICE.exists():
        raise MissingRequirementError(
            f"fsync of a member needs FUSE, and there is no {DEVICE}",
            "Load the kernel's module fuse, or leave fsync out of the topology file.",
        )


class Disks:
    """The disk emulators of a testbed, one for each directory; they end with their container or with this process."""

    def __init__(self) -> None:
        self._by_host: dict[str, list[subprocess.Popen[str]]] = {}

    def cover(self, host: str, pid: int, directories: Sequence[str], fsync_ns: int) -> None:
        """Let each fsync below ``directories`` of a host, whose first process is ``pid``, take ``fsync_ns``.

        Once for each start of its container, before files are open there. Raises ``RunError`` where that cannot be.
        """
        self._end(host)
        binary = programs.path("disk-emulator")
        # A session of its own: the terminal's Ctrl-C is for the driver.
        self._by_host[host] = [
            subprocess.Popen(
                [binary, "--pid", str(pid), "--sync", f"{fsync_ns}ns", directory],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            for directory in directories
        ]
        deadline_s = clock.monotonic() + _START_DEADLINE_S
        for process in self._by_host[host]:
            said = _first_line(process, deadline_s)
            if said != "ready\n":
                raise RunError(f"{host}: no disk emulator: {said.strip() or 'no answer'}")

    def pids(self) -> list[int]:
        return [process.pid for processes in [*self._by_host.values()] for process in processes]

    def failure(self) -> str | None:
        """Which of them ended while its container was up, and how; ``None`` if none did."""
        for host, processes in self._by_host.items():
            for process in processes:
                if status := process.poll():  # 0: its container has ended
                    assert process.stdout is not None
                    return f"the disk emulator of {host} ended: {programs.ending(status, process.stdout.read())}"
        return None

    def close(self) -> None:
        """End all of them. Idempotent."""
        for host in [*self._by_host]:
            self._end(host)

    def _end(self, host: str) -> None:
        processes = self._by_host.pop(host, [])
        for process in processes:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
        for process in processes:
            try:
                process.wait(_END_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _first_line(process: subprocess.Popen[str], deadline_s: float) -> str:
    """The first line of its output; empty if it ended, or took too long."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        ready = clock.select(selector, max(0.0, deadline_s - clock.monotonic()))
    return process.stdout.readline() if ready else ""
