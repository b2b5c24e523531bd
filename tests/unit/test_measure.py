"""A run as a whole on testbeds of fakes: what is torn down, what is on disk, what is told, whatever ends it."""

from __future__ import annotations

import csv
import errno
import json
import os
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from containernet_env.base import clock
from containernet_env.base.clock import Moment
from containernet_env.base.errors import Interrupted, RunError, UsageError
from containernet_env.base.work import Stop
from containernet_env.cli import group
from containernet_env.model.findings import network_finding
from containernet_env.model.proof import Check, NetworkProof
from containernet_env.results import capacity, csv_file, run_directory
from containernet_env.results.run_directory import RunDirectory, find_run, read_run
from containernet_env.runs import follow
from containernet_env.runs import measure as measure_module
from containernet_env.runs import testbed as testbed_module
from containernet_env.runs.keeper import RowsNotWrittenError
from containernet_env.runs.load import Answer
from containernet_env.runs.measure import measure
from containernet_env.runs.progress import Silent
from tests.simulated_time import World
from tests.unit.fakes import CONFIG, QUICK, Beds, FakeTestbed, Notes, Patch, events, make_bed, on_fakes, raising, rows
from tests.unit.fakes import run as run_into


class Run:
    """Runs into one file, which may be ``full``, on the testbeds of ``beds``; ``told`` is what they told."""

    def __init__(self, out: Path, beds: Beds) -> None:
        self.out, self.beds, self.told, self.stop = out, beds, Notes(), Stop()
        self.full = False

    def __call__(self, **options: Any) -> Any:
        return run_into(self.out, **({"progress": self.told, "stop": self.stop} | options))

    def fails(
        self, error: type[BaseException] | tuple[type[BaseException], ...], says: str | None = None, **options: Any
    ) -> Any:
        """The error by which it ends."""
        with pytest.raises(error, match=says) as caught:
            self(**options)
        return caught.value

    @property
    def errors(self) -> list[str]:
        return [row["Error"] for row in rows(self.out)]

    @property
    def kept(self) -> list[str]:
        """The errors in the run directory."""
        return [line.error or "-" for line in read_run(find_run(self.out)).scenarios]

    @property
    def kinds(self) -> list[str]:
        return [event["kind"] for event in events(self.out)]

    @property
    def downs(self) -> list[int]:
        return [bed.downs for bed in self.beds]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: Patch) -> Run:
    monkeypatch.setattr(follow, "DEATH_GRACE_S", 0.05)
    monkeypatch.setattr(follow, "WATCH_INTERVAL_S", 0.01)
    made, append = Run(tmp_path / "out.csv", on_fakes(monkeypatch)), csv_file.append_whole

    def append_whole(fd: int, data: bytes, **named: Any) -> None:
        if made.full and os.path.samestat(os.fstat(fd), made.out.stat()):
            raise OSError(errno.EFBIG, "File too large")
        append(fd, data, **named)

    monkeypatch.setattr(csv_file, "append_whole", append_whole)
    return made


def filling(run: Run) -> Callable[..., None]:
    """From its call on OUT takes no more rows, all else of the run is written."""
    return lambda *_: setattr(run, "full", True)


ENDED = "etcd2 ended before the first scenario: killed by SIGKILL"


# --- how it ends, and what is torn down -------------------------------------------------------------------------------


def test_the_seed_that_was_drawn_is_in_every_row_and_in_the_manifest(run: Run) -> None:
    """Every run drew the same losses, and none said from what."""
    seeds = []
    for name, options in (("one.csv", {}), ("other.csv", {}), ("again.csv", {"seed": 77})):
        run.out = run.out.with_name(name)
        run(repeat=2, **options)
        manifest = json.loads((find_run(run.out) / "manifest.json").read_text())
        first, second = (int(row["LinkSeed"]) for row in rows(run.out))
        assert manifest["plan"]["seed"] == first == second
        seeds.append(first)
    assert len(set(seeds)) == 3 and seeds[2] == 77


