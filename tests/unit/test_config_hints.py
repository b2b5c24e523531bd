"""What a user reads who wrote a value or a key in another form, and that no mistake hides another one."""

from __future__ import annotations

import json
from itertools import combinations

import pytest

from containernet_env.base.errors import ConfigError
from containernet_env.config import load_config
from containernet_env.config.scenarios import load_scenarios
from tests.unit.blocks import LOAD, mixed, reads, txns, write, writes

NODE = {"ip": "10.0.0.1", "mem": "64m", "cpus": 1, "bandwidth": 10, "link_delay": "3ms"}


def problems(tmp_path, value, load=load_config):
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, value))
    return caught.value.problems


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("link_delay", "3 ms", 'is not a delay, no space between number and unit: write "3ms"'),
        ("link_delay", "3msec", 'is not a delay: write "3ms"'),
        ("link_delay", "3 milliseconds", 'is not a delay, no space between number and unit: write "3ms"'),
        ("link_delay", "3MS", 'is not a delay: write "3ms"'),
        ("link_delay", "500µs", 'is not a delay: write "500us"'),
        ("link_delay", "2sec", 'is not a delay: write "2s"'),
        ("link_delay", "1,5ms", 'is not a delay, a decimal point and no comma: write "1.5ms"'),
        ("link_delay", " 3ms", 'is not a delay, no space around it: write "3ms"'),
        ("link_delay", 3, 'is not a delay, it needs a unit: write "3ms"'),
        ("link_delay", "3", 'is not a delay, it needs a unit: write "3ms"'),
        ("link_delay", "2min", "is not a delay"),  # two minutes are more than a delay may be
        ("link_delay", "11 s", "is not a delay"),
        ("link_delay", "soon", "is not a delay"),
        ("mem", "512 m", 'is not an amount of memory, no space between number and unit: write "512m"'),
        ("mem", "512MB", 'is not an amount of memory: write "512m"'),
        ("mem", "512MiB", 'is not an amount of memory: write "512m"'),
        ("mem", "1Gi", 'is not an amount of memory: write "1g"'),
        ("mem", "1T", 'is not an amount of memory: write "1024g"'),
        ("mem", 512, 'is not an amount of memory, it needs a unit: write "512m"'),
        ("mem", 536870912, 'is not an amount of memory, it needs a unit: write "536870912b"'),
        ("mem", None, 'is not an amount of memory: write "unlimited"'),
        ("mem", "15m", "is out of range"),
        ("bandwidth", "100 Mbit", "is not a bandwidth, a number without a unit: write 100"),
        ("bandwidth", "1G", "is not a bandwidth, a number without a unit: write 1000"),
        ("bandwidth", "1Gbit", "is not a bandwidth, a number without a unit: write 1000"),
        ("bandwidth", "500kbit/s", "is not a bandwidth, a number without a unit: write 0.5"),
        ("bandwidth", "10MB/s", "is not a bandwidth, a number without a unit: write 80"),
        ("bandwidth", "1000", "is not a bandwidth, a number without quotes: write 1000"),
        ("bandwidth", "none", 'is not a bandwidth: write "unlimited"'),
        ("cpus", "2 cores", "is not a number of cpus, a number without a unit: write 2"),
        ("cpus", "50%", "is not a number of cpus, a number without a unit: write 0.5"),
        ("cpus", "many", "is not a number of cpus"),
        ("ip", "10.0.0.1/24", 'is not an IPv4 address: write "10.0.0.1"'),
    ],
)
def test_a_value_in_another_form_is_told_with_what_to_write(tmp_path, key, value, told):
    (problem,) = problems(tmp_path, [NODE | {key: value}])
    assert problem.message == told


