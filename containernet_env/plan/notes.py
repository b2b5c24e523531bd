"""What a user should read once before a plan is carried out."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from containernet_env.base.units import format_number
from containernet_env.model.config import Config
from containernet_env.model.frame_memory import frame_memory_note
from containernet_env.model.queues import MAX_FRAMES, product_frames
from containernet_env.model.topology import RttExpectation, Topology
from containernet_env.model.transfer import frames_of
from containernet_env.plan.plan import PlanOptions
from containernet_env.stores.kinds import KINDS, store_of
from containernet_env.stores.protocol import Timing

# Above this etcd's documentation advises against adding members: every write waits for more of them.
_MEMBERS_ADVISED = 7
_HEARTBEATS_SHARE = 0.5
"""Of a link's bandwidth: members send more than heartbeats when they are idle, and those in bursts."""


def notes_of(
    config: Config, options: PlanOptions, topology: Topology, timing: Timing, largest: RttExpectation | None
) -> Iterator[str]:
    """Sentences about choices that change what is measured, about a machine that is too small, limits that cannot bind,
    and settings that do not go together."""
    yield from _choice_notes(options)
    yield from _host_notes(config, options, store_of(config).title)
    if largest is not None:
        yield from timing.notes(largest)
        yield from _heartbeat_notes(topology, timing)
    yield from _link_notes(topology, options)
    yield from _queue_notes(topology)


def _choice_notes(options: PlanOptions) -> Iterator[str]:
    if options.links_core is not None:
        others = ", ".join(map(str, options.links_core.others))
        yield f"core {options.links_core.cpu} is kept for the link emulator; members, client and driver use {others}"
    if options.profile is not None:
        kinds, member = ", ".join(options.profile.kinds), options.profile.member or "the leader"
        yield f"profiles ({kinds}) of {member} are taken, which costs it time: such rows are not merged with others"


def _host_notes(config: Config, options: PlanOptions, title: str) -> Iterator[str]:
    cores = options.machine_cores
    loose = [node for node in config.hosts if node.cpus is not None and node.cpus > cores]
    total_cpus = sum((node.cpus for node in config.hosts if node.cpus is not None), Decimal(0))
    machine = f"this machine has {cores} core{'s' if cores > 1 else ''}"
    if loose:
        names = ", ".join(node.name for node in loose)
        yield f"{machine}: the cpu limit of {names} is applied but cannot bind"
    elif total_cpus > cores:
        yield f"{machine}, the cpu limits add up to {format_number(total_cpus)}: the hosts compete for cpu"
    if config.etcd.data == "tmpfs" and any(node.memory_bytes is not None for node in config.nodes):
        yield f"{title}'s data is on tmpfs: it counts against each member's memory limit"
    if KINDS[config.store.kind].section == "etcd" and len(config.nodes) > _MEMBERS_ADVISED:
        yield f"{len(config.nodes)} members: etcd advises at most {_MEMBERS_ADVISED}"


def _link_notes(topology: Topology, options: PlanOptions) -> Iterator[str]:
    directions = [side for link in topology.links for side in (link.spec.a_to_b, link.spec.b_to_a)]
    note = frame_memory_note(directions)
    if note is not None and options.links != "netem":
        yield note


def _heartbeat_notes(topology: Topology, timing: Timing) -> Iterator[str]:
    """Links that an idle leader's heartbeats alone fill, or nearly so; each of these messages is acknowledged."""
    beat, followers = timing.heartbeat, len(topology.members) - 1
    if beat is None:
        return
    members = {member.name for member in topology.members}
    taken: dict[str, float] = {}
    for link in topology.links:
        if link.a in members:
            for direction, size in ((link.spec.a_to_b, beat.message_bytes), (link.spec.b_to_a, beat.answer_bytes)):
                sent_ns = sum(direction.serialization_ns(frames_of(each)[1]) for each in (size, 0))
                taken[link.a] = max(taken.get(link.a, 0.0), followers * sent_ns / (beat.interval_ms * 10**6))
    full = {name: share for name, share in taken.items() if share >= _HEARTBEATS_SHARE}
    if full:
        names, most = ", ".join(full), max(full.values())
        fit = "do not fit" if most >= 1 else "hardly fit"
        yield (
            f"heartbeats every {beat.interval_ms} ms {fit} the link of {names}: those of a leader take "
            f"{most:.0%} of its bandwidth, so leaders may change without any load"
        )


def _queue_notes(topology: Topology) -> Iterator[str]:
    rtts_ns = topology.longest_rtts_ns()
    short = [
        link.name
        for link in topology.links
        for direction in (link.spec.a_to_b, link.spec.b_to_a)
        if direction.default_queue_frames == MAX_FRAMES
        and product_frames(rtts_ns[link.name], direction.rate_bps or 0, direction.overhead_bytes) > MAX_FRAMES
    ]
    if short:
        names = ", ".join(dict.fromkeys(short))
        yield f"the queues of {names} hold {MAX_FRAMES:,} frames, less than the bandwidth-delay product"
