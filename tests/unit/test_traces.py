"""Traces: their files and what is refused, in plans, floors and run directories, and with links while a load runs."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import ConfigError, RunError, UsageError
from containernet_env.config.plan import PlanOptions, config_hash, plan_values
from containernet_env.config.planning import build_plan, dilated
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.config.traces import content_of, points_of, read_trace
from containernet_env.config.writer import topology_text
from containernet_env.model.config import Config
from containernet_env.model.dilation import slowed
from containernet_env.model.link import LinkSpec
from containernet_env.model.topology import network_of
from containernet_env.network.emulator import EmulatedLink, LinkEmulator, trace_name
from containernet_env.network.interface import Interface, SwitchPort
from containernet_env.results.floor import Floor
from containernet_env.results.run_directory import TOPOLOGY_INPUT
from containernet_env.runs.measure import measure
from containernet_env.runs.rerun import rerun
from tests.unit import fakes
from tests.unit.blocks import write, writes
from tests.unit.fakes import QUICK, Beds, Patch
from tests.unit.test_rerun import made

__all__ = ["made"]
kernel = fakes.kernel
MS, S, MBIT = 10**6, 10**9, 10**6
UP = "# of my own\ntime,value\n0,100\n250ms, 0\n1.5,2.5\n"
DELAYS = "0,10\n2s,40ms\n"
LTE = "1\n2\n2\n7\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("up.csv", UP), ("sat.csv", DELAYS), ("lte.up", LTE)):
        (tmp_path / name).write_text(text)
    return tmp_path


def node(trace: dict[str, Any], **more: Any) -> dict[str, Any]:
    link = {"to_switch": {"delay": "20ms", "bandwidth": 10, "trace": trace, **more}}
    return {"mem": "64m", "cpus": 1, "link": link | {"from_switch": {"delay": "20ms", "bandwidth": 10}}}


def read(folder: Path, trace: dict[str, Any], **more: Any) -> Config:
    return load_config(write(folder, {"nodes": [node(trace, **more)]}))


def refusal(folder: Path, trace: dict[str, Any], **more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        read(folder, trace, **more)
    return str(caught.value).replace(f"{folder}/", "")


def test_a_direction_has_the_traces_of_its_files(folder: Path) -> None:
    config = read(folder, {"bandwidth": {"file": "up.csv", "repeat": "2s"}, "delay": "sat.csv"})
    there, back = config.nodes[0].link.sides
    assert there.trace is not None and there.trace.bandwidth is not None and there.trace.delay is not None
    rate, delay = there.trace.bandwidth, there.trace.delay
    assert (rate.kind, rate.points, rate.repeat_ns, rate.rate_bps) == ("rate", 3, 2 * S, (0, 100 * MBIT))
    assert (delay.kind, delay.points, delay.repeat_ns, delay.delay_ns) == ("delay", 2, None, (10 * MS, 40 * MS))
    assert points_of(rate) == ([0, 250 * MS, 1500 * MS], [100 * MBIT, 0, 2_500_000])
    assert points_of(delay) == ([0, 2 * S], [10 * MS, 40 * MS])
    assert (there.uplink, back.uplink, back.trace) == ("network", None, None)
    assert there.words["bandwidth trace"] == "0 to 100 Mbit/s" and there.words["delay trace"] == "10ms to 40ms"
    # Written out, the files are found from anywhere.
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "again.json").write_text(topology_text(config))
    assert load_config(folder / "elsewhere" / "again.json").nodes == config.nodes
    # A file that is no CSV has opportunities of Mahimahi.
    trace = read_trace(folder / "lte.up", "bandwidth")
    assert (trace.kind, trace.points, trace.repeat_ns) == ("opportunities", 4, 7 * MS)
    assert points_of(trace) == ([MS, 2 * MS, 2 * MS, 7 * MS], [])


FILES: dict[tuple[str, str], tuple[str, ...]] = {
    ("bandwidth", "a.csv"): (
        *("0,10\n0.5,x\n1,5\n0.7,6\n", "0,10,1\n", "t,bw\n0,10\n", "1,10\n", "0,0.001\n", "0,10ms\n", "0,0\n", ""),
        *("0,10\n\n", "0.0000000001,10\n", "0,1\n2000000,10\n"),
    ),
    ("bandwidth", "a.up"): ("2\n1\n", "1\n1.5\n", "0\n", "\n"),
    ("delay", "a.csv"): ("0,10001\n",),
    ("delay", "a.up"): ("0\n",),
}
JITTER = {"distribution": "uniform", "value": "15ms"}
REFUSED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *(({}, {}), ({"delay": "none.csv"}, {}), ({"delay": "pipe.csv"}, {})),
    *(({"bandwidth": {"file": file, "repeat": repeat}}, {}) for file, repeat in (("lte.up", "9s"), ("up.csv", "1s"))),
    ({"delay": "sat.csv"}, {"jitter": JITTER}),
    *(({"bandwidth": "up.csv"}, more) for more in ({"uplink": "host"}, {"aqm": "codel"}, {"bandwidth": "unlimited"})),
]


def test_what_is_no_trace_or_does_not_go_with_one_is_refused_by_line(folder: Path, snapshot: SnapshotAssertion) -> None:
    told = {}
    for (of, name), texts in FILES.items():
        for text in texts:
            (folder / name).write_text(text)
            told[f"{of} {name} {text!r}"] = refusal(folder, {of: name})
    os.mkfifo(folder / "pipe.csv")
    assert told | {json.dumps(case): refusal(folder, case[0], **case[1]) for case in REFUSED} == snapshot


def plan_of(config: Config, scenarios: Path = QUICK, **options: Any) -> Any:
    return build_plan(config, load_scenarios(scenarios), PlanOptions(2, **options))


def test_netem_and_events_about_the_same_property_are_refused(folder: Path) -> None:
    config = read(folder, {"delay": "sat.csv"})
    (folder / "events").mkdir()
    with pytest.raises(UsageError, match="do not support a trace: netem has one rate and one delay"):
        plan_of(config, links="netem")
    block = writes(load={"rate": 50, "duration": "9s", "clients": 5, "conns": 1})
    for event, refused in (
        ({"delay": "50ms", "of": "random"}, True),
        ({"loss": 0.1, "of": "etcd1"}, False),
        ({"rate": 5, "of": "leader"}, False),
        ({"link": "down", "of": "etcd1"}, False),
    ):
        path = write(folder / "events", {"scenarios": [block | {"events": [{"at": "1s", **event}]}]})
        if refused:
            with pytest.raises(ConfigError, match="impossible on the link of etcd1: its delay follows the trace"):
                plan_of(config, path)
        else:
            plan_of(config, path)


def test_plan_and_hash_have_the_digest_and_not_the_place(folder: Path) -> None:
    plan = plan_of(read(folder, {"delay": "sat.csv"}))
    (link, _) = plan_values(plan)["links"]
    trace = link["a_to_b"]["trace"]
    assert trace["delay"]["sha256"] == read_trace(folder / "sat.csv", "delay").sha256 and "trace" not in link["b_to_a"]
    assert "sat.csv" not in json.dumps(plan_values(plan)["links"])
    (folder / "sub").mkdir()
    shutil.copy(folder / "sat.csv", folder / "sub" / "other.csv")
    moved = plan_of(read(folder, {"delay": "sub/other.csv"}))
    assert config_hash(moved) == config_hash(plan)
    (folder / "sat.csv").write_text("0,10\n2s,41ms\n")
    assert config_hash(plan_of(read(folder, {"delay": "sat.csv"}))) != config_hash(plan)


def test_dilation_makes_a_trace_longer_and_its_rates_lower(folder: Path) -> None:
    config = read(folder, {"bandwidth": {"file": "up.csv", "repeat": "2s"}, "delay": "sat.csv"})
    side = dilated(plan_of(config, dilation=4)).links[0].spec.a_to_b
    assert side.trace.bandwidth.repeat_ns == 8 * S and side.trace.bandwidth.rate_bps == (0, 25 * MBIT)
    assert points_of(side.trace.bandwidth) == ([0, S, 6 * S], [25 * MBIT, 0, 625_000])
    assert points_of(side.trace.delay) == ([0, 8 * S], [40 * MS, 160 * MS])
    (folder / "up.csv").write_text("0,0\n1,0.01\n2,10\n")
    with pytest.raises(UsageError, match=r"up.csv would have 500 bit/s, allowed: 0, or at least 1000"):
        plan_of(read(folder, {"bandwidth": "up.csv"}), dilation=20)
    assert points_of(slowed(read_trace(folder / "lte.up", "bandwidth"), 2)) == ([2 * MS, 4 * MS, 4 * MS, 14 * MS], [])


@pytest.mark.parametrize(("trace", "base", "wanted_ns"), [
    ({"delay": "sat.csv"}, {}, 30 * MS),  # 10 there, 20 back
    ({"delay": "sat.csv"}, {"delay": "5ms"}, 25 * MS),
    ({"bandwidth": "up.csv"}, {}, 40 * MS),
])  # fmt: skip
def test_the_floor_is_that_of_the_fastest_moment(
    folder: Path, trace: dict[str, Any], base: dict[str, Any], wanted_ns: int
) -> None:
    config = read(folder, trace, **base)
    plan = plan_of(config)
    scenario = next(item.scheduled.scenario for item in plan.scenarios if item.scheduled.scenario.consistency == "s")
    found_s = Floor(plan.store, plan.topology, {"etcd1": 0.0}).median_s(scenario, "etcd1", ["etcd1"])
    there, back = config.nodes[0].link.sides
    plain = replace(config, nodes=(replace(config.nodes[0], link=LinkSpec(replace(there, trace=None), back)),))
    without_s = Floor(plan.store, network_of(plain), {"etcd1": 0.0}).median_s(scenario, "etcd1", ["etcd1"])
    assert found_s is not None and without_s is not None
    assert wanted_ns / S <= found_s <= without_s
    assert found_s < wanted_ns / S + 0.001
    assert there.fastest.rate_bps == (100 * MBIT if "bandwidth" in trace else 10 * MBIT)
    assert there.longest_delay_ns == (40 * MS if "delay" in trace else there.delay_ns)


def test_opportunities_bound_no_time_of_bytes(folder: Path) -> None:
    assert read(folder, {"bandwidth": "lte.up"}).nodes[0].link.a_to_b.fastest.rate_bps is None


def test_a_run_keeps_copies_from_which_it_is_repeated(made: Beds, folder: Path, monkeypatch: Patch) -> None:
    config = write(folder, {"nodes": [node({"bandwidth": "lte.up", "delay": "sat.csv"})]})
    first = measure(config, QUICK, folder / "out.csv", only=["read-serializable-50x1x1"])
    for name in ("lte.up", "sat.csv"):
        (folder / name).unlink()
    kept = sorted(path.read_text() for path in (first.directory / "inputs" / "traces").iterdir())
    assert kept == sorted([LTE, DELAYS])
    again = rerun(first.directory, folder / "again.csv")
    assert (again.directory / TOPOLOGY_INPUT).read_bytes() == (first.directory / TOPOLOGY_INPUT).read_bytes()
    changed = next((first.directory / "inputs" / "traces").glob("*.csv"))
    changed.write_text(DELAYS.replace("40", "41"))
    with pytest.raises(UsageError, match=r"cannot be repeated as it was"):
        rerun(first.directory, folder / "third.csv")


def test_a_file_that_changed_since_it_was_read_is_an_error(folder: Path) -> None:
    trace = read_trace(folder / "sat.csv", "delay")
    (folder / "sat.csv").write_text("0,1\n")
    with pytest.raises(RunError, match=r"sat.csv has changed since it was read"):
        content_of(trace)


class Control(LinkEmulator):
    """Its requests are those of a fake."""

    def __init__(self) -> None:
        super().__init__(None, lambda kind, text: None)
        self.fake = fakes.FakeEmulator()
        self.operations: list[str] = []

    def request(self, op: str, deadline_s: float = 5.0, **fields: Any) -> Any:
        self.operations.append(op)
        return SimpleNamespace(at_ns=1, result=self.fake.carry_out(op, **fields))


def link_of(folder: Path, trace: dict[str, Any]) -> tuple[Control, EmulatedLink, LinkSpec]:
    """The link of a node with this trace, as its emulator has it."""
    spec, emulator = read(folder, trace).nodes[0].link, Control()
    link = EmulatedLink(emulator, "d1-s1", (Interface(1, "e0", "02::1", "d1"), SwitchPort("e1", "s1")), spec)
    link.make()
    link.apply(spec)
    return emulator, link, spec


def test_a_link_loads_its_traces_once_and_follows_them_until_it_is_told_otherwise(
    folder: Path, kernel: fakes.FakeKernel
) -> None:
    lines = "".join(f"{second},{second % 7}\n" for second in range(45_000))
    (folder / "long.csv").write_text(lines)
    emulator, link, spec = link_of(folder, {"bandwidth": "up.csv", "delay": "long.csv"})
    link.change_directions({"a_to_b": {"loss": None}})
    rate, delay = (trace_name(spec.a_to_b.traces[field]) for field in ("rate_bps", "delay_ns"))
    assert [part["more"] for part in emulator.fake.traces[delay]] == [True, True, False]
    assert [ns for part in emulator.fake.traces[delay] for ns in part["times_ns"]] == [*range(0, 45_000 * S, S)]
    assert emulator.operations.count("add_trace") == 4
    held = emulator.fake.links["d1-s1"]["a_to_b"]
    assert (held["delay_ns"], held["rate_bps"]) == (20 * MS, 10 * MBIT)  # until it follows them
    link.follow(5)
    assert held["traces"] == {"rate": rate, "delay": delay} and "traces" not in emulator.fake.links["d1-s1"]["b_to_a"]
    link.follow(None)
    assert "traces" not in held


@pytest.mark.parametrize("start_ns", [5, None])
def test_a_link_that_does_not_follow_what_it_should_is_an_error(
    folder: Path, kernel: fakes.FakeKernel, monkeypatch: Patch, start_ns: int | None
) -> None:
    emulator, link, _ = link_of(folder, {"delay": "sat.csv"})
    link.follow(5)
    held = json.loads(json.dumps(emulator.fake.links["d1-s1"]))
    if start_ns is not None:
        del held["a_to_b"]["traces"]
    monkeypatch.setattr(emulator.fake, "carry_out", lambda op, **fields: held)
    with pytest.raises(RunError, match="link d1-s1, a_to_b: follows"):
        link.follow(start_ns)
