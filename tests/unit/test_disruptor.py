"""Events that are carried out on fakes: to whom, when, at the same moment, and undone whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from containernet_env.base import clock
from containernet_env.model.disruption import Disruption, Disruptions, ExecutedEvent, Targets, Timeline
from containernet_env.model.link import Link, LinkSpec
from containernet_env.runs.disruptor import Disruptor
from tests.simulated_time import World
from tests.unit.fakes import FakeCluster, FakeFaults

pytestmark = pytest.mark.simulated(seeds=20)
MS = 1_000_000


SITES = Targets(("etcd1", "etcd2", "etcd3"), {"eu": ("etcd1", "etcd2"), "us": ("etcd3",)}, (("eu", "us"),))


class Course:
    """A disruptor on fakes; the load begins when it is started. ``traced``: the hosts whose links have traces."""

    def __init__(
        self, *events: Disruption, seed: str = "1", links_at_once: bool = True, traced: Sequence[str] = ()
    ) -> None:
        self.cluster = FakeCluster()
        self.faults = FakeFaults(self.cluster, links_at_once, SITES)
        self.faults.traced = tuple(Link(name, "s1", LinkSpec()) for name in traced)
        self.told: list[ExecutedEvent] = []
        self.broken: str | None = None
        self.began_ns: int | None = None
        self.disruptor = Disruptor(
            events, seed, self.faults, self.cluster, lambda: self.began_ns, self.told.append, lambda: self.broken
        )

    def start(self) -> None:
        self.disruptor.start()
        self.began_ns = clock.monotonic_ns()

    def until(self, condition: Callable[[], bool]) -> None:
        World.current.wait(condition)

    def to(self, count: int) -> Course:
        """Until so many things were done."""
        self.start()
        self.until(lambda: len(self.told) >= count)
        return self

    def run(self, count: int) -> Disruptions:
        """The same, and then the end."""
        return self.to(count).disruptor.end()

    @property
    def verbs(self) -> list[tuple[str, Any]]:
        return self.faults.done


def event(verb: Any, target: Any, at_ms: int | None = 20, **others: Any) -> Disruption:
    return Disruption(verb=verb, target=target, at_ns=None if at_ms is None else at_ms * MS, **others)


def test_times_of_a_timeline_are_those_of_the_file() -> None:
    events = (event("kill", "leader", 20, for_ns=30 * MS), event("freeze", "random", None, every_ns=25 * MS))
    timeline, seen = Timeline(events), []
    while timeline.next_ns is not None and timeline.next_ns <= 80 * MS:
        at_ns = timeline.next_ns
        for due in timeline.pop():
            seen.append((at_ns // MS, due.number, due.occurrence, due.members))
            timeline.ends(due, due.at_ns, ["etcd1"]) if not due.members else None
    assert seen == [
        (20, 0, 1, ()),
        (25, 1, 1, ()),
        (50, 0, 1, ("etcd1",)),  # the end of one event, before another one begins
        (50, 1, 2, ()),
        (75, 1, 3, ()),
    ]


AGAIN = "partition etcd2|etcd1 etcd3"
COURSES = (  # events: at which ms, what, to whom, for how many ms; what is executed; what the faults are
    ("20 kill leader 30", "20 event kill etcd3, 50 for restart etcd3", "kill etcd3, restart etcd3"),
    ("1 freeze leader, 2 thaw frozen, 3 freeze followers",
        "1 event freeze etcd3, 2 event thaw etcd3, 3 event freeze etcd1 etcd2, end thaw etcd1 etcd2", None),
    ("1 partition etcd1, 2 partition etcd2, 3 heal etcd1",  # sets of several partitions are kept apart together
        "1 event partition etcd1, 2 event partition etcd2, 3 event heal etcd1, end heal etcd2",
        "partition etcd1|etcd2 etcd3, partition etcd1|etcd2|etcd3, partition etcd2|etcd1 etcd3, heal"),
    # The end of an event leaves what a later one did.
    *((f"1 {struck} etcd2 30, 5 {undo} etcd2, 10 {struck} etcd2, 60 delay etcd3",
        f"1 event {struck} etcd2, 5 event {undo} etcd2, 10 event {struck} etcd2, 60 event delay etcd3, {ends}", None)
        for struck, undo, ends in (
            ("freeze", "thaw", "end reset etcd3, end thaw etcd2"),
            ("link_down", "link_up", "end link_up etcd2, end reset etcd3"),
            ("partition", "heal", "end heal etcd2, end reset etcd3"))),
    # A restarted member is unplugged and parted again before it is let go, and not thawed.
    ("21 partition etcd2, 22 link_down etcd2, 23 kill etcd2 5",
        "21 event partition etcd2, 22 event link_down etcd2, 23 event kill etcd2, 28 for restart etcd2, "
        "end heal etcd2, end link_up etcd2",
        " or ".join(f"{AGAIN}, down etcd2, kill etcd2, restart etcd2, down etcd2, {AGAIN}, {ends}"  # side by side
            for ends in ("heal, up etcd2", "up etcd2, heal"))),
    # A link between switches, and a member's own.
    ("21 link_down us-eu, 22 delay us-eu 5, 23 link_down etcd1, 29 link_up eu-us, 30 link_down eu-us",
        "21 event link_down eu-us, 22 event delay eu>us us>eu, 23 event link_down etcd1, 27 for reset eu>us us>eu, "
        "29 event link_up eu-us, 30 event link_down eu-us, end link_up etcd1 eu-us, end reset eu>us us>eu",
        None),
    # The members of a site, and sets: of several partitions those that are together in each reach each other.
    ("1 partition eu, 2 heal eu", "1 event partition etcd1 etcd2, 2 event heal etcd1 etcd2",
        "partition etcd1 etcd2|etcd3, heal"),
    ("21 partition eu|us 30, 22 partition etcd1, 25 heal etcd1",
        "21 event partition etcd1 etcd2 etcd3, 22 event partition etcd1, 25 event heal etcd1, "
        "51 for heal etcd1 etcd2 etcd3",
        "partition etcd1 etcd2|etcd3, partition etcd1|etcd2|etcd3, partition etcd1 etcd2|etcd3, heal"),
    ("21 partition etcd1|etcd2+etcd3, 22 partition eu|us 20, 60 partition etcd1|etcd2, 80 heal partitioned",
        "21 event partition etcd1 etcd2 etcd3, 22 event partition etcd1 etcd2 etcd3, 42 for heal etcd1 etcd2 etcd3, "
        "60 event partition etcd1 etcd2, 80 event heal etcd1 etcd2 etcd3",
        "partition etcd1|etcd2 etcd3, partition etcd1|etcd2|etcd3, partition etcd1|etcd2 etcd3, "
        "partition etcd1|etcd2|etcd3, heal"),
    # A link between sites is no member: it goes down as a whole, and is shaped in each direction by itself.
    ("1 link_down us-eu, 2 link_up eu-us", "1 event link_down eu-us, 2 event link_up eu-us", "down eu-us, up eu-us"),
    ("1 link_down eu-us, 2 link_up down", "1 event link_down eu-us, 2 event link_up eu-us", "down eu-us, up eu-us"),
    ("21 delay us-eu 30, 29 delay us>eu", "21 event delay eu>us us>eu, 29 event delay us>eu, 51 for reset eu>us, "
        "end reset eu>us us>eu", None),
    ("21 loss us 5", "21 event loss etcd3, 26 for reset etcd3, end reset etcd3", None),
    ("1 freeze etcd2, 2 kill etcd2", "1 event freeze etcd2, 2 event kill etcd2, end restart etcd2",
        "freeze etcd2, kill etcd2, restart etcd2"),
)  # fmt: skip


def sets_of(text: str) -> Any:
    """The target that a text stands for."""
    return tuple(tuple(part.split("+")) for part in text.split("|")) if "|" in text else text


@pytest.mark.parametrize(("events", "executed", "faults"), COURSES, ids=[events for events, *_ in COURSES])
def test_who_is_struck_when_and_what_is_undone(events: str, executed: str, faults: str | None) -> None:
    words = [text.split() for text in events.split(", ")]
    course = Course(
        *(
            event(verb, sets_of(to), int(at), value=5, for_ns=int(ms[0]) * MS if ms else None)
            for at, verb, to, *ms in words
        )
    )
    course.cluster.led_by = "etcd3"
    done = course.run(executed.count(" event ") + executed.count(" for ")).executed
    when = ["end" if item.asked_ns is None else f"{item.asked_ns // MS} {item.cause}" for item in done]
    found = [f"{at} {item.verb} {' '.join(item.members)}" for at, item in zip(when, done, strict=True)]
    assert ", ".join(found) == executed
    sets = [what if isinstance(what, str) else "|".join(map(" ".join, what or ())) for _, what in course.verbs]
    made = ", ".join(f"{verb} {what}".strip() for (verb, _), what in zip(course.verbs, sets, strict=True))
    assert faults is None or made in faults.split(" or ")
    assert all((item.asked_ns or 0) <= (item.since_start_ns or 0) and item.problem is None for item in done)
    assert all(
        item.at_ns and item.answered_ns and item.at_ns <= item.answered_ns for item in done if "restart" in item.verb
    )
    assert course.faults.as_before and course.faults.given_up == []


def test_an_event_waits_for_a_leader_and_says_so_where_none_comes() -> None:
    course = Course(event("kill", "leader", 1))
    course.cluster.led_by = None
    course.start()
    course.until(lambda: course.cluster.asked >= 3)
    assert course.told == []
    (missed,) = course.disruptor.end().missed
    assert (missed.problem, missed.at_ns, missed.members) == ("there was no leader", None, ())
    course = Course(event("kill", "leader", 1, for_ns=10 * MS))
    course.cluster.led_by = None
    course.start()
    course.until(lambda: course.cluster.asked >= 3)
    course.cluster.led_by = "etcd2"
    course.until(lambda: len(course.told) == 2)
    kill, restart = course.disruptor.end().executed
    # It lasts as long as configured, from when it happened.
    assert (kill.since_start_ns or 0) >= 30 * MS and (restart.asked_ns or 0) >= 40 * MS


def test_random_members_follow_from_the_seed() -> None:
    def drawn(seed: str) -> list[tuple[str, ...]]:
        course = Course(event("delay", "random", None, every_ns=2 * MS, value=5), seed=seed)
        done = course.run(15)
        assert done.seed == seed
        return [item.members for item in done.executed if item.verb == "delay"][:15]

    first = drawn("a")
    assert first == drawn("a")
    assert first != drawn("b")
    assert len(set(first)) == 3


@pytest.mark.parametrize("links_at_once", [True, False])
def test_link_and_process_faults_of_one_moment_come_together(links_at_once: bool) -> None:
    """Also where a link's answer, or its change, takes long: it is not waited for, or it is what is waited for."""
    events = (
        event("freeze", "etcd1", 150),
        event("link_down", "etcd1", 150),
        event("delay", "etcd2", 150, value=5 * MS),
        event("partition", "etcd3", 150),
    )
    course = Course(*events, links_at_once=links_at_once)
    course.faults.takes_s = 0.2
    course.to(4)
    times_ns = sorted(item.at_ns or 0 for item in course.told)
    course.disruptor.end()
    assert times_ns[-1] - times_ns[0] < 100 * MS, [(item.text, item.at_ns) for item in course.told]


