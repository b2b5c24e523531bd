"""Scenarios with events on a matrix of fakes: what they did is in the row, and is no failure of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from containernet_env.base import clock
from containernet_env.base.errors import Interrupted
from containernet_env.base.stop import Stop
from containernet_env.load.server import Answer
from containernet_env.model.disruption import Disruption
from containernet_env.model.load_result import LoadResult
from tests.unit.answers import closed_loop
from tests.unit.matrix_fakes import Bench, write

MS = 1_000_000
KILL = Disruption(verb="kill", target="leader", at_ns=1 * MS)
FAILED = "40 of 1000 requests failed (40 times: unavailable)"


pytestmark = pytest.mark.simulated(seeds=20)


def answer(code: str = "Unavailable", reason: str | None = None) -> Answer:
    """40 of 1000 requests failed."""
    outcomes = {"ok": 960, "failed": 40, "unknown": 0, "unsent": 0}
    made = closed_loop(ok=960, failed=40, outcomes=outcomes, codes={code: 40}, reason=reason)
    return Answer(LoadResult.from_json(made), FAILED)


def bench_of(*events: Disruption, done: int = 1, given: Answer | None = None, stop: Stop | None = None) -> Bench:
    """One scenario whose load goes on until so many things were done."""
    bench = Bench(replace(write("w"), events=events, request_timeout_ns=5000 * MS), write("after"), stop=stop)

    def behave(path: str, body: dict[str, Any]) -> Answer:
        if len(bench.server.asked) > 1:
            return Answer(LoadResult.from_json(closed_loop()), None)
        bench.server.began_ns = clock.monotonic_ns()
        deadline_s = clock.monotonic() + 10
        while len(bench.faults.done) < done:
            assert clock.monotonic() < deadline_s, bench.faults.done
            clock.sleep(0.001)
        return given or answer()

    bench.server.behave = behave
    return bench


def test_a_configured_kill_is_no_failure_and_the_member_is_back_for_the_next_scenario() -> None:
    bench = bench_of(KILL)
    bench.cluster.leaders = iter(["etcd1", "etcd2"])
    bench.matrix.run()
    first, second = bench.outcomes
    assert (first.error, second.error) == (None, None)
    assert bench.faults.done == [("kill", "etcd1"), ("restart", "etcd1")]
    assert bench.faults.as_before
    assert first.disruptions is not None
    assert second.disruptions is None
    effects = {finding.kind: finding.effect for finding in first.findings}
    assert effects["leader_changed"] == effects["event"] == "told"
    assert "member_died" not in effects
    row = bench.rows()[0]
    assert (row["Error"], row["Errors"], row["Leader"]) == ("-", "40", "etcd1>etcd2")
    assert row["EventsDone"].startswith("kill etcd1 at ")
    assert row["EventSeed"] == "0/w/1.1"


@pytest.mark.parametrize(
    "given", [answer(code="Check"), answer(reason="no request succeeded for 5 s")], ids=["wrong answers", "cut short"]
)
def test_what_events_do_not_explain_stays_an_error(given: Answer) -> None:
    bench = bench_of(KILL, given=given)
    bench.matrix.run()
    assert bench.outcomes[0].error == FAILED


def test_requests_that_failed_before_the_first_event_stay_an_error() -> None:
    given = answer()
    assert given.load is not None
    values = dict(given.load.values)
    row = {**values["timeline"][0], "failed": 40}
    values |= {"timeline_interval_s": 0.001, "timeline": [{**row, "second": 0.0}, {**row, "second": 0.1, "failed": 0}]}
    bench = bench_of(replace(KILL, at_ns=20 * MS), given=replace(given, load=LoadResult.from_json(values)))
    bench.matrix.run()
    assert bench.outcomes[0].error == FAILED


def failing_at(second: float) -> Answer:
    given = answer()
    assert given.load is not None
    values = dict(given.load.values)
    row = {**values["timeline"][0], "failed": 0}
    values |= {"timeline_interval_s": 0.1, "timeline": [row, {**row, "second": second, "failed": 40}]}
    return replace(given, load=LoadResult.from_json(values))


@pytest.mark.parametrize(
    ("event", "second", "is_excused"),
    [
        (replace(KILL, for_ns=10 * MS), 20.0, True),  # how long it takes to recover is the store's
        (replace(KILL, verb="delay", target="etcd2", value=MS), 0.0, False),
        (replace(KILL, verb="loss", target="etcd2", value=0.0), 0.0, False),
        (replace(KILL, verb="rate", target="etcd2", value=100 * 10**6), 0.0, False),
        (replace(KILL, verb="delay", target="etcd2", value=500 * MS), 0.0, True),
        (replace(KILL, verb="loss", target="etcd2", value=0.1), 0.0, True),
    ],
    ids=lambda value: value.text if isinstance(value, Disruption) else str(value),
)
def test_requests_fail_by_events_that_can_cause_it(event: Disruption, second: float, is_excused: bool) -> None:
    bench = bench_of(event, done=2 if event.for_ns else 1, given=failing_at(second))
    bench.matrix.run()
    assert bench.outcomes[0].error == (None if is_excused else FAILED)


def test_requests_that_fail_without_that_an_event_struck_stay_an_error() -> None:
    bench = bench_of(replace(KILL, at_ns=60_000 * MS), done=0)
    bench.matrix.run()
    first = bench.outcomes[0]
    assert first.error == FAILED
    assert first.verdict is not None
    assert first.verdict.reasons == ("event_missed",)


def test_an_election_that_no_event_explains_makes_the_row_invalid() -> None:
    bench = bench_of(replace(KILL, target="etcd3"))
    bench.cluster.leaders = iter(["etcd1", "etcd2"])
    bench.matrix.run()
    verdict = bench.outcomes[0].verdict
    assert verdict is not None
    assert verdict.reasons == ("leader_changed",)


def test_a_death_beside_a_configured_one_is_told_as_ever() -> None:
    bench = bench_of(replace(KILL, target="etcd3"))
    given = bench.server.behave

    def behave(path: str, body: dict[str, Any]) -> Answer:
        made = given(path, body)
        bench.cluster.dead["etcd2"] = "etcd2 ended: OOM-killed"
        bench.server.cancelled.wait()
        return made

    bench.server.behave = behave
    bench.matrix.run()
    first = bench.outcomes[0]
    assert first.error == "etcd2 ended: OOM-killed"
    assert bench.server.cancelled.is_set()
    assert "member_died" in {finding.kind for finding in first.findings}


def test_a_run_that_is_interrupted_undoes_what_is_in_force() -> None:
    stop = Stop()
    bench = bench_of(replace(KILL, verb="freeze"), replace(KILL, verb="link_down", target="etcd2"), done=99, stop=stop)
    given = bench.server.behave

    def behave(path: str, body: dict[str, Any]) -> Answer:
        deadline_s = clock.monotonic() + 10
        bench.server.began_ns = clock.monotonic_ns()
        while len(bench.faults.done) < 2 and clock.monotonic() < deadline_s:
            clock.sleep(0.001)
        stop.request()
        return given(path, body)

    bench.server.behave = behave
    with pytest.raises(Interrupted):
        bench.matrix.run()
    assert bench.faults.as_before
    assert bench.outcomes[0].error is not None


def test_what_cannot_be_put_back_ends_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(replace(KILL, verb="freeze"))
    bench.faults.refused["thaw"] = "it stays frozen"

    monkeypatch.setattr(bench.faults, "give_up", lambda reason: setattr(bench.target, "failure", reason))
    bench.matrix.run()
    first, second = bench.outcomes
    assert "it stays frozen" in str(first.error)
    assert str(second.error).startswith("not run: ")


def test_a_store_of_somebody_elses_has_no_events() -> None:
    bench = bench_of(KILL, done=0)
    bench.target.faults = None
    bench.matrix.run()
    assert bench.outcomes[0].error == "nothing here can carry out its events"


@pytest.mark.parametrize(("verb", "effect"), [("kill", "told"), ("freeze", "invalid")])
def test_frames_that_a_killed_member_did_not_take_are_explained(verb: Any, effect: str) -> None:
    bench = bench_of(replace(KILL, verb=verb))
    bench.net.seen["ports"] = {"etcd1-eth0": {"tap_drops": {"receive": 1}}}
    bench.matrix.run()
    effects = [finding.effect for finding in bench.outcomes[0].findings if finding.kind == "frames_lost"]
    assert effects == [effect]
