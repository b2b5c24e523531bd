"""However a run ends, no row is lost and nothing of it stays: each mechanism once; tests/faults has every moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from containernet_env.hosts import engine, netns
from containernet_env.results.run_directory import find_run, read_run
from tests.docker.runs import COMMAND, CONFIG, PROJECT, Run, call, host_pid, near_and_far, rows, run, topology

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("unchanged_machine")]

NOT_RUN = "not run: interrupted by SIGINT"
# Moments of a run: the first call of each of these functions on its main thread, in their order.
MOMENTS = (
    "main",  # Ctrl-C is heard, the command is not imported yet
    "LazyGroup.get_command",
    "prepare",
    "RunLock.__enter__",
    "remove_leftovers",
    "Testbed._start_hosts",
    "Testbed._connect",
    "Follower.follow",
)
PRESSED = """
import os, signal, sys

heard = False

def press(frame, event, arg):
    global heard
    name = frame.f_code.co_qualname
    heard = heard or (name, event) == ("hear_ctrl_c", "return")
    if heard and (name, event) == ({moment!r}, "call"):
        sys.setprofile(None)
        os.killpg(0, signal.SIGINT)

sys.setprofile(press)
from containernet_env.__main__ import main
sys.exit(main())
"""
"""A program that is the command, and presses Ctrl-C for its process group at a moment."""


class Struck(Run):
    """A run whose process group is interrupted at one of ``MOMENTS``."""

    def __init__(self, moment: str, scenarios: Path, out: Path) -> None:
        self.command = (sys.executable, "-c", PRESSED.format(moment=moment))
        super().__init__(scenarios, out)


def test_a_run_has_the_machine_for_itself_and_ends_by_sigterm(long: Path, tiny: Path, tmp_path: Path) -> None:
    with Run(long, tmp_path / "first.csv") as first:
        first.reach("scenario_began")
        other = run(CONFIG, tmp_path / "second.csv", "--scenarios", tiny)
        assert other.returncode == 1 and f"another run is on (process {first.pid})" in other.stderr, other.stderr
        lab = call("shell", CONFIG, "-c", "etcd1 echo up")
        assert (lab.returncode, lab.stdout) == (1, "")
        assert f"a run is measuring on this machine (process {first.pid}); a lab would disturb it" in lab.stderr
        assert call("clean").stdout.count("kept container") == 4
        first.strike(signal.SIGTERM)
        first.reach("run_interrupted")  # pending together, the lower one would come first
        first.strike(signal.SIGINT)  # an impatient second one changes nothing
        output = first.end()
    assert first.status == 128 + signal.SIGTERM, output
    assert first.errors() == ["interrupted", "not run: interrupted by SIGTERM"], output


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_at_any_moment(moment: str, long: Path, tmp_path: Path) -> None:
    with Struck(moment, long, tmp_path / "out.csv") as stopped:
        output = stopped.end()
    assert stopped.status == 128 + signal.SIGINT, output
    assert "Traceback" not in output and "ignored" not in output, output
    assert stopped.errors() == (["interrupted", NOT_RUN] if moment == MOMENTS[-1] else [])


def test_ctrl_c_in_the_second_repetition_leaves_every_row(tiny: Path, tmp_path: Path) -> None:
    config = near_and_far(tmp_path / "config.json")
    with Run(tiny, tmp_path / "out.csv", "--repeat", 3, "--fresh", config=config) as stopped:
        stopped.reach("cluster_up", 2)
        stopped.strike(signal.SIGINT, group=True)
        output = stopped.end()
    assert stopped.status == 128 + signal.SIGINT and "Traceback" not in output, output
    assert len(stopped.errors()) == 12 and stopped.errors()[:4] == ["-"] * 4
    assert stopped.errors()[8:] == [NOT_RUN] * 4


def test_after_kill_9_in_the_proof_it_is_repeated_with_anyway_alone_and_the_next_run_cleans_up(
    long: Path, tiny: Path, tmp_path: Path
) -> None:
    with Run(long, tmp_path / "out.csv") as killed:
        killed.reach_child("link-emulator", "probe")
        killed.strike(signal.SIGKILL)  # its children live on
        killed.end()
    shown = call("show", killed.out)
    assert "no checksums: the run goes on, or was killed" in shown.stdout, shown.stdout
    again = call("rerun", killed.out, "--dry-run")
    assert again.returncode == 2 and "checksums.sha256: was written at the end, is missing" in again.stderr
    assert "links: was not known" in again.stderr
    assert call("rerun", killed.out, "--dry-run", "--anyway").returncode == 0
    following = run(CONFIG, killed.out, "--scenarios", tiny, "--only", "read*")
    assert following.returncode == 0 and "left behind" in following.stdout, following.stdout + following.stderr
    assert killed.errors() == ["-"] * 2


def test_after_kill_9_in_a_scenario_clean_removes_what_is_ours_and_only_that(
    long: Path, tmp_path: Path, image: str
) -> None:
    theirs = engine.client().containers.create(image, name=f"cnenv-not-ours-{os.getpid()}", command="sh")
    try:
        with Run(long, tmp_path / "out.csv") as killed:
            killed.reach("scenario_began")
            killed.strike(signal.SIGKILL, group=True)
            killed.end()
        assert killed.status == -signal.SIGKILL
        removed = call("clean")
        assert removed.stdout.count("removed container") == 4, removed.stdout + removed.stderr
        theirs.reload()
    finally:
        theirs.remove()


def test_a_network_that_is_not_as_configured_stops_the_run_with_the_table(tiny: Path, tmp_path: Path) -> None:
    """An error of the run's own; a network that is as good as it is configured to be cannot hold 1 ns."""
    out = tmp_path / "out.csv"
    done = run(topology(tmp_path / "config.json"), out, "--scenarios", tiny, "--rtt-tolerance", "1ns")
    assert done.returncode == 1
    assert "the network is not the one that was configured" in done.stderr
    heading, *table = done.stderr[done.stderr.index("direction ") :].splitlines()
    assert heading.split() == ["direction", "property", "asked", "measured", "allowed"]
    assert any(line.split()[:4] == ["etcd1>s1", "delay", "3.000", "ms"] for line in table), done.stderr
    assert rows(out) == []
    failed = read_run(find_run(out))
    assert failed.network is not None
    proofs = failed.network["proofs"]
    assert len(proofs) == 2  # only what two gates find wrong is wrong
    for proof in proofs:
        assert not proof["passed"] and len(proof["problems"]) == 8, proof["problems"]  # the delay of each direction
        assert len(proof["pairs"]) == 6 and len(proof["paths"]) == 12
        assert all(len(path["delays_ns"]) >= 20 for path in proof["paths"])