@pytest.mark.parametrize(
    ("link", "told"),
    [
        ({"loss": "1%"}, "is not a number, a number without a unit: write 0.01"),
        ({"queue": "64 k"}, 'is not a queue limit, no space between number and unit: write "64k"'),
        ({"queue": "64KB"}, 'is not a queue limit: write "64k"'),
        ({"jitter": {"distribution": "Normal", "value": "1us"}}, 'is not one of the choices: write "normal"'),
        ({"jitter": {"distribution": "normal", "value": "1 us"}},
         'is not a jitter, no space between number and unit: write "1us"'),
        ({"bw": 5}, 'is not a known key, did you mean "bandwidth"?'),
        ({"latency": "3ms"}, 'is not a known key, did you mean "delay"?'),
        ({"max_queue_size": 5}, 'is not a known key, did you mean "queue"?'),
    ],
)  # fmt: skip
def test_a_link_in_another_form(tmp_path, link, told):
    assert told in [problem.message for problem in problems(tmp_path, {"nodes": [NODE | {"link": link}]})]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("bw", '"bandwidth"'),
        ("delay", '"link_delay"'),
        ("cpu", '"cpus"'),
        ("cpu_quota", '"cpus"'),
        ("memory", '"mem"'),
        ("mem_limit", '"mem"'),
        ("Link-Delay", '"link_delay"'),
        ("loss", '"link": {"loss": ...}'),
    ],
)
def test_a_key_of_containernet_or_another_spelling(tmp_path, key, meant):
    (problem,) = problems(tmp_path, {"nodes": [NODE | {key: 1}]})
    assert problem.message == f"is not a known key, did you mean {meant}?"


def test_a_key_that_nobody_meant(tmp_path):
    (problem,) = problems(tmp_path, [NODE | {"color": "red"}])
    assert problem.message == "is not a known key"


@pytest.mark.parametrize(
    ("block", "told"),
    [
        (reads(consistency="linearizable"), 'is not one of the choices: write "l"'),
        (reads(load=LOAD | {"clients": "10"}), "is not a whole number, a number without quotes: write 10"),
        (reads(load=LOAD | {"total": "10k"}), "is not a whole number, a number without a unit: write 10000"),
        (reads(load=LOAD | {"timeout": "5 s"}), 'is not a duration, no space between number and unit: write "5s"'),
        (reads(load=LOAD | {"timeout": 5}), 'is not a duration, it needs a unit: write "5s"'),
        (reads(load=LOAD | {"timeout": "2min"}), 'is not a duration: write "120s"'),
        (
            reads(load=LOAD | {"warmup": "2 s"}),
            'is neither a number of requests nor a duration, no space between number and unit: write "2s"',
        ),
        (mixed(ratio="20%"), "is not a number, a number without a unit: write 0.2"),
        (reads(target="Leader"), 'is not a node\'s name: write "leader"'),
    ],
)
def test_a_scenario_in_another_form(tmp_path, block, told):
    (problem,) = problems(tmp_path, {"scenarios": [block]}, load_scenarios)
    assert problem.message == told


# What is wrong, by the path that must be told, as a change of a good document: any two must be told together.
CONFIG_MISTAKES = {
    "$.subnet": {"subnet": 5},
    "$.more": {"more": 1},
    "$.nodes[0].cpus": {"nodes": {"cpus": 0}},
    "$.nodes[0].mem": {"nodes": {"mem": ...}},
    "$.nodes[0].bw": {"nodes": {"bw": 1}},
    "$.nodes[0].link.loss": {"nodes": {"link": {"loss": []}}},
    "$.nodes[1].ip": {"second": {"ip": "10.0.0.1"}},
    "$.nodes[1].name": {"second": {"name": "etcd1"}},
    "$.client": {"client": []},
    "$.etcd.data": {"etcd": {"data": "ram"}},
    "$.etcd.election_timeout": {"etcd": {"heartbeat_interval": "100ms", "election_timeout": "499ms"}},
    "$.scenarios": {"scenarios": 0},
}


