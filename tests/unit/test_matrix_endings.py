"""The matrix, where it ends otherwise than by its last scenario."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from containernet_env.base import clock
from containernet_env.base.errors import Interrupted, RunError
from containernet_env.base.stop import Stop
from containernet_env.cli.progress import TerminalProgress
from containernet_env.load.server import Answer
from containernet_env.model.scenario import Dataset, ScheduledScenario
from containernet_env.plan.plan import PlannedScenario
from containernet_env.runs.matrix import Matrix
from tests.unit.matrix_fakes import Bench, read, result_of, write

pytestmark = pytest.mark.simulated(seeds=20)


def test_a_run_that_begins_with_a_slow_load_of_the_data_set_shows_its_progress() -> None:
    """`run --only 'read*'` where the load takes longer than one look: AssertionError in scenario_progress."""
    bench = Bench(read("r"))
    console = Console(file=io.StringIO())

    def slowly(path: str, body: dict[str, Any]) -> Answer:
        clock.sleep(1)
        return Answer(result_of(), None)

    bench.server.behave = slowly
    planned = [PlannedScenario(ScheduledScenario(read("r"), 1), True, 1.0)]
    Matrix(bench.target, planned, Dataset(8, 256, 1000), bench.outcomes.append, TerminalProgress(console), Stop()).run()
    assert [outcome.error for outcome in bench.outcomes] == [None]


def test_the_end_of_a_member_is_an_event_also_where_its_benchmark_ended_first() -> None:
    """All connections break at once, so the answer is there before the next look: no member_died in events.jsonl."""
    bench, events = Bench(write("w")), []

    def die(path: str, body: dict[str, Any]) -> Answer:
        bench.cluster.dead = {"etcd2": "etcd2 ended with exit code 1"}
        return Answer(result_of(), "connection lost")

    bench.server.behave = die
    Matrix(
        bench.target,
        bench.matrix._planned,
        Dataset(8, 256, 1000),
        bench.outcomes.append,
        bench.progress,
        Stop(),
        lambda kind, text, subject=None: events.append(kind),
    ).run()
    assert "etcd2 ended" in str(bench.outcomes[0].error)
    assert "member_died" in events


def test_an_error_of_the_program_itself_is_not_called_interrupted() -> None:
    """'interrupted' is for a run that was asked to end; a bug's row must not say so."""
    bench = Bench(write("w"))

    def fail(path: str, body: dict[str, Any]) -> Answer:
        raise KeyError("percentiles_s")

    bench.server.behave = fail
    with pytest.raises(KeyError):
        bench.matrix.run()
    assert len(bench.outcomes) == 1
    assert bench.outcomes[0].error != "interrupted"


def test_a_run_that_ends_while_the_data_set_loads_leaves_a_row_for_the_scenario_that_needed_it() -> None:
    """Neither a stop nor an error in the load may cost the row of the scenario whose turn it was."""
    bench = Bench(read("r"), stop=(stop := Stop()))

    def ask_to_end(path: str, body: dict[str, Any]) -> Answer:
        stop.request()
        clock.sleep(1)
        return Answer(result_of(), None)

    bench.server.behave = ask_to_end
    with pytest.raises(Interrupted):
        bench.matrix.run()
    assert [outcome.error for outcome in bench.outcomes] == ["interrupted"]


def test_a_result_of_another_version_in_the_data_sets_load_leaves_a_row() -> None:
    bench = Bench(read("r"))

    def refuse(path: str, body: dict[str, Any]) -> Answer:
        raise RunError("the benchmark server gave a result of version 3")

    bench.server.behave = refuse
    with pytest.raises(RunError):
        bench.matrix.run()
    assert len(bench.outcomes) == 1


