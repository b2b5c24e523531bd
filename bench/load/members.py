"""Members of a store as plain processes on loopback, their data in one folder; ended by process id."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from containernet_env.base.errors import MissingRequirementError, RunError

_POLL_S = 0.05
_START_TIMEOUT_S = 40.0
_END_TIMEOUT_S = 10.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Members(ABC):
    """The members of one store, with all they have below ``folder``, up within the ``with`` block.

    They die with this process, however it ends. ``title`` is the store's name in errors.
    """

    def __init__(self, title: str, folder: Path) -> None:
        self.title = title
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    @abstractmethod
    def _commands(self) -> Iterator[Sequence[str | Path]]:
        """The argument list of each member."""

    @abstractmethod
    def _ready(self) -> bool:
        """Whether they serve clients; False where one does not listen yet."""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _start(self) -> None:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            raise MissingRequirementError("setpriv is not installed", "Install the package util-linux.")
        for i, argv in enumerate(self._commands()):
            with self._log(i).open("wb") as log:
                # A session of its own: the terminal's Ctrl-C is for the driver, which then ends the members.
                process = subprocess.Popen(
                    [setpriv, "--pdeathsig", "KILL", *argv],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self._processes.append(process)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._ready():
            self.check()
            if time.monotonic() > deadline:
                count = len(self._processes)
                raise RunError(f"{count} members of {self.title} were not ready in {_START_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_S)

    def check(self) -> None:
        """Raise RunError, with its last words, if a member has ended."""
        for i, process in enumerate(self._processes):
            if process.poll() is not None:
                words = self._log(i).read_text(encoding="utf-8", errors="replace")[-500:]
                raise RunError(f"member m{i} of {self.title} ended with status {process.returncode}: {words}")

    def cpu_s(self) -> float:
        """CPU time that all members have used so far, seconds, in steps of the kernel's tick (10 ms)."""
        ticks = 0
        for process in self._processes:
            try:
                fields = Path("/proc", str(process.pid), "stat").read_text(encoding="ascii").rpartition(")")[2].split()
            except OSError as error:
                raise RunError(f"a member of {self.title} has ended: {error}") from error
            ticks += int(fields[11]) + int(fields[12])
        return ticks / _TICKS_PER_S

    def _log(self, i: int) -> Path:
        return self.folder / f"m{i}.log"

    def _end(self) -> None:
        for process in self._processes:
            process.kill()  # nothing of their data is needed any more
        for process in self._processes:
            process.wait(_END_TIMEOUT_S)
        self._processes.clear()


def free_ports(count: int) -> list[int]:
    """So many different TCP ports of loopback on which nothing listens now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
