"""What is read of the kernel's files, on texts recorded on cgroup v1 (Linux 6.18) and v2 (Linux 6.1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from containernet_env.hosts.limits import Cgroups
from containernet_env.usage import texts
from containernet_env.usage.groups import Group
from containernet_env.usage.kept import KeptFile

PROC_STAT = b"""cpu  1729151 26405 510376 2378543 29293 7 42480 2237 11 12
cpu0 765681 10381 241321 1309662 9890 0 17085 1117 0 0
cpu1 963470 16024 269054 1068880 19402 0 25394 1119 0 0
intr 94293214 0 0 0 1 1 15 0 4793 1809
ctxt 245965228
btime 1794800000
processes 1234567
procs_running 3
procs_blocked 0
softirq 47893 0 1 2
"""
NET_DEV = b"""Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 116043798916 67496022    0    0    0     0          0         0 116043798916 67496022    0    0    0     0       0          0
  a1b2c3e0: 4266269554  113125    0    3    0     0          0         0  7071409   68042    0    0    0     0       0          0
  eth1:       5       4    0    0    0     0          0         0        3       2    0    2    0     0       0          0
"""  # noqa: E501 - as the kernel writes it
DISKSTATS = b"""   7       0 loop0 9 9 9 9 9 9 9 9 9 9 9 0 0 0 0 0 0
 254       0 vda 5804181 826247 254500602 6964443 6255149 2255753 135412064 1508838 0 860720 8761418 1732280 260 881828392 150233 1785726 137902
 254       1 vda1 5804181 826247 254500602 6964443 6255149 2255753 135412064 1508838 0 860720 8761418 1732280 260 881828392 150233 1785726 137902
 259       0 nvme0n1 1 0 8 1 2 0 16 1 0 1 1
