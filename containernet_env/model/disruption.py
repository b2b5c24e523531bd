"""Events of a scenario: disruptions of members and links under load, their execution, and their possible effects."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from containernet_env.base.units import format_duration, format_mbps, format_number
from containernet_env.model.config import Config, ways_named
from containernet_env.model.link import FULL_FRAME_BYTES, USUAL_MAX_FRAMES, DirectionSpec, IndependentLoss
from containernet_env.model.load_result import LoadResult
from containernet_env.model.topology import Topology

Verb = Literal[
    "kill",
    "restart",
    "freeze",
    "thaw",
    "partition",
    "heal",
    "link_down",
    "link_up",
    "delay",
    "loss",
    "rate",
    "reset",
    "trace",
    "trace_end",
]
"""No file has the last three: ``reset`` restores delay, loss and rate to the values of the topology; from ``trace`` to
``trace_end``, links follow their traces."""


@dataclass(frozen=True, slots=True)
class Shaping:
    """An event that changes a property of links: the ``field`` of their directions, which is ``held`` for its value.

    ``text``: the value with its unit. ``wait_ns``: how long a frame may take more, both directions.
    """

    field: str
    held: Callable[[Any], Any]
    text: Callable[[Any], str]
    wait_ns: Callable[[Any], float]


SHAPING: Mapping[Verb, Shaping] = {
    "delay": Shaping("delay_ns", int, format_duration, lambda delay_ns: 2.0 * delay_ns),
    "loss": Shaping(
        "loss",
        lambda ratio: IndependentLoss(ratio) if ratio else None,
        lambda ratio: f"{format_number(ratio * 100)} %",
        lambda ratio: math.inf if ratio else 0.0,  # a loss of any ratio may repeat without end
    ),
    "rate": Shaping(
        "rate_bps",
        lambda rate_bps: rate_bps,
        lambda rate_bps: "unlimited" if rate_bps is None else f"{format_mbps(rate_bps)} Mbit/s",
        # A full queue of the largest default length.
        lambda rate_bps: USUAL_MAX_FRAMES * FULL_FRAME_BYTES * 8 * 1e9 / rate_bps if rate_bps else 0.0,
    ),
}
UNDOING: Mapping[Verb, Verb] = {
    "kill": "restart",
    "freeze": "thaw",
    "partition": "heal",
    "link_down": "link_up",
    **dict.fromkeys(SHAPING, "reset"),
}
"""The verb that undoes each."""
AFFECTED: dict[Verb, str] = {"restart": "killed", "thaw": "frozen", "heal": "partitioned", "link_up": "down"}
"""The target that names all members in the state which the verb ends."""
DRAWN_TARGETS = ("leader", "followers", "random")
"""The targets that are determined when the event is due."""
Cause = Literal["event", "for", "end"]
"""Why an event was executed: it is configured, the duration of its event was over, or the scenario had ended."""

Target = str | tuple[tuple[str, ...], ...]
"""One of the words above or a name; or the sets of names of a partition."""
Apart = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
"""Pairs of sets of members that are kept apart."""

_SET = " | "
_NAME_CHARACTERS = 80
_LISTED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Disruption:
    """One event as configured: once, ``at_ns`` after the start of the load, or every ``every_ns`` (the other is
    ``None``), and undone ``for_ns`` later.

    ``target`` is one of ``DRAWN_TARGETS`` or of ``AFFECTED``, or a name (see ``Targets``), or of a partition the sets
    of names that it keeps apart; without sets it keeps the members of the target apart from all others. ``value`` is
    the delay (one way, ns, each direction), the share of frames that is lost, or the rate (bit/s; ``None`` is
    unlimited) of links.
    """

    verb: Verb
    target: Target
    at_ns: int | None = None
    every_ns: int | None = None
    for_ns: int | None = None
    value: int | float | None = None

    @property
    def what(self) -> str:
        """Verb, value and target, for people: "kill leader", "delay 50ms of etcd1"."""
        value = self.value_text
        if value is not None:
            return f"{self.verb} {value} of {self.target_text}"
        return f"{self.verb.replace('_', ' ')} {self.target_text}"

    @property
    def of_links(self) -> bool:
        """Whether it affects links, so that its target may be one."""
        return self.verb in SHAPING or self.verb in ("link_down", "link_up")

    @property
    def target_text(self) -> str:
        """The target, for people: sets as "eu | us asia"."""
        return self.target if isinstance(self.target, str) else _SET.join(map(" ".join, self.target))

    @property
    def value_text(self) -> str | None:
        """The value with its unit; ``None`` where there is none."""
        return SHAPING[self.verb].text(self.value) if self.verb in SHAPING else None

    @property
    def value_name(self) -> str:
        """The name of the value, which ends in its unit; empty where there is none."""
        return SHAPING[self.verb].field if self.verb in SHAPING else ""

    def shaped(self, direction: DirectionSpec) -> DirectionSpec:
        """A direction of a link while an event of ``SHAPING`` is in force. Raises ``ValueError`` if they clash."""
        shaping = SHAPING[self.verb]
        if (trace := direction.traces.get(shaping.field)) is not None:
            raise ValueError(f"its {self.verb} follows the trace {trace.file}")
        return replace(direction, **{shaping.field: shaping.held(self.value)})

    @property
    def text(self) -> str:
        return " ".join((self.what, *self._times(" ")))

    @property
    def label(self) -> str:
        """The whole event as a part of a scenario's name."""
        value = (self.value_text or "").replace(" Mbit/s", "").replace(" %", "pc")
        target = self.target_text.replace(_SET, "_").replace(" ", "+").replace(">", "_")
        return "-".join((f"{self.verb.replace('_', '')}{value}", target, *self._times("")))

    def _times(self, gap: str) -> Iterator[str]:
        for word, time_ns in (("at", self.at_ns), ("every", self.every_ns), ("for", self.for_ns)):
            if time_ns is not None:
                yield f"{word}{gap}{format_duration(time_ns)}"


