"""Partitions where the kernel carries the links: frames from the other sets are dropped as they reach a host.

Judged at the host, like the link emulator's: links and switches carry on, and what is under way when the
partition begins does not arrive. Senders are known by their Ethernet addresses. Needs cls_u32 and act_gact.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from containernet_env.base.errors import RunError
from containernet_env.hosts import netns
from containernet_env.network.interface import Interface


def part_lines(interface: str, macs: Sequence[str]) -> list[str]:
    """Lines for ``tc -batch`` that let ``interface`` drop what ``macs`` send, in place of what it dropped before."""
    lines = [f"qdisc replace dev {interface} clsact", f"filter delete dev {interface} ingress"]
    for mac in macs:
        digits = mac.replace(":", "")
        # The source address is the 6 bytes from 8 before the network header on.
        lines.append(
            f"filter add dev {interface} ingress protocol all prio 1 u32 match u32 0x{digits[:8]} 0xffffffff at -8 "
            f"match u16 0x{digits[8:]} 0xffff at -4 action drop"
        )
    return lines


class KernelPartition:
    """The partition of one network, and how to end it."""

    def __init__(self) -> None:
        self._parted: set[Interface] = set()

    def part(self, sets: Sequence[Sequence[Interface]]) -> None:
        """Keep these sets of hosts' interfaces apart, in place of an earlier partition.

        One host after the other, some milliseconds apart; at an error nothing stays parted. Raises ``RunError``.
        """
        stale = self._parted - {end for members in sets for end in members}
        try:
            for number, members in enumerate(sets):
                others = [str(end.mac) for other, ends in enumerate(sets) if other != number for end in ends]
                for end in members:
                    self._parted.add(end)
                    with suppress(netns.ProcessGoneError):  # of a host that has ended
                        _batch(end, part_lines(end.name, others))
            self._heal(stale)
        except RunError:
            self.heal()
            raise

    def heal(self) -> None:
        """End the partition; without one, nothing."""
        self._heal(set(self._parted))

    def _heal(self, ends: set[Interface]) -> None:
        for end in ends:
            self._parted.discard(end)
            try:
                _batch(end, [f"qdisc delete dev {end.name} clsact"])
            except netns.ProcessGoneError:
                continue
            except RunError as error:
                # Its link was removed or made again, or the partition failed before it was there.
                gone = ("Cannot find device", "Cannot find specified qdisc", "Invalid handle", "No such file")
                if not any(words in str(error) for words in gone):
                    raise


def _batch(end: Interface, lines: Sequence[str]) -> None:
    netns.run(end.pid, ["tc", "-batch", "-"], input="".join(f"{line}\n" for line in lines))