"""  # noqa: E501
PRESSURE = b"some avg10=5.40 avg60=9.42 avg300=13.79 total=4943136437\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
V2_IO = b"254:0 rbytes=90112 wbytes=299008 rios=5 wios=43 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=2 rios=3 wios=4\n"
MEMINFO = b"MemTotal:       24650272 kB\nMemFree:          843172 kB\nMemAvailable:   23899620 kB\nBuffers: 12 kB\n"


def test_a_machines_times() -> None:
    assert texts.machine_times(PROC_STAT) == (1729151 + 26405, 510376 + 7 + 42480, 2237, 245965228)
    assert texts.machine_times(PROC_STAT.partition(b"ctxt")[0]).switches is None


def test_a_program_may_be_called_anything() -> None:
    stat = b"24336 (a) R 1 (x y) S 24332 24332 18729 0 -1 4194304 102 0 0 0 17 23 5 6 20 0 1 0 2396683 3133440 357 1"
    assert texts.process_ticks(stat) == (17, 23)


def test_interfaces_but_the_loopback_are_added() -> None:
    assert texts.traffic(NET_DEV) == (4266269559, 113129, 7071412, 68044)
    assert texts.traffic(b"".join(NET_DEV.splitlines(keepends=True)[:3])) == (0, 0, 0, 0)


def test_disks_are_counted_once() -> None:
    found = texts.disk_use(DISKSTATS, {b"vda", b"nvme0n1"})
    assert found == ((254500602 + 8) * 512, (135412064 + 16) * 512, 5804182, 6255151)


def test_what_a_group_did_on_all_disks() -> None:
    assert texts.group_disk_use(V2_IO) == (90113, 299010, 8, 47)


def test_small_files() -> None:
    none = texts.ThreadTimes(0, 0, 0)
    assert texts.thread_times(none, [b"35891192 3980015 127\n", b"1 2 3\n"]) == (35891193, 3980017, 130)
    assert texts.thread_times(texts.ThreadTimes(10, 20, 30), []) == (10, 20, 30)
    assert texts.pressure_ns(PRESSURE) == 4943136437000
    assert texts.resident_pages(b"765 357 300 5 0 100 0\n") == 357
    assert texts.memory_in_use_bytes(MEMINFO) == (24650272 - 23899620) * 1024
    assert texts.counters(b"rchar: 6976\nread_bytes: 12\ncancelled_write_bytes: 3\n")[b"read_bytes:"] == 12


@pytest.mark.parametrize(
    "parse",
    [
        lambda text: texts.thread_times(texts.ThreadTimes(0, 0, 0), [text]),
        texts.process_ticks,
        texts.resident_pages,
        texts.pressure_ns,
        texts.machine_times,
        texts.memory_in_use_bytes,
    ],
)
@pytest.mark.parametrize("text", [b"", b"x", b"nonsense x\n", b"\xff\xfe"])
def test_other_forms_are_no_numbers(parse: Callable[[bytes], object], text: bytes) -> None:
    with pytest.raises(ValueError):
        parse(text)


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


V2_FILES = {
    "cpu.stat": "usage_usec 5000\nuser_usec 3000\nsystem_usec 2000\nnr_periods 9\nnr_throttled 4\nthrottled_usec 700\n",
    "memory.current": "4096\n",
    "io.stat": V2_IO.decode(),
    "cpu.pressure": PRESSURE.decode(),
    "io.pressure": PRESSURE.decode().replace("4943136437", "5"),
    "memory.pressure": PRESSURE.decode().replace("4943136437", "6"),
    "cgroup.procs": "12\n13\n",
}


def test_a_group_of_v2(tmp_path: Path) -> None:
    group = Group(Cgroups({}, write(tmp_path, V2_FILES)))
    assert group.cpu() == {
        "cpu_ns": 5_000_000,
        "user_ns": 3_000_000,
        "system_ns": 2_000_000,
        "throttled_ns": 700_000,
        "throttled_periods": 4,
    }
    assert group.throttling() == {"throttled_ns": 700_000, "throttled_periods": 4}
    assert (group.memory_bytes(), group.disk_use(), group.pids()) == (4096, (90113, 299010, 8, 47), (12, 13))
    assert group.pressures() == {"cpu_pressure_ns": 4943136437000, "memory_pressure_ns": 6000, "io_pressure_ns": 5000}
    group.close()


def test_groups_of_v1_with_a_hierarchy_of_v2_beside_them(tmp_path: Path) -> None:
    v2 = {name: text for name, text in V2_FILES.items() if name.endswith("pressure")}
    # Without a controller, v2 counts CPU time all the same.
    v2 |= {"cpu.stat": "usage_usec 1\nuser_usec 1\nsystem_usec 1\n", "io.stat": V2_FILES["io.stat"]}
    group = Group(
        Cgroups(
            {
                "cpu": write(
                    tmp_path / "cpu",
                    {"cpu.stat": "nr_periods 9\nnr_throttled 2\nthrottled_time 31\n", "cgroup.procs": "5\n"},
                ),
                "cpuacct": write(
                    tmp_path / "acct", {"cpuacct.usage": "23572063991711\n", "cpuacct.stat": "user 7\nsystem 5\n"}
                ),
                "memory": write(tmp_path / "memory", {"memory.usage_in_bytes": "651046912\n"}),
                "blkio": write(tmp_path / "blkio", {"blkio.throttle.io_service_bytes": "Total 0\n"}),
            },
            write(tmp_path / "unified", v2),
        )
    )
    assert group.cpu() == {
        "cpu_ns": 23572063991711,
        "user_ns": 70_000_000,
        "system_ns": 50_000_000,
        "throttled_ns": 31,
        "throttled_periods": 2,
    }
    assert (group.memory_bytes(), group.pids()) == (651046912, (5,))
    assert group.pressures()["cpu_pressure_ns"] == 4943136437000
    assert group.disk_use() is None, "v1's blkio does not count, and nothing is not 0"
    group.close()


def test_a_group_without_a_limit_is_not_throttled_and_one_without_a_counter_is_not_known(tmp_path: Path) -> None:
    bare = Group(Cgroups({}, write(tmp_path, {"cpu.stat": "usage_usec 5\n"})))
    assert bare.cpu() == {
        "cpu_ns": 5000,
        "user_ns": None,
        "system_ns": None,
        "throttled_ns": None,
        "throttled_periods": None,
    }
    assert (bare.memory_bytes(), bare.disk_use(), bare.pids()) == (None, None, ())
    assert set(bare.pressures().values()) == {None}
    bare.close()
    nothing = Group(Cgroups({}, None))
    assert set(nothing.cpu().values()) == {None}


def test_a_kept_file_is_read_anew_and_may_go(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("1\n")
    kept = KeptFile(path)
    assert kept.read(int) == 1
    path.write_text("22\n")  # the same file
    assert kept.read(int) == 22
    path.write_text("no number")
    assert kept.read(int) is None
    path.write_text("3")
    assert kept.read(int) == 3
    kept.close()
    path.unlink()
    assert kept.read(int) is None
    assert KeptFile(None).read(int) is None
