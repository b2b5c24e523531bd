"""Errors of exhausted resources, and what works without them."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from containernet_env.base import errors
from containernet_env.base.errors import MissingRequirementError, RunError, allow_open_files, resource_errors, shortage
from containernet_env.base.work import side_by_side

WRAPPED = requests.exceptions.ConnectionError("Connection aborted.", OSError(errno.EMFILE, "Too many open files"))


def test_what_ran_out_is_named_with_its_limit_and_other_errors_stay_what_they_are() -> None:
    for error, what in (
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (WRAPPED, "ulimit -n"),  # as the Docker SDK's libraries raise it
        (OSError(errno.ENFILE, "File table overflow"), "fs.file-max"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "ulimit -u"),
        (MemoryError(), "memory"),
    ):
        with pytest.raises(RunError, match=rf"(?s)^the machine gives this process no more .*{what}"), resource_errors():
            raise error
    for error in (OSError(errno.ENOENT, "no such file"), RuntimeError("a bug"), ValueError("other")):
        assert shortage(error) is None
        with pytest.raises(type(error)), resource_errors():
            raise error
    with pytest.raises(RunError) as raised:
        try:
            raise OSError(errno.EMFILE, "Too many open files")
        except OSError:
            raise RunError("another run is on") from None
    assert shortage(raised.value) is None, "it hides its context"


def test_reserved_files_are_there_when_every_other_one_is_in_use() -> None:
    script = """
import os, resource
from containernet_env.base.errors import ReservedFiles
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
def opened():
    for count in range(1000):
        try:
            os.open(os.devnull, os.O_RDONLY)
        except OSError:
            return count
reserved = ReservedFiles(8)
opened()
reserved.release()
reserved.release()
print(opened())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("8\n", "")


def test_the_limit_of_open_files_is_raised_only_where_it_is_too_low(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[Any] = []
    limits: Any = SimpleNamespace(**vars(resource))
    limits.getrlimit, limits.setrlimit = lambda which: (100, 4096), lambda which, both: set_to.append(both)
    monkeypatch.setattr(errors, "resource", limits)
    for needed in (100, 300, 5000):
        allow_open_files(needed)
    assert set_to == [(300, 4096), (5000, 5000)]

    def refuse(which: int, both: Any) -> None:
        raise ValueError("not allowed to raise maximum limit")

    limits.getrlimit, limits.setrlimit = lambda which: (64, 64), refuse
    with pytest.raises(MissingRequirementError, match=r"may need 384 open files; the limit is 64\n.*ulimit -n 384"):
        allow_open_files(384)


def test_work_is_done_side_by_side_in_order_whatever_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with the process limit reached, where no thread can be started: a tear-down leaves every container."""
    meeting = threading.Barrier(3, timeout=60)

    def meet(number: int) -> int:
        meeting.wait()
        return number * 2

    assert side_by_side(meet, [1, 2, 3], 3) == [2, 4, 6]
    assert side_by_side(str, [], 4) == []
    done: list[int] = []

    def work(number: int) -> None:
        done.append(number)
        if number < 3:
            raise ValueError(str(number))

    with pytest.raises(ValueError, match=r"^1$"):
        side_by_side(work, [1, 2, 3, 4], 2)
    assert sorted(done) == [1, 2, 3, 4]

    def refuse(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert side_by_side(lambda number: (number, threading.current_thread()), [1, 2, 3], 3) == [
        (number, threading.main_thread()) for number in (1, 2, 3)
    ]
