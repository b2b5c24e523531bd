"""How long an fdatasync takes where a host keeps its data."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.base.files import root_of
from containernet_env.hosts import container
from containernet_env.hosts.container import SAMPLES, measure_sync, put_secrets


def test_it_is_measured_in_the_directory_or_the_nearest_parent_that_exists(tmp_path: Path) -> None:
    times = measure_sync(tmp_path, "/var/lib/etcd", budget_s=5.0)
    assert times.samples == SAMPLES
    assert 0 < times.median_ns <= times.slowest_ns
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_longer_is_measured_as_often_as_there_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sync takes 30 ms by a clock of its own: of 0.1 s each begins one as long as there is any left."""
    now_ns = 0
    written: list[int] = []

    def sync(descriptor: int) -> None:
        nonlocal now_ns
        written.append(os.fstat(descriptor).st_nlink)
        now_ns += 30_000_000

    monkeypatch.setattr(container.os, "fdatasync", sync)
    monkeypatch.setattr(container.clock, "perf_counter_ns", lambda: now_ns)
    monkeypatch.setattr(container.clock, "monotonic", lambda: now_ns / 1e9)
    times = measure_sync(tmp_path, "/", budget_s=0.1)
    assert (times.samples, times.median_ns, times.slowest_ns) == (4, 30_000_000, 30_000_000)
    assert measure_sync(tmp_path, "/", budget_s=0.0).samples == 1
    assert set(written) == {0}, "a run that is killed here leaves a file behind"


def test_a_place_that_cannot_be_written_is_named() -> None:
    with pytest.raises(RunError, match=r"^no fdatasync could be measured in /self: "):
        measure_sync(Path("/proc"), "/self")
    with pytest.raises(RunError, match=r"^no fdatasync could be measured in /var/lib/etcd: "):
        measure_sync(root_of(4194304), "/var/lib/etcd")  # above the kernel's largest pid


@pytest.mark.parametrize(
    "act", [lambda root: measure_sync(root, "/"), lambda root: put_secrets(root, "etcd1", {"/shm/key.pem": b"secret"})]
)
def test_an_engine_that_remaps_users_is_named(monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], Any]) -> None:
    """It was "Value too large for defined data type"."""
    opened = os.open

    def refused(path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(errno.EOVERFLOW, os.strerror(errno.EOVERFLOW))
        return opened(path, flags, *arguments, **named)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(RunError, match=r"the engine remaps users \(userns-remap\)"):
        act(Path("/dev"))
