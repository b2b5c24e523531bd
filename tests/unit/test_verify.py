"""Histories: which scenarios may keep one, how they get into the run directory, and what `verify` makes of them."""

from __future__ import annotations

import base64
import gzip
import io
import json
import subprocess
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from containernet_env.base import programs
from containernet_env.base.errors import ConfigError, RunError
from containernet_env.base.http import Connection
from containernet_env.cli import group, results
from containernet_env.config.scenarios import load_scenarios
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.scenario import ScheduledScenario
from containernet_env.results.run_directory import SCENARIOS, RunDirectory
from containernet_env.runs import verify as module
from containernet_env.runs.load import BenchmarkServer, request_of
from containernet_env.runs.observer import Histories, WrittenKeys, packed
from containernet_env.runs.verify import Judgement
from containernet_env.stores import etcd as history
from containernet_env.stores.cluster import NEAR, OwnHistory, Written
from tests.unit.answers import closed_loop
from tests.unit.blocks import mixed, names_of, reads, txns, write, writes
from tests.unit.fakes import Notes

SMALL = {"dataset": {"valSize": 19}}
HISTORY = {"dataset": {"keyPrefix": "d/"}, "scenarios": [mixed(history=True)]}


def test_scenarios_that_keep_a_history_say_so_in_name_and_request(tmp_path):
    blocks = [mixed(history=True), writes(history=True), reads(history=True), txns(history=True)]
    assert all(name.endswith("-history") for name in names_of(tmp_path, *blocks))
    for scenario in load_scenarios(write(tmp_path, {"scenarios": blocks})).scenarios:
        _, body = request_of(scenario, {"a": "10.0.0.1:2379"}, 60.0)
        assert body["history"] is True
    plain = load_scenarios(write(tmp_path, {"scenarios": [mixed()]})).scenarios[0]
    assert "history" not in request_of(plain, {"a": "10.0.0.1:2379"}, 60.0)[1]


def test_values_and_reads_that_a_history_cannot_have_are_refused_by_name(tmp_path):
    small, several = "history: needs unique values, and 19 bytes", "history: is given for more than single keys"
    for file, named in (
        ({**SMALL, "scenarios": [mixed()]}, "verify: needs unique values, and 19 bytes"),
        *(({**SMALL, "scenarios": [block(history=True)]}, small) for block in (mixed, txns)),
        ({"scenarios": [writes(data={"keySize": 4, "valSize": 8}, history=True)]}, "a valSize of at least 20"),
        ({"scenarios": [mixed(history=True, spanKeys=2)]}, several),
        ({"scenarios": [reads(history=True, keysOnly=True)]}, several),
        ({"scenarios": [mixed(history=True, verify=False)]}, "history: is given without verify"),
    ):
        with pytest.raises(ConfigError, match=named):
            load_scenarios(write(tmp_path, file))
    # Small values are allowed where nothing depends on their writers.
    blocks = [mixed(verify=False), txns(), reads(), reads(history=True)]
    assert len(load_scenarios(write(tmp_path, {**SMALL, "scenarios": blocks})).scenarios) == 4


class Store:
    """A store's own history, and a benchmark server that kept one."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.asked: list[tuple[str, int, list[str]]] = []
        self.gone = self.final = self.cut = False
        self.notes = Notes()
        cluster = SimpleNamespace(revision=lambda: 41, written=self.written, waits=NEAR)
        server = SimpleNamespace(history=self.client)
        target: Any = SimpleNamespace(cluster=cluster, key_prefix="", progress=self.notes)
        target.loader = lambda client: (None, server)
        self.histories = Histories(target, self.keep)

    def keep(self, name: str, content: Any) -> None:
        self.kept[name] = b"".join(content)

    def written(self, prefix: str, since: int, keys: Any, timeout_s: float) -> OwnHistory:
        self.asked.append((prefix, since, keys))
        return OwnHistory(self.writes(), self.final)

    def writes(self) -> Any:
        yield Written(42, "d/1", "abc")
        if self.gone:
            raise RunError("it is compacted up to revision 77")
        yield Written(0, "d/2", None)

    def client(self) -> Any:
        yield KEPT_FILE[:50]
        if self.cut:
            raise RunError("connection lost")
        yield KEPT_FILE[50:]

    def lines(self) -> list[Any]:
        """Of the store's own history, as it was kept."""
        return [json.loads(line) for line in gzip.decompress(self.kept["01-mixed.store.jsonl.gz"]).splitlines()]


