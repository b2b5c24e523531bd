"""The core that is kept for the link emulator: which one that can be, and the driver kept off it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from containernet_env.base.errors import RunError, UsageError
from containernet_env.plan.plan import KeptCore


def kept_core(cpu: int) -> KeptCore:
    """The core, and those that are left for members, client and driver. Raises ``UsageError`` where it cannot be."""
    usable = sorted(os.sched_getaffinity(0))
    names = ", ".join(map(str, usable))
    if cpu not in usable:
        raise UsageError(f"links_cpu={cpu} is no core that this process may use; allowed: {names}")
    others = tuple(core for core in usable if core != cpu)
    if not others:
        raise UsageError(
            f"links_cpu={cpu} would leave no core for members, client and driver: this process may use {names} alone"
        )
    return KeptCore(cpu, others)


@contextmanager
def kept_off(core: KeptCore | None) -> Iterator[None]:
    """Within it this thread, and whatever it starts, uses the other cores. Raises ``RunError`` if that is refused."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, core.others)
        held = os.sched_getaffinity(0)
    except OSError as error:
        raise RunError(f"the driver cannot be kept off core {core.cpu}: {error.strerror}") from error
    try:
        if held != set(core.others):
            raise RunError(f"the driver is not kept off core {core.cpu}: the kernel holds {sorted(held)}")
        yield
    finally:
        os.sched_setaffinity(0, before)
