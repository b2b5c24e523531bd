"""The snapshot pins the whole plan of the main config: a change in it is a change in what runs do.

After a change that is meant: pytest tests/unit/test_plan.py --snapshot-update, and read the difference.
"""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from containernet_env.config.plan import PlanOptions, plan_values
from containernet_env.config.planning import SCENARIO_S, Estimator, build_plan
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, QUICK_SCENARIOS, load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.model.config import EtcdSettings
from containernet_env.model.link import LinkSpec
from containernet_env.model.scenario import Scenario, Span, Warmup
from containernet_env.model.topology import network_of
from containernet_env.stores.kinds import KINDS
from tests.input.valid import RICH_TOPOLOGY
from tests.unit import fakes
from tests.unit.blocks import mixed, reads, write

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = PlanOptions(machine_cores=2)


def config_of(name="3node-3ms"):
    return load_config(ROOT / "configs" / f"{name}.json")


def plan_of(config, options=OPTIONS, scenarios=DEFAULT_SCENARIOS):
    return build_plan(config, load_scenarios(scenarios), options)


def with_delay(config, delay_ns):
    link = LinkSpec.symmetric(delay_ns)
    return replace(config, nodes=tuple(replace(node, link=link) for node in config.nodes))


def with_etcd(config, **settings):
    return replace(config, etcd=EtcdSettings(**settings))


def exported(plan):
    """The plan as `--json` has it, the same on every machine."""
    values = json.loads(json.dumps(plan_values(plan)))
    for part in (values["config"], values["scenario_file"] or {}):
        # A comment in a file is no change of plan.
        assert len(part.pop("sha256", "0" * 64)) == 64
        if "path" in part:
            part["path"] = Path(part["path"]).name
    return values


def test_the_plan_of_the_main_config(snapshot):
    assert exported(plan_of(config_of())) == snapshot


def test_the_plan_of_a_topology_with_every_key(tmp_path, snapshot):
    assert exported(build_plan(load_config(write(tmp_path, RICH_TOPOLOGY)), None, OPTIONS)) == snapshot


def test_memory_tcp_and_tmpfs_are_as_configured():
    nodes = tuple(replace(node, memory_bytes=100_000_001) for node in config_of().nodes)
    config = replace(with_etcd(config_of(), data="tmpfs"), nodes=nodes)
    plan = plan_of(config, replace(OPTIONS, congestion_control="bbr", run_id="abc123"))
    assert plan.hosts[0].memory_bytes == 100_000_001 // 4096 * 4096, "whole pages"
    assert {host.tcp_congestion_control for host in plan.hosts} == {"bbr"}
    assert [bool(host.tmpfs) for host in plan.hosts] == [True, True, True, False]
    assert "--initial-cluster-token=containernet-env-abc123" in plan.hosts[0].command
    assert any("tmpfs" in note for note in plan.notes)


TIMING = ("heartbeat_ms", "election_ms", "heartbeat_from", "election_from")
DEFAULT, ALONE = (100, 1000, "default", "default"), with_delay(config_of("1node"), 10**9)


def test_raft_timing_follows_the_largest_rtt_and_the_config():
    for config, timing in (
        *((with_delay(config_of(), delay_ms * 10**6), DEFAULT) for delay_ms in (0, 3, 25)),
        (with_delay(config_of(), 26 * 10**6), (104, 1040, "rtt", "rtt")),
        (with_delay(config_of(), 50 * 10**6), (200, 2000, "rtt", "rtt")),
        (with_delay(config_of(), 2 * 10**9), (8000, 50_000, "rtt", "rtt")),
        (with_delay(config_of(), 10 * 10**9), (10_000, 50_000, "rtt", "rtt")),
        (config_of("wan-50ms"), (201, 2010, "rtt", "rtt")),  # part of a millisecond counts
        (ALONE, DEFAULT),
        (with_etcd(ALONE, heartbeat_ms=10, election_ms=100), (10, 100, "config", "config")),
        (with_etcd(config_of(), heartbeat_ms=300), (300, 3000, "config", "heartbeat")),
    ):
        plan = plan_of(config)
        assert tuple(plan.timing.values[name] for name in TIMING) == timing
        assert (plan.largest_member_rtt is None) == (len(config.nodes) == 1)


def with_link(config, link):
    return replace(config, nodes=(replace(config.nodes[0], link=link), *config.nodes[1:]))


MANY_CORES = {"machine_cores": 64}
LONG_QUEUE = LinkSpec.symmetric(0, 10**9, 200_000)
FEW_CORES = "this machine has 2 cores"
BELOW_RTT = "election timeout of 10 ms is below the largest expected RTT between members"
SHORT_QUEUES = "queues of etcd1-s1, etcd2-s1, etcd3-s1 hold 100,000 frames, less than the bandwidth-delay product"


