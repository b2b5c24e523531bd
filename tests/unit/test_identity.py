"""Each setting that makes another experiment makes another hash, and another way to write it makes none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.config.plan import config_hash, scenario_hash
from containernet_env.model.scenario import Dataset
from containernet_env.results.columns import BY_NAME
from containernet_env.runs.prepare import prepare
from tests.unit.blocks import mixed, write
from tests.unit.store_files import scenario

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
QUICK = CONFIGS / "scenarios" / "quick.json"
LINK = {"delay": "3ms", "bandwidth": 100}
JITTER = {"distribution": "uniform", "value": "1ms"}
NODE: dict[str, Any] = {"mem": "512m", "cpus": 1, "link": LINK}
NODES = [{"ip": f"10.0.0.{number}", **NODE} for number in (1, 2, 3)]
BASE: dict[str, Any] = {"nodes": NODES}
LINKS = [
    *({"delay": "4ms"}, {"bandwidth": 99}, {"queue": 200}, {"loss": 0.01}, {"loss": 0.01, "seed": 1}),
    *({"jitter": JITTER}, {"jitter": JITTER | {"correlation": "20ms"}}, {"overhead": 24}, {"uplink": "network"}),
]
CHANGES: list[dict[str, Any]] = [
    *({"nodes": [NODES[0] | {"link": LINK | link}, *NODES[1:]]} for link in LINKS),
    *({"nodes": [NODES[0] | change, *NODES[1:]]} for change in ({"mem": "256m"}, {"cpus": 0.5}, {"name": "other"})),
    *({"client": client} for client in ({"cpus": 1}, {"link_delay": "1ms"})),
    *({"etcd": etcd} for etcd in ({"data": "tmpfs"}, {"heartbeat_interval": "150ms"}, {"leader": "etcd1"})),
    *({"etcd": {"election_timeout": "2s"}}, {"nodes": NODES[:2]}),
]


def hash_of(folder: Path, config: dict[str, Any] | str, **options: Any) -> str:
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return config_hash(prepare(path, QUICK, **options))


def test_every_other_setting_is_another_experiment(tmp_path: Path) -> None:
    hashes = [hash_of(tmp_path, BASE | change) for change in ({}, *CHANGES)]
    hashes.append(hash_of(tmp_path, BASE, congestion_control="bbr"))
    hashes.append(hash_of(tmp_path, BASE, links="netem", switches="bridge"))
    assert len(set(hashes)) == len(hashes)


def test_another_way_to_write_a_file_is_the_same_experiment(tmp_path: Path) -> None:
    """Where a value came from is no part of it: heartbeat and election of these are those that follow from the RTT."""
    same = [
        json.dumps(BASE).replace('"cpus": 1,', '"cpus": 1.0,'),
        json.dumps(BASE | {"etcd": {"heartbeat_interval": "100ms", "election_timeout": "1s"}}),
    ]
    assert {hash_of(tmp_path, text) for text in same} == {hash_of(tmp_path, BASE)}
    # Where `auto` comes to the emulator, `--links emulator` is the same: Links, a configured column, says it for both.
    assert {hash_of(tmp_path, BASE, links=links) for links in ("emulator", "netem")} == {hash_of(tmp_path, BASE)}
    assert BY_NAME["Links"].role == "configured"
    block = mixed(load={"rate": 100, "duration": "1s", "clients": 1, "conns": 1})
    text, hashes = json.dumps({"scenarios": [block]}), set()
    for written in (text, text.replace(": 100,", ": 100.0,"), text.replace(": 0.5,", ": 0.50,")):
        path = write(tmp_path, written)
        hashes |= {item.scheduled.identity for item in prepare(CONFIGS / "3node-3ms.json", path).scenarios}
    assert len(hashes) == 1


def test_a_seed_that_was_drawn_is_no_other_experiment(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(BASE))
    one, other, again = (prepare(path, QUICK, seed=seed) for seed in (None, None, 7))
    assert one.options.seed != other.options.seed and again.options.seed == 7
    assert config_hash(one) == config_hash(other) == config_hash(again) and BY_NAME["LinkSeed"].role == "run"
    with pytest.raises(UsageError, match="seed=-1; allowed: 0 to"):
        prepare(path, QUICK, seed=-1)


def test_the_data_set_counts_where_it_is_read() -> None:
    one, other = Dataset(keys=1000), Dataset(keys=2000)
    for kind, counts in (("read l", True), ("write", False)):
        assert (scenario_hash(scenario(kind), one) != scenario_hash(scenario(kind), other)) is counts
