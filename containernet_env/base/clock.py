"""Time, threads and waiting of the whole driver, and moments: nothing else reads a clock, sleeps or starts a thread.

These are Python's own. Tests replace these names (``tests/simulated_time.py``), so callers write
``clock.sleep(1)``, and never import one of the names. Moments are wall-clock time for people, and the monotonic clock
(CLOCK_MONOTONIC, ns) for comparing records.
"""

from __future__ import annotations

import os
import selectors
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from threading import Condition, Event, Lock, RLock, Thread, get_ident
from time import monotonic, monotonic_ns, perf_counter_ns, sleep, time, time_ns

__all__ = [
    "Condition", "Empty", "Event", "Future", "Lock", "Moment", "RLock", "SimpleQueue", "Thread", "ThreadPoolExecutor",
    "monotonic", "monotonic_ns", "perf_counter_ns", "select", "sleep", "time", "time_ns", "utc_now", "waking",
]  # fmt: skip


def select(selector: selectors.BaseSelector, timeout_s: float | None) -> list[tuple[selectors.SelectorKey, int]]:
    """The ready keys of a selector, after ``timeout_s`` at the latest."""
    return selector.select(timeout_s)


_NO_SIGNAL = 0


@contextmanager
def waking() -> Iterator[None]:
    """Within it each signal with a handler interrupts what the main thread, the caller, waits for.

    Handlers run in the main thread. But a signal that comes while the process is stopped is given to any of its threads
    (``complete_signal`` in Linux's kernel/signal.c), and the main thread would wait on.
    """
    main = get_ident()
    before = signal.signal(signal.SIGURG, lambda _signum, _frame: None)
    read, write = os.pipe()
    os.set_blocking(write, False)

    def wake() -> None:
        while (number := os.read(read, 1)[0]) != _NO_SIGNAL:
            if number != signal.SIGURG:
                signal.pthread_kill(main, signal.SIGURG)

    thread = Thread(target=wake, name="signals", daemon=True)
    thread.start()
    before_fd = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before_fd)
        os.write(write, bytes([_NO_SIGNAL]))
        thread.join()
        os.close(write)
        os.close(read)
        signal.signal(signal.SIGURG, before)


def utc_now() -> str:
    """This moment as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(time(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment on both clocks: ``at`` in UTC (ISO 8601), ``at_ns`` on the monotonic clock."""

    at: str
    at_ns: int

    @classmethod
    def now(cls) -> Moment:
        return cls(utc_now(), monotonic_ns())
