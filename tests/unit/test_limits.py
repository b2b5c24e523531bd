"""Finding a process's cgroups and reading what they hold, on recorded text of both versions and both drivers."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from containernet_env.base.errors import RunError
from containernet_env.hosts.limits import (
    Cgroups,
    Limits,
    check_cores,
    check_limits,
    limit_swap,
    locate,
    parse_cores,
    parse_counters,
    parse_cpu_max,
    parse_limit,
    parse_memberships,
    parse_mounts,
    read_limits,
    read_oom_kills,
)

ID = "10dd95414bd86f1ec50c4a18af49680537ad412cc9c5b2371a9d91c6b2a7204a"

V1_CGROUPFS = f"""9:name=systemd:/docker/{ID}
8:pids:/docker/{ID}
4:memory:/docker/{ID}
2:cpuacct:/docker/{ID}
1:cpu:/docker/{ID}
0::/docker/{ID}
"""
V1_MOUNTS = """24 29 0:22 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
26 24 0:24 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
27 24 0:25 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
29 24 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
33 24 0:31 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
34 24 0:32 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
35 24 0:33 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
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


def test_v1_with_the_cgroupfs_driver() -> None:
    found = locate(parse_memberships(V1_CGROUPFS), parse_mounts(V1_MOUNTS))
    assert found.v1["cpu"] == Path(f"/sys/fs/cgroup/cpu/docker/{ID}")
    assert found.v1["memory"] == Path(f"/sys/fs/cgroup/memory/docker/{ID}")
    assert found.v2 == Path(f"/sys/fs/cgroup/unified/docker/{ID}")


def test_v2_with_the_systemd_driver() -> None:
    found = locate(parse_memberships(V2_SYSTEMD), parse_mounts(V2_MOUNTS))
    assert found.v1 == {}
    assert found.v2 == Path(f"/sys/fs/cgroup/system.slice/docker-{ID}.scope")
    assert found.procs_files() == (found.v2 / "cgroup.procs",)


def test_a_mixture_of_both() -> None:
    found = locate(parse_memberships(HYBRID), parse_mounts(HYBRID_MOUNTS))
    shared = Path(f"/sys/fs/cgroup/cpu,cpuacct/docker/{ID}")
    assert found.v1["cpu"] == found.v1["cpuacct"] == shared
    assert found.v2 == Path("/sys/fs/cgroup/unified/system.slice/containerd.service")
    # The directory that two controllers share is joined once.
    assert [path.parent for path in found.procs_files()].count(shared) == 1


def test_a_mount_that_shows_only_part_of_the_hierarchy() -> None:
    mounts = parse_mounts("50 30 0:40 /docker /mnt/my\\040groups rw - cgroup cgroup rw,memory\n")
    found = locate(parse_memberships(V1_CGROUPFS), mounts)
    assert found.v1 == {"memory": Path(f"/mnt/my groups/{ID}")}
    assert found.v2 is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("max 100000\n", (None, 100000)), ("20000 100000\n", (20000, 100000)), ("350000 50000\n", (350000, 50000))],
)
def test_cpu_max(text: str, expected: tuple[int | None, int]) -> None:
    assert parse_cpu_max(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max\n", None),
        ("67108864\n", 67108864),
        ("9223372036854771712\n", None),
        ("9223372036854710272\n", None),
        ("0", 0),
    ],
)
def test_memory_limits_of_both_versions(text: str, expected: int | None) -> None:
    assert parse_limit(text) == expected


@pytest.mark.parametrize(
    ("text", "cores"), [("0\n", {0}), ("0-2,4\n", {0, 1, 2, 4}), ("3,1", {1, 3}), ("\n", set()), ("0-0", {0})]
)
def test_lists_of_cores(text: str, cores: set[int]) -> None:
    assert parse_cores(text) == cores


