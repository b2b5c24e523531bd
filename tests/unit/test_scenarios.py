"""The scenarios that a file makes, as the snapshot has them; which of them are chosen, and what they leave behind;
what is taken of their events, and what is refused and where.

After a change that is meant: pytest tests/unit/test_scenarios.py --snapshot-update, and read the difference.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import ConfigError, UsageError
from containernet_env.config.plan import scenario_hash, select
from containernet_env.config.reader import json_path
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, EVENTS_MAX, QUICK_SCENARIOS, load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.model.disruption import Disruption, Targets, may_hasten, name_of
from containernet_env.model.scenario import ALPHABET, ONE_KEY, Dataset, Keys, Scenario, Span, Warmup, after_prefix
from containernet_env.model.topology import network_of
from containernet_env.results.run_directory import RunDirectory
from tests.unit import blocks
from tests.unit.blocks import DATA, LOAD, OPEN, mixed, reads, txns, writes
from tests.unit.fakes import read
from tests.unit.test_config import comes_back

OPEN_LOOP, FAILOVER = (DEFAULT_SCENARIOS.with_name(f"{name}.json") for name in ("open-loop", "failover"))
DERIVED = ("requests", "scheduled_s", "warmup_s", "keys_answered", "uses_dataset", "first_keys_written")


def told(scenario):
    """What is not as by default, and what follows from it."""
    found = {field.name: getattr(scenario, field.name) for field in fields(scenario) if field.default is MISSING}
    found |= {
        field.name: value for field in fields(scenario) if (value := getattr(scenario, field.name)) != field.default
    }
    return found | {name: getattr(scenario, name) for name in DERIVED}


def file(*blocks, **dataset):
    return {"scenarios": blocks} | ({"dataset": dataset} if dataset else {})


SPAN = {"from": "00000001", "to": "0000001Z"}
LONG_KEYS, SMALL = {"keySize": 9, "valSize": 1}, {"keySize": 2, "valSize": 1}
BURSTS = {"rate": [500, 0.3], "duration": "10s", "warmup": "2s", "clients": 100, "conns": 10}
SEVERAL = OPEN | {"rate": [1, 2], "clients": [3, 4]}
TIMED = {"duration": "1500ms", "clients": [1, 8], "conns": 1, "warmup": "500ms"}
SMALL_DATASET = {"keyPrefix": "d/", "keySize": 3, "valSize": 10, "keys": 100}
ORDERS = ["sequential", "shuffled", "uniform", "zipfian"]
FILES = {
    "lists multiply in the file's order": file(
        writes(load=[LOAD, SEVERAL], data=[DATA, LONG_KEYS], target=["leader", "etcd2"]),
        reads(load=[LOAD, LOAD | {"total": 7}], consistency=["l", "s", "default"]),
    ),
    "open loops": file(
        writes(load=BURSTS, data={"keySize": 8, "valSize": 256}),
        writes(load=LOAD | {"rate": 5, "warmup": 20}),
        writes(load=LOAD | {"rate": 500, "arrival": "poisson", "warmup": 5}, target="etcd2"),
        reads(load=[{"duration": "1s", "clients": 1, "conns": 1}, LOAD | {"warmup": 20}]),
    ),
    "orders of keys": file(
        reads(load=TIMED, target=["cluster", "leader"], keys=["sequential", "zipfian"]),
        mixed(ratio=[0, 0.25], keys="zipfian", zipfExponent=1.2, verify=False),
        writes(load=LOAD | {"timeout": "5s"}, keys=ORDERS, zipfExponent=2, keySpace=7),
        writes(load=OPEN, keys="uniform", keySpace=1000),
        reads(keys="shuffled"),
    ),
    "deadlines": file(writes(load=LOAD | {"stallTimeout": "0s"}), reads(load=LOAD | {"timeout": "20s"}, verify=False)),
    # The measurement's requests are numbered after those of the warm-up: it would overwrite what that wrote.
    "writes of a warm-up have keys of their own": file(
        writes(load=LOAD | {"warmup": 5}, keys=ORDERS[:3]),
        writes(load=LOAD | {"warmup": "1s"}, keys=["sequential", "uniform"]),
        writes(load=LOAD | {"warmup": 5, "seed": 7}, keySpace=10),
        reads(load=LOAD | {"warmup": 5}),
    ),
    "the smallest keys that are all different": file(writes(load=LOAD | {"total": 62**2}, data=SMALL)),
    "spans and transactions": file(
        reads(spanKeys=[1, 10], limit=5, keys=["sequential", "uniform"], verify=False),
        reads(prefix="0000", keysOnly=True),
        reads(span=SPAN, limit=2, countOnly=True),
        reads(keysOnly=True),
        mixed(spanKeys=7),
        txns(target=["leader", "cluster"], keys=["sequential", "zipfian"]),
    ),
    "of a data set with a prefix": file(
        reads(prefix="d/01"),
        reads(span={"from": "d/002", "to": "d/00A"}, limit=3),
        reads(spanKeys=7),
        reads(spanKeys=100, countOnly=True),
        txns(keys="shuffled"),
        writes(),
        **SMALL_DATASET,
    ),
    # A span is verified where nothing is written beside the data set; one key at a time is known by its name.
    "spans beside writes": file(reads(prefix="0000", verify=False), reads(), writes(data=LONG_KEYS)),
    "spans beside transactions": file(reads(spanKeys=5), txns()),
    "spans beside writes elsewhere": file(
        reads(spanKeys=5), reads(prefix="d/"), writes(data=LONG_KEYS), writes(load=LOAD | {"total": 62}), keyPrefix="d/"
    ),
}


@pytest.mark.parametrize("value", FILES.values(), ids=FILES)
def test_what_a_file_says(tmp_path, snapshot, value):
    found = comes_back(tmp_path, value)
    assert {"dataset": found.dataset, "scenarios": [*map(told, found.scenarios)]} == snapshot


@pytest.mark.parametrize("path", [DEFAULT_SCENARIOS, OPEN_LOOP, FAILOVER], ids=["default", "open loop", "failover"])
def test_a_file_that_we_ship(snapshot, path):
    found = load_scenarios(path)
    assert {"dataset": found.dataset, "scenarios": [*map(told, found.scenarios)]} == snapshot


def test_the_quick_matrix_has_every_kind_of_the_default_one():
    def kinds(path):
        names = ("type", "clients", "conns", "key_size", "val_size", "target", "consistency")
        return [[getattr(scenario, name) for name in names] for scenario in load_scenarios(path).scenarios]

    assert kinds(QUICK_SCENARIOS) == kinds(DEFAULT_SCENARIOS)
    assert max(s.total for s in load_scenarios(QUICK_SCENARIOS).scenarios) <= 2000


SEQUENCE = ("read-linearizable-1000x1x1", "read-serializable-1000x1x1")


def test_selecting():
    scenarios = load_scenarios(DEFAULT_SCENARIOS).scenarios
    for only, repeat, chosen in (
        (["read-l*-1000x*", SEQUENCE[0]], 1, [(SEQUENCE[0], 1)]),
        (["read-*-1000x1x1"], 2, [(name, number) for number in (1, 2) for name in SEQUENCE]),
        *(([], 1, 18), (["write"], 1, 12), (["read"], 1, 6), (["*-1000x1x1*"], 1, 6)),
    ):
        found = [(item.scenario.name, item.repetition) for item in select(scenarios, only, repeat=repeat)]
        assert chosen in (found, len(found)), only
    with pytest.raises(UsageError, match=r"no scenario matches wrote\*") as caught:
        select(scenarios, ["read", "wrote*"])
    assert all(scenario.name in str(caught.value) for scenario in scenarios)
    with pytest.raises(UsageError, match="1 or more"):
        select(scenarios, repeat=0)


def scenario(**changes):
    sizes = {"clients": 1, "conns": 1, "key_size": 8, "val_size": 256}
    return Scenario(**({"name": "x", "type": "write", "total": 100, "key_space": 100} | sizes | changes))


OPEN_ENDED = {"total": None, "duration_ns": 10**9, "key_space": None}
LEAVE_IT = {
    "where it was not": [
        *({}, {"total": 200}, {"key_space": 200}, {"total": 200, "key_space": 200, "keys": "shuffled"}),
    ],
    "where it was": [{"key_space": 99}, {"key_size": 4}, OPEN_ENDED, {"type": "mixed"}, {"type": "read"}],
    "nowhere": [
        *({"key_space": 99}, {"key_size": 4}, OPEN_ENDED, {"total": 99}, {"type": "read"}),
        *({"total": 200, "warmup": Warmup(requests=1)}, {"key_space": 200, "keys": "shuffled"}),
        {"total": 10_000, "keys": "uniform"},
    ],
    "no more": [{"val_size": 64}, OPEN_ENDED | {"val_size": 64}, {"total": 10_000, "keys": "zipfian", "val_size": 64}],
}


@pytest.mark.parametrize("where", LEAVE_IT)
def test_which_writes_leave_the_data_set_behind(where):
    before = where in ("where it was", "no more")
    for done in LEAVE_IT[where]:
        assert Dataset(8, 256, 100).present_after(scenario(**done), before) is where.startswith("where"), done
        # With a prefix of its own, writes neither make nor spoil it.
        assert Dataset(8, 256, 100, "d/").present_after(scenario(**done), before) is before
    # Loading it makes it.
    small = Dataset(8, 256, 50)
    assert small.present_after(small.load, False) and small.load.clients <= small.load.total


# --- names of generated keys are the benchmark server's, and spans of them are counted right --------------------------

GO_KEYS = Path(__file__).resolve().parents[2] / "benchmark_image" / "internal" / "keys" / "orders.go"
TEXTS = st.text(ALPHABET + "-/~", min_size=1, max_size=5)


def test_names_of_keys():
    assert re.findall(r'^const alphabet = "(\w+)"$', GO_KEYS.read_text(), re.MULTILINE) == [ALPHABET]
    names = {(0, 1): "0", (61, 1): "z", (0, 8): "00000000", (999, 4): "00G7", (9_999, 8): "000002bH"}
    names |= {(3844, 8): "00000100"}
    assert {key: Keys(key[1], 10_000, "d/").name(key[0]) for key in names} == {k: f"d/{v}" for k, v in names.items()}


@given(st.integers(1, 300), TEXTS, TEXTS, st.sampled_from(["", "0", "d/"]))
def test_keys_within_a_span_are_those_that_sort_so(count, start, end, prefix):
    keys = Keys(2, count, prefix)
    found = keys.within(start, end)
    assert list(found) == [number for number in range(count) if start <= keys.name(number) < end]


@given(TEXTS, TEXTS)
def test_what_comes_after_a_prefix(prefix, text):
    assert (prefix <= text < after_prefix(prefix)) == text.startswith(prefix)


def test_an_answer_holds_what_is_there_up_to_the_limit():
    dataset = Keys(2, 100, "d/")
    for span, keys in (
        (ONE_KEY, 1),
        (Span(keys=7), 7),
        (Span(keys=7, limit=3), 3),
        (Span(keys=1000), 100),
        (Span(prefix="d/0"), 62),
        (Span(prefix="d/1"), 38),
        (Span(prefix="d/1", limit=50), 38),
        (Span(start="d/00", end="d/0A", answer="keys"), 10),
        (Span(start="d/00", end="d/0A", answer="count"), 0),
    ):
        assert span.answered(dataset) == keys, span
    scan = replace(read("r"), total=10, key_space=100, key_size=2, span=Span(keys=99))
    for changes, keys in (
        ({}, 50),
        ({"keys": "zipfian", "warmup": Warmup(5)}, 50),
        ({"span": Span(keys=7)}, 7),
        ({"span": Span(keys=99, limit=20)}, 20),
        ({"span": Span(prefix="d/1"), "key_prefix": "d/"}, 38),
        ({"warmup": Warmup(90)}, 5),  # 1 to 10 keys
        ({"warmup": Warmup(90), "total": 133}, 34),
    ):
        assert replace(scan, **changes).median_keys_answered == keys, changes
    assert Span(keys=5).bounds(dataset) == ("d/00", "d/1b\0")


# --- events -----------------------------------------------------------------------------------------------------------

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


STEADY = {"rate": 100, "duration": "10s", "clients": 10, "conns": 3}
SIZES = {"keySize": 8, "valSize": 8}


def block_of(*events: Any, load: Any = STEADY) -> Any:
    return blocks.writes(load=load, data=SIZES, target="cluster", **({"events": events} if events else {}))


def file_of(folder: Path, *events: Any, load: Any = STEADY) -> Path:
    return blocks.write(folder, {"scenarios": [block_of(*events, load=load)]})


def refusals(path: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        load_scenarios(path)
    return str(refused.value)


KINDS: list[tuple[dict[str, Any], str]] = [
    ({"at": "2s", "kill": "leader", "for": "1s"}, "kill leader at 2s for 1s"),
    ({"at": "2s", "kill": "etcd1"}, "kill etcd1 at 2s"),
    ({"at": "3s", "restart": "killed"}, "restart killed at 3s"),
    ({"every": "5s", "for": "500ms", "freeze": "random"}, "freeze random every 5s for 500ms"),
    ({"at": "5s", "freeze": "followers"}, "freeze followers at 5s"),
    ({"at": "6s", "thaw": "frozen"}, "thaw frozen at 6s"),
    ({"at": "1s", "partition": "random"}, "partition random at 1s"),
    ({"at": "1500ms", "heal": "partitioned"}, "heal partitioned at 1.5s"),
    ({"at": "1s", "link": "down", "of": "followers"}, "link down followers at 1s"),
    ({"at": "2s", "link": "up", "of": "down"}, "link up down at 2s"),
    ({"at": "1s", "delay": "50ms", "of": "leader", "for": "2s"}, "delay 50ms of leader at 1s for 2s"),
    ({"at": "1s", "loss": 0.125, "of": "etcd3"}, "loss 12.5 % of etcd3 at 1s"),
    ({"at": "4s", "rate": 12.5, "of": "leader"}, "rate 12.5 Mbit/s of leader at 4s"),
    ({"at": "5s", "rate": "unlimited", "of": "leader"}, "rate unlimited of leader at 5s"),
]
BY_SITE: list[tuple[dict[str, Any], str]] = [
    ({"at": "1s", "partition": [["eu"], ["us", "etcd4"]], "for": "2s"}, "partition eu | us etcd4 at 1s for 2s"),
    ({"at": "1s", "partition": "eu"}, "partition eu at 1s"),
    ({"at": "2s", "heal": "eu"}, "heal eu at 2s"),
    ({"at": "2s", "freeze": "us"}, "freeze us at 2s"),
    ({"at": "2s", "link": "down", "of": "us-eu"}, "link down us-eu at 2s"),
    ({"at": "3s", "link": "up", "of": "eu-us"}, "link up eu-us at 3s"),
    ({"at": "2s", "delay": "50ms", "of": "eu-us"}, "delay 50ms of eu-us at 2s"),
    ({"at": "2s", "loss": 0.5, "of": "eu>us"}, "loss 50 % of eu>us at 2s"),
    ({"at": "2s", "rate": 5, "of": "asia"}, "rate 5 Mbit/s of asia at 2s"),
]
EVERY_KIND = [given for given, _ in KINDS]
FREEZE = {"at": "5s", "freeze": "followers"}


def test_every_kind_is_read_and_comes_back(tmp_path: Path) -> None:
    (scenario,) = comes_back(tmp_path, file_of(tmp_path, *(given for given, _ in (*KINDS, *BY_SITE)))).scenarios
    assert [event.text for event in scenario.events] == [text for _, text in (*KINDS, *BY_SITE)]


def test_names_say_which_events_and_do_not_grow_for_ever(tmp_path: Path) -> None:
    (scenario,) = load_scenarios(file_of(tmp_path, EVERY_KIND[0], EVERY_KIND[10])).scenarios
    assert scenario.name.endswith("-8B-8B-kill-leader-at2s-for1s-delay50ms-leader-at1s-for2s")
    (scenario,) = load_scenarios(file_of(tmp_path, *EVERY_KIND)).scenarios
    assert scenario.name.endswith(f"-{name_of(scenario.events)}")
    assert name_of(scenario.events).startswith("14events-")
    assert name_of(scenario.events) != name_of(scenario.events[::-1])
    (scenario,) = load_scenarios(file_of(tmp_path, BY_SITE[0][0], BY_SITE[7][0])).scenarios
    assert scenario.name.endswith("-partition-eu_us+etcd4-at1s-for2s-loss50pc-eu_us-at2s")
    # A single event stands for a list of one.
    path = file_of(tmp_path, [])
    path.write_text(path.read_text().replace("[[]]", '{"at": "2s", "kill": "etcd9"}'))
    assert [json_path(place) for place, _ in load_scenarios(path).events] == ["$.scenarios[0].events.kill"]


def test_the_hash_of_a_scenario_has_its_events_and_is_what_it_was_without(tmp_path: Path) -> None:
    def hash_of(*events: Any) -> str:
        found = load_scenarios(file_of(tmp_path, *events))
        return scenario_hash(found.scenarios[0], found.dataset)

    assert hash_of({"at": "2s", "kill": "leader"}) != hash_of() == "9815a8e7b3e3"


AT = {"at": "2s"}
REFUSED: list[dict[str, Any]] = [
    *({"kill": "leader"}, AT | {"every": "3s", "kill": "leader"}, AT, AT | {"kill": "killed!"}, AT | {"kil": "leader"}),
    *(AT | {"delay": "5ms"}, AT | {"kill": "leader", "of": "etcd1"}, AT | {"kill": "leader", "freeze": "leader"}),
    AT | {"link": "left", "of": "etcd1"},
    *(AT | {"link": "down", "of": "down"}, AT | {"link": "up", "of": "leader"}, AT | {"delay": 5, "of": "etcd1"}),
    *(AT | change | {"of": "etcd1"} for change in ({"loss": 1.5}, {"loss": "1%"}, {"rate": 0})),
    *({"at": at, "kill": "leader"} for at in ("100ms", "10s")),
    *({"every": "20s", "kill": "leader"}, {"every": "2s", "for": "2s", "kill": "leader"}),
    *(AT | {"for": "1ms", "kill": "leader"}, AT | {"for": "1s", "restart": "killed"}, AT | {"restart": "killed"}),
    *(AT | {"thaw": "etcd1"}, AT | {"heal": "partitioned"}, AT | {"link": "up", "of": "down"}),
    *(AT | {"partition": sets} for sets in ([], [["eu"]], [["eu"], []], [["eu"], ["leader!"]], ["eu", "us"])),
    *(AT | {"link": "down", "of": pair} for pair in ("eu>", "eu<us")),
]
ONE = {"total": 500, "clients": 1, "conns": 1}
TWO_RATES = ONE | {"rate": [10, 100]}
SEARCH = {"search": {"p99": "50ms"}, "clients": 1, "conns": 1}


def test_what_makes_no_sense_is_refused_at_its_place(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    told = {json.dumps(event): refusals(file_of(tmp_path, event)) for event in REFUSED}
    for load, at in ((TWO_RATES, "5s"), (SEARCH, "5s")):
        told[json.dumps(load)] = refusals(file_of(tmp_path, FREEZE | {"at": at}, load=load))
    assert {event: text.replace(str(tmp_path), "FOLDER") for event, text in told.items()} == snapshot
    sets = {"at": "1s", "partition": [["eu"], ["us"]]}
    assert "sets are kept apart until all of them are healed" in refusals(file_of(tmp_path, sets, AT | {"heal": "eu"}))
    many = [{"at": f"{number}s", "kill": "etcd1"} for number in range(1, EVENTS_MAX + 2)]
    told = r'events: is too long; got 51 entries; allowed: at most 50; one with "every" repeats, and the others can be'
    with pytest.raises(ConfigError, match=told):
        load_scenarios(file_of(tmp_path, *many))
    # The fastest rate decides; or the length is unknown.
    for load, at in ((TWO_RATES, "4.9s"), (ONE, "500s")):
        assert load_scenarios(file_of(tmp_path, FREEZE | {"at": at}, load=load)).scenarios


def planned(folder: Path, topology: Any, *events: Any, **options: Any) -> str:
    """Why a plan is refused; empty where it is not."""
    try:
        blocks.planned(folder, topology, block_of(*events), **options)
    except ConfigError as error:
        return str(error).replace(str(folder), "FOLDER")
    return ""


def topology(members: int = 3, **changes: Any) -> Any:
    node = {"mem": "512m", "cpus": 1, "bandwidth": 100, "link_delay": "3ms"}
    return {"nodes": [node | {"ip": f"10.0.0.{251 + number}"} for number in range(members)], **changes}


JITTER = topology()
JITTER["nodes"][1]["link"] = {"jitter": {"distribution": "uniform", "value": "2ms"}}
DELAY = {"at": "2s", "delay": "1ms", "of": "random"}
LOSS = {"at": "2s", "loss": 0.1, "of": "etcd2"}


CANNOT: list[tuple[Any, Any, Any]] = [
    (topology(), {"at": "2s", "kill": "etcd4"}, {}),
    (topology(etcd={"data": "tmpfs"}), {"at": "2s", "kill": "leader"}, {}),
    *((topology(1), {"at": "2s"} | event, {}) for event in ({"freeze": "followers"}, {"partition": "leader"})),
    (topology(), LOSS, {"links": "netem"}),
    (JITTER, DELAY, {}),
]


def test_what_a_topology_cannot_do_is_refused_at_its_place(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    assert [planned(tmp_path, config, event, **options) for config, event, options in CANNOT] == snapshot
    for config, events in (
        (topology(), EVERY_KIND),
        (topology(etcd={"data": "tmpfs"}), [FREEZE]),
        (topology(1), [{"at": "2s", "kill": "leader"}]),
        (JITTER, [DELAY | {"of": "etcd1"}]),
    ):
        assert not planned(tmp_path, config, *events)


SITES: dict[str, Any] = {
    "rtt": {"eu-us": {"delay": "40ms", "jitter": {"distribution": "uniform", "value": "2ms"}}, "us-asia": "80ms"},
    "nodes": [{"mem": "64m", "cpus": 1, "site": site} for site in ("eu", "eu", "us", "asia")],
    "sites": {"sea": {"rtt": "0s"}},
    "client": {"site": "sea"},
}
SITES["rtt"] |= {"sea-asia": "10ms"}
BY_NAME: list[dict[str, Any]] = [
    *({"kill": name} for name in ("sea", "mars", "eu-us")),
    *({"partition": sets} for sets in ([["eu"], ["us", "mars"]], [["eu"], ["us", "etcd2"]])),
    *({"link": "down", "of": pair} for pair in ("eu-asia", "eu>us")),
    *({"delay": "50ms", "of": "eu>asia"}, {"delay": "1ms", "of": "us-eu"}),
]


def test_names_of_sites_and_pairs_are_refused_where_there_are_none(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    assert [planned(tmp_path, SITES, {"at": "2s"} | event) for event in BY_NAME] == snapshot
    for event, _ in BY_SITE:
        begun = {"heal": [BY_SITE[1][0]], "link": [BY_SITE[4][0]]}.get(
            next((k for k in event if k in ("heal", "link")), "")
        )
        assert not planned(tmp_path, SITES, *(begun or []), event)
    assert not planned(tmp_path, SITES, {"at": "2s", "delay": "1ms", "of": "asia-us"})
    one_site = {"nodes": [{"mem": "64m", "cpus": 1, "site": "eu", "count": 3}]}
    assert "has no other member to be partitioned from" in planned(tmp_path, one_site, {"at": "2s", "partition": "eu"})
    named = SITES | {"nodes": [*SITES["nodes"], {"mem": "64m", "cpus": 1, "site": "eu", "name": "us-eu"}]}
    text = planned(tmp_path, named, {"at": "2s", "link": "down", "of": "us-eu"})
    assert "us-eu is also the name of a node, site or link of" in text


def test_a_run_without_events_has_no_picture_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = RunDirectory(tmp_path / "out.csv", "run")
    directory.add_event("run_began", "it began")
    monkeypatch.setattr(sys, "argv", ["plot_failover.py", str(directory.path), str(tmp_path / "picture.png")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(CONFIGS.parent / "docs" / "plot_failover.py"), run_name="__main__")
    said = f"{directory.path} has no scenario with events that left a result (docs/events.md)"
    assert str(ended.value) == said


def test_links_that_are_down_may_hasten_frames_where_they_take_other_ways(tmp_path: Path) -> None:
    sites = {"nodes": [{"site": name, "mem": "512m", "cpus": 1} for name in ("a", "b", "c")], "client": {"site": "a"}}
    sites |= {"rtt": {"a-b": "40ms", "b-c": "37ms", "a>c": "100ms", "c>a": "90ms"}}
    for reroute in (False, True):
        path = tmp_path / f"{reroute}.json"
        path.write_text(json.dumps(sites | {"reroute": reroute}))
        network, targets = network_of(load_config(path)), Targets.of(load_config(path))
        down = Disruption(verb="link_down", target="a-c", at_ns=1)
        assert may_hasten([down], network, targets) is reroute
        for value_ms, hastens in ((99, True), (101, False)):  # of one direction alone
            delay = Disruption(verb="delay", target="a>c", at_ns=1, value=value_ms * 1_000_000)
            assert may_hasten([delay], network, targets) is hastens