def test_an_unknown_congestion_control_is_refused_with_what_there_is(tiny: Path, tmp_path: Path) -> None:
    done = run(CONFIG, tmp_path / "out.csv", "--scenarios", tiny, "--congestion-control", "swift")
    assert done.returncode == 2
    assert "no TCP congestion control 'swift'; it has: " in done.stderr


def test_a_host_that_ends_while_the_cluster_starts_is_what_the_error_says(long: Path, tmp_path: Path) -> None:
    with Run(long, tmp_path / "out.csv") as struck:
        struck.reach("network_proved")
        os.kill(host_pid("etcd2"), signal.SIGKILL)
        output = struck.end()
    assert struck.status == 1, output
    assert "etcd2 ended while the cluster started: killed by SIGKILL" in output, output


def test_an_interface_that_is_deleted_under_a_living_member(long: Path, tmp_path: Path) -> None:
    with Run(long, tmp_path / "out.csv") as struck:
        struck.reach_request()
        netns.run(host_pid("etcd2"), ["ip", "link", "delete", "dev", "etcd2-eth0"])
        output = struck.end()
    assert struck.status == 1, output
    first, following = struck.errors()
    assert first.startswith("the network lost a host that lives: etcd2-eth0: interface "), first
    assert following.startswith("not run: the network lost a host that lives: etcd2-eth0"), following


def test_oom_killed_members_are_named_and_the_rest_is_not_run(tmp_path: Path) -> None:
    config, scenarios = topology(tmp_path / "small.json", mem="32m"), tmp_path / "large.json"
    # Values of 128 MB in all.
    data, load = {"keySize": 8, "valSize": 65536}, {"total": 2000, "clients": 100, "conns": 10}
    writes = {"type": "write", "load": load, "data": data, "target": ["leader", "cluster"]}
    reads = {"type": "read", "load": {"total": 20, "clients": 1, "conns": 1}, "consistency": ["l", "s"]}
    scenarios.write_text(json.dumps({"dataset": data | {"keys": 20}, "scenarios": [writes, reads]}))
    done = run(config, tmp_path / "out.csv", "--scenarios", scenarios)
    assert done.returncode == 1, done.stdout + done.stderr
    errors = [row["Error"] for row in rows(tmp_path / "out.csv")]
    assert len(errors) == 4
    killed = next(index for index, error in enumerate(errors) if "ended: OOM-killed (memory limit 32 MiB)" in error)
    assert all("OOM-killed" in error for error in errors[killed:]), errors
    assert errors[-1].startswith("not run: "), errors


def lab_of(config: Path) -> subprocess.Popen[str]:
    """A lab that stays up and says so."""
    commands = ("etcd1 echo up", "etcd1 ping -c 1 benchmark", "etcd1 sleep 600")
    options = [word for command in commands for word in ("-c", command)]
    argv = [str(COMMAND), "shell", str(config), "--port", "18080", *options]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def test_two_labs_stand_beside_a_run_and_its_row_says_so(tiny: Path, tmp_path: Path) -> None:
    config = PROJECT / "configs" / "1node.json"
    labs = [lab_of(config) for _ in range(2)]
    try:
        for lab in labs:
            assert lab.stdout is not None and lab.stdout.readline() == "up\n", lab.communicate()[1]
        done = run(config, tmp_path / "out.csv", "--scenarios", tiny, "--only", "read-serial*")
        assert done.returncode == 0 and "2 labs are up on this machine" in done.stdout, done.stdout + done.stderr
        assert [row["OtherLabs"] for row in rows(tmp_path / "out.csv")] == ["2"]
    finally:
        for lab in labs:
            lab.send_signal(signal.SIGTERM)
    for lab in labs:
        lab.communicate(timeout=60)
        assert lab.returncode == 128 + signal.SIGTERM
