"""A run as a whole on a testbed of fakes: what is torn down, what is on disk, what is told."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base import clock
from containernet_env.base.clock import Moment
from containernet_env.base.errors import Interrupted, RunError, UsageError
from containernet_env.base.stop import Stop
from containernet_env.load.server import Answer
from containernet_env.model.findings import network_finding
from containernet_env.model.proof import Check, NetworkProof
from containernet_env.results import run_directory
from containernet_env.results.csv_file import ResultsFile
from containernet_env.results.run_directory import RunDirectory, read_run
from containernet_env.results.run_files import FILES, json_schema
from containernet_env.runs import measure as measure_module
from containernet_env.runs import network_prover
from containernet_env.runs import testbed as testbed_module
from containernet_env.runs.measure import measure
from containernet_env.runs.prepare import prepare
from containernet_env.runs.progress import Silent
from containernet_env.runs.testbed import Testbed
from containernet_env.setup.images import Images
from tests.simulated_time import World
from tests.unit.matrix_fakes import FakeServer, result_of
from tests.unit.run_fakes import CONFIG, QUICK, FakeTestbed, events, on_fakes, rows, run


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeTestbed]:
    return on_fakes(monkeypatch)


def broken_logs(bed: FakeTestbed) -> Iterator[tuple[str, str]]:
    yield "etcd1", "ready\n"
    raise ConnectionResetError("the engine went away")


def full(directory: RunDirectory, name: str, text: str) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("owner", "name", "to"), [(FakeTestbed, "logs", broken_logs), (RunDirectory, "write_log", full)]
)
def test_a_log_that_cannot_be_read_or_written_does_not_keep_the_testbed_up(
    owner: type, name: str, to: Any, made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk while logs are kept: containers, links and the emulator stay behind."""
    monkeypatch.setattr(owner, name, to)
    run(tmp_path / "out.csv")
    assert made[0].downs == 1


@pytest.mark.usefixtures("made")
def test_the_seed_that_was_drawn_is_in_every_row_and_in_the_manifest(tmp_path: Path) -> None:
    """Every run drew the same losses, and none said from what."""
    for out in (tmp_path / "one.csv", tmp_path / "other.csv"):
        run(out)
    run(tmp_path / "again.csv", seed=77)
    seeds = {out.stem: {row["LinkSeed"] for row in rows(out)} for out in tmp_path.glob("*.csv")}
    assert seeds["again"] == {"77"}
    assert len(seeds["one"]) == 1
    assert seeds["one"] != seeds["other"]
    for out in tmp_path.glob("*.csv"):
        (manifest,) = out.with_suffix(".runs").glob("*/manifest.json")
        assert {str(json.loads(manifest.read_text())["plan"]["seed"])} == seeds[out.stem]


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), SystemExit(1), ValueError("closed")])
def test_a_progress_that_raises_ends_nothing_and_repeats_nothing(
    made: list[FakeTestbed], tmp_path: Path, error: BaseException
) -> None:
    """`run ... | head`: a row counted as left only after the console took its line, and was appended again."""

    class Gone(Silent):
        def stage(self, name: str, seconds: float | None = None) -> Any:
            raise error

        def fail(self, *arguments: Any) -> None:
            raise error

        note = matrix_started = scenario_started = scenario_progress = scenario_ended = fail

    result = run(tmp_path / "out.csv", progress=Gone(), repeat=2)
    assert (made[0].downs, result.failed, len(rows(tmp_path / "out.csv"))) == (1, 0, 2)
    assert [event["kind"] for event in events(tmp_path / "out.csv")].count("progress_failed") == 1


