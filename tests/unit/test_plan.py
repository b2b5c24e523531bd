"""The snapshot pins the whole plan of the main config: a change in it is a change in what runs do.

After a change that is meant: pytest tests/unit/test_plan.py --snapshot-update, and read the difference.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from containernet_env.base.errors import ConfigError, UsageError
from containernet_env.config import load_config
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, QUICK_SCENARIOS, load_scenarios
from containernet_env.model.chance import IndependentLoss
from containernet_env.model.config import EtcdSettings
from containernet_env.model.link import LinkSpec
from containernet_env.plan.build import build_plan
from containernet_env.plan.export import plan_values
from containernet_env.plan.plan import PlanOptions

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


def test_the_plan_of_the_main_config(snapshot):
    plan = plan_values(plan_of(config_of()))
    for part in (plan["config"], plan["scenario_file"]):
        part["path"] = str(Path(part["path"]).relative_to(ROOT))
        # A comment in a file is no change of plan.
        assert len(part.pop("sha256")) == 64
    assert json.loads(json.dumps(plan)) == snapshot


def test_queues_that_are_left_open_are_in_the_plan():
    plan = plan_of(config_of("wan-50ms"))
    # 200 ms between members at 100 Mbit/s; 102 ms from the client, at 1000 Mbit/s.
    assert [link.spec.a_to_b.default_queue_frames for link in plan.links] == [2000, 2000, 2000, 8422]
    assert not [note for note in plan.notes if "queue" in note]


def test_a_queue_that_is_less_than_the_product_is_noted():
    config = config_of()
    link = LinkSpec.symmetric(10**9, 10**9)
    plan = plan_of(replace(config, nodes=(replace(config.nodes[0], link=link), *config.nodes[1:])))
    notes = [note for note in plan.notes if note.startswith("the queues of")]
    assert notes == [
        "the queues of etcd1-s1, etcd2-s1, etcd3-s1 hold 100,000 frames, less than the bandwidth-delay product"
    ]


def test_limits_are_what_the_kernel_will_hold():
    hosts = plan_of(config_of("2node-seed")).hosts
    assert [host.name for host in hosts] == ["etcd1", "etcd2", "benchmark"]
    first, client = hosts[0], hosts[-1]
    assert (first.memory_bytes, first.memswap_bytes) == (100 << 20, 100 << 20)
    assert (first.cpu_quota_us, first.cpu_period_us) == (800_000, 100_000)
    assert first.environment == {"GOMEMLIMIT": f"{(100 << 20) * 9 // 10}B"}
    assert (client.memory_bytes, client.cpu_quota_us, client.environment) == (None, None, {})


def test_the_benchmark_server_may_be_sent_to_the_members_and_nowhere_else():
    *members, client = plan_of(config_of("2node-seed")).hosts
    assert client.command == ("--allow=" + ",".join(f"{member.ip}:2379" for member in members),)


def test_memory_is_rounded_down_to_pages():
    config = config_of()
    nodes = tuple(replace(node, memory_bytes=100_000_001) for node in config.nodes)
    assert plan_of(replace(config, nodes=nodes)).hosts[0].memory_bytes == 100_000_001 // 4096 * 4096


def test_tcp_and_tmpfs_are_as_asked():
    config = with_etcd(config_of(), data="tmpfs")
    plan = plan_of(config, replace(OPTIONS, tcp_congestion_control="bbr", run_id="abc123"))
    assert {host.tcp_congestion_control for host in plan.hosts} == {"bbr"}
    assert [bool(host.tmpfs) for host in plan.hosts] == [True, True, True, False]
    assert "--initial-cluster-token=containernet-env-abc123" in plan.hosts[0].command
    assert any("tmpfs" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("delay_ms", "heartbeat_ms", "election_ms", "heartbeat_from", "election_from"),
    [
        (0, 100, 1000, "default", "default"),
        (3, 100, 1000, "default", "default"),
        (25, 100, 1000, "default", "default"),
        (26, 104, 1040, "rtt", "rtt"),
        (50, 200, 2000, "rtt", "rtt"),
        (2000, 8000, 50_000, "rtt", "rtt"),
        (10_000, 10_000, 50_000, "rtt", "rtt"),
    ],
)
def test_raft_timing_follows_the_largest_rtt(delay_ms, heartbeat_ms, election_ms, heartbeat_from, election_from):
    timing = plan_of(with_delay(config_of(), delay_ms * 10**6)).timing
    assert (timing.heartbeat_ms, timing.election_ms) == (heartbeat_ms, election_ms)
    assert (timing.heartbeat_from, timing.election_from) == (heartbeat_from, election_from)


def test_an_rtt_of_part_of_a_millisecond_counts_as_a_whole_one():
    assert plan_of(config_of("wan-50ms")).timing.heartbeat_ms == 201


def test_one_member_keeps_etcds_defaults():
    plan = plan_of(with_delay(config_of("1node"), 10**9))
    assert (plan.timing.heartbeat_ms, plan.timing.election_ms, plan.largest_member_rtt) == (100, 1000, None)


def test_the_config_overrides_raft_timing():
    timing = plan_of(with_etcd(config_of(), heartbeat_ms=10, election_ms=100)).timing
    assert (timing.heartbeat_ms, timing.election_ms) == (10, 100)
    assert (timing.heartbeat_from, timing.election_from) == ("config", "config")
    timing = plan_of(with_etcd(config_of(), heartbeat_ms=300)).timing
    assert (timing.election_ms, timing.election_from) == (3000, "heartbeat")


def test_an_election_timeout_that_the_derived_heartbeat_breaks_is_refused():
    with pytest.raises(ConfigError) as caught:
        plan_of(with_etcd(config_of("wan-50ms"), election_ms=1004))
    (problem,) = caught.value.problems
    assert (problem.path, problem.got) == ("$.etcd.election_timeout", "1004ms")
    assert "1005ms" in problem.allowed


def test_notes_are_said_once_and_only_where_they_help():
    assert plan_of(config_of("1node")).notes == ()
    (note,) = plan_of(config_of("2node-seed")).notes
    assert note == "this machine has 2 cores: the cpu limit of etcd1, etcd2 is applied but cannot bind"
    (note,) = plan_of(config_of()).notes
    assert note == "this machine has 2 cores, the cpu limits add up to 3: the hosts compete for cpu"
    assert plan_of(config_of(), replace(OPTIONS, machine_cores=8)).notes == ()
    many = replace(OPTIONS, machine_cores=64)
    (note,) = plan_of(with_etcd(config_of(), heartbeat_ms=10, election_ms=100), many).notes
    assert "heartbeat of 10 ms is below" in note
    (note,) = plan_of(with_etcd(config_of(), heartbeat_ms=20, election_ms=100), many).notes
    assert "election timeout of 100 ms is below 10 times" in note


def test_queues_that_the_emulator_cannot_hold_are_told_of():
    config = config_of("1node")
    wide = replace(
        config, nodes=tuple(replace(node, link=LinkSpec.symmetric(0, 10**9, 200_000)) for node in config.nodes)
    )
    (note,) = plan_of(wide).notes
    assert "781 MiB of full frames" in note
    assert plan_of(wide, replace(OPTIONS, links="netem")).notes == ()


def test_reads_load_the_data_set_where_no_write_made_it():
    def loads(**options):
        return [planned.loads_dataset for planned in plan_of(config_of(), replace(OPTIONS, **options)).scenarios]

    assert loads() == [False] * 18
    assert loads(only=("read",)) == [True] + [False] * 5
    assert loads(only=("write-leader-1000x1x1-8B-256B", "read-l*-1000x1x1")) == [False, True]
    assert loads(only=("read-l*-1000x1x1",), repeat=2) == [True, False]


def scenarios_of(tmp_path, *blocks):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"scenarios": blocks}))
    return path


def test_mixed_loads_load_the_data_set_and_leave_it_behind(tmp_path):
    load = {"duration": "1s", "clients": 1, "conns": 1}
    mixed = {"type": "mixed", "load": load, "consistency": "l", "ratio": [0.1, 0.5]}
    mine = scenarios_of(tmp_path, mixed, {"type": "read", "load": load, "consistency": "l"})
    assert [planned.loads_dataset for planned in plan_of(config_of(), scenarios=mine).scenarios] == [True, False, False]


def test_estimates_are_of_the_right_order():
    quick, whole = plan_of(config_of(), scenarios=QUICK_SCENARIOS), plan_of(config_of())
    assert quick.estimated_s < 60
    assert 120 < whole.estimated_s < 600
    # 18 ms of network for every one of 1000 requests.
    assert 18 < whole.scenarios[0].estimated_s < 30
    assert plan_of(config_of("wan-50ms")).estimated_s > 5 * whole.estimated_s
    heavy = next(item for item in plan_of(config_of("slow-10mbit")).scenarios if item.scheduled.scenario.total == 10**5)
    assert heavy.estimated_s > 30


def test_without_scenarios_there_is_still_a_topology():
    plan = build_plan(config_of(), None, OPTIONS)
    assert (plan.scenarios, plan.scenario_set, len(plan.hosts)) == ((), None, 4)
    json.dumps(plan_values(plan))


def test_a_pattern_that_matches_nothing_is_a_usage_error():
    with pytest.raises(UsageError):
        plan_of(config_of(), replace(OPTIONS, only=("nothing",)))


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.json")), ids=lambda path: path.name)
def test_every_config_we_ship_has_a_plan(path):
    plan = plan_of(load_config(path))
    json.dumps(plan_values(plan))
    names = [host.name for host in plan.hosts]
    assert len(plan.rtt) == len(names) * (len(names) - 1) // 2
    assert [link.a for link in plan.links] == names


def with_loss(config):
    link = LinkSpec.symmetric(3_000_000, 10**9)
    lossy = replace(link, b_to_a=replace(link.b_to_a, loss=IndependentLoss(0.01)))
    return replace(config, nodes=(*config.nodes[:-1], replace(config.nodes[-1], link=lossy)))


def test_links_that_netem_cannot_carry_out_are_refused_where_it_was_asked_for():
    plan_of(with_loss(config_of()))
    with pytest.raises(UsageError, match=r"3node-3ms.json: .*loss with a bandwidth: .*\(link etcd3-s1\): got"):
        plan_of(with_loss(config_of()), replace(OPTIONS, links="netem"))


def test_a_new_cluster_for_each_repetition_is_counted():
    config = config_of()
    shared = plan_of(config, replace(OPTIONS, only=("read-serializable-*",), repeat=3), QUICK_SCENARIOS)
    fresh = plan_of(config, replace(OPTIONS, only=("read-serializable-*",), repeat=3, fresh=True), QUICK_SCENARIOS)
    each = len(shared.scenarios) // 3
    assert shared.cluster_ends == (3 * each,)
    assert fresh.cluster_ends == (each, 2 * each, 3 * each)
    # New data: the data set is loaded for each, before its first read.
    assert [index for index, planned in enumerate(shared.scenarios) if planned.loads_dataset] == [0]
    assert [index for index, planned in enumerate(fresh.scenarios) if planned.loads_dataset] == [0, each, 2 * each]
    once = plan_of(config, replace(OPTIONS, only=("read-serializable-*",), fresh=True), QUICK_SCENARIOS)
    assert once.cluster_ends == (each,)
    assert fresh.estimated_s == pytest.approx(3 * once.estimated_s)
    assert plan_values(fresh)["clusters"] == 3


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
