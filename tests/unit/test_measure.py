"""A run as a whole on testbeds of fakes: what is torn down, what is on disk, what is told, whatever ends it."""

from __future__ import annotations

import csv
import errno
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
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
from containernet_env.results import csv_file, run_directory
from containernet_env.results.csv_file import ResultsFile
from containernet_env.results.run_directory import RunDirectory, find_run, read_run
from containernet_env.results.run_files import FILES, json_schema
from containernet_env.runs import follow
from containernet_env.runs import measure as measure_module
from containernet_env.runs import testbed as testbed_module
from containernet_env.runs.keeper import RowsNotWrittenError
from containernet_env.runs.load import Answer
from containernet_env.runs.measure import measure
from containernet_env.runs.progress import Silent
from tests.simulated_time import World
from tests.unit.fakes import CONFIG, QUICK, Beds, FakeTestbed, Notes, events, make_bed, on_fakes, raising, rows
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
        return [line["error"] or "-" for line in read_run(find_run(self.out)).scenarios]

    @property
    def kinds(self) -> list[str]:
        return [event["kind"] for event in events(self.out)]

    @property
    def downs(self) -> list[int]:
        return [bed.downs for bed in self.beds]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
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


def stopping(run: Run) -> Callable[..., None]:
    def call(*_: object) -> None:
        run.stop.request()
        run.stop.check()

    return call


# --- how it ends, and what is torn down -------------------------------------------------------------------------------


def broken_logs(bed: FakeTestbed) -> Iterator[tuple[str, str]]:
    yield "etcd1", "ready\n"
    raise ConnectionResetError("the engine went away")