def ended(tmp_path, file=HISTORY, **values: Any) -> ScenarioOutcome:
    scenario = load_scenarios(write(tmp_path, file)).scenarios[0]
    load = LoadResult.from_json({**closed_loop(), **values})
    return ScenarioOutcome(ScheduledScenario(scenario, 1), "now", 1, load=load, error=None)


LINES = b"""{"history":1,"began_ns":7,"prefix":"d/"}
{"client":0,"op":"put","key":"1","value":"0000010000000001","invoked":1,"completed":2,"outcome":"unknown"}
{"client":1,"op":"get","key":"3","invoked":1,"completed":2,"outcome":"unknown"}
{"client":0,"op":"txn","key":"2","value":"0000010000000002","revision":9,"invoked":3,"completed":4,"outcome":"ok"}
{"client":0,"op":"serializable get","key":"4","invoked":1,"completed":2,"outcome":"unknown"}
{"client":0,"op":"put","key":"1","value":"0000010000000003","revision":9,"invoked":5,"completed":6,"outcome":"ok"}
{"operations":5,"lost":0}
"""
KEPT_FILE = gzip.compress(LINES, mtime=0)
KEPT = {"history": {"operations": 10, "lost": 0}}


WRITTEN, DELETED = {"revision": 42, "key": "d/1", "value": "abc"}, {"revision": 0, "key": "d/2", "value": None}
NO_CLIENT = "its history could not be fetched: connection lost"
COMPACTED = "is not there: it is compacted up to revision 77"


def test_client_and_store_leave_their_histories_and_what_is_missing(tmp_path):
    for store_has, client, end, notes in (
        ((), KEPT_FILE, {"whole": True}, []),
        # A final state never looks like a history, and what is missing never looks whole.
        (("final",), KEPT_FILE, {"whole": False, "final": True}, []),
        (("final", "gone"), KEPT_FILE, {"whole": False, "final": False}, [f"the store's final state {COMPACTED}"]),
        # The checker refuses a client's history that is cut off.
        (("gone", "cut"), KEPT_FILE[:50], {"whole": False}, [NO_CLIENT, f"the store's own history {COMPACTED}"]),
    ):
        store, outcome = Store(), ended(tmp_path, **KEPT)
        for name in store_has:
            setattr(store, name, True)
        store.histories.prepare(outcome.scheduled.scenario)
        store.histories.keep(outcome, "01-mixed")
        assert store.asked == [("d/", 42, [] if store.cut else ["d/1", "d/2"])], store_has
        assert store.kept["01-mixed.jsonl.gz"] == client, store_has
        assert store.lines() == [WRITTEN, *([] if store.gone else [DELETED]), end]
        assert [note.split(": ", 1)[1] for note in store.notes.notes] == notes


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_keys_of_writes_are_found_however_the_history_comes(size):
    keys = WrittenKeys()
    for at in range(0, len(KEPT_FILE), size):
        keys.take(KEPT_FILE[at : at + size])
    assert keys.all("p/") == ["p/1", "p/2"]
    keys.take(b"no gzip")
    damaged = WrittenKeys()
    damaged.take(b"no gzip")
    assert keys.all("") == ["1", "2"] and damaged.all("") == []


def test_nothing_is_fetched_where_no_history_was_kept(tmp_path):
    store = Store()
    store.histories.keep(ended(tmp_path), "01-mixed")  # the load never ran: the last one's would be fetched
    outcome = ended(tmp_path, {"scenarios": [mixed()]}, **KEPT)
    store.histories.prepare(outcome.scheduled.scenario)
    store.histories.keep(replace(outcome, load=None), "02-mixed")
    assert store.kept == {} and store.asked == []


def test_lines_are_packed_in_pieces():
    pieces = list(packed(f"{number:0999}" for number in range(500)))
    assert len(pieces) > 5 and len(gzip.decompress(b"".join(pieces)).splitlines()) == 500


def test_the_run_directory_holds_whole_histories_only(tmp_path):
    directory = RunDirectory(tmp_path / "out.csv", "run")

    def broken() -> Any:
        yield b"one"
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        directory.write_history("02-b.jsonl.gz", broken())
    directory.write_history("01-a.jsonl.gz", [b"one", b"two"])
    (kept,) = (directory.path / "history").iterdir()
    assert (kept.name, kept.read_bytes()) == ("01-a.jsonl.gz", b"onetwo")


