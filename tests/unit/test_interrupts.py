"""A matrix or a run that ends before its last scenario, also by Ctrl-C at each step, and between any two lines of the
product: every row once, nothing left."""

from __future__ import annotations

import errno
import io
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from containernet_env.base import clock
from containernet_env.base.errors import Interrupted, RunError, text_of
from containernet_env.base.work import Stop, stops_kept
from containernet_env.cli.terminal import StopSignals, TerminalProgress
from containernet_env.hosts import netns
from containernet_env.model.disruption import Disruption
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import Scenario
from containernet_env.model.usage import Leadership
from containernet_env.runs.matrix import Matrix
from tests.simulated_time import World, chosen, struck_everywhere
from tests.unit.fakes import GOOD, Bench, Patch, events, on_fakes, raising, read, rows, run, write

MS = 1_000_000


def press() -> None:
    """Ctrl-C, while a run hears of it."""
    if isinstance(getattr(signal.getsignal(signal.SIGINT), "__self__", None), StopSignals):
        signal.raise_signal(signal.SIGINT)


# --- a matrix that ends early -----------------------------------------------------------------------------------------


def errors_of(bench: Bench) -> list[str | None]:
    """The errors of the outcomes that a matrix leaves, whatever ends it."""
    with suppress(BaseException):
        bench.matrix.run()
    return [outcome.error for outcome in bench.outcomes]


@pytest.mark.simulated(seeds=10)
@pytest.mark.parametrize("off_main", [False, True], ids=["a signal", "a stop token, off the main thread"])
@pytest.mark.parametrize("running", [write("w2"), read("r")], ids=["measured", "in the data set's load"])
def test_a_stop_leaves_a_row_interrupted_for_the_running_scenario_only(off_main: bool, running: Scenario) -> None:
    bench = Bench(write("w", val_size=1), running, write("w3"), stop=Stop() if off_main else None)
    ended_s: list[float] = []

    def strike() -> None:
        bench.stop.request() if off_main else World.current.send_signal(signal.SIGINT)
        clock.sleep(60)

    def work() -> None:
        with pytest.raises(Interrupted):
            bench.matrix.run()
        ended_s.append(clock.monotonic())

    bench.server.answer(GOOD, strike)
    if off_main:
        thread = clock.Thread(target=work)
        thread.start()
        thread.join()
    else:
        with bench.stop:  # type: ignore[attr-defined]
            work()
    assert ended_s[0] < 1001
    assert [(row["Scenario"], row["Error"]) for row in bench.rows()] == [("w", "-"), (running.name, "interrupted")]


@pytest.mark.simulated(seeds=2)
@pytest.mark.parametrize("scenario", [write("w"), read("r")], ids=["measured", "in the data set's load"])
@pytest.mark.parametrize("error", [KeyError("percentiles_s"), RunError("a result of version 3")], ids=str)
def test_a_fault_of_the_program_leaves_a_row_that_is_not_called_interrupted(
    scenario: Scenario, error: Exception
) -> None:
    """'interrupted' is for a run that was asked to end; a bug's row must not say so."""
    bench = Bench(scenario)
    bench.server.answer(raising(error))
    with pytest.raises(type(error)):
        bench.matrix.run()
    assert [outcome.error for outcome in bench.outcomes] == [text_of(error)]


@pytest.mark.simulated(seeds=2)
def test_a_check_of_the_cluster_that_fails_leaves_the_rest_not_run() -> None:
    """Asking whether the cluster answers may raise (the engine is gone): the rest must still have rows."""
    bench = Bench(write("w1"), write("w2"))
    bench.server.answer(replace(GOOD, error="10 requests failed"))
    bench.cluster.answers = raising(RunError("no engine"))  # type: ignore[method-assign]
    assert errors_of(bench) == ["10 requests failed", "not run: no engine"]


def leaving(bench: Bench, call: Callable[[], object]) -> None:
    """Something happens when the first outcome has been kept."""

    def leave(outcome: ScenarioOutcome) -> None:
        bench.outcomes.append(outcome)
        if len(bench.outcomes) == 1:
            call()

    bench.leave = leave


