"""Calls that are to take effect at the same moment, from threads that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from containernet_env.base import clock

Call = Callable[[], None]
"""Does one thing and keeps its own result; must not raise."""


def at_once(links: Sequence[Call], signals: Sequence[Call], links_at_once: bool, due_ns: int) -> None:
    """Make all calls at ``due_ns`` (monotonic), or now where that is over; returns when all have returned.

    Each of ``links`` has a thread of its own, which exists by then: they do not wait for each other's answers.
    ``signals`` take microseconds, one after the other. ``links_at_once``: what ``links`` do takes effect when they
    begin, so signals follow at once; else it does when they return, so signals wait for that.
    """
    go = clock.Event()

    def wait_for(call: Call) -> None:
        go.wait()
        call()

    threads, rest = [], list(links)
    with suppress(RuntimeError):  # no thread can be started: what is left is done here, one after the other
        while rest:
            thread = clock.Thread(target=wait_for, args=(rest[0],), name="event", daemon=True)
            thread.start()
            threads.append(thread)
            del rest[0]
    while (left_ns := due_ns - clock.monotonic_ns()) > 0:
        clock.sleep(left_ns / 1e9)
    go.set()
    for call in rest:
        call()
    if not links_at_once:
        _join(threads)
    for call in signals:
        call()
    _join(threads)


def _join(threads: Sequence[clock.Thread]) -> None:
    for thread in threads:
        thread.join()
