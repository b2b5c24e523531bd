"""The table of faults: what is promised for every fault at every moment of a run. Pure data; tests follow from it.

A run has three scenarios, in the order of ``SCENARIOS``. A fault strikes at a moment; ``Promise`` says how the run ends
then, and what becomes of each scenario's row. A cell that makes no sense has the reason instead.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

BRING_UP, PROOF, WRITE, HEAVY, READ, TEAR_DOWN = "bring-up", "proof", "write", "heavy-write", "read", "tear-down"
MOMENTS = (BRING_UP, PROOF, WRITE, HEAVY, READ, TEAR_DOWN)
"""In the order of a run. ``write`` is by a single client, ``heavy-write`` by a hundred."""
SCENARIOS = (WRITE, HEAVY, READ)
"""The moments that are scenarios of the run, in its order."""

# How a moment begins: the kind of an event, and which one of that kind.
BEGINNINGS = {BRING_UP: ("run_began", 1), PROOF: ("hosts_up", 1), TEAR_DOWN: ("tear_down_began", 1)}
BEGINNINGS |= {moment: ("scenario_began", number) for number, moment in enumerate(SCENARIOS, 1)}
# What is over when it begins: a fault that comes later has missed its moment.
ENDS = {BRING_UP: ("network_proved", 1), PROOF: ("network_proved", 1), TEAR_DOWN: ("run_ended", 1)}
ENDS |= {moment: ("scenario_ended", number) for number, moment in enumerate(SCENARIOS, 1)}

FINISHED = "-"
"""The Error of a row whose scenario was measured without one."""
BRIEF_S = 3.0
"""How long what is stopped briefly is stopped."""

Kept = Literal["OUT", "OUT or OUT.rescued", "run directory"]


@dataclass(frozen=True)
class Promise:
    """How a run ends that a fault has struck.

    ``status`` are the exit statuses that are allowed. ``says`` and ``marked`` are regular expressions: of what the run
    prints, and of a finding or the error of the struck scenario. ``rows`` has one for the Error of each scenario's row
    (``FINISHED`` is meant as it is), ``None`` where there must be no row, and is empty where any may be there, once.
    ``kept`` is where the rows are. ``words`` is the promise for people.
    """

    words: str
    status: tuple[int, ...]
    rows: tuple[str | None, ...] = (FINISHED,) * len(SCENARIOS)
    says: str = ""
    marked: str = ""
    kept: Kept = "OUT"


@dataclass(frozen=True)
class Cell:
    """A fault at a moment. Exactly one of ``promise`` and ``senseless``, the reason why there is none, is set.

    ``gate`` names the environment variable without which the cell is skipped.
    """

    fault: str
    moment: str
    promise: Promise | None = None
    senseless: str = ""
    gate: str = ""

    @property
    def name(self) -> str:
        """As the test's parameter: "leader-kill-at-read"."""
        return f"{self.fault}-at-{self.moment}"


Moments = dict[str, Promise | str]
"""By moment: the promise, or why there is none."""


def _rows(moment: str, running: str, rest: str | None) -> tuple[str | None, ...]:
    """The rows of a run that is struck at a moment: ``running`` is the struck scenario's error."""
    if moment in (BRING_UP, PROOF):
        return (None,) * len(SCENARIOS)
    if moment == TEAR_DOWN:
        return (FINISHED,) * len(SCENARIOS)
    struck = SCENARIOS.index(moment)
    return (FINISHED,) * struck + (running,) + (rest,) * (len(SCENARIOS) - struck - 1)


NOTHING_LEFT = Promise("every row is there and nothing is left", (0,))


def _ends(words: str, running: str, rest: str | None, says: str = "", status: tuple[int, ...] = (1,)) -> Moments:
    """The run ends by the fault, at any moment but the tear-down, which is carried to its end."""
    found: Moments = {moment: Promise(words, status, _rows(moment, running, rest), says) for moment in MOMENTS[:-1]}
    return {**found, TEAR_DOWN: NOTHING_LEFT}


def _in_scenarios(words: str, running: str, rest: str, status: tuple[int, ...] = (1,), marked: str = "") -> Moments:
    """The run goes on after the scenario that is struck."""
    return {moment: Promise(words, status, _rows(moment, running, rest), marked=marked) for moment in SCENARIOS}


def _goes_on(words: str, *moments: str, marked: str = "") -> Moments:
    """The run goes on to its end, all rows finished; the struck scenario is ``marked``."""
    return {moment: Promise(words, (0,), marked=marked if moment in SCENARIOS else "") for moment in moments or MOMENTS}


