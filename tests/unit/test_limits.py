"""Finding a process's cgroups and reading what they hold, on recorded text of both versions and both drivers."""

from __future__ import annotations

from pathlib import Path

import pytest

from containernet_env.base.errors import RunError
from containernet_env.hosts.limits import (
    Cgroups,
    Limits,
    check_limits,
    limit_swap,
    locate,
    parse_cores,
    parse_limit,
    read_limits,
    read_oom_kills,
)

ID = "10dd95414bd86f1ec50c4a18af49680537ad412cc9c5b2371a9d91c6b2a7204a"

V1_CGROUPFS = f"""9:name=systemd:/docker/{ID}
8:pids:/docker/{ID}
4:memory:/docker/{ID}
2:cpuacct:/docker/{ID}
1:cpu:/docker/{ID}
"""
V2_SYSTEMD = f"0::/system.slice/docker-{ID}.scope\n"
V2_MOUNTS = "31 23 0:27 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = f"""11:cpu,cpuacct:/docker/{ID}
10:memory:/docker/{ID}
1:name=systemd:/docker/{ID}
0::/system.slice/containerd.service
"""
HYBRID_MOUNTS = """40 30 0:35 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
41 30 0:36 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
42 30 0:37 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
43 30 0:38 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
"""


GROUPS = Path("/sys/fs/cgroup")
SHARED = dict.fromkeys(("cpu", "cpuacct"), f"cpu,cpuacct/docker/{ID}") | {"memory": f"memory/docker/{ID}"}
PART = "50 30 0:40 /docker /mnt/my\\040groups rw - cgroup cgroup rw,memory\n"


HIERARCHIES: dict[str, tuple[str, str, dict[str, str], str | None]] = {
    "v2 with the systemd driver": (V2_SYSTEMD, V2_MOUNTS, {}, f"system.slice/docker-{ID}.scope"),
    "both, with the cgroupfs driver": (HYBRID, HYBRID_MOUNTS, SHARED, "unified/system.slice/containerd.service"),
    "a mount of a part of the hierarchy": (V1_CGROUPFS, PART, {"memory": f"/mnt/my groups/{ID}"}, None),
}  # fmt: skip


@pytest.mark.parametrize("kind", HIERARCHIES)
def test_cgroups_are_found_where_they_are_mounted(kind: str) -> None:
    memberships, mounts, v1, v2 = HIERARCHIES[kind]
    found = locate(memberships, mounts)
    found.v1.pop("name=systemd", None)
    assert found.v1 == {name: GROUPS / path for name, path in v1.items()}
    assert found.v2 == (None if v2 is None else GROUPS / v2)
    # A directory that two controllers share is joined once.
    wanted = {*found.v1.values(), *([found.v2] if found.v2 else [])}
    assert sorted(found.procs_files()) == sorted(path / "cgroup.procs" for path in wanted)


def test_texts_of_the_kernel() -> None:
    unlimited = ("-1\n", "max\n", "9223372036854771712\n", "9223372036854710272\n")
    assert [*map(parse_limit, (*unlimited, "67108864\n", "0"))] == [None] * 4 + [67108864, 0]
    cores = {"0\n": {0}, "0-2,4\n": {0, 1, 2, 4}, "3,1": {1, 3}, "\n": set(), "0-0": {0}}
    assert {text: parse_cores(text) for text in cores} == cores


OF_V1 = dict.fromkeys(("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"), "67108864\n") | {
    "cpu.cfs_quota_us": "50000\n",
    "cpu.cfs_period_us": "100000\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    "cpuset.cpus": "0-2,4\n",
}
NONE_OF_V1 = OF_V1 | {"cpu.cfs_quota_us": "-1\n", "memory.limit_in_bytes": "9223372036854771712\n"}
del NONE_OF_V1["memory.memsw.limit_in_bytes"]
OF_V2 = {
    "cpu.max": "150000 100000\n",
    "memory.max": "1000\n",
    "memory.swap.max": "24\n",
    "memory.events": "low 0\nhigh 0\nmax 4\noom 1\noom_kill 1\n",
    "cpuset.cpus.effective": "1\n",
}
NONE_OF_V2 = OF_V2 | {"cpu.max": "max 100000\n", "memory.swap.max": "max\n"}


@pytest.mark.parametrize(
    ("files", "held", "cpus", "kills"),
    [
        (OF_V1, Limits(50000, 100000, 67108864, 67108864, "0-2,4"), 0.5, 2),
        (NONE_OF_V1, Limits(None, 100000, None, None, "0-2,4"), None, 2),
        # Together with the memory, as Docker counts swap.
        (OF_V2, Limits(150000, 100000, 1000, 1024, "1"), 1.5, 1),
        (NONE_OF_V2, Limits(None, 100000, 1000, None, "1"), None, 1),
    ],
    ids=["v1", "v1 without limits and swap accounting", "v2", "v2 without limits"],
)
def test_limits_are_read(files: dict[str, str], held: Limits, cpus: float | None, kills: int, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    v1 = dict.fromkeys(("cpu", "memory", "cpuset"), tmp_path)
    cgroups = Cgroups({}, tmp_path) if "cpu.max" in files else Cgroups(v1, None)
    assert (read_limits(cgroups), read_limits(cgroups).cpus, read_oom_kills(cgroups)) == (held, cpus, kills)
    # Of a hierarchy that has no more than the cores, and of one without anything.
    cores = Limits(None, None, None, None, (held.cpuset if cgroups.v1 else None))
    assert read_limits(Cgroups({name: at for name, at in cgroups.v1.items() if name == "cpuset"}, None)) == cores
    assert read_limits(Cgroups({}, tmp_path / "nothing")) == Limits(None, None, None, None)


def test_swap_that_the_engine_left_without_a_limit_gets_one(tmp_path: Path) -> None:
    swap = tmp_path / "memory.swap.max"
    limit_swap(Cgroups({}, tmp_path), 1000, 1000)
    assert list(tmp_path.iterdir()) == [], "where it is not counted it is left alone"
    swap.write_text("max\n")
    limit_swap(Cgroups({"memory": tmp_path}, tmp_path), 1000, 1000)
    assert swap.read_text() == "max\n", "and where v1 has the memory"
    limits = {(1000, 1000): "0", (1000, 1500): "500", (1000, -1): "max", (1000, None): "max", (None, None): "max"}
    for (memory, memswap), held in limits.items():
        swap.write_text("max\n")
        limit_swap(Cgroups({}, tmp_path), memory, memswap)
        assert swap.read_text().strip() == held, (memory, memswap)
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\n")
    with pytest.raises(RunError, match="does not count"):
        read_oom_kills(Cgroups({"memory": tmp_path}, None))


def test_what_the_kernel_does_not_hold_is_named() -> None:
    held, nothing = Limits(50_000, 100_000, 64 << 20, 70 << 20, "0-1"), Limits(None, None, None, None)
    fits = {"cpu_quota_us": 50_000, "memory_bytes": (64 << 20) + 100, "cpu_period_us": None, "cpuset": "1,0"}
    check_limits(fits, held)
    # Where the kernel does not account for swap nothing is compared.
    check_limits({"cpu_quota_us": -1, "memory_bytes": -1, "memswap_bytes": 5}, nothing)
    memory = [("memory_bytes", 65 << 20), ("memory_bytes", (64 << 20) - 1), ("memswap_bytes", 5)]
    for name, value in (("cpu_quota_us", -1), *memory, ("cpuset", "0"), ("cpuset", "0-2")):
        with pytest.raises(RunError, match=f"holds {name}=.* instead of {value}"):
            check_limits({name: value}, held)
    with pytest.raises(RunError, match="holds cpuset=None instead of 0"):
        check_limits({"cpuset": "0"}, nothing)
