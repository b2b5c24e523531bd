"""Clusters that somebody else runs: their files, what is refused, what of them is told. Only loopback is connected."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from containernet_env.base import cache
from containernet_env.base.errors import ConfigError, RunError, UsageError
from containernet_env.base.http_answer import NoAnswerError
from containernet_env.cli import run as run_command
from containernet_env.config import load_config
from containernet_env.config.endpoints import parse_endpoint
from containernet_env.hosts import owner
from containernet_env.hosts.tcp_http import TcpConnection
from containernet_env.load.request import request_of
from containernet_env.model.external import Endpoint
from containernet_env.model.keys import Span
from containernet_env.model.outcome import ClientRtt
from containernet_env.model.run_facts import RunFacts
from containernet_env.model.scenario import Scenario
from containernet_env.model.verdict import counts
from containernet_env.plan.export import plan_values
from containernet_env.plan.identity import config_hash
from containernet_env.results.columns import row_of
from containernet_env.runs import external_left
from containernet_env.runs.external_access import login_of, require_consent
from containernet_env.runs.measure import measure
from containernet_env.runs.prepare import prepare, prepare_shell
from containernet_env.stores.etcd.cluster import Member
from containernet_env.stores.etcd.external import LoggedIn
from containernet_env.stores.external import Login, OwnKeys
from containernet_env.stores.protocol import MemberPlace
from containernet_env.sweep.design import design
from tests.unit.test_columns import outcome

OWN = OwnKeys("containernet-env/abc/")
PLAIN = {"endpoints": ["http://10.1.0.1:2379", "http://10.1.0.2:2379", "http://[fd00::3]:2379"]}
SECURED = {
    "endpoints": ["https://etcd-1.example:2379"],
    "store": "etcd",
    "tls": {"ca": "ca.pem"},
    "user": "bench",
    "password_file": "secret",
}
READ = Scenario(
    name="r", type="read", total=500, clients=10, conns=2, key_size=8, val_size=256, key_space=1000, consistency="l"
)


def written(folder: Path, value: Any) -> Path:
    path = folder / "endpoints.json"
    path.write_text(json.dumps(value))
    return path


def test_endpoints_are_members_by_their_order(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, PLAIN))
    assert config.external is not None and config.external.tls is None
    assert [node.name for node in config.nodes] == ["etcd1", "etcd2", "etcd3"]
    assert config.external.endpoints[2] == Endpoint("fd00::3", 2379)
    assert config.external.urls == tuple(PLAIN["endpoints"])
    assert config.external.prefix_of("abc") == "containernet-env/abc/"


def test_files_are_below_the_folder_of_the_file_that_names_them(tmp_path: Path) -> None:
    external = load_config(written(tmp_path, SECURED)).external
    assert external is not None and external.tls is not None
    assert (external.tls.ca, external.password_file) == (tmp_path / "ca.pem", tmp_path / "secret")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"endpoints": []}, "is too short"),
        ({"endpoints": ["10.1.0.1:2379"]}, "do not say whether TLS is spoken"),
        ({"endpoints": ["http://10.1.0.1:2379/v3"]}, "is not an endpoint"),
        ({"endpoints": ["http://user:pass@10.1.0.1:2379"]}, "is not an endpoint"),
        ({"endpoints": ["http://10.1.0.1:70000"]}, "has a port out of range"),
        ({"endpoints": ["http://h..x:1"]}, "is not an endpoint"),
        ({"endpoints": [f"http://{'a' * 64}.x:1"]}, "is not an endpoint"),
        ({"endpoints": [f"http://{'.'.join(['a' * 60] * 5)}:1"]}, "is not an endpoint"),
        ({"endpoints": ["http://a:1", "http://a:1"]}, "repeats the endpoint at $.endpoints[0]"),
        ({"endpoints": ["http://a:1", "https://b:1"], "tls": {"ca": "x"}}, "mix http and https"),
        ({"endpoints": ["https://a:1"]}, "speak TLS, and nobody says by which CA"),
        ({"endpoints": ["http://a:1"], "tls": {"ca": "x"}}, "is for endpoints that speak TLS"),
        ({"endpoints": ["https://a:1"], "tls": {"ca": "x", "cert": "y"}}, "has a cert and no key"),
        ({"endpoints": ["http://a:1"], "password": "x"}, "is not a known key"),
        ({"endpoints": ["http://a:1"], "password_file": "x"}, "is the password of nobody"),
        ({"endpoints": ["http://a:1"], "user": "a:b"}, "is not the name of a user"),
        ({"endpoints": ["http://a:1"], "prefix": "/"}, "is not a prefix of keys"),
        ({"endpoints": ["http://a:1"], "store": "other"}, "is not one of the choices"),
        ({"endpoints": ["http://a:1"], "nodes": []}, "is not a known key"),
        ({"endpoints": ["http://a:1"], "user": "\ud800"}, r'$.user: is no Unicode text; got "\ud800"'),
        ({"endpoints": ["http://a:1"], "prefix": "a\udfff/"}, "$.prefix: is no Unicode text"),
        ({"endpoints": ["http://a:1"], "tls": {"ca": "\udc00"}}, "$.tls.ca: is no Unicode text"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(tmp_path: Path, value: Any, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(written(tmp_path, value))
    assert told in str(raised.value) and "line 1, column " in str(raised.value)
    assert "codec" not in str(raised.value)


def test_a_name_may_have_labels_of_63_characters() -> None:
    host = f"{'a' * 63}.b-c_d.x"
    assert parse_endpoint(f"http://{host}:1") == ("http", Endpoint(host, 1))


@pytest.mark.parametrize("host", ["h..x", f"{'a' * 64}.x"])
def test_a_name_that_no_host_can_have_gives_no_answer(host: str) -> None:
    connection = TcpConnection(host, 1)
    assert not connection.speaks_tls(1.0)
    for ask in (
        lambda: connection.open(1, timeout_s=1.0),
        lambda: connection.rtt_ns(1.0),
        lambda: connection.request_bytes(1, "/", timeout_s=1.0),
    ):
        with pytest.raises(NoAnswerError, match="has a name that no host can have"):
            ask()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["an end", "HTTP"])
def test_what_ends_or_answers_otherwise_speaks_no_tls(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(2):
                with listener.accept()[0] as client:
                    client.recv(1 << 16)  # the greeting, all of it: what is not read resets the connection
                    client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        connection = TcpConnection("127.0.0.1", listener.getsockname()[1], ssl.create_default_context())
        assert not connection.speaks_tls(5.0)
        with pytest.raises(NoAnswerError, match=r"^does not speak TLS$"):
            connection.open(1, timeout_s=5.0)
        thread.join(5.0)


@pytest.mark.parametrize(
    "choices",
    [
        {"engine": "containernet"},
        {"links": "emulator"},
        {"links": "netem", "switches": "bridge"},
        {"congestion_control": "reno"},
        {"fresh": True},
        {"retry_invalid": 1},
        {"profile": ["cpu"]},
    ],
    ids=str,
)
def test_what_needs_hosts_and_links_of_ours_is_refused(tmp_path: Path, choices: Any) -> None:
    with pytest.raises(UsageError, match="somebody else runs this cluster"):
        prepare(written(tmp_path, PLAIN), None, quick=True, **choices)


@pytest.mark.parametrize(
    "words", [["--port", "8080"], ["--strict"], ["--seed", "1"], ["--rtt-tolerance", "1ms"]], ids=lambda words: words[0]
)
def test_options_that_mean_nothing_there_are_refused(tmp_path: Path, words: list[str]) -> None:
    out = tmp_path / "out.csv"
    done = CliRunner().invoke(run_command.command, [str(written(tmp_path, PLAIN)), str(out), "--quick", *words])
    assert done.exit_code == 2 and words[0] in done.output and "somebody else" in done.output
    assert not out.exists()


def test_events_are_refused_where_they_stand(tmp_path: Path) -> None:
    scenarios = tmp_path / "scenarios.json"
    load, data = {"duration": "5s", "clients": 1, "conns": 1}, {"keySize": 8, "valSize": 8}
    block = {"type": "write", "load": load, "data": data, "target": "cluster"}
    scenarios.write_text(json.dumps({"scenarios": [{**block, "events": [{"at": "1s", "kill": "leader"}]}]}))
    with pytest.raises(ConfigError, match=r"cannot be done to .*endpoints.json, which somebody else runs"):
        prepare(written(tmp_path, PLAIN), scenarios)


def test_a_sweep_has_axes_of_loads_alone(tmp_path: Path) -> None:
    config = written(tmp_path, PLAIN)
    made = design(config, ["clients=1,10"], quick=True, only=["read-linearizable-50x1x1"])
    assert [cell.coordinates for cell in made.cells] == [(("clients", "1"),), (("clients", "10"),)]
    for axis in ("link_delay=1ms,3ms", "members=1,3", "cpus=1,2", "heartbeat_interval=100ms", "client.mem=1g,2g"):
        with pytest.raises(ConfigError, match="is of hosts, links or the store, and somebody else runs those"):
            design(config, [axis], quick=True)


def test_without_consent_nothing_is_done(tmp_path: Path) -> None:
    config, out = written(tmp_path, PLAIN), tmp_path / "out.csv"
    with pytest.raises(UsageError) as raised:
        measure(config, None, out, quick=True)
    assert "18 scenarios" in str(raised.value) and "http://10.1.0.2:2379" in str(raised.value)
    assert not out.exists()
    require_consent(prepare(config, None, quick=True), True)


def test_a_plan_has_no_hosts_and_its_record_no_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("very secret\n")
    plan = prepare(written(tmp_path, SECURED), None, quick=True)
    assert (plan.hosts, plan.links, plan.switches, plan.rtt) == ((), (), (), ())
    values = json.dumps(plan_values(plan), default=str)
    assert "very secret" not in values and "etcd-1.example" in values


def test_the_identity_is_of_endpoints_and_not_of_files(tmp_path: Path) -> None:
    def of(**more: Any) -> str:
        return config_hash(prepare(written(tmp_path, {**SECURED, **more}), None, quick=True))

    assert of() == of(prefix="other/") == of(tls={"ca": "other.pem"})
    assert of() != of(endpoints=["https://etcd-2.example:2379"])


def test_the_password_is_of_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    external = load_config(written(tmp_path, SECURED)).external
    assert external is not None
    with pytest.raises(UsageError, match=r"password file .*secret cannot be read"):
        login_of(external)
    (tmp_path / "secret").write_text("a b\nc\n")
    login = login_of(external)
    assert login is not None and login.password == "a b" and "a b" not in repr(login)
    monkeypatch.delenv("BENCHMARK_PASSWORD", raising=False)
    with pytest.raises(UsageError, match="bench has no password"):
        login_of(replace(external, password_file=None))


def test_every_key_of_a_request_is_under_the_prefix() -> None:
    ends = {"etcd1": "10.1.0.1:2379"}

    def body(scenario: Scenario) -> dict[str, Any]:
        return request_of(scenario, ends, 60.0, prefix="p/7/")[1]

    assert body(READ)["keyPrefix"] == "p/7/"
    assert body(replace(READ, key_prefix="data/"))["keyPrefix"] == "p/7/data/"
    by_prefix = body(replace(READ, span=Span(prefix="00"), verify=False))
    assert (by_prefix["key"], by_prefix["prefix"]) == ("p/7/00", True)
    between = body(replace(READ, span=Span(start="0010", end="0020"), verify=False))
    assert (between["key"], between["endRange"]) == ("p/7/0010", "p/7/0020")
    assert "keyPrefix" not in request_of(READ, ends, 60.0)[1]


def test_a_row_has_what_was_measured_and_nothing_of_hosts_and_links(tmp_path: Path) -> None:
    facts = RunFacts(load_config(written(tmp_path, PLAIN)), "run-1", hosts="external")
    rtts = {"etcd1": ClientRtt(201_000, 20), "etcd2": ClientRtt(1_312_400, 20), "etcd3": ClientRtt(300_000, 18)}
    row = row_of(facts, outcome(READ, None, error="x", client_rtts=rtts))
    assert row["Hosts"] == "external" and row["ClusterSize"] == "3"
    assert row["NetworkProof"] == "RTT 0.201;1.312;0.300 ms: medians of 18 each" and row["RttMeasured_ms"] == "1.312"
    unknown = ("LinkDelay_ms", "Bandwidth_mbps", "LinkJitter_ms", "LinkLoss_ratio", "Cpus", "Memory_bytes", "Links")
    assert {row[name] for name in (*unknown, "ClientLink", "ClientCpus", "Data", "RttExpected_ms")} == {"-"}


def test_figures_count_where_nothing_was_seen_to_be_wrong() -> None:
    assert counts("yes", None) and counts("unknown", "unseen")
    assert not counts("no", "generator_waited;unseen") and not counts("unknown", "unseen;few_answers")
    assert not counts("unknown", "usage") and not counts("-", "-")


def test_there_is_nothing_to_bring_up(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to bring up"):
        prepare_shell(written(tmp_path, PLAIN))


class _Says:
    """A connection on which every question has the same answer."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def request_json(self, *_: Any, **__: Any) -> Any:
        return self._answer


