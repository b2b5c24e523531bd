"""Whether the program that carries the links still answers: one that was stopped looks like a cluster that is dead."""

from __future__ import annotations

from collections.abc import Callable

from containernet_env.base import clock

PING_S = 1.0
"""How often it is asked, and how long each answer may take."""
SILENT_S = 5.0
"""After so much silence it is given up: five of etcd's default election timeouts, so nothing that is measured after it
is of the network that was configured; and a quarter of the default request timeout, so requests have not failed yet."""
# An answer that is there while the caller was stopped is found by the next question, so pauses of the driver cost one.
_PINGS = round(SILENT_S / PING_S)


class LinkWatch:
    """Asks on a thread of its own, between ``start`` and ``close``.

    ``answers`` tells whether an answer comes within so many seconds; ``fail`` is called once, with the reason.
    """

    def __init__(self, answers: Callable[[float], bool], fail: Callable[[str], None]) -> None:
        self._answers = answers
        self._fail = fail
        self._unanswered = 0
        self._over = clock.Event()
        self._thread = clock.Thread(target=self._run, name="link-watch", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def close(self) -> None:
        """Ask no more; idempotent. A question that is under way ends by itself."""
        self._over.set()

    def note(self, answered: bool) -> bool:
        """Take down one answer, or its absence; whether the silence has lasted long enough now."""
        self._unanswered = 0 if answered else self._unanswered + 1
        return self._unanswered == _PINGS

    def settle(self) -> None:
        """Return once it answers, or has been given up: at once where nothing is wrong."""
        for _ in range(_PINGS + 1):
            began_s = clock.monotonic()
            if self._over.is_set() or self._answers(PING_S):
                return
            self._over.wait(began_s + PING_S - clock.monotonic())

    def _run(self) -> None:
        while not self._over.is_set():
            began_s = clock.monotonic()
            if self.note(self._answers(PING_S)) and not self._over.is_set():
                self._over.set()
                self._fail(
                    f"the link emulator has not answered for {SILENT_S:g} s: it was stopped, or gets no CPU time"
                )
            self._over.wait(max(0.0, began_s + PING_S - clock.monotonic()))
