"""Partitions that the kernel carries out, on interfaces that go and come again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.hosts import netns
from containernet_env.network.interface import Interface
from containernet_env.network.kernel import KernelFabric


class Kernel:
    """The interfaces that have a clsact, as ``(pid, name)``, each with the number of its filters."""

    def __init__(self) -> None:
        self.filters: dict[tuple[int, str], int] = {}

    def run(self, pid: int, _argv: Sequence[str], **given: str) -> None:
        for line in given["input"].splitlines():
            what, does, _, name, *_ = line.split()
            if pid == 0:
                raise netns.ProcessGoneError("the process has ended")
            match what, does:
                case "qdisc", "add" if (pid, name) in self.filters:
                    raise RunError("Exclusivity flag on, cannot modify")
                case "qdisc", "add" | "replace":
                    self.filters.setdefault((pid, name), 0)
                case _ if (pid, name) not in self.filters:
                    raise RunError("Error: Cannot find specified qdisc on specified device.")
                case "qdisc", "delete":
                    del self.filters[pid, name]
                case "filter", "delete":
                    self.filters[pid, name] = 0
                case "filter", "add":
                    self.filters[pid, name] += 1


def test_a_partition_is_made_again_on_interfaces_that_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """`restart h1` during a partition failed: the new interface had no clsact that could be deleted."""
    kernel: Any = Kernel()
    monkeypatch.setattr(netns, "run", kernel.run)
    h1, h2, h3 = (Interface(n, f"e{n}", f"02:00:00:00:00:0{n}") for n in (1, 2, 3))
    fabric = KernelFabric()
    fabric.partition([[h1], [h2, h3]])
    parted = {(1, "e1"): 2, (2, "e2"): 1, (3, "e3"): 1}
    assert kernel.filters == parted
    del kernel.filters[1, "e1"]
    fabric.partition([[h1], [h2, h3]])
    assert kernel.filters == parted
    h2.pid = 0  # it has ended
    fabric.partition([[h1], [h2, h3]])
    del kernel.filters[1, "e1"]
    fabric.heal()
    assert kernel.filters == {(2, "e2"): 1}