@pytest.mark.parametrize("answer", [{}, [], None, {"header": {}}, {"header": {"member_id": "1"}, "raftTerm": "x"}])
def test_what_is_no_member_of_etcd_is_an_error_and_no_traceback(answer: Any) -> None:
    host = SimpleNamespace(name="etcd1")
    member = Member(MemberPlace(host, "10.0.0.1", _Says(answer)))  # type: ignore[arg-type]
    with pytest.raises(RunError, match="is it a member of etcd"):
        member.status()
    with pytest.raises(RunError, match="without a token"):
        LoggedIn(_Says(answer), Login("bench", "secret")).log_in()  # type: ignore[arg-type]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the folders of runs on clusters of others are, in a cache of the test's own."""
    monkeypatch.setattr(cache, "own", lambda: tmp_path / "cache")
    return external_left.home()


def killed_at(call: str, act: Callable[[], object]) -> None:
    """Have a process do something that is killed where it would make a call of ``Path`` or ``shutil``."""

    def killed(*of: object, **more: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        setattr(shutil if call == "rmtree" else Path, call, killed)
        try:
            act()
        finally:
            os._exit(1)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("call", ["write_text", "rename"])
def test_a_run_that_is_killed_while_it_makes_its_folder_leaves_none(tmp_path: Path, home: Path, call: str) -> None:
    config = load_config(written(tmp_path, PLAIN))
    killed_at(call, lambda: external_left.begin(config, "abc", "cluster-1", OWN))
    assert len(list(home.iterdir())) == 1 and not list(external_left.records())
    external_left.clean_up(config, "cluster-1", pytest.fail, pytest.fail)
    assert list(home.iterdir()) == []


def test_a_run_that_is_killed_while_it_removes_its_folder_leaves_none(tmp_path: Path, home: Path) -> None:
    config = load_config(written(tmp_path, PLAIN))
    folder = external_left.begin(config, "abc", "cluster-1", OWN)
    assert [path for path, _ in external_left.records()] == [folder] == list(home.iterdir())
    killed_at("rmtree", lambda: external_left.end(folder))
    assert len(list(home.iterdir())) == 1 and not list(external_left.records())
    external_left.clean_up(config, "cluster-1", pytest.fail, pytest.fail)
    assert list(home.iterdir()) == []
    external_left.end(folder)


def test_what_another_process_makes_or_the_user_keeps_there_stays(tmp_path: Path, home: Path) -> None:
    home.mkdir(parents=True)
    kept = [home / f".abc.{owner.current().replace('/', '_')}", home / ".abc.mine", home / "mine"]
    for path in kept:
        path.mkdir()
    external_left.clean_up(load_config(written(tmp_path, PLAIN)), "cluster-1", pytest.fail, pytest.fail)
    assert sorted(home.iterdir()) == sorted(kept)
