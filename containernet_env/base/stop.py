"""How a caller ends a run early, from any thread."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from containernet_env.base import clock
from containernet_env.base.errors import ContainernetEnvError, Interrupted


def stop_behind(error: BaseException, handled: BaseException | None = None) -> Interrupted | KeyboardInterrupt | None:
    """The stop that an error is or came of; None if it came of none, or is one that this project tells on purpose.

    ``handled``: what the caller was handling before, of which nothing that is raised meanwhile came.

    A stop strikes anywhere, in libraries too, and what comes out of them may be another error: RuntimeError where
    Python calls ``__set_name__`` (before 3.12), or where a lock is released that the stop kept from being taken.
    """
    behind: BaseException | None = error
    while behind is not None and behind is not handled and not isinstance(behind, ContainernetEnvError):
        if isinstance(behind, Interrupted | KeyboardInterrupt):
            return behind
        behind = behind.__cause__ or behind.__context__
    return None


@contextmanager
def stops_kept() -> Iterator[None]:
    """Raise the stop itself in place of an error that came of it, see ``stop_behind``."""
    handled = sys.exception()
    try:
        yield
    except Exception as error:
        if (stop := stop_behind(error, handled)) is None:
            raise
        raise stop from None


class Stop:
    """A stop token: a run checks it wherever it waits, and ends with ``Interrupted`` unless it is tearing down already.

    It installs no signal handler and may be used on any thread. ``received`` is the signal that requested the end, 0 if
    none did; ``None`` before any request.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._shielded = False
        self._lock = clock.Lock()

    def request(self, signum: int = 0) -> None:
        """Request the end of the run; later requests change nothing."""
        with self._lock:
            if self.received is None:
                self.received = signum

    def check(self) -> None:
        """Raise ``Interrupted`` if the end of the run was requested and its tear-down has not begun."""
        if self.received is not None and not self._shielded:
            raise Interrupted(self.received)

    def shield(self) -> None:
        """From here on nothing raises, so that the tear-down completes. Idempotent."""
        self._shielded = True

    def unshield(self) -> None:
        """The tear-down is over: what was requested meanwhile ends the caller's next run."""
        self._shielded = False

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """A block that is carried out as a whole; may be nested."""
        yield
