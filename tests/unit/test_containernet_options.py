"""The keywords of a Docker host: the engine's parameters, and refusals before it is called."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.containernet.docker import Docker
from containernet_env.hosts import container, engine, processes
from containernet_env.hosts.options import ContainerOptions, check_name, cpu_limit, hostname, memory_bytes


def test_nothing_is_given_unless_configured() -> None:
    log = {"type": "none", "config": {}}
    bounds = {"security_opt": ["no-new-privileges"], "pids_limit": 4096}
    assert ContainerOptions().host_config() == {"network_mode": "none", "shm_size": "64mb", "log_config": log, **bounds}
    assert not ContainerOptions(security_opt=[], pids_limit=0).host_config().keys() & bounds.keys()
    assert ContainerOptions().command() == ["sh"]
    log = ContainerOptions(logs=True).host_config()["log_config"]
    assert log["type"] == "json-file" and "max-size" in log["config"]


def test_names_and_memory_limits() -> None:
    for name in ("", "-d1", "d 1", "d/1", "dé"):
        with pytest.raises(UsageError, match="cannot be called"):
            check_name(name)
    check_name("a-host-with-a-name-that-is-much-longer-than-any-interface-name-could-ever-be")
    assert len(hostname("x" * 100)) == 63 and hostname("x" * 63) == "x" * 63
    assert hostname("x" * 70 + "1") != hostname("x" * 70 + "2")
    for memory, swap, limits in (
        ("512m", None, (512 << 20, 512 << 20)),  # no swap by default
        (1000, 3000, (1000, 3000)),
        ("1g", -1, (1 << 30, -1)),
    ):
        assert ContainerOptions(mem_limit=memory, memswap_limit=swap).memory_limits == limits
    assert [memory_bytes(text) for text in ("1.5g", "64MB", "10", 7)] == [3 << 29, 64 << 20, 10, 7]


def test_cpus_are_a_quota() -> None:
    quotas: dict[tuple[Any, int | None, int | None], tuple[int | None, int | None]] = {
        (0.5, None, None): (50_000, 100_000),
        ("1.5", None, None): (150_000, 100_000),
        (64, None, None): (6_400_000, 100_000),  # also above the machine's cores
        (0.5, None, 50_000): (25_000, 50_000),
        (None, 25_000, 50_000): (25_000, 50_000),
        (None, None, None): (None, None),
    }
    for (cpus, quota, period), limit in quotas.items():
        assert cpu_limit(cpus, quota, period) == limit
        config = ContainerOptions(cpus=cpus, cpu_quota=quota, cpu_period=period).host_config()
        assert (config.get("cpu_quota"), config.get("cpu_period")) == limit
        assert "nano_cpus" not in config


REFUSED: dict[str, list[dict[str, Any]]] = {
    "unknown keyword mem_limt.* did you mean mem_limit": [{"mem_limt": "64m"}],
    "an image is needed": [{"dimage": ""}],
    "give one of them": [{"cpus": 1, "cpu_quota": 5000}],
    "1000 us or more": [{"cpus": 0}],
    "cpus": [{"cpus": -1}, {"cpus": "many"}],
    "memory limit": [{"mem_limit": "lots"}],
    "needs mem_limit": [{"memswap_limit": "1g"}],
    "not below": [{"mem_limit": "1g", "memswap_limit": "512m"}],
    "links would end in another's": [{"network_mode": "host"}, {"network_mode": "container:abc"}],
    "published": [{"ports": [80]}, {"port_bindings": {80: 8080}}, {"publish_all_ports": True}],
    "extra_hosts: got 'db:10.0.0'": [{"extra_hosts": {"db": "10.0.0"}}],
    "extra_hosts: got 'd b:10.0.0.9'": [{"extra_hosts": {"d b": "10.0.0.9"}}],
    "extra_hosts": [{"extra_hosts": of} for of in (
        ["10.0.0.9"], {"db": "host-gateway"}, {"db\n10.0.0.8 web": "10.0.0.9"}, [("db", "10.0.0.9")],
    )],
    "extra_hosts: got 'db:10.0.0.9', allowed: a list": [{"extra_hosts": "db:10.0.0.9"}],
    "dns: got '10.0.0.53', allowed: a list": [{"dns": "10.0.0.53"}],
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_work_is_refused(words: str) -> None:
    for options in REFUSED[words]:
        with pytest.raises(UsageError, match=words):
            Docker("d1", **{"dimage": "image", **options})


def test_ports_extra_hosts_and_mount_points_are_the_engines() -> None:
    options = ContainerOptions(
        network_mode="bridge", ports=[9000], port_bindings={80: 8080, "53/udp": ("10.1.1.1", 53), 81: None}
    )
    assert options.bindings(()) == {80: ("127.0.0.1", 8080), "53/udp": ("10.1.1.1", 53), 81: None}, "on loopback"
    assert options.exposed_ports() == [9000, 80, (53, "udp"), 81]
    everything = ContainerOptions(network_mode="bridge", publish_all_ports=True, ports=[9000])
    assert everything.bindings(("22/tcp",)) == {"22/tcp": ("127.0.0.1",), "9000": ("127.0.0.1",)}
    given = ContainerOptions(extra_hosts={"db": "10.0.0.9", "six": "fd00::9"})
    assert given.host_config()["extra_hosts"] == ["db:10.0.0.9", "six:fd00::9"]
    assert ContainerOptions(extra_hosts=["db:10.0.0.9"]).host_config()["extra_hosts"] == ["db:10.0.0.9"]
    bridge = ContainerOptions(network_mode="bridge", extra_hosts={"up": "host-gateway"})
    assert bridge.host_config()["extra_hosts"] == ["up:host-gateway"]
    assert ContainerOptions(volumes=["/a:/b:ro", "/c:/d"]).volume_mounts() == ["/b", "/d"]
    assert ContainerOptions(volumes={"/a": {"bind": "/b", "mode": "ro"}}).volume_mounts() == ["/b"]


def test_the_hosts_of_a_network_stand_in_a_part_of_their_own() -> None:
    """Hosts knew neither their own names nor each other's."""
    first = container.hosts_text("127.0.0.1\tlocalhost", {"d1": "10.0.0.1", "d2": "10.0.0.2"})
    part = "# hosts of the emulated network\n10.0.0.1\td1\n10.0.0.2\td2\n# end of these hosts\n"
    assert first == f"127.0.0.1\tlocalhost\n{part}"
    # What a program in the host has written stays, wherever it is.
    assert container.hosts_text(f"{first}10.9.9.9\tmine\n", {"d1": "10.0.0.7"}) == (
        "127.0.0.1\tlocalhost\n# hosts of the emulated network\n10.0.0.7\td1\n# end of these hosts\n10.9.9.9\tmine\n"
    )
    long = "h" * 64  # a host shortens its own name
    assert f"10.0.0.3\t{long} {hostname(long)}\n" in container.hosts_text("", {long: "10.0.0.3"})
    assert container.hosts_text("", {}) == "# hosts of the emulated network\n# end of these hosts\n"
    assert container.hosts_text(first, {"d1": "10.0.0.1", "d2": "10.0.0.2"}) == first


