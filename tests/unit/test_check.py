from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from containernet_env.base.errors import ConfigError
from containernet_env.cli import check, schema
from containernet_env.cli.render import render_plan, render_summary
from containernet_env.config import load_config
from containernet_env.config.export import schema_of
from containernet_env.config.meanings import MEANINGS
from containernet_env.config.reader import read_document
from containernet_env.config.scenarios import DEFAULT_SCENARIOS, load_scenarios
from containernet_env.plan.build import build_plan
from containernet_env.plan.plan import PlanOptions

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


def run(*arguments):
    return CliRunner().invoke(check.command, [str(argument) for argument in arguments])


def node(number):
    return {"ip": f"10.0.0.{number}", "mem": "64m", "cpus": 1, "bandwidth": 10, "link_delay": f"{number % 3}ms"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_good_configs_are_shown(path):
    result = run(path)
    assert result.exit_code == 0, result.output
    for host in load_config(path).hosts:
        assert f"  {host.name} " in result.output
        assert str(host.ip) in result.output
    assert "Expected RTT in ms" in result.output


def test_the_rtt_matrix_shows_client_and_member_rtt():
    lines = run(ROOT / "configs" / "3node-3ms.json").output.splitlines()
    assert "  etcd1  12.003  12.003      6.002" in lines


LINKS = {
    "to_switch": {"delay": "30ms", "bandwidth": 10, "jitter": {"distribution": "normal", "value": "1ms"}, "seed": 7},
    "from_switch": {"delay": "15ms", "bandwidth": "unlimited", "loss": 0.015},
}


def test_links_that_differ_in_their_directions_are_shown(tmp_path):
    path = tmp_path / "config.json"
    asymmetric = {"ip": "10.0.0.9", "mem": "64m", "cpus": 1, "link": LINKS}
    path.write_text(json.dumps({"nodes": [node(3), asymmetric]}))
    lines = [" ".join(line.split()) for line in run(path).output.splitlines()]
    assert "etcd2 10.0.0.9 1 64 MiB see Links see Links" in lines
    assert "from to delay bandwidth jitter loss queue seed" in lines
    assert "etcd2 s1 30ms 10 Mbit/s normal 1ms - 207 frames 7" in lines
    assert "s1 etcd2 15ms unlimited - 1.5% - -" in lines
    # etcd1 to etcd2: no delay of etcd1's, 15 + 30 ms there and back, a probe at 10 Mbit/s three times.
    assert any("45.235" in line for line in lines)


def test_what_a_frame_takes_besides_and_where_it_waits_is_shown(tmp_path):
    path = tmp_path / "config.json"
    slow = {"ip": "10.0.0.9", "mem": "64m", "cpus": 1, "bandwidth": 10, "link_delay": "0ms"}
    path.write_text(json.dumps({"nodes": [{**slow, "link": {"overhead": 24, "uplink": "network"}}]}))
    lines = [" ".join(line.split()) for line in run(path).output.splitlines()]
    assert "from to delay bandwidth queue overhead uplink" in lines
    assert "etcd1 s1 0ms 10 Mbit/s 204 frames 24 bytes network" in lines
    assert "s1 etcd1 0ms 10 Mbit/s 204 frames 24 bytes -" in lines
    # A probe of 98 and 24 bytes at 10 Mbit/s, there and back.
    assert any("0.195" in line for line in lines)


def test_links_that_say_nothing_special_are_not_listed():
    assert "Links" not in run(ROOT / "configs" / "3node-3ms.json").output


def test_a_broken_config_raises_what_the_command_line_reports(tmp_path):
    path = tmp_path / "broken.json"
    path.write_text("[]")
    result = run(path)
    assert isinstance(result.exception, ConfigError)
    assert result.output == ""


def test_a_scenario_file_is_checked_too(tmp_path):
    config, scenarios = tmp_path / "config.json", tmp_path / "mine.json"
    config.write_text(json.dumps({"nodes": [node(1)], "scenarios": "mine.json"}))
    result = run(config)
    assert isinstance(result.exception, ConfigError)
    assert str(scenarios) in str(result.exception)
    scenarios.write_text(
        '{"scenarios": [{"type": "read", "load": {"total": 5, "clients": 1, "conns": 1}, "consistency": "s"}]}'
    )
    assert "1 scenario from" in run(config).output
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert isinstance(run(config, "--scenarios", other).exception, ConfigError)


def test_many_hosts_are_summed_up_instead_of_a_wide_matrix(tmp_path):
    path = tmp_path / "many.json"
    path.write_text(json.dumps([node(number) for number in range(1, 101)]))
    result = run(path)
    assert result.exit_code == 0
    # How long the path of a temporary folder is depends on how many there were before.
    assert max(map(len, result.output.replace(str(path), path.name).splitlines())) < 120
    pairs = [line.split()[1] for line in result.output.splitlines() if " - " in line]
    assert sum(map(int, pairs)) == 101 * 100 // 2


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_plan_fits_the_terminal(path, width):
    output = StringIO()
    console = Console(file=output, width=width, highlight=False)
    plan = build_plan(
        load_config(path), load_scenarios(DEFAULT_SCENARIOS), PlanOptions(machine_cores=2, run_id="0a1b2c")
    )
    render_plan(plan, console)
    render_summary(plan, console)
    text = output.getvalue()
    assert "…" not in text
    assert "\n\n\n" not in text
    for expected in [
        "cnenv-0a1b2c-benchmark",
        "--heartbeat-interval=",
        *(item.scheduled.scenario.name for item in plan.scenarios),
    ]:
        assert expected in text


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_exported_schema_is_current(kind):
    result = CliRunner().invoke(schema.command, [kind])
    assert result.exit_code == 0
    assert SCHEMAS[kind].read_text() == result.output, f"run: containernet-env schema {kind} > {SCHEMAS[kind]}"


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
