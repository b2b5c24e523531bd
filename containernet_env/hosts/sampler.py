"""Samples all consumers once a second and at the edges of scenarios; the usage between two samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from containernet_env.base import clock
from containernet_env.model.usage import Consumers, Consumption, Usage, difference, larger

Edge = Literal["begin", "end"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of all consumers; ``edge`` is whether a scenario begins or ends with it."""

    at_ns: int
    consumers: Consumers
    edge: Edge | None = None


class Window:
    """Takes the samples from the one at its begin to the one at its end."""

    def __init__(self, first: Sample) -> None:
        self._began_ns = self._ended_ns = first.at_ns
        self._first = _places(first.consumers)
        self._last = dict(self._first)
        self._largest = {place: larger(None, sample) for place, sample in self._first.items()}

    def add(self, sample: Sample) -> None:
        """A later sample; a consumer that the first one has not is left out."""
        self._ended_ns = sample.at_ns
        for place, seen in _places(sample.consumers).items():
            if place in self._first:
                # A consumer that ends loses its counters one by one: each counts as far as it was seen.
                self._last[place] = replace(self._last[place], **seen.values())
                self._largest[place] = larger(self._largest[place], seen)

    def usage(self) -> Usage:
        used = {
            place: difference(first, self._last[place], self._largest[place]) for place, first in self._first.items()
        }
        members, clients = (
            {name: value for (role, name), value in used.items() if role == of} for of in ("members", "clients")
        )
        singles = {role: value for (role, name), value in used.items() if not name}
        return Usage(self._ended_ns - self._began_ns, Consumers(members=members, clients=clients, **singles))


def _places(consumers: Consumers) -> Mapping[tuple[str, str], Consumption]:
    """By role, and name where several have one."""
    found = {("members", name): member for name, member in consumers.members.items()}
    found |= {("clients", name): client for name, client in consumers.clients.items()}
    for role in ("client", "links", "driver", "machine"):
        if (single := getattr(consumers, role)) is not None:
            found[role, ""] = single
    return found


INTERVAL_S = 1.0
# For a last line that a disk does not take.
_END_S = 5.0


class Readable(Protocol):
    """All consumers; see ``consumers.AllUse``."""

    def read(self) -> Consumers: ...

    def close(self) -> None: ...


class Sampler:
    """Reads ``consumers`` between ``start`` and ``close``; ``keep`` takes every sample, on the sampler's own thread.

    Nothing here raises, and scenarios do not wait for ``keep``: they matter more than their usage.
    """

    def __init__(self, consumers: Readable, keep: Callable[[Sample], None]) -> None:
        self._consumers = consumers
        self._keep = keep
        self._window: Window | None = None
        self._lock = clock.Lock()
        self._over = clock.Event()
        self._to_keep: list[Sample] = []
        self._thread = clock.Thread(target=self._run, name="usage", daemon=True)

    def start(self) -> None:
        with suppress(RuntimeError):  # no thread can be started: the edges of scenarios are sampled all the same
            self._thread.start()

    def close(self) -> None:
        """Stop, and close every file. Idempotent."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(_END_S)
        self._consumers.close()

    def begin(self) -> None:
        """Begin a window now."""
        with self._lock:
            self._window = None
            sample = self._look("begin")
            self._window = None if sample is None else Window(sample)

    def end(self) -> Usage | None:
        """End the window now; return its usage, ``None`` if none has begun."""
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
            # A late pass, or a machine that slept, is not caught up.
            due_s = max(due_s + INTERVAL_S, clock.monotonic())
            self._over.wait(due_s - clock.monotonic())
        self._hand_over(self._to_keep)

    def _hand_over(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            with suppress(Exception):
                self._keep(sample)
