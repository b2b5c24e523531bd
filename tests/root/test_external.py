"""Runs on etcd processes on loopback that the test has started, as on a cluster that somebody else runs."""

from __future__ import annotations

import csv
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.load.cluster import Cluster, text64
from bench.load.members import free_ports
from bench.load.secured import PASSWORD, PREFIX, USER, Secured
from containernet_env.base import programs
from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.runs.external_left import records
from containernet_env.runs.measure import carry_out, measure
from containernet_env.runs.prepare import prepare
from containernet_env.runs.progress import Silent
from tests.deadline import eventually
from tests.root.etcd_processes import endpoints_file, keys_below, other_authority

PROJECT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-c", "import sys; from containernet_env.__main__ import main; sys.exit(main())"]
TEN = {"total": 200, "clients": 10, "conns": 2}
TINY = {
    "dataset": {"keyPrefix": "data/", "keySize": 4, "valSize": 64, "keys": 100},
    "scenarios": [
        {"type": "write", "load": TEN, "data": {"keySize": 4, "valSize": 64}, "target": ["leader", "cluster"]},
        {"type": "mixed", "load": TEN, "ratio": 0.5, "consistency": "l", "history": True},
        {"type": "read", "load": TEN, "target": "etcd2", "consistency": "l", "prefix": "data/00"},
    ],
}
LONG = {
    "scenarios": [
        {
            "type": "write",
            "load": {"duration": "60s", "clients": 10, "conns": 2},
            "data": {"keySize": 4, "valSize": 64},
            "target": "cluster",
        }
    ]
}


def _etcd() -> Path | None:
    try:
        return programs.path("etcd")
    except MissingRequirementError:
        return None


pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="not root"),
    pytest.mark.skipif(_etcd() is None, reason="etcd has not been built"),
]


def started(kind: type[Cluster], folder: Path) -> Cluster:
    program = _etcd()
    assert program is not None
    return kind(program, 3, folder, tls=kind is Secured)


def kill(cluster: Cluster, first: int = 0) -> None:
    """End its members, from number ``first`` on, at once: nobody wants their data."""
    for process in cluster._processes[first:]:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(Cluster, tmp_path_factory.mktemp("plain")) as cluster:
        yield cluster
        kill(cluster)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(Secured, tmp_path_factory.mktemp("secured")) as cluster:
        assert isinstance(cluster, Secured)
        cluster.add_users()
        yield cluster
        kill(cluster)


def scenarios(folder: Path, value: Any) -> Path:
    path = folder / "scenarios.json"
    path.write_text(json.dumps(value))
    return path


def rows(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(out.read_text().splitlines()))


def run(config: Path, folder: Path, **more: Any) -> Any:
    wanted = scenarios(folder, TINY)
    return measure(config, wanted, folder / "out.csv", yes_load_this_cluster=True, **more)


def started_servers() -> list[str]:
    """The command lines of benchmark servers that run on 127.0.0.1."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if Path(words[0]).name == "benchmark-server":
            found.append(" ".join(words))
    return found


class Watching(Silent):
    """Looks at all command lines, and at the keys, when a scenario has ended."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self.cluster = cluster
        self.lines = ""
        self.keys: list[str] = []

    def scenario_ended(self, outcome: Any) -> None:
        self.lines += "\n".join(started_servers())
        if self.cluster is not None:
            self.keys += keys_below(self.cluster)


def test_rows_say_what_was_seen_and_keys_are_under_the_prefix_of_the_run_until_its_end(
    plain: Cluster, tmp_path: Path
) -> None:
    revision, keys = plain.revision_and_keys()
    seen = Watching(plain)
    result = run(endpoints_file(tmp_path, plain), tmp_path, progress=seen)
    found = rows(tmp_path / "out.csv")
    assert [row["Error"] for row in found] == ["-"] * 4
    assert [row["TestType"] for row in found] == ["write", "write", "mixed", "read"]
    for row in found:
        assert row["Hosts"] == "external" and row["ClusterSize"] == "3" and row["StoreVersion"].startswith("3.")
        assert row["NetworkProof"].startswith("RTT ") and row["NetworkProof"].endswith(" ms: medians of 20 each")
        assert 0 < float(row["RttMeasured_ms"]) < 100
        assert row["Valid"] != "yes" and "unseen" in row["Reasons"]
        assert row["Leader"] in ("etcd1", "etcd2", "etcd3")
        unknown = ("LinkDelay_ms", "Bandwidth_mbps", "Links", "Cpus", "Memory_bytes", "ClientLink", "Heartbeat_ms")
        assert {row[name] for name in (*unknown, "Data", "RttExpected_ms", "CongestionControl")} == {"-"}
    own = f"{PREFIX}{result.run_id.rpartition('-')[2]}/"
    assert len(set(seen.keys)) >= 200 and all(key.startswith(own) for key in seen.keys)
    after, left = plain.revision_and_keys()
    # 500 writes and some of the mixed load, the data set of the reads, and what removed them.
    assert left == keys and after > revision + 400
    manifest = json.loads((result.directory / "manifest.json").read_text())
    assert manifest["images"] == {} and manifest["machine"]["engine"] is None
    assert manifest["hosts"]["etcd2"]["member"] == "m1"
    assert len(list((result.directory / "history").iterdir())) == 2
    assert not [record for _, record in records() if record.run_id in result.run_id]