class Sent(Exception):
    """A request to the engine that is not carried out."""


def test_nothing_of_the_callers_environment_reaches_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a proxy in the user's Docker configuration members sent their messages to it: no cluster came up."""
    proxy = "http://proxy.example:3128"
    (tmp_path / "config.json").write_text(json.dumps({"proxies": {"default": {"httpProxy": proxy}}}))
    for name, value in {"DOCKER_CONFIG": str(tmp_path), "http_proxy": proxy, "TERM": "callers"}.items():
        monkeypatch.setenv(name, value)

    def send(self: Any, request: Any, **options: Any) -> Any:
        raise Sent(f"{request.url} {request.body!r}")

    monkeypatch.setattr(engine._Api, "send", send)
    api = engine._Api(base_url="tcp://127.0.0.1:1", version="1.41")
    for ask in (
        lambda: api.create_container(image="i", environment={"MINE": "1"}, host_config=api.create_host_config()),
        lambda: api.build(fileobj=io.BytesIO(b""), custom_context=True, buildargs={"MINE": "1"}),
    ):
        with pytest.raises(Sent) as sent:
            ask()
        assert "MINE" in str(sent.value)
        assert "proxy" not in str(sent.value)
    monkeypatch.setattr(processes, "cgroups_of", lambda pid: SimpleNamespace(procs_files=list))
    monkeypatch.setattr(processes, "root_of", lambda pid: tmp_path)
    inside = processes.ContainerProcesses(os.getpid(), {"Env": ["MINE=1"]}, "d1").argv(["env"])
    given = json.loads(inside[-2])["env"]
    assert given.keys() == {"PATH", "HOME", "HOSTNAME", "TERM", "MINE"}
    assert given["TERM"] == "xterm"
