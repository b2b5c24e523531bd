"""Runs on clusters that the test has started on loopback, as on those of others: etcd and replicas."""

from __future__ import annotations

import base64
import csv
import http.server
import json
import os
import secrets
import shutil
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from bench.load.cluster import Cluster, text64
from bench.load.members import free_ports
from bench.load.secured import PASSWORD, PREFIX, USER, Secured
from bench.load.services import REPLICAS, Service
from containernet_env.base import assets, programs
from containernet_env.base.errors import MissingRequirementError, RunError
from containernet_env.cli import main
from containernet_env.runs import external_access
from containernet_env.runs.external_access import Record, records
from containernet_env.runs.measure import RunOrder, carry_out, measure
from containernet_env.runs.prepare import prepare
from containernet_env.runs.progress import Silent
from containernet_env.setup import builds
from containernet_env.setup.commands import Commands
from containernet_env.stores import replicas
from containernet_env.stores.certificates import Authority
from tests.deadline import HANG_S, eventually
from tests.processes import namespace_of, processes, program_of, words_of

PROJECT = Path(__file__).resolve().parents[2]
COMMAND = ["-c", "import sys; from containernet_env.__main__ import main; sys.exit(main())"]
CONSENT = "--yes-load-this-cluster"
TEN = {"total": 200, "clients": 10, "conns": 2}
WRITE = {"type": "write", "load": TEN, "data": {"keySize": 4, "valSize": 64}, "target": ["leader", "cluster"]}
MIXED = {"type": "mixed", "load": TEN, "ratio": 0.5, "consistency": "l", "history": True}
READ = {"type": "read", "load": TEN, "consistency": "l"}
LONG = {**WRITE, "load": {"duration": "60s", "clients": 10, "conns": 2}, "target": "cluster"}


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


def kill(cluster: Cluster, first: int = 0) -> None:
    """End its members, from number ``first`` on, at once: their data is not needed."""
    for process in cluster._processes[first:]:
        process.kill()
        process.wait()


@contextmanager
def started(kind: type[Cluster], folder: Path) -> Iterator[Any]:
    with kind(_etcd(), 3, folder, tls=kind is Secured) as cluster:
        yield cluster
        kill(cluster)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(Cluster, tmp_path_factory.mktemp("plain")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with started(Secured, tmp_path_factory.mktemp("secured")) as cluster:
        cluster.add_users()
        yield cluster


class Replicas(Service):
    """Three replicas (replicas_image) as processes on loopback."""

    def _arguments(self, i: int) -> list[str]:
        return [*super()._arguments(i), "--unsafe-no-fsync"]

    @property
    def urls(self) -> list[str]:
        return [f"http://{endpoint}" for endpoint in self.endpoints]

    def status(self, key: str) -> int:
        """Of a GET of a key, at the first replica, with the newest version of all."""
        return self.ask("GET", 0, f"/v0/entity?id={key.replace('/', '%2F')}&from=3")


def built(folder: Path) -> Path | None:
    """The program of the replicas, built where it is not there yet; ``None`` where there is no Go to build it with."""
    module = replicas.MODULE
    if (found := programs.find(module)) is None and (toolchain := builds.find()) is not None:
        found = builds.build(module, toolchain, Commands(), folder / "build.log")
    return found and found / "replicas"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    folder = tmp_path_factory.mktemp("replicas")
    if (program := built(folder)) is None:
        pytest.skip("there is no Go to build the replicas with")
    with Replicas(REPLICAS, program, 3, folder) as found:
        yield found


def written(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


def endpoints_file(folder: Path, cluster: Cluster, **more: Any) -> Path:
    """A file with the endpoints of a cluster; ``more`` are further keys, or others in the place of these."""
    scheme = "https" if isinstance(cluster, Secured) else "http"
    values: dict[str, Any] = {"endpoints": [f"{scheme}://127.0.0.1:{port}" for port in cluster.ports]}
    if isinstance(cluster, Secured):
        (folder / "password").write_text(f"{PASSWORD}\n")
        values |= {"tls": {"ca": str(cluster.folder / "ca.pem")}, "user": USER, "password_file": "password"}
    wanted = {name: value for name, value in {**values, **more}.items() if value is not None}
    return written(folder / "endpoints.json", wanted)


def service_file(folder: Path, urls: list[str], **more: Any) -> Path:
    """A service's requests with quorums; ``more`` are further keys of the store, or others in the place of these."""
    store = {
        "kind": "http",
        "put": "/v0/entity?id={key}&ack=2",
        "get": "/v0/entity?id={key}&from=2",
        "delete": "/v0/entity?id={key}&ack=3",
        "success": {"put": 201, "get": 200, "delete": 202},
        "missing": 404,
        "health": "/status",
    }
    wanted = {name: value for name, value in {**store, **more}.items() if value is not None}
    return written(folder / "endpoints.json", {"endpoints": urls, "store": wanted})


def scenarios(folder: Path, *blocks: Any) -> Path:
    dataset = {"keyPrefix": "data/", "keySize": 4, "valSize": 64, "keys": 100}
    return written(folder / "scenarios.json", {"dataset": dataset, "scenarios": blocks})


def keys_below(cluster: Cluster, prefix: str = PREFIX) -> list[str]:
    """The keys that start with a prefix; of a cluster without users."""
    first, end = prefix.encode(), prefix[:-1].encode() + bytes([ord(prefix[-1]) + 1])
    body = {"key": base64.b64encode(first).decode(), "range_end": base64.b64encode(end).decode(), "keys_only": True}
    return [base64.b64decode(item["key"]).decode() for item in cluster.ask("/v3/kv/range", body).get("kvs", [])]


def rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "out.csv").read_text().splitlines()))


