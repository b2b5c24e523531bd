"""Executes the events of one scenario on its own thread, and reverts all of them at the end."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from containernet_env.base import clock
from containernet_env.base.errors import ContainernetEnvError, RunError, resource_errors, text_of
from containernet_env.containernet.testbed_network import TestbedNetwork
from containernet_env.model.disruption import (
    AFFECTED,
    SHAPING,
    UNDOING,
    Cause,
    Disruption,
    Disruptions,
    Due,
    ExecutedEvent,
    Targets,
    Timeline,
    Verb,
)
from containernet_env.model.link import DirectionSpec, Link
from containernet_env.stores.cluster import Broken, Cluster

if TYPE_CHECKING:
    from containernet_env.containernet.docker import ContainerHost

Call = Callable[[], None]
"""Performs one action and stores its own result; must not raise."""


def at_once(links: Sequence[Call], signals: Sequence[Call], links_at_once: bool, due_ns: int) -> None:
    """Make all calls at ``due_ns`` (monotonic), or now if that has passed; returns when all have returned.

    Each of ``links`` has its own thread, started before: they do not wait for each other's answers.
    ``signals`` take microseconds, in sequence. ``links_at_once``: calls of ``links`` take effect when they begin, so
    signals follow at once; otherwise they take effect when they return, so signals wait for that.
    """
    go = clock.Event()

    def wait_for(call: Call) -> None:
        go.wait()
        call()

    threads, rest = [], list(links)
    with suppress(RuntimeError):  # no thread can be started: the remaining acts run here, in sequence
        while rest:
            thread = clock.Thread(target=wait_for, args=(rest[0],), name="event", daemon=True)
            thread.start()
            threads.append(thread)
            del rest[0]
    while (left_ns := due_ns - clock.monotonic_ns()) > 0:
        clock.sleep(left_ns / 1e9)
    go.set()
    for call in rest:
        call()
    if links_at_once:
        for call in signals:
            call()
    for thread in threads:
        thread.join()
    if not links_at_once:
        for call in signals:
            call()


@dataclass(eq=False)
class Faults:
    """The actions on ``members``, and on links; those that take effect return when (CLOCK_MONOTONIC, ns). Raises
    ``RunError``.

    ``partition`` keeps sets of members apart, replacing an earlier partition, and ``heal`` ends it; all other hosts
    reach each other.
    ``targets`` is what names stand for; ``links`` are the plan's, of which ``traced`` are those that have traces.
    ``links_at_once``: whether a change of a link takes effect when its call begins, as with the emulator, or when it
    returns. ``give_up`` receives why the testbed cannot be restored: no further measurement on it is possible then.
    ``dilation``: how many times slower than real time links and events run.
    """

    _net: TestbedNetwork
    _hosts: Mapping[str, ContainerHost]
    _links: Sequence[Link]
    targets: Targets
    restart: Callable[[str, Callable[[], None], Broken], int]
    give_up: Callable[[str], None]
    dilation: int = 1

    def __post_init__(self) -> None:
        # By what events affect (a member, a link, one of its directions): the link, and its directions that are meant.
        self._sides: dict[str, tuple[Link, tuple[str, ...]]] = {}
        for link in self._links:
            names = [link.name, *([link.a] if link.a in self.targets.members else [])]
            self._sides |= dict.fromkeys(names, (link, ("a_to_b", "b_to_a")))
            self._sides[f"{link.a}>{link.b}"] = link, ("a_to_b",)
            self._sides[f"{link.b}>{link.a}"] = link, ("b_to_a",)
        self.traced = [link for link in self._links if any(side.traces for side in link.spec.sides)]
        self._changing = {link.name: clock.Lock() for link in self._links}
        self.links_at_once: bool = self._net.links_kind == "emulator"
        self.partition, self.heal = self._net.partition, self._net.heal

    def set_link_up(self, name: str, up: bool) -> int:
        """Unplug a member's link or a link between switches, or plug it in."""
        link, _ = self._sides[name]
        return self._net.set_link_up(link.a, link.b, up)

    def shape(self, name: str, event: Disruption) -> int:
        """Give a member's link, or a direction between switches, the delay, loss or rate of an event."""
        return self._change(name, [event.verb], event.shaped)

    def unshape(self, name: str, verbs: Sequence[Verb]) -> int:
        """Reset these of delay, loss and rate to the topology's values; when (monotonic, ns)."""
        return self._change(name, verbs, lambda planned: planned)

    def _change(self, name: str, verbs: Sequence[Verb], value: Callable[[DirectionSpec], DirectionSpec]) -> int:
        (link, sides), fields = self._sides[name], [SHAPING[verb].field for verb in verbs]
        specs = {side: value(getattr(link.spec, side)) for side in sides}
        changes = {side: {field: getattr(spec, field) for field in fields} for side, spec in specs.items()}
        with self._changing[link.name]:  # which several events, and both directions, may want at one moment
            return self._net.link_between(link.a, link.b).change_directions(changes, self.dilation)

    def follow(self, start_ns: int | None, of: str | None = None) -> int:
        """Have the links follow their traces, which began at ``start_ns``, or none; only that of a host, ``of``."""
        links = [self._net.link_between(link.a, link.b) for link in self.traced if of in (None, link.a)]
        return max((link.follow(start_ns) for link in links), default=0)

    def signal(self, verb: Verb, member: str) -> int:
        """Freeze, thaw or kill a member's first process; when (monotonic, ns)."""
        host = self._hosts[member]
        return {"freeze": host.freeze, "thaw": host.thaw, "kill": host.kill}[verb]()

    def wait_frozen(self, member: str, frozen: bool) -> None:
        self._hosts[member].wait_frozen(frozen)

    def check(self, name: str) -> None:
        """Raise ``RunError`` unless this link is up in the system and has the topology's values.

        Each change was read back when made; this checks that all were reverted.
        """
        planned, _ = self._sides[name]
        link = self._net.link_between(planned.a, planned.b)
        if not link.statistics()["up"]:
            raise RunError(f"the link {planned.name} is down")
        if link.spec != planned.spec:
            raise RunError(f"the link {planned.name} is {link.spec}, not {planned.spec}")


