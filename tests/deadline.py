"""The only real time of a gating test: a deadline against hanging, a minute or more, that decides nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

HANG_S = 60.0
"""What waits longer than this hangs. A bound of a gating test is never shorter."""
_INTERVAL_S = 0.02


def eventually(check: Callable[[], T], what: str, deadline_s: float = HANG_S, interval_s: float = _INTERVAL_S) -> T:
    """Poll ``check`` until its answer is true, and return that answer.

    AssertionError with ``what`` and the last answer after ``deadline_s``, which is at least ``HANG_S``: a test that
    meets it has found something that hangs, not something that is slow.
    """
    assert deadline_s >= HANG_S, "a shorter deadline would judge the speed of the machine"
    end = time.monotonic() + deadline_s
    while not (answer := check()):
        assert time.monotonic() < end, f"{what}: still {answer!r} after {deadline_s:g} s"
        time.sleep(interval_s)
    return answer


def let_pass(seconds: float) -> None:
    """Let time pass that something is to be stopped for; nothing is judged by it."""
    time.sleep(seconds)
