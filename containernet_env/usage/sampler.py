"""Samples all consumers once a second, on a thread of its own, and at the edges of each scenario."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from containernet_env.base import clock
from containernet_env.model.usage import Consumers, Usage
from containernet_env.usage.window import Edge, Sample, Window

INTERVAL_S = 1.0
# For a last line that a disk does not take.
_END_S = 5.0


class Readable(Protocol):
    """All consumers; see ``consumers.AllUse``."""

    def read(self) -> Consumers: ...

    def close(self) -> None: ...


class Sampler:
    """Reads ``consumers`` between ``start`` and ``close``; ``keep`` takes every sample, on the sampler's own thread.

    Nothing here raises, and nobody waits for ``keep``: a scenario is worth more than what it used.
    """

    def __init__(self, consumers: Readable, keep: Callable[[Sample], None], interval_s: float = INTERVAL_S) -> None:
        self._consumers = consumers
        self._keep = keep
        self._interval_s = interval_s
        self._window: Window | None = None
        self._lock = clock.Lock()
        self._over = clock.Event()
        self._to_keep: list[Sample] = []
        self._thread = clock.Thread(target=self._run, name="usage", daemon=True)

    def start(self) -> None:
        """Begin to sample."""
        with suppress(RuntimeError):  # no thread can be started: the edges of scenarios are sampled all the same
            self._thread.start()

    def close(self) -> None:
        """Stop, and let go of every file. Idempotent."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(_END_S)
        self._consumers.close()

    def begin(self) -> None:
        """A window begins now."""
        with self._lock:
            self._window = None
            sample = self._look("begin")
            self._window = None if sample is None else Window(sample)

    def end(self) -> Usage | None:
        """The window ends now; what was used in it. ``None`` where none has begun."""
        with self._lock:
            window, self._window = self._window, None
            if window is None or (sample := self._look("end")) is None:
                return None
            window.add(sample)
        return window.usage()

    def _look(self, edge: Edge | None) -> Sample | None:
        try:
            sample = Sample(clock.monotonic_ns(), self._consumers.read(), edge)
        except Exception:  # noqa: BLE001 - whatever it is (memory, descriptors), the run goes on
            return None
        self._to_keep.append(sample)
        return sample

    def _run(self) -> None:
        due_s = clock.monotonic()
        while not self._over.is_set():
            with self._lock:
                sample = self._look(None)
                if sample is not None and self._window is not None:
                    self._window.add(sample)
                made, self._to_keep = self._to_keep, []
            self._hand_over(made)
            # A pass that came late, or a machine that slept, is not made up for.
            due_s = max(due_s + self._interval_s, clock.monotonic())
            self._over.wait(due_s - clock.monotonic())
        self._hand_over(self._to_keep)

    def _hand_over(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            with suppress(Exception):
                self._keep(sample)