def test_notes_are_said_once_and_only_where_they_help():
    for name, change, options, notes in (
        ("1node", None, {}, []),
        ("2node-seed", None, {}, [f"{FEW_CORES}: the cpu limit of etcd1, etcd2 is applied but cannot bind"]),
        ("3node", None, {}, [f"{FEW_CORES}, the cpu limits add up to 3: the hosts compete for cpu"]),
        ("3node", None, {"machine_cores": 8}, []),
        ("3node-3ms", (10, 100), MANY_CORES, ["heartbeat of 10 ms is below", "of 100 ms is below 10 times"]),
        ("3node-3ms", (2, 10), MANY_CORES, ["heartbeat of 2 ms is below", BELOW_RTT]),
        ("3node-3ms", (20, 100), MANY_CORES, ["election timeout of 100 ms is below 10 times"]),
        ("1node", LONG_QUEUE, {}, ["781 MiB of full frames"]),
        ("1node", LONG_QUEUE, {"links": "netem"}, []),
        ("3node", LinkSpec.symmetric(10**9, 10**9), MANY_CORES, ["1494 MiB of full frames", SHORT_QUEUES]),
    ):
        config = config_of(name)
        if isinstance(change, LinkSpec):
            config = with_link(config, change)
        elif change is not None:
            config = with_etcd(config, heartbeat_ms=change[0], election_ms=change[1])
        found = plan_of(config, replace(OPTIONS, **options)).notes
        assert len(found) == len(notes) and all(words in note for words, note in zip(notes, found, strict=True)), found


def test_request_timeouts_below_what_the_links_take_are_noted():
    """From the client, whose link has no delay, and between members: 2 + 4 times the delay."""
    for delay_ms, noted in ((3000, 0), (4000, 1)):
        notes = plan_of(with_delay(config_of(), delay_ms * 10**6)).notes
        words = "end after 20s, before any can be answered: the links alone take 24"
        assert sum(words in note for note in notes) == noted == sum("before any can" in note for note in notes)


def test_reads_load_the_data_set_where_no_write_or_mixed_load_made_it(tmp_path):
    def loads(scenarios=DEFAULT_SCENARIOS, **options):
        plan = plan_of(config_of(), replace(OPTIONS, **options), scenarios)
        return [planned.loads_dataset for planned in plan.scenarios]

    assert loads() == [False] * 18
    assert loads(only=("read",)) == [True] + [False] * 5
    assert loads(only=("write-leader-1000x1x1-8B-256B", "read-l*-1000x1x1")) == [False, True]
    assert loads(only=("read-l*-1000x1x1",), repeat=2) == [True, False]
    mine = write(tmp_path, {"scenarios": [mixed(ratio=[0.1, 0.5]), reads()]})
    assert loads(mine) == [True, False, False]


def test_a_new_cluster_for_each_repetition_is_counted():
    def of(**options):
        plan = plan_of(config_of(), replace(OPTIONS, only=("read-serializable-*",), **options), QUICK_SCENARIOS)
        return plan, plan.cluster_ends, [n for n, planned in enumerate(plan.scenarios) if planned.loads_dataset]

    shared, ends, loads = of(repeat=3)
    each = len(shared.scenarios) // 3
    assert (ends, loads) == ((3 * each,), [0])
    fresh, ends, loads = of(repeat=3, fresh=True)
    # New data: the data set is loaded for each, before its first read.
    assert (ends, loads) == ((each, 2 * each, 3 * each), [0, each, 2 * each]) and plan_values(fresh)["clusters"] == 3
    once, ends, _ = of(fresh=True)
    assert ends == (each,) and fresh.estimated_s == pytest.approx(3 * once.estimated_s)


def test_the_estimate_knows_the_leader():
    config = config_of()
    far_away = replace(config.nodes[2], link=LinkSpec.symmetric(100 * 10**6))
    config = replace(config, nodes=(*config.nodes[:2], far_away))
    near, far = (
        plan_of(replace(config, etcd=EtcdSettings(leader=name)), replace(OPTIONS, only=("write-leader-1000x1x1-*",)))
        for name in ("etcd1", "etcd3")
    )
    # 6 and 12 ms against 200 and 206 ms.
    assert far.estimated_s > 10 * near.estimated_s
    assert plan_values(near)["etcd"]["leader"] == "etcd1"


# --- how long a scenario will take ------------------------------------------------------------------------------------

CONFIG = config_of()
ESTIMATOR = Estimator(network_of(CONFIG), [node.cpus for node in CONFIG.nodes], 2)
WRITE = replace(fakes.write("w"), clients=1, conns=1)
READ = replace(WRITE, name="r", type="read", consistency="l", target="cluster")


def mix_of(put_ratio: str) -> Scenario:
    return replace(READ, type="mixed", put_ratio=Decimal(put_ratio))