def in_its_beginning(bench: Bench) -> None:
    """scenario_began is forced to disk before the outcome's guard: a signal in those milliseconds cost the row."""
    bench.on_event = lambda kind: press() if kind == "scenario_began" else None


def after_its_answer(bench: Bench) -> None:
    """While counters are read and the leader is asked for, seconds where a member or the emulator is silent: the row
    said 'interrupted' and had no figures."""

    def leadership() -> Leadership:
        if bench.server.asked:
            press()
        return Leadership("etcd1", 2)

    bench.cluster.leadership = leadership  # type: ignore[method-assign]


@pytest.mark.simulated(seeds=2)
@pytest.mark.parametrize(
    ("where", "failure", "errors"),
    [
        (lambda bench: leaving(bench, press), None, [None]),
        (lambda bench: leaving(bench, press), "no link", ["not run: no link"] * 2),
        (in_its_beginning, None, ["interrupted"]),
        (after_its_answer, None, [None]),
    ],
)
def test_a_signal_around_a_scenario_costs_no_row_and_leaves_none_twice(
    where: Callable[[Bench], None], failure: str | None, errors: list[str | None]
) -> None:
    bench = Bench(write("w1"), write("w2"))
    bench.target.failure = failure
    where(bench)
    with pytest.raises(Interrupted), bench.stop:  # type: ignore[attr-defined]
        bench.matrix.run()
    assert [outcome.error for outcome in bench.outcomes] == errors
    assert errors != [None] or bench.outcomes[0].load is not None


@pytest.mark.simulated()
def test_outcomes_that_cannot_be_kept_end_the_matrix_and_the_first_error_is_told() -> None:
    """A full disk: measuring on would take hours for rows that nobody gets."""
    bench = Bench(write("w1"), write("w2"), write("w3"))
    full = "out.csv cannot be written: No space left on device"
    bench.leave = lambda outcome: (bench.outcomes.append(outcome), full)[1]
    assert errors_of(bench) == [None, *[f"not run: {full}"] * 2] and len(bench.server.asked) == 1

    def leave(outcome: ScenarioOutcome) -> None:
        if outcome.scheduled.scenario.name == "v":
            raise OSError(errno.EIO, "second")

    bench = Bench(write("w"), write("v"))
    bench.leave = leave
    bench.server.answer(raising(KeyError("first")))
    with pytest.raises(KeyError, match="first"):
        bench.matrix.run()


