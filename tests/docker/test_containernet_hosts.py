"""Docker hosts: what they are given, what they are not, how they end. Each test counts what it leaves behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base.errors import RunError
from containernet_env.containernet import docker
from containernet_env.containernet.network import Containernet, Docker
from containernet_env.hosts import engine, netns
from tests.deadline import HANG_S, eventually
from tests.docker.machine_state import left_over, snapshot

pytestmark = [pytest.mark.docker, pytest.mark.root]

MIB = 1 << 20


def networks() -> Iterator[Containernet]:
    """A network, which leaves nothing."""
    before, network = snapshot(), Containernet()
    try:
        yield network
    finally:
        network.stop()
    assert left_over(before) == {}


net = pytest.fixture(networks, name="net")
shared = pytest.fixture(networks, name="shared", scope="module")
"""For tests that need hosts alone, each of a name of its own."""


def test_bring_up_gives_what_was_asked_and_nothing_more(shared: Containernet, image: str) -> None:
    host = shared.addDocker("bring", ip="10.0.0.1/24", dimage=image, mem_limit="64m", cpus=0.5)
    host.wait_up()
    state = engine.client().api.inspect_container(host.did)
    assert state["Name"] == f"/cnenv-{shared.run_id}-bring"
    assert state["Config"]["Labels"].items() >= engine.labels(shared.run_id, "bring").items()
    assert state["HostConfig"]["NetworkMode"] == "none"
    assert state["HostConfig"]["CapAdd"] is None
    assert not state["HostConfig"]["Privileged"]
    assert not state["HostConfig"]["PublishAllPorts"]
    assert state["HostConfig"]["PidsLimit"] == 4096
    # Also for what is started beside the first process.
    assert "NoNewPrivs:\t1" in host.run("cat /proc/self/status")[1]
    assert state["HostConfig"]["LogConfig"]["Type"] == "none"
    limits = host.limits()
    assert (limits.cpu_quota_us, limits.cpu_period_us) == (50_000, 100_000)
    assert limits.memory_bytes == 64 * MIB
    assert limits.memswap_bytes in (64 * MIB, None)
    assert host.alive
    assert not host.died()
    assert host.exit_state().exit_code is None
    assert host.oom_kills() == 0


def test_the_shell_and_programs_beside_it(shared: Containernet, image: str) -> None:
    host = shared.addDocker("shell", dimage=image, environment={"GREETING": "hello there"})
    assert host.run("echo $GREETING; hostname; for i in {1..3}; do echo -n $i; done") == (0, "hello there\nshell\n123")
    assert host.cmd("echo one;", "echo two") == "one\r\ntwo\r\n"
    host.cmd("sleep 60 &")
    assert host.run(f"kill -0 {host.lastPid}; exit 9") == (9, "")
    assert host.pexec("sh -c exit") == ("", "", 0)
    assert host.pexec(["sh", "-c", "echo out; echo err >&2; exit 3"]) == ("out\n", "err\n", 3)
    assert host.pexec("nosuchprogram")[2] == 127
    process = host.popen(["sh", "-c", "echo started; exec sleep 60"])
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_S) == 128 + signal.SIGTERM
    shell = host.popen("echo $X {1..3}; pwd", shell=True, env={"X": "5"}, cwd="/tmp", text=True)
    assert shell.communicate(timeout=HANG_S)[0] == "5 1 2 3\n/tmp\n"
    # The process outside that waits for a program inside holds this machine's /dev/null, not the container's.
    host.run("rm /dev/null; mkfifo /dev/null")
    with host.popen("cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as cat:
        null = os.stat("/dev/null")
        eventually(lambda: os.path.samestat(os.stat(f"/proc/{cat.pid}/fd/1"), null), "its outputs are let go of")
        assert cat.communicate("through\n", timeout=HANG_S)[0] == "through\n"


def test_the_networks_monitor_reads_containers_and_mininets_own_hosts(net: Containernet, image: str) -> None:
    hosts = one, two, own = net.addDocker("one", dimage=image), net.addDocker("two", dimage=image), net.addHost("own")
    for host in hosts:
        host.sendCmd(f"read go; echo {host} 1; read go; echo -n {host} 2")
    heard: dict[Any, list[str]] = {host: [] for host in hosts}
    for host in hosts:
        host.write("\n")
    for host, line in net.monitor():
        heard[host].append(line.strip())
        if len(heard[host]) == 1:
            host.write("\n")
    assert heard == {host: [f"{host} {n}" for n in (1, 2)] for host in hosts}
    assert [host.waiting for host in hosts] == [False] * 3 and one.last_status == two.last_status == 0
    one.kill()
    wait_ended(one)
    one.sendCmd("echo never")
    assert ["runs" in line or "ended" in line for _, line in net.monitor([one, own])] == [True]


def test_commands_count_against_the_limits_and_get_no_more_capabilities(shared: Containernet, image: str) -> None:
    host = shared.addDocker("caps", dimage=image, mem_limit="32m", cap_drop=["ALL"])
    inside = host.run("cat /proc/self/cgroup")[1]
    outside = Path(f"/proc/{host.pid}/cgroup").read_text()
    assert inside.splitlines()[0].split(":")[2] in (outside.splitlines()[0].split(":")[2], "/")
    assert "CapEff:\t0000000000000000" in host.run("cat /proc/self/status")[1]
    assert host.run("ip link set dev lo down")[0] != 0
    assert host.oom_kills() == 0
    # tail keeps the line that never ends in memory.
    assert host.run("tail /dev/zero")[0] == 137
    assert host.oom_kills() == 1
    assert host.alive


def test_limits_change_while_it_runs_and_are_read_back(shared: Containernet, image: str) -> None:
    host = shared.addDocker("limits", dimage=image, cpus=1, mem_limit="64m")
    host.updateCpuLimit(cpu_quota=20_000)
    host.updateMemoryLimit("96m")
    limits = host.limits()
    assert (limits.cpu_quota_us, limits.memory_bytes) == (20_000, 96 * MIB)
    host.updateCpuLimit(cpu_quota=-1)
    assert host.limits().cpu_quota_us is None
    with pytest.raises(RunError, match="limits"):
        host.updateMemoryLimit(1)


def test_interfaces_are_named_and_addressed_from_outside(net: Containernet, image: str) -> None:
    with_ipv6 = {"sysctls": {"net.ipv6.conf.all.disable_ipv6": "0"}}
    host = net.addDocker("d1", ip="10.0.0.1/24", dimage=image, cap_drop=["ALL"], **with_ipv6)
    more: Any = {"mac": "02:00:00:00:00:42", "defaultRoute": "via 10.0.0.1", "cap_add": ["NET_ADMIN"], **with_ipv6}
    other = net.addDocker("d2", ip="10.0.0.2/24", dimage=image, **more)
    net.addSwitch("s1")
    net.addLink(host, "s1")
    net.addLink(other, "s1")
    net.start()
    net.links[0].intf1.config(delay="10ms")
    assert net.links[0].read_back().a_to_b.delay_ns == 10_000_000
    assert host.intf().name.startswith(net.run_id)
    assert host.intf("d1-eth0") is host.intf()
    assert host.intf().updateIP() == "10.0.0.1"
    assert other.intf().updateMAC() == "02:00:00:00:00:42"
    netns.ip_batch(host.pid, ["address add fd00::1/64 dev d1-eth0 nodad"])
    assert other.run("ip address add fd00::2/64 dev d2-eth0 nodad && ping -c 1 fd00::1 >/dev/null") == (0, "")
    assert "default via 10.0.0.1" in netns.run(other.pid, ["ip", "route"]).stdout
    host.setIP("10.0.0.77/24")
    assert host.intf().updateIP() == host.IP() == "10.0.0.77"


LIMIT = "(memory limit 32 MiB)"


ENDINGS = {
    "echo fine >&2; echo this is why >&2; exit 4": "exit status 4: this is why",
    "printf 'panic: why\\n\\ngoroutine 1 [running]:\\nmain.main()\\n'; exit 2": "exit status 2: panic: why",
    "trap 'exit 143' TERM; kill -TERM $$; sleep 60": "killed by SIGTERM",
    "echo a line; exec tail /dev/zero": f"OOM-killed {LIMIT}",
    "tail /dev/zero; exit $?": f"OOM-killed {LIMIT}",
    "tail /dev/zero; echo no client >&2; exit 3": f"exit status 3 after an OOM kill in it {LIMIT}: no client",
}
_UNTIL_GO = "until [ -e /go ]; do sleep 0.05; done"


@pytest.fixture(scope="module")
def ending(shared: Containernet, image: str) -> dict[str, Docker]:
    """By script: a host whose first process runs that, once it has been seen to be up."""
    options: Any = {"dimage": image, "mem_limit": "32m", "logs": True}
    hosts = {
        script: shared.addDocker(f"end{number}", dcmd=["sh", "-c", f"{_UNTIL_GO}; {script}"], **options)
        for number, script in enumerate(ENDINGS)
    }
    for host in hosts.values():
        host.wait_up()
    for host in hosts.values():
        Path(f"/proc/{host.pid}/root/go").touch()
    return hosts


@pytest.mark.parametrize("script", ENDINGS)
def test_how_a_first_process_ended(ending: dict[str, Docker], script: str) -> None:
    wait_ended(ending[script])
    assert ending[script].ending() == ENDINGS[script]


def test_a_kill_is_not_taken_for_an_oom_kill_of_before(shared: Containernet, image: str) -> None:
    host = shared.addDocker("kill", dimage=image, mem_limit="32m", logs=True, dcmd=["sleep", "60"])
    assert host.run("tail /dev/zero")[0] == 137
    assert host.run("sleep 3")[0] == 0  # longer than an OOM kill and the end that follows from it are apart
    os.kill(host.pid, signal.SIGKILL)
    wait_ended(host)
    assert host.exit_state().oom_killed, "the engine's flag tells another story"
    assert host.ending() == "killed by SIGKILL"


def wait_ended(host: Any) -> None:
    """Return once a host's first process has ended."""
    eventually(lambda: not host.alive, f"the end of {host.name}")


