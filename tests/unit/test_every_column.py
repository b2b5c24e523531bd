"""Every column of one outcome whose figures all differ, so that no two derivations can be swapped unseen."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from syrupy.assertion import SnapshotAssertion

from containernet_env.config import load_config
from containernet_env.model.config import EtcdSettings
from containernet_env.model.disruption import Carried, Disruption, Disruptions
from containernet_env.model.findings import Finding
from containernet_env.model.link_statistics import LinkStatistics
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.proof import Check, NetworkProof
from containernet_env.model.run_facts import RunFacts
from containernet_env.model.scenario import Scenario, ScheduledScenario
from containernet_env.model.search import Objective, Probe, Search, SearchResult
from containernet_env.model.topology import RttExpectation
from containernet_env.model.usage import Consumers, Consumption, Usage
from containernet_env.results.columns import COLUMNS, row_of
from tests.unit.answers import open_loop

CONFIG = load_config(Path(__file__).resolve().parents[2] / "configs" / "3node-3ms.json")
PERCENTILES = ("10", "25", "50", "75", "90", "95", "99", "99.9")
SEARCH = Search((Objective("95", 5_000_000), Objective("99", 50_000_000)), Decimal(10), Decimal(1000))
PROBE = Probe(1, "repeat", Decimal("251.5"), 6.5, 7, "held", "", (0.004, 0.04))
SEED_SET = {p: index / 100 for index, p in enumerate(PERCENTILES, 11)}


def test_every_column_holds_its_own_figure(snapshot: SnapshotAssertion) -> None:
    response, service = ({p: index / 100 for index, p in enumerate(PERCENTILES, first)} for first in (21, 31))
    made = open_loop(
        requests=2000,
        ok=1900,
        failed=60,
        done=1960,
        outcomes={"ok": 1900, "failed": 50, "unknown": 10, "unsent": 40},
        total_s=7.5,
        drain_s=0.4375,
        busy_ratio=0.0625,
        pauses=6,
        paused_s=0.375,
        run_delay_s=0.3125,
        mean_run_delay_s=0.0001,
        slowest_s=0.9,
        fastest_s=0.1,
        average_s=0.2,
        stddev_s=0.05,
        requests_per_s=253.25,
        percentiles_s=SEED_SET,
        response_time__percentiles_s=response | {"99.99": None},
        service_time__percentiles_s=service | {"99.99": None},
        rate_achieved_per_s=261.5,
        schedule__fell_behind=True,
        schedule__unsent=40,
        schedule__generator_late=3,
        schedule__late=5,
    )
    scenario = Scenario(
        name="m",
        type="mixed",
        total=2000,
        rate=Decimal("267.25"),
        clients=12,
        conns=7,
        key_size=9,
        val_size=250,
        key_space=100,
        consistency="s",
        target="etcd2",
        put_ratio=Decimal("0.5"),
        search=SEARCH,
        events=(
            Disruption(verb="kill", target="leader", at_ns=2 * 10**9),
            Disruption(verb="loss", target="etcd3", every_ns=5 * 10**9, value=0.01),
        ),
    )
    carried = (
        Carried(1, 1, "event", "kill", "leader", None, ("etcd1",), 2 * 10**9, 9, 2_000_000_000, "etcd1"),
        Carried(2, 1, "event", "loss", "etcd3", 0.01, ("etcd3",), 5 * 10**9, 12, 5_001_000_000, "etcd2"),
        Carried(0, 1, "end", "restart", "etcd1", None, ("etcd1",), None, 13, 7 * 10**9),
    )
    rows = [(0, 1_900_000_000), (None, None), (3_500_000_000, 4_900_000_000)]
    timeline = [{"first_ok_ns": first, "last_ok_ns": last, "gap_ns": 0, "gap_end_ns": last} for first, last in rows]
    nodes = tuple(
        replace(node, cpus=Decimal(index) / 2, memory_bytes=index * 2**20) for index, node in enumerate(CONFIG.nodes, 1)
    )
    client = replace(CONFIG.client, cpus=Decimal("1.5"), memory_bytes=2**28)
    facts = RunFacts(
        replace(CONFIG, nodes=nodes, client=client, etcd=EtcdSettings(data="tmpfs", leader="etcd2")),
        "run-7",
        rtt=RttExpectation("etcd1", "etcd2", 12_000_000, 12_003_400),
        rtt_measured_ns=12_023_600,
        network=NetworkProof("before", (Check("etcd1>s1", "loss", "unproved", "0.1 %"),)),
        hosts="containernet",
        links="tclink",
        second_tries=True,
        store_version="3.7.3",
        timing={"heartbeat_ms": 130, "election_ms": 1300},
        congestion_control="bbr",
        realtime=False,
        seed=4711,
        config_hash="c0ffee",
        commit="abc",
        machine="node7",
        cpu_model="cpu x",
        cores=4,
        kernel="6.18.1",
        labs=2,
        links_cpu=1,
    )
    used = Consumers(
        members={"etcd1": Consumption(cpu_ns=10**9), "etcd2": Consumption(cpu_ns=2 * 10**9)},
        client=Consumption(cpu_ns=875_000_000, throttled_ns=125_400_000),
        links=Consumption(cpu_ns=500_000_000),
        driver=Consumption(cpu_ns=77),
        machine=Consumption(cpu_ns=99, steal_ns=250_000_000),
    )
    network = LinkStatistics(
        {
            "links": {},
            "ports": {},
            "stamps": "read",
            "lateness": {"count": 9, "p99_ns": 20_300},
        }
    )
    row = row_of(
        facts,
        ScenarioOutcome(
            ScheduledScenario(scenario, 3, "5ce7a810", attempt=2),
            "2026-01-01T00:00:00.000Z",
            1,
            cluster=2,
            reused="cluster",
            leader="etcd1>etcd3",
            leader_at_start="etcd1",
            term_at_start=4,
            term_at_end=6,
            floor_s=0.2,
            load=LoadResult.from_json(made | {"longest_gap_s": 1.4, "timeline": timeline, "second_tries": 13}),
            network=network,
            disruptions=Disruptions("7/m/3.2", carried),
            machine=Usage(2 * 10**9, used),
            search=SearchResult(SEARCH, "found", Decimal("251.5"), Decimal("264.25"), "held", (PROBE,) * 23),
            error="60 requests failed",
            findings=(
                Finding("few_answers", "unknown", "few"),
                Finding("links_paused", "invalid", "they stood still"),
                Finding("fell_behind", "told", "behind"),
            ),
        ),
    )
    assert tuple(row) == COLUMNS
    assert row == snapshot
