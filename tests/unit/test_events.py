"""Events in scenario files: what is taken, what is refused and where, and what comes back when it is written."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import ConfigError
from containernet_env.config.plan import scenario_hash
from containernet_env.config.reader import json_path
from containernet_env.config.scenarios import EVENTS_MAX, load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.model.disruption import Disruption, Targets, may_hasten, name_of
from containernet_env.model.topology import network_of
from containernet_env.results.run_directory import RunDirectory
from tests.unit import blocks
from tests.unit.test_config import comes_back

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


LOAD = {"rate": 100, "duration": "10s", "clients": 10, "conns": 3}
SIZES = {"keySize": 8, "valSize": 8}


def block_of(*events: Any, load: Any = LOAD) -> Any:
    return blocks.writes(load=load, data=SIZES, target="cluster", **({"events": events} if events else {}))


def file_of(folder: Path, *events: Any, load: Any = LOAD) -> Path:
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
SEVERAL = ONE | {"rate": [10, 100]}
SEARCH = {"search": {"p99": "50ms"}, "clients": 1, "conns": 1}


def test_what_makes_no_sense_is_refused_at_its_place(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    told = {json.dumps(event): refusals(file_of(tmp_path, event)) for event in REFUSED}
    for load, at in ((SEVERAL, "5s"), (SEARCH, "5s")):
        told[json.dumps(load)] = refusals(file_of(tmp_path, FREEZE | {"at": at}, load=load))
    assert {event: text.replace(str(tmp_path), "FOLDER") for event, text in told.items()} == snapshot
    sets = {"at": "1s", "partition": [["eu"], ["us"]]}
    assert "sets are kept apart until all of them are healed" in refusals(file_of(tmp_path, sets, AT | {"heal": "eu"}))
    many = [{"at": f"{number}s", "kill": "etcd1"} for number in range(1, EVENTS_MAX + 2)]
    told = r'events: is too long; got 51 entries; allowed: at most 50; one with "every" repeats, and the others can be'
    with pytest.raises(ConfigError, match=told):
        load_scenarios(file_of(tmp_path, *many))
    # The fastest rate decides; or the length is unknown.
    for load, at in ((SEVERAL, "4.9s"), (ONE, "500s")):
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


def test_the_failover_preset_is_what_its_document_says() -> None:
    found = load_scenarios(CONFIGS / "scenarios" / "failover.json")
    assert found.dataset.keys == 50
    facts = [
        (one.rate, one.put_ratio, one.consistency, one.target, one.history, one.events[0].verb, one.events[0].target)
        for one in found.scenarios
    ]
    assert facts == [(500, 0.5, "l", "cluster", True, verb, "leader") for verb in ("kill", "freeze", "partition")]


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
