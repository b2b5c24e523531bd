"""Notices at once when the engine ends: by one connection that is held to its events, at no cost while it lives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from containernet_env.base import clock
from containernet_env.hosts import engine

_ENDED = "has ended"
# Where a service manager holds the socket, an engine that ends cannot be told from one that was asked to stop them.
_ENDING = "has stopped all containers of this run, as it does when it ends"


class EngineWatch:
    """Calls ``on_end``, once and from a thread of its own, when the engine ends or stops all containers of a run.

    ``on_end`` is given what has become of it, as ``EngineGoneError`` is. On SIGTERM an engine stops listening, ends its
    containers, and its connections last; when it is killed, the kernel ends those. ``running`` says how many containers
    of the run there are. An engine that is silent, as one that was stopped, is not noticed.
    """

    def __init__(self, run: str, running: Callable[[], int], on_end: Callable[[str], None]) -> None:
        self._run = run
        self._running = running
        self._on_end = on_end
        self._events: Any = None
        self._closing = False

    def start(self) -> None:
        """Begin. Raises ``RunError`` where the engine does not tell its events."""
        wanted = {"type": ["container"], "event": ["kill"], "label": [f"{engine.LABEL_RUN}={self._run}"]}
        with engine.refusals("the engine does not tell its events"):
            self._events = engine.client().api.events(filters=wanted, decode=True)
        clock.Thread(target=self._follow, name="engine-watch", daemon=True).start()

    def _follow(self) -> None:
        stopped: set[str] = set()
        state = _ENDED
        with suppress(*engine.UNREACHABLE):  # an event that was cut short
            for event in self._events:
                attributes = event.get("Actor", {}).get("Attributes", {})
                if attributes.get("signal") == "9":
                    continue  # an engine that ends asks first
                if not engine.listens():
                    break
                stopped.add(event["Actor"]["ID"])
                if len(stopped) >= self._running():
                    state = _ENDING
                    break
        if not self._closing:
            self._on_end(state)

    def close(self) -> None:
        """End, without a word. Idempotent."""
        self._closing = True
        if self._events is not None:
            # The SDK's closing looks for a socket that is gone where the engine is.
            with suppress(AttributeError, OSError):
                self._events.close()
