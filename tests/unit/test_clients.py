"""Several clients: their loads from one start, a row for each, and one for all."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import ConfigError, UsageError
from containernet_env.config.plan import Plan, scenario_hash
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.writer import scenarios_text
from containernet_env.model.findings import Finding, of_all_clients
from containernet_env.model.load_result import LoadResult
from containernet_env.model.scenario import CLIENT_SEEDS, EACH_CLIENT
from containernet_env.model.usage import Consumers, Consumption, Usage
from containernet_env.report import tables
from containernet_env.report.rows import read_rows
from containernet_env.results.csv_file import load, rows_after
from containernet_env.results.floor import Floor
from containernet_env.results.merged_load import merged_load
from containernet_env.results.run_files import ScenarioLine, UsageLine
from containernet_env.results.statistics import Histogram, decode, encode
from containernet_env.runs.keeper import Keeper
from containernet_env.runs.sweep.design import design
from tests.faults.simulated import Run, Simulation, on_machine
from tests.unit.answers import closed_loop, open_loop, without_answers
from tests.unit.blocks import planned
from tests.unit.report_rows import row, write

MS = 10**6
MEMBER = {"mem": "256m", "cpus": 1}
TOPOLOGY: dict[str, Any] = {
    "nodes": [MEMBER | {"site": site, "count": count} for site, count in (("eu", 2), ("us", 1))],
    "clients": [{"site": "eu"}, {"site": "us", "cpus": 2}],
    "rtt": {"eu-us": "8ms"},
}
SIZE = {"keySize": 8, "valSize": 64}
ONE = {"total": 120, "clients": 1, "conns": 1}
WRITE: dict[str, Any] = {"type": "write", "load": ONE, "data": SIZE, "target": "leader"}
READ: dict[str, Any] = {"type": "read", "load": ONE, "target": "nearest", "consistency": "l"}


def scenarios(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"dataset": {**SIZE, "keys": 100}, "scenarios": list(blocks)}


def plan_of(folder: Path, *blocks: dict[str, Any], **topology: Any) -> Plan:
    return planned(folder, TOPOLOGY | topology, *blocks, dataset={**SIZE, "keys": 100})


# --- files and the plan -----------------------------------------------------------------------------------------------


def test_clients_are_hosts_with_names_addresses_and_links_of_their_own(tmp_path: Path) -> None:
    clients = [{"site": "eu"}, {"site": "us"}, {"site": "us", "name": "far", "link_delay": "3ms"}, {"site": "us"}]
    plan = plan_of(tmp_path, WRITE, clients=clients)
    found = [(client.name, client.site, str(client.ip)) for client in plan.config.clients]
    names = [("client-eu", "eu"), ("client2", "us"), ("far", "us"), ("client4", "us")]
    assert found == [(*name, f"10.0.0.{254 - number}") for number, name in enumerate(names)]
    hosts = [host for host in plan.hosts if host.role == "benchmark"]
    assert [host.name for host in hosts] == [name for name, _ in names]
    allowed = ("--allow=10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379",)
    assert all(host.command == allowed and host.image == "benchmark" for host in hosts)
    assert {f"{name}-{site}" for name, site in names} <= {link.name for link in plan.links}


def test_a_part_of_a_scenario_is_what_its_client_sends(tmp_path: Path) -> None:
    own = {"us": {"rate": 100, "duration": "2s", "clients": 7}, "client-eu": {}}
    plan = plan_of(tmp_path, READ, READ | {"clients": own}, READ | {"clients": "us"})
    every, changed, alone = (planned.scheduled.scenario for planned in plan.scenarios)
    parts = [(part.client, part.member, part.total, part.clients, part.seed) for part in every.parts]
    assert parts == [("client-eu", "etcd1", 120, 1, 0), ("client-us", "etcd3", 120, 1, CLIENT_SEEDS)]
    assert (every.together.total, every.together.clients, every.together.conns) == (240, 2, 2)
    eu, us = changed.parts
    assert (eu.total, eu.rate) == (120, None)
    assert (us.total, us.duration_ns, us.rate, us.clients, us.conns) == (None, 2 * 10**9, Decimal(100), 7, 1)
    assert changed.name == f"{every.name}-by-us-r100-2s-7x+client-eu"
    assert [part.client for part in alone.parts] == ["client-us"] and alone.name.endswith("-by-us")
    # What the topology adds is no part of what is configured.
    assert plan.scenario_set is not None
    written = scenarios_text(plan.dataset, plan.scenario_set.scenarios)
    (tmp_path / "again.json").write_text(written)
    again = load_scenarios(tmp_path / "again.json").scenarios
    assert [scenario_hash(one, plan.dataset) for one in again] == [
        planned.scheduled.identity for planned in plan.scenarios
    ]


FIND = {"type": "read", "consistency": "l", "load": {"search": {"p99": "50ms"}, "clients": 9, "conns": 9}}
REFUSED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"client": {}}, WRITE),
    *(({"clients": clients}, WRITE) for clients in ([{"name": "etcd1"}], [{}] * 21, [{"name": "all"}])),
    ({"clients": [{"site": "eu"}]}, WRITE | {"clients": ["asia"]}),
    *(({}, WRITE | {"clients": senders}) for senders in (["asia"], ["us", "client-us"])),
    *(({}, WRITE | {"clients": {"us": own}}) for own in (
        {"clients": 500}, {"rate": 0.1, "total": 10**6}, {"total": 5, "duration": "1s"},
    )),
    *(({}, block) for block in (
        FIND, WRITE | {"history": True}, {"type": "mixed", "ratio": 0.5, "load": ONE, "consistency": "l"},
    )),
]  # fmt: skip


def test_what_several_clients_cannot_do_is_refused(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    found = {}
    for topology, block in REFUSED:
        with pytest.raises(ConfigError) as caught:
            plan_of(tmp_path, block, **topology)
        found[json.dumps([topology, block])] = str(caught.value).replace(str(tmp_path), "")
    assert found == snapshot


def test_axes_of_sweeps_are_of_one_client_by_its_name(tmp_path: Path) -> None:
    plan_of(tmp_path, WRITE)
    files: Any = (tmp_path / "topology.json",)
    given = {"scenarios": tmp_path / "scenarios.json"}
    beds = design(*files, ("client-us.site=eu,us", "client-us.cpus=1,2", "members=3,9"), **given).beds
    found = {(bed.plan.config.clients[1].site, str(bed.plan.config.clients[1].cpus)) for bed in beds}
    assert found == {(site, cpus) for site in ("eu", "us") for cpus in ("1", "2")} and len(beds) == 8
    addresses = [[host.ip for host in bed.plan.config.hosts] for bed in beds]
    assert all(len({*held}) == len(held) for held in addresses)
    with pytest.raises(
        ConfigError, match="client is neither a member nor a client: the clients are client-eu, client-us"
    ):
        design(*files, ("client.cpus=1,2",), **given)


# --- figures of all together ------------------------------------------------------------------------------------------


def slot_end_ns(value_ns: int) -> int:
    """The largest value that a histogram of 3 digits does not tell from this one: half a thousandth at most."""
    power = max(value_ns.bit_length() - 11, 0)
    return ((value_ns >> power) + 1 << power) - 1


def measured(latencies_ns: list[int], failed: int = 0) -> LoadResult:
    """A load with these response times, as the load generator reports it."""
    count, total = len(latencies_ns), sum(latencies_ns)
    mean = total / count
    held: dict[int, int] = {}
    for value in sorted(latencies_ns):
        held[slot_end_ns(value)] = held.get(slot_end_ns(value), 0) + 1
    distribution = {
        **closed_loop()["response_time"],
        "count": count,
        "left_out": failed,
        "min_s": min(latencies_ns) / 1e9,
        "max_s": max(latencies_ns) / 1e9,
        "mean_s": mean / 1e9,
        "stddev_s": (sum((value - mean) ** 2 for value in latencies_ns) / count) ** 0.5 / 1e9,
        "histogram": encode(Histogram(tuple(held.items()))),
    }
    outcomes = {"ok": count, "failed": failed, "unknown": 0, "unsent": 0}
    made = closed_loop() | {"response_time": distribution, "service_time": distribution, "outcomes": outcomes}
    return LoadResult.from_json(made | {"ok": count, "failed": failed, "done": count + failed})


LATENCIES = st.lists(st.integers(1, 10**12), min_size=1, max_size=60)


@given(st.lists(st.tuples(LATENCIES, st.integers(0, 5)), min_size=1, max_size=4))
def test_percentiles_of_all_are_those_of_all_samples_within_a_slot(parts: list[tuple[list[int], int]]) -> None:
    load = merged_load([measured(*part) for part in parts])
    pooled, failed = sorted(value for held, _ in parts for value in held), sum(count for _, count in parts)
    response = load.values["response_time"]
    for name, found_s in response["percentiles_s"].items():
        rank = max(-(-round(float(name) * 1000) * len(pooled) // 100_000), 1)
        if rank == len(pooled):
            assert found_s is None
        else:
            exact_ns = pooled[rank - 1]
            assert exact_ns <= round(found_s * 1e9) <= slot_end_ns(exact_ns), name
    for name, found_s in response["percentiles_all_s"].items():
        whole = len(pooled) + failed
        rank = max(-(-round(float(name) * 1000) * whole // 100_000), 1)
        if rank == whole or rank > len(pooled):
            assert found_s is None, "it is one of those without a latency"
        else:
            assert pooled[rank - 1] <= round(found_s * 1e9) <= slot_end_ns(pooled[rank - 1])
    assert (load.ok, load.failed, response["count"]) == (len(pooled), failed, len(pooled))
    assert [response["min_s"], response["max_s"]] == [pooled[0] / 1e9, pooled[-1] / 1e9]
    mean = sum(pooled) / len(pooled)
    deviation = (sum((value - mean) ** 2 for value in pooled) / len(pooled)) ** 0.5
    assert response["mean_s"] == pytest.approx(mean / 1e9)
    assert response["stddev_s"] == pytest.approx(deviation / 1e9, abs=1e-12 * pooled[-1])
    assert decode(response["histogram"]).total == len(pooled)


def test_throughput_is_of_the_time_that_all_have_in_common() -> None:
    began_ns = 5 * 10**9
    one = closed_loop(began_ns=began_ns, total_s=2.0, requests_per_s=500.0)
    other = closed_loop(began_ns=began_ns, total_s=4.0, requests_per_s=250.0)
    load = merged_load([LoadResult.from_json(one), LoadResult.from_json(other)])
    assert (load.total_s, load.ok, load.requests_per_s) == (4.0, 2000, 500.0)
    # Of equal durations it is the sum, whenever the last answers came.
    pair = [open_loop(began_ns=began_ns, total_s=0.5 + late_s, drain_s=late_s) for late_s in (0.1, 0.3)]
    load = merged_load([LoadResult.from_json(each) for each in pair])
    assert load.requests_per_s == pytest.approx(200.0) and load.drain_s == pytest.approx(0.3)
    # Also where it was before the end of the duration; a load that ended early is divided by its own time.
    pair[0] |= {"total_s": 0.4, "drain_s": 0}
    assert merged_load([LoadResult.from_json(each) for each in pair]).requests_per_s == pytest.approx(200.0)
    pair[0] |= {"reason": "it stopped"}
    assert merged_load([LoadResult.from_json(each) for each in pair]).requests_per_s == pytest.approx(180.0)
    assert load.rate_achieved_per_s == 200 and load.schedule is not None and not load.schedule.fell_behind
    assert load.longest_gap_s is None, "it follows from no figures of the clients"
    # Beside a closed loop, too, answers that come after a duration's end are in no time.
    short = closed_loop(began_ns=began_ns, total_s=0.1, requests_per_s=1000.0)
    load = merged_load([LoadResult.from_json(each) for each in (short, pair[1])])
    assert [load.total_s, load.requests_per_s] == pytest.approx([0.8, (100 + 50) / 0.5])


def test_a_client_without_answers_counts_and_has_no_latencies() -> None:
    load = merged_load([LoadResult.from_json(closed_loop()), LoadResult.from_json(without_answers(closed_loop(), 50))])
    assert (load.ok, load.failed, load.excluded) == (1000, 50, 50)
    assert load.values["response_time"]["left_out"] == 50, "its requests are among the slowest of all"
    assert load.response_time_s["50"] == pytest.approx(closed_loop()["percentiles_s"]["50"], rel=1e-3)


def silent_until(*rows_ms: tuple[int, int, int, int]) -> LoadResult:
    """With rows of the timeline: the first success, the longest gap, its end, the last success."""
    row = closed_loop()["timeline"][0]
    names = ("first_ok_ns", "gap_ns", "gap_end_ns", "last_ok_ns")
    rows = [row | {name: ms * MS for name, ms in zip(names, held, strict=True)} for held in rows_ms]
    return LoadResult.from_json(closed_loop(began_ns=5, timeline=rows))


def test_the_first_success_after_a_moment_is_no_later_than_the_longest_gap() -> None:
    steady = silent_until((500, 2, 510, 600))
    assert [steady.first_success_s(at_s) for at_s in (0.4995, 0.509, 0.550, 0.599, 0.61)] == [
        *(pytest.approx(value) for value in (0.0005, 0.001, 0.002, 0.001)),
        None,
    ]
    # Of two clients, one of which has no success any more, it is that of the other.
    ended, other = silent_until((500, 1, 510, 520)), silent_until((500, 41, 560, 600))
    both = merged_load([ended, other])
    assert both.first_success_s(0.53) == other.first_success_s(0.53) == pytest.approx(0.03)


def test_findings_of_all_name_the_clients_of_those_that_not_all_have() -> None:
    common, own = Finding("links_paused", "invalid", "paused"), Finding("generator_waited", "invalid", "it waited")
    assert of_all_clients({"a": [common], "b": [own, common]}) == [
        common,
        replace(own, text="b: it waited", subject="b"),
    ]


def test_the_floor_of_all_is_the_median_of_the_mixture(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, READ | {"consistency": "s"})
    scenario, members = plan.scenarios[0].scheduled.scenario, ("etcd1", "etcd2", "etcd3")
    floor = Floor(plan.store, plan.topology, {})
    local = {part.client: floor.median_s(part, "etcd1", members) for part in scenario.parts}
    assert local == {"client-eu": 0.0, "client-us": 0.0}, "each reads at its own site"
    plan = plan_of(tmp_path, READ | {"target": "etcd1", "consistency": "s"})
    scenario = plan.scenarios[0].scheduled.scenario
    for eu, us, median_s in ((100, 99, 0.0), (99, 100, 0.008)):
        answered = {"client-eu": (eu, None), "client-us": (us, None)}
        assert floor.median_s(scenario, "etcd1", members, answered) == median_s


def test_each_client_has_its_own_usage_and_all_their_sum() -> None:
    used = {"a": Consumption(cpu_ns=3), "b": Consumption(cpu_ns=4)}
    usage = Usage(10, Consumers(client=Consumption(cpu_ns=7), clients=used))
    cores = [usage.client_cores, *(usage.of_client(name).client_cores for name in ("a", "b", "c"))]
    assert cores == [0.7, 0.3, 0.4, None]
    alone = Usage(10, Consumers(client=Consumption(cpu_ns=7)))
    assert alone.of_client("a").client_cores == 0.7, "a block may name the only client"


def test_tables_of_a_clients_rows_have_its_own_use() -> None:
    clients = {"a": Consumption(cpu_ns=3), "b": Consumption(cpu_ns=4)}
    look = UsageLine(
        schema=1,
        at_ns=5,
        edge="begin",
        members={},
        client=Consumption(cpu_ns=7),
        clients=clients,
        links=None,
        driver=None,
        machine=None,
    )
    looks = [look, look.model_copy(update={"edge": "end"})]
    for name, cpu_ns in (("a", 3), ("b", 4), ("all", 7), (None, 7)):
        line = ScenarioLine.model_construct(load={"began_ns": 6}, client=name)
        assert [look.client and look.client.cpu_ns for look in tables.within(looks, line)] == [cpu_ns] * 2


# --- runs -------------------------------------------------------------------------------------------------------------


def run_of(
    folder: Path,
    *blocks: dict[str, Any],
    strike: Callable[[Run], object] = lambda run: None,
    config: Mapping[str, Any] = TOPOLOGY,
) -> tuple[Run, int]:
    """A run on a simulated machine, and its exit status; ``strike`` does something to it meanwhile."""
    simulation = Simulation(1, config=json.dumps({**TOPOLOGY, **config}))
    run, status = Run(simulation, folder), list[int]()
    run.files.scenarios.write_text(json.dumps(scenarios(*blocks)))

    def carry_out() -> None:
        with on_machine(run):
            sys.stdout = run.text
            run.start()
            strike(run)
            status.append(run.end())
            left = run.machine.left()
            assert not any(left.values()), f"{left}\n{run.said}"

    simulation.run(carry_out)
    simulation.machine.close()
    return run, status[0]


def test_one_run_of_two_clients_leaves_their_rows_and_those_of_all(tmp_path: Path) -> None:
    run, status = run_of(tmp_path, WRITE, READ | {"clients": {"client-us": {"total": 60}, "eu": {}}})
    assert status == 0, run.said
    rows, record = run.files.rows(), run.files.record()
    names = ("TestType", "Client", "RequestCount", "ClientCount", "ClientCpus", "LoadSeed", "Error", "Valid")
    us_seed = str(CLIENT_SEEDS)
    assert [[row[name] for name in names] for row in rows] == [
        [kind, *own, "-", "yes"]
        for kind in ("write", "read")
        for own in (
            ("client-eu", "1000", "1", "unlimited", "0"),
            ("client-us", "1000", "1", "2", us_seed),
            ("all", "2000", "2", "unlimited;2", "0"),
        )
    ]
    assert len({row["ScenarioHash"] for row in rows}) == 2 and len({row["ConfigHash"] for row in rows}) == 1
    # Each client loads for itself, from one moment on, and reads the member that is nearest to it.
    by_start: dict[int, dict[str, Any]] = {}
    for name, body in run.machine.benchmarks:
        by_start.setdefault(body["startNs"], {})[name] = body["total"], body.get("targetMember")
    assert [*by_start.values()] == [
        {"client-eu": (120, None), "client-us": (120, None)},
        {"client-eu": (120, "10.0.0.1:2379"), "client-us": (60, "10.0.0.3:2379")},
    ]
    assert [line["load"]["began_ns"] for line in record] == [start for start in by_start for _ in range(3)]
    assert [line["client"] for line in record] == ["client-eu", "client-us", "all"] * 2
    of_one, _, of_all = (decode(line["load"]["response_time"]["histogram"]).total for line in record[:3])
    assert of_all == 2 * of_one
    # Whatever reads them counts one row of each scenario.
    out = run.files.out
    assert load(out)["Client"].tolist() == ["all"] * 2 == [row["Client"] for row in rows_after(out)]
    assert load(out, client="client-us")["LoadSeed"].tolist() == [CLIENT_SEEDS] * 2
    assert load(out, client=EACH_CLIENT)["Client"].tolist() == ["client-eu", "client-us"] * 2
    for client, words in (("user", r"of the client user\n .*: client-eu, client-us"), ("benchmark", "client-eu")):
        with pytest.raises(UsageError, match=words):
            load(out, client=client)
    assert len(read_rows([out])) == 2 and "Client" in read_rows([out], client=EACH_CLIENT).varied


def test_rows_of_one_client_name_none(tmp_path: Path) -> None:
    run, status = run_of(tmp_path, WRITE, config={"clients": [{"site": "us"}]})
    assert (status, [row["Client"] for row in run.files.rows()]) == (0, ["-"])
    assert "startNs" not in run.machine.benchmarks[0][1] and len(load(run.files.out)) == 1
    seed = write(tmp_path / "seed.csv", [row()], seed=True)
    assert len(load(seed)) == 1
    for out, client in product((run.files.out, seed), (EACH_CLIENT, "client-us")):
        with pytest.raises(UsageError, match=r"has no rows of .*\n .*: none: each has one client"):
            load(out, client=client)


def test_a_client_that_ends_has_the_reason_in_its_row_and_the_others_keep_theirs(tmp_path: Path) -> None:
    def strike(run: Run) -> None:
        run.reach("write")
        run.send([run.wait_for_target(lambda: run.host("client-us"))], signal.SIGKILL)

    run, status = run_of(tmp_path, WRITE, READ, strike=strike)
    why = "the benchmark host of client-us ended: killed by SIGKILL"
    rows = run.files.rows()
    assert status == 1
    assert [(row["Client"], row["Error"]) for row in rows] == [
        ("client-eu", "-"),
        ("client-us", why),
        ("all", f"client-us: {why}"),
        ("all", f"not run: {why}"),
    ]
    assert rows[0]["Requests/sec"] == rows[2]["Requests/sec"] != "-"
    assert [(row["Valid"], row["Reasons"]) for row in rows[:3]] == [
        ("yes", "-"),
        ("-", "-"),
        ("unknown", "cut_short"),
    ], "the figures of all lack those of one"


def test_a_client_that_is_late_has_no_figures_and_fails_the_row_of_all_by_no_fault_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, of_testbed, keep = "it was ready 2ms after its configured start", list[bool](), Keeper.keep
    monkeypatch.setattr(Keeper, "keep", lambda *held: (of_testbed.append(held[1].testbed_failed), keep(*held))[1])
    run, status = run_of(tmp_path, WRITE, strike=lambda run: run.machine.late.update({"client-us": late}))
    assert status == 1 and of_testbed == [True]
    found = [(row["Client"], row["Error"], row["Requests/sec"] != "-") for row in run.files.rows()]
    assert found == [("client-eu", "-", True), ("client-us", late, False), ("all", f"client-us: {late}", True)]


def test_a_dilated_run_has_each_row_in_emulated_time(tmp_path: Path) -> None:
    run, status = run_of(tmp_path, WRITE, config={"dilation": 3})
    assert status == 0, run.said
    rows = run.files.rows()
    assert [row["Dilation"] for row in rows] == ["3"] * 3
    assert {row["Fastest"] for row in rows} == {f"{closed_loop()['fastest_s'] / 3:.6f}"}