ALL = (
    event("kill", "etcd1", 1),
    event("freeze", "etcd2", 1),
    event("partition", "etcd3", 1),
    event("link_down", "etcd2", 1),
    event("delay", "etcd3", 1, value=9),
    event("loss", "etcd3", 2, value=0.5),
    event("rate", "etcd2", 2, value=None),
)


@pytest.mark.parametrize("refused", ["thaw", "unshape", "up", "heal", "check"])
def test_what_cannot_be_undone_gives_the_testbed_up(refused: str) -> None:
    course = Course(*ALL).to(len(ALL))
    course.faults.refused[refused] = "it does not go"
    course.disruptor.end()
    (reason,) = course.faults.given_up
    assert "it does not go" in reason


@pytest.mark.parametrize("broken", [None, "the run is to end"])
def test_a_member_that_does_not_answer_again_gives_the_testbed_up_unless_the_run_is_to_end(broken: str | None) -> None:
    course = Course(event("kill", "etcd2", 1, for_ns=1 * MS))
    course.cluster.answering = False
    course.start()
    course.until(lambda: ("restart", "etcd2") in course.verbs)
    course.broken = broken
    course.disruptor.end()
    told = [] if broken else ["etcd2 is still down: it did not answer 60 s after the scenario"]
    assert len(course.faults.given_up) == len(told)
    assert all(part in reason for part, reason in zip(told, course.faults.given_up, strict=True))