def run(config: Path, folder: Path, *blocks: Any, **more: Any) -> Any:
    return measure(config, scenarios(folder, *blocks), folder / "out.csv", yes_load_this_cluster=True, **more)


def refused(config: Path, folder: Path) -> str:
    with pytest.raises(RunError) as raised:
        measure(config, None, folder / "out.csv", quick=True, yes_load_this_cluster=True)
    return str(raised.value)


def told(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """The status of a command in this process, and what it prints."""
    with pytest.raises(SystemExit) as left:
        main(list(map(str, words)))
    return int(left.value.code or 0), "".join(capsys.readouterr())


def run_words(config: Path, folder: Path, *blocks: Any) -> list[str]:
    words = ["run", config, folder / "out.csv", "--scenarios", scenarios(folder, *blocks), CONSENT]
    return list(map(str, words))


def started_servers() -> list[str]:
    """The command lines of benchmark servers in this network namespace: those of containers have their own."""
    here = namespace_of(os.getpid())
    return [words_of(pid) for pid in processes() if program_of(pid) == "benchmark-server" and namespace_of(pid) == here]


class Watching(Silent):
    """Looks at all command lines, and by ``look`` at keys, when a scenario has ended."""

    def __init__(self, look: Any = lambda: ()) -> None:
        self.look = look
        self.lines = ""
        self.keys: list[Any] = []

    def scenario_ended(self, outcome: Any) -> None:
        self.lines += "\n".join(started_servers())
        self.keys += self.look()


def test_rows_say_what_was_seen_and_keys_are_under_the_prefix_of_the_run_until_its_end(
    plain: Cluster, tmp_path: Path
) -> None:
    revision, keys = plain.revision_and_keys()
    seen, reads = Watching(lambda: keys_below(plain)), {**READ, "target": "etcd2", "prefix": "data/00"}
    result = run(endpoints_file(tmp_path, plain), tmp_path, WRITE, MIXED, reads, progress=seen)
    found = rows(tmp_path)
    assert [row["Error"] for row in found] == ["-"] * 4
    assert [row["TestType"] for row in found] == ["write", "write", "mixed", "read"]
    for row in found:
        assert row["Hosts"] == "external" and row["ClusterSize"] == "3" and row["StoreVersion"].startswith("3.")
        assert row["NetworkProof"].startswith("RTT ") and row["NetworkProof"].endswith(" ms: medians of 20 each")
        assert 0 < float(row["RttMeasured_ms"]) < 100
        assert row["Valid"] != "yes" and "unseen" in row["Reasons"]
        assert row["Leader"] in ("etcd1", "etcd2", "etcd3")
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


def test_tls_and_users_and_the_password_is_nowhere(secured: Secured, tmp_path: Path) -> None:
    seen = Watching()
    result = run(endpoints_file(tmp_path, secured), tmp_path, {**WRITE, "target": "cluster"}, MIXED, progress=seen)
    assert [row["Error"] for row in rows(tmp_path)] == ["-"] * 2
    assert "benchmark-server --listen=unix:" in seen.lines and PASSWORD not in seen.lines
    files = [path for path in result.directory.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert all(PASSWORD.encode() not in path.read_bytes() for path in (*files, tmp_path / "out.csv"))


class Web(http.server.BaseHTTPRequestHandler):
    """Some other service that speaks HTTP."""

    def log_message(self, *args: Any) -> None:
        pass


class Greeter(socketserver.StreamRequestHandler):
    """Some service that speaks first, and no HTTP."""

    def handle(self) -> None:
        self.wfile.write(b"220 mail.example ESMTP\r\n")


@contextmanager
def serving(handler: type[socketserver.BaseRequestHandler]) -> Iterator[int]:
    """A server on loopback; its port."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_what_is_wrong_with_an_endpoint_is_one_line_and_nothing_is_written(
    plain: Cluster, secured: Secured, tmp_path: Path
) -> None:
    revision, _ = plain.revision_and_keys()
    urls = [f"http://127.0.0.1:{port}" for port in plain.ports]
    (nobody,) = free_ports(1)
    with serving(Web) as web, serving(Greeter) as greeting:
        for other, problem in (
            (nobody, "answers nothing: connection refused"),
            (web, "is no etcd: HTTP 501"),
            (greeting, "answers something that is no HTTP: '220 mail.example ESMTP'"),
            (secured.ports[0], 'speaks TLS: its endpoint begins with https://, and "tls" names its CA'),
        ):
            config = endpoints_file(tmp_path, plain, endpoints=[*urls[:2], f"http://127.0.0.1:{other}"])
            lines = refused(config, tmp_path).splitlines()
            assert lines[0] == f"the cluster of {config} cannot be measured:"
            assert len(lines) == 2 and f"http://127.0.0.1:{other} {problem}" in lines[1], lines
    config = endpoints_file(tmp_path, plain, endpoints=[urls[0], urls[0].replace("127.0.0.1", "localhost")])
    assert "two of the endpoints are of the same member" in refused(config, tmp_path)
    secure = [url.replace("http:", "https:") for url in urls[:1]]
    config = endpoints_file(tmp_path, plain, endpoints=secure, tls={"ca": str(secured.folder / "ca.pem")})
    assert refused(config, tmp_path).endswith(
        "does not speak TLS: where it should not, its endpoint begins with http://"
    )
    assert plain.revision_and_keys()[0] == revision


def test_check_says_who_may_and_a_wrong_ca_a_wrong_password_and_no_user_are_told(
    plain: Cluster, secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = told(capsys, "check", endpoints_file(tmp_path, plain))
    assert status == 0 and "users: none" in said and said.count("version 3.") == 3 and said.count("leads") == 1, said
    status, said = told(capsys, "check", endpoints_file(tmp_path, secured))
    assert status == 0 and f"users: on, logged in as {USER}" in said, said

    def of(cluster: Cluster, **more: Any) -> list[str]:
        return refused(endpoints_file(tmp_path, cluster, **more), tmp_path).splitlines()[1:]

    (tmp_path / "other-ca.pem").write_bytes(Authority().certificate)
    (tmp_path / "wrong").write_text("not it\n")
    lines = of(secured, tls={"ca": "other-ca.pem"})
    assert len(lines) == 3 and all("shows a certificate that is refused: " in line for line in lines), lines
    assert of(secured, password_file="wrong") == [
        f"  the cluster refuses the password of {USER}, or there is no such user"
    ]
    assert of(secured, user=None, password_file=None) == ['  the cluster has users: name one with "user"']
    assert of(plain, user="bench", password_file="wrong") == [
        '  the cluster has no users (authentication is not enabled): leave out "user": "bench"'
    ]
    elsewhere = refused(endpoints_file(tmp_path, secured, prefix="elsewhere/"), tmp_path)
    assert "may not read keys under elsewhere/" in elsewhere and "permission denied" in elsewhere


def test_a_prefix_that_holds_keys_is_refused_and_they_stay(plain: Cluster, tmp_path: Path) -> None:
    key = f"{PREFIX}abc123/theirs"
    plain.ask("/v3/kv/put", {"key": text64(key), "value": text64("v")})
    revision, _ = plain.revision_and_keys()
    plan = replace(prepare(endpoints_file(tmp_path, plain), scenarios(tmp_path, WRITE)), run_id="abc123")
    with pytest.raises(RunError, match="1 keys are under containernet-env/abc123/ already"):
        carry_out(RunOrder(plan, tmp_path / "out.csv", consent=True))
    assert keys_below(plain) == [key] and plain.revision_and_keys()[0] == revision
    plain.ask("/v3/kv/deleterange", {"key": text64(key)})


def test_a_cluster_without_a_quorum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_access, "LOOK_TIMEOUT_S", 2.0)
    (tmp_path / "data").mkdir()
    with started(Cluster, tmp_path / "data") as cluster:
        kill(cluster, first=1)
        alone = endpoints_file(tmp_path, cluster, endpoints=[f"http://127.0.0.1:{cluster.ports[0]}"])
        assert refused(alone, tmp_path).splitlines()[1].startswith("  the cluster has no quorum")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_no_server_and_its_keys_to_the_next_one_at_most(
    plain: Cluster, tmp_path: Path, signum: int
) -> None:
    config, before = endpoints_file(tmp_path, plain), started_servers()
    command = [sys.executable, *COMMAND, *run_words(config, tmp_path, LONG)]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(command, text=True, cwd=PROJECT, **pipes)
    eventually(lambda: len(keys_below(plain)) > 100, "keys of the run")
    process.send_signal(signum)
    said, _ = process.communicate(timeout=2 * HANG_S)
    if signum == signal.SIGINT:
        assert process.returncode == 130 and "keys removed" in said, said
    else:
        eventually(lambda: started_servers() == before, "the server ends")
        assert len(keys_below(plain)) > 100
        run(config, tmp_path, {**WRITE, "target": "cluster"})
    assert keys_below(plain) == [] and started_servers() == before


def test_a_sweep_varies_loads(plain: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("sweep", endpoints_file(tmp_path, plain), tmp_path / "out.csv", "--tries", 1, "--set", "clients=1,10")
    _, said = told(capsys, *words, "--scenarios", scenarios(tmp_path, WRITE), "--only", "write-leader*", CONSENT)
    assert {row["ClientCount"] for row in rows(tmp_path)} == {"1", "10"}, said
    assert {row["Hosts"] for row in rows(tmp_path)} == {"external"} and keys_below(plain) == []


def as_user(uid: int) -> list[str]:
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]


def interpreter_for_all(uid: int) -> tuple[str, str] | None:
    """A Python that every user can run, with this clone and what it needs, and its PYTHONPATH."""
    path = f"{PROJECT}{os.pathsep}{Path(click.__file__).resolve().parents[1]}"
    program = "import subprocess, sys, containernet_env.cli; subprocess.run([sys.executable, '-c', ''], check=True)"
    for python in (sys.executable, "/usr/bin/python3"):
        argv = [*as_user(uid), python, "-c", program]
        if not subprocess.run(argv, cwd="/", env={"PYTHONPATH": path}, check=False, capture_output=True).returncode:
            return python, path
    return None


# Where root's cache of programs is, there is none; the user's Go has root's caches beneath what it adds itself. All of
# that ends with the command.
WITHOUT_PROGRAMS = """
set -e
mount -t tmpfs -o mode=755 tmpfs "$MACHINE"
mkdir -p "$HOME/.cache/go-build" "$HOME/go/pkg/mod"
mount --bind -o ro "$MODULES" "$HOME/go/pkg/mod"
mount -t tmpfs tmpfs "$HOME/.cache/go-build"
mkdir "$HOME/.cache/go-build/upper" "$HOME/.cache/go-build/work"
mount -t overlay -o "lowerdir=$BUILT,upperdir=$HOME/.cache/go-build/upper,workdir=$HOME/.cache/go-build/work" \
    overlay "$HOME/.cache/go-build"
chown "$USER_ID:$USER_ID" "$HOME" "$HOME/.cache" "$HOME/.cache/go-build" "$HOME/.cache/go-build/"*
exec "$@"
"""
PREPARED = ["unshare", "--mount", "--propagation=private", "sh", "-c", WITHOUT_PROGRAMS, "sh"]


def test_a_user_without_rights_builds_the_load_measures_and_writes_nowhere_else(plain: Cluster) -> None:
    uid = 100_000 + secrets.randbelow(10**9)  # a user of whom the machine knows nothing else
    if (found := interpreter_for_all(uid)) is None:
        pytest.skip("this clone, or its Python, is not readable to others")
    python, path = found
    asked = [builds.find().path, "env", "GOCACHE", "GOMODCACHE"]
    go_built, modules = subprocess.check_output(asked, text=True, env=builds.environment()).split()
    folder = Path(tempfile.mkdtemp(prefix="cnenv-test-", dir="/var/tmp"))
    home = folder / "home"
    try:
        home.mkdir()
        words = run_words(endpoints_file(folder, plain), folder, WRITE)
        for made in (folder, *folder.iterdir()):
            os.chown(made, uid, uid)
        given = {"HOME": home, "MACHINE": assets.MACHINE, "BUILT": go_built, "MODULES": modules, "USER_ID": uid}
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": path, **{name: str(of) for name, of in given.items()}}
        command = [*PREPARED, *as_user(uid), python, *COMMAND, *words]
        done = subprocess.run(
            command, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=4 * HANG_S
        )
        assert done.returncode == 0 and "built benchmark-client" in done.stdout, done.stdout + done.stderr
        assert [row["Error"] for row in rows(folder)] == ["-"] * 2
        own_cache = home / ".cache" / "containernet-env"
        (folder_of_programs,) = (own_cache / "bin").iterdir()
        assert (folder_of_programs / "benchmark-server").stat().st_uid == uid
        assert list((own_cache / "external").iterdir()) == []
        # As this user, since nothing can be its own where it cannot look.
        look = [*as_user(uid), "find", "/", "/dev/shm", "/run", "-xdev", "-user", str(uid), "-print"]
        seen = subprocess.run(look, cwd="/", check=False, capture_output=True, text=True, timeout=2 * HANG_S).stdout
        own = [line for line in seen.split("\n") if line and not line.startswith("/proc/")]
        assert str(folder / "out.csv") in own and all(Path(line).is_relative_to(folder) for line in own), own
    finally:
        shutil.rmtree(folder)
    assert keys_below(plain) == []


def left(urls: list[str]) -> list[Record]:
    """What is on record of runs on a service."""
    return [record for _, record in records() if list(record.endpoints) == urls]


def test_rows_are_of_a_service_and_no_key_is_left(three: Replicas, tmp_path: Path) -> None:
    def first_key() -> Iterator[int]:
        (record,) = left(three.urls)
        yield three.status(f"{record.prefix}0000")

    seen, reads = Watching(first_key), {**READ, "target": "http2"}
    result = run(service_file(tmp_path, three.urls), tmp_path, WRITE, MIXED, reads, progress=seen)
    found = rows(tmp_path)
    assert [row["Error"] for row in found] == ["-"] * 4
    for row in found:
        assert (row["Store"], row["StoreVersion"], row["Hosts"]) == ("http", "-", "external")
        assert row["NetworkProof"].startswith("RTT ") and float(row["RttMeasured_ms"]) > 0
        assert row["Valid"] != "yes" and "unseen" in row["Reasons"]
    assert seen.keys == [200] * 4
    prefix = f"{PREFIX}{result.run_id.rpartition('-')[2]}/"
    assert {three.status(f"{prefix}{key}") for key in ("0000", "003D", "data/0000", "data/001b")} == {404}
    assert not left(three.urls)


def test_keys_that_stay_are_told(three: Replicas, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = service_file(tmp_path, three.urls, delete=None, keys="stay", success={"put": 201})
    status, said = told(capsys, *run_words(config, tmp_path, {**WRITE, "target": "cluster"}))
    assert "up to 200 keys stay under containernet-env/" in said, (status, said)
    prefix = said.partition("stay under ")[2].partition(",")[0]
    assert {three.status(f"{prefix}{key}") for key in ("0000", "003D")} == {200}
    assert not left(three.urls)