START_POLL_S = 0.02
"""Poll interval for the start of the load."""
LEAD_NS = 100_000_000
"""Lead time before an event at which its members are resolved, above all the leader."""
LEADER_TIMEOUT_S, LEADER_TIMEOUT_MAX_S = 0.08, 1.0
"""Initial and maximum timeout for members to report the leader: a member on a fifth of a core may need long."""
_LEADER_POLL_S = 0.02
_UNDOES_AT_ONCE: frozenset[Verb] = frozenset({"thaw", "link_up"})
"""The verbs that undo an event of each member by itself, and within their own call."""
# An event is this late if there was no leader when it was due, or the machine is overloaded.
_LATE_NS = 10_000_000
_ANSWER_S = 1.0
# Time limit for them to notice that their result is no longer awaited.
_ABANDON_S = 15.0


@dataclass
class _Act:
    """The actions on some members at one moment, for one event or the end of one."""

    event: Disruption
    verb: Verb
    due: Due
    cause: Cause
    members: tuple[str, ...] = ()
    links: list[Call] = field(default_factory=list)
    signals: list[Call] = field(default_factory=list)
    times_ns: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Disruptor:
    """Call ``start`` when the load is sent, and ``end`` when its answer arrives or an exception is raised.

    ``seed``: for the random choice of members. ``began_ns`` returns the start of the load (CLOCK_MONOTONIC), ``None``
    before. ``report`` receives every action at once, on another thread. ``broken``: why waiting is pointless.
    """

    _events: Sequence[Disruption]
    _seed: str
    _faults: Faults
    _cluster: Cluster[Any]
    _began_ns: Callable[[], int | None]
    _report: Callable[[ExecutedEvent], None]
    _broken: Broken

    def __post_init__(self) -> None:
        self._random = random.Random(self._seed)
        self._timeline = Timeline(self._events)
        # Active disruptions: the members with that effect, by the verb that undoes it. Those with ``reset`` stay until
        # the end, also after a link was reset, since it may have been recreated just then.
        self._struck = defaultdict[Verb, set[str]](set)
        self._shaped = defaultdict[str, set[Verb]](set)  # by member: how its link was shaped
        # By the event that made it, the sets of a partition; all other members are one more set. Of several partitions,
        # members reach each other that are in one set of each.
        self._parted: dict[tuple[int, int], list[set[str]]] = {}
        self._unconnected: set[str] = set()  # members that were killed, and have no link yet
        self._latest: dict[tuple[Verb, str], tuple[int, int]] = {}  # the occurrence that last did that to a member
        self._touched: set[str] = set()
        self._start_ns: int | None = None
        self._executed: list[ExecutedEvent] = []
        self._lock = clock.Lock()
        self._over = clock.Event()
        self._ended_s: float | None = None
        self._abandoned = False
        self._crash: str | None = None
        self._why_down: dict[str, str] = {}
        # A partition is resolved and made as one.
        self._parting = clock.Lock()
        self._tracing = clock.Lock()
        self._traces_ns: int | None = None  # since when links follow their traces
        self._restarts: list[clock.Thread] = []
        self._thread = clock.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin; raises ``RunError`` if no thread can be started."""
        with resource_errors():
            self._thread.start()

    def end(self, whole: bool = True) -> Disruptions:
        """Revert everything that is still active, and return the executed actions.

        ``whole``: the testbed is used further, so dead members are restarted and have to answer; if a member or link
        cannot be restored, the testbed is given up. Otherwise only the instantaneous actions are reverted. Never
        raises.
        """
        self._over.set()
        self._ended_s = clock.monotonic()
        self._abandoned = not whole
        if self._thread.is_alive():
            self._thread.join()
        for due in self._timeline.never_came:
            event = self._events[due.number]
            self._note(_Act(event, event.verb, due, "event", problems=["the load had ended"]), None)
        problems = [] if self._crash is None else [self._crash]
        if self._traces_ns is not None:
            problems += self._trace("trace_end", None)
        problems += self._undo_at_end(whole)
        for thread in self._restarts:
            thread.join(None if whole else _ABANDON_S)
        if whole:
            problems += [
                f"{name} is still down: {self._why_down.get(name)}" for name in sorted(self._struck["restart"])
            ]
            for name in sorted(self._touched):
                try:
                    self._faults.check(name)
                except RunError as error:
                    problems.append(text_of(error))
            if not problems and self._touched and not self._answer_again():
                problems.append("not every member answers")
            if problems and self._broken() is None:
                self._faults.give_up(f"after the events of the scenario: {'; '.join(problems)}")
        with self._lock:
            return Disruptions(self._seed, tuple(self._executed))

    def _answer_again(self) -> bool:
        """Whether every living member answers a consistent read before it is given up; without a quorum none will."""
        while self._given_up() is None and self._cluster.has_quorum():
            if self._cluster.answers(_ANSWER_S + self._cluster.waits.request_s):
                return True
        return False

    # --- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as error:  # noqa: BLE001 - reported at the end; active actions are reverted
            self._crash = text_of(error)

    def _follow(self) -> None:
        while (start_ns := self._began_ns()) is None:
            if self._over.wait(START_POLL_S):
                return
        self._start_ns = start_ns
        if self._faults.traced:
            self._trace("trace", start_ns)
        while (next_ns := self._timeline.next_ns) is not None:
            if self._over.wait(max(0, start_ns + next_ns - LEAD_NS - clock.monotonic_ns()) / 1e9):
                return
            self._carry_out(self._timeline.pop(), start_ns + next_ns)

    def _trace(self, verb: Verb, start_ns: int | None) -> list[str]:
        """Have all links follow their traces, or none; the problems, which are noted."""
        names = tuple(link.name for link in self._faults.traced)
        cause: Cause = "event" if verb == "trace" else "end"
        act = _Act(Disruption(verb=verb, target=" ".join(names)), verb, Due(0, -1, 1), cause, names)
        with self._tracing:
            self._traces_ns = start_ns
            _kept(act, partial(self._faults.follow, start_ns))
        self._note(act, None)
        return act.problems

    def _carry_out(self, group: Sequence[Due], due_ns: int) -> None:
        acts = [self._act(due) for due in group]
        leader = self._leader(needed=any(act.cause == "event" and _by_leader(act.event) for act in acts))
        for act in acts:
            if act.cause == "event":
                act.members = self._targets(act, leader)
        self._fire([act for act in acts if act.members], due_ns)
        for act in acts:
            if not act.members and act.cause == "event":
                act.problems.append(
                    "there was no leader" if leader is None and _by_leader(act.event) else "there was none"
                )
            if act.members or act.problems:
                self._note(act, leader)

    def _act(self, due: Due) -> _Act:
        event = self._events[due.number]
        if not due.members:
            return _Act(event, event.verb, due, "event")
        verb = UNDOING[event.verb]
        # An effect that a later event has applied to a member by now ends with that later event.
        still, own = self._struck_by(verb), (due.number, due.occurrence)
        if event.verb == "partition" and own in self._parted and len(self._parted[own]) > 1:
            return _Act(event, verb, due, "for", due.members)  # sets end as a whole
        members = (name for name in due.members if name in still and self._latest[event.verb, name] == own)
        return _Act(event, verb, due, "for", tuple(members))

    def _leader(self, needed: bool) -> str | None:
        """The current leader; if one is ``needed``, waits until there is one or the scenario has ended."""
        timeout_s = LEADER_TIMEOUT_S
        while True:
            leader = self._cluster.leader_now(timeout_s, self._struck["restart"] | self._struck["thaw"])
            timeout_s = min(2 * timeout_s, LEADER_TIMEOUT_MAX_S)
            if leader is not None or not needed or self._over.wait(_LEADER_POLL_S):
                return leader

    def _struck_by(self, verb: Verb) -> set[str]:
        """The members with an active effect that ``verb``, an undoing verb, reverts."""
        return set().union(*chain.from_iterable(self._parted.values())) if verb == "heal" else set(self._struck[verb])

    def _targets(self, act: _Act, leader: str | None) -> tuple[str, ...]:
        """The members or links that an event is about, in config order."""
        event, targets = act.event, self._faults.targets
        if event.verb in AFFECTED:
            struck, named = self._struck_by(event.verb), targets.named(event)
            if named and event.verb == "heal":  # sets end as a whole
                struck = set().union(*(sets[0] for sets in self._parted.values() if len(sets) == 1))
            wanted = struck & {*named} if named else struck
        else:
            living = list(self._cluster.endpoints)
            if event.verb in ("freeze", "link_down"):
                living = [name for name in living if name not in self._struck[UNDOING[event.verb]]]
            match event.target:
                case "leader":
                    wanted = {leader} & set(living) if leader is not None else set()
                case "followers":
                    wanted = set(living) - {leader} if leader is not None else set()
                case "random":
                    wanted = {self._random.choice(living)} if living else set()
                case _:
                    links = set(targets.of_links) - self._struck["link_up"]
                    wanted = {*targets.named(event)} & ({*living} | links)
        return tuple(name for name in targets.names if name in wanted)

    # --- acting ------------------------------------------------------------------------------------------------

    def _fire(self, acts: Sequence[_Act], due_ns: int) -> None:
        """Execute acts at one moment; each stores its own result."""
        partitions = [act for act in acts if act.verb in ("partition", "heal")]
        for act in acts:
            self._prepare(act)
        links = [call for act in acts for call in act.links]
        if partitions:
            links.append(partial(self._part, partitions))
        at_once(links, [call for act in acts for call in act.signals], self._faults.links_at_once, due_ns)
        for act in acts:
            self._touched |= set(act.members)
            self._confirm(act)
            if act.problems and act.verb in _UNDOES_AT_ONCE:  # it stays active, so that the end reverts it
                self._struck[act.verb] |= set(act.members)
            elif act.problems and act.verb == "heal":
                self._parted[act.due.number, act.due.occurrence] = [{*act.members}]
            if act.times_ns and act.cause == "event" and self._start_ns is not None:
                at_ns = max(act.times_ns) - self._start_ns
                asked_ns = act.due.at_ns
                self._timeline.ends(act.due, at_ns if at_ns - asked_ns > _LATE_NS else asked_ns, act.members)

    def _prepare(self, act: _Act) -> None:
        """The call to make at the moment, and the state that is active from then on."""
        names, faults = set(act.members), self._faults
        if act.cause == "event":
            self._latest |= {(act.verb, name): (act.due.number, act.due.occurrence) for name in names}

        def each(call: Callable[[str], int]) -> list[Call]:
            return [partial(_kept, act, partial(call, name)) for name in act.members]

        match act.verb:
            case "kill":
                for name in act.members:
                    self._cluster.expect_death(name)
                self._unconnected |= names
                self._struck["thaw"] -= names
                act.signals = each(partial(faults.signal, act.verb))
            case "freeze" | "thaw":
                act.signals = each(partial(faults.signal, act.verb))
            case "link_down" | "link_up":
                act.links = each(partial(faults.set_link_up, up=act.verb == "link_up"))
            case verb if verb in SHAPING:
                for name in names:
                    self._shaped[name].add(act.verb)
                act.links = each(partial(faults.shape, event=act.event))
            case "reset":
                of_event = [act.event.verb] if act.cause == "for" else None
                act.links = each(lambda name: faults.unshape(name, of_event or sorted(self._shaped[name])))
            case "partition" | "heal":
                self._parted = {key: left for key, sets in self._parted.items() if (left := _left(act, key, sets))}
                if act.verb == "partition":
                    self._parted[act.due.number, act.due.occurrence] = faults.targets.sets_of(act.event, act.members)
            case "restart":
                act.signals = [partial(self._begin_restart, act)]
        if act.verb in UNDOING:
            self._struck[UNDOING[act.verb]] |= names
        elif act.verb in _UNDOES_AT_ONCE:
            self._struck[act.verb] -= names

    def _part(self, acts: Iterable[_Act]) -> None:
        """Make the currently active partition, for all of these acts."""
        first, *others = acts
        with self._parting:
            sets = self._sets()
            _kept(first, self._faults.heal if sets is None else partial(self._faults.partition, sets))
        for act in others:
            act.times_ns += first.times_ns
            act.problems += first.problems

    def _sets(self) -> list[list[str]] | None:
        """The sets of members that are currently kept apart; ``None`` if all reach each other."""
        found: dict[tuple[int, ...], list[str]] = {}
        for name in self._faults.targets.members:
            if name not in self._unconnected:
                # Its place in each partition, after the last set for the others.
                place = tuple(
                    next((at for at, group in enumerate(sets) if name in group), len(sets))
                    for sets in self._parted.values()
                )
                found.setdefault(place, []).append(name)
        return [found[place] for place in sorted(found)] if len(found) > 1 else None

    def _confirm(self, act: _Act) -> None:
        """Check that the kernel has done it; links are read back by the methods that change them."""
        if act.verb in ("freeze", "thaw") and not act.problems:
            for name in act.members:
                try:
                    self._faults.wait_frozen(name, act.verb == "freeze")
                except ContainernetEnvError as error:
                    act.problems.append(text_of(error))

    # --- starting members again --------------------------------------------------------------------------------

    def _begin_restart(self, act: _Act) -> None:
        """Restart the members of an act, each on its own thread; each is recorded when it answers."""
        for name in act.members:
            one = replace(act, members=(name,), times_ns=[], problems=[])
            thread = clock.Thread(target=self._restart, args=(one,), name=f"restart-{name}", daemon=True)
            self._struck["restart"].discard(name)  # before the thread can report that it still is
            try:
                thread.start()
            except RuntimeError as error:
                self._struck["restart"].add(name)
                act.problems.append(text_of(error))
                continue
            self._restarts.append(thread)

    def _restart(self, act: _Act) -> None:
        (name,) = act.members
        answered_ns = None
        _kept(act, lambda: self._faults.restart(name, partial(self._put_back, name), self._given_up))
        if act.problems:
            self._why_down[name] = "; ".join(act.problems)
            self._struck["restart"].add(name)
        else:
            answered_ns = clock.monotonic_ns()
        self._note(act, None, answered_ns)

    def _given_up(self) -> str | None:
        """Why the wait for a member that does not answer ends."""
        rejoin_s = self._cluster.waits.start_s  # members that were started again may take as long as new ones
        late = self._ended_s is not None and clock.monotonic() > self._ended_s + rejoin_s
        late |= self._abandoned
        return self._broken() or (f"it did not answer {rejoin_s:g} s after the scenario" if late else None)

    def _put_back(self, name: str) -> None:
        """Reapply the active disruptions to the new links of a member."""
        if name in self._struck["link_up"]:
            self._faults.set_link_up(name, False)
        with self._tracing:
            if self._traces_ns is not None:
                self._faults.follow(self._traces_ns, name)
        with self._parting:
            self._unconnected.discard(name)
            if (sets := self._sets()) is not None:
                self._faults.partition(sets)

    # --- the end -----------------------------------------------------------------------------------------------

    def _undo_at_end(self, whole: bool) -> list[str]:
        """Revert the active disruptions: the instantaneous ones at one moment, then restart members."""
        at_once: list[Verb] = ["heal", "link_up", "reset", "thaw"]
        then: list[Verb] = ["restart"] if whole else []
        problems = []
        for step in (at_once, then):
            acts = []
            for verb in step:
                if struck := self._struck_by(verb):
                    named = tuple(name for name in self._faults.targets.names if name in struck)
                    event = Disruption(verb=verb, target=" ".join(named))
                    acts.append(_Act(event, verb, Due(0, -1, 1), "end", named))
            self._fire(acts, 0)
            for act in acts:
                self._note(act, None)
                problems += act.problems
        return problems

    def _note(self, act: _Act, leader: str | None, answered_ns: int | None = None) -> None:
        if act.verb == "restart" and act.members and answered_ns is None and not act.problems:
            return  # each of its members is noted when it answers
        at_ns = max(act.times_ns) if act.times_ns else None
        since_ns = None if at_ns is None or self._start_ns is None else at_ns - self._start_ns
        made = ExecutedEvent(
            number=act.due.number + 1,
            occurrence=act.due.occurrence,
            cause=act.cause,
            verb=act.verb,
            target=act.event.target_text,
            value=act.event.value,
            members=act.members,
            asked_ns=None if act.cause == "end" else act.due.at_ns,
            at_ns=at_ns,
            since_start_ns=since_ns,
            leader=leader,
            answered_ns=answered_ns,
            problem="; ".join(act.problems) or None,
            apart=self._faults.targets.apart(act.event, act.members) if act.verb in UNDOING else (),
        )
        with self._lock:
            self._executed.append(made)
        self._report(made)


def _left(act: _Act, key: tuple[int, int], sets: list[set[str]]) -> list[set[str]]:
    """What an act leaves of the sets of a partition: they end as a whole, only a single one loses members."""
    if act.cause == "for":
        return [] if key == (act.due.number, act.due.occurrence) else sets
    if len(sets) > 1:
        is_all = act.verb == "heal" and (act.cause == "end" or act.event.target == AFFECTED["heal"])
        return [] if is_all else sets
    rest = sets[0] - {*act.members}
    return [rest] if rest else []


def _by_leader(event: Disruption) -> bool:
    return event.target in ("leader", "followers")


def _kept(act: _Act, call: Callable[[], int]) -> None:
    """Make a call and store when it took effect, or why it did not."""
    try:
        act.times_ns.append(call())
    except Exception as error:  # noqa: BLE001 - whatever it is, a failed event is one that was missed
        act.problems.append(text_of(error))
