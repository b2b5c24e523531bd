"""Events in scenario files: what is taken, what is refused and where, and what comes back when it is written."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import ConfigError
from containernet_env.config.plan import PlanOptions, scenario_hash
from containernet_env.config.planning import build_plan
from containernet_env.config.reader import json_path
from containernet_env.config.scenarios import EVENTS_MAX, load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.config.writer import scenarios_text
from containernet_env.model.disruption import name_of
from containernet_env.results.run_directory import RunDirectory

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
FAILOVER = CONFIGS / "scenarios" / "failover.json"
LOAD = {"rate": 100, "duration": "10s", "clients": 10, "conns": 3}


def file_of(folder: Path, *events: Any, load: Any = LOAD) -> Path:
    path = folder / "events.json"
    block = {"type": "write", "load": load, "data": {"keySize": 8, "valSize": 8}, "target": "cluster"}
    path.write_text(json.dumps({"scenarios": [block | ({"events": list(events)} if events else {})]}))
    return path


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
EVERY_KIND = [given for given, _ in KINDS]
FREEZE = {"at": "5s", "freeze": "followers"}


def test_every_kind_is_read_and_comes_back(tmp_path: Path) -> None:
    found = load_scenarios(file_of(tmp_path, *EVERY_KIND))
    (scenario,) = found.scenarios
    assert [event.text for event in scenario.events] == [text for _, text in KINDS]
    (tmp_path / "again.json").write_text(scenarios_text(found.dataset, found.scenarios))
    assert load_scenarios(tmp_path / "again.json").scenarios == found.scenarios


def test_names_say_which_events_and_do_not_grow_for_ever(tmp_path: Path) -> None:
    (scenario,) = load_scenarios(file_of(tmp_path, EVERY_KIND[0], EVERY_KIND[10])).scenarios
    assert scenario.name.endswith("-8B-8B-kill-leader-at2s-for1s-delay50ms-leader-at1s-for2s")
    (scenario,) = load_scenarios(file_of(tmp_path, *EVERY_KIND)).scenarios
    assert scenario.name.endswith(f"-{name_of(scenario.events)}")
    assert name_of(scenario.events).startswith("14events-")
    assert name_of(scenario.events) != name_of(scenario.events[::-1])
    # A single event stands for a list of one.
    path = file_of(tmp_path, [])
    path.write_text(path.read_text().replace("[[]]", '{"at": "2s", "kill": "etcd9"}'))
    assert [json_path(place) for place, _ in load_scenarios(path).events] == ["$.scenarios[0].events.kill"]


def test_the_hash_of_a_scenario_has_its_events_and_is_what_it_was_without(tmp_path: Path) -> None:
    def hash_of(*events: Any) -> str:
        found = load_scenarios(file_of(tmp_path, *events))
        return scenario_hash(found.scenarios[0], found.dataset)

    assert hash_of({"at": "2s", "kill": "leader"}) != hash_of() == "9815a8e7b3e3"


REFUSED = [
    ({"kill": "leader"}, "at: is missing", "at, a time after the start of the load, or every"),
    ({"at": "2s", "every": "3s", "kill": "leader"}, "every: is given beside at", "either at or every"),
    ({"at": "2s"}, "events[0]: does nothing", "one of the keys kill, restart"),
    ({"at": "2s", "kill": "leader", "freeze": "leader"}, "freeze: is given beside kill", "one action"),
    ({"at": "2s", "kill": "killed!"}, "kill: is not a node's name", '"leader", "followers", "random"'),
    ({"at": "2s", "kil": "leader"}, 'kil: is not a known key, did you mean "kill"?', "the keys at, every"),
    ({"at": "2s", "delay": "5ms"}, "of: is missing", "whose link"),
    ({"at": "2s", "kill": "leader", "of": "etcd1"}, "of: is given beside kill", "only beside link, delay"),
    ({"at": "2s", "link": "left", "of": "etcd1"}, "link: is not one of the choices", '"down" or "up"'),
    ({"at": "2s", "link": "down", "of": "down"}, "of: is given without link up", "leader, followers, random"),
    ({"at": "2s", "link": "up", "of": "leader"}, "of: is not known to be down", '"down"'),
    ({"at": "2s", "delay": 5, "of": "etcd1"}, "delay: is not a delay", "3ms"),
    ({"at": "2s", "loss": 1.5, "of": "etcd1"}, "loss: is out of range", "from 0 to 1"),
    ({"at": "2s", "loss": "1%", "of": "etcd1"}, "loss: is not a number", "0.01"),
    ({"at": "2s", "rate": 0, "of": "etcd1"}, "rate: is out of range", "0.01 to 100000"),
    ({"at": "100ms", "kill": "leader"}, "at: is out of range", "from 200ms"),
    ({"at": "10s", "kill": "leader"}, "at: is not before the end of the load", "less than the load takes, 10s"),
    ({"every": "20s", "kill": "leader"}, "every: is not before the end of the load", "10s"),
    ({"every": "2s", "for": "2s", "kill": "leader"}, "for: is not over when it comes again", "less than every, 2s"),
    ({"at": "2s", "for": "1ms", "kill": "leader"}, "for: is out of range", "from 10ms"),
    ({"at": "2s", "for": "1s", "restart": "killed"}, "for: is given for what ends something", "not beside restart"),
    ({"at": "2s", "restart": "killed"}, "restart: ends what no event begins", "beside an event that does: kill"),
    ({"at": "2s", "thaw": "etcd1"}, "thaw: ends what no event begins", "freeze"),
    ({"at": "2s", "heal": "partitioned"}, "heal: ends what no event begins", "partition"),
    ({"at": "2s", "link": "up", "of": "down"}, "of: ends what no event begins", "link down"),
]


ONE = {"total": 500, "clients": 1, "conns": 1}
AFTER: list[tuple[Any, str, str]] = [
    (ONE | {"rate": [10, 100]}, "5s", "less than the load takes, 5s"),  # the fastest one
    (ONE | {"rate": [10, 100]}, "4.9s", ""),
    (ONE, "500s", ""),  # unknown length
    ({"search": {"p99": "50ms"}, "clients": 1, "conns": 1}, "5s", "would spoil the probes of a search"),
]


@pytest.mark.parametrize(
    ("load", "event", "message", "allowed"),
    [
        *((LOAD, event, f"$.scenarios[0].events[0]|{message}", allowed) for event, message, allowed in REFUSED),
        *((load, FREEZE | {"at": at}, said and "$.scenarios[0].events", said) for load, at, said in AFTER),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_place(
    tmp_path: Path, load: Any, event: Any, message: str, allowed: str
) -> None:
    path = file_of(tmp_path, event, load=load)
    if not allowed:
        assert load_scenarios(path).scenarios
        return
    text = refusals(path)
    assert allowed in text and all(part in text for part in message.split("|"))


def test_more_events_than_a_scenario_takes_are_answered_with_what_to_do(tmp_path: Path) -> None:
    many = [{"at": f"{number}s", "kill": "etcd1"} for number in range(1, EVENTS_MAX + 2)]
    told = r'events: is too long; got 51 entries; allowed: at most 50; one with "every" repeats, and the others can be'
    with pytest.raises(ConfigError, match=told):
        load_scenarios(file_of(tmp_path, *many))


def planned(folder: Path, topology: Any, *events: Any, **options: Any) -> str:
    """Why a plan is refused; empty where it is not."""
    (folder / "topology.json").write_text(json.dumps(topology))
    found = load_scenarios(file_of(folder, *events))
    try:
        build_plan(load_config(folder / "topology.json"), found, PlanOptions(machine_cores=2, **options))
    except ConfigError as error:
        return str(error)
    return ""


def topology(members: int = 3, **changes: Any) -> Any:
    node = {"mem": "512m", "cpus": 1, "bandwidth": 100, "link_delay": "3ms"}
    return {"nodes": [node | {"ip": f"10.0.0.{251 + number}"} for number in range(members)], **changes}


JITTER = topology()
JITTER["nodes"][1]["link"] = {"jitter": {"distribution": "uniform", "value": "2ms"}}
DELAY = {"at": "2s", "delay": "1ms", "of": "random"}
LOSS = {"at": "2s", "loss": 0.1, "of": "etcd2"}


@pytest.mark.parametrize(
    ("config", "event", "options", "message"),
    [
        (topology(), {"at": "2s", "kill": "etcd4"}, {}, "is not a member of"),
        (topology(etcd={"data": "tmpfs"}), {"at": "2s", "kill": "leader"}, {}, "lose its data, which is on tmpfs"),
        (topology(1), {"at": "2s", "freeze": "followers"}, {}, "does not exist"),
        (topology(1), {"at": "2s", "partition": "leader"}, {}, "has no other member to be partitioned from"),
        (topology(), LOSS, {"links": "netem"}, "loss with a bandwidth"),
        (JITTER, DELAY, {}, "is impossible on the link of etcd2"),
        (JITTER, DELAY, {}, "negative"),
    ],
)
def test_what_a_topology_cannot_do_is_refused_at_its_place(
    tmp_path: Path, config: Any, event: Any, options: Any, message: str
) -> None:
    text = planned(tmp_path, config, event, **options)
    assert message in text and "events.json" in text and "$.scenarios[0].events[0]" in text and "line 1" in text


def test_events_that_can_be_carried_out_are_planned(tmp_path: Path) -> None:
    assert not planned(tmp_path, topology(), *EVERY_KIND)
    assert not planned(tmp_path, topology(etcd={"data": "tmpfs"}), FREEZE)
    assert not planned(tmp_path, topology(1), {"at": "2s", "kill": "leader"})
    assert not planned(tmp_path, JITTER, DELAY | {"of": "etcd1"})


def test_the_failover_preset_is_what_its_document_says() -> None:
    found = load_scenarios(FAILOVER)
    assert found.dataset.keys == 50
    assert [scenario.events[0].verb for scenario in found.scenarios] == ["kill", "freeze", "partition"]
    for scenario in found.scenarios:
        assert (scenario.rate, scenario.put_ratio, scenario.consistency, scenario.target) == (500, 0.5, "l", "cluster")
        assert scenario.events[0].target == "leader"
        assert scenario.history, "containernet-env verify has nothing to judge"
    build_plan(load_config(CONFIGS / "3node-3ms.json"), found, PlanOptions(machine_cores=2))


def test_a_run_without_events_has_no_picture_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = RunDirectory(tmp_path / "out.csv", "run")
    directory.add_event("run_began", "it began")
    monkeypatch.setattr(sys, "argv", ["plot_failover.py", str(directory.path), str(tmp_path / "picture.png")])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(CONFIGS.parent / "docs" / "plot_failover.py"), run_name="__main__")
    said = f"{directory.path} has no scenario with events that left a result (docs/events.md)"
    assert str(ended.value) == said
