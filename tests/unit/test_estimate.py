"""How long a scenario will take: what decides it, and that a schedule does where there is one."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from containernet_env.config.planning import SCENARIO_S, Estimator
from containernet_env.config.topologies import load_config
from containernet_env.model.scenario import Scenario, Span, Warmup
from containernet_env.model.topology import network_of
from containernet_env.stores.kinds import KINDS
from tests.unit.fakes import write

CONFIG = load_config(Path(__file__).resolve().parents[2] / "configs" / "3node-3ms.json")
ESTIMATOR = Estimator(network_of(CONFIG), [node.cpus for node in CONFIG.nodes], 2)
WRITE = replace(write("w"), clients=1, conns=1)
READ = replace(WRITE, name="r", type="read", consistency="l", target="cluster")


def mixed(put_ratio: str) -> Scenario:
    return replace(READ, type="mixed", put_ratio=Decimal(put_ratio))


def test_scenarios_take_their_duration_rate_or_requests() -> None:
    for scenario in (WRITE, READ, mixed("0.5")):
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
    config = load_config(CONFIG.path.with_name("wan-50ms.json"))
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
    assert ESTIMATOR.latency_s(mixed("0")) == pytest.approx(read_s)
    assert ESTIMATOR.latency_s(mixed("1")) == pytest.approx(write_s)
    assert ESTIMATOR.latency_s(mixed("0.5")) == pytest.approx((read_s + write_s) / 2)
    # A serializable read of one member is its own RTT.
    local = replace(READ, consistency="s", target="etcd2")
    assert 0.006 < ESTIMATOR.latency_s(local) < 0.007
    # All of them answered by one member: its cpu alone.
    crowd = replace(local, clients=1000, total=1000)
    assert ESTIMATOR.scenario_s(crowd) >= ESTIMATOR.scenario_s(replace(crowd, target="cluster"))
