"""How a running benchmark is followed, with a clock that is given, and on fakes where threads are the point."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base import clock
from containernet_env.load.server import Answer, Progress
from containernet_env.model.scenario import Warmup
from containernet_env.runs.follow import END_TIMEOUT_S, HOST_NEWS_S, Course, Look, Patience, who_is_silent
from tests.simulated_time import World
from tests.unit.matrix_fakes import Bench, read, result_of, write

PATIENCE = Patience(first_s=42.0, later_s=32.0)


def drive(course: Course, look: Look, seconds: float, from_s: float = 0.0, step_s: float = 0.25) -> tuple[str, float]:
    """Look periodically until something is to be done: what, and when."""
    now_s = from_s
    while now_s < from_s + seconds:
        now_s += step_s
        if (action := course.look(now_s, look)) != "go on":
            return action, now_s
    return "go on", now_s


@pytest.mark.parametrize(
    ("load", "first_s", "later_s"),
    [
        (write("w"), 37.0, 27.0),
        (replace(write("w"), request_timeout_ns=10**9), 18.0, 8.0),
        (replace(write("w"), rate=Decimal("0.1")), 47.0, 37.0),
        (replace(write("w"), rate=Decimal("0.5"), arrival="poisson"), 77.0, 67.0),
        (replace(write("w"), warmup=Warmup(length_ns=3600 * 10**9)), 37.0, 27.0),  # its requests are counted
    ],
)
def test_how_long_nothing_may_end_follows_from_the_deadlines(load: Any, first_s: float, later_s: float) -> None:
    assert Patience.of(load) == Patience(first_s, later_s)


def test_the_report_of_many_requests_is_no_standstill_and_bounded() -> None:
    assert PATIENCE.limit_s(1_000_000) == pytest.approx(42.0)
    assert PATIENCE.limit_s(10_000_000_000) == pytest.approx(52.0)
    course = Course(PATIENCE, 0.0)
    assert drive(course, Look(ended=1_000_000), 100)[0] == "cancel"
    cancelled_s = course.silent_s
    drive(course, Look(ended=1_000_000), 100, from_s=cancelled_s)
    assert course.silent_s - cancelled_s == pytest.approx(END_TIMEOUT_S + 10.0, abs=0.5)


def test_a_benchmark_in_which_nothing_ends_is_cancelled_once_and_then_given_up() -> None:
    course = Course(PATIENCE, 0.0)
    assert drive(course, Look(ended=0), 100) == ("cancel", 42.0)
    assert course.stands_still
    assert drive(course, Look(ended=0), 100, from_s=42.0) == ("abandon", 52.0)


def test_requests_that_end_badly_are_no_standstill() -> None:
    course = Course(PATIENCE, 0.0)
    for turn in range(100):
        assert drive(course, Look(ended=turn), 20, from_s=turn * 20.0)[0] == "go on"


def test_a_server_that_tells_nothing_is_as_one_where_nothing_ends() -> None:
    course = Course(PATIENCE, 0.0)
    assert course.look(1.0, Look(ended=700)) == "go on"
    assert drive(course, Look(ended=None), 100, from_s=1.0)[1] == pytest.approx(33.0, abs=0.3)


def test_a_pause_of_the_driver_is_no_silence_of_others() -> None:
    """Ctrl-Z, and an hour later fg: each look after it is the first that anybody could take."""
    course = Course(PATIENCE, 0.0)
    course.look(0.25, Look(ended=5))
    assert course.look(3600.0, Look(ended=5)) == "go on"
    assert course.silent_s == 1.0


def test_a_failure_gets_no_grace_and_a_death_two_seconds() -> None:
    assert Course(PATIENCE, 0.0).look(0.25, Look(ended=5, failed=True)) == "cancel"
    assert drive(Course(PATIENCE, 0.0), Look(ended=5, died=True), 10) == ("cancel", 2.25)


def test_a_host_that_has_ended_is_given_up_at_once() -> None:
    assert Course(PATIENCE, 0.0).look(0.25, Look(ended=5, host_ended=True)) == "abandon"


@pytest.mark.parametrize(
    ("server_s", "client_s", "members", "words"),
    [
        (12.0, 99.0, [], "the benchmark server answers nothing"),
        (0.2, 12.0, [], "the benchmark client is silent (stopped?)"),
        (0.2, 0.1, ["etcd1"], "etcd1 answers nothing"),
        (9.0, 0.1, ["etcd1", "etcd2"], "the benchmark server answers nothing; etcd1, etcd2 answer nothing"),
        (0.2, 0.1, [], "server, client and members answer"),
    ],
)
def test_who_is_silent_is_named(server_s: float, client_s: float, members: list[str], words: str) -> None:
    assert who_is_silent(server_s, client_s, members) == words


def silence(bench: Bench, client_s: float) -> None:
    bench.server.progress = lambda: Progress(True, 7, 10, 0, 0, client_s)  # type: ignore[method-assign]


@pytest.mark.simulated(seeds=20)
def test_a_stopped_client_ends_its_scenario_and_the_next_one_runs() -> None:
    bench = Bench(write("w"), write("w2"))
    silence(bench, client_s=60.0)

    def behave(path: str, body: dict[str, Any]) -> Answer:
        if len(bench.server.asked) > 1:
            return Answer(result_of(), None)
        bench.server.cancelled.wait()
        return Answer(None, "benchmark-client ended without a report (signal: killed)")

    bench.server.behave = behave
    bench.matrix.run()
    stopped, following = bench.errors()
    who = "the benchmark client is silent (stopped?)"
    assert stopped == f"no request has ended for 27 s: {who}; benchmark-client ended without a report (signal: killed)"
    assert following == "-"
    assert bench.progress.notes == [f"no request has ended for 14 s: {who}; ended after 27 s"]


@pytest.mark.simulated(seeds=20)
def test_a_stopped_server_ends_its_scenario_and_the_matrix() -> None:
    """The answer never comes, and a question for the progress takes its whole deadline: neither may hold anybody up."""
    bench, never = Bench(write("w"), read("r")), clock.Event()

    def behave(path: str, body: dict[str, Any]) -> Answer:
        never.wait()
        return Answer(None, "late")

    bench.server.behave = behave
    bench.server.progress = bench.server.cancel = lambda: never.wait() and None  # type: ignore[method-assign]
    began_s = clock.monotonic()
    bench.matrix.run()
    who = "the benchmark server answers nothing"
    assert bench.errors() == [f"no request has ended for 37 s: {who}", f"not run: {who}"]
    assert clock.monotonic() - began_s == pytest.approx(37.0 + END_TIMEOUT_S, abs=0.05)


@pytest.mark.simulated(seeds=20)
@pytest.mark.parametrize("after_s", [0.1, 0.9, 1.5])
def test_a_benchmark_host_that_ended_is_named_with_its_reason_and_the_rest_is_not_run(after_s: float) -> None:
    """The row said 'Remote end closed connection', and the remaining scenarios had none."""
    bench = Bench(write("w"), write("w2"), read("r"))
    host = bench.target.client_host = SimpleNamespace(alive=True, ending=lambda: "killed by SIGKILL")
    broken = "the benchmark server did not answer: Remote end closed connection"

    def end() -> None:
        clock.sleep(after_s)
        host.alive = False

    def behave(path: str, body: dict[str, Any]) -> Answer:
        clock.Thread(target=end).start()  # the connection breaks first
        return Answer(None, broken, lost=True)

    bench.server.behave = behave
    bench.matrix.run()
    reason = "the benchmark host ended: killed by SIGKILL"
    first = broken if after_s > HOST_NEWS_S else reason
    assert bench.errors()[0] == first
    assert set(bench.errors()[1:]) <= {broken, reason, f"not run: {reason}"}
    assert after_s > HOST_NEWS_S or bench.errors()[1:] == [f"not run: {reason}"] * 2


@pytest.mark.simulated()
def test_a_killed_client_is_named_and_the_matrix_goes_on() -> None:
    bench = Bench(write("w"), write("w2"))
    killed = Answer(None, "benchmark-client ended without a report (signal: killed)")
    bench.server.behave = lambda path, body: Answer(result_of(), None) if len(bench.server.asked) > 1 else killed
    bench.matrix.run()
    assert bench.errors() == [killed.error, "-"]


@pytest.mark.simulated(seeds=5)
def test_a_warm_up_is_no_standstill() -> None:
    """Of a long warm-up nothing counts as done."""
    bench, asked = Bench(write("w")), count()
    bench.server.progress = lambda: Progress(True, 0, 10, 0, next(asked), 0.0)  # type: ignore[method-assign]

    def warm_up(path: str, body: dict[str, Any]) -> Answer:
        assert not bench.server.cancelled.wait(300)
        return Answer(result_of(), None)

    bench.server.behave = warm_up
    bench.matrix.run()
    assert bench.errors() == ["-"]


@pytest.mark.simulated(seeds=20)
def test_no_thread_outlives_a_matrix() -> None:
    """The watch of members ends with it, since an open connection keeps a network namespace; the reader of progress
    ends by itself."""
    Bench(write("w")).matrix.run()
    assert "member-watch" not in World.current.threads
    clock.sleep(1)
    assert World.current.threads == []


@pytest.mark.simulated()
def test_an_error_waits_for_the_news_that_the_emulator_was_silent() -> None:
    """Requests with short deadlines fail long before the emulator is given up: the cluster was blamed."""
    bench = Bench(write("w"), write("w2"))
    bench.server.behave = lambda path, body: Answer(result_of(ok=5), "no request succeeded for 1.1s")

    def settled() -> str:
        bench.target.failure = "the link emulator has not answered for 5 s"
        return str(bench.target.failure)

    bench.target.settled_failure = settled
    bench.matrix.run()
    silent = "the link emulator has not answered for 5 s"
    assert bench.errors() == [f"{silent}; no request succeeded for 1.1s", f"not run: {silent}"]


@pytest.mark.simulated()
def test_a_row_with_an_error_names_the_members_that_answer_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that was stopped: 'no put succeeded for 21s', and nothing of the leader."""
    bench = Bench(write("w"), write("w2"))
    monkeypatch.setattr(bench.matrix._members, "silent", lambda for_s: ["etcd1", "etcd2"])
    bench.server.behave = lambda path, body: Answer(result_of(ok=5), "no put succeeded for 21s")
    bench.cluster.answering = False
    bench.matrix.run()
    assert bench.errors() == [
        "etcd1, etcd2 answer nothing; no put succeeded for 21s",
        "not run: the cluster did not answer within 9 s: etcd1, etcd2 answer nothing",
    ]
