"""Links of the original Containernet: its TCLink and TCIntf, commands checked, results read back."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import mininet.node  # noqa: F401 - before mininet.link, which cannot be imported first where it is Containernet's
from mininet.link import TCIntf

from containernet_env.base import programs
from containernet_env.base.errors import RunError
from containernet_env.hosts import clone, netns
from containernet_env.model.backends import containernet_refusal as refusal
from containernet_env.model.backends import needs_netem
from containernet_env.model.link import DirectionSpec, IndependentLoss, LinkSpec, queue_frames
from containernet_env.network.interface import Interface, parse_address
from containernet_env.network.kernel import NETEM_LIMIT_FRAMES, VethLink, clear_direction, read_direction


def commit_of(package: Path) -> str | None:
    """The commit that the folder of the package ``mininet`` comes from; ``None`` if that cannot be determined.

    In a checkout that is git's answer, with ``-dirty`` where its files were changed. For a package that pip installed
    from a Git URL it is the commit that pip recorded. Changes nothing, and never raises.
    """
    root = package.parent
    # Only its own repository: a virtual environment may be inside another one.
    return clone.described(root) if (root / ".git").exists() else _installed(package)


def _installed(package: Path) -> str | None:
    """From direct_url.json of the installed package (PEP 610)."""
    try:
        distribution = metadata.distribution("mininet")
        if Path(str(distribution.locate_file("mininet"))).resolve() != package.resolve():
            return None
        commit = json.loads(distribution.read_text("direct_url.json") or "{}")["vcs_info"]["commit_id"]
    except (metadata.PackageNotFoundError, OSError, ValueError, KeyError, TypeError):
        return None
    return str(commit)


MIN_FRAME_BYTES = 60
"""Smallest Ethernet frame without its checksum: as many fit into a delay as possible."""


def delay_room_frames(direction: DirectionSpec) -> int:
    """How many frames the delay alone can hold."""
    if direction.delay_ns == 0:
        return 0
    if direction.rate_bps is None:
        return NETEM_LIMIT_FRAMES
    bits = direction.delay_ns * direction.rate_bps // 10**9
    return min(NETEM_LIMIT_FRAMES, -(-bits // (8 * MIN_FRAME_BYTES)))


def keywords(direction: DirectionSpec) -> dict[str, Any]:
    """TCIntf's keywords for a direction that is not refused; empty if it changes nothing."""
    words: dict[str, Any] = {}
    if direction.rate_bps is not None:
        words["bw"] = direction.rate_bps / 1_000_000
    if direction.delay_ns:
        words["delay"] = f"{direction.delay_ns / 1000:.3f}us"
    if direction.jitter is not None:
        words["jitter"] = f"{direction.jitter.ns / 1000:.3f}us"
    if isinstance(direction.loss, IndependentLoss) and direction.loss.ratio:
        words["loss"] = direction.loss.ratio * 100
    if needs_netem(direction):
        # Without one netem takes 1000, which the frames under way use up too: they would be lost at high rates.
        words["max_queue_size"] = queue_frames(direction) + delay_room_frames(direction)
    return words


class CheckedInterface(TCIntf):  # type: ignore[misc]
    """Its TCIntf, whose commands are run in the node's network namespace from outside.

    It chooses the commands; but its own way to run them, a shell inside the container, needs NET_ADMIN and tools
    there, and only prints errors.
    """

    def cmd(self, *args: Any, **_options: Any) -> str:
        """Run one command of its (words without a shell's syntax). Raises ``RunError`` where it fails."""
        words = " ".join(map(str, args)).split()
        # Skipped: it sets offloads to the kernel's defaults for a veth.
        optional = words[0] == "ethtool"
        if optional and programs.which(words[0]) is None:
            return ""
        return netns.run(self.node.pid, words, check=not optional).stdout

    def updateIP(self) -> str | None:
        """See Mininet, which would look for ifconfig inside the container."""
        self.updateAddr()
        return str(self.ip) if self.ip is not None else None

    def check_address(self, address: str) -> None:
        """Raise ``RunError`` unless the kernel holds ``address`` ("10.0.0.1/24") here and the interface is up."""
        shown = json.loads(self.cmd("ip -j address show dev", self.name))
        entry = next(entry for entry in shown if entry)
        held = [(inet["local"], inet["prefixlen"]) for inet in entry["addr_info"] if inet["family"] == "inet"]
        if held != [parse_address(address)] or "UP" not in entry["flags"]:
            raise RunError(f"{self.node.name}: {self.name} should have {address}, the system holds {entry}")


class OriginalLink(VethLink):
    """A TCLink between two nodes as a link of the network: with the further features of the builtin kernel links."""

    def __init__(self, name: str, link: Any, spec: LinkSpec) -> None:
        one, two = self._tc_interfaces = (link.intf1, link.intf2)
        super().__init__(
            name, (Interface(one.node.pid, one.name, one.mac), Interface(two.node.pid, two.name, two.mac)), spec
        )
        self.made = self._applied = True

    def _refuse(self, end: Interface, direction: DirectionSpec) -> None:
        if (reason := refusal(direction)) is not None:
            raise RunError(f"link {self.name}: the original Containernet does not support {reason}")

    def _apply(self, spec: LinkSpec, held: LinkSpec | None) -> None:
        """Its qdiscs are replaced: queued frames and frames under way are lost."""
        for end, intf, direction in zip(self._interfaces, self._tc_interfaces, spec.sides, strict=True):
            # It returns early for an empty configuration, and the old limits would stay.
            clear_direction(end)
            # up=None: it would plug a cable in that was pulled.
            intf.config(up=None, **keywords(direction))
        self._applied = True  # nothing of this follows from what was held, so it can be repeated whatever is read back

    def _held(self, end: Interface, direction: DirectionSpec) -> DirectionSpec:
        """See ``VethLink``: the limit of its netem is the queue's plus the frames that the delay holds."""
        limit = keywords(direction).get("max_queue_size", 0)
        # TCIntf.bwCmds names the class.
        return read_direction(
            end, direction, class_id="5:1", netem_limit=limit, netem_queue_frames=direction.queue_frames
        )

    def limit_segments(self) -> None:
        """One segment at a time, as on our own links: netem would take up to 64 KiB of a flow for one frame."""
        for end in self._interfaces:
            netns.ip_batch(end.pid, [f"link set dev {end.name} gso_max_segs 1"])
