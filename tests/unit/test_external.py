"""External clusters: their files, which choices they refuse, and what of them is recorded. Nothing is connected."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from containernet_env.base.errors import ConfigError, RunError, UsageError
from containernet_env.base.http import HttpError, NoAnswerError
from containernet_env.cli.run import run_command
from containernet_env.config.endpoints import parse_endpoint
from containernet_env.config.plan import Plan, config_hash, plan_values
from containernet_env.config.planning import keys_of
from containernet_env.config.topologies import load_config
from containernet_env.hosts.http import TcpConnection
from containernet_env.model.config import Endpoint
from containernet_env.model.findings import counts
from containernet_env.model.outcome import ClientRtt
from containernet_env.model.scenario import Keys, Scenario, Span
from containernet_env.model.usage import Leadership
from containernet_env.results.columns import RunFacts, row_of
from containernet_env.runs.external_access import login_of, require_consent
from containernet_env.runs.load import request_of
from containernet_env.runs.measure import measure
from containernet_env.runs.prepare import prepare, prepare_shell
from containernet_env.runs.sweep.design import design
from containernet_env.stores.cluster import MemberPlace, MemberStatus
from containernet_env.stores.etcd import EtcdMember, LoggedIn
from containernet_env.stores.external import ClusterLook, Login, MemberLook, OwnKeys
from containernet_env.stores.kinds import store_of
from tests.unit.blocks import write, writes
from tests.unit.fake_servers import PREFIX, SERVICE, STAY, config_of, endpoints_file
from tests.unit.manifests import plan_of
from tests.unit.test_columns import outcome

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


written = partial(write, name="endpoints.json")


def test_endpoints_are_members_by_their_order(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, PLAIN))
    assert config.external is not None and config.external.tls is None
    assert [node.name for node in config.nodes] == ["etcd1", "etcd2", "etcd3"]
    assert config.external.endpoints[2] == Endpoint("fd00::3", 2379)
    assert config.external.urls == tuple(PLAIN["endpoints"])
    assert config.external.prefix_of("abc") == "containernet-env/abc/"

    secured = load_config(written(tmp_path, SECURED)).external
    assert secured is not None and secured.tls is not None, "files are below the folder of the file that names them"
    assert (secured.tls.ca, secured.password_file) == (tmp_path / "ca.pem", tmp_path / "secret")
    longest = f"{'a' * 63}.b-c_d.x"
    assert parse_endpoint(f"http://{longest}:1") == ("http", Endpoint(longest, 1))


def test_a_name_that_no_host_can_have_gives_no_answer() -> None:
    for connection in (TcpConnection("h..x", 1), TcpConnection(f"{'a' * 64}.x", 1)):
        assert not connection.speaks_tls(60.0)
        asks: list[tuple[Callable[..., object], tuple[Any, ...]]] = [
            (connection.open, (1,)), (connection.rtt_ns, ()), (connection.request_bytes, (1, "/")),
        ]  # fmt: skip
        for ask, words in asks:
            with pytest.raises(NoAnswerError, match="has a name that no host can have"):
                ask(*words, timeout_s=60.0)


def test_requests_name_an_ipv6_address_in_brackets() -> None:
    for host, named in (("fd00::3", "[fd00::3]"), ("::ffff:a00:1", "[::ffff:a00:1]"), ("10.0.0.1", "10.0.0.1")):
        assert TcpConnection(host, 2379).authority == named


def test_options_of_hosts_and_links_of_ours_are_refused(tmp_path: Path) -> None:
    config, out = written(tmp_path, PLAIN), tmp_path / "out.csv"
    for words in (
        "--engine containernet", "--links emulator", "--links netem --switches bridge", "--congestion-control reno",
        "--fresh", "--retry-invalid 1", "--profile cpu", "--strict", "--seed 1", "--rtt-tolerance 1ms",
    ):  # fmt: skip
        done = CliRunner().invoke(run_command, [str(config), str(out), "--quick", *words.split()])
        assert done.exit_code and "external cluster" in f"{done.output} {done.exception}" and not out.exists(), words


def test_what_is_done_to_hosts_and_links_of_ours_is_refused_and_all_without_consent(tmp_path: Path) -> None:
    config, out = written(tmp_path, PLAIN), tmp_path / "out.csv"
    scenarios = write(tmp_path, {"scenarios": [writes(events=[{"at": "1s", "kill": "leader"}])]})
    with pytest.raises(ConfigError, match=r"cannot be done to the external cluster of .*endpoints.json"):
        prepare(config, scenarios)
    with pytest.raises(UsageError, match="nothing to bring up"):
        prepare_shell(config)
    made = design(config, ["clients=1,10"], quick=True, only=["read-linearizable-50x1x1"])
    assert [cell.coordinates for cell in made.cells] == [(("clients", "1"),), (("clients", "10"),)]
    for axis in ("link_delay=1ms,3ms", "members=1,3", "cpus=1,2", "heartbeat_interval=100ms", "client.mem=1g,2g"):
        with pytest.raises(ConfigError, match="is of hosts, links or the store, which are not configurable"):
            design(config, [axis], quick=True)
    with pytest.raises(UsageError, match=r"(?s)18 scenarios.*http://10\.1\.0\.2:2379"):
        measure(config, None, out, quick=True)
    assert not out.exists()
    require_consent(prepare(config, None, quick=True), True)


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

    plan = prepare(written(tmp_path, SECURED), None, quick=True)
    assert (plan.hosts, plan.links, plan.switches, plan.rtt) == ((), (), (), ())
    values = json.dumps(plan_values(plan), default=str)
    assert "a b" not in values and "etcd-1.example" in values

    def of(**more: Any) -> str:
        return config_hash(prepare(written(tmp_path, {**SECURED, **more}), None, quick=True))

    # The identity is of endpoints and not of files.
    assert config_hash(plan) == of(prefix="other/") == of(tls={"ca": "other.pem"})
    assert config_hash(plan) != of(endpoints=["https://etcd-2.example:2379"])


def test_every_key_of_a_request_is_under_the_prefix_or_a_znode_of_the_run(tmp_path: Path) -> None:
    def body(scenario: Scenario, **more: Any) -> dict[str, Any]:
        return request_of(scenario, {"etcd1": "10.1.0.1:2379"}, 60.0, **more or {"prefix": "p/7/"})[1]

    assert body(READ)["keyPrefix"] == "p/7/"
    assert body(replace(READ, key_prefix="data/"))["keyPrefix"] == "p/7/data/"
    by_prefix = body(replace(READ, span=Span(prefix="00"), verify=False))
    assert (by_prefix["key"], by_prefix["prefix"]) == ("p/7/00", True)
    between = body(replace(READ, span=Span(start="0010", end="0020"), verify=False))
    assert (between["key"], between["endRange"]) == ("p/7/0010", "p/7/0020")
    assert "keyPrefix" not in body(READ, prefix="")
    config = config_of(tmp_path, "zookeeper", ["10.1.0.1:2181", "[fd00::2]:2181"])
    assert config.external is not None and config.external.urls == ("10.1.0.1:2181", "[fd00::2]:2181")
    terms, prefix = store_of(config).place(PREFIX)
    of_znode = body(READ, terms=terms, prefix=prefix)
    assert (of_znode["store"], of_znode["chroot"]) == ("zookeeper", "/containernet-env/abc")
    assert "keyPrefix" not in of_znode
    terms, prefix = store_of(config_of(tmp_path, "consul", ["http://10.1.0.1:8500"])).place(PREFIX)
    of_keys = body(READ, terms=terms, prefix=prefix)
    assert (of_keys["store"], of_keys["keyPrefix"]) == ("consul", PREFIX)


def test_a_row_has_what_was_measured_and_nothing_of_hosts_and_links(tmp_path: Path) -> None:
    facts = RunFacts("run-1", plan_of(written(tmp_path, PLAIN), only=()), hosts="external")
    rtts = {"etcd1": ClientRtt(201_000, 20), "etcd2": ClientRtt(1_312_400, 20), "etcd3": ClientRtt(300_000, 18)}
    row = row_of(facts, outcome(READ, None, error="x", client_rtts=rtts))
    assert row["Hosts"] == "external" and row["ClusterSize"] == "3"
    assert row["NetworkProof"] == "RTT 0.201;1.312;0.300 ms: medians of 18 each" and row["RttMeasured_ms"] == "1.312"
    unknown = ("LinkDelay_ms", "Bandwidth_mbps", "LinkJitter_ms", "LinkLoss_ratio", "Cpus", "Memory_bytes", "Links")
    assert {row[name] for name in (*unknown, "ClientLink", "ClientCpus", "Data", "RttExpected_ms")} == {"-"}
    # Its figures count where nothing was seen to be wrong.
    assert counts("yes", None) and counts("unknown", "unseen")
    assert not counts("no", "generator_waited;unseen") and not counts("unknown", "unseen;few_answers")
    assert not counts("unknown", "usage") and not counts("-", "-")


def test_what_is_no_member_of_etcd_or_a_learner_is_an_error_and_no_traceback(tmp_path: Path) -> None:
    host, answers = SimpleNamespace(name="etcd1"), ({}, [], None, {"header": {}})
    for answer in (*answers, {"header": {"member_id": "1"}, "raftTerm": "x"}):
        connection: Any = SimpleNamespace(request_json=lambda *_, answer=answer, **__: answer, host="", authority="")
        with pytest.raises(RunError, match="is it a member of etcd"):
            EtcdMember(MemberPlace(host, "10.0.0.1", connection)).status()
        with pytest.raises(RunError, match="without a token"):
            LoggedIn(connection, Login("bench", "secret")).log_in()
    config, header = config_of(tmp_path, "etcd", ["http://10.0.0.9:2379"]), {"cluster_id": "1", "member_id": "2"}
    learner = {"etcdserver": "3.6.8", "header": header, "leader": "1", "version": "3.6.8", "isLearner": True}
    for refused in (False, True):  # a learner that has users refuses the query of its status

        def request_json(port: int, method: str, path: str, *_: Any, refused: bool = refused, **__: Any) -> Any:
            if refused and path != "/version":
                raise HttpError(400, None, "etcdserver: rpc not supported for learner")
            return learner

        connection = SimpleNamespace(request_json=request_json)
        (problem,) = store_of(config).external(config, [connection], None, OwnKeys("p/")).look(1.0).problems
        assert problem.startswith("http://10.0.0.9:2379 is a learner, which takes no writes and no linearizable reads")


def test_the_newest_term_names_the_leader_also_one_that_answered_before_it() -> None:
    for leader, led in (("1", Leadership("etcd1", 5)), ("9", None)):
        statuses = MemberStatus("1", "9", 4, "3.6"), MemberStatus("2", leader, 5, "3.6")
        looks = (MemberLook(f"etcd{status.member_id}", "http://10.0.0.1:2379", status=status) for status in statuses)
        assert ClusterLook((*looks,)).led() == led


DATASET = {"keyPrefix": "data/", "keySize": 4, "valSize": 64, "keys": 100}
LOAD = {"total": 300, "clients": 2, "conns": 1, "warmup": 50}
PUTS = {"type": "write", "load": LOAD, "data": {"keySize": 4, "valSize": 64}, "target": "leader"}
GETS = {"type": "read", "load": LOAD, "consistency": "l", "target": "http1"}


def service_plan(folder: Path, *blocks: Any, store: Any = SERVICE, **more: Any) -> Plan:
    scenarios = write(folder, {"dataset": DATASET, "scenarios": blocks})
    return prepare(endpoints_file(folder, store, ["http://10.0.0.1:8080"], **more), scenarios)


def test_the_keys_of_a_run_are_those_of_its_loads(tmp_path: Path) -> None:
    again = {**PUTS, "load": {**LOAD, "total": 100}, "target": "cluster"}
    plan = service_plan(tmp_path, PUTS, again, GETS, prefix="p/")
    prefix = f"p/{plan.run_id}/"
    assert keys_of(plan) == (Keys(4, 350, prefix), Keys(4, 100, f"{prefix}data/"))
    endless = {**PUTS, "load": {"duration": "1s", "clients": 1, "conns": 1}}
    staying = keys_of(service_plan(tmp_path, endless, store=STAY))
    assert sum(keys.count for keys in staying) == 10_000_000, "where keys stay there may be as many as one likes"


def test_requests_have_the_templates_and_no_member_leads(tmp_path: Path) -> None:
    plan = service_plan(tmp_path, PUTS, GETS)
    write, read = (
        request_of(item.scheduled.scenario, {"http1": "10.0.0.1:8080"}, 60.0, terms=plan.store.load_terms)[1]
        for item in plan.scenarios
    )
    of_put = ("store", "putPath", "putCodes", "targetMember")
    assert [write[key] for key in of_put] == ["http", SERVICE["put"], "200,201,204", "10.0.0.1:8080"]
    assert "targetLeader" not in write and "getPath" not in write
    assert [read[key] for key in ("getPath", "getCodes", "absentCodes")] == [SERVICE["get"], "200", "404"]
    one = config_hash(service_plan(tmp_path, PUTS))
    assert one == config_hash(service_plan(tmp_path, PUTS, prefix="p/"))
    assert one != config_hash(service_plan(tmp_path, PUTS, store={**SERVICE, "put": "/v0/entity?id={key}&ack=3"}))