def test_a_host_is_removed_and_another_one_ends_and_only_their_links_go(net: Containernet, image: str) -> None:
    options: Any = {"dimage": image, "logs": True, "extra_hosts": {"db": "10.0.0.9"}}
    _, two, three = hosts = [net.addDocker(f"d{number}", **options) for number in (1, 2, 3)]
    net.addSwitch("s1")
    for host in hosts:
        net.addLink(host, "s1")
    net.start()
    names = {f"d{number}": f"10.0.0.{number}" for number in (1, 2, 3)}
    assert names_of(two) == {"db": "10.0.0.9", **names}
    assert two.run("cat /etc/resolv.conf") == (0, "")
    net.removeDocker("d1")
    assert names_of(two) == {"db": "10.0.0.9", "d2": "10.0.0.2", "d3": "10.0.0.3"}
    assert {container.host for container in engine.list_ours(net.run_id)} == {"d2", "d3"} and len(net.links) == 2
    again = net.addDocker("d1", dimage=image)
    net.addLink(again, "s1")
    assert net.ping([again, two], timeout="2") == 0
    again.setIP("10.0.0.77/24")
    assert names_of(two) == {"db": "10.0.0.9", **names_of(again)} == {"db": "10.0.0.9", **names, "d1": "10.0.0.77"}
    os.kill(three.pid, signal.SIGKILL)
    wait_ended(three)
    assert three.died() and three.exit_state().exit_code == 137
    assert (three.ending(), two.ending()) == ("killed by SIGKILL", None)
    with pytest.raises(RunError, match="d3: its container has ended"):
        three.cmd("echo hi")
    assert net.ping([again, two], timeout="2") == 0
    assert net.ping([two, three], timeout="1") == 100
    # Mininet's CLI must not end over it.
    three.sendCmd("echo hi")
    assert "has ended" in three.waitOutput()