# --- the driver --------------------------------------------------------------------------------------------------


def _signal(signum: signal.Signals) -> Moments:
    status = 128 + signum
    words = f"exit {status}; the running scenario's row says interrupted, the others are not run"
    return {
        **_ends(words, "^interrupted", "^not run: .*interrupted", "interrupted", (status,)),
        TEAR_DOWN: Promise(f"exit {status} once the tear-down is over; every row is there", (status,)),
    }


def _driver_killed(words: str, at_tear_down: str) -> Moments:
    return {
        moment: Promise(
            words if moment != TEAR_DOWN else at_tear_down,
            (-signal.SIGKILL,),
            tuple(row if row == FINISHED else None for row in _rows(moment, "", None)),
        )
        for moment in MOMENTS
    }


# --- what a run consists of --------------------------------------------------------------------------------------

# The last line of a run in which no scenario failed.
_WHOLE = r"rows? in [^:]*: (?!.*failed)"
_BY_SIGNAL = r"(SIGKILL|signal 9|signal: killed|was killed|exit (code|status) 137)"
_SILENT = r"(silent|answer(s|ed)?\b|no progress)"
_EARLY: Moments = dict.fromkeys(
    (BRING_UP, PROOF), "no leader is known before the cluster is up: the follower's cell is the same"
)
_NO_CLIENT: Moments = dict.fromkeys(
    (BRING_UP, PROOF, TEAR_DOWN), "the benchmark's client runs only while a scenario does"
)
_AT_GATE = "a member waits at its gate in the proof as in the bring-up: that cell shows it"


def _gone(words: str, what: str, rest: str = "", says: str = "") -> Moments:
    """The run ends, and its rows and what it prints name ``what``."""
    return _ends(words, what, rest or f"^not run: .*{what}", says or what)


def _member_killed(who: str) -> Moments:
    dead = rf"{who}.*{_BY_SIGNAL}"
    return _gone("exit 1; the row and those after it name the member and its signal", dead, f"{dead}.*earlier")


def _stopped_briefly(who: str) -> Moments:
    """Requests may fail meanwhile: etcd's own deadlines are shorter than that of the load's."""
    goes_on = _goes_on("the run goes on when what was stopped does", BRING_UP, PROOF, TEAR_DOWN)
    words = "a finding, or the row's error, names who answered nothing"
    return {**goes_on, **_in_scenarios(words, ".*", FINISHED, (0, 1), marked=who)}


def _member_silent(who: str) -> Moments:
    """A minority is silent: its requests fail, the cluster goes on."""
    words = "a row that it disturbs names the member that answered nothing"
    return {
        **_in_scenarios(words, ".*", ".*", (0, 1), marked=who),
        BRING_UP: Promise("exit 1; the message names the member", (1,), _rows(BRING_UP, "", ""), who),
        PROOF: _AT_GATE,
        TEAR_DOWN: NOTHING_LEFT,
    }


_TWO = "etcd[1-3].*etcd[1-3]"
_TWO_SILENT: Moments = {
    **_in_scenarios("exit 1; the row names both members, the others are not run", _TWO, "^not run: .*"),
    BRING_UP: "a cluster waits for all its members: the follower's cell shows it",
    PROOF: _AT_GATE,
    TEAR_DOWN: NOTHING_LEFT,
}
_TWO_KILLED = _ends(
    "exit 1; the row names both members, the others are not run",
    rf"etcd[1-3].*{_BY_SIGNAL}.*etcd[1-3].*{_BY_SIGNAL}",
    f"^not run: .*{_TWO}",
    rf"etcd[1-3].*{_BY_SIGNAL}",
)

# --- the engine --------------------------------------------------------------------------------------------------

_ENGINE_AND_REMEDY = r"(?s)engine.*(has ended|has stopped|does not answer|broke the connection).*containernet-env clean"
_ENGINE_GONE: Moments = {
    **_ends(
        "exit 1 or 3; the engine is named first, with the remedy; `clean` removes the rest once it is up again",
        ".*engine",
        "^not run: .*engine",
        _ENGINE_AND_REMEDY,
        (1, 3),
    ),
    TEAR_DOWN: Promise("every row is there; the engine is named with the remedy", (1, 3), says=_ENGINE_AND_REMEDY),
}
# Without an engine containers run on: the run may go on until it needs the engine, which is for its tear-down at last.
_ENGINE_KILLED: Moments = {
    moment: replace(promise, rows=_rows(moment, ".*", ".*"))
    for moment, promise in _ENGINE_GONE.items()
    if isinstance(promise, Promise)
}
_CONTAINERD_KILLED: Moments = {
    **_goes_on("a whole run: containers run on, and are removed once the engine has another containerd"),
    BRING_UP: Promise(
        "a whole run, or exit 1 with the engine's refusal; no row is there twice",
        (0, 1, 3),
        (),
        rf"{_WHOLE}|engine|containerd",
    ),
}

