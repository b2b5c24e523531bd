"""How a caller asks a run to end, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from containernet_env.base.errors import Interrupted


class Stop:
    """A stop token: a run looks at it wherever it waits, and ends with ``Interrupted``, but for its tear-down.

    This one installs no signal handler and may be used on any thread. ``received`` is the signal that asked, 0 where
    it was none; ``None`` while nobody has asked.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._shielded = False
        self._lock = threading.Lock()

    def request(self, signum: int = 0) -> None:
        """Ask the run to end; every later request changes nothing."""
        with self._lock:
            if self.received is None:
                self.received = signum

    def check(self) -> None:
        """Raise ``Interrupted`` if the run was asked to end and its tear-down has not begun."""
        if self.received is not None and not self._shielded:
            raise Interrupted(self.received)

    def shield(self) -> None:
        """From here on nothing raises: what has begun is carried to its end. Idempotent."""
        self._shielded = True

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """A block that is carried out as a whole. Not to be nested."""
        yield
