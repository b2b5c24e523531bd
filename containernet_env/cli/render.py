"""How a topology and a plan look in a terminal: aligned, short, nothing that a pipe would garble."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, permutations
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from containernet_env.base.units import (
    about_duration,
    describe_size,
    format_duration,
    format_ms,
    format_number,
    format_size,
)
from containernet_env.cli.terminal import clients_text, table
from containernet_env.config.plan import HostPlan, Plan
from containernet_env.model.config import Node
from containernet_env.model.link import Hop, Link, LinkSpec
from containernet_env.model.names import listed
from containernet_env.model.proof import directions_text
from containernet_env.model.scenario import NEAREST, Scenario
from containernet_env.model.topology import PROBE_FRAME_BYTES, RttExpectation, Topology
from containernet_env.network.gate import plan_for
from containernet_env.report.network import groups_of, matrix_of
from containernet_env.results import capacity
from containernet_env.results.capacity import Carried, by_emulator, carried, helps_text, rounded
from containernet_env.runs import machine
from containernet_env.stores.kinds import KINDS

_INDENT = 2


def render_topology(plan: Plan, console: Console, *, links: bool = True) -> None:
    """Print the output of `check`: hosts and limits, links with further settings, expected RTTs, etcd's timing."""
    members, places, clients = len(plan.config.nodes), len(plan.switches), clients_text(len(plan.config.clients))
    on, kind = ("at", "sites") if plan.config.sites else ("on", "switches")
    where = f"{on} {places} {kind}" if places > 1 else f"on {plan.switches[0]}"
    _say(
        console,
        f"{plan.config.path}: {members} member{'s' if members > 1 else ''} and {clients} {where}, {plan.config.subnet}",
    )
    render_section(console, "Hosts", _hosts_table(plan))
    title = f"Expected RTT in ms: delays there and back, and a probe of {PROBE_FRAME_BYTES} bytes at each rate"
    render_section(console, title, _rtt_table(plan, console.width - _INDENT))
    # As the config has it: the plan's links have a queue limit of their own.
    if links and any(_says_more(host.link) for host in plan.config.hosts):
        render_section(console, "Links", _links_table(plan.links))
    elif links and places > 1:
        render_section(console, f"Links between {kind}", _links_table(plan.topology.between))
    if places > 1:
        render_section(console, f"Paths between {kind}", *_paths(plan.topology))
    lines = [plan.timing.long, f"data on {plan.config.etcd.data}"]
    if plan.config.etcd.leader is not None:
        lines.append(f"leadership is moved to {plan.config.etcd.leader} before each scenario")
    render_section(console, plan.store.name, *lines)


def render_plan(plan: Plan, console: Console) -> None:
    """Print the whole plan, as `run --dry-run` does: nothing of it has been created."""
    render_topology(plan, console, links=False)
    render_section(console, "Containers", _containers_table(plan), *_shared_settings(plan.hosts))
    switches = "" if plan.options.switches == "auto" else f", switches: {plan.options.switches}"
    links_by = "netem" if plan.options.links == "netem" else f"emulator, seed {plan.options.seed}"
    if plan.options.engine == "containernet":
        links_by = "TCLink of the original Containernet"
    render_section(console, f"Links ({links_by}{switches})", _links_table(plan.links))
    members = [host for host in plan.hosts if host.role == "member"]
    render_section(console, f"{plan.store.name} flags", *_flag_lines(members))
    render_scenarios(plan, console)


def render_scenarios(plan: Plan, console: Console) -> None:
    """Print the measurements, if there are any."""
    if plan.scenario_set is not None:
        render_section(console, f"Scenarios ({_shown(plan.scenario_set.document.path)})", _scenarios_table(plan))


def render_summary(plan: Plan, console: Console) -> None:
    """Print the last lines of both: the number of measurements, an estimate of their duration, and notes."""
    if plan.scenario_set is not None:
        count, clusters = len(plan.scenarios), len(plan.cluster_ends)
        console.print()
        _say(
            console,
            f"{count} scenario{'s' if count > 1 else ''} from {_shown(plan.scenario_set.document.path)}"
            f"{f' on {clusters} clusters, one after the other' if clusters > 1 else ''}, "
            f"about {about_duration(plan.estimated_s)} with bring-up and tear-down",
        )
    for note in plan.notes:
        _say(console, f"Note: {note}.")


def render_section(console: Console, title: str, *contents: Table | str) -> None:
    """Print a section of tables and plain lines."""
    console.print()
    console.print(Text(title, style="bold"), soft_wrap=True)
    for content in contents:
        if isinstance(content, str):
            _say(console, content, _INDENT)
        else:
            console.print(Padding(content, (0, 0, 0, _INDENT), expand=False))


