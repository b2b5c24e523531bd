"""The key ``store``: kinds, versions, flags; what is refused, and what it changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base import sources
from containernet_env.config.sweep_axes import AXES, set_value, value_of
from containernet_env.config.topologies import load_config
from containernet_env.config.writer import topology_text, topology_values
from containernet_env.model.config import Config, StoreChoice
from containernet_env.plan.build import build_plan
from containernet_env.plan.identity import config_hash
from containernet_env.plan.plan import Plan, PlanOptions
from containernet_env.stores.kinds import DEFAULT, KINDS, store_of
from containernet_env.sweep import versions

NODE = {"ip": "10.0.0.1", "mem": "512m", "cpus": 1, "bandwidth": 1000, "link_delay": "3ms"}
OPTIONS = PlanOptions(machine_cores=2)


def read(folder: Path, store: Any = None, **more: Any) -> Config:
    path = folder / "topology.json"
    value = {"nodes": [NODE], **more} | ({} if store is None else {"store": store})
    path.write_text(json.dumps(value))
    return load_config(path)


def planned(folder: Path, store: Any = None, **more: Any) -> Plan:
    return build_plan(read(folder, store, **more), None, OPTIONS)


def flags(plan: Plan) -> list[str]:
    return list(plan.hosts[0].command)


@pytest.mark.parametrize("store", [None, "etcd", {"kind": "etcd"}, {"kind": "etcd", "flags": {}}])
def test_the_default_store_is_etcd_and_changes_no_hash(tmp_path: Path, store: Any) -> None:
    config = read(tmp_path, store)
    assert config.store == StoreChoice() and store_of(config) == DEFAULT
    assert config_hash(planned(tmp_path, store)) == config_hash(planned(tmp_path))
    assert "store" not in json.loads(topology_text(config))


def test_version_and_flags_reach_image_members_and_hash(tmp_path: Path) -> None:
    given = {"snapshot-count": 1000, "quota-backend-bytes": "4g", "backend-batch-interval": "0.2s"}
    store = {"kind": "etcd", "version": "3.6.8", "flags": given}
    plan = planned(tmp_path, store)
    expected = ["--backend-batch-interval=200ms", "--quota-backend-bytes=4294967296", "--snapshot-count=1000"]
    assert flags(plan)[-3:] == expected and flags(planned(tmp_path)) == flags(plan)[:-3]
    assert plan.store.version == "3.6.8"
    module, pinned = plan.store.image.module, DEFAULT.image.module
    assert module is not None and pinned is not None and module.label == "etcd-3.6.8" and pinned.label == "etcd"
    assert module.source_hash("go1.26.8") != pinned.source_hash("go1.26.8")
    same = planned(tmp_path, {**store, "flags": {**given, "quota-backend-bytes": "4096m"}})
    assert config_hash(same) == config_hash(plan)
    others = [{"kind": "etcd", "flags": given}, {**store, "version": "3.6.9"}, {**store, "flags": {}}]
    assert len({config_hash(planned(tmp_path, other)) for other in (None, store, *others)}) == 5


def test_the_pinned_version_by_its_number_needs_no_image_of_its_own(tmp_path: Path) -> None:
    named = store_of(read(tmp_path, {"kind": "etcd", "version": sources.etcd_version()}))
    assert named.image == DEFAULT.image


@pytest.mark.parametrize("kind", KINDS)
def test_every_flag_reads_again_what_it_has_read(kind: str) -> None:
    samples = (1, 5, 1000, "1000ms", "5s", "1h", "3600s", "4g", "64m", "periodic", "revision", "yes", "no", "wal")
    for name, flag in KINDS[kind].flags.items():
        taken = 0
        for sample in samples:
            try:
                found = flag.parse(sample)
            except ValueError:
                continue
            taken += 1
            assert flag.parse(found) == found and flag.argument(found), (name, sample)
        assert taken, f"none of the samples is a value of {name}"


def test_stores_versions_and_flags_are_an_axis(tmp_path: Path) -> None:
    document = topology_values(read(tmp_path, etcd={"data": "tmpfs"}))
    axis = AXES["store"]
    assert value_of(document, axis) == "etcd"
    wanted = {"kind": "etcd", "version": "3.6.8"}
    assert set_value(document, axis, wanted) == [("store",)]
    set_value(document, AXES["leader"], "etcd1")
    assert value_of(document, axis) == wanted
    assert document["etcd"] == {"data": "tmpfs", "leader": "etcd1"}


def test_rows_of_a_store_stay_when_a_sweep_gets_another_one() -> None:
    etcd, both = {"sources": "a", "etcd": "3.7.3"}, {"sources": "a", "etcd": "3.7.3", "zookeeper": "3.8.0"}
    assert versions.other(etcd, both) is None
    assert versions.of_store(both, KINDS["etcd"].make(StoreChoice("etcd"))) == etcd
    assert versions.other(etcd, both | {"etcd": "3.7.4"}) == "etcd 3.7.3, now 3.7.4"
    assert versions.other({"etcd": "3.7.3"}, both) == "sources unknown, now a"


@pytest.mark.parametrize(("kind", "advised"), [("etcd", True), ("zookeeper", False), ("consul", False)])
def test_only_etcd_advises_a_number_of_members(tmp_path: Path, kind: str, advised: bool) -> None:
    nodes = [NODE | {"ip": f"10.0.0.{number}"} for number in range(1, 10)]
    plan = build_plan(read(tmp_path, kind, nodes=nodes), None, OPTIONS)
    assert any("at most 7" in note for note in plan.notes) == advised