def names_of(host: Docker) -> dict[str, str]:
    """What a host looks up for itself and others."""
    lines = (line.split() for line in host.run("cat /etc/hosts")[1].splitlines())
    return {words[1]: words[0] for words in lines if words[0].startswith("10.")}


def test_the_images_own_command_is_run_by_start(
    shared: Containernet, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes to what the first process has for its output, which is not opened: neither truncated nor waited for."""
    host = shared.addDocker("own", dimage=image, dcmd=["sh", "-c", "exec >/tmp/said; echo first; exec cat"])
    eventually(lambda: host.run("cat /tmp/said")[1] == "first\n", "the first process writes")
    host.run("rm /tmp/said; mkfifo /tmp/said")
    monkeypatch.setattr(docker, "find_image", lambda image: {"Config": {"Cmd": ["sh", "-c", "echo own; sleep 60"]}})
    host.start()
    said = f"/proc/{host.pid}/fd/1"
    eventually(lambda: Path(said).read_text() == "first\nown\n", "its command writes")


# What was just being started when the interrupt struck is left to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("moment", ["hosts", "links", "start", "stop"])
def test_an_interrupt_at_any_moment_leaves_nothing(image: str, moment: str) -> None:
    network = Containernet()
    main = threading.get_ident()
    strikes: list[threading.Thread] = []

    def strike() -> None:
        """From another thread, so that it comes while what follows is being done."""
        strikes.append(threading.Thread(target=signal.pthread_kill, args=(main, signal.SIGINT)))
        strikes[-1].start()

    with pytest.raises(KeyboardInterrupt):
        try:
            for number in range(4):
                network.addDocker(f"d{number}", dimage=image)
                if (moment, number) == ("hosts", 2):
                    strike()
            network.addSwitch("s1")
            if moment == "links":
                strike()
            for host in list(network.hosts):
                network.addLink(host, "s1", delay="1ms")
            if moment == "start":
                strike()
            network.start()
            if moment == "stop":
                strike()
            for thread in strikes:
                thread.join()
        finally:
            strike()
            network.stop()
            for thread in strikes:
                thread.join()
    network.stop()
    assert engine.list_ours(network.run_id) == []
    assert network.factory.emulator.pid is None
    gc.collect()  # now, and not in a test that wants no warnings


def test_a_host_of_its_own_without_a_network(image: str) -> None:
    host = Docker("d1", dimage=image)
    try:
        assert host.run("echo hi") == (0, "hi\n")
    finally:
        host.terminate()
    host.terminate()
    assert engine.list_ours(host.context.run_id) == []
    with pytest.raises(RunError, match="removed"):
        _: Any = host.pid
