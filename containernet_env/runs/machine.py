"""What this machine is, for the manifest of a run."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from containernet_env.base import programs
from containernet_env.base.files import unescape
from containernet_env.results.capacity import MachineKey
from containernet_env.results.run_files import MachineFacts, Virtualisation

_ROOT = Path("/")
_TIMEOUT_S = 10.0


def cpu_model(root: Path = _ROOT) -> str:
    """The processor's name as the kernel has it; the architecture where it has none."""
    return _cpu(root).get("model name") or platform.machine()


def facts(with_engine: bool = True) -> MachineFacts:
    """The current machine, kernel and Docker engine. Raises the errors of engine queries."""
    info: Mapping[str, Any] = {}
    if with_engine:
        from containernet_env.hosts import engine  # with Docker's SDK, which `check` does not wait for

        info = engine.facts()
    return MachineFacts(
        cpu_model=cpu_model(),
        cores=os.cpu_count() or 1,
        memory_bytes=memory_bytes(),
        architecture=platform.machine(),
        virtualisation=virtualisation(),
        kernel=platform.release(),
        kernel_build=platform.version(),
        clock_source=_line("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        congestion_control=_line("proc/sys/net/ipv4/tcp_congestion_control"),
        engine=info.get("ServerVersion"),
        storage_driver=info.get("Driver"),
        data_filesystem=filesystem(info.get("DockerRootDir")),
        cgroup_driver=info.get("CgroupDriver"),
        cgroup_version=info.get("CgroupVersion"),
        iproute2=_iproute2(),
        load_average=[round(load, 2) for load in os.getloadavg()],
        memory_available_bytes=memory_available_bytes(),
    )


def key() -> MachineKey:
    """Identifies the machine where costs of loads are kept; the same as of ``facts``, without the engine."""
    return MachineKey(
        cpu_model=cpu_model(), architecture=platform.machine(), cores=os.cpu_count() or 1, kernel=platform.release()
    )


def virtualisation(root: Path = _ROOT) -> Virtualisation:
    """The hypervisor as the kernel reports it, from the sources of systemd-detect-virt; no program is run."""
    flags = _cpu(root).get("flags")
    return Virtualisation(
        guest=None if flags is None else "hypervisor" in flags.split(),
        hypervisor=_line("sys/hypervisor/type", root),
        vendor=_line("sys/class/dmi/id/sys_vendor", root),
        product=_line("sys/class/dmi/id/product_name", root),
        container=_container(root),
    )


def _container(root: Path) -> str | None:
    """Detected by the files that container managers leave in containers, as in systemd's detect_container."""
    marks = {"docker": ".dockerenv", "podman": "run/.containerenv"}
    found = [name for name, mark in marks.items() if (root / mark).exists()]
    return _line("run/systemd/container", root) or next(iter(found), None)


def filesystem(place: str | None, root: Path = _ROOT) -> str | None:
    """Type and device of the file system on which ``place`` lies, such as "ext4 on /dev/vda"; None if unknown."""
    if place is None:
        return None
    found: tuple[int, str] | None = None
    for line in _text("proc/self/mountinfo", root).splitlines():
        # proc(5): its place is the fifth field; type and device follow the optional fields, behind a hyphen.
        fields, _, after = line.partition(" - ")
        mounted, device = Path(unescape(fields.split()[4])), after.split()
        # Of several on one place the last one is seen.
        if Path(place).is_relative_to(mounted) and (found is None or len(mounted.parts) >= found[0]):
            found = (len(mounted.parts), f"{device[0]} on {unescape(device[1])}")
    return None if found is None else found[1]


def memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_available_bytes(root: Path = _ROOT) -> int | None:
    """Memory available to programs without swapping; None if the kernel does not report it."""
    for line in _text("proc/meminfo", root).splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) << 10  # in kB, which are KiB (Documentation/filesystems/proc.rst)
    return None


def _cpu(root: Path) -> dict[str, str]:
    """The entry of the first processor in /proc/cpuinfo."""
    first, _, _ = _text("proc/cpuinfo", root).partition("\n\n")
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _text(name: str, root: Path = _ROOT) -> str:
    try:
        return (root / name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _line(name: str, root: Path = _ROOT) -> str | None:
    return " ".join(_text(name, root).split()) or None


def _iproute2() -> str | None:
    """The version that `ip` reports, such as "iproute2-6.1.0"."""
    from containernet_env.setup.commands import output_of  # with Docker's SDK, see `facts`

    program = programs.which("ip")
    printed = None if program is None else output_of([program, "-V"], _TIMEOUT_S, programs.environment())
    return next((word.strip(",") for word in (printed or "").split() if word.startswith("iproute2")), None)