def config_with(*paths):
    top, first, second = {}, dict(NODE), NODE | {"ip": "10.0.0.2"}
    for path in paths:
        for key, value in CONFIG_MISTAKES[path].items():
            if key == "nodes":
                first |= value
            elif key == "second":
                second |= value
            elif isinstance(value, dict):
                top.setdefault(key, {}).update(value)
            else:
                top[key] = value
    return top | {"nodes": [{key: item for key, item in first.items() if item is not ...}, second]}


def test_no_mistake_of_a_config_hides_another(tmp_path):
    for number in (1, 2, len(CONFIG_MISTAKES)):
        for paths in combinations(CONFIG_MISTAKES, number):
            assert {problem.path for problem in problems(tmp_path, config_with(*paths))} == set(paths), paths


@pytest.mark.parametrize("nodes", [5, {}, None, "x"])
def test_nodes_that_are_no_list_hide_nothing(tmp_path, nodes):
    value = {"nodes": nodes, "client": {"cpus": 0, "ip": "10.9.0.1"}, "subnet": "10.0.0.0/24", "etcd": 5}
    assert {problem.path for problem in problems(tmp_path, value)} == {
        "$.nodes",
        "$.client.cpus",
        "$.client.ip",
        "$.etcd",
    }


def test_too_many_nodes_hide_nothing(tmp_path):
    nodes = [NODE | {"ip": f"10.0.0.{index}"} for index in range(1, 103)]
    nodes[7]["cpus"] = 0
    found = problems(tmp_path, {"nodes": nodes, "etcd": {"data": "ram"}})
    assert [(problem.path, problem.got) for problem in found] == [
        ("$.nodes", "102 entries"),
        ("$.nodes[7].cpus", "0"),
        ("$.etcd.data", '"ram"'),
    ]


# As above; a dict is a change of the block, or of its load where that is what it names.
BLOCK_MISTAKES = {
    "type": {"type": "reed"},
    "load.clients": {"load": {"clients": 11}},
    "load.conns": {"load": {"conns": 0}},
    "load.arrival": {"load": {"arrival": "poisson"}},
    "load.duration": {"load": {"duration": "1s"}},
    "load.totl": {"load": {"totl": 1}},
    "consistency": {"consistency": "x"},
    "zipfExponent": {"zipfExponent": 1},
    "countOnly": {"keysOnly": True, "countOnly": True},
    "verify": {"verify": 5},
    "more": {"more": 1},
    "target": {"target": []},
}
# Which of them only the type of the block tells.
NEED_TYPE = {"zipfExponent", "countOnly"}


def test_no_mistake_of_a_block_hides_another(tmp_path):
    for number in (1, 2, len(BLOCK_MISTAKES)):
        for paths in combinations(BLOCK_MISTAKES, number):
            block, load = reads(), dict(LOAD)
            for path in paths:
                change = BLOCK_MISTAKES[path]
                load |= change.get("load", {})
                block |= {key: value for key, value in change.items() if key != "load"}
            # A mistake of the data set, another block and the file itself, beside those of the block.
            value = {
                "scenarios": [block | {"load": load}, txns(), txns(), writes(data={"keySize": 1, "valSize": 1},
                         load=LOAD | {"total": 100})],
                "dataset": {"keys": 0},
            }  # fmt: skip
            told = {f"$.scenarios[0].{path}" for path in paths if "type" not in paths or path not in NEED_TYPE}
            found = {problem.path for problem in problems(tmp_path, value, load_scenarios)}
            others = {"$.scenarios[2]", "$.scenarios[3].data.keySize", "$.dataset.keys"}
            assert found == told | others, json.dumps(value)


def test_too_many_scenarios_hide_nothing(tmp_path):
    load = LOAD | {"clients": list(range(1, 11)), "rate": list(range(1, 201))}
    value = {"scenarios": [txns(load=load), reads(load=LOAD | {"conns": 0}), reads(spanKeys=20_000)]}
    assert [problem.path for problem in problems(tmp_path, value, load_scenarios)] == [
        "$.scenarios",
        "$.scenarios[1].load.conns",
        "$.scenarios[2].spanKeys",
    ]