def test_members_that_answer_again_after_a_while_are_waited_for() -> None:
    course = Course(event("delay", "etcd2", 1, value=5)).to(1)
    course.cluster.answering = False
    clock.Thread(target=lambda: (clock.sleep(30), setattr(course.cluster, "answering", True))).start()
    course.disruptor.end()
    assert course.faults.given_up == [] and 1030 <= clock.monotonic() < 1032


def test_events_after_the_end_of_the_load_did_not_happen_nor_of_one_that_never_began_nor_a_refused_one() -> None:
    events = (event("kill", "leader", 1), event("freeze", "etcd3", 60_000), event("heal", "partitioned", 60_000))
    course, never, over = Course(*events), Course(events[0]), "the load had ended"
    done = course.run(1)
    assert [(item.verb, item.problem) for item in done.missed] == [("freeze", over), ("heal", over)]
    assert ("freeze", "etcd3") not in course.verbs
    never.disruptor.start()
    assert [item.problem for item in never.disruptor.end().missed] == [over] and never.verbs == []
    refused = Course(event("delay", "etcd2", 1, value=5))
    refused.faults.refused["delay"] = "link etcd2-s1: no room"
    assert [item.problem for item in refused.run(1).missed] == ["link etcd2-s1: no room"]


@pytest.mark.parametrize(
    ("struck", "undo"),
    [("freeze", "thaw"), ("link_down", "up"), ("partition", "heal"), ("delay", "unshape"), ("kill", "restart")],
)
def test_what_could_not_be_undone_in_time_is_undone_at_the_end_and_told(struck: str, undo: str) -> None:
    course = Course(event(struck, "etcd2", 1, for_ns=1 * MS, value=5))
    course.faults.refused[undo] = "not now"
    course.to(2)
    assert undo not in [verb for verb, _ in course.verbs]
    course.faults.refused.clear()
    done = course.disruptor.end()
    assert undo in [verb for verb, _ in course.verbs]
    assert course.faults.given_up == []
    assert [(item.cause, item.problem) for item in done.missed] == [("for", "not now")]


