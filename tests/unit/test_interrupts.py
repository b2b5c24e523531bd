"""Ctrl-C at each step of a run on fakes, and between any two lines of the product: every row once, nothing left."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base import clock
from containernet_env.base.errors import Interrupted
from containernet_env.base.stop import stops_kept
from containernet_env.cli.signals import StopSignals
from containernet_env.hosts import netns
from containernet_env.load.server import Answer
from containernet_env.model.disruption import Disruption
from tests.simulated_time import World, struck_everywhere
from tests.unit.matrix_fakes import Bench, read, result_of, write
from tests.unit.run_fakes import events, on_fakes, rows, run

MS = 1_000_000
EVENTS = (
    Disruption(verb="kill", target="leader", at_ns=50 * MS, for_ns=100 * MS),
    Disruption(verb="freeze", target="etcd2", at_ns=60 * MS),
    Disruption(verb="link_down", target="etcd3", at_ns=60 * MS, for_ns=40 * MS),
    Disruption(verb="partition", target="etcd3", at_ns=120 * MS),
)


def press() -> None:
    """Ctrl-C, while a run hears of it."""
    if isinstance(getattr(signal.getsignal(signal.SIGINT), "__self__", None), StopSignals):
        signal.raise_signal(signal.SIGINT)


# Every line is a step of its own where threads may be preempted, be it ever so seldom.
LINES = 1e-9


def interrupted_matrix(world: World) -> None:
    bench: Bench

    def behave(path: str, body: dict[str, Any]) -> Answer:
        bench.server.began_ns = clock.monotonic_ns()
        bench.server.cancelled.wait(0.3)
        return Answer(result_of(), None)

    try:
        with StopSignals() as stop:
            bench = Bench(replace(write("w"), events=EVENTS), read("r"), stop=stop)
            bench.server.behave = behave
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


@pytest.mark.parametrize("seed", range(2))
def test_a_matrix_with_events_at_each_step(seed: int) -> None:
    assert struck_everywhere(interrupted_matrix, press, seed) > 100


def test_a_matrix_with_events_between_any_two_lines() -> None:
    assert struck_everywhere(interrupted_matrix, press, preempt=LINES, every=53) > 2000


@pytest.mark.parametrize(("preempt", "every"), [(0.0, 11), (LINES, 6007)], ids=["steps", "lines"])
def test_a_whole_run(preempt: float, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        if not self._killed:
            clock.sleep(1)
        self.returncode = -9 if self.returncode is None else self.returncode


@pytest.mark.parametrize("preempt", [0.0, LINES], ids=["steps", "lines"])
def test_a_command_in_a_namespace(preempt: float, monkeypatch: pytest.MonkeyPatch) -> None:
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
