"""Disks on which an fsync takes a configured time: the disk emulator lies over the directories of a host's data."""

from __future__ import annotations

import mmap
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from containernet_env.base import clock, programs
from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.hosts.processes import is_readable
from containernet_env.model.findings import PAUSE_NS, fsync_late_ns

DEVICE = Path("/dev/fuse")
COUNTS = ("syncs", "syncs_late_ns", "stalled_syncs")
"""Fields of ``Consumption`` that the emulators count, in the order of their shared memory."""
_START_DEADLINE_S = 30.0
_END_DEADLINE_S = 5.0


def check(host: str, median_ns: int, fsync_ns: int | None) -> None:
    """Raise ``RunError`` where an fsync of a host took ``median_ns`` and not the configured time, if there is one."""
    if fsync_ns is not None and not 0 <= median_ns - fsync_ns <= fsync_late_ns(fsync_ns):
        took = f"an fsync takes {median_ns / 1e6:.3f} ms, and {fsync_ns / 1e6:g} ms are configured"
        raise RunError(f"{host}: {took}: the disk is slower, or the machine is busy")


def require() -> None:
    """Raise ``MissingRequirementError`` where nothing can lie over a directory."""
    if not DEVICE.exists():
        raise MissingRequirementError(
            f"fsync of a member needs FUSE, and there is no {DEVICE}",
            "Load the kernel's module fuse, or leave fsync out of the topology file.",
        )


class _Emulator:
    """One disk emulator over a directory of the container whose first process is ``pid``."""

    _WORD_BYTES = 8

    def __init__(self, pid: int, directory: str, fsync_ns: int, long_ns: int) -> None:
        self.pid = pid
        descriptor = os.memfd_create("fsyncs")
        try:
            os.truncate(descriptor, mmap.PAGESIZE)
            # Read without a system call, so no thread that reads them meets a descriptor that another one has closed.
            self._memory = mmap.mmap(descriptor, len(COUNTS) * self._WORD_BYTES, prot=mmap.PROT_READ)
            # A session of its own: the terminal's Ctrl-C is for the driver.
            self.process = subprocess.Popen(
                [
                    *(programs.path("disk-emulator"), "--pid", str(pid), "--sync", f"{fsync_ns}ns"),
                    *("--counts", str(descriptor), "--long", f"{long_ns}ns", directory),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[descriptor],
                start_new_session=True,
            )
        finally:
            os.close(descriptor)

    def first_line(self, deadline_s: float) -> str:
        """The first line of its output; empty if it ended, or took too long."""
        assert self.process.stdout is not None
        ready = is_readable(self.process.stdout.fileno(), max(0.0, deadline_s - clock.monotonic()))
        return self.process.stdout.readline().decode(errors="replace") if ready else ""

    def counts(self) -> tuple[int, ...]:
        """The values of ``COUNTS`` since it began."""
        places = range(0, len(COUNTS) * self._WORD_BYTES, self._WORD_BYTES)
        return tuple(int.from_bytes(self._memory[at : at + self._WORD_BYTES], "little") for at in places)


class Disks:
    """The disk emulators of a testbed, one for each directory; they end with their container or with this process."""

    def __init__(self) -> None:
        self._by_host: dict[str, list[_Emulator]] = {}

    def cover(self, host: str, pid: int, directories: Sequence[str], fsync_ns: int, long_ns: int = PAUSE_NS) -> None:
        """Let each fsync below ``directories`` of a host, whose first process is ``pid``, take ``fsync_ns``.

        Those that take longer by more than ``long_ns`` count as stalled. Call it at each start of its container, before
        files are open there. Raises ``RunError`` where that cannot be.
        """
        self._end(host)
        emulators = self._by_host[host] = []
        for directory in directories:
            emulators.append(_Emulator(pid, directory, fsync_ns, long_ns))
        deadline_s = clock.monotonic() + _START_DEADLINE_S
        for emulator in emulators:
            said = emulator.first_line(deadline_s)
            if said != "ready\n":
                raise RunError(f"{host}: no disk emulator: {said.strip() or 'no answer'}")

    def pids(self) -> list[int]:
        """The processes of all that were started and not ended by ``cover`` or ``close``. Thread-safe."""
        return [emulator.process.pid for emulators in [*self._by_host.values()] for emulator in emulators]

    def counts(self, pid: int) -> dict[str, int]:
        """``COUNTS`` of the container whose first process is ``pid``; nothing where no emulator lies over its data.

        Thread-safe.
        """
        found = [
            emulator.counts()
            for emulators in [*self._by_host.values()]
            for emulator in emulators
            if emulator.pid == pid
        ]
        return dict(zip(COUNTS, map(sum, zip(*found, strict=True)), strict=False))

    def failure(self) -> str | None:
        """Which of them ended while its container was up, and how; ``None`` if none did."""
        for host, emulators in self._by_host.items():
            for process in (emulator.process for emulator in emulators):
                if status := process.poll():  # 0: its container has ended
                    assert process.stdout is not None
                    said = process.stdout.read().decode(errors="replace")
                    return f"the disk emulator of {host} ended: {programs.ending(status, said)}"
        return None

    def close(self) -> None:
        """End all of them. Idempotent."""
        for host in [*self._by_host]:
            self._end(host)

    def _end(self, host: str) -> None:
        processes = [emulator.process for emulator in self._by_host.pop(host, [])]
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
