"""The descriptors that this process holds open, for tests of who opens and closes them."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest


def open_descriptors() -> set[tuple[int, str]]:
    """Each with what it leads to.

    Compare with those of before what was opened since: what other tests left is closed whenever Python collects it.
    """
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the listing itself
            found.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
    return found


def closed_from_now_on(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The descriptors that ``os.close`` is given until the end of the test; Python's collecting does not call it."""
    closed: list[int] = []
    close = os.close

    def record(fd: int) -> None:
        closed.append(fd)
        close(fd)

    monkeypatch.setattr(os, "close", record)
    return closed
