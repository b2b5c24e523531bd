"""A host's ``link``: what is asked of each direction, and every problem of it at once."""

from __future__ import annotations

import json

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