def _says_more(link: LinkSpec) -> bool:
    """Whether the hosts' table leaves something of a link unsaid."""
    return link.a_to_b != link.b_to_a or any(set(side.words) - {"delay", "bandwidth"} for side in link.sides)


_MOST_PATHS = 60


def _paths(topology: Topology) -> Iterator[Table | str]:
    ends = list(permutations(topology.switches, 2))
    paths = {pair: hops for pair in ends if len(hops := topology.hops(*pair)) > 1}
    # The way back is not shown again where it is the same.
    shown = [hops for (a, b), hops in paths.items() if a < b or not _is_back(hops, paths.get((b, a)))]
    if shown:
        yield f"by the {'fewest links' if topology.is_direct else 'least delay'}; the others have a link of their own:"
        yield from _first_paths([((), hops) for hops in shown])
    else:
        yield "all have a link of their own"
    if topology.reroutes:
        yield "while a link is down, frames take the best path without it (reroute):"
        down = [((link.name,), topology.hops(link.a, link.b, [link.name])) for link in topology.between]
        yield from _first_paths(down, "down")
    else:
        yield "while a link is down, frames that would take it are lost"


def _first_paths(paths: Sequence[tuple[Sequence[str], Sequence[Hop]]], *headings: str) -> Iterator[Table | str]:
    """At most ``_MOST_PATHS``, each with more cells before it; one of a single link is where there is no other way."""
    shown = table(*headings, "from", "to", "over", ">delay")
    for cells, hops in paths[:_MOST_PATHS]:
        over, delay = " ".join(hop.receiver for hop in hops[:-1]), sum(hop.spec.delay_ns for hop in hops)
        there = (over, format_duration(delay)) if over else ("no other way", "lost")
        shown.add_row(*cells, hops[0].sender, hops[-1].receiver, *there)
    yield shown
    if len(paths) > _MOST_PATHS:
        yield f"and {len(paths) - _MOST_PATHS} more"


def _is_back(hops: Sequence[Hop], others: Sequence[Hop] | None) -> bool:
    """Whether others are the same way in the opposite direction, and take as long."""
    return others is not None and [(hop.sender, hop.receiver, hop.spec.delay_ns) for hop in hops] == [
        (hop.receiver, hop.sender, hop.spec.delay_ns) for hop in reversed(others)
    ]


def _hosts_table(plan: Plan) -> Table:
    places = ["site"] * bool(plan.config.sites) or ["switch"] * bool(plan.config.switches)
    syncs = [">fsync"] * any(node.fsync_ns is not None for node in plan.config.nodes)
    shown = table("host", *places, "address", ">cpus", ">memory", *syncs, ">bandwidth", ">delay")
    for node in plan.config.hosts:
        shown.add_row(
            node.name,
            *[node.site or node.switch or ""] * len(places),
            f"{node.ip}",
            "unlimited" if node.cpus is None else format_number(node.cpus),
            "unlimited" if node.memory_bytes is None else describe_size(node.memory_bytes),
            *[_fsync(node) if node in plan.config.nodes else ""] * len(syncs),
            _both_ways(node.link, "bandwidth"),
            _both_ways(node.link, "delay"),
        )
    return shown


def _fsync(node: Node) -> str:
    return "as here" if node.fsync_ns is None else format_duration(node.fsync_ns)


def _both_ways(link: LinkSpec, name: str) -> str:
    to_switch, from_switch = (_property(side.words, name) for side in (link.a_to_b, link.b_to_a))
    return to_switch if to_switch == from_switch else "see Links"


def _property(words: Mapping[str, str], name: str) -> str:
    """A property of a direction; the usual value where it has none of its own."""
    return words.get(name, {"delay": "0ms", "bandwidth": "unlimited"}.get(name, "-"))


def _rtt_table(plan: Plan, width: int) -> Table:
    names = [host.name for host in plan.topology.hosts]
    # A column is as wide as its heading or its figure, and two spaces lie between columns.
    figure = max(len(format_ms(pair.expected_ns)) for pair in plan.rtt)
    needed = max(map(len, names)) + sum(2 + max(len(name), figure) for name in names[1:])
    if needed > width:
        return _rtt_of_places(plan) or _rtt_groups(plan.rtt)
    by_pair = {(pair.a, pair.b): format_ms(pair.expected_ns) for pair in plan.rtt}
    shown = table("", *(f">{name}" for name in names[1:]))
    for row in names[:-1]:
        # RTT has no direction: the upper half is sufficient.
        shown.add_row(row, *(by_pair.get((row, column), "") for column in names[1:]))
    return shown


_MOST_GROUPS = 12