def may_hasten(disruptions: Sequence[Disruption], network: Topology, targets: Targets) -> bool:
    """Whether frames may arrive sooner while one of them is in force: by a delay or rate, or by another way.

    Each event counts at every link that it may affect.
    """

    def hastens(event: Disruption, direction: DirectionSpec) -> bool:
        shaped = event.shaped(direction)
        slowest_bps = math.inf if direction.rate_bps is None else direction.rate_bps
        return shaped.delay_ns < direction.delay_ns or (shaped.rate_bps or math.inf) > slowest_bps

    for event in disruptions:
        if event.verb == "link_down" and network.reroutes:
            return True
        names = {*(targets.named(event) or targets.members)}
        links = [link for link in network.links if names & {link.a, f"{link.a}>{link.b}", f"{link.b}>{link.a}"}]
        if event.verb in SHAPING and any(hastens(event, side) for link in links for side in link.spec.sides):
            return True
    return False


def name_of(disruptions: Sequence[Disruption]) -> str:
    """The events' part of a scenario's name: all of them, or if that is too long, their number and a digest."""
    labels = "-".join(item.label for item in disruptions)
    if len(labels) <= _NAME_CHARACTERS:
        return labels
    return f"{len(disruptions)}events-{hashlib.sha256(labels.encode()).hexdigest()[:6]}"


@dataclass(frozen=True)
class Targets:
    """What names in events stand for: a member, the members at a site or switch, or a link between switches.

    ``places`` has the members of each site or switch, ``links`` the ends of each link between them.
    """

    members: tuple[str, ...]
    places: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    links: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, config: Config) -> Targets:
        places = {
            place: tuple(node.name for node in config.nodes if place in (node.site, node.switch))
            for place in config.sites or config.switches
        }
        links = tuple((link.a, link.b) for link in config.switch_links)
        return cls(tuple(node.name for node in config.nodes), places, links)

    @property
    def of_links(self) -> tuple[str, ...]:
        """The names of the links between switches, each before its two directions."""
        return tuple(name for a, b in self.links for name in (f"{a}-{b}", f"{a}>{b}", f"{b}>{a}"))

    @property
    def names(self) -> tuple[str, ...]:
        """All that events can affect: members, then links between switches and their directions."""
        return (*self.members, *self.of_links)

    def members_of(self, name: str) -> tuple[str, ...]:
        """A member, or those of a site or switch; none of any other name."""
        return (name,) if name in self.members else self.places.get(name, ())

    def links_of(self, name: str, one_way: bool) -> tuple[str, ...]:
        """What a pair of switches stands for in ``of_links``: its link, or with ``one_way`` directions of it.

        None of any other name, nor of a link where a direction is named.
        """
        ways = ways_named(name, self.places)
        if ">" not in name:
            ways += [(b, a) for a, b in ways]
        elif not one_way:
            return ()
        made = [f"{a}{'>' if one_way else '-'}{b}" for a, b in ways]
        return tuple(name for name in self.of_links if name in made)

    def named(self, event: Disruption) -> tuple[str, ...]:
        """What the names of an event's target stand for; none where it is a word for members that are determined."""
        if not isinstance(event.target, str):
            return tuple(name for group in event.target for one in group for name in self.members_of(one))
        found = self.members_of(event.target)
        if not found and event.of_links:
            found = self.links_of(event.target, event.verb in SHAPING)
        return found

    def sets_of(self, event: Disruption, names: Sequence[str]) -> list[set[str]]:
        """The sets of members of a partition that affects ``names``; others are one more set."""
        if isinstance(event.target, str):
            return [{*(self.named(event) or names)}]
        return [{name for one in group for name in self.members_of(one)} for group in event.target]

    def apart(self, event: Disruption, names: Sequence[str]) -> Apart:
        """Which sets of members a partition that affects ``names`` keeps apart; none of any other event."""
        if event.verb != "partition":
            return ()
        sets = [tuple(name for name in self.members if name in group) for group in self.sets_of(event, names)]
        rest = tuple(name for name in self.members if not any(name in group for group in sets))
        return tuple(itertools.combinations((*sets, *([rest] if rest else [])), 2))


