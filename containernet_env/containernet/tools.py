"""The shell's commands that look at the network: links in force, throughput, recordings of frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from mininet.node import Host, Switch

from containernet_env.base.errors import UsageError
from containernet_env.base.units import format_duration, format_mbps
from containernet_env.config.hints import closest
from containernet_env.model.chance import GilbertElliottLoss
from containernet_env.model.link import DirectionSpec
from containernet_env.network import throughput
from containernet_env.network.capture import check_path
from containernet_env.network.interface import MTU_BYTES

_SECONDS = 5.0
_SECONDS_MAX = 600.0


def _host(net: Any, name: str) -> Any:
    node = net.nameToNode.get(name)
    if node is None or not isinstance(node, Host):
        near = closest(name, [host.name for host in net.hosts])
        hint = f"; did you mean {near}?" if near else ""
        raise UsageError(f"{name!r} is no host; hosts: {', '.join(host.name for host in net.hosts)}{hint}")
    if not node.intfs:
        raise UsageError(f"{name} has no link")
    return node


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _SECONDS_MAX:
        raise UsageError(f"got {text!r}; allowed: more than 0 and up to {_SECONDS_MAX:.0f} seconds")
    return value


def iperf(net: Any, words: list[str]) -> str:
    """iperf [HOST HOST] [SECONDS]: what one TCP flow carries from the first to the second: iperf etcd1 etcd2 5
    Measured from outside: nothing has to be installed in the hosts, and their CPU limits do not hold for it."""
    seconds = _seconds(words.pop()) if len(words) in (1, 3) else _SECONDS
    names = words or [net.hosts[0].name, net.hosts[-1].name]
    if len(names) != 2 or names[0] == names[1]:
        raise UsageError("usage: iperf [HOST HOST] [SECONDS]")
    one, two = (_host(net, name) for name in names)
    found = throughput.measure(one.pid, two.pid, two.IP(), seconds)
    rate = found.rate_bps / 1e6
    return f"{one.name} -> {two.name}: {rate:.1f} Mbit/s over {found.seconds:.1f} s (TCP {found.congestion_control})"


def iperfudp(net: Any, words: list[str]) -> str:
    """iperfudp: not offered; see iperf."""
    raise UsageError("iperfudp is not offered: `iperf` measures TCP, and needs nothing inside the hosts")


def capture(net: Any, words: list[str]) -> str:
    """capture HOST FILE.pcap [SECONDS]: record the frames of a host's interface: capture etcd1 etcd1.pcap 10
    Without SECONDS it goes on until `capture stop`, or until the shell ends. `capture` alone says what is recorded.
    A file holds 256 MiB at the most."""
    match words:
        case []:
            running = [f"{one.name}: {one.frames} frames so far in {one.path}" for one in net.captures]
            return "\n".join(running) or "nothing is recorded"
        case ["stop"]:
            return "\n".join(net.stop_captures()) or "nothing is recorded"
        case [name, file, *rest] if len(rest) <= 1:
            path, seconds = check_path(file), _seconds(rest[0]) if rest else None
            started = net.start_capture(_host(net, name), path)
            if seconds is None:
                return f"{name}: recording into {path}; `capture stop` ends it"
            try:
                with suppress(KeyboardInterrupt):  # the user has seen enough
                    started.wait(seconds)
            finally:
                ended = str(net.stop_capture(started))
            return ended
        case _:
            raise UsageError("usage: capture HOST FILE.pcap [SECONDS], capture stop, or capture")


def links(net: Any, words: list[str]) -> str:
    """links: every link, up or down, with the delay, jitter, rate, queue and loss in force."""
    if words:
        raise UsageError("usage: links")
    lines = [_describe_link(link) for link in net.links] or ["there are no links"]
    if net.parted:
        lines.append(f"partition: {' | '.join(' '.join(names) for names in net.parted)}; `heal` ends it")
    return "\n".join(lines)


def _describe_link(link: Any) -> str:
    held = link.read_back()
    ends = f"{_end(link.intf1)} <-> {_end(link.intf2)}"
    seen = link.statistics()
    state = "up" if seen["up"] else "down"
    there, back = describe(held.a_to_b), describe(held.b_to_a)
    both = f"from {link.intf1.node.name}: {there}; from {link.intf2.node.name}: {back}"
    return f"{ends}  {state}  {f'both ways: {there}' if there == back else both}{_mtu(link, seen)}"


def _mtu(link: Any, seen: Mapping[str, Any]) -> str:
    """The MTU of hosts where it is not the usual one, and what was lost since it is too short."""
    said = [
        f"; mtu of {intf.node.name}: {size}"
        for intf in (link.intf1, link.intf2)
        if not isinstance(intf.node, Switch)
        and (size := getattr(getattr(intf, "held", None), "mtu_bytes", MTU_BYTES)) != MTU_BYTES
    ]
    if lost := sum(seen[side].get("drops", {}).get("oversize", 0) for side in ("a_to_b", "b_to_a")):
        said.append(f"; {lost} frames lost that were longer than the MTU")
    return "".join(said)


def _end(intf: Any) -> str:
    # The original Containernet's interfaces have no other name.
    alias: str = getattr(intf, "alias", f"{intf.node.name} ({intf.name})")
    return alias


def describe(direction: DirectionSpec) -> str:
    """What one direction does to frames, in words; a queue only where something waits."""
    parts = []
    if direction.delay_ns:
        parts.append(f"delay {format_duration(direction.delay_ns)}")
    if (jitter := direction.jitter) is not None:
        order = (
            ", frames overtake" if jitter.reorder else f", correlation {format_duration(jitter.held_correlation_ns)}"
        )
        parts.append(f"jitter {format_duration(jitter.ns)} ({jitter.distribution}{order})")
    if direction.rate_bps is not None:
        parts.append(f"rate {format_mbps(direction.rate_bps)} Mbit/s")
        if direction.overhead_bytes:
            parts.append(f"overhead {direction.overhead_bytes} bytes")
        if direction.queue_frames is not None:
            parts.append(f"queue {direction.queue_frames} frames")
        if direction.queue_bytes is not None:
            parts.append(f"queue {direction.queue_bytes} bytes")
        if direction.uplink == "network":
            parts.append("frames wait behind the host")
    if (loss := direction.loss) is not None and loss.mean_ratio:
        bursts = " in bursts" if isinstance(loss, GilbertElliottLoss) else ""
        parts.append(f"loss {loss.mean_ratio * 100:.6g}%{bursts}")
    return ", ".join(parts) or "nothing is changed"


TOOLS: Mapping[str, Callable[[Any, list[str]], str]] = {
    "iperf": iperf,
    "iperfudp": iperfudp,
    "capture": capture,
    "links": links,
}
