"""Scenarios with events on a matrix of fakes: what they did is in the row, and is no failure of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from containernet_env.base import clock
from containernet_env.base.errors import Interrupted
from containernet_env.base.work import Stop
from containernet_env.model.disruption import Disruption
from containernet_env.model.load_result import LoadResult
from containernet_env.runs.load import Answer
from tests.unit.answers import closed_loop
from tests.unit.fakes import Bench, write

MS = 1_000_000
KILL = Disruption(verb="kill", target="leader", at_ns=1 * MS)
FAILED = "40 of 1000 requests failed (40 times: unavailable)"


pytestmark = pytest.mark.simulated(seeds=5)


def answer(code: str = "Unavailable", reason: str | None = None, **changes: Any) -> Answer:
    """40 of 1000 requests failed."""
    outcomes = {"ok": 960, "failed": 40, "unknown": 0, "unsent": 0}
    made = closed_loop(ok=960, failed=40, outcomes=outcomes, codes={code: 40}, reason=reason)
    return Answer(LoadResult.from_json(made | changes), FAILED)


def failing_at(*seconds: float, interval_s: float = 0.1) -> Answer:
    """Requests of the first of these seconds failed, and none of the others."""
    row = closed_loop()["timeline"][0]
    rows = [{**row, "second": second, "failed": 40 * (number == 0)} for number, second in enumerate(seconds)]
    return answer(timeline_interval_s=interval_s, timeline=sorted(rows, key=lambda row: row["second"]))


def bench_of(
    *events: Disruption, done: int = 1, given: Answer | None = None, then: Callable[[], object] = bool, **more: Any
) -> Bench:
    """One scenario whose load goes on until so many things were done, and ``then`` something is."""
    bench = Bench(replace(write("w"), events=events, request_timeout_ns=5000 * MS), write("after"), **more)

    def load() -> Answer:
        bench.server.began_ns = clock.monotonic_ns()
        deadline_s = clock.monotonic() + 10
        while len(bench.faults.done) < done:
            assert clock.monotonic() < deadline_s, bench.faults.done
            clock.sleep(0.001)
        then()
        return given or answer()

    bench.server.answer(load)
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


BRIEF = replace(KILL, for_ns=10 * MS)
DELAY, LOSS, RATE = (replace(KILL, verb=verb, target="etcd2") for verb in ("delay", "loss", "rate"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("event", "given", "is_excused"),
    [
        (KILL, answer(code="Check"), False),  # wrong answers
        (KILL, answer(reason="no request succeeded for 5 s"), False),  # cut short
        (replace(KILL, at_ns=20 * MS), failing_at(0.0, 0.1, interval_s=0.001), False),  # before the event
        (BRIEF, failing_at(20.0, 0.0), True),  # how long it takes to recover is the store's
        (replace(DELAY, value=MS), failing_at(0.0), False),
        (replace(LOSS, value=0.0), failing_at(0.0), False),
        (replace(RATE, value=100 * 10**6), failing_at(0.0), False),
        (replace(DELAY, value=500 * MS), failing_at(0.0), True),
        (replace(LOSS, value=0.1), failing_at(0.0), True),
    ],
)
def test_requests_fail_by_events_that_can_cause_it(event: Disruption, given: Answer, is_excused: bool) -> None:
    bench = bench_of(event, done=2 if event.for_ns else 1, given=given)
    bench.run()
    assert bench.outcomes[0].error == (None if is_excused else FAILED)


@pytest.mark.parametrize(
    ("event", "done", "leaders", "error", "reasons"),
    [
        (replace(KILL, at_ns=60_000 * MS), 0, ["etcd1"], FAILED, ("event_missed",)),
        (replace(KILL, target="etcd3"), 1, ["etcd1", "etcd2"], None, ("leader_changed",)),
    ],
    ids=["no event struck", "no event explains an election"],
)
def test_what_no_event_explains_is_a_reason(
    event: Disruption, done: int, leaders: list[str], error: str | None, reasons: tuple[str, ...]
) -> None:
    bench = bench_of(event, done=done)
    bench.cluster.leaders = iter(leaders)
    bench.run()
    verdict = bench.outcomes[0].verdict
    assert verdict is not None and (bench.outcomes[0].error, verdict.reasons) == (error, reasons)


def test_a_death_beside_a_configured_one_is_told_as_ever() -> None:
    def die() -> None:
        bench.cluster.kill("etcd2")
        bench.server.cancelled.wait()

    bench = bench_of(replace(KILL, target="etcd3"), then=die)
    bench.run()
    assert bench.outcomes[0].error == "etcd2 was OOM-killed"
    assert "member_died" in {finding.kind for finding in bench.outcomes[0].findings}


def test_a_run_that_is_interrupted_undoes_what_is_in_force() -> None:
    events, stop = (replace(KILL, verb="freeze"), replace(KILL, verb="link_down", target="etcd2")), Stop()
    bench = bench_of(*events, done=2, then=lambda: (stop.request(), clock.sleep(60)), stop=stop)
    with pytest.raises(Interrupted):
        bench.matrix.run()
    assert bench.faults.as_before
    assert bench.outcomes[0].error is not None


def test_what_cannot_be_put_back_ends_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(replace(KILL, verb="freeze"))
    bench.faults.refused["thaw"] = "it stays frozen"
    monkeypatch.setattr(bench.faults, "give_up", bench.fail)
    first, second = bench.run()
    assert "it stays frozen" in first and second.startswith("not run: ")


def test_a_store_of_somebody_elses_has_no_events() -> None:
    bench = bench_of(KILL, done=0)
    bench.target.faults = None
    assert bench.run()[0] == "nothing here can carry out its events"


@pytest.mark.parametrize(("verb", "effect"), [("kill", "told"), ("freeze", "invalid")])
def test_frames_that_a_killed_member_did_not_take_are_explained(verb: Any, effect: str) -> None:
    bench = bench_of(replace(KILL, verb=verb))
    bench.net.seen["ports"] = {"etcd1-eth0": {"tap_drops": {"receive": 1}}}
    bench.run()
    effects = [finding.effect for finding in bench.outcomes[0].findings if finding.kind == "frames_lost"]
    assert effects == [effect]
