"""The keywords of a Docker host, checked and turned into the engine's parameters; nothing here talks to it."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from containernet_env.base.errors import UsageError
from containernet_env.base.units import parse_cpus

DEFAULT_CPU_PERIOD_US = 100_000
# Linux kernel/sched/core.c: a quota below 1 ms is refused.
MIN_CPU_QUOTA_US = 1_000
NO_NEW_PRIVILEGES = ("no-new-privileges",)
PIDS_LIMIT = 4096
"""Processes and threads of a host: far more than stores have, and far fewer than a machine."""
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)b?", re.IGNORECASE)
_MEMORY_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_HOSTNAME_MAX = 63


def check_name(name: str) -> None:
    """Raise ``UsageError`` unless a container can be called ``name``."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"a Docker host cannot be called {name!r}; allowed: letters, digits, '_', '.' and '-', "
            "beginning with a letter or digit"
        )


def memory_bytes(value: int | str) -> int:
    """Bytes of a memory limit in Docker's form: an ``int`` or text such as ``"512m"`` (units of 1024)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _MEMORY.fullmatch(str(value))
    if match is None:
        raise UsageError(f'a memory limit is a number of bytes or text such as "512m", got {value!r}')
    return int(float(match[1]) * _MEMORY_UNITS[match[2].lower()])


def cpu_limit(cpus: float | str | None, cpu_quota: int | None, cpu_period: int | None) -> tuple[int | None, int | None]:
    """The limit that ``cpus`` or ``cpu_quota`` configures: quota and period in us, ``None`` is left to the engine.

    ``cpus`` may be fractional and, unlike the engine's own option, above the machine's cores: it is applied as a
    quota, which then simply cannot bind. Raises ``UsageError`` for both at once and for values out of range.
    """
    if cpus is None:
        return cpu_quota, cpu_period
    if cpu_quota is not None:
        raise UsageError(f"cpus={cpus} and cpu_quota={cpu_quota} both limit the CPU: give one of them")
    try:
        wanted = parse_cpus(cpus)
    except ValueError as error:
        raise UsageError(f"cpus: got {cpus!r}, allowed: {error}") from error
    period = cpu_period or DEFAULT_CPU_PERIOD_US
    quota = round(wanted * period)
    if quota < MIN_CPU_QUOTA_US:
        raise UsageError(f"cpus={cpus} is a quota of {quota} us per {period} us; the kernel allows 1000 us or more")
    return quota, period


# Options that the engine has in the same form.
_PASSED_ON = (
    *("tmpfs", "cpu_shares", "cpuset_cpus", "dns", "ipc_mode", "devices", "cap_add", "cap_drop", "security_opt"),
    *("pids_limit", "storage_opt", "shm_size", "device_requests", "init"),
)


@dataclass(frozen=True)
class ContainerOptions:
    """All options of a Docker host besides its name, image and addresses (see ``Docker``)."""

    dcmd: str | Sequence[str] | None = None
    environment: Mapping[str, str] | Sequence[str] = field(default_factory=dict)
    cpu_quota: int | None = None
    cpu_period: int | None = None
    cpu_shares: int | None = None
    cpus: float | str | None = None
    cpuset_cpus: str | None = None
    mem_limit: int | str | None = None
    memswap_limit: int | str | None = None
    volumes: Sequence[str] | Mapping[str, Any] = ()
    tmpfs: Sequence[str] | Mapping[str, str] = ()
    network_mode: str | None = None
    publish_all_ports: bool = False
    port_bindings: Mapping[Any, Any] = field(default_factory=dict)
    ports: Sequence[Any] = ()
    dns: Sequence[str] = ()
    extra_hosts: Mapping[str, str] | Sequence[str] = ()
    ipc_mode: str | None = None
    devices: Sequence[str] = ()
    cap_add: Sequence[str] = ()
    cap_drop: Sequence[str] = ()
    security_opt: Sequence[str] = NO_NEW_PRIVILEGES
    pids_limit: int = PIDS_LIMIT
    storage_opt: Mapping[str, str] | None = None
    sysctls: Mapping[str, str] = field(default_factory=dict)
    shm_size: int | str = "64mb"
    device_requests: Sequence[Any] = ()
    init: bool = False
    logs: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.network != "none" and (self.network == "host" or self.network.startswith("container:")):
            raise UsageError(
                f"network_mode={self.network!r} shares a network namespace, so links would end in another's; "
                "allowed: none (default), bridge, or a network of the engine"
            )
        has_ports = bool(self.ports or self.port_bindings or self.publish_all_ports)
        if self.network == "none" and has_ports:
            raise UsageError(
                "ports cannot be published from network_mode none (the engine would do nothing, silently); "
                'ask for network_mode="bridge", or reach the host over its emulated links'
            )
        cpu_limit(self.cpus, self.cpu_quota, self.cpu_period)
        for each in fields(self):
            if isinstance(each.default, tuple) and isinstance(given := getattr(self, each.name), str):
                raise UsageError(f"{each.name}: got {given!r}, allowed: a list, such as [{given!r}]")
        for entry in self.host_entries():
            name, _, address = str(entry).partition(":")
            gateway = address == "host-gateway" and self.network != "none"
            if not _NAME.fullmatch(name) or not (gateway or _is_address(address)):
                raise UsageError(
                    f'extra_hosts: got {entry!r}, allowed: names with IP addresses, such as {{"db": "10.0.0.9"}} or '
                    '["db:10.0.0.9"]'
                )
        memory, memswap = self.memory_limits
        if memory is None and memswap is not None:
            raise UsageError("memswap_limit needs mem_limit")
        if memory is not None and memswap is not None and -1 < memswap < memory:
            raise UsageError(
                f"memswap_limit ({memswap}) counts memory and swap together: not below mem_limit ({memory})"
            )

    @property
    def network(self) -> str:
        """The engine's network; by default none, so that a host has no path but its links."""
        return self.network_mode or "none"

    @property
    def memory_limits(self) -> tuple[int | None, int | None]:
        """Memory, and memory with swap, in bytes. Without a configured swap limit, no swap."""
        memory = None if self.mem_limit is None else memory_bytes(self.mem_limit)
        memswap = memory if self.memswap_limit is None else memory_bytes(self.memswap_limit)
        return memory, memswap

    def command(self) -> str | list[str]:
        """The command of the first process; the image's entrypoint is always overridden."""
        if self.dcmd is None:
            # A shell that reads its open standard input for ever and so keeps the container up; it needs only sh.
            return ["sh"]
        return self.dcmd if isinstance(self.dcmd, str) else list(self.dcmd)

    def bindings(self, exposed: Sequence[str]) -> dict[Any, Any]:
        """Published ports, on 127.0.0.1 unless an address is given. ``exposed`` are the image's own ports."""
        found: dict[Any, Any] = {}
        if self.publish_all_ports:
            found.update(dict.fromkeys((*exposed, *map(str, self.ports)), ("127.0.0.1",)))
        for port, target in self.port_bindings.items():
            found[port] = ("127.0.0.1", target) if isinstance(target, (int, str)) else target
        return found

    def host_config(self, exposed: Sequence[str] = ()) -> dict[str, Any]:
        """Arguments of the SDK's ``create_host_config``."""
        memory, memswap = self.memory_limits
        quota_us, period_us = cpu_limit(self.cpus, self.cpu_quota, self.cpu_period)
        wanted = {name: getattr(self, name) for name in _PASSED_ON} | {
            "network_mode": self.network,
            "binds": self.volumes,
            "port_bindings": self.bindings(exposed),
            "mem_limit": memory,
            "memswap_limit": memswap,
            "cpu_quota": quota_us,
            "cpu_period": period_us,
            "extra_hosts": self.host_entries(),
            "sysctls": {name: str(value) for name, value in self.sysctls.items()},
            "log_config": log_config(self.logs),
        }
        given = {name: value for name, value in wanted.items() if value not in (None, [], {}, (), False)}
        # The SDK takes no other sequences.
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}

    def volume_mounts(self) -> list[str]:
        """The paths in the container that ``volumes`` are mounted at."""
        if isinstance(self.volumes, Mapping):
            return [entry["bind"] for entry in self.volumes.values()]
        return [parts[1] for volume in self.volumes if len(parts := volume.split(":")) >= 2]

    def host_entries(self) -> list[str]:
        """``extra_hosts`` as the engine takes them, "name:address"."""
        given = self.extra_hosts
        return [f"{name}:{address}" for name, address in given.items()] if isinstance(given, Mapping) else list(given)

    def exposed_ports(self) -> list[Any]:
        """The container's ports for the engine: the configured ones and those that are bound."""
        found: list[Any] = list(self.ports)
        for port in self.port_bindings:
            number, _, protocol = str(port).partition("/")
            entry: Any = (int(number), protocol) if protocol else int(number)
            if entry not in found:
                found.append(entry)
        return found


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def log_config(keep: bool) -> dict[str, Any]:
    """The engine's ``LogConfig``: bounded logs, or none."""
    # Bounded: a program that logs without end must not fill the machine's disk.
    if keep:
        return {"type": "json-file", "config": {"max-size": "4m", "max-file": "2"}}
    return {"type": "none", "config": {}}


def hostname(name: str) -> str:
    """The hostname of the container of a host: a label of DNS has 63 characters at most (RFC 1035)."""
    if len(name) <= _HOSTNAME_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _HOSTNAME_MAX - 9]}-{digest}"
