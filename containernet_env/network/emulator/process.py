"""The process of the project's own link emulator, which has a TAP in each host's namespace."""

from __future__ import annotations

import os
import socket
import subprocess
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from containernet_env.base import assets, clock, programs
from containernet_env.base.endings import ending, last_words
from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.network.emulator.control import Answer, ControlClient
from containernet_env.network.link import EventHandler

_START_DEADLINE_S = 10.0
_END_DEADLINE_S = 5.0
# It prints a line where something is wrong; never one for each frame.
_LOG_LINES = 1000


def default_binary() -> Path:
    """The emulator that the set-up has built. Raises ``MissingRequirementError`` where it has not."""
    return programs.path("link-emulator")


def granted(core: int | None = None) -> dict[str, Any]:
    """What an emulator says of itself at its start, now and on this machine: one is started, asked and ended.

    Raises as ``LinkEmulator.start``.
    """
    emulator = LinkEmulator(None, lambda kind, text: None, core)
    try:
        emulator.start()
        return emulator.hello
    finally:
        emulator.stop()


class LinkEmulator:
    """The emulator's process. It ends with its control connection, so it never outlives this process.

    ``on_event`` hears of ports whose host has ended, and of the emulator's own unexpected end. ``hello`` holds
    what the emulator said of itself (version, realtime, pid). ``core`` is the only core of its data thread.
    """

    def __init__(self, binary: Path | str | None, on_event: EventHandler, core: int | None = None) -> None:
        self._binary = Path(binary) if binary is not None else None
        self._core = core
        self._on_event = on_event
        self._process: subprocess.Popen[bytes] | None = None
        self._client: ControlClient | None = None
        self._said: deque[str] = deque(maxlen=_LOG_LINES)
        self._listener: clock.Thread | None = None
        self._stopping = False
        self._lock = clock.Lock()
        self.hello: dict[str, Any] = {}

    @property
    def pid(self) -> int | None:
        """The process, while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start the process unless it runs already. Raises ``MissingRequirementError`` where it is not built."""
        with self._lock:
            if self._client is not None:
                return
            binary = self._binary or default_binary()
            if not os.access(binary, os.X_OK):
                raise MissingRequirementError(f"the link emulator is missing: {binary}", assets.set_up_hint())
            ours, theirs = socket.socketpair()
            try:
                # A session of its own: the terminal's Ctrl-C is for the driver. Its life hangs on the socket and
                # not on a parent's death signal, which the kernel sends when the THREAD that forked ends.
                self._process = subprocess.Popen(
                    [str(binary), "serve", "--control-fd", str(theirs.fileno()), *self._core_arguments()],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise RunError(f"the link emulator cannot be started: {error}") from error
            finally:
                theirs.close()
            self._listener = clock.Thread(
                target=self._listen, args=(self._process,), name="link-emulator-log", daemon=True
            )
            self._listener.start()
            self._client = ControlClient(ours, self._event, self._lost)
        try:
            self.hello = self.call("hello", deadline_s=_START_DEADLINE_S)
        except RunError as error:
            said = self._ending() if self._client.lost else f"{error}: {last_words(self.log)}".removesuffix(": ")
            raise RunError(said) from error
        if self._core is not None and self.hello.get("core") != self._core:
            raise RunError(f"the link emulator keeps to core {self.hello.get('core')}, not {self._core}")

    def _core_arguments(self) -> tuple[str, ...]:
        return () if self._core is None else ("--core", str(self._core))

    def call(self, op: str, deadline_s: float = 5.0, **fields: Any) -> dict[str, Any]:
        """One request (see ``ControlClient.call``)."""
        return self.ask(op, deadline_s, **fields).result

    def ask(self, op: str, deadline_s: float = 5.0, **fields: Any) -> Answer:
        """One request and when it took effect (see ``ControlClient.ask``)."""
        if self._client is None:
            raise RunError(f"link emulator: {op}: it has not been started")
        return self._client.ask(op, deadline_s, **fields)

    def answers(self, timeout_s: float) -> bool:
        """Whether it answers within so long, its data thread too; also true of one that has not been started."""
        if not self.hello:
            return True
        try:
            self.call("hello", timeout_s)
        except RunError:
            return False
        return True

    def stop(self) -> None:
        """End the process: its interfaces vanish with it. Idempotent."""
        self._stopping = True
        if self._client is not None:
            self._client.close()
        if self._process is None:
            return
        try:
            self._process.wait(_END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_DEADLINE_S)

    @property
    def log(self) -> str:
        """What it printed, the last lines of it."""
        return "".join(f"{line}\n" for line in list(self._said))

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                self._said.append(line.decode(errors="replace").rstrip())

    def _event(self, message: dict[str, Any]) -> None:
        if self._stopping:
            return  # hosts end in a tear-down: no news
        kind = str(message.get("event", "unknown"))
        about = message.get("port") or message.get("link") or ""
        self._on_event(kind, f"{about}: {message.get('reason', kind)}" if about else str(message))

    def _lost(self) -> None:
        if self._stopping or self._process is None:
            return
        self._on_event("emulator_died", self._ending())

    def _ending(self) -> str:
        """How it ended once its connection was lost, with what it said of that."""
        assert self._process is not None
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_DEADLINE_S)
        if self._listener is not None:
            self._listener.join(_END_DEADLINE_S)
        status = self._process.poll()
        if status is None:
            return "the link emulator closed its connection"
        return f"the link emulator ended: {ending(status, self.log)}"