class Gateway(Connection):
    """A member's JSON gateway: ``request_json`` answers a range, a connection the lines of a watch, or raw bytes."""

    def __init__(self, last: int, *lines: Any, head: bytes = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n") -> None:
        self.last, self.asked, self.sent = last, [], b""
        self._answer = head
        for line in lines:
            self._answer += line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        self.asked.append(body)
        kvs = {"kvs": [{"mod_revision": str(self.last)}]} if self.last else {}
        return {"header": {"revision": "99"}, **kvs}

    def _connect(self, port: int, timeout_s: float | None) -> Any:
        return SimpleNamespace(sendall=self.send, makefile=lambda mode: io.BytesIO(self._answer), close=lambda: None)

    def send(self, data: bytes) -> None:
        self.sent += data


def line(*events: tuple[int, str, bytes]) -> dict[str, Any]:
    def text(raw: bytes) -> str:
        return base64.b64encode(raw).decode()

    kvs = [{"key": text(key.encode()), "mod_revision": str(at), "value": text(value)} for at, key, value in events]
    return {"result": {"header": {}, "events": [{"kv": kv} for kv in kvs]}}


def test_etcd_tells_every_write_up_to_the_last_one():
    delete = {"type": "DELETE", "kv": {"key": "ZA==", "mod_revision": "8"}}
    gateway: Any = Gateway(
        9,
        {"result": {"created": True}},
        line((7, "d/1", b"x" * 100), (7, "d/2", b"")),
        {"result": {"events": [delete]}},
        line((9, "d/1", b"\xff")),
        line((10, "d/1", b"later")),
    )
    assert history.last_write(gateway, "", 1.0) == (99, 9)
    assert list(history.events(gateway, "d/", 5, 10.0)) == [
        Written(7, "d/1", "x" * 32),
        Written(7, "d/2", ""),
        Written(9, "d/1", "�"),
    ]
    watch = json.loads(gateway.sent.partition(b"\r\n\r\n")[2])
    assert watch == {"create_request": {"key": "ZC8=", "range_end": "ZDA=", "start_revision": "5"}}
    assert gateway.asked[0]["key"] == "AA==" and gateway.asked[0]["sort_target"] == "MOD"
    assert list(history.events(gateway, "d/", 10, 10.0)) == []


def test_a_history_that_etcd_does_not_have_is_an_error():
    refused: Any = Gateway(9, b"no", head=b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n")
    for gateway, problem in (
        (Gateway(9, {"result": {"canceled": True, "compact_revision": "77"}}), "compacted up to revision 77"),
        (Gateway(9, {"result": {"canceled": True, "cancel_reason": "no"}}), "no longer has its history: no"),
        (Gateway(9, {"error": {"message": "denied"}}), "refuses its history"),
        (Gateway(9, b"<html>\n"), "cannot be read"),
        (Gateway(9, line((7, "d/1", b""))), "ended its history early"),
        (refused, "HTTP 404: no"),
    ):
        with pytest.raises(RunError, match=problem):
            list(history.events(gateway, "", 1, 10.0))


def test_the_clients_history_is_read_to_its_end():
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\nConnection: close\r\n\r\n"
    whole: Any = Gateway(0, b"x" * 3_000_000, head=head)
    assert b"".join(BenchmarkServer(whole).history()) == b"x" * 3_000_000
    short: Any = Gateway(0, b"x" * 2_999_999, head=head)
    with pytest.raises(RunError):
        list(BenchmarkServer(short).history())


DATED = {"reads": 5, "dated": True, "stale": 2, "median_ms": 1.5, "p99_ms": 3, "max_ms": 4, "switched_back": 0}
UNDATED = {"reads": 5, "dated": False, "stale": 0, "median_ms": 0, "p99_ms": 0, "max_ms": 0, "switched_back": 0}
VALUES = {"operations": 2000, "judged": 1990, "keys": 40, "compared": "history", "unknown": 3, "resolved": 3}
VALUES |= {"violation": None, "serializable": DATED}
VIOLATION = {"key": "d/1", "operations": ["put a", "get b"], "store": ["revision 7"], "picture": "/elsewhere/01-a.html"}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run directory with a history, and a checker that answers with what `says` was given, or raises it."""
    directory = RunDirectory(tmp_path / "out.csv", "run")
    directory.add_event("run_began", "it began")
    directory.write_history("01-a.jsonl.gz", [b"client"])
    directory.write_history("01-a.store.jsonl.gz", [b"store"])
    monkeypatch.setattr(programs, "path", lambda name: tmp_path / name)
    checker = SimpleNamespace(path=directory.path, argv=(), answer=None)

    def judge(argv, **options):
        assert options["stdin"] == subprocess.DEVNULL
        checker.argv = argv
        if isinstance(checker.answer, Exception):
            raise checker.answer
        return subprocess.CompletedProcess(argv, *checker.answer)

    def says(status, stdout=None, **values):
        answer = stdout or json.dumps({"verdict": "ok", "reason": "", **VALUES, **values})
        checker.answer = (status, "", "history-checker: it was cut off") if status == 2 else (status, answer, "")

    checker.says = says
    monkeypatch.setattr(module.subprocess, "run", judge)
    return checker


def call(run: Any, *args: str) -> Any:
    return CliRunner().invoke(group, ["verify", str(run.path), *args], standalone_mode=False)


VIOLATED = {"verdict": "violated", "reason": "lost", "violation": VIOLATION}


@pytest.mark.parametrize(
    ("status", "values"),
    [
        (0, {}),
        (0, {"compared": "final state", "resolved": 1}),
        (0, {"compared": "nothing", "resolved": 1}),
        (0, {"serializable": UNDATED}),
        (1, VIOLATED),
        (2, {}),
        (3, {}),
        (4, {"verdict": "undecided", "reason": "no time"}),
        (0, {"stdout": "fine\n"}),
    ],
    ids=str,
)
def test_what_verify_prints_of_a_judgement(run, snapshot, status, values):
    run.says(status, **values)
    result = call(run)
    # An answer that is no judgement is no violation.
    assert result.return_value == (2 if "stdout" in values or status == 3 else status)
    assert result.output.replace(str(run.path.parent), "RUNS") == snapshot


def test_the_checker_has_the_histories_and_the_limits(run, snapshot):
    run.says(0)
    call(run, "--time", "7", "--memory", "64")
    assert [word.replace(str(run.path.parents[1]), "FOLDER") for word in run.argv] == snapshot
    assert json.loads((run.path.with_name("run.verify") / "01-a.json").read_text())["judged"] == 1990
    run.answer = subprocess.TimeoutExpired(run.argv, 127.0)
    result = call(run)
    assert result.output == "01-a: not judged: history-checker did not end within 127 s\n" and result.return_value == 2


def test_verify_removes_what_an_earlier_judgement_left(run):
    run.says(1, **VIOLATED)
    call(run)
    folder = run.path.with_name("run.verify")
    (folder / "01-a.html").write_text("the picture")
    other = folder / "02-b.html"
    other.write_text("of another history")
    run.says(2)
    assert call(run).return_value == 2
    assert list(folder.iterdir()) == [other]


def test_a_history_that_a_scenario_did_not_leave_is_missing_by_name(run, tmp_path):
    run.says(0)
    outcome = ended(tmp_path)
    crashed = replace(outcome, load=None, error="the client ended: killed by signal 9")
    directory, name = RunDirectory(tmp_path / "out.csv", "run"), outcome.scheduled.scenario.name
    directory.add_scenario(crashed)
    result = call(run)
    assert result.return_value == 2
    assert f"{name}: not judged: its history is missing\n" in result.output
    directory.write_history(f"02-{name}.jsonl.gz", [b"client"])
    assert call(run).return_value == 0
    directory.add_scenario(replace(crashed, scheduled=ScheduledScenario(crashed.scheduled.scenario, 2)))
    assert f"{name}.2: not judged" in call(run).output
    for path in (run.path / "history").iterdir():
        path.unlink()
    assert call(run).return_value == 2
    # Where none is kept none is missing, and a run without any is wrong use.
    (run.path / SCENARIOS).unlink()
    directory = RunDirectory(tmp_path / "out.csv", "run")
    directory.add_scenario(replace(ended(tmp_path, {"scenarios": [mixed()]}), load=None))
    directory.write_history("01-a.jsonl.gz", [b"client"])
    assert call(run).return_value == 0
    (run.path / "history" / "01-a.jsonl.gz").unlink()
    assert "has no history to judge" in str(call(run).exception)


def test_the_worst_of_several_histories_counts():
    for verdicts, missing, status in (
        *((("ok", "ok"), 0, 0), (("ok", "undecided"), 0, 4), (("undecided", None), 0, 2)),
        *((("ok",), 1, 2), (("undecided", None, "violated"), 1, 1)),
    ):
        judged = [Judgement("a", verdict, "", {}) for verdict in verdicts]
        assert results.status_of(judged, missing) == status, verdicts