def test_a_restart_that_fails_for_lack_of_a_resource_is_missed_and_not_forgotten() -> None:
    course = Course(event("kill", "etcd2", 1, for_ns=1 * MS))
    course.faults.failure, course.faults.refused["restart"] = OSError, "Too many open files"
    done = course.run(2)
    assert {(item.verb, item.problem) for item in done.missed} == {("restart", "Too many open files")}
    assert course.faults.given_up == ["after the events of the scenario: etcd2 is still down: Too many open files"]


def test_a_dead_member_is_neither_killed_again_nor_is_its_death_expected_nor_its_answer() -> None:
    """Of a cluster without a quorum an answer was looked for during 60 s, by a loop without a wait."""
    course = Course(event("kill", "etcd2", 1), event("freeze", "random", 2))
    course.cluster.dead = {"etcd2": "etcd2 ended: OOM-killed", "etcd1": "etcd1 ended: OOM-killed"}
    done = course.run(2)
    assert course.cluster.expected == set()
    assert [item.members for item in done.executed[:2]] == [(), ("etcd3",)]
    assert course.faults.given_up == ["after the events of the scenario: not every member answers"]
    assert clock.monotonic() < 1000.1


def test_traces_begin_with_the_load_and_end_with_it() -> None:
    course = Course(event("kill", "etcd2", 30, for_ns=10 * MS), traced=["etcd2", "benchmark"])
    done = course.run(3)
    began_ns = course.began_ns
    assert course.verbs == [
        ("follow", (began_ns, None)),
        ("kill", "etcd2"),
        ("restart", "etcd2"),
        ("follow", (began_ns, "etcd2")),  # its new link goes on where the others are
        ("follow", (None, None)),
    ]
    first, last = done.executed[0], done.executed[-1]
    assert (first.verb, first.cause, first.number, first.members) == ("trace", "event", 0, ("etcd2-s1", "benchmark-s1"))
    assert (last.verb, last.cause, last.members) == ("trace_end", "end", ("etcd2-s1", "benchmark-s1"))
    assert done.text.startswith("trace etcd2-s1 benchmark-s1 at 0.0") and "trace end" not in done.text
    assert course.faults.given_up == [] and not done.missed and not first.strikes


@pytest.mark.parametrize("whole", [True, False])
def test_a_trace_that_does_not_end_with_its_scenario_ends_the_testbed(whole: bool) -> None:
    course = Course(traced=["etcd2"]).to(1)
    course.faults.refused["follow"] = "the link emulator does not answer"
    done = course.disruptor.end(whole)
    assert course.faults.given_up == (
        ["after the events of the scenario: the link emulator does not answer"] if whole else []
    )
    assert done.executed[-1].problem == "the link emulator does not answer"


def test_a_trace_that_did_not_begin_is_missed_and_without_a_load_none_begins() -> None:
    course, never = Course(traced=["etcd2"]), Course(traced=["etcd2"])
    never.disruptor.start()
    assert never.disruptor.end().executed == () and never.verbs == []
    course.faults.refused["follow"] = "refused"
    course.to(1)
    course.faults.refused.clear()
    (missed,) = course.disruptor.end().missed
    assert (missed.verb, missed.problem) == ("trace", "refused")
    assert course.verbs == [("follow", (None, None))]
