"""A host's ``link``: what is asked of each direction, and every problem of it at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from containernet_env.base.errors import ConfigError
from containernet_env.config import load_config
from containernet_env.model.chance import GilbertElliottLoss, IndependentLoss, Jitter
from containernet_env.model.config import Config
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.plan.build import build_plan
from containernet_env.plan.export import plan_values
from containernet_env.plan.plan import PlanOptions
from containernet_env.results.link_text import bandwidth_mbps, delay_ms, each_or_one, impairments

MS, MBIT = 10**6, 10**6
HOST = {"ip": "10.0.0.1", "mem": "64m", "cpus": 1}
OWN = {"bandwidth": 100, "link_delay": "3ms"}


def load(tmp_path, host, **top):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"nodes": [{**HOST, **host}], **top}))
    return load_config(path)


def problems(tmp_path, host, **top):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, host, **top)
    return [(problem.path, problem.message, problem.got) for problem in caught.value.problems]


def test_one_object_says_both_directions(tmp_path):
    link = {
        "delay": "3ms",
        "bandwidth": 100,
        "jitter": {"distribution": "normal", "value": "500us"},
        "loss": 0.01,
        "queue": 77,
        "seed": 5,
    }
    direction = DirectionSpec(3 * MS, 100 * MBIT, 77, None, Jitter("normal", 500_000), IndependentLoss(0.01), 5)
    assert load(tmp_path, {"link": link}).nodes[0].link == LinkSpec(direction, direction)


def test_each_direction_apart(tmp_path):
    loss = {"model": "gilbert-elliott", "good_to_bad_ratio": 0.01, "bad_to_good_ratio": 0.2, "bad_loss_ratio": 0.5}
    link = {
        "to_switch": {"delay": "30ms", "bandwidth": 10, "loss": loss, "queue": "64k"},
        "from_switch": {
            "delay": "15ms",
            "bandwidth": "unlimited",
            "jitter": {"distribution": "uniform", "value": "15ms", "reorder": True},
        },
    }
    assert load(tmp_path, {"link": link}).nodes[0].link == LinkSpec(
        DirectionSpec(30 * MS, 10 * MBIT, None, 65536, None, GilbertElliottLoss(0.01, 0.2, 0, 0.5)),
        DirectionSpec(15 * MS, None, None, None, Jitter("uniform", 15 * MS, reorder=True)),
    )


def test_what_a_link_leaves_out_is_the_hosts_own(tmp_path):
    link = load(tmp_path, {**OWN, "link": {"to_switch": {"loss": 0.5}}}).nodes[0].link
    both = DirectionSpec(3 * MS, 100 * MBIT)
    assert link == LinkSpec(DirectionSpec(3 * MS, 100 * MBIT, loss=IndependentLoss(0.5)), both)
    link = load(tmp_path, {"bandwidth": 100, "link": {"delay": "3ms"}}).nodes[0].link
    assert link == LinkSpec(both, both)
    assert load(tmp_path, {**OWN, "link": {}}).nodes[0].link == LinkSpec(both, both)


def test_the_clients_link(tmp_path):
    client = {"link": {"from_switch": {"delay": "7ms"}}}
    config = load(tmp_path, OWN, client=client)
    assert config.client.link == LinkSpec(DirectionSpec(), DirectionSpec(7 * MS))


def shown(config: Config) -> tuple[str, str]:
    links = [node.link for node in config.nodes]
    return each_or_one([delay_ms(link) for link in links]), each_or_one([bandwidth_mbps(link) for link in links])


def test_columns_of_a_row_show_both_directions_where_they_differ(tmp_path):
    link = {"to_switch": {"delay": "1.5ms", "bandwidth": 10}, "from_switch": {"delay": "2ms", "bandwidth": "unlimited"}}
    config = load(tmp_path, {"link": link})
    assert shown(config) == ("1.5/2", "10/unlimited")
    config = load(tmp_path, OWN)
    assert shown(config) == ("3", "100")
    config = load(tmp_path, {**OWN, "link": {"overhead": 24, "uplink": "network"}})
    assert shown(config) == ("3", "100 overhead 24 uplink network/100 overhead 24")
    assert impairments(config.nodes[0].link) == "3 ms 100 Mbit/s overhead 24 uplink network/ overhead 24"


def test_the_plan_holds_every_value(tmp_path):
    link = {
        "delay": "3ms",
        "jitter": {"distribution": "normal", "value": "500us", "correlation": "8ms"},
        "loss": 0.01,
        "queue": "1k",
        "overhead": 24,
        "uplink": "network",
        "seed": 5,
    }
    plan = plan_values(build_plan(load(tmp_path, {"bandwidth": 1, "link": link}), None, PlanOptions(machine_cores=2)))
    assert plan["links"][0]["a_to_b"] == {
        "delay_ns": 3 * MS,
        "rate_bps": MBIT,
        "queue_frames": None,
        "queue_bytes": 1024,
        "default_queue_frames": None,
        "overhead_bytes": 24,
        "uplink": "network",
        "jitter": {"distribution": "normal", "ns": 500_000, "reorder": False, "correlation_ns": 8 * MS},
        "loss": {"ratio": 0.01, "model": "independent"},
        "seed": 5,
    }
    # What the switch sends waits in the network in any case.
    assert plan["links"][0]["b_to_a"]["uplink"] is None


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ({**OWN, "link": {"delay": "3ms"}}, [("$.nodes[0].link_delay", "is said again at $.nodes[0].link.delay")]),
        (
            {**OWN, "link": {"to_switch": {"bandwidth": 5}, "from_switch": {"bandwidth": 5}}},
            [
                (
                    "$.nodes[0].bandwidth",
                    "is said again at $.nodes[0].link.to_switch.bandwidth and $.nodes[0].link.from_switch.bandwidth",
                )
            ],
        ),
        ({"link": {}}, [("$.nodes[0].link_delay", "is missing"), ("$.nodes[0].bandwidth", "is missing")]),
        (
            {"bandwidth": 5, "link": {"to_switch": {"delay": "3ms"}, "from_switch": {}}},
            [("$.nodes[0].link.from_switch.delay", "is missing")],
        ),
        ({**OWN, "link": 5}, [("$.nodes[0].link", "is not an object")]),
        ({**OWN, "link": None}, [("$.nodes[0].link", "is not an object")]),
        ({**OWN, "link": {"to_switch": 5}}, [("$.nodes[0].link.to_switch", "is not an object")]),
        ({**OWN, "link": {"to_switch": {}, "loss": 0.1}}, [("$.nodes[0].link.loss", "is not a known key")]),
        ({**OWN, "link": {"los": 0.1}}, [("$.nodes[0].link.los", 'is not a known key, did you mean "loss"?')]),
        (
            {**OWN, "link": {"jitter": {"value": "0ms"}}},
            [
                ("$.nodes[0].link.jitter.distribution", "is missing"),
                ("$.nodes[0].link.jitter.value", "is no jitter at all"),
            ],
        ),
        (
            {**OWN, "link": {"to_switch": {"jitter": {"distribution": "normal", "value": "751us"}}}},
            [("$.nodes[0].link.to_switch.jitter.value", "would make the delay negative at times")],
        ),
        (
            {**OWN, "bandwidth": "unlimited", "link": {"queue": 5, "overhead": 24, "uplink": "network"}},
            [
                ("$.nodes[0].link.queue", "limits nothing"),
                ("$.nodes[0].link.overhead", "takes no time"),
                ("$.nodes[0].link.uplink", "says nothing"),
            ],
        ),
        (
            {**OWN, "link": {"from_switch": {"uplink": "host"}}},
            [("$.nodes[0].link.from_switch.uplink", "says nothing here")],
        ),
        (
            {**OWN, "link": {"jitter": {"distribution": "uniform", "value": "1ms", "correlation": "7.9ms"}}},
            [("$.nodes[0].link.jitter.correlation", "is too short to keep order")],
        ),
        (
            {
                **OWN,
                "link": {
                    "jitter": {"distribution": "uniform", "value": "1ms", "correlation": "9ms", "reorder": True}
                },
            },
            [("$.nodes[0].link.jitter.correlation", "goes with jitter that keeps order")],
        ),
        ({**OWN, "link": {"loss": {"good_to_bad_ratio": 2}}},
         [
             ("$.nodes[0].link.loss.model", "is missing"),
             ("$.nodes[0].link.loss.bad_to_good_ratio", "is missing"),
             ("$.nodes[0].link.loss.good_to_bad_ratio", "is out of range"),
         ]),
    ],
)  # fmt: skip
def test_problems_are_told_with_their_place(tmp_path, host, expected):
    assert [(path, message) for path, message, _ in problems(tmp_path, host)] == expected


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("loss", "1%", "is not a number, a number without a unit: write 0.01"),
        ("loss", None, "is not a number"),
        ("loss", 1.5, "is out of range"),
        ("loss", True, "is not a number"),
        ("jitter", "1ms", "is not an object"),
        ("queue", 0, "is out of range"),
        ("queue", "5", "is not a queue limit, a number without quotes: write 5"),
        ("queue", "0b", "is out of range"),
        ("queue", 1.5, "is not a queue limit"),
        ("overhead", 1001, "is out of range"),
        ("overhead", "24b", "is not a whole number"),
        ("uplink", "switch", "is not one of the choices"),
        ("seed", -1, "is negative"),
        ("seed", 2**53, "is out of range"),
        ("seed", None, "is not a whole number"),
    ],
)
def test_values_that_are_refused(tmp_path, key: str, value: Any, message: str):
    ((path, told, got),) = problems(tmp_path, {**OWN, "link": {key: value}})
    assert (path, told) == (f"$.nodes[0].link.{key}", message)
    assert got == json.dumps(value)


def test_every_problem_is_told_at_once(tmp_path):
    found = problems(
        tmp_path, {**OWN, "mem": 5, "link": {"delay": "3ms", "loss": 2, "seed": "x"}}, client={"link": {"queue": 9}}
    )
    assert [path for path, _, _ in found] == [
        "$.nodes[0].mem",
        "$.nodes[0].link_delay",
        "$.nodes[0].link.loss",
        "$.nodes[0].link.seed",
        "$.client.link.queue",
    ]
