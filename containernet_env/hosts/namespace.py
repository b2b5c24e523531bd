"""A network namespace that lives as long as a small process of ours, and never longer than the driver."""

from __future__ import annotations

import os
import subprocess
from types import TracebackType

from containernet_env.base import clock, system_path
from containernet_env.base.errors import RunError

_DEADLINE_S = 5.0


class ThrowawayNamespace:
    """A fresh network namespace held by one process; nothing is mounted, so nothing can be left behind.

    The process waits for the end of its standard input, which comes when this one closes it or dies.
    """

    def __init__(self) -> None:
        # A session of its own: the terminal's Ctrl-C must not take the switches away before the hosts.
        self._process = subprocess.Popen(
            [system_path.require("unshare"), "--net", system_path.require("cat")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self._process.pid
        deadline = clock.monotonic() + _DEADLINE_S
        ours = os.stat("/proc/self/ns/net").st_ino
        try:
            while os.stat(f"/proc/{self.pid}/ns/net").st_ino == ours:
                if self._process.poll() is not None or clock.monotonic() > deadline:
                    raise RunError(f"no network namespace could be made (status {self._process.poll()})")
                clock.sleep(0.001)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise RunError(f"no network namespace could be made: {error}") from error
            raise

    def close(self) -> None:
        """Let the namespace go, with every interface in it. Idempotent."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> ThrowawayNamespace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