def test_scenarios_take_their_duration_rate_or_requests() -> None:
    for scenario in (WRITE, READ, mix_of("0.5")):
        timed = replace(scenario, total=None, duration_ns=10 * 10**9, warmup=Warmup(length_ns=2 * 10**9))
        assert ESTIMATOR.scenario_s(timed) == SCENARIO_S + 12
        assert ESTIMATOR.scenario_s(replace(timed, rate=Decimal(500))) == SCENARIO_S + 12
    # A rate takes its time unless the cluster takes longer.
    slow = replace(WRITE, rate=Decimal(10), clients=100, warmup=Warmup(requests=50))
    assert ESTIMATOR.scenario_s(slow) == SCENARIO_S + 100 + 5
    assert ESTIMATOR.scenario_s(replace(WRITE, rate=Decimal(100_000))) == ESTIMATOR.scenario_s(WRITE)
    # A warm-up of a closed loop takes as long as its requests, a transaction as long as a write.
    measured_s = ESTIMATOR.scenario_s(WRITE) - SCENARIO_S
    warm = replace(WRITE, warmup=Warmup(requests=500))
    assert ESTIMATOR.scenario_s(warm) == pytest.approx(SCENARIO_S + 1.5 * measured_s)
    txn = replace(READ, type="txn", consistency=None)
    assert ESTIMATOR.scenario_s(txn) == ESTIMATOR.scenario_s(replace(WRITE, target="cluster"))


def least_s(scenario: Scenario, kind: str = "etcd") -> float:
    return ESTIMATOR.least_latency_s(scenario, KINDS[kind].default())


def test_a_default_read_takes_the_way_to_the_leader_and_no_quorum() -> None:
    # Links of 3 ms each side: 6 ms to the client, and 12 ms between two members for two of three pairs.
    default = replace(READ, consistency="default")
    for target, own_s in (("leader", 0.006), ("cluster", 0.006), ("etcd1", 0.006)):
        assert least_s(replace(default, target=target)) == pytest.approx(own_s, abs=1e-4)
        assert least_s(replace(READ, target=target)) == pytest.approx(own_s + 0.012, abs=1e-4)
        # Of other stores some requests need no majority, so the way of the client alone is certain.
        for kind in ("replicas", "zookeeper", "consul"):
            assert least_s(replace(READ, target=target), kind) == pytest.approx(own_s, abs=1e-4)
        spared_s = ESTIMATOR.latency_s(replace(READ, target=target))
        spared_s -= ESTIMATOR.latency_s(replace(default, target=target))
        assert spared_s == pytest.approx(0.012, abs=1e-4)
    serializable_s = ESTIMATOR.latency_s(replace(READ, consistency="s"))
    assert ESTIMATOR.latency_s(default) - serializable_s == pytest.approx(0.012 * 2 / 3, abs=1e-4)


def test_answers_of_many_keys_take_their_time_on_the_links() -> None:
    config = config_of("wan-50ms")
    estimator = Estimator(network_of(config), [node.cpus for node in config.nodes], 2)
    read = replace(READ, total=10_000, clients=1000, val_size=10_000)
    of_100 = replace(read, span=Span(keys=100))
    # 1 MB each, shared by three links of 100 Mbit/s.
    assert estimator.scenario_s(of_100) == pytest.approx(10_000 * 1e6 * 8 / 3e8, rel=0.05)
    limited = estimator.scenario_s(replace(of_100, span=Span(keys=100, limit=10)))
    assert estimator.scenario_s(of_100) > 5 * limited > 10 * estimator.scenario_s(read)
    # 2.8 us for each key, on two cores, without a link that decides.
    many = replace(of_100, val_size=1, span=Span(keys=1000))
    added_s = ESTIMATOR.scenario_s(many) - ESTIMATOR.scenario_s(replace(many, span=Span(keys=1)))
    assert added_s == pytest.approx(10_000 * 999 * 2.8e-6 / 2)
    for small in (Span(keys=100, answer="keys"), Span(keys=100, answer="count")):
        assert estimator.scenario_s(replace(of_100, span=small)) < limited


def test_a_mixed_load_lies_between_reads_and_writes_and_a_local_read_takes_an_rtt() -> None:
    read_s, write_s = ESTIMATOR.latency_s(READ), ESTIMATOR.latency_s(replace(WRITE, target="cluster"))
    assert ESTIMATOR.latency_s(mix_of("0")) == pytest.approx(read_s)
    assert ESTIMATOR.latency_s(mix_of("1")) == pytest.approx(write_s)
    assert ESTIMATOR.latency_s(mix_of("0.5")) == pytest.approx((read_s + write_s) / 2)
    # A serializable read of one member is its own RTT.
    local = replace(READ, consistency="s", target="etcd2")
    assert 0.006 < ESTIMATOR.latency_s(local) < 0.007
    # All of them answered by one member: its cpu alone.
    crowd = replace(local, clients=1000, total=1000)
    assert ESTIMATOR.scenario_s(crowd) >= ESTIMATOR.scenario_s(replace(crowd, target="cluster"))
