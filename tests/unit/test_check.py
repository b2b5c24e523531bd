"""`check`: what it prints, and the JSON Schemas of what it takes."""

from __future__ import annotations

import json
import os
import re
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from rich.console import Console

from containernet_env.cli.render import render_plan, render_summary
from containernet_env.config.plan import PlanOptions
from containernet_env.config.planning import build_plan
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.config.writer import schema_of
from containernet_env.results import capacity
from containernet_env.runs import machine
from tests.unit.blocks import reads, write
from tests.unit.commands import answer, check_file
from tests.unit.test_capacity import known

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.json"))
SCHEMAS = {kind: ROOT / "docs" / f"{kind}.schema.json" for kind in ("config", "scenarios", "sweep")}


def node(number, **changes):
    made = {"ip": f"10.0.0.{number}", "mem": "64m", "cpus": 1, "bandwidth": 10, "link_delay": f"{number % 3}ms"}
    return made | changes


@pytest.fixture(autouse=True)
def same_machine(monkeypatch):
    """What is printed of this machine is the same everywhere."""
    monkeypatch.setattr(capacity, "read", lambda key: (known(), None))
    monkeypatch.setattr(machine, "cpu_model", lambda: "Some CPU")
    monkeypatch.setattr(machine, "memory_bytes", lambda: 24 << 30)
    monkeypatch.setattr(machine, "memory_available_bytes", lambda: 20 << 30)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def test_shipped_configs_are_shown(snapshot):
    assert {path.name: answer("check", path) for path in CONFIGS} == snapshot


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
    scenarios.write_text(json.dumps({"scenarios": [reads()]}))
    assert "1 scenario from" in answer("check", config)
    (tmp_path / "other.json").write_text("{}")
    assert answer("check", config, "--scenarios", tmp_path / "other.json").startswith("exit status 2\n")


def test_many_hosts_are_summed_up_instead_of_a_wide_matrix(tmp_path):
    path = tmp_path / "many.json"
    path.write_text(json.dumps([node(number) for number in range(1, 41)]))
    lines = answer("check", path, path=path).splitlines()
    assert max(map(len, lines)) < 120
    assert sum(int(line.split()[1]) for line in lines if " - " in line) == 41 * 40 // 2
    nodes = [{"site": site, "count": 20, "mem": "64m", "cpus": 1, "bandwidth": "unlimited"} for site in ("eu", "us")]
    path.write_text(json.dumps({"nodes": nodes, "rtt": {"eu>us": "40ms", "us>eu": "35ms"}}))
    lines = [line.split() for line in answer("check", path, path=path).splitlines()]
    assert ["eu", "us", "75.000", "40.000", "35.000"] in lines


def test_of_many_paths_the_first_are_shown_and_the_others_counted(tmp_path):
    names = [f"s{number}" for number in range(62)]
    links = dict.fromkeys((f"{a}-{b}" for a, b in pairwise([*names, names[0]])), "1ms")
    node = {"switch": "s0", "mem": "64m", "cpus": 1, "bandwidth": "unlimited", "link_delay": "0s"}
    path = tmp_path / "ring.json"
    path.write_text(json.dumps({"switches": names, "links": links, "reroute": True, "nodes": [node]}))
    _, shown = answer("check", path, path=path).split("Paths between switches")
    first, down = shown.split("while a link is down")
    assert re.search(r"\n  and \d{4} more\n", first) and "\n  and 2 more\n" in down


def test_a_plan_fits_a_narrow_terminal():
    for path in CONFIGS:
        output = StringIO()
        console = Console(file=output, width=80, highlight=False)
        plan = build_plan(load_config(path), load_scenarios(DEFAULT_SCENARIOS), PlanOptions(2, run_id="0a1b2c"))
        render_plan(plan, console)
        render_summary(plan, console)
        text = output.getvalue()
        assert "…" not in text and "\n\n\n" not in text, path
        names = [item.scheduled.scenario.name for item in plan.scenarios]
        clients = [f"cnenv-0a1b2c-{client.name}" for client in plan.config.clients]
        assert all(words in text for words in (*clients, "--heartbeat-interval=", *names)), path


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_schema_is_current_and_describes_every_key_with_defaults_that_a_file_could_have(kind, snapshot):
    check_file(SCHEMAS[kind], answer("schema", kind).removeprefix("exit status 0\n"), snapshot)
    schema = schema_of(kind)
    Draft202012Validator.check_schema(schema)
    models = (schema, *schema["$defs"].values())
    members = [member for model in models for member in model.get("properties", {}).values()]
    assert all(member.get("description") for member in members)
    defaults = [member for member in members if "default" in member]
    assert len(defaults) > 2 or kind == "sweep"
    assert all(Draft202012Validator(member).is_valid(member["default"]) for member in defaults)


def test_the_examples_in_the_documentation_are_good(tmp_path):
    def examples(document):
        page = (ROOT / "docs" / document).read_text()
        for text in re.findall(r"^```json\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
            yield write(tmp_path, text)

    def plan(config, scenarios=None):
        return build_plan(load_config(config), scenarios and load_scenarios(scenarios), PlanOptions(2))

    assert len([plan(path) for path in examples("config.md")]) == 5
    counts = []
    for path in examples("scenarios.md"):
        of_several = '"clients": {' in path.read_text()
        shipped = "5regions-5clients.json" if of_several else "3node.json"
        counts.append(len(plan(ROOT / "configs" / shipped, path).scenarios))
    assert sorted(counts) == [1, 2, 7, 10, 12]
