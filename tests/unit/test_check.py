"""`check`: what it prints, and the JSON Schemas of what it takes."""

from __future__ import annotations

import json
import os
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from containernet_env.cli.render import render_plan, render_summary
from containernet_env.config import load_config
from containernet_env.config.export import schema_of
from containernet_env.config.meanings import MEANINGS
from containernet_env.config.reader import read_document
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, load_scenarios
from containernet_env.plan.build import build_plan
from containernet_env.plan.plan import PlanOptions
from containernet_env.results import machine_costs
from containernet_env.runs import machine
from tests.unit.commands import answer
from tests.unit.cost_samples import known
from tests.unit.generated import check_file

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.json"))
SCENARIOS = sorted((ROOT / "configs" / "scenarios").glob("*.json"))
OPTIONS = PlanOptions(machine_cores=2)
SCHEMAS = {
    "config": ROOT / "docs" / "config.schema.json",
    "scenarios": ROOT / "docs" / "scenarios.schema.json",
    "sweep": ROOT / "docs" / "sweep.schema.json",
}


def examples(document):
    """The JSON examples of a page of the documentation."""
    return re.findall(r"^```json\n(.*?)^```", (ROOT / "docs" / document).read_text(), re.DOTALL | re.MULTILINE)


def node(number, **changes):
    made = {"ip": f"10.0.0.{number}", "mem": "64m", "cpus": 1, "bandwidth": 10, "link_delay": f"{number % 3}ms"}
    return made | changes


@pytest.fixture(autouse=True)
def same_machine(monkeypatch):
    """What is printed of this machine is the same everywhere."""
    monkeypatch.setattr(machine_costs, "read", lambda key: (known(), None))
    monkeypatch.setattr(machine, "cpu_model", lambda: "Some CPU")
    monkeypatch.setattr(machine, "memory_bytes", lambda: 24 << 30)
    monkeypatch.setattr(machine, "memory_available_bytes", lambda: 20 << 30)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def test_shipped_configs_are_shown(snapshot):
    told = {path.name: answer("check", path) for path in CONFIGS}
    for path in CONFIGS:
        for host in load_config(path).hosts:
            assert f"  {host.name} " in told[path.name] and str(host.ip) in told[path.name]
    assert told == snapshot


LINKS = {
    "to_switch": {"delay": "30ms", "bandwidth": 10, "jitter": {"distribution": "normal", "value": "1ms"}, "seed": 7},
    "from_switch": {"delay": "15ms", "bandwidth": "unlimited", "loss": 0.015},
}


def test_links_are_shown_where_they_are_more_than_a_host_has(tmp_path, snapshot):
    """etcd1 to etcd2: no delay of etcd1's, 15 + 30 ms there and back, a probe at 10 Mbit/s three times: 45.235 ms.

    A probe of 98 bytes and 24 of overhead at 10 Mbit/s, there and back: 0.195 ms.
    """
    path = tmp_path / "config.json"
    asymmetric = {"ip": "10.0.0.9", "mem": "64m", "cpus": 1, "link": LINKS}
    overhead = node(9, link_delay="0ms", link={"overhead": 24, "uplink": "network"})
    told = []
    for nodes, rtt_ms in (([node(3), asymmetric], "45.235"), ([overhead], "0.195")):
        path.write_text(json.dumps({"nodes": nodes}))
        told.append(answer("check", path, folder=tmp_path))
        assert rtt_ms in told[-1]
    assert told == snapshot


def test_a_scenario_file_is_checked_too(tmp_path):
    config, scenarios = tmp_path / "config.json", tmp_path / "mine.json"
    config.write_text(json.dumps({"nodes": [node(1)], "scenarios": "mine.json"}))
    assert answer("check", config).startswith(f"exit status 2\nError: {scenarios} is refused:\n")
    scenarios.write_text(
        '{"scenarios": [{"type": "read", "load": {"total": 5, "clients": 1, "conns": 1}, "consistency": "s"}]}'
    )
    assert "1 scenario from" in answer("check", config)
    (tmp_path / "other.json").write_text("{}")
    assert answer("check", config, "--scenarios", tmp_path / "other.json").startswith("exit status 2\n")


def test_many_hosts_are_summed_up_instead_of_a_wide_matrix(tmp_path):
    path = tmp_path / "many.json"
    path.write_text(json.dumps([node(number) for number in range(1, 41)]))
    lines = answer("check", path, path=path).splitlines()
    assert max(map(len, lines)) < 120
    assert sum(int(line.split()[1]) for line in lines if " - " in line) == 41 * 40 // 2


@pytest.mark.parametrize("width", [80, 120])
def test_a_plan_fits_the_terminal(width):
    for path in CONFIGS:
        output = StringIO()
        console = Console(file=output, width=width, highlight=False)
        options = PlanOptions(machine_cores=2, run_id="0a1b2c")
        plan = build_plan(load_config(path), load_scenarios(DEFAULT_SCENARIOS), options)
        render_plan(plan, console)
        render_summary(plan, console)
        text = output.getvalue()
        assert "…" not in text and "\n\n\n" not in text, path
        names = [item.scheduled.scenario.name for item in plan.scenarios]
        for expected in ("cnenv-0a1b2c-benchmark", "--heartbeat-interval=", *names):
            assert expected in text, path


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_exported_schema_is_current(kind, snapshot):
    check_file(SCHEMAS[kind], answer("schema", kind).removeprefix("exit status 0\n"), snapshot)