@pytest.mark.simulated()
def test_an_outcome_counts_as_left_when_it_is_kept_and_is_offered_again_until_then() -> None:
    """It counted before it was written: what struck in between lost it."""
    bench = Bench(write("w1"), write("w2"))
    leaving(bench, raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        bench.matrix.run()
    bench.matrix.leave_rest("interrupted")
    assert bench.outcomes[0] is bench.outcomes[1]
    assert [outcome.error for outcome in bench.outcomes[1:]] == [None, "not run: interrupted"]


@pytest.mark.simulated(seeds=2)
def test_a_run_that_begins_with_a_slow_load_of_the_data_set_shows_its_progress() -> None:
    """`run --only 'read*'` where the load takes longer than one look: AssertionError in scenario_progress."""
    bench = Bench(read("r"))
    bench.server.answer(lambda: clock.sleep(1))
    bench.target.progress = TerminalProgress(Console(file=io.StringIO()))
    Matrix(bench.target, bench.outcomes.append).run()
    assert [outcome.error for outcome in bench.outcomes] == [None]


# --- Ctrl-C everywhere ------------------------------------------------------------------------------------------------

EVENTS = (
    Disruption(verb="kill", target="leader", at_ns=50 * MS, for_ns=100 * MS),
    Disruption(verb="freeze", target="etcd2", at_ns=60 * MS),
    Disruption(verb="link_down", target="etcd3", at_ns=60 * MS, for_ns=40 * MS),
    Disruption(verb="partition", target="etcd3", at_ns=120 * MS),
)
# Every line is a step of its own where threads may be preempted, be it ever so seldom.
LINES = 1e-9


def interrupted_matrix(world: World) -> None:
    bench: Bench

    def begin() -> None:
        bench.server.began_ns = clock.monotonic_ns()
        bench.server.cancelled.wait(0.3)

    try:
        with StopSignals() as stop:
            bench = Bench(replace(write("w"), events=EVENTS), read("r"), stop=stop)
            bench.server.answer(begin, begin, begin)
            with stops_kept():  # as a run has it
                bench.matrix.run()
            stop.shield()
    except Interrupted:
        if "bench" not in locals():
            return
    names = [outcome.scheduled.scenario.name for outcome in bench.outcomes]
    assert names == ["w", "r"][: len(names)]
    assert names == [subject for kind, subject in bench.events if kind == "scenario_ended"]
    begun = [subject for kind, subject in bench.events if kind == "scenario_began"]
    assert begun in (names, names[:-1]), "the last one may have been struck before"
    errors = [outcome.error for outcome in bench.outcomes]
    assert errors in ([None] * len(errors), [*[None] * (len(errors) - 1), "interrupted"])
    bench.cluster.expected.clear()  # who was killed stays so
    assert bench.faults.as_before, vars(bench.faults)
    assert not {"member-watch", "events", "event"} & set(world.threads)
    clock.sleep(60)
    assert world.threads == [], "each ends by itself"


@pytest.mark.parametrize("seed", chosen(1))
def test_a_matrix_with_events_at_each_step(seed: int) -> None:
    assert struck_everywhere(interrupted_matrix, press, seed) > 100


def test_a_matrix_with_events_between_any_two_lines() -> None:
    assert struck_everywhere(interrupted_matrix, press, preempt=LINES, every=53) > 2000


@pytest.mark.parametrize(("preempt", "every"), [(0.0, 17), (LINES, 9001)], ids=["steps", "lines"])
def test_a_whole_run(preempt: float, every: int, tmp_path: Path, monkeypatch: Patch) -> None:
    beds, number = on_fakes(monkeypatch), count()

    def interrupted_run(world: World) -> None:
        beds.clear()
        out = tmp_path / f"{next(number)}.csv"
        ended = "interrupted"
        with suppress(Interrupted), StopSignals() as stop:
            run(out, repeat=2, stop=stop)
            ended = "ended"
        assert all(bed.downs == 1 for bed in beds), "it was taken down once"
        done = Counter(row["Repetition"] for row in rows(out)) if out.exists() else Counter[str]()
        assert all(times == 1 for times in done.values()), done
        if beds and out.with_suffix(".runs").exists():
            kinds = [event["kind"] for event in events(out)]
            assert kinds.count("run_ended") == 1 == kinds.count("tear_down_began")
            assert ended == "ended" or "run_interrupted" in kinds or len(done) == 2, kinds

    assert struck_everywhere(interrupted_run, press, preempt=preempt, every=every) > 50


class Command:
    """Stands for ``subprocess.Popen``: takes half a second to begin, and a second to end by itself."""

    made: list[Command]
    returncode: int | None = None

    def __init__(self, words: Sequence[str], **options: Any) -> None:
        clock.sleep(0.5)
        self._killed = False
        self.made.append(self)

    def communicate(self, given: str | None, timeout: float) -> tuple[str, str]:
        clock.sleep(1)
        self.returncode = 0
        return "", ""

    def kill(self) -> None:
        self._killed = True

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._killed or self.returncode is not None, "its own end is waited for"
        self.returncode = -9 if self.returncode is None else self.returncode


@pytest.mark.parametrize("preempt", [0.0, LINES], ids=["steps", "lines"])
def test_a_command_in_a_namespace(preempt: float, monkeypatch: Patch) -> None:
    """The command went on beside the tear-down, and nothing waited for its end."""
    monkeypatch.setattr(netns.subprocess, "Popen", Command)
    monkeypatch.setattr(netns, "_enter", lambda pid: None)

    def interrupted_command(world: World) -> None:
        Command.made = []
        with suppress(Interrupted), StopSignals():
            netns.run(1, ["true"])
        returned = [command.returncode for command in Command.made]
        clock.sleep(60)
        assert returned == [command.returncode for command in Command.made], "one was begun afterwards"
        assert None not in returned and len(returned) <= 1
        assert world.threads == []

    assert struck_everywhere(interrupted_command, press, preempt=preempt) > 8
