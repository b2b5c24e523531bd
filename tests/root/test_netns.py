"""Work inside another process's network namespace."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from containernet_env.base.errors import RunError
from containernet_env.hosts import netns, processes
from containernet_env.hosts.netns import ThrowawayNamespace
from containernet_env.hosts.processes import ContainerProcesses
from tests.deadline import HANG_S, eventually
from tests.root.network import needs_root

pytestmark = [pytest.mark.root, needs_root]


def own() -> int:
    return os.stat("/proc/self/ns/net").st_ino


@pytest.fixture
def namespace() -> Iterator[ThrowawayNamespace]:
    """One with an address on its loopback interface."""
    with ThrowawayNamespace() as made:
        netns.ip_batch(made.pid, ["link set dev lo up", "address add 10.8.0.1/32 dev lo"])
        yield made


def test_a_namespace_lives_as_long_as_it_is_held_and_the_callers_stays_what_it_is() -> None:
    before = own()
    with ThrowawayNamespace() as namespace:
        path = f"/proc/{namespace.pid}/ns/net"
        inside = netns.call_in(namespace.pid, lambda: os.stat("/proc/thread-self/ns/net").st_ino)
        assert inside == os.stat(path).st_ino != before
        assert not netns.is_own(namespace.pid)
        with pytest.raises(ZeroDivisionError):
            netns.call_in(namespace.pid, lambda: 1 // 0)
    assert not os.path.exists(path)
    namespace.close()
    assert own() == before


def test_commands_run_inside_with_status_and_output(namespace: ThrowawayNamespace) -> None:
    done = netns.run(namespace.pid, ["ip", "-o", "link"])
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["lo:"]
    assert netns.run(namespace.pid, ["sh", "-c", "cat; exit 3"], input="hi", check=False).returncode == 3
    with pytest.raises(RunError, match=r"'ip link show dev nosuch' failed with status 1: .*nosuch"):
        netns.run(namespace.pid, ["ip", "link", "show", "dev", "nosuch"])
    with pytest.raises(RunError, match=r"more than 0 s"):
        netns.run(namespace.pid, ["sleep", "600"], timeout=0)
    with pytest.raises(RunError, match="cannot run '/nonexistent'"):
        netns.run(namespace.pid, ["/nonexistent"])
    with pytest.raises(RunError, match="nosuch"):  # a batch stops at its first error
        netns.ip_batch(namespace.pid, ["link set dev nosuch up", "address add 10.8.0.2/32 dev lo"])
    shown = netns.run(namespace.pid, ["ip", "-br", "address"]).stdout
    assert "10.8.0.1" in shown and "10.8.0.2" not in shown


def test_sockets_and_sysctls_are_of_the_namespace_and_not_the_machines(namespace: ThrowawayNamespace) -> None:
    with netns.socket_in(namespace.pid) as inside, socket.socket() as outside:
        inside.bind(("10.8.0.1", 0))
        with pytest.raises(OSError, match="assign requested address"):
            outside.bind(("10.8.0.1", 0))
    name = "net.ipv4.ip_default_ttl"
    before = netns.read_sysctl(os.getpid(), name)
    netns.call_in(namespace.pid, lambda: Path("/proc/sys", *name.split(".")).write_text("77"))
    assert netns.read_sysctl(namespace.pid, name) == "77"
    with pytest.raises(RunError, match=r"cannot read sysctl net\.nosuch"):
        netns.read_sysctl(namespace.pid, "net.nosuch")
    assert netns.read_sysctl(os.getpid(), name) == before


@pytest.fixture
def remapped() -> Iterator[int]:
    """A process whose root is user 100000 of this machine, as in a container of an engine that remaps users."""
    with subprocess.Popen(["unshare", "--user", "cat"], stdin=subprocess.PIPE) as process:
        namespace = Path(f"/proc/{process.pid}/ns/user")
        machines = os.readlink("/proc/self/ns/user")
        eventually(lambda: process.poll() is not None or os.readlink(namespace) != machines, "a user namespace")
        if process.poll() is not None:
            pytest.skip("this kernel makes no user namespaces")
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{process.pid}/{name}").write_text("0 100000 65536")
        yield process.pid


def test_a_program_in_a_container_is_not_the_machines_root_where_users_are_remapped(
    remapped: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cmd` entered all namespaces but the user namespace, and so could write any file of the machine."""
    (tmp_path / "roots").write_text("untouched")
    (tmp_path / "roots").chmod(0o600)
    monkeypatch.setattr(processes, "root_of", lambda pid: tmp_path)  # it has the machine's, which no container has
    inside = ContainerProcesses(remapped, {}, "d1")
    command = f"id -u; cat /proc/self/uid_map; echo touched >{tmp_path}/roots"
    done = inside.popen(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = done.communicate(timeout=HANG_S)
    assert out.split() == ["0", "0", "100000", "65536"]
    assert "ermission denied" in err and done.returncode != 0
    assert (tmp_path / "roots").read_text() == "untouched"
