"""The watches of members and links: what counts as silence."""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.hosts.container import ExitState, ending_of
from containernet_env.model.findings import PAUSE_NS, death_findings, leader_findings, network_findings
from containernet_env.model.scenario import Scenario
from containernet_env.model.usage import Consumers, Consumption, Leadership, LinkStatistics, Usage
from containernet_env.runs.follow import MemberWatch
from containernet_env.runs.load import Answer
from containernet_env.runs.testbed import LinkWatch
from containernet_env.stores.cluster import Ping
from tests.simulated_time import World
from tests.unit.descriptors import closed_from_now_on, open_descriptors
from tests.unit.fakes import Bench, FakeCluster, observing, read, write


@pytest.mark.parametrize("fails", ["the thread", "the eventfd", "nothing: it is never started"])
def test_a_watch_that_never_ran_leaves_no_descriptor_open(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, closed = open_descriptors(), closed_from_now_on(monkeypatch)
    watch = MemberWatch(dict)

    def refuse(*args: Any) -> None:
        raise RuntimeError("can't start new thread")

    if fails == "the thread":
        monkeypatch.setattr(watch._thread, "start", refuse)
    elif fails == "the eventfd":
        monkeypatch.setattr(os, "eventfd", refuse)
    if not fails.startswith("nothing"):
        with pytest.raises(RuntimeError, match="new thread"):
            watch.start()
    watch.close()
    assert open_descriptors() - before == set()
    assert not {fd for fd, _ in before} & set(closed)


def test_a_member_that_its_own_memory_limit_ended_is_what_was_configured() -> None:
    """And one that the machine's memory ended is not; a program may write what it likes."""
    for memory, effect in ((256 * 2**20, "info"), (None, "invalid")):
        state = ExitState(137, oom_killed=True)
        reason = ending_of(state, oom=True, memory_bytes=memory, log="", words=lambda log, killed: "")
        (found,) = death_findings({"etcd2": reason})
        assert (found.kind, found.effect, found.subject, found.text) == ("member_died", effect, "etcd2", reason)
        (member,) = death_findings({"etcd2": f"etcd2 ended: {reason}"})
        assert member.effect == effect
    panic = "etcd2 ended: exit status 2: panic: it is over the memory limit (memory limit 64 MiB)"
    for other in ("killed by SIGKILL", panic):
        (killed,) = death_findings({"etcd2": other})
        assert killed.effect == "invalid", other


OOM = " ended: OOM-killed (memory limit 64 MiB)"


def test_an_election_is_told_where_what_was_configured_explains_it() -> None:
    one, again, other = Leadership("etcd1", 2), Leadership("etcd1", 2), Leadership("etcd2", 3)
    by_limit = {name: f"{name}{OOM}" for name in ("etcd1", "etcd3")}
    killed = {"etcd1": "etcd1 ended: killed by SIGKILL"}
    cases: list[tuple[Leadership | None, Leadership | None, dict[str, str], str | None]] = [
        (one, again, {}, None),
        (one, other, {}, "invalid"),
        (one, None, {}, "invalid"),
        (one, other, {"etcd1": by_limit["etcd1"]}, "info"),
        (one, None, {"etcd1": by_limit["etcd1"]}, "info"),
        (one, other, {"etcd3": by_limit["etcd3"]}, "invalid"),
        (one, other, killed, "invalid"),
        (None, other, {}, "unknown"),
        (None, None, {}, "unknown"),
    ]
    for before, after, deaths, effect in cases:
        found = [(finding.kind, finding.effect) for finding in leader_findings(before, after, deaths)]
        assert found == [("leader_changed", effect)] * (effect is not None), (before, after, deaths)


def link_kinds(latency_s: float | None, lateness: dict[str, int], early_ns: int = 0) -> list[Any]:
    held = {"count": 9, "p50_ns": 0, "p99_ns": 0, "max_ns": 0} | lateness
    side = {"drops": {}, "lateness": {"count": 9, "early_max_ns": early_ns}}
    links = {"etcd1-s1": {"a_to_b": side, "b_to_a": {"drops": {}, "lateness": None}}}
    seen = {"links": links, "ports": {}, "lateness": held}
    return [(found.kind, found.value, found.threshold) for found in network_findings(LinkStatistics(seen), latency_s)]


def test_how_late_frames_may_be_follows_from_the_latency_that_has_it() -> None:
    limits_ns = {None: 1_000_000, 0.1: 1_000_000, 0.02: 500_000, 0.006: 300_000, 0.0: 300_000}
    for latency_s, limit_ns in limits_ns.items():
        half_ns = limit_ns // 4
        cases: list[tuple[dict[str, int], int, list[Any]]] = [
            ({"p99_ns": limit_ns, "p50_ns": half_ns, "max_ns": PAUSE_NS}, limit_ns, []),
            ({"p99_ns": limit_ns + 1}, 0, [("link_lateness", limit_ns + 1, limit_ns)]),
            ({"p50_ns": half_ns + 1}, 0, [("link_lateness", half_ns + 1, half_ns)]),  # every request has it
            ({}, limit_ns + 1, [("link_early", limit_ns + 1, limit_ns)]),
            ({"max_ns": PAUSE_NS + 1}, 0, [("links_paused", PAUSE_NS + 1, PAUSE_NS)]),
        ]
        for lateness, early_ns, found in cases:
            assert link_kinds(latency_s, lateness, early_ns) == found, (latency_s, lateness)


def test_pauses_and_frames_without_a_stamp() -> None:
    """lateness p99 13.8 us, though the record had max 3.0 s: 'no errors'."""
    late = {"count": 9, "p99_ns": 13_800, "max_ns": 3 * 10**9}
    seen = {"links": {}, "ports": {}, "lateness": late, "stamps": "kernel"}
    (paused,) = network_findings(LinkStatistics(seen | {"unmatched": 0}))
    assert paused.kind == "links_paused"
    assert paused.text == "the link emulator was paused: a frame reached its host 3.0 s after its time"
    unmatched, _ = network_findings(LinkStatistics(seen | {"unmatched": 1234}))
    assert (unmatched.kind, unmatched.value) == ("frames_unmatched", 1234)
    assert unmatched.text == "1,234 frames had no stamp of their arrival: they were later than their lateness says"
    unstamped, _ = network_findings(LinkStatistics(seen | {"unmatched": 1234, "stamps": "read"}))
    assert (unstamped.kind, unstamped.effect) == ("frames_unmatched", "unknown")
    assert unstamped.text == "arrival times are those of the read: this kernel stamps no frames"


@pytest.mark.simulated(seeds=20)
def test_links_that_answer_nothing_fail_once_and_whoever_asks_waits_for_it() -> None:
    failed: list[tuple[str, float]] = []

    def answers(timeout_s: float) -> bool:
        clock.sleep(timeout_s)
        return False

    watch = LinkWatch(answers, lambda reason: failed.append((reason, clock.monotonic())))
    watch.start()
    watch.settle()
    assert clock.monotonic() in (1005.0, 1006.0), "it has been given up, or so many answers have not come"
    clock.sleep(60)
    assert failed == [("the link emulator has not answered for 5 s: it was stopped, or gets no CPU time", 1005.0)]


@pytest.mark.simulated(seeds=5)
def test_links_that_answer_again_are_no_failure() -> None:
    answers = iter([False] * 4)
    failed: list[str] = []
    watch = LinkWatch(lambda timeout_s: next(answers, True), failed.append)
    watch.settle()
    assert failed == []
    assert next(answers, None) is None, "it waited for the answer"
    answers = iter([*[False] * 4, True] * 2)
    watch.start()
    clock.sleep(60)
    assert failed == [] and next(answers, None) is None, "five in a row are a failure"


class Member:
    """Answers each ping ``after_s`` it, and while ``answering`` is set; ``refuses`` connections by that error.

    ``answer``: what it sends, or what comes of reading that. Times are simulated, and a connection is an eventfd.
    """

    def __init__(
        self, after_s: float = 0.01, refuses: Exception | None = None, answer: bytes | Exception = b"HTTP/1.1 200 OK"
    ) -> None:
        self.after_s, self.refuses, self.answer = after_s, refuses, answer
        self.answering = clock.Event()
        self.answering.set()
        self.asked_s: list[float] = []
        self.opened: list[Connection] = []

    def open(self, port: int, *, timeout_s: float) -> Any:
        if self.refuses is not None:
            raise self.refuses
        self.opened.append(Connection(self))
        return self.opened[-1]


class Connection:
    def __init__(self, member: Member) -> None:
        self._member, self._fd = member, os.eventfd(0, os.EFD_NONBLOCK)
        self.setblocking, self.fileno = lambda blocking: None, lambda: self._fd

    def send(self, request: bytes) -> None:
        def answer() -> None:
            clock.sleep(self._member.after_s)
            self._member.answering.wait()
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

        self._member.asked_s.append(clock.monotonic())
        clock.Thread(target=answer, name="member", daemon=True).start()

    def recv(self, size: int) -> bytes:
        os.eventfd_read(self._fd)
        if isinstance(self._member.answer, Exception):
            raise self._member.answer
        return self._member.answer

    def close(self) -> None:
        os.close(self._fd)
        self._fd = -1


@contextmanager
def watched(**members: Member) -> Iterator[MemberWatch]:
    watch = MemberWatch(lambda: {name: Ping(member, 1, b"ping") for name, member in members.items()})
    watch.start()
    yield watch
    began_s = clock.monotonic()
    watch.close()
    assert clock.monotonic() == began_s, "the end waits for no round"
    assert watch._sockets == {} and "member-watch" not in World.current.threads
    assert all(made.fileno() == -1 for member in members.values() for made in member.opened)


@pytest.mark.simulated(seeds=50, preempt=0.02)
def test_a_member_that_was_stopped_is_named_while_and_after_it_is_silent() -> None:
    member = Member()
    with watched(etcd1=member) as watch:
        clock.sleep(10)
        assert watch.silent(for_s=0.02) == []
        member.answering.clear()
        clock.sleep(3)
        watch.reset()  # one that is stopped during scenarios of less than a second is silent since the first one
        clock.sleep(2)
        assert watch.silent(for_s=4.499) == ["etcd1"], "since the first ping without an answer, at 10.5 s"
        member.answering.set()
        clock.sleep(0.1)
        assert watch.silent(for_s=0.001) == []
        assert watch.longest_s() == {"etcd1": pytest.approx(4.5)}
        watch.reset()
        assert watch.longest_s() == {"etcd1": 0.0}
        assert member.asked_s == pytest.approx([1000 + 0.7 * turn for turn in range(16)])
        assert len(member.opened) == 1


@pytest.mark.simulated(seeds=50, preempt=0.02)
def test_whether_members_answer_is_known_once_it_has_settled() -> None:
    """A member that was stopped 0.4 s before a scenario failed was named by no row: its next ping was not due yet."""
    quick, stopped = Member(), Member()
    stopped.answering.clear()
    with watched(etcd1=quick, etcd3=quick) as watch:
        for _ in range(3):
            clock.sleep(0.1)
            began_s = clock.monotonic()
            watch.settle(30)
            assert quick.asked_s[-1] >= began_s and clock.monotonic() - began_s < 0.05
    watch.settle(30)  # closed: no member is pinged any more
    with watched(etcd1=quick, etcd2=stopped, etcd3=quick) as watch:
        clock.sleep(0.05)
        assert watch.silent(0.5) == []
        began_s = clock.monotonic()
        watch.settle(0.5)
        assert watch.silent(0.5) == ["etcd2"]
        assert 0.45 <= clock.monotonic() - began_s < 0.5


@pytest.mark.simulated(seeds=20)
@pytest.mark.parametrize(
    ("member", "silent"),
    [
        ({"refuses": RunError("refused")}, ["etcd1"]),
        # `ulimit -n`: the watch ended with a traceback, KeyError, and every member was silent from there on.
        ({"refuses": OSError(errno.EMFILE, os.strerror(errno.EMFILE))}, []),
        ({"answer": b""}, ["etcd1"]),
        ({"answer": ConnectionResetError()}, ["etcd1"]),
        ({"answer": ssl.SSLWantReadError()}, ["etcd1"]),
    ],
    ids=["unreachable", "no descriptors", "closes each connection", "resets each", "sends a part of a record"],
)
def test_members_without_a_connection(member: dict[str, Any], silent: list[str]) -> None:
    made = Member(**member)
    with watched(etcd1=made) as watch:
        clock.sleep(10)
        assert watch.silent(for_s=9.9) == silent
        partly = isinstance(made.answer, ssl.SSLWantReadError)
        assert len(made.opened) == (0 if made.refuses else 1 if partly else 15), "each ping has another one"
    pings = {"etcd1": Ping(made, 1, b"ping")}
    watch = MemberWatch(lambda: dict(pings))
    watch.start()
    clock.sleep(1)
    pings.clear()  # it has died, which is another matter
    clock.sleep(1)
    assert watch.silent(for_s=0.0) == []
    watch.close()


@pytest.mark.simulated(seeds=20)
def test_what_nobody_could_read_meanwhile_is_no_silence() -> None:
    """A member dies while the engine is slow to say how: for so long nobody reads what the others answer."""
    slow, rounds = Ping(Member(after_s=1.0), 1, b"ping"), []

    def pings() -> Mapping[str, Ping]:
        rounds.append(1)
        if len(rounds) == 2:
            clock.sleep(1.0)  # deaths are asked for here
        return {"etcd1": slow}

    watch = MemberWatch(pings)
    watch.start()
    clock.sleep(1.71)
    assert watch.longest_s() == {"etcd1": pytest.approx(0.7)}, "1.7 s less 1.0 s"
    World.current.stall(3600)  # Ctrl-Z, and an hour later fg
    clock.sleep(0.01)
    assert watch.silent(for_s=0.1) == []
    assert watch.longest_s() == {"etcd1": pytest.approx(0.7)}
    watch.close()


@pytest.mark.simulated(seeds=5)
@pytest.mark.parametrize(
    ("scenario", "says"), [(write("w"), ""), (read("r"), "not run: the data set could not be loaded: ")], ids=["w", "r"]
)
def test_what_fails_before_a_silence_is_noticed_names_who_is_silent(
    scenario: Scenario, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering, stopped = Member(), Member()
    stopped.answering.clear()
    pings = {"etcd1": Ping(answering, 1, b""), "etcd2": Ping(stopped, 1, b"")}
    monkeypatch.setattr(FakeCluster, "pings", lambda cluster: pings)
    bench = Bench(scenario)
    bench.server.behave = lambda path, body: Answer(None, "no request succeeded for 400ms")
    bench.matrix.run()
    assert bench.errors() == [f"{says}etcd2 answers nothing; no request succeeded for 400ms"]


@pytest.mark.parametrize(
    ("before", "meanwhile", "findings"),
    [
        ({"etcd1": 5.0}, {}, []),
        ({}, {"etcd9": 5.0}, []),
        ({}, {"etcd1": 5.0}, ["etcd1 answered nothing for 5.0 s; others take a member for gone after 1 s"]),
    ],
)
def test_a_row_is_marked_for_living_members_that_were_silent_in_its_own_scenario(
    before: dict[str, float], meanwhile: dict[str, float], findings: list[str]
) -> None:
    bench = Bench(write("w"))
    watch = bench.matrix._members = mock.Mock(longest_s=lambda: before, silent=lambda for_s: [])
    watch.reset.side_effect = lambda: setattr(watch, "longest_s", lambda: meanwhile)
    bench.matrix.run()
    assert bench.findings() == findings


@pytest.mark.parametrize(("throttled_s", "periods", "dilation"), [(1.8, 17, 1), (99.0, 17, 1), (99.0, 35, 2)])
def test_a_cpu_limit_explains_at_most_a_period_of_silence_for_each_period_that_it_stopped(
    throttled_s: float, periods: int, dilation: int
) -> None:
    """The kernel adds up the cores: 32 of them, stopped for 0.1 s of 2 s, said that the member was, for 3.2 s."""

    def effects(periods: int) -> list[str]:
        bench = Bench(write("w"), dilation=dilation)
        bench.matrix._members = mock.Mock(longest_s=lambda: {"etcd1": 3.6 * dilation}, silent=lambda for_s: [])
        used = Consumption(throttled_ns=round(throttled_s * 1e9 * dilation), throttled_periods=periods)
        sampler = mock.Mock(end=lambda: Usage(10**10, Consumers({"etcd1": used})))
        bench.matrix._observer = observing(bench.target, sampler)
        bench.matrix.run()
        return [found.effect for found in bench.outcomes[0].findings if found.kind == "member_silent"]

    assert [effects(periods), effects(periods + 1)] == [["invalid"], ["info"]]
