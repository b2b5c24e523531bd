"""Docker hosts: what they are given, what they are not, how they end. Each test counts what it leaves behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base import clock, files
from containernet_env.base.errors import RunError, UsageError
from containernet_env.containernet import docker
from containernet_env.containernet.network import Containernet, Docker
from containernet_env.hosts import engine, netns, processes
from containernet_env.hosts.container import measure_sync, put_secrets
from containernet_env.stores.cluster import MemberPlace
from containernet_env.stores.etcd.cluster import EtcdMember
from tests.deadline import HANG_S, eventually
from tests.processes import processes as running_processes
from tests.processes import words_of

pytestmark = [pytest.mark.docker, pytest.mark.root]

MIB = 1 << 20


def left_of(run_id: str, containers: list[str]) -> list[str]:
    """What of a run is there: its containers, interfaces, their cgroups, and programs that were started in them."""
    found = [container.name for container in engine.list_ours(run_id)]
    found += [entry.name for entry in Path("/sys/class/net").iterdir() if entry.name.startswith(run_id)]
    for container in containers:
        for pattern in (f"*/docker/{container}", f"system.slice/docker-{container}*"):
            found += [str(path) for path in Path("/sys/fs/cgroup").glob(pattern)]
    return found + [
        line for line in map(words_of, running_processes()) if any(container in line for container in containers)
    ]


def stopped(network: Containernet) -> None:
    """Stop it; it leaves nothing."""
    containers = [host.did for host in network.hosts if isinstance(host, Docker) and host.did is not None]
    network.stop()
    eventually(lambda: left_of(network.run_id, containers) == [], "nothing is left")


@pytest.fixture
def net() -> Iterator[Containernet]:
    network = Containernet()
    try:
        yield network
    finally:
        stopped(network)


@pytest.fixture(scope="module")
def shared() -> Iterator[Containernet]:
    """A network for tests that need hosts alone, each of a name of its own."""
    network = Containernet()
    try:
        yield network
    finally:
        stopped(network)


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


def test_the_shell_and_what_it_gives_back(shared: Containernet, image: str) -> None:
    host = shared.addDocker("shell", dimage=image, environment={"GREETING": "hello there"})
    assert host.run("echo $GREETING; false") == (1, "hello there\n")
    assert host.run("hostname") == (0, "shell\n")
    assert host.cmd("echo one;", "echo two") == "one\r\ntwo\r\n"
    assert host.run("for i in {1..3}; do echo -n $i; done") == (0, "123")
    assert host.run("exit 9") == (9, "")
    assert host.run("echo a new one") == (0, "a new one\n")
    host.cmd("sleep 60 &")
    assert host.lastPid is not None
    assert host.run(f"kill -0 {host.lastPid}")[0] == 0
    host.sendCmd("echo started; sleep 60")
    said = ""
    while "started\r\n" not in said:
        said += host.monitor(5000)
    assert host.monitor(100) == ""
    assert host.waiting, "monitor() waited for the end of the command"

    def ended() -> bool:
        # One alone can be lost, as in every shell, when it meets a program that is just being started.
        host.sendInt()
        host.monitor(100)
        return not host.waiting

    eventually(ended, "the interrupted command ends")
    assert host.last_status == 130


def test_the_networks_monitor_reads_containers_and_mininets_own_hosts(net: Containernet, image: str) -> None:
    hosts = one, two, own = net.addDocker("one", dimage=image), net.addDocker("two", dimage=image), net.addHost("own")
    assert [next(net.monitor(timeoutms=0)) for _ in "ab"] == [(None, None)] * 2
    for host in hosts:
        host.sendCmd(f"read go; echo {host} 1; echo {host} 2; read go; echo -n {host} 3")
    assert next(net.monitor([one, two], timeoutms=1)) == (None, None)
    heard: dict[Any, list[str]] = {host: [] for host in hosts}
    for host in hosts:
        host.write("\n")
    for host, line in net.monitor():
        heard[host].append(line.strip())
        if len(heard[host]) == 2:
            host.write("\n")
    assert heard == {host: [f"{host} {n}" for n in (1, 2, 3)] for host in hosts}
    assert [host.waiting for host in hosts] == [False] * 3 and one.last_status == two.last_status == 0
    one.kill()
    eventually(lambda: not one.alive, "it has ended")
    one.sendCmd("echo never")
    assert ["runs" in line or "ended" in line for _, line in net.monitor([one, own])] == [True]


def test_programs_beside_the_shell(shared: Containernet, image: str) -> None:
    host = shared.addDocker("beside", dimage=image)
    assert host.pexec("sh -c exit") == ("", "", 0)
    out, err, status = host.pexec(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (out, err, status) == ("out\n", "err\n", 3)
    assert host.pexec("nosuchprogram")[2] == 127
    process = host.popen(["sh", "-c", "echo started; exec sleep 60"])
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_S) == 128 + signal.SIGTERM
    with host.popen("cat", stdin=subprocess.PIPE, text=True) as cat:
        assert cat.communicate("through\n", timeout=HANG_S)[0] == "through\n"
    shell = host.popen("echo $X {1..3}; pwd", shell=True, env={"X": "5"}, cwd="/tmp", text=True)
    assert shell.communicate(timeout=HANG_S)[0] == "5 1 2 3\n/tmp\n"


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


def test_what_a_container_links_to_is_looked_for_in_the_container(
    shared: Containernet, image: str, tmp_path: Path
) -> None:
    """Each of its files that the driver opens is a link to one of this machine, by its name or through /proc."""
    host = shared.addDocker("links", dimage=image, tmpfs=["/secrets:size=64k"])
    root = files.root_of(host.pid)
    member = EtcdMember(MemberPlace(host, "10.0.0.1", SimpleNamespace()))  # type: ignore[arg-type]
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "passwd").write_text("root:x:7:7::/:/bin/sh\n")
    acts: list[Callable[[], Any]] = [
        lambda: member.start(deadline=0.0),
        lambda: put_secrets(root, "links", {"/secrets/new/key.pem": b"secret"}),
        lambda: processes.account_text(root, "links", "/etc/passwd"),
        lambda: measure_sync(root, "/data", budget_s=0.0),
    ]
    # Where the file is not in the container, the last two do without it.
    for to, refused, why in (
        (mine, acts[:2], "No such file or directory"),
        (f"/proc/1/root{mine}", acts, "Too many levels of symbolic links"),
    ):
        host.run("rm -rf /data /etc/passwd /run/gate /secrets/new")
        host.run(
            f"ln -s {to} /data; ln -s {to} /secrets/new; ln -s {to}/passwd /etc/passwd; ln -s {to}/passwd /run/gate"
        )
        for act in acts:
            with pytest.raises(RunError, match=why) if act in refused else nullcontext():
                assert act() != (mine / "passwd").read_text()
    put_secrets(root, "links", {"/secrets/key.pem": b"secret"})
    assert host.run("cat /secrets/key.pem") == (0, "secret")
    assert [entry.name for entry in mine.iterdir()] == ["passwd"]
    # With a gate of its own it starts, also through a link.
    host.run("rm /run/gate; mkfifo /run/real; ln -s /run/real /run/gate")
    with host.popen("cat /run/gate", text=True) as opened:
        member.start(clock.monotonic() + HANG_S)
        assert opened.communicate(timeout=HANG_S)[0] == "go\n"
    # The process outside that waits for a program inside holds this machine's /dev/null, not the container's.
    host.run("rm /dev/null; mkfifo /dev/null")
    with host.popen("cat", stdin=subprocess.PIPE) as waiting:
        null = os.stat("/dev/null")
        eventually(lambda: os.path.samestat(os.stat(f"/proc/{waiting.pid}/fd/1"), null), "its outputs are let go of")
        waiting.communicate(timeout=HANG_S)


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


@pytest.fixture(scope="module")
def ending(shared: Containernet, image: str) -> dict[str, Docker]:
    """By script: a host whose first process runs that, once it has been seen to be up."""
    options: Any = {"dimage": image, "mem_limit": "32m", "logs": True}
    hosts = {
        script: shared.addDocker(f"end{number}", dcmd=["sh", "-c", f"sleep 0.5; {script}"], **options)
        for number, script in enumerate(ENDINGS)
    }
    for host in hosts.values():
        host.wait_up()
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


def test_the_end_of_a_host_is_seen_and_only_its_own_link_goes(net: Containernet, image: str) -> None:
    hosts = [net.addDocker(f"d{number}", dimage=image, logs=True) for number in (1, 2, 3)]
    net.addSwitch("s1")
    for host in hosts:
        net.addLink(host, "s1")
    net.start()
    os.kill(hosts[0].pid, signal.SIGKILL)
    wait_ended(hosts[0])
    assert hosts[0].died()
    assert hosts[0].exit_state().exit_code == 137
    assert hosts[0].ending() == "killed by SIGKILL"
    assert hosts[1].ending() is None
    with pytest.raises(RunError, match="d1: its container has ended"):
        hosts[0].cmd("echo hi")
    assert net.ping(hosts[1:], timeout="2") == 0
    assert net.ping(hosts[:2], timeout="1") == 100
    # Mininet's CLI must not end over it.
    hosts[0].sendCmd("echo hi")
    assert "has ended" in hosts[0].waitOutput()


def test_unknown_keywords_and_impossible_ones_are_refused_before_anything_is_made(
    net: Containernet, image: str
) -> None:
    for options, words in (
        ({"mem_limt": "64m"}, "did you mean mem_limit"),
        ({"ports": [80]}, "published"),
        ({"network_mode": "host"}, "network_mode"),
        ({"ip": "fd00::1/64"}, "IPv6"),
    ):
        with pytest.raises(UsageError, match=words):
            net.addDocker("d1", dimage=image, **options)
    with pytest.raises(UsageError, match="image"):
        net.addDocker("d1")
    assert "d1" not in net
    assert engine.list_ours(net.run_id) == []


def test_removing_a_host_while_it_runs(net: Containernet, image: str) -> None:
    hosts = [net.addDocker(f"d{number}", dimage=image, extra_hosts={"db": "10.0.0.9"}) for number in (1, 2)]
    net.addSwitch("s1")
    for host in hosts:
        net.addLink(host, "s1")
    net.start()
    assert names_of(hosts[1]) == {"db": "10.0.0.9", "d1": "10.0.0.1", "d2": "10.0.0.2"}
    assert hosts[1].run("cat /etc/resolv.conf") == (0, "")
    net.removeDocker("d1")
    assert names_of(hosts[1]) == {"db": "10.0.0.9", "d2": "10.0.0.2"}
    assert [container.host for container in engine.list_ours(net.run_id)] == ["d2"]
    assert len(net.links) == 1
    again = net.addDocker("d1", dimage=image)
    net.addLink(again, "s1")
    assert net.ping([again, hosts[1]], timeout="2") == 0
    again.setIP("10.0.0.77/24")
    assert names_of(hosts[1]) == {"db": "10.0.0.9", "d1": "10.0.0.77", "d2": "10.0.0.2"}
    assert names_of(again) == {"d1": "10.0.0.77", "d2": "10.0.0.2"}


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