def test_auto_tries_what_the_machine_spoiled_once_more_on_a_slower_testbed(run: Run, monkeypatch: Patch) -> None:
    factors = iter([None, 5])
    monkeypatch.setattr(measure_module, "next_dilation", lambda plan, key, outcome: next(factors))
    monkeypatch.setattr(capacity, "read", lambda key: (capacity.MachineCosts(machine=key), None))
    run(repeat=2, dilation="auto")
    assert [bed.plan.dilation for bed in run.beds] == [1, 5] and run.downs == [1, 1]
    names = ("Repetition", "Attempt", "Dilation", "Cluster")
    assert [[row[name] for name in names] for row in rows(run.out)] == [
        ["1", "1", "1", "1"],
        ["2", "1", "1", "1"],
        ["2", "2", "5", "2"],
    ]
    assert run.kinds.count("scenario_ended") == 3 and "scenario_not_run" not in run.kinds
    assert events(run.out)[-1]["text"].startswith("2 of 2 scenarios have rows")
    assert any("once more, by dilation: write-leader-50x1x1-4B-64B at 5" in note for note in run.told.notes)


def test_auto_tries_nothing_once_more_where_rows_have_no_place(run: Run, monkeypatch: Patch) -> None:
    monkeypatch.setattr(measure_module, "next_dilation", lambda plan, key, outcome: 5)
    monkeypatch.setattr(capacity, "read", lambda key: (capacity.MachineCosts(machine=key), None))
    run.beds.special = {1: filling(run)}
    run.fails(RowsNotWrittenError, repeat=3, dilation="auto")
    assert [bed.plan.dilation for bed in run.beds] == [1]


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), SystemExit(1), ValueError("closed")])
def test_a_progress_that_raises_ends_nothing_and_repeats_nothing(run: Run, error: BaseException) -> None:
    """`run ... | head`: a row counted as left only after the console took its line, and was appended again."""

    class Gone(Silent):
        stage = note = matrix_started = scenario_started = scenario_progress = scenario_ended = raising(error)

    result = run(progress=Gone(), repeat=2)
    assert (run.downs, result.failed, run.errors) == ([1], 0, ["-", "-"])
    assert run.kinds.count("progress_failed") == 1


@pytest.mark.parametrize("error", [Interrupted(0), KeyboardInterrupt()])
def test_who_asks_the_run_to_end_while_a_row_is_told_has_the_row_once(run: Run, error: BaseException) -> None:
    class Impatient(Silent):
        def scenario_ended(self, outcome: Any) -> None:
            if outcome.error is None:
                raise error

    run.fails(type(error), progress=Impatient(), repeat=3)
    assert (run.errors, run.downs) == (["-", "not run: interrupted", "not run: interrupted"], [1])


def test_the_events_tell_the_tear_down_from_the_matrix_and_nothing_of_an_error_before_the_run(run: Run) -> None:
    """A notebook that tries again in its `except`: the events said run_failed with the error of the try before."""
    try:
        raise ValueError("the try before")
    except ValueError:
        run()
    assert run.kinds[-4:] == ["scenario_ended", "network_proved", "tear_down_began", "run_ended"]
    assert "run_failed" not in run.kinds


def by_a_library(stop: BaseException) -> RuntimeError:
    """Before Python 3.12 a stop that strikes in ``__set_name__``, where a module is imported, is a RuntimeError."""
    error = RuntimeError("Error calling __set_name__")
    error.__cause__ = stop
    return error


STOPS = ((Interrupted(signal.SIGTERM), "interrupted by SIGTERM"), (KeyboardInterrupt(), "interrupted"))
ENDINGS = ("run_failed", "run_interrupted")


