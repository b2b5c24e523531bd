"""What processes in cgroups of this machine use, beside what is known of them."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from containernet_env.hosts.counters import ProcessUse
from containernet_env.hosts.limits import cgroups_of
from containernet_env.hosts.sampler import Sample, Window
from containernet_env.model.usage import Consumers, Consumption
from tests.deadline import eventually

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="not root")]

BUSY = "import sys\nsys.stdin.readline()\nwhile True: pass"
# So little that a machine that is busy otherwise has it left for it.
QUOTA_US, PERIOD_US = 2_000, 50_000


@pytest.fixture
def group() -> Iterator[Path]:
    """A cgroup of our own with 4 % of a core, below this process's own one."""
    cgroups = cgroups_of(os.getpid())
    above = cgroups.v1.get("cpu") or cgroups.v2
    made = above / f"cnenv-test-{secrets.token_hex(3)}"
    made.mkdir()
    try:
        if "cpu" in cgroups.v1:
            (made / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (made / "cpu.cfs_quota_us").write_text(str(QUOTA_US))
        elif (made / "cpu.max").exists():
            (made / "cpu.max").write_text(f"{QUOTA_US} {PERIOD_US}")
        else:
            pytest.skip("the cpu controller is not enabled for groups below that of this process")
        yield made
    finally:
        eventually(lambda: removed(made), "the group is empty")


def removed(group: Path) -> bool:
    with suppress(OSError):  # a process of it has not ended yet
        group.rmdir()
    return not group.exists()


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_process_that_its_groups_quota_stops_shows_it(group: Path, busy: subprocess.Popen[bytes]) -> None:
    """As the link emulator, which another program put into a group with a quota after it had been found."""
    use = ProcessUse(busy.pid)
    assert use.read() is not None
    (group / "cgroup.procs").write_text(str(busy.pid))
    before = use.read()
    busy.stdin.write(b"go\n")
    busy.stdin.flush()
    periods = before.throttled_periods + 20

    def stopped_often() -> Consumption | None:
        seen = use.read()
        return seen if seen is not None and (seen.throttled_periods or 0) >= periods else None

    after = eventually(stopped_often, "its quota has stopped it twenty times")
    use.close()
    window = Window(Sample(0, Consumers(links=before)))
    window.add(Sample(20 * PERIOD_US * 1000, Consumers(links=after)))
    used = window.usage().used.links
    # In each period that stopped it, it was stopped for some of it, and took its quota at most; what each core has
    # taken of that in advance comes on top (Documentation/scheduler/sched-bwc.rst).
    slices_ns = 5_000_000 * (os.cpu_count() or 1)
    assert used.throttled_ns > 0 and used.throttled_periods >= 20
    assert 0 < used.cpu_ns <= (used.throttled_periods + 1) * QUOTA_US * 1000 + slices_ns, used
