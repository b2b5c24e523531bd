"""How a running benchmark is followed, with a clock that is given; ``test_matrix`` has it on fakes with threads."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from containernet_env.model.scenario import Warmup
from containernet_env.runs.follow import END_TIMEOUT_S, Course, Look, Patience, who_is_silent
from tests.unit.matrix_fakes import write

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


def test_a_benchmark_in_which_nothing_ends_is_cancelled_once_and_then_given_up() -> None:
    course = Course(PATIENCE, 0.0)
    assert drive(course, Look(ended=0), 100) == ("cancel", 42.0)
    assert course.stands_still
    assert drive(course, Look(ended=0), 100, from_s=42.0) == ("abandon", 52.0)


def test_the_report_of_many_requests_is_no_standstill_and_bounded() -> None:
    assert PATIENCE.limit_s(1_000_000) == pytest.approx(42.0)
    assert PATIENCE.limit_s(10_000_000_000) == pytest.approx(52.0)
    course = Course(PATIENCE, 0.0)
    assert drive(course, Look(ended=1_000_000), 100)[0] == "cancel"
    cancelled_s = course.silent_s
    drive(course, Look(ended=1_000_000), 100, from_s=cancelled_s)
    assert course.silent_s - cancelled_s == pytest.approx(END_TIMEOUT_S + 10.0, abs=0.5)


def test_what_is_no_standstill_and_what_is() -> None:
    course = Course(PATIENCE, 0.0)
    for turn in range(100):  # requests that end badly
        assert drive(course, Look(ended=turn), 20, from_s=turn * 20.0)[0] == "go on"
    # Ctrl-Z, and an hour later fg: each look after it is the first that anybody could take.
    assert course.look(2000.25, Look(ended=5)) == course.look(5600.0, Look(ended=5)) == "go on"
    assert course.silent_s == 1.0
    # A server that tells nothing is as one where nothing ends.
    course = Course(PATIENCE, 0.0)
    assert course.look(1.0, Look(ended=700)) == "go on"
    assert drive(course, Look(ended=None), 100, from_s=1.0)[1] == pytest.approx(33.0, abs=0.3)


@pytest.mark.parametrize(
    ("look", "action"),
    [
        (Look(ended=5, failed=True), ("cancel", 0.25)),
        (Look(ended=5, died=True), ("cancel", 2.25)),
        (Look(ended=5, host_ended=True), ("abandon", 0.25)),
    ],
)
def test_a_failure_gets_no_grace_and_a_death_two_seconds(look: Look, action: tuple[str, float]) -> None:
    assert drive(Course(PATIENCE, 0.0), look, 10) == action


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
