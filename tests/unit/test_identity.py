"""Each setting that makes another experiment makes another hash."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.model.scenario import Dataset, Scenario
from containernet_env.plan.identity import config_hash, scenario_hash
from containernet_env.results.columns import BY_NAME
from containernet_env.runs.prepare import prepare

QUICK = Path(__file__).resolve().parents[2] / "configs" / "scenarios" / "quick.json"
LINK = {"delay": "3ms", "bandwidth": 100}
NODE = {"mem": "512m", "cpus": 1, "link": LINK}
BASE: dict[str, Any] = {"nodes": [{"ip": f"10.0.0.{number}", **NODE} for number in (1, 2, 3)]}


def hash_of(folder: Path, config: dict[str, Any], **options: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return config_hash(prepare(path, QUICK, **options))


@pytest.mark.parametrize(
    "change",
    [
        {"mem": "256m"},
        {"cpus": 0.5},
        {"name": "other"},
        {"link": LINK | {"delay": "4ms"}},
        {"link": LINK | {"bandwidth": 99}},
        {"link": LINK | {"queue": 200}},
        {"link": LINK | {"loss": 0.01}},
        {"link": LINK | {"loss": 0.01, "seed": 1}},
        {"link": LINK | {"jitter": {"distribution": "uniform", "value": "1ms"}}},
        {"link": LINK | {"jitter": {"distribution": "uniform", "value": "1ms", "correlation": "20ms"}}},
        {"link": LINK | {"overhead": 24}},
        {"link": LINK | {"uplink": "network"}},
    ],
    ids=str,
)
def test_another_node_is_another_experiment(tmp_path: Path, change: dict[str, Any]) -> None:
    config = deepcopy(BASE)
    config["nodes"][0] |= change
    assert hash_of(tmp_path, config) != hash_of(tmp_path, BASE)


@pytest.mark.parametrize(
    "change",
    [
        {"client": {"cpus": 1}},
        {"client": {"link_delay": "1ms"}},
        {"etcd": {"data": "tmpfs"}},
        {"etcd": {"heartbeat_interval": "150ms"}},
        {"etcd": {"election_timeout": "2s"}},
        {"etcd": {"leader": "etcd1"}},
    ],
    ids=str,
)
def test_another_client_or_store_is_another_experiment(tmp_path: Path, change: dict[str, Any]) -> None:
    assert hash_of(tmp_path, BASE | change) != hash_of(tmp_path, BASE)


@pytest.mark.parametrize("options", [{"congestion_control": "bbr"}, {"links": "netem", "switches": "bridge"}], ids=str)
def test_another_means_is_another_experiment(tmp_path: Path, options: dict[str, Any]) -> None:
    config = {"nodes": [{"ip": "10.0.0.1", "mem": "512m", "cpus": 1, "link": LINK}]}
    assert hash_of(tmp_path, config, **options) != hash_of(tmp_path, config)


def test_what_carries_the_links_is_told_by_its_own_column(tmp_path: Path) -> None:
    """Where `auto` is asked for the machine decides, so no hash of a plan can know it; `Links` does, in every row."""
    assert hash_of(tmp_path, BASE, links="netem") == hash_of(tmp_path, BASE)
    assert BY_NAME["Links"].role == "configured"


def test_a_seed_that_was_drawn_is_no_other_experiment(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(BASE))
    one, other, again = (prepare(path, QUICK, seed=seed) for seed in (None, None, 7))
    assert one.options.seed != other.options.seed
    assert again.options.seed == 7
    assert config_hash(one) == config_hash(other) == config_hash(again)
    assert BY_NAME["LinkSeed"].role == "run"
    with pytest.raises(UsageError, match="seed=-1; allowed: 0 to"):
        prepare(path, QUICK, seed=-1)


def test_the_data_set_counts_where_it_is_read() -> None:
    sizes: dict[str, Any] = {"total": 10, "clients": 1, "conns": 1, "key_size": 8, "val_size": 256, "key_space": 10}
    read = Scenario(name="r", type="read", consistency="l", **sizes)
    write = Scenario(name="w", type="write", **sizes)
    one, other = Dataset(keys=1000), Dataset(keys=2000)
    assert scenario_hash(read, one) != scenario_hash(read, other)
    assert scenario_hash(write, one) == scenario_hash(write, other)