def test_tls_and_users_and_the_password_is_nowhere(secured: Cluster, tmp_path: Path) -> None:
    seen = Watching()
    result = run(endpoints_file(tmp_path, secured), tmp_path, progress=seen)
    assert [row["Error"] for row in rows(tmp_path / "out.csv")] == ["-"] * 4
    assert "benchmark-server" in seen.lines and PASSWORD not in seen.lines
    written = [path for path in result.directory.rglob("*") if path.is_file()]
    assert len(written) > 5
    assert all(PASSWORD.encode() not in path.read_bytes() for path in (*written, tmp_path / "out.csv"))


@contextmanager
def web_server() -> Iterator[int]:
    """Some other service that speaks HTTP; its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    server.RequestHandlerClass.log_message = lambda *_: None  # type: ignore[assignment, method-assign]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def greeter() -> Iterator[int]:
    """Some service that speaks first, and no HTTP; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            while True:
                try:
                    caller, _ = listening.accept()
                except OSError:
                    return
                with caller:
                    caller.sendall(b"220 mail.example ESMTP\r\n")

        threading.Thread(target=greet, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def refused(config: Path, folder: Path) -> str:
    with pytest.raises(RunError) as raised:
        measure(config, None, folder / "out.csv", quick=True, yes_load_this_cluster=True)
    return str(raised.value)


def test_what_is_wrong_with_an_endpoint_is_one_line_and_nothing_is_written(plain: Cluster, tmp_path: Path) -> None:
    revision, _ = plain.revision_and_keys()
    urls = [f"http://127.0.0.1:{port}" for port in plain.ports]
    (nobody,) = free_ports(1)
    with web_server() as web, greeter() as greeting:
        for other, told in (
            (nobody, "answers nothing: connection refused"),
            (web, "is no etcd: HTTP 501"),
            (greeting, "answers something that is no HTTP: '220 mail.example ESMTP'"),
        ):
            config = endpoints_file(tmp_path, plain, endpoints=[*urls[:2], f"http://127.0.0.1:{other}"])
            lines = refused(config, tmp_path).splitlines()
            assert lines[0] == f"the cluster of {config} cannot be measured:"
            assert len(lines) == 2 and f"http://127.0.0.1:{other} {told}" in lines[1], lines
    config = endpoints_file(tmp_path, plain, endpoints=[urls[0], urls[0].replace("127.0.0.1", "localhost")])
    assert "two of the endpoints are of the same member" in refused(config, tmp_path)
    assert plain.revision_and_keys()[0] == revision


def test_http_and_https_are_told_apart(plain: Cluster, secured: Cluster, tmp_path: Path) -> None:
    ca = {"ca": str(secured.folder / "ca.pem")}
    to_plain = [f"https://127.0.0.1:{plain.ports[0]}"]
    told = refused(endpoints_file(tmp_path, plain, endpoints=to_plain, tls=ca), tmp_path)
    assert told.endswith("does not speak TLS: where it should not, its endpoint begins with http://"), told
    to_secured = [f"http://127.0.0.1:{secured.ports[0]}"]
    told = refused(endpoints_file(tmp_path, plain, endpoints=to_secured), tmp_path)
    assert told.endswith('speaks TLS: its endpoint begins with https://, and "tls" names its CA'), told


def test_a_wrong_ca_a_wrong_password_and_no_user_are_told(plain: Cluster, secured: Cluster, tmp_path: Path) -> None:
    wrong_ca = {"ca": str(other_authority(tmp_path))}
    told = refused(endpoints_file(tmp_path, secured, tls=wrong_ca), tmp_path).splitlines()
    assert len(told) == 4 and all("shows a certificate that is refused: " in line for line in told[1:]), told
    (tmp_path / "wrong").write_text("not it\n")
    told = refused(endpoints_file(tmp_path, secured, password_file="wrong"), tmp_path).splitlines()
    assert told[1:] == [f"  the cluster refuses the password of {USER}, or there is no such user"]
    told = refused(endpoints_file(tmp_path, secured, user=None, password_file=None), tmp_path).splitlines()
    assert told[1:] == ['  the cluster has users: name one with "user"']
    (tmp_path / "pw").write_text("x\n")
    told = refused(endpoints_file(tmp_path, plain, user="bench", password_file="pw"), tmp_path).splitlines()
    assert told[1:] == ['  the cluster has no users (authentication is not enabled): leave out "user": "bench"']
    told = refused(endpoints_file(tmp_path, secured, prefix="elsewhere/"), tmp_path)
    assert "may not read keys under elsewhere/" in told and "permission denied" in told


def test_a_prefix_that_holds_keys_is_refused_and_they_stay(plain: Cluster, tmp_path: Path) -> None:
    config, wanted = endpoints_file(tmp_path, plain), scenarios(tmp_path, TINY)
    key = f"{PREFIX}abc123/theirs"
    plain.ask("/v3/kv/put", {"key": text64(key), "value": text64("v")})
    revision, _ = plain.revision_and_keys()
    plan = replace(prepare(config, wanted), run_id="abc123")
    with pytest.raises(RunError, match="1 keys are under containernet-env/abc123/ already"):
        carry_out(plan, tmp_path / "out.csv", yes_load_this_cluster=True)
    assert keys_below(plain) == [key] and plain.revision_and_keys()[0] == revision
    plain.ask("/v3/kv/deleterange", {"key": text64(key)})


def test_a_cluster_without_a_quorum_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    with started(Cluster, folder) as cluster:
        kill(cluster, first=1)
        told = refused(endpoints_file(tmp_path, cluster), tmp_path)
        assert "connection refused" in told
        alone = [f"http://127.0.0.1:{cluster.ports[0]}"]
        told = refused(endpoints_file(tmp_path, cluster, endpoints=alone), tmp_path)
        assert told.splitlines()[1].startswith("  the cluster has no quorum"), told


def command(*words: object, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.Popen(
        [*COMMAND, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=PROJECT,
        env={**environment, **options.pop("env", {})},
        **options,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=120)
    return process.returncode, said


def test_check_looks_and_writes_nothing(plain: Cluster, secured: Cluster, tmp_path: Path) -> None:
    revision, _ = plain.revision_and_keys()
    status, said = ended(command("check", endpoints_file(tmp_path, plain)))
    assert status == 0 and "users: none" in said and said.count("version 3.") == 3 and said.count("leads") == 1, said
    assert plain.revision_and_keys()[0] == revision
    status, said = ended(command("check", endpoints_file(tmp_path, secured)))
    assert status == 0 and f"users: on, logged in as {USER}" in said, said
    wrong = endpoints_file(tmp_path, plain, endpoints=[f"http://127.0.0.1:{free_ports(1)[0]}"])
    status, said = ended(command("check", wrong))
    assert status == 1 and "connection refused" in said, said


def under_way(plain: Cluster, config: Path, folder: Path) -> subprocess.Popen[str]:
    """A run of a minute that has written keys."""
    wanted = scenarios(folder, LONG)
    process = command("run", config, folder / "out.csv", "--scenarios", wanted, "--yes-load-this-cluster")
    eventually(lambda: len(keys_below(plain)) > 100, "keys of the run")
    return process


def test_ctrl_c_leaves_no_keys_and_no_server(plain: Cluster, tmp_path: Path) -> None:
    before = started_servers()
    process = under_way(plain, endpoints_file(tmp_path, plain), tmp_path)
    process.send_signal(signal.SIGINT)
    status, said = ended(process)
    assert status == 130 and "keys removed" in said, said
    assert keys_below(plain) == [] and started_servers() == before


@pytest.mark.parametrize("by", ["clean", "next run"])
def test_after_kill_9_the_server_ends_and_what_follows_removes_the_keys(
    plain: Cluster, tmp_path: Path, by: str
) -> None:
    config, before = endpoints_file(tmp_path, plain), started_servers()
    process = under_way(plain, config, tmp_path)
    process.kill()
    ended(process)
    eventually(lambda: started_servers() == before, "the server ends")
    left = keys_below(plain)
    assert len(left) > 100
    if by == "clean":
        status, said = ended(command("clean", config))
        prefix = left[0].rpartition("/")[0] + "/"
        assert status == 0 and f"removed {len(left):,} keys under {prefix}" in said, said
        assert "nothing was left behind" in ended(command("clean", config))[1]
    else:
        run(config, tmp_path, only=["write"])
    assert keys_below(plain) == []


def test_a_sweep_varies_loads(plain: Cluster, tmp_path: Path) -> None:
    config, out = endpoints_file(tmp_path, plain), tmp_path / "out.csv"
    words = ("sweep", config, out, "--scenarios", scenarios(tmp_path, TINY), "--only", "write-leader*", "--tries", 1)
    _, said = ended(command(*words, "--set", "clients=1,10", "--yes-load-this-cluster"))
    assert {row["ClientCount"] for row in rows(out)} == {"1", "10"}, said
    assert {row["Hosts"] for row in rows(out)} == {"external"} and keys_below(plain) == []
