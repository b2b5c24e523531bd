"""The matrix, where it ends otherwise than by its last scenario."""

from __future__ import annotations

import errno
import io
import signal
from typing import Any

import pytest
from rich.console import Console

from containernet_env.base import clock
from containernet_env.base.errors import Interrupted, RunError, text_of
from containernet_env.base.stop import Stop
from containernet_env.cli.progress import TerminalProgress
from containernet_env.load.server import Answer
from containernet_env.model.leadership import Leadership
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import Dataset, Scenario, ScheduledScenario
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
    bench = Bench(write("w"))

    def die(path: str, body: dict[str, Any]) -> Answer:
        bench.cluster.dead = {"etcd2": "etcd2 ended with exit code 1"}
        return Answer(result_of(), "connection lost")

    bench.server.behave = die
    bench.matrix.run()
    assert "etcd2 ended" in str(bench.outcomes[0].error)
    assert ("member_died", "etcd2") in bench.events


@pytest.mark.parametrize("scenario", [write("w"), read("r")], ids=["measured", "in the data set's load"])
@pytest.mark.parametrize(
    "error", [KeyError("percentiles_s"), RunError("a result of version 3")], ids=["bug", "version"]
)
def test_an_error_of_the_program_itself_leaves_a_row_that_is_not_called_interrupted(
    scenario: Scenario, error: Exception
) -> None:
    """'interrupted' is for a run that was asked to end; a bug's row must not say so."""
    bench = Bench(scenario)

    def fail(path: str, body: dict[str, Any]) -> Answer:
        raise error

    bench.server.behave = fail
    with pytest.raises(type(error)):
        bench.matrix.run()
    assert [outcome.error for outcome in bench.outcomes] == [text_of(error)]


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


def test_a_scenario_that_was_not_run_has_no_end_without_a_beginning() -> None:
    """Its event is one of its own."""
    bench = Bench(write("w1"), write("w2"))
    bench.target.failure = "the link emulator ended"
    bench.matrix.run()
    assert bench.events == [("scenario_not_run", "w1"), ("scenario_not_run", "w2")]


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


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def struck(bench: Bench) -> list[str | None]:
    """The errors of the outcomes that a matrix leaves which is interrupted."""
    with pytest.raises(Interrupted), bench.stop:  # type: ignore[attr-defined]
        bench.matrix.run()
    return [outcome.error for outcome in bench.outcomes]


@pytest.mark.parametrize("failure", [None, "the link emulator ended"], ids=["measured", "not run"])
def test_a_signal_while_a_row_is_left_costs_none_and_leaves_none_twice(failure: str | None) -> None:
    """The second call for the same outcome is for a signal that struck before it was kept."""
    bench = Bench(write("w1"), write("w2"), write("w3"))
    bench.target.failure = failure

    def leave(outcome: ScenarioOutcome) -> None:
        bench.outcomes.append(outcome)
        if len(bench.outcomes) == 1:
            press()

    bench.leave = leave
    assert struck(bench) == ([None] if failure is None else [f"not run: {failure}"] * 3)


def test_a_signal_while_the_beginning_is_written_down_leaves_the_row_too() -> None:
    """scenario_began is forced to disk before the outcome's guard: a signal in those milliseconds costs the row."""
    bench = Bench(write("w"))
    bench.on_event = lambda kind: press() if kind == "scenario_began" else None
    assert struck(bench) == ["interrupted"]


def test_a_scenario_that_was_measured_keeps_its_figures_where_a_signal_strikes_after_it() -> None:
    """Ctrl-C between a benchmark's answer and its row, while counters are read and the leader is asked for (seconds
    where a member or the emulator is silent): the row says 'interrupted' and has no figures."""
    bench = Bench(write("w"))

    def leadership() -> Leadership:
        if bench.server.asked:
            press()
        return Leadership("etcd1", 2)

    bench.cluster.leadership = leadership  # type: ignore[method-assign]
    assert struck(bench) == [None] and bench.outcomes[0].load is not None


def test_a_matrix_whose_outcomes_cannot_be_kept_ends_and_leaves_the_rest_not_run() -> None:
    """A full disk: measuring on would take hours for rows that nobody gets."""
    bench = Bench(write("w1"), write("w2"), write("w3"))
    full = "out.csv cannot be written: No space left on device"
    bench.leave = lambda outcome: (bench.outcomes.append(outcome), full)[1]
    bench.matrix.run()
    assert [outcome.error for outcome in bench.outcomes] == [None, *[f"not run: {full}"] * 2]
    assert len(bench.server.asked) == 1


def test_an_outcome_counts_as_left_when_it_is_kept_and_is_offered_again_until_then() -> None:
    """It counted before it was written: what struck in between lost it."""
    bench = Bench(write("w1"), write("w2"))

    def leave(outcome: ScenarioOutcome) -> None:
        bench.outcomes.append(outcome)
        if len(bench.outcomes) == 1:
            raise KeyboardInterrupt

    bench.leave = leave
    with pytest.raises(KeyboardInterrupt):
        bench.matrix.run()
    bench.matrix.leave_rest("interrupted")
    assert bench.outcomes[0] is bench.outcomes[1]
    assert [outcome.error for outcome in bench.outcomes[1:]] == [None, "not run: interrupted"]


def test_the_first_error_is_told_where_the_other_rows_cannot_be_left_either() -> None:
    bench = Bench(write("w"), write("v"))

    def leave(outcome: ScenarioOutcome) -> None:
        if outcome.scheduled.scenario.name == "v":
            raise OSError(errno.EIO, "second")

    def fail(path: str, body: dict[str, Any]) -> Answer:
        raise KeyError("first")

    bench.leave, bench.server.behave = leave, fail
    with pytest.raises(KeyError, match="first"):
        bench.matrix.run()