def test_a_scenario_that_was_not_run_has_no_end_without_a_beginning() -> None:
    """Its event is one of its own."""
    bench, events = Bench(write("w1"), write("w2")), []
    bench.target.failure = "the link emulator ended"

    Matrix(
        bench.target,
        bench.matrix._planned,
        Dataset(8, 256, 1000),
        bench.outcomes.append,
        bench.progress,
        Stop(),
        lambda kind, text, subject=None: events.append((kind, subject)),
    ).run()
    assert events == [("scenario_not_run", "w1"), ("scenario_not_run", "w2")]


def test_a_check_of_the_cluster_that_fails_leaves_the_rest_not_run() -> None:
    """Asking whether the cluster answers may raise (the engine is gone): the rest must still have rows."""
    bench = Bench(write("w1"), write("w2"))
    bench.server.behave = lambda path, body: Answer(result_of(), "10 requests failed")

    def gone(timeout_s: float) -> bool:
        raise RunError("the engine does not answer")

    bench.cluster.answers = gone  # type: ignore[method-assign]
    with pytest.raises(RunError):
        bench.matrix.run()
    assert [outcome.scheduled.scenario.name for outcome in bench.outcomes] == ["w1", "w2"]


def test_a_signal_while_rows_not_run_are_left_costs_none_of_them() -> None:
    import os
    import signal

    from containernet_env.cli.signals import StopSignals

    bench = Bench(write("w1"), write("w2"), write("w3"))
    bench.target.failure = "the link emulator ended"
    left = []
    with StopSignals() as stop:

        def leave(outcome: Any) -> None:
            left.append(outcome.error)
            if len(left) == 1:
                os.kill(os.getpid(), signal.SIGINT)

        matrix = Matrix(bench.target, bench.matrix._planned, Dataset(8, 256, 1000), leave, bench.progress, stop)
        with pytest.raises(Interrupted):
            matrix.run()
    assert left == ["not run: the link emulator ended"] * 3


def test_a_signal_while_the_beginning_is_written_down_leaves_the_row_too() -> None:
    """scenario_began is forced to disk before the outcome's guard: a signal in those milliseconds costs the row."""
    import signal

    from containernet_env.cli.signals import StopSignals

    bench = Bench(write("w"))
    with StopSignals() as stop:

        def hear(kind: str, text: str, subject: str | None = None) -> None:
            if kind == "scenario_began":
                signal.raise_signal(signal.SIGINT)

        matrix = Matrix(
            bench.target,
            bench.matrix._planned,
            Dataset(8, 256, 1000),
            bench.outcomes.append,
            bench.progress,
            stop,
            hear,
        )
        with pytest.raises(Interrupted):
            matrix.run()
    assert [outcome.error for outcome in bench.outcomes] == ["interrupted"]


def test_a_matrix_whose_outcomes_cannot_be_kept_ends_and_leaves_the_rest_not_run() -> None:
    """A full disk: measuring on would take hours for rows that nobody gets."""
    bench = Bench(write("w1"), write("w2"), write("w3"))
    left: list[str | None] = []

    def leave(outcome: Any) -> str | None:
        left.append(outcome.error)
        return "out.csv cannot be written: No space left on device"

    Matrix(bench.target, bench.matrix._planned, Dataset(8, 256, 1000), leave, bench.progress, Stop()).run()
    assert left == [None, *["not run: out.csv cannot be written: No space left on device"] * 2]
    assert len(bench.server.asked) == 1


def test_an_outcome_counts_as_left_when_it_is_kept_and_is_offered_again_until_then() -> None:
    """It counted before it was written: what struck in between lost it."""
    bench, offered = Bench(write("w1"), write("w2")), []

    def leave(outcome: Any) -> None:
        offered.append(outcome)
        if len(offered) == 1:
            raise KeyboardInterrupt

    matrix = Matrix(bench.target, bench.matrix._planned, Dataset(8, 256, 1000), leave, bench.progress, Stop())
    with pytest.raises(KeyboardInterrupt):
        matrix.run()
    matrix.leave_rest("interrupted")
    assert offered[0] is offered[1]
    assert [outcome.error for outcome in offered[1:]] == [None, "not run: interrupted"]
