"""What the manifest says of the machine, read from trees as kernels have them."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base import assets
from containernet_env.hosts import engine
from containernet_env.runs import machine, version


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


CPUS = "processor\t: {}\nmodel name\t: Some CPU @ 2.00GHz\nflags\t\t: fpu vme{}\n\n"


DMI = {"sys/class/dmi/id/sys_vendor": "Some Cloud\n", "sys/class/dmi/id/product_name": "Standard  PC\n"}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"proc/cpuinfo": "".join(CPUS.format(n, " hypervisor lahf_lm") for n in "01")} | DMI,
            {"guest": True, "vendor": "Some Cloud", "product": "Standard PC"}),
        ({"proc/cpuinfo": CPUS.format(0, " hypervisor_x")}, {"guest": False}),  # a flag that only begins like that
        ({"sys/hypervisor/type": "xen\n"}, {"hypervisor": "xen"}),
        ({".dockerenv": ""}, {"container": "docker"}),
        ({"run/.containerenv": "engine"}, {"container": "podman"}),
        ({".dockerenv": "", "run/systemd/container": "systemd-nspawn\n"}, {"container": "systemd-nspawn"}),
        ({}, {}),
    ],
    ids=["a guest", "real hardware", "Xen", "Docker", "Podman", "systemd", "nothing is known"],
)  # fmt: skip
def test_what_runs_a_machine_is_told_by_its_cpu_firmware_and_files(tmp_path: Path, files: Any, found: Any) -> None:
    values = machine.virtualisation(tree(tmp_path, files)).model_dump()
    assert {name: value for name, value in values.items() if value is not None} == found


def test_processor_and_memory_are_the_kernels(tmp_path: Path) -> None:
    assert machine.memory_available_bytes(tmp_path) is None and machine.cpu_model(tmp_path), "the kernel tells neither"
    memory = "MemTotal:  3 kB\nMemFree:   1 kB\nMemAvailable:  2 kB\n"
    root = tree(tmp_path, {"proc/meminfo": memory, "proc/cpuinfo": CPUS.format(0, "")})
    assert (machine.memory_available_bytes(root), machine.cpu_model(root)) == (2048, "Some CPU @ 2.00GHz")


MOUNTS = """22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:20 / /var/lib rw master:2 shared:7 - xfs /dev/vdb rw
31 22 0:21 / /var/lib rw - btrfs /dev/vdc rw
32 22 0:22 / /var/library rw - tmpfs tmpfs rw
33 22 0:23 / /my\\040disk rw - ext4 /dev/my\\040disk rw
"""


def test_data_lie_on_the_innermost_file_system_and_of_several_on_the_last(tmp_path: Path) -> None:
    wanted = {"/var/lib/docker": "btrfs on /dev/vdc", "/var/lib": "btrfs on /dev/vdc", "/var": "ext4 on /dev/root"}
    wanted |= {"/my disk/docker": "ext4 on /dev/my disk"}
    root = tree(tmp_path, {"proc/self/mountinfo": MOUNTS})
    assert {place: machine.filesystem(place, root) for place in wanted} == wanted
    assert machine.filesystem(None, root) is None is machine.filesystem("/data", tmp_path / "nothing")


def test_this_machine_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    info = {"ServerVersion": "20.10.24", "Driver": "overlay2", "CgroupDriver": "cgroupfs", "CgroupVersion": "1"}
    info |= {"DockerRootDir": "/"}
    monkeypatch.setattr(engine, "facts", lambda: info)
    facts = machine.facts()
    total_kb = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1])
    assert abs(facts.memory_bytes - (total_kb << 10)) < 1 << 20
    assert facts.cores >= 1 and len(facts.load_average) == 3
    assert facts.congestion_control in Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text()
    assert (facts.engine, facts.storage_driver, facts.cgroup_version) == ("20.10.24", "overlay2", "1")
    assert facts.data_filesystem is not None and " on " in facts.data_filesystem
    assert facts.iproute2 is None or facts.iproute2.startswith("iproute2-")


def test_the_program_is_another_one_where_a_source_differs_and_not_where_a_config_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "containernet_env"
    tree(tmp_path, {f"{folder}/go.mod": "module x\n" for folder in assets.FOLDERS})
    tree(package, {"a.py": "x = 1\n", "py.typed": ""})
    monkeypatch.setattr(version, "assets", SimpleNamespace(**vars(assets) | {"PACKAGE": package, "ROOT": tmp_path}))
    hashes = []
    for name in (None, "configs/go.mod", "containernet_env/a.py", "link_emulator/go.mod"):
        if name is not None:
            with (tmp_path / name).open("a") as file:
                file.write("# more\n")
        hashes.append(version.source_hash.__wrapped__())
    assert hashes[0] == hashes[1] and len(set(hashes)) == 3