@pytest.mark.parametrize(
    ("asked", "held", "fits"),
    [(None, "0-1", True), ("1,0", "0-1", True), ("0", "0-1", False), ("0-1", "0", False), ("0", None, False)],
)
def test_cores_that_are_not_held_are_told(asked: str | None, held: str | None, fits: bool) -> None:
    with nullcontext() if fits else pytest.raises(RunError, match=f"holds cpuset={held} instead of {asked}"):
        check_cores(asked, Limits(None, None, None, None, held))


def test_cores_of_both_versions(tmp_path: Path) -> None:
    (tmp_path / "cpuset.cpus").write_text("0-2,4\n")
    (tmp_path / "cpuset.cpus.effective").write_text("1\n")
    assert read_limits(Cgroups({"cpuset": tmp_path}, None)).cpuset == "0-2,4"
    assert read_limits(Cgroups({}, tmp_path)).cpuset == "1"


def test_counters() -> None:
    text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
    assert parse_counters(text) == {"oom_kill_disable": 0, "under_oom": 0, "oom_kill": 3}


def test_limits_of_v1(tmp_path: Path) -> None:
    for name, text in {
        "cpu.cfs_quota_us": "50000\n",
        "cpu.cfs_period_us": "100000\n",
        "memory.limit_in_bytes": "67108864\n",
        "memory.memsw.limit_in_bytes": "67108864\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    }.items():
        (tmp_path / name).write_text(text)
    cgroups = Cgroups({"cpu": tmp_path, "memory": tmp_path}, None)
    held = read_limits(cgroups)
    assert held == Limits(50000, 100000, 67108864, 67108864)
    assert held.cpus == 0.5
    assert read_oom_kills(cgroups) == 2


def test_no_limit_of_v1_and_no_swap_accounting(tmp_path: Path) -> None:
    (tmp_path / "cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    (tmp_path / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    held = read_limits(Cgroups({"cpu": tmp_path, "memory": tmp_path}, None))
    assert held == Limits(None, 100000, None, None)
    assert held.cpus is None


def test_limits_of_v2_count_swap_together_as_docker_does(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.swap.max").write_text("24\n")
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 4\noom 1\noom_kill 1\n")
    cgroups = Cgroups({}, tmp_path)
    assert read_limits(cgroups) == Limits(150000, 100000, 1000, 1024)
    assert read_oom_kills(cgroups) == 1


@pytest.mark.parametrize(
    ("memory", "memswap", "held"),
    [(1000, 1000, "0"), (1000, 1500, "500"), (1000, -1, "max"), (1000, None, "max"), (None, None, "max")],
)
def test_swap_that_the_engine_left_without_a_limit_gets_one(
    tmp_path: Path, memory: int | None, memswap: int | None, held: str
) -> None:
    (tmp_path / "memory.swap.max").write_text("max\n")
    limit_swap(Cgroups({}, tmp_path), memory, memswap)
    assert (tmp_path / "memory.swap.max").read_text().strip() == held


def test_swap_that_is_not_counted_is_left_alone(tmp_path: Path) -> None:
    limit_swap(Cgroups({}, tmp_path), 1000, 1000)
    limit_swap(Cgroups({"memory": tmp_path}, tmp_path), 1000, 1000)
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_without_the_counter_is_an_error_and_not_zero(tmp_path: Path) -> None:
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\n")
    with pytest.raises(RunError, match="does not count"):
        read_oom_kills(Cgroups({"memory": tmp_path}, None))


def test_what_the_kernel_does_not_hold_is_named() -> None:
    held = Limits(50_000, 100_000, 64 << 20, None)
    check_limits(
        {"cpu_quota_us": 50_000, "memory_bytes": (64 << 20) + 100, "memswap_bytes": -1, "cpu_period_us": None}, held
    )
    for asked in (
        {"cpu_quota_us": -1},
        {"memory_bytes": 65 << 20},
        {"memory_bytes": (64 << 20) - 1},
        {"memswap_bytes": 5},
    ):
        with pytest.raises(RunError, match=f"holds {next(iter(asked))}="):
            check_limits(asked, held)
