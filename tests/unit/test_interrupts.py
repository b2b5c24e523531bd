"""A matrix or a run that ends before its last scenario, also by Ctrl-C at each step, and between any two lines of the
product: every row once, nothing left."""

from __future__ import annotations

import errno
import io
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from containernet_env.base import clock
from containernet_env.base.errors import Interrupted, RunError, text_of
from containernet_env.base.work import stops_kept
from containernet_env.cli.terminal import StopSignals, TerminalProgress
from containernet_env.hosts import netns
from containernet_env.model.disruption import Disruption
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import Scenario
from containernet_env.model.usage import Leadership
from containernet_env.runs.matrix import Matrix
from tests.simulated_time import World, chosen, struck_everywhere
from tests.unit.fakes import GOOD, Bench, Patch, events, observing, on_fakes, raising, read, rows, run, write

MS = 1_000_000


def press() -> None:
    """Ctrl-C, while a run hears of it."""
    if isinstance(getattr(signal.getsignal(signal.SIGINT), "__self__", None), StopSignals):
        signal.raise_signal(signal.SIGINT)


# --- a matrix that ends early -----------------------------------------------------------------------------------------


def leaving(bench: Bench, call: Callable[[], object]) -> None:
    """Something happens when the first outcome has been kept."""

    def leave(outcome: ScenarioOutcome) -> None:
        bench.outcomes.append(outcome)
        if len(bench.outcomes) == 1:
            call()

    bench.leave = leave


def after_its_answer(bench: Bench) -> None:
    """While counters are read and the leader is asked for, seconds where a member or the emulator is silent: the row
    said 'interrupted' and had no figures."""

    def leadership() -> Leadership:
        if bench.server.asked:
            press()
        return Leadership("etcd1", 2)

    bench.cluster.leadership = leadership


def by(error: Exception) -> Callable[[Bench], object]:
    return lambda bench: bench.server.answer(raising(error))


def where_the_engine_is_gone(bench: Bench) -> None:
    """The question whether the cluster answers fails: the rest must still have rows."""
    bench.server.answer(replace(GOOD, error="10 requests failed"))
    bench.cluster.answers = raising(RunError("no engine"))


FULL, NO_LINK = "out.csv cannot be written: No space left on device", ["not run: no link"] * 2


def on_a_full_disk(bench: Bench) -> None:
    """Measuring on would take hours for rows that reach no file."""
    bench.leave = lambda outcome: (bench.outcomes.append(outcome), FULL)[1]


def with_a_second_error(bench: Bench) -> None:
    bench.server.answer(raising(KeyError("first")))
    leaving(bench, lambda: setattr(bench, "leave", raising(OSError(errno.EIO, "second"))))


WRITES, NO_RESULT, OTHER = (write("w1"), write("w2")), KeyError("percentiles_s"), RunError("a result of version 3")
ENDS: dict[str, tuple[Sequence[Scenario], Callable[[Bench], object], BaseException | None, Sequence[str | None]]] = {
    "signal": (WRITES, lambda bench: leaving(bench, press), Interrupted(2), [None]),
    "dead network": (WRITES, lambda b: (b.fail("no link"), leaving(b, press)), Interrupted(2), NO_LINK),
    "signal after its answer": (WRITES, after_its_answer, Interrupted(2), [None]),
    # A bug's row must not say 'interrupted', which is for a run that is to end.
    "a bug": (WRITES, by(NO_RESULT), NO_RESULT, [text_of(NO_RESULT), f"not run: {text_of(NO_RESULT)}"]),
    "an error": (WRITES, by(OTHER), OTHER, [text_of(OTHER), f"not run: {text_of(OTHER)}"]),
    "a bug in the data set's load": ([read("r")], by(NO_RESULT), NO_RESULT, [text_of(NO_RESULT)]),
    "an error in it": ([read("r")], by(OTHER), OTHER, [text_of(OTHER)]),
    "no engine": (WRITES, where_the_engine_is_gone, RunError(), ["10 requests failed", "not run: no engine"]),
    "full disk": ((*WRITES, write("w3")), on_a_full_disk, None, [None, *[f"not run: {FULL}"] * 2]),
    "two errors": (WRITES, with_a_second_error, KeyError(), [text_of(KeyError("first"))]),
}


@pytest.mark.simulated(seeds=2)
@pytest.mark.parametrize("case", ENDS)
def test_what_ends_a_matrix_costs_no_row_leaves_none_twice_and_is_raised(case: str) -> None:
    scenarios, strike, error, errors = ENDS[case]
    bench = Bench(*scenarios)
    strike(bench)
    with nullcontext() if error is None else pytest.raises(type(error)), bench.stop:
        bench.matrix.run()
    assert [outcome.error for outcome in bench.outcomes] == errors
    assert errors != [None] or bench.outcomes[0].load is not None


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
    Matrix(bench.target, bench.outcomes.append, observing(bench.target)).run()
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


@pytest.mark.parametrize(("preempt", "every", "steps"), [(0.0, 1, 100), (LINES, 53, 2000)], ids=["steps", "lines"])
def test_a_matrix_with_events(preempt: float, every: int, steps: int) -> None:
    assert struck_everywhere(interrupted_matrix, press, chosen(1)[0], preempt, every) > steps


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