# --- files -------------------------------------------------------------------------------------------------------


def _out_lost(words: str, says: str, kept: Kept) -> Moments:
    """OUT takes no more rows: the run ends with 1 and says so; no row is lost."""
    return {
        moment: Promise(words, (1,), _rows(moment, ".*", ".*") if moment in SCENARIOS else (".*",) * 3, says, kept=kept)
        for moment in MOMENTS
    }


_OUT_GONE = _out_lost(
    "exit 1; says at once that OUT is gone and has every row in OUT.rescued",
    r"out\.csv\.rescued",
    "OUT or OUT.rescued",
)


def _out_refused(says: str) -> Moments:
    words = "exit 1; one message with its remedy; OUT ends with a whole row, the rest is in the run directory"
    none = "every row is written by then, and nothing of the fault meets it"
    return {**_out_lost(words, says, "run directory"), TEAR_DOWN: none}


_FROM_START: Moments = {
    **_goes_on("the same without output", BRING_UP),
    **dict.fromkeys(MOMENTS[1:], "it holds from the start of the run, as the bring-up's cell shows"),
}
_NO_SPACE = r"etcd[1-3].*no space left"
_ETCD_FULL: Moments = {
    BRING_UP: "a member waits at its gate in the bring-up as in the proof: that cell shows it",
    PROOF: Promise("exit 1; the message names the member and its last error", (1,), _rows(PROOF, "", ""), _NO_SPACE),
    **_in_scenarios("exit 1; the rows name the member and its last error", _NO_SPACE, r"etcd[1-3].*earlier"),
    **_goes_on("nothing is written to the data: every row is finished", READ, TEAR_DOWN),
}
_NO_LIMIT: Moments = {
    moment: Promise(
        "a whole run, or exit 1 with a message that names what ran out; every scenario has its row",
        (0, 1),
        () if moment in (BRING_UP, PROOF) else _rows(moment, ".*", ".*"),
        # What it struck may have been the last that needed more.
        rf"{_WHOLE}|gives this process no more|Too many open files|Resource temporarily unavailable",
    )
    for moment in MOMENTS
}

# --- all of it ---------------------------------------------------------------------------------------------------

CLOCK, MEMORY = "CONTAINERNET_ENV_TEST_CLOCK", "CONTAINERNET_ENV_TEST_MEMORY"
GATES: Mapping[str, str] = {"clock-forward": CLOCK, "clock-back": CLOCK, "memory-pressure": MEMORY}
"""Faults that meet the whole machine, and what has to be set (to 1) to allow them."""