@pytest.mark.parametrize(
    ("step", "error", "kind", "text"),
    [
        # Its last event was 'run_ended 0 of 1 scenarios, 0 failed', and nothing in the run directory said why.
        ("up", RunError("the cluster did not start"), "run_failed", "the cluster did not start"),
        ("up", Interrupted(0), "run_interrupted", str(Interrupted(0))),
        ("down", RunError("not everything could be removed"), "run_failed", "not everything could be removed"),
        # While its settings were read back: "cannot enter the network namespace of process N".
        ("host_facts", RunError("no process 4711"), "run_failed", ENDED),
        *((step, by_a_library(stop), "run_interrupted", said) for step in ("__init__", "up") for stop, said in STOPS),
    ],
)
def test_how_a_run_ended_is_in_its_events(
    step: str, error: BaseException, kind: str, text: str, run: Run, monkeypatch: Patch
) -> None:
    if step == "__init__":
        monkeypatch.setattr(FakeTestbed, step, raising(error))
    else:
        run.beds.at[step] = raising(error)
    cause = error.__cause__ or error
    raised = run.fails(type(cause))
    assert raised is cause or str(raised) == ENDED
    assert run.kinds[-1] == "run_ended" and run.downs == [1] * (step != "__init__")
    told = [(event["kind"], event["text"]) for event in events(run.out) if event["kind"] in ENDINGS]
    assert told == [(kind, text)]


@pytest.mark.simulated()
def test_every_step_of_a_tear_down_is_taken_and_told_once_it_is_over(monkeypatch: Patch) -> None:
    """Only RunError and OSError of a step were caught: another one of the cluster left every container. A terminal
    that was stopped (Ctrl-S) held the driver in the stage's first line, and kept the containers up."""
    bed, told = make_bed(monkeypatch), list[str]()
    bed.net.stop = lambda: told.append("stopped")
    bed._closing.append(raising(RuntimeError("cannot join thread before it is started")))
    with pytest.raises((RuntimeError, RunError)):
        bed.down()

    class Shown(Silent):
        def stage(self, name: str, seconds: float | None = None) -> Any:
            told.append(f"{name} {seconds == 0.5}")
            return super().stage(name)

    other: Any = SimpleNamespace(down=lambda: (clock.sleep(0.5), told.append("down")), after_down="")
    testbed_module.take_down(other, Shown())
    assert told == ["stopped", "down", "tear-down True"]


