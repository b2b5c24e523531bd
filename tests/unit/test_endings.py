"""How a program ended, in one line: statuses, signals, crashes of Go programs, etcd's last words. On recorded output.

tests/recorded/go_crashes.txt was written by small programs of Go 1.26, the logs in tests/recorded/etcd by etcd 3.7.3
with the project's log format; dumps of goroutines and registers are cut.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from containernet_env.base.programs import ending, how_ended, last_words
from containernet_env.stores.etcd import cluster as etcd

RECORDED = Path(__file__).resolve().parents[1] / "recorded"
CRASHES = dict(re.findall(r"^== (\w+)\n((?:(?!== ).*\n)*)", (RECORDED / "go_crashes.txt").read_text(), re.MULTILINE))
TOLD = {
    "nil": "panic: runtime error: invalid memory address or nil pointer dereference",
    "error": "panic: read the TAP: file descriptor in bad state",
    "lines": "panic: two",
    "again": "panic: first [recovered]",
    "deadlock": "fatal error: all goroutines are asleep - deadlock!",
    "stack": "runtime: goroutine stack exceeds 1048576-byte limit",
    "map": "fatal error: concurrent map writes",
    "memory": "runtime: out of memory: cannot allocate 67108864-byte block (742064128 in use)",
    "fault": "unexpected fault address 0x7f3227401388",
    "quit": "SIGQUIT: quit",
    "abort": "SIGABRT: abort",
    "segv": "SIGSEGV: segmentation violation",
}


def test_a_crash_of_a_go_program_is_told_by_its_first_line() -> None:
    before = "link-emulator: port d1: queue is full\nruntime: mlock of signal stack failed: 12\nstarted\n"
    assert {name: ending(2, before + crash) for name, crash in CRASHES.items()} == {
        name: f"exit status 2: {told}" for name, told in TOLD.items()
    }
    assert {name: last_words(crash.replace("\n", "\r\n")) for name, crash in CRASHES.items()} == TOLD


@pytest.mark.parametrize(
    ("status", "log", "told"),
    [
        (1, "one\nlisten tcp :8080:\t address in use\n\n", "exit status 1: listen tcp :8080: address in use"),
        (1, "a panic: no\nfine\n", "exit status 1: fine"),
        (3, "", "exit status 3"),
        # What a killed program said last is not the reason.
        (-9, "listening on :8080\n", "killed by SIGKILL"),
        (134, "panic: no room\n\ngoroutine 1 [running]:\n", "killed by SIGABRT, panic: no room"),
    ],
)
def test_any_other_program_is_told_by_its_last_line(status: int, log: str, told: str) -> None:
    assert ending(status, log) == told
    assert len(ending(1, "x" * 5000)) < 400


def test_statuses_above_128_are_signals() -> None:
    signals = {137: "SIGKILL", -15: "SIGTERM", 139: "SIGSEGV"}
    assert {status: how_ended(status) for status in signals} == {n: f"killed by {name}" for n, name in signals.items()}
    for status in (0, 2, 127, 128, 255):
        assert how_ended(status) == f"exit status {status}"


WHY = {
    ("disk-full-at-start", False): "failed to create WAL: no space left on device",
    ("disk-full", False): "failed to commit tx: write /data/e/member/snap/db: no space left on device",
    ("wal-corrupted", False): "discovery failed: walpb: crc mismatch: expected: 2a06d722 computed: 2400cc57: "
    "in file '0000000000000000-0000000000000000.wal' at position: 80",
    ("port-taken", False): "discovery failed: listen tcp 127.0.0.1:2380: bind: address already in use",
    ("no-such-address", False): "discovery failed: listen tcp 10.0.0.1:2380: bind: cannot assign requested address",
    ("read-only", False): "discovery failed: cannot access data directory: mkdir /data/e: read-only file system",
    ("sigterm", False): "shut down by a signal (terminated)",
    ("sigquit", False): "SIGQUIT: quit",
    ("unknown-flag", False): "flag provided but not defined: -nosuch",
    # etcd's warnings of every start are no reason.
    ("sigkill", True): "",
    ("oom", True): "",
    # Had it been killed after its disk was full, the error were worth telling, but not as the reason.
    ("disk-full", True): "last fatal: failed to commit tx: write /data/e/member/snap/db: no space left on device",
}
SLOW = '2026-11-22T02:18:20.1Z\twarn\ttxn/util.go:93\tapply request took too long\t{"took": "302ms"}\n'
NO_ETCD = "/usr/local/bin/wait-at-gate: 24: exec: etcd: not found"


def test_why_an_etcd_member_ended_is_told_by_its_log() -> None:
    logs = {name: (RECORDED / "etcd" / f"{name}.log").read_text() for name, _ in WHY}
    assert {(name, killed): etcd.LOG.last_words(logs[name], killed) for name, killed in WHY} == WHY
    # Of a member that was killed, a warning after its start.
    assert etcd.LOG.last_words(logs["sigkill"] + SLOW, killed=True) == "last warning: apply request took too long"
    assert etcd.LOG.last_words(SLOW + logs["sigkill"], killed=True) == ""
    assert [etcd.LOG.last_words(said, killed=False) for said in (f"{NO_ETCD}\n", "")] == [NO_ETCD, ""]
