"""Faults that strike a run of this machine (``harness``) and one of a simulated machine (``simulated``) alike.

Each is a generator that is given the run. It yields twice: once it has set up what it needs, before the run starts, and
once it has struck, at the moment. What follows the second yield puts back what the machine had; it is carried out in
any case. Whatever checks what the fault alone can tell is there, too.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from tests.faults.files import MEMBERS, Files
from tests.faults.table import BRIEF_S

Fault = Generator[None, None, None]
Strike = Callable[[Any], Fault]


def follower_of(run: Any) -> str:
    return next(name for name in MEMBERS if name != run.leader)


def targets(run: Any, who: str) -> list[Any]:
    """The processes that a fault strikes, as soon as they are there."""
    if who in ("emulator", "client"):
        return [run.wait_for_target(getattr(run, who))]
    follower = follower_of(run)
    names = {"server": ["benchmark"], "follower": [follower], "leader": [run.leader]}
    return [run.wait_for_target(partial(run.host, name)) for name in names.get(who, [run.leader, follower])]


def once(strike: Callable[[Any], object]) -> Strike:
    """Nothing is set up, and nothing put back."""

    def fault(run: Any) -> Fault:
        yield
        strike(run)
        yield

    return fault


def _driver_gets(signum: int) -> Strike:
    return once(lambda run: run.get_signal(signum))


def _killed(who: str) -> Strike:
    return once(lambda run: run.send(targets(run, who), signal.SIGKILL))


def _stopped(who: str, seconds: float | None = None) -> Strike:
    """Stopped for so long, or for ever; a deadline of requests that is longer, or much shorter, than that."""

    def fault(run: Any) -> Fault:
        run.files.set_deadline("300ms" if seconds is None else "8s")
        struck: list[Any] = []
        yield
        try:
            struck += targets(run, who)
            run.send(struck, signal.SIGSTOP)
            if seconds is not None:
                run.resume()
                run.let_pass(seconds)
                run.send(struck, signal.SIGCONT)
            yield
        finally:
            run.send(struck, signal.SIGCONT)

    return fault


def engine_struck(verb: str) -> Strike:
    """On an engine of the test's own. Once the run is over it is started again, and `clean` finds the rest."""

    def fault(run: Any) -> Fault:
        yield
        getattr(run.own_engine, verb)()
        try:
            yield
        finally:
            run.own_engine.start()
        status, text = run.tool("clean")
        assert status == 0 and run.own_engine.containers() == set(), text

    return fault


def _record_is_a_file(run: Any) -> None:
    runs = run.files.runs
    runs.rename(runs.with_name("earlier"))
    runs.write_text("a file\n")


def _config_edited(run: Any) -> None:
    run.files.config.write_text("[]")
    run.files.scenarios.unlink()


def _second_run(run: Any) -> None:
    files = Files(run.files.folder / "second")
    status, text = run.tool(*files.command)
    assert status == 1 and f"another run is on (process {run.driver})" in text, text
    assert files.rows() == []


def _clock_moved(seconds: float) -> Strike:
    def fault(run: Any) -> Fault:
        yield
        run.move_clock(seconds)
        try:
            yield
        finally:
            run.move_clock(-seconds)

    return fault


STRIKES: dict[str, Strike] = {
    **{
        f"driver-{name}": _driver_gets(getattr(signal, f"SIG{name.upper()}"))
        for name in ("int", "term", "hup", "quit", "kill")
    },
    "engine-term": engine_struck("terminate"),
    "engine-kill": engine_struck("kill"),
    "containerd-kill": engine_struck("kill_containerd"),
    "out-removed": once(lambda run: run.files.out.unlink()),
    "out-folder-removed": once(lambda run: shutil.rmtree(run.files.out.parent)),
    "record-is-a-file": once(_record_is_a_file),
    "clock-forward": _clock_moved(3600.0),
    "clock-back": _clock_moved(-3600.0),
    "config-edited": once(_config_edited),
    "second-run": once(_second_run),
}
for _who in ("emulator", "server", "client", "follower", "leader", "two-members"):
    STRIKES[f"{_who}-kill"] = _killed(_who)
    STRIKES[f"{_who}-stop"] = _stopped(_who)
    STRIKES[f"{_who}-stop-briefly"] = _stopped(_who, BRIEF_S)