@pytest.mark.simulated(seeds=20, preempt=0.2)
def test_events_are_in_the_order_of_their_times(tmp_path: Path, monkeypatch: Patch) -> None:
    """The time is taken before the lock: of two threads the later one may be written first."""
    directory = RunDirectory(tmp_path / f"{World.current.seed}.csv", "r")
    moments = (Moment("", at_ns) for at_ns in count())
    monkeypatch.setattr(run_directory.Moment, "now", staticmethod(lambda: next(moments)))
    threads = [clock.Thread(target=directory.add_event, args=("testbed_failed", "x")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = [json.loads(line)["at_ns"] for line in (directory.path / "events.jsonl").read_text().splitlines()]
    assert lines == [0, 1, 2, 3]


def test_an_argument_that_cannot_be_is_refused_before_anything_is_created(run: Run) -> None:
    """docs/python.md: UsageError where an argument is refused, and nothing was created."""
    refused: list[Any] = [{"engine": "podman"}, {"only": "*"}, {"congestion_control": "no"}, {"quick": True}]
    for arguments in (*refused, {"port": 8080}):
        with pytest.raises((UsageError, TypeError)):
            measure(CONFIG, QUICK, run.out, **({"only": ["write-leader-50x1x1-4B-64B"]} | arguments))
        assert not run.beds and not run.out.exists(), arguments


# --- the proof of the network -----------------------------------------------------------------------------------------

OFF = Check("etcd1>s1", "rate", "wrong", "20 Mbit/s", "997 Mbit/s", "1.8% either way")
BUSY = "the hosts still filled 3% of etcd1-s1"


def test_a_network_that_is_off_after_the_last_scenario_costs_no_row(run: Run, monkeypatch: Patch) -> None:
    """The gate that closes a run comes when every row is on disk."""
    monkeypatch.setattr(FakeTestbed, "proved_again", NetworkProof("after", (OFF,)))
    result = run()
    (row,) = rows(run.out)
    assert (row["Error"], row["Valid"]) == ("-", "no") and "network_off" in row["Reasons"]
    assert [row] == list(result.rows) and result.valid("no") == 1
    left = read_run(result.directory)
    (line,) = left.scenarios
    assert (line.valid, line.findings[-1]["kind"]) == ("no", "network_off")
    assert left.checked is not None and not left.checked.changed
    assert (result.failed, result.network_held, result.network_after) == (0, False, NetworkProof("after", (OFF,)))
    told = {event["kind"]: event["text"] for event in events(run.out)}
    assert told["network_wrong"] == "after the last scenario: wrong: rate of etcd1>s1 (20 Mbit/s)"
    assert told["run_ended"] == f"1 of 1 scenarios have rows: 1 not valid; {measure_module.WRONG_AFTER}"


@pytest.mark.parametrize(
    "proved", [RunError("the measurement took more than 12 s"), NetworkProof("after", (OFF,)).doubted(BUSY)]
)
def test_a_network_that_is_unknown_at_the_end_is_not_right(run: Run, monkeypatch: Patch, proved: Any) -> None:
    monkeypatch.setattr(FakeTestbed, "proved_again", proved)
    result = run()
    (row,) = rows(run.out)
    assert row["Valid"] != "yes" and "network_unknown" in row["Reasons"]
    assert row["Advice"] in run.told.notes
    told = {event["kind"]: event["text"] for event in events(run.out)}
    if isinstance(proved, RunError):
        assert (result.failed, result.network_held, result.network_after) == (0, True, None)
        assert told["network_unproved"].endswith(f"could not be measured: {proved}")
    assert run.downs == [1]


def test_a_lost_network_is_not_measured_again_and_traffic_casts_no_doubt_on_a_right_one(run: Run) -> None:
    run.beds.at["up"] = lambda bed: setattr(bed, "failure", "the link emulator ended: killed by SIGKILL")
    run.beds.at["prove_again"] = lambda bed: pytest.fail("there is no network")
    run()
    assert run.errors[0].startswith("not run: the link emulator ended")
    right = NetworkProof("after", (Check("etcd1>s1", "rate", "proved", "20 Mbit/s"),))
    assert right.doubted(BUSY) == right and network_finding(right) is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted(signal.SIGTERM), RuntimeError("a fault of ours")])
def test_rows_before_a_missing_last_proof_do_not_say_that_the_network_held(run: Run, error: BaseException) -> None:
    run.beds.special[2] = error
    run.fails(type(error), repeat=2)
    first, second = rows(run.out)
    assert first["Error"] == "-" and first["Valid"] != "yes" and "network_unknown" in first["Reasons"]
    assert second["Error"] != "-" and run.downs == [1]


# --- results that cannot be written, or whose files are taken away ----------------------------------------------------


@pytest.mark.parametrize("again", [False, True], ids=["", "until the tear-down, with the containers' data"])
def test_a_row_that_finds_no_room_is_in_the_run_directory_or_written_later(run: Run, again: bool) -> None:
    """A full disk: a traceback, the rest had no rows; what was measured was lost."""
    run.beds.special[2] = filling(run)
    run.beds.at["down"] = lambda bed: again and setattr(run, "full", False)
    refused = run.fails(RowsNotWrittenError, repeat=4)
    reason = f"{run.out} cannot be written: File too large"
    kept = ["-", "-", f"not run: {reason}", f"not run: {reason}"]
    assert (run.kept, run.errors, run.downs) == (kept, kept if again else ["-"], [1])
    if again:
        assert "\n  All 4 rows are in it: at the end of the run it took them.\n" in str(refused)
    else:
        assert refused.rows == () and str(refused) == (
            f"{reason}\n"
            "  3 of 4 rows are not in it.\n"
            f"  3 of them are in {find_run(run.out) / 'scenarios.jsonl'}.\n"
            "  Raise the limit of file sizes (ulimit -f), then run again."
        )


