"""A disk that is full, without a disk: the kernel refuses to make a file larger than a limit of the process."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def file_limit(size: int) -> Iterator[Callable[[], None]]:
    """No file grows beyond ``size`` bytes: what is over it is not written (EFBIG). The value lifts the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def lift() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield lift
    finally:
        lift()
