"""The shell's measuring and recording commands on real networks of plain Mininet hosts."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from containernet_env.base.errors import RunError, UsageError
from containernet_env.containernet.network import Containernet
from containernet_env.containernet.shell import run_command
from containernet_env.hosts import netns
from containernet_env.hosts.netns import ThrowawayNamespace
from containernet_env.network.measure import Capture
from tests.deadline import HANG_S, eventually
from tests.root.network import PLAIN_HOSTS, answers, datagrams, needs_emulator, star

pytestmark = PLAIN_HOSTS


@pytest.fixture(params=[pytest.param("emulator", marks=needs_emulator), "bridge"])
def net(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Containernet]:
    """Two hosts on a switch at 50 Mbit/s."""
    with star(request.param, monkeypatch, hosts=2, bw=50) as network:
        yield network


def frames_of(path: Path) -> list[tuple[int, bytes]]:
    """The frames in a pcap file with nanoseconds, and their times (ns)."""
    data = path.read_bytes()
    magic, major, minor, _, _, _, kind = struct.unpack_from("=IHHIIII", data)
    assert (magic, major, minor, kind) == (0xA1B23C4D, 2, 4, 1)
    frames, offset = [], 24
    while offset < len(data):
        seconds, ns, held, original = struct.unpack_from("=IIII", data, offset)
        assert held == original
        frames.append((seconds * 10**9 + ns, data[offset + 16 : offset + 16 + held]))
        offset += 16 + held
    assert offset == len(data)
    return frames


def test_iperf_finds_the_links_bandwidth_and_fails_where_it_is_down(
    net: Containernet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_command(net, "iperf h1 h2 1") == 0
    said = re.search(r"h1 -> h2: ([\d.]+) Mbit/s over 1\.\d s \(TCP \w+\)", capsys.readouterr().out)
    # 1448 of 1514 bytes are payload; what waits in buffers at the start comes on top.
    assert 0 < float(said[1]) < 60, said[0]
    monkeypatch.setattr("containernet_env.network.measure._CONNECT_DEADLINE_S", 0.5)
    net.link_down("h1", "s1")
    with pytest.raises(RunError, match="no TCP connection to"):
        run_command(net, "iperf h1 h2 1")


def test_mininets_own_measurements_take_nothing_of_a_host(net: Containernet) -> None:
    """Each host's shell, from which Mininet would ping, is busy; iperf need not be installed."""
    for host in net.hosts:
        host.sendCmd("sleep 600")
    assert net.pingAll() == 0
    assert [numbers[:2] for _, _, numbers in net.pingAllFull()] == [(1, 1), (1, 1)]
    sent, received = net.iperf(None, "TCP", None, None, 0.2)
    assert sent == received and sent.endswith("bits/sec")
    net.link_down("h1", "s1")
    assert net.pingPair() == net.pingAll("0.2") == 100
    for host in net.hosts:
        host.sendInt()
        host.waitOutput()


def test_a_recording_holds_every_frame_whole_and_in_time(
    net: Containernet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    h1, h2 = net.hosts
    path = tmp_path / "h1.pcap"
    assert run_command(net, f"capture h1 {path}") == 0
    with pytest.raises(UsageError, match=r"h1\.pcap is being recorded into already, by h1"):
        run_command(net, f"capture h2 {path}")
    with datagrams(h1.pid, h2.pid, h2.IP(), HANG_S) as (here, there):
        for number in range(200):
            here.send(b"datagram %03d" % number)
            assert there.recv(100) == b"datagram %03d" % number
    assert answers(h2.pid, h1.pid, h1.IP())
    assert run_command(net, "capture stop") == 0
    assert net.captures == ()
    frames = frames_of(path)
    found = [frame[42:54] for _, frame in frames if frame[42:51] == b"datagram "]
    assert found == [b"datagram %03d" % number for number in range(200)]
    assert any(frame[42:45] == b"ask" for _, frame in frames)  # what arrives, too
    # Frames of several cores may be queued in another order than they were stamped; these follow each other.
    times = [at_ns for at_ns, frame in frames if frame[42:51] == b"datagram "]
    assert times == sorted(times)
    assert f"h1: {len(frames)} frames in {path}" in capsys.readouterr().out


def test_a_recording_of_some_seconds_and_one_that_ends_with_the_network(net: Containernet, tmp_path: Path) -> None:
    assert run_command(net, f"capture h2 {tmp_path / 'short.pcap'} 0.3") == 0
    assert run_command(net, f"capture h1 {tmp_path / 'long.pcap'}") == 0
    assert answers(net.hosts[0].pid, net.hosts[1].pid, net.hosts[1].IP())
    # A cable that is pulled meanwhile ends nothing.
    net.link_down("h1", "s1")
    net.link_up("h1", "s1")
    assert answers(net.hosts[0].pid, net.hosts[1].pid, net.hosts[1].IP())
    net.stop()
    assert sum(frame[42:45] == b"ask" for _, frame in frames_of(tmp_path / "long.pcap")) >= 2
    assert net.captures == ()


def test_a_recording_is_bounded_and_says_so(tmp_path: Path) -> None:
    with ThrowawayNamespace() as namespace:
        netns.ip_batch(namespace.pid, ["link set dev lo up"])
        capture = Capture("h1", namespace.pid, "lo", tmp_path / "x.pcap", limit_bytes=1 << 20)
        with netns.socket_in(namespace.pid, socket.AF_INET, socket.SOCK_DGRAM) as sender:

            def full() -> bool:
                for _ in range(100):
                    sender.sendto(bytes(8000), ("127.0.0.1", 9))
                return not capture.running

            eventually(full, "the recording is full")
        assert "which is full (1 MiB)" in capture.stop()
        assert (1 << 20) - 9000 < (tmp_path / "x.pcap").stat().st_size <= 1 << 20
        with pytest.raises(RunError, match="cannot listen on nosuch"):
            Capture("h1", namespace.pid, "nosuch", tmp_path / "y.pcap")
        with pytest.raises(UsageError, match="cannot write"):
            Capture("h1", namespace.pid, "lo", tmp_path / "nosuch" / "y.pcap")