def test_a_row_that_is_in_no_file_is_in_the_message(run: Run, monkeypatch: Patch) -> None:
    def fill() -> None:
        run.full = True
        monkeypatch.setattr(run_directory, "open_to_append", raising(OSError(28, "No space left on device")))

    run.beds.special[2] = fill
    refused = run.fails(RowsNotWrittenError, repeat=3)
    head, *lines = str(refused).splitlines()[3:]
    assert head == "  2 rows are in no file; here they are, as the results file would have them:"
    printed = list(csv.DictReader([run.out.read_text().splitlines()[0], *lines]))
    assert printed == list(refused.rows)
    assert [row["Error"] for row in printed] == ["-", f"not run: {run.out} cannot be written: File too large"]
    assert [note for note in run.told.notes if "cannot be kept" in note] == [
        f"{find_run(run.out)} cannot be kept as a whole: No space left on device; the run goes on"
    ]


@pytest.mark.simulated()
def test_a_run_that_was_asked_to_end_and_has_rows_that_found_no_room_tells_both(run: Run) -> None:
    # The scenario still runs when the stop is looked at.
    run.beds.special[1] = lambda: (filling(run)(), run.stop.request(), clock.sleep(1))
    ended = run.fails(Interrupted, repeat=2)
    assert "2 of 2 rows are not in it.\n  2 of them are in" in ended.__notes__[0]


def broken_logs(bed: FakeTestbed) -> Iterator[tuple[str, str]]:
    yield "etcd1", "ready\n"
    raise ConnectionResetError("the engine went away")


@pytest.mark.parametrize("method", ["write", "add_proof", "add_scenario", "add_event", "write_log", "logs"])
def test_a_run_directory_that_cannot_be_kept_stops_nothing_and_is_told_once(
    run: Run, monkeypatch: Patch, method: str
) -> None:
    """Read-only or full: the manifest ended the run before it began, a scenario's line had its row written twice, and
    containers, links and the emulator stayed behind; also where the engine is gone while logs are read."""
    refuse = raising(OSError(30, "Read-only file system"))
    owner = FakeTestbed if method == "logs" else RunDirectory
    monkeypatch.setattr(owner, method, broken_logs if method == "logs" else refuse)
    run.beds.at["up"] = lambda bed: bed.on_proof(SimpleNamespace()) if method == "add_proof" else None
    result = run(repeat=3)
    assert (result.failed, run.errors, run.downs) == (0, ["-", "-", "-"], [1])
    told = [f"{result.directory} cannot be kept as a whole: Read-only file system; the run goes on"]
    assert method == "logs" or [note for note in run.told.notes if "cannot" in note] == told


# --- `run --repeat N --fresh`: a cluster for each repetition ----------------------------------------------------------


def test_each_repetition_has_a_cluster_of_its_own_and_the_one_before_is_gone(run: Run) -> None:
    run.beds.at["up"] = lambda bed: [other.downs for other in run.beds[:-1]].count(0) and pytest.fail("two at once")
    run(repeat=3, fresh=True)
    own = [tuple(row[name] for name in ("Repetition", "Cluster", "Error")) for row in rows(run.out)]
    assert own == [("1", "1", "-"), ("2", "2", "-"), ("3", "3", "-")]
    assert [(bed.ups, bed.downs, len(bed.server.asked)) for bed in run.beds] == [(1, 1, 1)] * 3
    found = read_run(find_run(run.out))
    assert found.manifest is not None
    records = found.manifest.clusters
    started = [(record.number, record.leader_at_start) for record in records]
    assert started == [(1, "etcd1"), (2, "etcd1"), (3, "etcd1")]
    assert records[0].sync["etcd1"].median_ns == 500_000
    shown = CliRunner().invoke(group, ["show", str(run.out)]).output
    assert "3 clusters, one after the other, led at their starts by etcd1, etcd1, etcd1\n" in shown
    assert [path.name for path in found.logs] == ["etcd1.2.log", "etcd1.3.log", "etcd1.log"]
    assert [line.cluster for line in found.scenarios] == [1, 2, 3]
    assert (run.kinds.count("matrix_began"), run.kinds.count("run_ended"), run.kinds[-1]) == (1, 1, "run_ended")