@pytest.mark.parametrize(
    ("owner", "name", "to"),
    [(FakeTestbed, "logs", broken_logs), (RunDirectory, "write_log", raising(OSError(28, "No space left on device")))],
)
def test_a_log_that_cannot_be_read_or_written_does_not_keep_the_testbed_up(
    owner: type, name: str, to: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk while logs are kept: containers, links and the emulator stay behind."""
    monkeypatch.setattr(owner, name, to)
    run()
    assert run.downs == [1]


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


@pytest.mark.parametrize("stop", [Interrupted(signal.SIGTERM), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["__init__", "up"])
def test_a_stop_that_a_library_made_an_error_ends_the_run_as_a_stop(
    where: str, stop: BaseException, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Python 3.12 a stop that strikes in ``__set_name__``, where a module is imported, is a RuntimeError."""

    def strike(self: FakeTestbed, *_: Any, **__: Any) -> None:
        raise RuntimeError("Error calling __set_name__") from stop

    monkeypatch.setattr(FakeTestbed, where, strike)
    assert run.fails(type(stop)) is stop
    assert "run_interrupted" in run.kinds and "run_failed" not in run.kinds


def test_the_events_tell_the_tear_down_from_the_matrix_and_nothing_of_an_error_before_the_run(run: Run) -> None:
    """A notebook that tries again in its `except`: the events said run_failed with the error of the try before."""
    try:
        raise ValueError("the try before")
    except ValueError:
        run()
    assert run.kinds[-4:] == ["scenario_ended", "network_proved", "tear_down_began", "run_ended"]
    assert "run_failed" not in run.kinds


@pytest.mark.parametrize(
    ("step", "error", "kind"),
    [
        # Its last event was 'run_ended 0 of 1 scenarios, 0 failed', and nothing in the run directory said why.
        ("up", RunError("the cluster did not start: etcd1 ended with exit code 1"), "run_failed"),
        ("up", Interrupted(0), "run_interrupted"),
        ("down", RunError("not everything could be removed"), None),
    ],
)
def test_how_a_run_ended_is_in_its_events(step: str, error: BaseException, kind: str | None, run: Run) -> None:
    run.beds.at[step] = raising(error)
    run.fails(type(error))
    assert run.kinds[-1] == "run_ended"
    assert kind is None or (kind, str(error)) in [(event["kind"], event["text"]) for event in events(run.out)]


def test_a_member_that_ends_before_the_first_scenario_is_what_the_error_says(run: Run) -> None:
    """While its settings were read back: "no member answers", or "cannot enter the network namespace of process N"."""
    run.beds.at["host_facts"] = raising(RunError("cannot enter the network namespace of process 4711"))
    run.fails(RunError, r"^etcd2 ended before the first scenario: killed by SIGKILL$")
    assert run.downs == [1]


def test_a_stop_is_heard_before_the_run_while_a_store_is_set_up_and_in_a_second_run(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller hands one token to several runs: the first one's tear-down shields it for good."""
    run()
    run.out = run.out.with_name("second.csv")
    with monkeypatch.context() as patch:
        patch.setattr(measure_module, "ready_images", lambda store, report, asked: stopping(run)())
        run.fails(Interrupted)
        assert not rows(run.out)
    run.fails(Interrupted)
    assert len(run.beds) == 1 or run.beds[1].ups == 0


def test_every_step_of_a_tear_down_is_taken_whatever_the_one_before_it_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only RunError and OSError of a step are caught: another one of the cluster leaves every container."""
    bed, stopped = make_bed(monkeypatch), []
    bed.net.stop = lambda: stopped.append(True)
    bed._cluster = SimpleNamespace(close=raising(RuntimeError("cannot join thread before it is started")))
    with pytest.raises((RuntimeError, RunError)):
        bed.down()
    assert stopped


@pytest.mark.simulated()
def test_the_testbed_is_down_before_that_is_told() -> None:
    """A terminal that is stopped (Ctrl-S) held the driver in the stage's first line, and kept the containers up."""
    told: list[str] = []

    class Shown(Silent):
        def stage(self, name: str, seconds: float | None = None) -> Any:
            told.append(f"{name} {seconds == 0.5}")
            return super().stage(name)

    bed = SimpleNamespace(down=lambda: (clock.sleep(0.5), told.append("down")), after_down="")
    testbed_module.take_down(bed, Shown())  # type: ignore[arg-type]
    assert told == ["down", "tear-down True"]


@pytest.mark.simulated(seeds=20, preempt=0.2)
def test_events_are_in_the_order_of_their_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(
    "arguments",
    [{"engine": "podman"}, {"only": "*"}, {"congestion_control": "nope"}, {"quick": True}, {"port": 8080}],
)
def test_an_argument_that_cannot_be_is_refused_before_anything_is_created(run: Run, arguments: dict[str, Any]) -> None:
    """docs/python.md: UsageError where an argument is refused, and nothing was created."""
    with pytest.raises((UsageError, TypeError)):
        measure(CONFIG, QUICK, run.out, **({"only": ["write-leader-50x1x1-4B-64B"]} | arguments))
    assert not run.beds and not run.out.exists()


def test_a_device_that_cannot_hold_rows_is_refused_or_taken() -> None:
    """`run CONFIG /dev/null` ended with a traceback: OSError: [Errno 22] Invalid argument."""
    results = ResultsFile(Path("/dev/null"))
    with suppress(UsageError):
        results.open()
    results.close()


@pytest.mark.parametrize("name", FILES)
def test_the_schema_requires_the_version_without_which_a_file_is_refused(name: str) -> None:
    assert "schema" in json_schema(name)["required"]


# --- the proof of the network -----------------------------------------------------------------------------------------

OFF = Check("etcd1>s1", "rate", "wrong", "20 Mbit/s", "997 Mbit/s", "1.8% either way")
BUSY = "the hosts still filled 3% of etcd1-s1"


def test_a_network_that_is_off_after_the_last_scenario_costs_no_row(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate that closes a run comes when every row is on disk."""
    monkeypatch.setattr(FakeTestbed, "proved_again", NetworkProof("after", (OFF,)))
    result = run()
    (row,) = rows(run.out)
    assert (row["Error"], row["Valid"]) == ("-", "no") and "network_off" in row["Reasons"]
    assert [row] == list(result.rows) and result.valid("no") == 1
    left = read_run(result.directory)
    (line,) = left.scenarios
    assert (line["valid"], line["findings"][-1]["kind"]) == ("no", "network_off")
    assert left.checked is not None and not left.checked.changed
    assert (result.failed, result.network_held, result.network_after) == (0, False, NetworkProof("after", (OFF,)))
    told = {event["kind"]: event["text"] for event in events(run.out)}
    assert told["network_wrong"] == "after the last scenario: wrong: rate of etcd1>s1 (20 Mbit/s)"
    assert told["run_ended"] == f"1 of 1 scenarios have rows: 1 not valid; {measure_module.WRONG_AFTER}"


@pytest.mark.parametrize(
    "proved", [RunError("the measurement took more than 12 s"), NetworkProof("after", (OFF,)).doubted(BUSY)]
)
def test_a_network_of_which_nothing_is_known_at_the_end_is_not_held_to_be_right(
    run: Run, monkeypatch: pytest.MonkeyPatch, proved: Any
) -> None:
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


def test_a_network_that_is_gone_is_not_measured_again(run: Run) -> None:
    run.beds.at["up"] = lambda bed: setattr(bed, "failure", "the link emulator ended: killed by SIGKILL")
    run.beds.at["prove_again"] = lambda bed: pytest.fail("there is no network")
    run()
    assert run.errors[0].startswith("not run: the link emulator ended")


def test_hosts_that_still_send_cast_no_doubt_where_nothing_seems_wrong() -> None:
    right = NetworkProof("after", (Check("etcd1>s1", "rate", "proved", "20 Mbit/s"),))
    assert right.doubted(BUSY) == right and network_finding(right) is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted(signal.SIGTERM), RuntimeError("a fault of ours")])
def test_rows_of_a_run_that_ended_before_its_last_proof_do_not_say_that_the_network_held(
    run: Run, error: BaseException
) -> None:
    run.beds.special[2] = error
    run.fails(type(error), repeat=2)
    first, second = rows(run.out)
    assert first["Error"] == "-" and first["Valid"] != "yes" and "network_unknown" in first["Reasons"]
    assert second["Error"] != "-" and run.downs == [1]


# --- results that cannot be written, or whose files are taken away ----------------------------------------------------


def test_a_row_that_finds_no_room_ends_the_matrix_and_is_in_the_run_directory(run: Run) -> None:
    """A full disk: a traceback, the rest had no rows; what was measured was lost."""
    run.beds.special[2] = filling(run)
    refused = run.fails(RowsNotWrittenError, repeat=4)
    reason = f"{run.out} cannot be written: File too large"
    assert str(refused) == (
        f"{reason}\n"
        "  3 of 4 rows are not in it.\n"
        f"  3 of them are in {find_run(run.out) / 'scenarios.jsonl'}.\n"
        "  Raise the limit of file sizes (ulimit -f), then run again."
    )
    assert refused.rows == () and run.errors == ["-"] and run.downs == [1]
    assert run.kept == ["-", "-", f"not run: {reason}", f"not run: {reason}"]


def test_rows_that_found_no_room_are_written_when_there_is_some_again(run: Run) -> None:
    """The containers' data went with them."""
    run.beds.special[2] = filling(run)
    run.beds.at["down"] = lambda bed: setattr(run, "full", False)
    run.fails(RowsNotWrittenError, r"\n  All 3 rows are in it: at the end of the run it took them.\n", repeat=3)
    assert run.errors == run.kept == ["-", "-", f"not run: {run.out} cannot be written: File too large"]


def test_a_row_that_is_in_no_file_is_in_the_message(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("method", ["write_manifest", "add_proof", "add_scenario", "add_event", "write_log"])
def test_a_run_directory_that_cannot_be_written_stops_nothing_and_is_told_once(
    run: Run, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Read-only or full: the manifest ended the run before it began, a scenario's line had its row written twice."""
    monkeypatch.setattr(RunDirectory, method, raising(OSError(30, "Read-only file system")))
    run.beds.at["up"] = lambda bed: bed.on_proof(SimpleNamespace()) if method == "add_proof" else None
    result = run(repeat=3)
    assert (result.failed, run.errors) == (0, ["-", "-", "-"])
    assert [note for note in run.told.notes if "cannot" in note] == [
        f"{result.directory} cannot be kept as a whole: Read-only file system; the run goes on"
    ]


# --- `run --repeat N --fresh`: a cluster for each repetition ----------------------------------------------------------


def clusters(run: Run) -> list[tuple[str, ...]]:
    return [tuple(row[name] for name in ("Repetition", "Cluster", "Error")) for row in rows(run.out)]


def test_each_repetition_has_a_cluster_of_its_own_and_the_one_before_is_gone(run: Run) -> None:
    run.beds.at["up"] = lambda bed: [other.downs for other in run.beds[:-1]].count(0) and pytest.fail("two at once")
    run(repeat=3, fresh=True)
    assert clusters(run) == [("1", "1", "-"), ("2", "2", "-"), ("3", "3", "-")]
    assert [(bed.ups, bed.downs, len(bed.server.asked)) for bed in run.beds] == [(1, 1, 1)] * 3
    found = read_run(find_run(run.out))
    assert found.manifest is not None
    records = found.manifest["clusters"]
    started = [(record["number"], record["leader_at_start"]) for record in records]
    assert started == [(1, "etcd1"), (2, "etcd1"), (3, "etcd1")]
    assert records[0]["sync"]["etcd1"]["median_ns"] == 500_000
    shown = CliRunner().invoke(group, ["show", str(run.out)]).output
    assert "3 clusters, one after the other, led at their starts by etcd1, etcd1, etcd1\n" in shown
    assert [path.name for path in found.logs] == ["etcd1.2.log", "etcd1.3.log", "etcd1.log"]
    assert [line["cluster"] for line in found.scenarios] == [1, 2, 3]
    assert (run.kinds.count("matrix_began"), run.kinds.count("run_ended"), run.kinds[-1]) == (1, 1, "run_ended")


def test_without_fresh_the_rows_say_that_they_share_one(run: Run) -> None:
    run(repeat=3)
    assert clusters(run) == [("1", "1", "-"), ("2", "1", "-"), ("3", "1", "-")] and len(run.beds) == 1


def test_a_cluster_that_dies_costs_its_own_repetition(run: Run) -> None:
    """Two of three members die in the first repetition; the second one is measured on new ones."""
    run.beds.special[1] = lambda: run.beds[0].cluster.kill("etcd1", "etcd2") or Answer(None, "10 requests failed")
    assert run(repeat=2, fresh=True).failed == 1
    lost = "etcd1 was OOM-killed; etcd2 was OOM-killed; 10 requests failed"
    assert clusters(run) == [("1", "1", lost), ("2", "2", "-")] and run.downs == [1, 1]


def test_a_testbed_that_has_failed_ends_the_run(run: Run) -> None:
    """The engine ends in the second of three repetitions: no third testbed is tried."""
    gone = "the Docker engine has ended"
    run.beds.special[2] = lambda: setattr(run.beds[1], "failure", gone) or Answer(None, "no answer")
    run(repeat=3, fresh=True)
    assert run.errors == ["-", f"{gone}; no answer", f"not run: {gone}"] and run.downs == [1, 1]


def test_a_testbed_that_does_not_come_up_leaves_the_rest_not_run(run: Run) -> None:
    why = "etcd2 did not wait at its gate"
    run.beds.at["up"] = lambda bed: raising(RunError(why))() if len(run.beds) == 2 else None
    run.fails(RunError, why, repeat=3, fresh=True)
    assert clusters(run) == [("1", "1", "-"), ("2", "-", f"not run: {why}"), ("3", "-", f"not run: {why}")]
    assert run.downs == [1, 1] and (run.kinds.count("run_failed"), run.kinds.count("run_ended")) == (1, 1)


@pytest.mark.parametrize("moment", ["down", "up", "scenario"])
def test_who_asks_a_run_to_end_between_or_in_repetitions_has_every_row_and_nothing_left(run: Run, moment: str) -> None:
    if moment == "scenario":
        run.beds.special[2] = run.stop.request
    else:
        run.beds.at["down"] = lambda bed: run.stop.request() if moment == "down" else None
        run.beds.at["up"] = lambda bed: stopping(run)() if (moment, len(run.beds)) == ("up", 2) else None
    run.fails(Interrupted, repeat=3, fresh=True)
    first, *others = run.errors
    assert first == "-" and len(others) == 2
    assert all(error.startswith("not run: ") for error in others[1 if moment == "scenario" else 0 :])
    assert run.downs == [1] * (1 if moment == "down" else 2) and run.kinds.count("run_interrupted") == 1


def test_a_tear_down_that_fails_brings_no_other_cluster_up(run: Run) -> None:
    """What could not be removed is in the way of the next one, which has the same names."""
    why = "container cnenv-x-etcd1 could not be removed"
    run.beds.at["down"] = raising(RunError(why))
    run.fails(RunError, why, repeat=2, fresh=True)
    assert len(run.beds) == 1 and run.errors == ["-", f"not run: {why}"]
    assert events(run.out)[-1]["text"] == f"2 of 2 scenarios have rows: 1 valid, 1 failed; {why}"


def test_a_row_that_finds_no_room_ends_a_run_of_several_clusters(run: Run) -> None:
    run.beds.special[1] = filling(run)
    run.fails(RunError, "File too large", repeat=3, fresh=True)
    first, *others = run.kept
    assert len(run.beds) == 1
    assert first == "-" and len(others) == 2 and all("not run" in error for error in others)