def _rtt_of_places(plan: Plan) -> Table | None:
    """Every pair of places, both ways apart, where there are several places and not too many."""
    if len(plan.switches) == 1 or len(groups_of(plan.topology)) > _MOST_GROUPS:
        return None
    shown = table("from", "to", ">ms", ">there", ">back")
    for a, b, *ways in matrix_of(plan.topology).numbers():
        shown.add_row(a, b, *ways[:3])
    return shown


def _rtt_groups(pairs: Sequence[RttExpectation]) -> Table:
    """For more hosts than a matrix has room for: each RTT once, with how many pairs have it."""
    counts = Counter(pair.expected_ns for pair in pairs)
    examples = {pair.expected_ns: pair for pair in reversed(pairs)}
    shown = table(">ms", ">pairs", "for example")
    for expected_ns, count in sorted(counts.items()):
        example = examples[expected_ns]
        shown.add_row(format_ms(expected_ns), str(count), f"{example.a} - {example.b}")
    return shown


def _containers_table(plan: Plan) -> Table:
    shown = table("container", "image", ">memory=swap", ">cpu quota, us", ">GOMEMLIMIT")
    for host in plan.hosts:
        quota = "-" if host.cpu_quota_us is None else f"{host.cpu_quota_us}/{host.cpu_period_us}"
        shown.add_row(
            f"cnenv-{plan.run_id}-{host.name}",
            host.image,
            "-" if host.memory_bytes is None else format_size(host.memory_bytes),
            quota,
            host.environment.get("GOMEMLIMIT", "-"),
        )
    return shown


def _shared_settings(hosts: Sequence[HostPlan]) -> list[str]:
    lines = [f"in every host: TCP congestion control {hosts[0].tcp_congestion_control}"]
    mounts = {
        ("every member" if host.role == "member" else "the client", path, options): None
        for host in hosts
        for path, options in host.tmpfs.items()
    }
    lines.extend(f"in {where}: tmpfs on {path} ({options})" for where, path, options in mounts)
    return lines


def _links_table(links: Iterable[Link]) -> Table:
    """Every direction of every link; of rare properties, only the columns that have values."""
    directions = [(hop.sender, hop.receiver, hop.spec.words) for link in links for hop in link.hops]
    places = {name: place for _, _, words in directions for place, name in enumerate(words)}
    names = dict.fromkeys(("delay", "bandwidth", *sorted(places, key=lambda name: places[name])))
    shown = table("from", "to", *(f">{name}" if name in _AT_RIGHT else name for name in names))
    for a, b, words in directions:
        shown.add_row(a, b, *(_property(words, name) for name in names))
    return shown


_AT_RIGHT = frozenset({"delay", "bandwidth", "queue", "overhead", "seed"})


def _flag_lines(members: list[HostPlan]) -> list[str]:
    """The flags that all members share, then those that differ for each."""
    shared = [flag for flag in members[0].command if all(flag in member.command for member in members)]
    own = [] if len(members) == 1 else members
    parts = ([f"{one.name}:", *(f"  {flag}" for flag in one.command if flag not in shared)] for one in own)
    return [*shared, *chain.from_iterable(parts)]


def _scenarios_table(plan: Plan) -> Table:
    """Those of the first repetition: a thousand of them would be as many identical tables."""
    shown = table(">#", "scenario", ">requests", ">clients", ">conns", ">about")
    first = plan.once
    for number, planned in enumerate(first, start=1):
        scenario = planned.scheduled.scenario
        if planned.loads_dataset:
            shown.add_row("", f"load {plan.dataset.keys} keys of the data set, unmeasured", "", "", "", "")
        shown.add_row(
            str(number),
            scenario.name,
            *(["", "", ""] if scenario.parts else _size(scenario)),
            about_duration(planned.estimated_s),
        )
        for part in scenario.parts:
            near = f" to {part.member}" if part.target == NEAREST else ""
            shown.add_row("", f"  {part.client}{near}", *_size(part), "")
    if plan.options.repeat > 1:
        shown.add_row("", f"{plan.options.repeat} repetitions of these", "", "", "", "")
    return shown


def _size(scenario: Scenario) -> tuple[str, str, str]:
    length = str(scenario.total) if scenario.duration_ns is None else f"for {format_duration(scenario.duration_ns)}"
    if scenario.search is not None:
        length = f"search {scenario.search.text}"
    return length, str(scenario.clients), str(scenario.conns)


def _shown(path: Path) -> str:
    relative = os.path.relpath(path)
    return str(path) if relative.startswith(os.pardir) else relative


def _say(console: Console, text: str, indent: int = 0) -> None:
    # Plain text: names and paths may contain characters that rich interprets as markup.
    console.print(Text(" " * indent + text), soft_wrap=True)