@dataclass(frozen=True, slots=True)
class Due:
    """An event due ``at_ns`` after the start of the load: event number ``number`` (from 0) for the
    ``occurrence``-th time (from 1), or where it has ``members`` the end of that."""

    at_ns: int
    number: int
    occurrence: int
    members: tuple[str, ...] = ()


class Timeline:
    """The schedule of the events; pure. Times are ns since the start of the load."""

    def __init__(self, disruptions: Sequence[Disruption]) -> None:
        self._disruptions = disruptions
        self._order = itertools.count()
        self._heap: list[tuple[int, int, Due]] = []
        for number, item in enumerate(disruptions):
            self._add(Due(item.at_ns if item.at_ns is not None else item.every_ns or 0, number, 1))

    def _add(self, due: Due) -> None:
        heapq.heappush(self._heap, (due.at_ns, next(self._order), due))

    @property
    def next_ns(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    @property
    def never_came(self) -> list[Due]:
        """The events that are still due for the first time."""
        return sorted(
            (due for _, _, due in self._heap if due.occurrence == 1 and not due.members), key=lambda due: due.at_ns
        )

    def pop(self) -> list[Due]:
        """All events that are due at the next moment, ends of events first; recurring events are due again later."""
        at_ns, found = self._heap[0][0], []
        while self._heap and self._heap[0][0] == at_ns:
            found.append(heapq.heappop(self._heap)[2])
        for due in found:
            every_ns = self._disruptions[due.number].every_ns
            if every_ns is not None and not due.members:
                self._add(Due((due.occurrence + 1) * every_ns, due.number, due.occurrence + 1))
        return sorted(found, key=lambda due: not due.members)

    def ends(self, due: Due, at_ns: int, members: Collection[str]) -> None:
        """Record that an event affected these members at ``at_ns``, and schedule its end if it has a duration."""
        for_ns = self._disruptions[due.number].for_ns
        if for_ns is not None and members:
            self._add(Due(at_ns + for_ns, due.number, due.occurrence, tuple(members)))


@dataclass(frozen=True, slots=True)
class ExecutedEvent:
    """An event that was executed, or should have been; a line of disruptions.jsonl has its fields.

    ``at_ns`` is on CLOCK_MONOTONIC, of several members the latest; ``since_start_ns`` is the same since the start of
    the load.
    """

    number: Annotated[int, "of the event in the scenario, from 1; 0 for traces and for undoing events at the end"]
    occurrence: Annotated[int, "how often the event had been due by then, from 1"]
    cause: Annotated[Cause, "the event itself, the end of its length, or the end of the scenario"]
    verb: Annotated[Verb, "the action; reset: delay, loss or rate are as in the topology again"]
    target: Annotated[str, "as configured"]
    value: Annotated[int | float | None, "of delay (ns), loss (ratio) or rate (bit/s; null is unlimited)"]
    members: Annotated[tuple[str, ...], "the affected members, links between switches (a-b) or directions (a>b)"]
    asked_ns: Annotated[int | None, "when it was due, since the load began; null at the end of the scenario"]
    at_ns: Annotated[int | None, "when it took effect; null if it did not"]
    since_start_ns: Annotated[int | None, "when it took effect, since the load began"]
    leader: Annotated[str | None, "the leader right before; null if there was none or it was not queried"] = None
    answered_ns: Annotated[int | None, "when a restarted member answered"] = None
    problem: Annotated[str | None, "why it failed or differed from the configuration"] = None
    apart: Annotated[Apart, "of a partition, the pairs of sets of members that it keeps apart"] = ()

    @property
    def text(self) -> str:
        """On one line, for people: "kill etcd1 at 2.001 s"."""
        who = affected_text(self.target, self.members)
        when = "" if self.since_start_ns is None else f" at {self.since_start_ns / 1e9:.3f} s"
        return f"{self.verb.replace('_', ' ')} {who}{when}" + (f": {self.problem}" if self.problem else "")

    @property
    def strikes(self) -> bool:
        """Whether it took effect and is not an undoing event."""
        return self.at_ns is not None and self.verb in UNDOING


def affected_text(target: str, names: Sequence[str]) -> str:
    """Whom an executed event affected, for people: sets as configured, else the names."""
    return target if _SET in target or not names else " ".join(names)


@dataclass(frozen=True, slots=True)
class Disruptions:
    """All executed events of one scenario, in order; ``seed`` determined the ``random`` members."""

    seed: str
    executed: tuple[ExecutedEvent, ...] = ()

    @property
    def missed(self) -> tuple[ExecutedEvent, ...]:
        """Configured events that did not happen, did not affect all their members, or did not end in time."""
        return tuple(item for item in self.executed if item.cause != "end" and (item.problem or item.at_ns is None))

    @property
    def killed(self) -> frozenset[str]:
        kills = (item for item in self.executed if item.strikes and item.verb == "kill")
        return frozenset(name for item in kills for name in item.members)

    @property
    def stopped_s(self) -> dict[str, float]:
        """By member: the longest time for which kills and freezes stopped it without a break, in real time.

        Until it was thawed, or answered after its restart; infinite if it was never undone.
        """
        stops = tuple(item for item in self.executed if item.verb in ("kill", "restart", "freeze", "thaw"))
        longest_s: dict[str, float] = {}
        latest: dict[str, tuple[int, float]] = {}
        for outage in _outages(replace(self, executed=stops)):
            name, began_ns, ended_ns = outage.member, outage.began_ns, outage.ended_ns
            if name in latest and began_ns <= latest[name][1]:
                began_ns, ended_ns = latest[name][0], max(ended_ns, latest[name][1])
            latest[name] = began_ns, ended_ns
            longest_s[name] = max(longest_s.get(name, 0.0), (ended_ns - began_ns) / 1e9)
        return longest_s

    @property
    def text(self) -> str:
        """The executed events, for people: the first few, and the number of the others."""
        happened = [item.text for item in self.executed if item.at_ns is not None and item.cause != "end"]
        more = f"; and {len(happened) - _LISTED} more" if len(happened) > _LISTED else ""
        return "; ".join(happened[:_LISTED]) + more


_BACKOFF = 2
"""TCP doubles its retransmission timeout (RFC 6298, 5.5), so a connection may stay silent for this multiple of an
outage."""
_LINKS, _ROUND_TRIPS = 2, 5
"""Links between two members; most round trips of a request over a link: one of the client, two of its member and the
leader, two of the leader and another member."""


@dataclass(frozen=True, slots=True)
class Outage:
    """One ``member``, or a link between switches, from ``began_ns`` until ``ended_ns`` (infinite if nothing ended it).

    ``wait_ns`` is how much longer an answer over the member's link, or that link, may take: infinite where none may
    come; of a direction of a link, the other one may take as long. ``others`` are those to whom, ``None``: to all.
    ``unplugged``: the link is down.
    """

    member: str
    killed: bool
    unplugged: bool
    began_ns: int
    ended_ns: float
    wait_ns: float
    others: tuple[str, ...] | None = None

    @property
    def one_way(self) -> bool:
        return ">" in self.member

    def between(self, leader: str) -> tuple[str, ...]:
        """The members and links whose frames from and to ``leader`` take ``wait_ns`` longer."""
        if self.member == leader and self.others is not None:
            return self.others
        return (self.member,) if self.others is None or leader in self.others else ()


Crossed = Callable[[str, str, Collection[str]], Collection[str]]
"""The names of the links, and of their directions, that frames take between two members, there and back, while some
links are down."""


def explains_election(
    done: Disruptions, leader: str, members: Collection[str], crossed: Crossed, election_ns: int
) -> bool:
    """Whether the leader at the start was killed, or kept from a majority of ``members`` for long enough to lose its
    lead, before an event found another leader."""
    outages = list(_outages(done))
    changed_ns = min(
        (
            item.since_start_ns
            for item in done.executed
            if item.since_start_ns is not None and item.leader not in (None, leader)
        ),
        default=math.inf,
    )
    return any(
        outage.began_ns < changed_ns and _ends_lead(outage, leader, outages, members, crossed, election_ns)
        for outage in outages
    )


def failures_explained(load: LoadResult | None, done: Disruptions | None, election_ns: int, timeout_ns: int) -> bool:
    """Whether events can have caused every failed request of a load that ran to its end.

    Requests that have ``timeout_ns`` may fail from the begin of the first outage on. The store's own
    recovery may take longer: a restarted etcd member has left reads unanswered until the next election. Wrong answers
    are never explained.
    """
    if done is None or load is None or load.reason is not None or load.wrong_answers or not load.ok:
        return False
    begins_ns = [
        outage.began_ns
        for outage in _outages(done)
        if _LINKS * outage.wait_ns >= election_ns or _ROUND_TRIPS * outage.wait_ns * (1 + outage.one_way) >= timeout_ns
    ]
    return bool(begins_ns) and not load.bad_before(min(begins_ns))


def _ends_lead(
    new: Outage, leader: str, outages: Sequence[Outage], members: Collection[str], crossed: Crossed, election_ns: int
) -> bool:
    """Whether the leader at the beginning of an outage can have lost its lead by it and the outages in force."""
    if new.killed and new.member == leader:
        return True
    until_ns = new.began_ns + election_ns / _BACKOFF
    waits_ns: dict[str, float] = defaultdict(float)
    for outage in outages:
        if outage.began_ns <= new.began_ns and outage.ended_ns >= until_ns:
            for name in outage.between(leader):
                waits_ns[name] += outage.wait_ns
    down = {outage.member for outage in outages if outage.unplugged and outage.member in waits_ns} - {*members}
    lost = sum(
        sum(waits_ns.get(name, 0.0) for name in {leader, member, *crossed(leader, member, down)}) >= election_ns
        for member in members
        if member != leader
    )
    return 2 * (len(members) - lost) <= len(members)


def _outages(done: Disruptions) -> Iterator[Outage]:
    items = sorted(
        ((item.since_start_ns, item) for item in done.executed if item.since_start_ns is not None), key=lambda x: x[0]
    )
    for index, (began_ns, item) in enumerate(items):
        if item.strikes:
            own_ns = SHAPING[item.verb].wait_ns(item.value) if item.verb in SHAPING else math.inf
            for name in item.members:
                ends = (_end_ns(item, name, at_ns, later) for at_ns, later in items[index + 1 :])
                ended_ns = next((end_ns for end_ns in ends if end_ns is not None), math.inf)
                yield Outage(
                    name,
                    killed=item.verb == "kill",
                    unplugged=item.verb == "link_down",
                    began_ns=began_ns,
                    ended_ns=ended_ns,
                    wait_ns=own_ns / 2 if ">" in name else own_ns,
                    others=_others(item, name),
                )


def _others(item: ExecutedEvent, member: str) -> tuple[str, ...] | None:
    """The members from whom an event keeps one apart; ``None`` is all."""
    sides = [way for pair in item.apart for way in (pair, pair[::-1])]
    return tuple(name for here, there in sides if member in here for name in there) if item.apart else None


def _end_ns(item: ExecutedEvent, member: str, at_ns: int, later: ExecutedEvent) -> int | None:
    """When ``later`` ended the effect of ``item`` on a member; ``None`` if it did not."""
    if member not in later.members or later.at_ns is None or later.problem:
        return None
    if _SET in item.target:
        # It ends as a whole, whatever else affects some of its members.
        if later.verb != "heal" or not (
            later.cause == "end" or later.target == AFFECTED["heal"] or _is_own(item, later)
        ):
            return None
    elif later.verb == item.verb or (item.verb, later.verb) == ("freeze", "kill"):
        return at_ns  # from then on the later event is the cause
    if later.verb != UNDOING[item.verb]:
        return None
    if later.verb == "reset" and later.cause != "end" and not _is_own(item, later):
        return None
    return at_ns if later.answered_ns is None else at_ns + later.answered_ns - later.at_ns


def _is_own(item: ExecutedEvent, later: ExecutedEvent) -> bool:
    return (later.number, later.occurrence) == (item.number, item.occurrence)