@pytest.mark.parametrize("error", [Interrupted(0), KeyboardInterrupt()])
def test_who_asks_the_run_to_end_while_a_row_is_told_has_the_row_once(
    made: list[FakeTestbed], tmp_path: Path, error: BaseException
) -> None:
    class Impatient(Silent):
        def scenario_ended(self, outcome: Any) -> None:
            if outcome.error is None:
                raise error

    with pytest.raises(type(error)):
        run(tmp_path / "out.csv", progress=Impatient(), repeat=3)
    found = [row["Error"] for row in rows(tmp_path / "out.csv")]
    assert found == ["-", "not run: interrupted", "not run: interrupted"]
    assert made[0].downs == 1


@pytest.mark.parametrize("stop", [Interrupted(signal.SIGTERM), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["__init__", "up"])
def test_a_stop_that_a_library_made_an_error_ends_the_run_as_a_stop(
    where: str, stop: BaseException, made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Python 3.12 a stop that strikes in ``__set_name__``, where a module is imported, is a RuntimeError."""

    def strike(self: FakeTestbed, *_: Any, **__: Any) -> None:
        raise RuntimeError("Error calling __set_name__") from stop

    monkeypatch.setattr(FakeTestbed, where, strike)
    with pytest.raises(type(stop)) as caught:
        run(tmp_path / "out.csv")
    assert caught.value is stop
    kinds = [event["kind"] for event in events(tmp_path / "out.csv")]
    assert "run_interrupted" in kinds and "run_failed" not in kinds


def test_the_events_tell_the_tear_down_from_the_matrix(made: list[FakeTestbed], tmp_path: Path) -> None:
    run(tmp_path / "out.csv")
    kinds = [event["kind"] for event in events(tmp_path / "out.csv")]
    assert kinds[-4:] == ["scenario_ended", "network_proved", "tear_down_began", "run_ended"]


def test_a_run_that_is_called_while_an_error_is_handled_is_none_that_failed(
    made: list[FakeTestbed], tmp_path: Path
) -> None:
    """A notebook that tries again in its `except`: the events said run_failed with the error of the try before."""
    try:
        raise ValueError("the try before")
    except ValueError:
        run(tmp_path / "out.csv")
    assert "run_failed" not in [event["kind"] for event in events(tmp_path / "out.csv")]


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("step", "error", "kind"),
    [
        # Its last event was 'run_ended 0 of 1 scenarios, 0 failed', and nothing in the run directory said why.
        ("up", RunError("the cluster did not start: etcd1 ended with exit code 1"), "run_failed"),
        ("up", Interrupted(0), "run_interrupted"),
        ("down", RunError("not everything could be removed"), None),
    ],
)
def test_how_a_run_ended_is_in_its_events(
    step: str,
    error: BaseException,
    kind: str | None,
    made: list[FakeTestbed],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: FakeTestbed) -> None:
        raise error

    monkeypatch.setattr(FakeTestbed, step, fail)
    with pytest.raises(type(error)):
        run(tmp_path / "out.csv")
    found = events(tmp_path / "out.csv")
    assert found[-1]["kind"] == "run_ended"
    assert kind is None or (kind, str(error)) in [(event["kind"], event["text"]) for event in found]


def test_a_stop_is_heard_while_a_store_is_set_up(
    made: list[FakeTestbed], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stop = Stop()

    def building(store: object, report: object, asked: Stop) -> Images:
        stop.request()
        asked.check()
        raise AssertionError("the set-up was given another token")

    monkeypatch.setattr(measure_module, "ready_images", building)
    with pytest.raises(Interrupted):
        run(tmp_path / "out.csv", stop=stop)
    assert not made and not rows(tmp_path / "out.csv")


def test_a_stop_that_came_before_the_run_brings_nothing_up(made: list[FakeTestbed], tmp_path: Path) -> None:
    stop = Stop()
    stop.request()
    with pytest.raises(Interrupted):
        run(tmp_path / "out.csv", stop=stop)
    assert not made or made[0].ups == 0


def test_every_step_of_a_tear_down_is_taken_whatever_the_one_before_it_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only RunError and OSError of a step are caught: another one of the relay leaves every container."""
    stopped = []
    net = SimpleNamespace(
        on_event=lambda handler: None, link_backend_answers=lambda timeout_s: True, stop=lambda: stopped.append(True)
    )
    monkeypatch.setattr(testbed_module.select, "create", lambda plan: net)
    plan = prepare(CONFIG, QUICK)
    bed: Any = Testbed(plan, Images(member="e", benchmark="b"), Silent(), port=0)

    def fail() -> None:
        raise RuntimeError("cannot join thread before it is started")

    bed.relay = SimpleNamespace(close=fail)
    with pytest.raises((RuntimeError, RunError)):
        bed.down()
    assert stopped


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
    [
        {"engine": "podman"},
        {"only": "*"},
        {"congestion_control": "nope"},
        {"quick": True},
        {"port": -1},
        {"port": 70_000},
    ],
)
def test_an_argument_that_cannot_be_is_refused_before_anything_is_created(
    made: list[FakeTestbed], tmp_path: Path, arguments: dict[str, Any]
) -> None:
    """docs/python.md: UsageError where an argument is refused, and nothing was created."""
    with pytest.raises((UsageError, TypeError)):
        measure(CONFIG, QUICK, tmp_path / "out.csv", **({"only": ["write-leader-50x1x1-4B-64B"]} | arguments))
    assert not made
    assert not (tmp_path / "out.csv").exists()


def test_a_stop_token_serves_a_second_run(made: list[FakeTestbed], tmp_path: Path) -> None:
    """A caller hands one token to several runs: the first one's tear-down shields it for good."""
    stop = Stop()
    run(tmp_path / "a.csv", stop=stop)
    stop.request()
    with pytest.raises(Interrupted):
        run(tmp_path / "b.csv", stop=stop)


@pytest.mark.parametrize("moment", ["while it is proved", "as it has been measured"])
def test_a_network_that_could_not_be_proved_has_its_network_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """network.json is to be there also where the proof failed; a prober or a link that fails leaves none."""
    net = SimpleNamespace(
        on_event=lambda handler: None,
        link_backend_facts=dict,
        link_backend_answers=lambda timeout_s: True,
        link_backend="the emulator",
        link_statistics=lambda **asked: {},
        links_kind="emulator",
    )
    monkeypatch.setattr(testbed_module.select, "create", lambda plan: net)
    proofs: list[Any] = []
    bed: Any = Testbed(
        prepare(CONFIG, QUICK), Images(member="e", benchmark="b"), Silent(), port=0, on_proof=proofs.append
    )

    def fail(*arguments: Any, **named: Any) -> Any:
        if moment == "while it is proved":
            raise RunError("the network's measurement took more than 60 s")
        bed.failure = "the link emulator ended: killed by SIGKILL"
        return SimpleNamespace(proof=NetworkProof("before", ()), to_json=lambda: {"pairs": []}, spoiled=None)

    monkeypatch.setattr(network_prover, "measure_gate", fail)
    with pytest.raises(RunError):
        bed._prove_network()
    assert [proof.passed for proof in proofs] == [False]


def test_a_device_that_cannot_hold_rows_is_refused_or_taken() -> None:
    """`run CONFIG /dev/null` ends with a traceback: OSError: [Errno 22] Invalid argument."""
    results = ResultsFile(Path("/dev/null"))
    with suppress(UsageError):
        results.open()
    results.close()


@pytest.mark.parametrize("name", FILES)
def test_the_schema_requires_the_version_without_which_a_file_is_refused(name: str) -> None:
    assert "schema" in json_schema(name)["required"]


def test_a_network_that_is_off_after_the_last_scenario_costs_no_row(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate that closes a run comes when every row is on disk."""
    off = Check("etcd1>s1", "rate", "wrong", "20 Mbit/s", "997 Mbit/s", "1.8% either way")
    monkeypatch.setattr(FakeTestbed, "proved_again", NetworkProof("after", (off,)))
    result = run(tmp_path / "out.csv")
    (row,) = rows(tmp_path / "out.csv")
    assert (row["Error"], row["Valid"]) == ("-", "no") and "network_off" in row["Reasons"]
    assert [row] == list(result.rows) and result.valid("no") == 1
    (line,) = read_run(result.directory).scenarios
    assert (line["valid"], line["findings"][-1]["kind"]) == ("no", "network_off")
    checked = read_run(result.directory).checked
    assert checked is not None and not checked.changed
    assert (result.failed, result.network_held, result.network_after) == (0, False, NetworkProof("after", (off,)))
    told = {event["kind"]: event["text"] for event in events(tmp_path / "out.csv")}
    assert told["network_wrong"] == "after the last scenario: wrong: rate of etcd1>s1 (20 Mbit/s)"
    assert told["run_ended"] == f"1 of 1 scenarios, 0 failed; {measure_module.WRONG_AFTER}"


def test_a_gate_after_the_last_scenario_that_fails_is_told_and_costs_no_row(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeTestbed, "proved_again", RunError("the network's measurement took more than 12 s"))
    result = run(tmp_path / "out.csv")
    assert (result.failed, result.network_held, result.network_after) == (0, True, None)
    (row,) = rows(tmp_path / "out.csv")
    assert row["Valid"] != "yes" and "network_unknown" in row["Reasons"]
    told = {event["kind"]: event["text"] for event in events(tmp_path / "out.csv")}
    assert told["network_unproved"].endswith("could not be measured: the network's measurement took more than 12 s")
    assert made[0].downs == 1


def test_a_network_that_is_gone_is_not_measured_again(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def up(self: FakeTestbed) -> None:
        self.failure = "the link emulator ended: killed by SIGKILL"  # type: ignore[assignment]

    monkeypatch.setattr(FakeTestbed, "up", up)
    monkeypatch.setattr(FakeTestbed, "prove_again", lambda self, moment: pytest.fail("there is no network"))
    run(tmp_path / "out.csv")
    assert rows(tmp_path / "out.csv")[0]["Error"].startswith("not run: the link emulator ended")


def test_what_seems_wrong_at_the_end_while_hosts_still_send_is_not_held_to_be_right(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = Check("etcd1>s1", "rate", "wrong", "20 Mbit/s", "997 Mbit/s", "1.8% either way")
    doubted = NetworkProof("after", (off,)).doubted("the hosts still filled 3% of etcd1-s1")
    monkeypatch.setattr(FakeTestbed, "proved_again", doubted)
    run(tmp_path / "out.csv")
    (row,) = rows(tmp_path / "out.csv")
    assert row["Valid"] != "yes" and "network_unknown" in row["Reasons"]


def test_hosts_that_still_send_cast_no_doubt_where_nothing_seems_wrong() -> None:
    right = NetworkProof("after", (Check("etcd1>s1", "rate", "proved", "20 Mbit/s"),))
    assert right.doubted("the hosts still filled 3% of etcd1-s1") == right
    assert network_finding(right) is None


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted(signal.SIGTERM), RuntimeError("a fault of ours")])
def test_rows_of_a_run_that_ended_before_its_last_proof_do_not_say_that_the_network_held(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def strike(self: FakeServer, path: str, body: dict[str, Any], timeout_s: float) -> Answer:
        self.asked.append((path, body))
        if len(self.asked) > 1:
            raise error
        return Answer(result_of(), None)

    monkeypatch.setattr(FakeServer, "run", strike)
    with pytest.raises(type(error)):
        measure(CONFIG, QUICK, tmp_path / "out.csv", only=["write-*-50x1x1-4B-64B"])
    first, second = rows(tmp_path / "out.csv")
    assert first["Error"] == "-" and first["Valid"] != "yes" and "network_unknown" in first["Reasons"]
    assert second["Error"] != "-" and made[0].downs == 1