USERS_STAYS = "the driver is killed, and the next run cleans up: what is the user's stays"
FAULTS: Mapping[str, Moments] = {
    "driver-int": _signal(signal.SIGINT),
    "driver-term": _signal(signal.SIGTERM),
    "driver-hup": _signal(signal.SIGHUP),
    "driver-quit": _signal(signal.SIGQUIT),
    "driver-kill": _driver_killed("what was measured is there; the next run cleans up", NOTHING_LEFT.words),
    "emulator-kill": _gone(
        "exit 1; the row and the others' 'not run' say that the link emulator was killed",
        rf"link emulator.*{_BY_SIGNAL}",
    ),
    "emulator-stop-briefly": _stopped_briefly("link emulator was paused"),
    "emulator-stop": _gone(
        "exit 1; the row names the link emulator as silent, the others are not run", rf"link emulator.*{_SILENT}"
    ),
    "server-kill": _gone(
        "exit 1; the row says that the benchmark host ended and how, the others are not run",
        rf"benchmark.*ended.*{_BY_SIGNAL}",
        says=rf"benchmark.*{_BY_SIGNAL}",
    ),
    "server-stop-briefly": _goes_on("the load is the client's: every row is finished"),
    "server-stop": _gone(
        "exit 1; the row names the benchmark server as silent, the others are not run",
        rf"benchmark server.*{_SILENT}",
        "^not run: .*benchmark",
        rf"benchmark.*{_SILENT}",
    ),
    "client-kill": _NO_CLIENT
    | _in_scenarios(
        "exit 1; the row says that the client was killed, the others are finished",
        rf"client.*{_BY_SIGNAL}",
        FINISHED,
    ),
    "client-stop-briefly": _NO_CLIENT
    | _goes_on(
        "the row is finished, and a finding names what paused", *SCENARIOS, marked="load generator itself was paused"
    ),
    "client-stop": _NO_CLIENT
    | _in_scenarios(
        "exit 1; the row names the benchmark client as silent, the others are finished",
        rf"client.*{_SILENT}",
        FINISHED,
    ),
    "follower-kill": _member_killed("etcd[1-3]"),
    "follower-stop-briefly": _stopped_briefly("etcd[1-3]"),
    "follower-stop": _member_silent("etcd[1-3]"),
    "leader-kill": _member_killed("etcd[1-3]") | _EARLY,
    "leader-stop-briefly": _stopped_briefly("etcd[1-3]") | _EARLY,
    "leader-stop": _member_silent("etcd[1-3]") | _EARLY,
    "two-members-kill": _TWO_KILLED,
    "two-members-stop-briefly": _stopped_briefly(_TWO),
    "two-members-stop": _TWO_SILENT,
    "engine-term": _ENGINE_GONE,
    "engine-kill": _ENGINE_KILLED,
    "containerd-kill": _CONTAINERD_KILLED,
    "out-full": _out_refused(r"(?i)no space left"),
    "out-removed": _OUT_GONE,
    "out-immutable": _out_refused(r"(?i)not permitted"),
    "out-folder-removed": _OUT_GONE,
    "record-is-a-file": _goes_on("every row is finished; the run says once that it keeps no record"),
    "etcd-full": _ETCD_FULL,
    "stdout-closed": _FROM_START,
    "stdout-full": _FROM_START,
    "stdout-pipe-closed": _goes_on("only the output ends"),
    "terminal-lost": _goes_on("only the output ends"),
    "few-descriptors": _NO_LIMIT,
    "few-processes": _NO_LIMIT,
    "clock-forward": _goes_on("every figure is by the monotonic clock"),
    "clock-back": _goes_on("every figure is by the monotonic clock"),
    "memory-pressure": _NO_LIMIT,
    "config-edited": _goes_on("the files are read once, at the start"),
    "second-run": _goes_on("the second one is refused and names the first; the first goes on"),
    "names-like-ours": _driver_killed(USERS_STAYS, USERS_STAYS),
}
ON_OWN_ENGINE = ("engine-term", "engine-kill", "containerd-kill")
"""Faults of runs that use an engine of the tests' own."""
REAL: Mapping[str, str] = {
    "a stop signal in the driver's own handlers": "driver-int-at-heavy-write",
    "what the kernel ends with a killed driver": "driver-kill-at-write",
    "the emulator's control connection and its interfaces end with it": "emulator-kill-at-read",
    "a stopped emulator": "emulator-stop-at-proof",
    "a container's first process ends": "server-kill-at-bring-up",
    "the client's exit status, by way of its server": "client-kill-at-write",
    "the client notices its own pause": "client-stop-briefly-at-read",
    "the cluster loses its leader": "leader-kill-at-heavy-write",
    "a stopped member, by pings": "follower-stop-briefly-at-write",
    "a member's own disk is full": "etcd-full-at-write",
    "the engine ends its containers, then itself": "engine-term-at-read",
    "a file system is full": "out-full-at-proof",
    "a file takes no writes": "out-immutable-at-bring-up",
    "the reader of a pipe is gone": "stdout-pipe-closed-at-bring-up",
    "a terminal hangs up": "terminal-lost-at-proof",
    "the limit of open files": "few-descriptors-at-heavy-write",
    "the limit of processes": "few-processes-at-tear-down",
    "containers, links and a namespace that look like ours": "names-like-ours-at-heavy-write",
}
"""Cells of the gate that strike real runs, by the mechanism of the system that each is about: what a simulated machine
only says that it does. All other real cells run by name."""


def cells() -> tuple[Cell, ...]:
    """Every fault at every moment, in the order of the table."""
    found = []
    for fault, moments in FAULTS.items():
        assert set(moments) == set(MOMENTS), fault
        for moment in MOMENTS:
            entry, gate = moments[moment], GATES.get(fault, "")
            if isinstance(entry, str):
                found.append(Cell(fault, moment, senseless=entry))
            else:
                found.append(Cell(fault, moment, entry, gate=gate))
    return tuple(found)
