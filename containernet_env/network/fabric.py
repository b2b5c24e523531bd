"""What can be done to all links of a network together: partitions, and what the links saw.

Every change returns the moment on the monotonic clock (CLOCK_MONOTONIC, ns; Python's ``time.monotonic_ns``) at which it
took effect. All calls raise ``RunError`` where the system fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from containernet_env.base import clock
from containernet_env.model.link_statistics import emulator_counters
from containernet_env.network.emulator.link import EmulatedLink, port_name
from containernet_env.network.emulator.process import LinkEmulator
from containernet_env.network.interface import Interface
from containernet_env.network.kernel.partition import KernelPartition
from containernet_env.network.kernel.tc import VethLink
from containernet_env.network.link import ShapedLink


class Fabric(ABC):
    """What carries the links of one network."""

    @abstractmethod
    def partition(self, sets: Sequence[Sequence[Interface]]) -> int:
        """Keep these sets of hosts' interfaces apart, in place of an earlier partition."""

    @abstractmethod
    def heal(self) -> int:
        """End the partition; without one, nothing changes."""

    @abstractmethod
    def statistics(self, links: Sequence[ShapedLink], *, reset: bool, buckets: bool) -> dict[str, Any]:
        """What these links saw since they came up, or since ``reset`` was last given (after it was read).

        ``links``: by name, ``up`` and the directions as ``link_statistics`` has them; ``ports``, ``switches``,
        ``stamps``, ``unmatched`` and ``lateness``: of the link emulator; ``at_ns``: when.
        ``buckets``: with histograms.
        """


class EmulatorFabric(Fabric):
    """The link emulator; ``emulator`` gives it, and is not asked before there is a link."""

    def __init__(self, emulator: Callable[[], LinkEmulator]) -> None:
        self._emulator = emulator

    def partition(self, sets: Sequence[Sequence[Interface]]) -> int:
        """See ``Fabric``: at one moment, between two frames."""
        return self._emulator().ask("partition", sets=[[port_name(end) for end in group] for group in sets]).at_ns

    def heal(self) -> int:
        """See ``Fabric``."""
        # Before its start there is nothing that could be parted.
        return self._emulator().ask("heal").at_ns if self._emulator().hello else clock.monotonic_ns()

    def statistics(self, links: Sequence[ShapedLink], *, reset: bool, buckets: bool) -> dict[str, Any]:
        """See ``Fabric``: of all its links, whichever are given."""
        if not links:
            return _kernel_counters([])
        answer = self._emulator().ask("stats", reset=reset, buckets=buckets)
        counters = emulator_counters(answer.result, answer.at_ns)
        for link in links:
            if isinstance(link, EmulatedLink) and link.name in counters["links"]:
                link.count_at_hosts(counters["links"][link.name], counters["ports"], reset=reset)
        return counters


class KernelFabric(Fabric):
    """The kernel: hosts follow each other within milliseconds, and the time is when the last was done."""

    def __init__(self) -> None:
        self._partition = KernelPartition()

    def partition(self, sets: Sequence[Sequence[Interface]]) -> int:
        """See ``Fabric``."""
        self._partition.part(sets)
        return clock.monotonic_ns()

    def heal(self) -> int:
        """See ``Fabric``."""
        self._partition.heal()
        return clock.monotonic_ns()

    def statistics(self, links: Sequence[ShapedLink], *, reset: bool, buckets: bool) -> dict[str, Any]:
        """See ``Fabric``."""
        statistics = _kernel_counters(links)
        if reset:
            for link in links:
                if isinstance(link, VethLink):
                    link.reset_counters()
        return statistics


def _kernel_counters(links: Sequence[ShapedLink]) -> dict[str, Any]:
    return {
        "at_ns": clock.monotonic_ns(),
        "links": {link.name: link.statistics() for link in links},
        "ports": {},
        "switches": {},
        "stamps": None,
        "unmatched": None,
        "lateness": None,
    }