_TOO_SMALL = {
    "machine": "up to {wanted} of this machine's {has} cores; above {enough}, hosts wait",
    "links": "{wanted} cores for the link emulator; above {enough} of its one core, frames wait",
    "generator": "{wanted} cores for the load generator; above {enough} of its one core, it sets the rate",
    "client": "{wanted} cores for the client's host, which is limited to {has}",
}


def render_machine(plan: Plan, console: Console) -> None:
    """Print this machine's resources, and whether the plan's scenarios fit it, as far as its last runs show."""
    key = machine.key()
    known, note = capacity.read(key)
    memory = machine.memory_bytes(), machine.memory_available_bytes()
    lines = machine_lines(plan, carried(plan, known), key.cpu_model, *memory)
    render_section(console, "This machine", *lines, *([] if note is None else [note]))


def machine_lines(
    plan: Plan, carries: Carried, cpu_model: str, memory_bytes: int, available_bytes: int | None
) -> Iterator[str]:
    """The lines of the section; ``available_bytes`` is ``None`` if the kernel does not report it."""
    cores = plan.options.machine_cores
    kept = ", one of them for the link emulator" if plan.options.links_cpu is not None else ""
    yield f"{cores} core{'s' if cores > 1 else ''} ({cpu_model}){kept}"
    limits = sum(host.memory_bytes or 0 for host in plan.hosts)
    available = memory_bytes if available_bytes is None else available_bytes
    sums = f", the limits add up to {describe_size(limits)}" if limits else ""
    yield f"{_gib(available)} of {_gib(memory_bytes)} GiB of memory are free{sums}"
    if limits > available:
        yield "  hosts that use theirs may be killed: lower limits or more memory would help"
    if carries.sync_s is not None:
        yield f"an fdatasync takes {carries.sync_s * 1e3:.2f} ms ({plan.config.etcd.data})"
    if (slow := carries.slow_sync) is not None:
        scenario, floor_s = slow
        yield f"  of the {floor_s * 1e3:.2f} ms that {scenario.name} takes at least;"
        section = KINDS[plan.store.name].section
        yield f'  with a faster disk, or "data": "tmpfs" in "{section}", it measures less of the disk'
    if carries.forwarding is not None:
        frames_per_s, frame_bytes = plan.dilation * carries.forwarding[0], carries.forwarding[1]
        size = f"{rounded(frames_per_s * frame_bytes * 8 / 1e6)} Mbit/s in frames of {frame_bytes:.0f} bytes"
        yield f"the links carry about {rounded(frames_per_s)} frames/s, {size}"
    yield from _unproved(plan)
    yield from _scenarios(plan, carries)


def _unproved(plan: Plan) -> Iterator[str]:
    """The parts that a run's proof of the network leaves out: the same gate is planned, so unsupported ones fail
    here."""
    left_out = plan_for(plan.topology, "emulator" if by_emulator(plan) else "netem", dilation=plan.dilation).left_out
    reasons: dict[tuple[str, str], list[str]] = {}
    for (direction, prop), why in left_out.items():
        reasons.setdefault((prop, why), []).append(direction)
    for (name, why), directions in reasons.items():
        yield f"the {name} of {directions_text(directions)} cannot be proved: {why}"


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f}"


def _scenarios(plan: Plan, carries: Carried) -> Iterator[str]:
    short = dict.fromkeys(shortage.scenario.name for shortage in carries.shortages)
    count = len(carries.fit) + len(carries.unknown) + len(short)
    if not count:
        return
    if not by_emulator(plan):
        yield "what requests cost is known for links by the emulator alone"
        return
    if len(carries.unknown) == count:
        yield "whether it carries the scenarios is not known: nothing like them was measured here yet;"
        yield "`containernet-env run --quick CONFIG OUT` measures what requests cost"
        return
    if len(carries.fit) == count:
        yield f"it carries {'the scenario' if count == 1 else f'all {count} scenarios'}"
        return
    yield f"it carries {len(carries.fit)} of {count} scenario{'s' if count > 1 else ''}; of the others"
    for resource, group in groupby(carries.shortages, key=lambda one: one.resource):
        shortages = list(group)
        worst = shortages[0]
        words = _TOO_SMALL[resource].format(
            wanted=f"{math.ceil(worst.wanted * 10) / 10:.1f}",
            has=f"{worst.has:g}",
            enough=f"{math.floor(worst.enough * 10) / 10:.1f}",
        )
        yield f"  {len(shortages)} would take {words}:"
        yield f"    {listed([one.scenario.name for one in shortages], 1)}; {helps_text(worst)}"
    if carries.unknown:
        yield f"  {len(carries.unknown)} cannot be estimated, since nothing like them was measured here yet:"
        yield f"    {listed([scenario.name for scenario in carries.unknown], 1)}"