LOST, GATE, GONE = "etcd1 was OOM-killed; etcd2 was OOM-killed", "etcd2 did not wait", "the Docker engine has ended"
LEFT = "container cnenv-x-etcd1 could not be removed"
NO_ROOM = "cannot be written: File too large"


@pytest.mark.parametrize(
    ("fresh", "call", "happens", "raised", "kept", "beds"),
    [
        (False, 9, None, None, ["1 -", "1 -", "1 -"], 1),  # the rows say that they share one
        (True, 1, lambda beds: beds[0].cluster.kill("etcd1", "etcd2") or Answer(None, "10 requests failed"),
            None, [f"1 {LOST}; 10 requests failed", "2 -", "3 -"], 3),
        (True, 2, lambda beds: setattr(beds[1], "failure", GONE) or Answer(None, "no answer"),
            None, ["1 -", f"2 {GONE}; no answer", f"- not run: {GONE}"], 2),
        (True, "up", lambda beds: len(beds) == 2 and raising(RunError(GATE))(),
            GATE, ["1 -", *[f"- not run: {GATE}"] * 2], 2),
        # It is in the way of the next one, which has the same names.
        (True, "down", raising(RunError(LEFT)), LEFT, ["1 -", *[f"- not run: {LEFT}"] * 2], 1),
        (True, 1, None, NO_ROOM, ["1 -", *[f"- not run: OUT {NO_ROOM}"] * 2], 1),
    ],
    ids=["shared", "two members die", "the engine ends", "it does not come up", "it stays", "no room"],
)  # fmt: skip
def test_what_strikes_a_cluster_costs_its_own_repetition_or_ends_the_run(
    run: Run, fresh: bool, call: Any, happens: Any, raised: str | None, kept: list[str], beds: int
) -> None:
    strike = filling(run) if happens is None else lambda *_: happens(run.beds)
    (run.beds.at if isinstance(call, str) else run.beds.special)[call] = strike
    if raised is not None:
        run.fails(RunError, raised, repeat=3, fresh=fresh)
    else:
        assert run(repeat=3, fresh=fresh).failed == sum(" -" not in text for text in kept)
    lines = read_run(find_run(run.out)).scenarios
    found = [f"{line.cluster or '-'} {line.error or '-'}".replace(str(run.out), "OUT") for line in lines]
    assert (found, run.downs, run.kinds.count("run_ended")) == (kept, [1] * beds, 1)
    assert run.full or [f"{row['Cluster']} {row['Error']}" for row in rows(run.out)] == kept
    if call == "down":
        assert events(run.out)[-1]["text"] == f"3 of 3 scenarios have rows: 1 valid, 2 failed; {LEFT}"
    if call == "up":
        assert run.kinds.count("run_failed") == 1


@pytest.mark.parametrize("moment", ["down", "up", "scenario"])
def test_who_asks_a_run_to_end_between_or_in_repetitions_has_every_row_and_nothing_left(run: Run, moment: str) -> None:
    if moment == "scenario":
        run.beds.special[2] = run.stop.request
    else:
        run.beds.at["down"] = lambda bed: run.stop.request() if moment == "down" else None
        run.beds.at["up"] = lambda bed: (moment, len(run.beds)) == ("up", 2) and (run.stop.request(), run.stop.check())
    run.fails(Interrupted, repeat=3, fresh=True)
    first, *others = run.errors
    assert first == "-" and len(others) == 2
    assert all(error.startswith("not run: ") for error in others[1 if moment == "scenario" else 0 :])
    assert run.downs == [1] * (1 if moment == "down" else 2) and run.kinds.count("run_interrupted") == 1