def test_editors_get_a_description_of_every_key():
    used = set()
    for kind in SCHEMAS:
        schema = schema_of(kind)
        for model, value in {"": schema, **schema.get("$defs", {})}.items():
            for key, member in value.get("properties", {}).items():
                if kind == "sweep":  # it has its own beside each key
                    assert member["description"], key
                    continue
                name = f"{model}.{key}" if f"{model}.{key}" in MEANINGS else key
                assert "meaning" not in member
                if name in MEANINGS:
                    used.add(name)
                    assert member["description"].startswith(MEANINGS[name]), name
                else:
                    assert model in ("RawLoad", "RawSearch") and member["description"], name
    assert used == set(MEANINGS)
    node = schema_of("config")["$defs"]["RawNode"]["properties"]
    assert node["ip"]["description"] == "IPv4 address of the host: an IPv4 address such as 10.0.0.251"


@pytest.mark.parametrize("kind", ["config", "scenarios"])
def test_defaults_in_a_schema_are_what_a_file_could_say(kind):
    jsonschema = pytest.importorskip("jsonschema")
    found = 0
    for model in schema_of(kind)["$defs"].values():
        for name, value in model["properties"].items():
            if "default" in value:
                found += 1
                assert jsonschema.Draft202012Validator(value).is_valid(value["default"]), name
    assert found > 2


def test_the_schemas_accept_what_we_ship_and_refuse_what_we_refuse():
    jsonschema = pytest.importorskip("jsonschema")
    for kind, paths in (("config", CONFIGS), ("scenarios", SCENARIOS)):
        validator = jsonschema.Draft202012Validator(schema_of(kind))
        validator.check_schema(schema_of(kind))
        for path in paths:
            document = json.loads(json.dumps(read_document(path).value, default=float))
            assert list(validator.iter_errors(document)) == [], path
    config = jsonschema.Draft202012Validator(schema_of("config"))
    good = node(1) | {"cpus": "unlimited", "mem": "1.5g", "bandwidth": 0.5}
    assert config.is_valid([good])
    for key, value in [("mem", "512"), ("cpus", True), ("bandwidth", 0), ("link_delay", 3), ("ip", 5), ("extra", 1)]:
        assert not config.is_valid([good | {key: value}]), key
    scenarios = jsonschema.Draft202012Validator(schema_of("scenarios"))
    load = {"total": 5, "rate": [1, 2.5], "arrival": "poisson", "clients": 1, "conns": 1, "warmup": "1s"}
    block = {"type": "read", "load": load, "consistency": "s", "target": "etcd1", "keys": "zipfian", "verify": True}
    assert scenarios.is_valid({"scenarios": [block]})
    for wrong in (
        {"load": load | {"duration": "1s"}},
        {"load": {"clients": 1, "conns": 1}},
        {"load": {"total": 5, "arrival": "poisson", "clients": 1, "conns": 1}},
        {"keys": "zipf"},
        {"type": "mixed"},
        {"ratio": 0.5},
    ):
        assert not scenarios.is_valid({"scenarios": [block | wrong]}), wrong
    closed = {"type": "read", "load": {"total": 5, "clients": 1, "conns": 1}, "consistency": "s"}
    span = {"from": "a", "to": "b"}
    for more, valid in (
        ({"prefix": "data/", "limit": 5, "keysOnly": True}, True),
        ({"span": span, "countOnly": True}, True),
        ({"spanKeys": [1, 10], "limit": 5, "keys": "uniform"}, True),
        ({"type": "txn"}, False),
        ({"limit": 5}, False),
        ({"prefix": "*"}, False),
        ({"prefix": "a", "span": span}, False),
        ({"prefix": "a", "spanKeys": 5}, False),
        ({"span": span, "spanKeys": 5}, False),
        ({"span": span, "keys": "uniform"}, False),
        ({"span": {"from": "a"}}, False),
    ):
        assert scenarios.is_valid({"scenarios": [closed | more]}) is valid, more
    assert scenarios.is_valid({"dataset": {"keyPrefix": "d/"}, "scenarios": [{"type": "txn", "load": load}]})
    assert not config.is_valid({"nodes": []})
    plain = {key: good[key] for key in ("ip", "mem", "cpus")}
    links = [
        ({"delay": "3ms", "bandwidth": 5, "loss": 0.5, "queue": 5}, True),
        ({side: {"delay": "3ms", "bandwidth": 5, "queue": "5k"} for side in ("to_switch", "from_switch")}, True),
        ({"delay": "3ms", "bandwidth": 5, "jitter": {"distribution": "normal", "value": "1us"}}, True),
        ({"delay": "3ms", "bandwidth": 5, "jitter": {"distribution": "normal"}}, False),
        ({"delay": "3ms", "bandwidth": 5, "loss": "1%"}, False),
        ({"delay": "3ms", "bandwidth": 5, "to_switch": {}}, False),
        ({"to_switch": {"delay": "3ms", "bandwidth": 5}}, False),
        ({"delay": "3ms"}, False),
    ]
    for link, valid in links:
        assert config.is_valid({"nodes": [plain | {"link": link}]}) is valid, link
    assert not config.is_valid([good | {"link": {}}])
    assert not config.is_valid({"nodes": [good], "client": None})


def test_the_examples_in_the_documentation_are_good(tmp_path):
    path = tmp_path / "example.json"
    for example in examples("config.md"):
        path.write_text(example)
        build_plan(load_config(path), None, PlanOptions(machine_cores=2))
    for example in examples("scenarios.md"):
        path.write_text(example)
        plan = build_plan(load_config(ROOT / "configs" / "3node.json"), load_scenarios(path), OPTIONS)
        assert len(plan.scenarios) in (1, 7, 10, 12)
    assert len(examples("config.md")) == 3
    assert len(examples("scenarios.md")) == 4
