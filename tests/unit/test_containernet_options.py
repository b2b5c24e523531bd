"""The keywords of a Docker host: what the engine is asked for, and what is refused before it is asked."""

from __future__ import annotations

from typing import Any

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.hosts.options import ContainerOptions, CpuLimit, check_name, cpu_limit, hostname, memory_bytes


def test_nothing_is_given_unless_asked_for() -> None:
    config = ContainerOptions().host_config()
    assert config == {"network_mode": "none", "shm_size": "64mb", "log_config": {"type": "none", "config": {}}}
    assert ContainerOptions().command() == ["sh"]


def test_memory_without_swap_unless_asked_for() -> None:
    assert ContainerOptions(mem_limit="512m").memory_limits == (512 << 20, 512 << 20)
    assert ContainerOptions(mem_limit=1000, memswap_limit=3000).memory_limits == (1000, 3000)
    assert ContainerOptions(mem_limit="1g", memswap_limit=-1).memory_limits == (1 << 30, -1)


@pytest.mark.parametrize(
    ("text", "size"), [("512m", 512 << 20), ("1.5g", 3 << 29), ("64MB", 64 << 20), ("10", 10), (7, 7)]
)
def test_memory_as_docker_writes_it(text: int | str, size: int) -> None:
    assert memory_bytes(text) == size


@pytest.mark.parametrize(
    ("cpus", "limit"),
    [(0.5, CpuLimit(50_000, 100_000)), ("1.5", CpuLimit(150_000, 100_000)), (64, CpuLimit(6_400_000, 100_000))],
)
def test_cpus_are_a_quota_also_above_the_machines_cores(cpus: float | str, limit: CpuLimit) -> None:
    assert cpu_limit(cpus, None, None) == limit
    config = ContainerOptions(cpus=cpus).host_config()
    assert (config["cpu_quota"], config["cpu_period"]) == (limit.quota_us, limit.period_us)
    assert "nano_cpus" not in config


def test_a_period_of_ones_own() -> None:
    assert cpu_limit(0.5, None, 50_000) == CpuLimit(25_000, 50_000)
    assert cpu_limit(None, 25_000, 50_000) == CpuLimit(25_000, 50_000)
    assert cpu_limit(None, None, None) == CpuLimit(None, None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cpus": 1, "cpu_quota": 5000}, "give one of them"),
        ({"cpus": 0}, "1000 us or more"),
        ({"cpus": -1}, "cpus"),
        ({"cpus": "many"}, "cpus"),
        ({"mem_limit": "lots"}, "memory limit"),
        ({"memswap_limit": "1g"}, "needs mem_limit"),
        ({"mem_limit": "1g", "memswap_limit": "512m"}, "not below"),
        ({"network_mode": "host"}, "links would end in another's"),
        ({"network_mode": "container:abc"}, "links would end in another's"),
        ({"ports": [80]}, "published"),
        ({"port_bindings": {80: 8080}}, "published"),
        ({"publish_all_ports": True}, "published"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ContainerOptions(**options)


def test_published_ports_are_on_loopback_unless_an_address_is_given() -> None:
    options = ContainerOptions(
        network_mode="bridge", ports=[9000], port_bindings={80: 8080, "53/udp": ("10.1.1.1", 53), 81: None}
    )
    assert options.bindings(()) == {80: ("127.0.0.1", 8080), "53/udp": ("10.1.1.1", 53), 81: None}
    assert options.exposed_ports() == [9000, 80, (53, "udp"), 81]
    everything = ContainerOptions(network_mode="bridge", publish_all_ports=True, ports=[9000])
    assert everything.bindings(("22/tcp",)) == {"22/tcp": ("127.0.0.1",), "9000": ("127.0.0.1",)}


def test_logs_are_bounded() -> None:
    log = ContainerOptions(logs=True).host_config()["log_config"]
    assert log["type"] == "json-file"
    assert "max-size" in log["config"]


def test_mount_points() -> None:
    assert ContainerOptions(volumes=["/a:/b:ro", "/c:/d"]).volume_mounts() == ["/b", "/d"]
    assert ContainerOptions(volumes={"/a": {"bind": "/b", "mode": "ro"}}).volume_mounts() == ["/b"]


@pytest.mark.parametrize("name", ["", "-d1", "d 1", "d/1", "dé"])
def test_names_no_container_can_have(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be called"):
        check_name(name)


def test_long_names_are_fine() -> None:
    check_name("a-host-with-a-name-that-is-much-longer-than-any-interface-name-could-ever-be")
    assert len(hostname("x" * 100)) == 63
