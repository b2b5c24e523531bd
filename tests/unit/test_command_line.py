"""The shell's commands: what they show, what they refuse, and that none of them ends the session."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from ipaddress import IPv4Interface
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from mininet.cli import CLI
from mininet.log import lg
from mininet.net import Mininet
from mininet.node import Host, Switch
from syrupy.assertion import SnapshotAssertion

from containernet_env.base import clock
from containernet_env.base.errors import RunError, UsageError
from containernet_env.containernet import live_links
from containernet_env.containernet import shell as command_line
from containernet_env.containernet.docker import Docker
from containernet_env.containernet.live_links import LiveLinks
from containernet_env.containernet.network import Containernet, reconnect
from containernet_env.containernet.shell import CHANGES, CommandLine, run_command
from containernet_env.hosts.netns import ProcessGoneError
from containernet_env.model.disruption import Targets
from containernet_env.model.link import DirectionSpec, GilbertElliottLoss, IndependentLoss, Jitter, LinkSpec
from containernet_env.model.usage import Leadership
from containernet_env.network import measure as measuring
from containernet_env.network.factory import LinkFactory
from containernet_env.network.interface import Interface
from containernet_env.network.measure import Throughput
from containernet_env.runs.labs import Lab

MS, MBIT = 10**6, 10**6


class FakeHost(Host):
    """A host with one interface and nothing behind it."""

    def __init__(self, name: str, pid: int, address: str) -> None:
        self.name, self.pid, self._address = name, pid, address
        self.intfs = {0: SimpleNamespace(name=f"{name}-e")}
        self.waiting = False

    def IP(self, intf: Any = None) -> str:
        return self._address

    def terminate(self) -> None:
        """Nothing runs."""


class FakeNet(dict[str, Any]):
    """A network of these hosts; every attempt to change or measure it fails with an unexpected exception."""

    dilation = 1
    throughput = LiveLinks.throughput

    def __init__(self, names: Sequence[str] = ("etcd1", "etcd2"), first_pid: int = 11, kind: Any = FakeHost) -> None:
        self.hosts = [kind(name, first_pid + n, f"10.0.0.{n + 1}") for n, name in enumerate(names)]
        self.nameToNode = {host.name: host for host in self.hosts}
        super().__init__(self.nameToNode)
        self.links: list[Any] = []
        self.captures: tuple[Any, ...] = ()
        self.parted: tuple[tuple[str, ...], ...] = ()
        self.stopped: list[str] = []

    def __getattr__(self, name: str) -> Any:
        raise LookupError(f"unexpected {name}")

    def stop_captures(self) -> list[str]:
        return self.stopped


@pytest.fixture
def net() -> FakeNet:
    return FakeNet()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What Mininet's own commands print."""
    text = io.StringIO()
    for handler in lg.handlers:
        monkeypatch.setattr(handler, "stream", text)
    yield text


def test_no_command_ends_the_session(
    net: FakeNet, said: io.StringIO, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(CommandLine, "initReadline", classmethod(lambda cls: None))
    monkeypatch.setattr(CommandLine, "isatty", lambda self: False)
    net.stopped = ["etcd1: 7 frames in x.pcap"]
    commands = ["pingall", "delay etcd1 s1 1ms", "rate etcd1", "pingpair", "dpctl x", "iperf etcd1 nobody", "links x"]
    commands += ["px import sys; sys.exit(3)", "source /nonexistent"]

    class Session(CommandLine):
        def __init__(self) -> None:
            self.cmdqueue: list[str] = []
            super().__init__(net, stdin=open("/dev/null"))  # noqa: SIM115 - closed below

        def preloop(self) -> None:
            self.cmdqueue = [*commands, "py 7 + 1", "exit"]

    session = Session()
    session.stdin.close()
    lines = said.getvalue().splitlines()
    assert "8" in lines  # reached, after all of them
    complaints = [line for line in lines if line.startswith("*** ") and "Starting" not in line]
    assert len(complaints) == len(commands), lines
    assert "*** LookupError: unexpected pingAll" in complaints
    assert "*** 'nobody' is no host; hosts: etcd1, etcd2" in complaints
    assert lines[-1] == "etcd1: 7 frames in x.pcap"  # recordings end with the shell
    # With -c, what was not foreseen is a status of one.
    net.links = [object()]
    for line in ("pingall", "pingpair", "delay etcd1 s1 1ms", "links"):
        said.seek(0)
        said.truncate()
        assert run_command(net, line) == 1
        assert re.match(r"\*\*\* (.*\n)*.*Error: ", capsys.readouterr().out + said.getvalue()), line


def test_a_failed_command_ends_no_session_of_mininets_own_command_line(
    net: FakeNet, said: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`iperf h1 h2` ended the script, and the network with it ("Could not find telnet")."""
    monkeypatch.setattr(CLI, "onecmd", CLI.onecmd)  # as it was before, afterwards
    monkeypatch.setattr(CLI, "run", lambda self: None)
    monkeypatch.setattr(CLI, "initReadline", classmethod(lambda cls: None))
    with open("/dev/null") as null:
        stock = CLI(net, stdin=null)
        command_line.guard_stock_command_line(FakeNet)
        assert not stock.onecmd("iperf etcd1 etcd2") and stock.onecmd("exit")
        assert "*** LookupError: unexpected iperf" in said.getvalue()
        with pytest.raises(SystemExit):
            stock.onecmd("px import sys; sys.exit(3)")
        net["us-east-1"] = net.hosts[0]
        assert stock.parseline(" us-east-1  echo  hi ")[:2] == ("us-east-1", "echo  hi")
        assert stock.parseline("us-east-2 echo")[0] == "us" and stock.parseline("") == (None, None, "")
        stock.mn = SimpleNamespace()  # a network of Mininet's own
        with pytest.raises(AttributeError):
            stock.onecmd("pingpair")


# --- Mininet's measurements, from outside -----------------------------------------------------------------------------


class Measured(LiveLinks, Mininet):
    """Three hosts, of which the last has ended."""

    def __init__(self) -> None:
        self.hosts = [FakeHost(f"h{n}", n, f"10.0.0.{n}") for n in (1, 2, 3)]
        self.hosts[2].alive = False
        self.nameToNode = dict.fromkeys(("etcd1", "s1"))

    def _node(self, node: Any) -> Any:
        return node


def test_pings_are_sent_from_outside_and_counted(
    said: io.StringIO, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """A ping in another language, or an image without ping or shell, was "100% dropped" on a working network."""
    echo = mock.Mock(side_effect=[1_234_567, None, 2_000_000, None, 1_000_000, ProcessGoneError("gone")])
    monkeypatch.setattr(live_links.measure, "round_trip_ns", echo)
    net = Measured()
    assert round(net.pingAll("2")) == 67
    assert [call.args for call in echo.call_args_list] == [
        *((1, "10.0.0.2", 2.0), (1, "10.0.0.3", 2.0), (2, "10.0.0.1", 2.0), (2, "10.0.0.3", 2.0))
    ]
    figures = [numbers for _, _, numbers in net.pingPairFull()]
    assert figures == [(1, 1, 1.0, 1.0, 1.0, 0.0), (1, 0, 0, 0, 0, 0)]
    assert said.getvalue() == snapshot


def test_a_host_that_cannot_ping_is_an_error_and_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Measured()
    monkeypatch.setattr(live_links.measure, "round_trip_ns", mock.Mock(side_effect=RunError("cannot enter")))
    with pytest.raises(RunError, match="cannot enter"):
        net.pingAll()
    monkeypatch.setattr(net.hosts[1], "_address", None)
    with pytest.raises(UsageError, match="h2 has no IPv4 address"):
        net.pingAll()
    for place in ("h2", "fd00::2", "10.0.0.300", "10.0.0.2/24"):
        with pytest.raises(UsageError, match=f"manualdestip='{place}'; allowed: an IPv4 address"):
            net.ping(manualdestip=place)
    for timeout in ("soon", -1, [1]):
        with pytest.raises(UsageError, match="timeout"):
            net.pingAll(timeout)


def test_iperf_is_measured_from_outside(
    net: FakeNet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It hung for UDP without iperf in the image, and for TCP with Debian 12's iperf."""
    mininets, measure = Measured(), mock.Mock(return_value=Throughput(59_312_500, 5.0, "cubic"))
    monkeypatch.setattr(measuring, "measure", measure)
    assert mininets.iperf() == ["94.9 Mbits/sec"] * 2
    assert mininets.iperf(mininets.hosts[:2], "TCP", None, "K", 2, 7) == ["11584 KBytes/sec"] * 2
    for line in ("iperf etcd1 etcd2", "iperf", "iperf 2", "iperf etcd2 etcd1 0.5"):
        assert run_command(net, line) == 0
    whole = (11, 12, "10.0.0.2")
    assert [call.args for call in measure.call_args_list] == [
        *((1, 3, "10.0.0.3", 5, 5001), (1, 2, "10.0.0.2", 2, 7)),
        *((*whole, 5.0, 0), (*whole, 5.0, 0), (*whole, 2.0, 0), (12, 11, "10.0.0.1", 0.5, 0)),
    ]
    assert capsys.readouterr().out.splitlines()[0] == "etcd1 -> etcd2: 94.9 Mbit/s over 5.0 s (TCP cubic)"
    for refused in ({"l4Type": "UDP"}, {"l4Type": "SCTP"}, {"fmt": "x"}, {"hosts": mininets.hosts}):
        with pytest.raises(UsageError):
            mininets.iperf(**refused)
    with pytest.raises(UsageError):
        mininets.runCpuLimitTest(0.5)
    for line in ("nosuch", "delay etcd1", "iperf etcd1 etcd1", "iperf etcd1 etcd2 0"):
        with pytest.raises(UsageError):
            run_command(net, line)
    rates = [live_links.format_rate(rate) for rate in (7, 9_996, 1.5e6, 99.96e6, 9.45e9)]
    assert rates == ["7.00 bits/sec", "10.0 Kbits/sec", "1.50 Mbits/sec", "100 Mbits/sec", "9.45 Gbits/sec"]


def test_a_slowed_network_is_changed_and_measured_in_emulated_time(
    net: FakeNet, said: io.StringIO, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    net.dilation = 4
    changes = mock.Mock(return_value=7)
    intf1, intf2 = (SimpleNamespace(node=SimpleNamespace(name=name), name=name) for name in ("etcd1", "s1"))
    spec = LinkSpec(DirectionSpec(12 * MS, 25 * MBIT), DirectionSpec(12 * MS, 25 * MBIT))
    link = SimpleNamespace(
        intf1=intf1,
        intf2=intf2,
        held=SimpleNamespace(change_directions=changes),
        read_back=lambda: spec,
        statistics=lambda: {"up": True, "a_to_b": {}, "b_to_a": {}},
    )
    net.links, slow = [link], Measured()
    slow.dilation, slow.links_kind, slow.linksBetween = 4, "emulator", lambda one, two: [link]
    for change, real in {
        "delay etcd1 s1 10ms": {"delay_ns": 40 * MS},
        "rate etcd1 s1 100": {"rate_bps": 25 * MBIT},
        "jitter etcd1 s1 1ms": {"jitter": Jitter("uniform", 4 * MS)},
        "queue etcd1 s1 9": {"queue_frames": 9, "queue_bytes": None},
    }.items():
        verb, *words = change.split()
        CHANGES[verb](slow, words)
        assert changes.call_args.args == ({"a_to_b": real, "b_to_a": real}, 4)
    assert run_command(net, "links") == 0
    assert "delay 3ms, bandwidth 100 Mbit/s" in capsys.readouterr().out
    measure = mock.Mock(return_value=Throughput(12_500_000, 4.0, "cubic"))
    monkeypatch.setattr(measuring, "measure", measure)
    assert run_command(net, "iperf etcd1 etcd2 1") == 0 and measure.call_args.args[3] == 4.0
    flow = "100.0 Mbit/s over 1.0 s (TCP cubic); in real time 25.0 Mbit/s over 4.0 s"
    assert capsys.readouterr().out == f"etcd1 -> etcd2: {flow}\n"
    echo = mock.Mock(return_value=48 * MS)
    monkeypatch.setattr(live_links.measure, "round_trip_ns", echo)
    assert slow.pingFull(slow.hosts[:2], 2)[0][2] == (1, 1, 12.0, 12.0, 12.0, 0.0) and echo.call_args.args[2] == 8.0
    assert "12.000/12.000/12.000/0.000 ms (48.000 ms in real time)\n" in said.getvalue()
    monkeypatch.setattr(CLI, "__init__", lambda *_, **__: None)
    assert CommandLine(net).prompt == "containernet (dilation 4)> "


def test_every_measurement_of_mininets_that_reads_programs_in_hosts_is_our_own() -> None:
    reads = ("ping", "pingFull", "iperf", "runCpuLimitTest")
    assert all(getattr(Containernet, name) is getattr(LiveLinks, name) for name in reads)
    codes = {name: getattr(call, "__code__", None) for name, call in vars(Mininet).items()}
    own = [name for name, code in codes.items() if code is not None and {"cmd", "sendCmd"} & {*code.co_names}]
    assert sorted(own) == sorted(reads)


def test_an_echo_is_answered_by_its_own_reply() -> None:
    request = measuring._request()
    assert measuring.checksum(request) == 0
    header = b"\x46" + bytes(23)  # with an option

    def packet(kind: int, message: bytes) -> bytes:
        return header + bytes([kind]) + message[1:]

    assert measuring._answers(packet(0, request), request)
    assert not measuring._answers(packet(8, request), request)  # the request itself, on loopback
    assert not measuring._answers(packet(0, measuring._request()), request)
    assert not measuring._answers(header, request)


DIRECTIONS = (
    DirectionSpec(),
    DirectionSpec(queue_frames=1000),
    DirectionSpec(3 * MS, 100 * MBIT, 2000),
    DirectionSpec(0, MBIT // 2, None, 9000),
    DirectionSpec(3 * MS, jitter=Jitter("normal", 500_000)),
    DirectionSpec(0, MBIT, 7, overhead_bytes=24, uplink="network"),
    DirectionSpec(3 * MS, jitter=Jitter("uniform", MS, reorder=True), loss=IndependentLoss(0.015)),
    DirectionSpec(loss=GilbertElliottLoss(0.01, 0.24)),
)


def test_directions_and_links_are_shown_as_the_system_holds_them(
    net: FakeNet, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    assert [command_line.describe(direction) for direction in DIRECTIONS] == snapshot
    both, other = DirectionSpec(3 * MS), DirectionSpec(10 * MS)

    def link(name: str, up: bool, spec: LinkSpec, mtu: int = 1500, lost: int = 0, **alias: str) -> Any:
        node, held = SimpleNamespace(name=name), SimpleNamespace(mtu_bytes=mtu)
        end = SimpleNamespace(name="abce0", node=node, held=held, **alias)
        switch = SimpleNamespace(name="abce1", node=SimpleNamespace(name="s1"), alias="s1-eth1")
        seen = {"up": up, "a_to_b": {"drops": {"oversize": lost}}, "b_to_a": {"drops": {"queue_or_loss": 1}}}
        return SimpleNamespace(intf1=end, intf2=switch, read_back=lambda: spec, statistics=lambda: seen)

    net.links = [
        link("etcd1", True, LinkSpec(both, both), alias="etcd1-eth0"),
        link("etcd2", False, LinkSpec(both, other), alias="etcd2-eth0"),
        link("etcd3", True, LinkSpec(both, both), mtu=9000, lost=3),
    ]
    net.parted = (("etcd1",), ("etcd2", "etcd3"))
    assert run_command(net, "links") == 0
    assert capsys.readouterr().out == snapshot


def test_recordings_begin_end_and_are_listed(
    net: FakeNet, capsys: pytest.CaptureFixture[str], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    started: list[Any] = []

    def start_capture(host: Any, path: Path) -> Any:
        started.append((host.name, path))
        net.captures = (SimpleNamespace(name=host.name, frames=7, path=path, wait=lambda seconds: None),)
        return net.captures[0]

    net.__dict__.update(start_capture=start_capture, stop_capture=lambda capture: f"ended {capture.name}")
    path = tmp_path / "x.pcap"
    for line in ("capture", f"capture etcd1 {path}", "capture", f"capture etcd2 {path} 3"):
        assert run_command(net, line) == 0
    net.stopped = ["etcd1: 7 frames"]
    assert run_command(net, "capture stop") == 0
    assert started == [("etcd1", path), ("etcd2", path)]
    assert capsys.readouterr().out.replace(str(path), "PATH") == snapshot
    for wrong in ("etcd1", f"etcd1 {path} soon", f"s9 {path}", f"etcd1 {path} 1 2"):
        with pytest.raises(UsageError):
            run_command(net, f"capture {wrong}")


@pytest.mark.parametrize(
    ("line", "ran"),
    [
        ("us-east-1 etcdctl member list", ("us-east-1", "etcdctl member list")),
        ("us-east-1   ping  -c 1 db.eu", ("us-east-1", "  ping  -c 1 10.0.0.2")),
        ("db.eu echo '#' us-east us-east-1", ("db.eu", "echo '#' us-east 10.0.0.1")),
        ("links ip route", ("links", "ip route")),
        ("links", "there are no links"),
        ("# a remark", ""),
        ("us-east-1", "usage: us-east-1 COMMAND"),
        ("us-east ls", "unknown command 'us-east'.*did you mean us-east-1"),
        ("pingal", "unknown command 'pingal'.*did you mean pingall"),
        ("link-s1 down", "unknown command 'link-s1'"),
    ],
)
@pytest.mark.parametrize("interactive", [True, False])
def test_one_parser_for_all_lines(
    interactive: bool, line: str, ran: Any, capsys: pytest.CaptureFixture[str], said: io.StringIO
) -> None:
    """`us-east-1 ls` worked with -c, and was "Unknown command" in the interactive shell."""
    net = FakeNet(("us-east-1", "db.eu", "links"))
    runs: list[tuple[str, str]] = []

    class Silent(command_line.OneLine):
        def run_in(self, node: Any, command: str) -> None:
            runs.append((node.name, command))

        if interactive:
            fail = CommandLine.fail

    shell = Silent(net)
    try:
        shell.onecmd(shell.precmd(line) if interactive else line)
        text = capsys.readouterr().out + said.getvalue()
    except UsageError as problem:
        assert not interactive
        text = str(problem)
    assert (runs == [ran] and not text) if isinstance(ran, tuple) else (not runs and re.search(ran, text)), text


# --- changes of links -------------------------------------------------------------------------------------------------


LINES = [
    *("link etcd1 s1 down", "link etcd1 s1 up", "delay etcd1 s1 10ms", "delay  s1 etcd1 10ms one-way"),
    *("rate etcd1 s1 100", "rate etcd1 s1 unlimited", "loss etcd1 s1 1.5%", "jitter etcd1 s1 1ms"),
    *("queue etcd1 s1 100", "queue s1 etcd1 default one-way"),
    *("jitter s1 etcd1 500us normal one-way", "jitter etcd1 s1 0", "partition etcd1 | etcd2 etcd3"),
    *("partition a|b|c", "heal", "link etcd1 s1 duplication=0.01 corruption=0.5 delay=3ms one-way"),
    *("link etcd1 s1 aqm=codel", 'link etcd1 s1 aqm={"kind":"fq_codel","target":"1ms"} bandwidth=10'),
    *("link etcd1 s1 aqm=null loss=null", "link eu>us loss=0.01", "link eu-us down", "link eu us up"),
    *("delay eu>us 10ms", "loss us-eu 1% one-way"),
]
WRONG_LINES = [
    *("link etcd1 s1", "link etcd1 s1 sideways", "delay etcd1 10ms", "delay etcd1 s1 10 ms", "jitter etcd1 1ms"),
    *("jitter etcd1 s1 1ms pareto", "jitter etcd1 s1 normal", "rate etcd1 s1 fast", "rate etcd1 s1 nan"),
    *("queue etcd1 100", "queue etcd1 s1 10ms", "queue etcd1 s1 -5"),
    *("loss etcd1 s1 1", "loss etcd1 s1 101%", "loss etcd1 s1 -1%", "loss etcd1 s1 %", "partition etcd1 etcd2"),
    *("partition etcd1 |", "heal now", "link etcd1 s1 duplication=2", "link etcd1 s1 aqm=red"),
    *("link etcd1 s1 aqn=codel", 'link etcd1 s1 aqm={"kind":"codel","flows":1}', "link etcd1 s1 aqm=codel down"),
    *("link eu>us down", "link eu-asia down", "delay a-b-c 10ms"),
]


def test_what_a_line_calls_and_prints_and_what_makes_no_sense_and_does_nothing(snapshot: SnapshotAssertion) -> None:
    told: dict[str, Any] = {}
    for line in (*LINES, *WRONG_LINES):
        names = [name for name in dir(LiveLinks) if name[0] != "_"]
        net = mock.Mock(**{f"{name}.return_value": 12_345_678_901 for name in names})
        net.switches = [SimpleNamespace(name=name) for name in ("s1", "eu", "us", "a", "b-c", "a-b", "c")]
        net.nameToNode = dict.fromkeys(("etcd1", *(switch.name for switch in net.switches)))
        verb, _, rest = line.partition(" ")
        try:
            told[line] = [CHANGES[verb](net, rest.split())]
            told[line] += [(name, *args, *options.items()) for name, args, options in net.method_calls]
        except UsageError as refusal:
            told[line] = str(refusal)
            assert not net.method_calls
    assert told == snapshot


# Addresses and gateway. a and b are in one network, c and d in others: a and c each have a router, which reach each
# other. e and f share a network, and f has another one besides, which e reaches through r1.
ROUTED = {
    "a": (["10.0.1.2"], "10.0.1.1"),
    "b": (["10.0.1.3"], "10.0.1.1"),
    "c": (["10.0.3.2"], "10.0.3.1"),
    "d": (["10.0.4.2"], None),
    "e": (["10.0.1.4", "10.0.5.4"], "10.0.1.1"),
    "f": (["10.0.5.5", "10.0.3.3"], None),
    "r1": (["10.0.1.1", "10.0.2.1"], "10.0.2.2"),
    "r2": (["10.0.3.1", "10.0.2.2"], "10.0.2.1"),
}


@pytest.mark.parametrize(
    ("sets", "router"),
    [
        ("a|b", None),
        ("a|b c", "a reaches c through r1"),
        ("a r1|c", "r1 reaches c through r2"),
        ("a r1|r2 c", None),
        ("a|r1 r2 c", None),
        ("r1|c", "r1 reaches c through r2"),
        ("a|d", None),  # its container has ended
        ("e|f", "e reaches f through r1"),
        ("f|e", "e reaches f through r1"),
    ],
)
def test_hosts_that_a_router_joins_are_parted_with_it_or_not_at_all(
    sets: str, router: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`partition h1 | h2` printed "parted", and they went on to reach each other through their router."""
    net: Any = LiveLinks()
    net.hosts = [FakeHost(name, pid, "") for pid, name in enumerate(ROUTED)]
    for host in net.hosts:
        host.intfs = {n: SimpleNamespace(ip=ip, prefixLen=24) for n, ip in enumerate(ROUTED[host.name][0])}
    net.nameToNode = {host.name: host for host in net.hosts}
    net.links, net.changing, net._ends_of = [], nullcontext(), lambda node: [node.name]
    net.fabric = mock.Mock(**{"partition.return_value": 5, "heal.return_value": 6})

    def addresses(pid: int) -> list[IPv4Interface]:
        if (name := net.hosts[pid].name) == "d":
            raise ProcessGoneError("its process has ended")
        return [IPv4Interface(f"{address}/24") for address in ROUTED[name][0]]

    def gateway(pid: int, address: str) -> str | None:
        near = any(IPv4Interface(address) in own.network for own in addresses(pid))
        return None if near else ROUTED[net.hosts[pid].name][1]

    monkeypatch.setattr(live_links, "read_addresses", addresses)
    monkeypatch.setattr(live_links, "read_gateway", gateway)
    monkeypatch.setattr(live_links, "has_bridge", lambda pid: False)
    groups = [group.split() for group in sets.split("|")]
    if router is not None:
        with pytest.raises(UsageError, match=f"{router}, which is in no set"):
            net.partition(groups)
        assert not net.fabric.partition.called
        return
    assert (net.partition(groups), net.parted) == (5, tuple(map(tuple, groups)))
    assert (net.heal(), net.parted) == (6, ())


def test_a_switch_stands_for_the_hosts_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    net: Any = LiveLinks()
    net.hosts = [FakeHost(name, pid, "") for pid, name in enumerate("abc")]
    switches = [Switch.__new__(Switch) for _ in range(2)]
    for switch, switch.name in zip(switches, ("eu", "us"), strict=True):
        switch.waiting = switch.shell = None
    net.nameToNode = {node.name: node for node in (*net.hosts, *switches)}
    ends = [(host, switches[at]) for host, at in zip(net.hosts, (0, 1, 1), strict=True)] + [tuple(switches)]
    net.links = [SimpleNamespace(intf1=SimpleNamespace(node=one), intf2=SimpleNamespace(node=two)) for one, two in ends]
    net.changing, net._ends_of = nullcontext(), lambda node: [node.name]
    net.fabric = mock.Mock(**{"partition.return_value": 5})
    monkeypatch.setattr(live_links, "forwarded", lambda *_: [])
    assert (net.partition([["eu"], ["us"]]), net.parted) == (5, (("a",), ("b", "c")))
    with pytest.raises(UsageError, match="b is in the partition twice"):
        net.partition([["eu", "b"], ["us"]])


def test_a_partition_and_pulled_cables_follow_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that was made again reached every host, and `restart` after removeDocker said that there is no h3."""
    monkeypatch.setattr("containernet_env.containernet.network.reconnect", lambda *_: None)
    net: Any = Containernet.__new__(Containernet)
    net.hosts = [FakeHost(f"h{n}", n, "") for n in (1, 2, 3)]
    net.nameToNode = {host.name: host for host in net.hosts}
    net.switches, net.controllers, net.links, net.fabric = [], [], [], mock.Mock()
    net.changing, net.factory, net._started = nullcontext(), mock.Mock(), False
    for host in net.hosts:
        host.stop = mock.Mock()
        own, end = mock.Mock(node=host), Interface(host.pid, f"e{host.pid}")
        link = mock.Mock(intf1=own, intf2=mock.Mock(node="s1"), plugged=host.pid != 1)  # the cable of h1 is pulled
        link.end_of = lambda intf, own=own, end=end: end if intf is own else None
        net.links.append(link)

    def in_force() -> list[list[str]]:
        """The interfaces that were last parted."""
        return [[end.name for end in group] for group in net.fabric.partition.call_args.args[0]]

    net.parted = (("h1",), ("h2", "h3"))
    net.reconnect("h1")
    net.links[0].set_up.assert_called_once_with(False)
    assert in_force() == [["e1"], ["e2", "e3"]]
    net.links[1].held.made = False  # the other end of its link has ended
    net.part_again()
    assert in_force() == [["e1"], ["e3"]]
    net.delNode(net["h2"])
    assert net.parted == (("h1",), ("h3",))
    assert in_force() == [["e1"], ["e3"]]
    assert not net.fabric.heal.called
    net.delNode(net["h3"])
    assert net.parted == ()
    net.fabric.heal.assert_called_once_with()
    net.reconnect("h1")


def test_hosts_that_are_linked_to_each_other_start_again_with_link_and_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """`restart h1 h2` made the link of h1 into the namespace that h2 had had, and setDefaultRoute was forgotten."""
    ran: list[tuple[int, list[str]]] = []
    monkeypatch.setattr("containernet_env.containernet.docker.ip_batch", lambda pid, lines: ran.append((pid, lines)))
    monkeypatch.setattr("containernet_env.containernet.network.ip_batch", lambda pid, lines: ran.append((pid, lines)))
    monkeypatch.setattr(Interface, "read_address", lambda self: self.ip)
    monkeypatch.setattr(Interface, "read_mac", lambda self: self.mac)
    factory = LinkFactory("bridge", "abc123", None, lambda *_: None)
    built: list[tuple[int, str]] = []
    monkeypatch.setattr(
        factory, "_build", lambda link, _: built.extend((end.pid, f"{end.ip}/{end.prefix_length}") for end in link.ends)
    )
    ends = [Interface(n, f"e{n}", f"02:00:00:00:00:0{n}") for n in (1, 2)]
    hosts = [mock.Mock(pid=n, alive=True, routes={}) for n in (1, 2)]
    intfs = [mock.Mock(node=host, held=end) for host, end in zip(hosts, ends, strict=True)]
    link = mock.Mock(intf1=intfs[0], intf2=intfs[1])
    link.held.configure_mock(name="h1-h2", ends=ends)
    factory._links["h1-h2"] = link.held, (1, 2)
    for n, (host, intf, end) in enumerate(zip(hosts, intfs, ends, strict=True), 1):
        intf.link, host.intfs, end.ip, end.prefix_length = link, {0: intf}, f"10.0.0.{n + 2}", 24  # by setIP
        host._set_route = partial(Docker._set_route, host)
    Docker.setDefaultRoute(hosts[0], "via 10.0.0.4")
    Docker.setHostRoute(hosts[1], "10.0.9.1", "h2-eth0")
    ran.clear()
    hosts[0].pid, hosts[1].alive = 3, False
    reconnect(hosts[0], [link], factory)
    assert built == []
    hosts[1].pid, hosts[1].alive = 4, True
    reconnect(hosts[1], [link], factory)
    assert built == [(3, "10.0.0.3/24"), (4, "10.0.0.4/24")]
    for line in ((3, ["route replace default via 10.0.0.4"]), (4, ["route replace 10.0.9.1/32 dev h2-eth0"])):
        assert line in ran


# --- members that crash -----------------------------------------------------------------------------------------------


class Member(FakeHost):
    """A container that does what it is told; ``ran`` is what that was."""

    alive = True

    def __init__(self, name: str, pid: int, address: str) -> None:
        super().__init__(name, pid, address)
        self.ran: list[str] = []
        self.freeze, self.thaw = (partial(self._note, what) for what in ("freeze", "thaw"))

    def kill(self) -> int:
        self.alive = False
        return self._note("kill")

    def wait_frozen(self, frozen: bool) -> None:
        self._note(f"frozen {frozen}")

    def restart(self) -> None:
        assert not self.alive
        self.alive = True
        self._note("restart")

    def _note(self, what: str) -> int:
        self.ran.append(what)
        return 12_345_678_901


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A network of three containers."""
    monkeypatch.setattr(command_line, "Docker", Member)
    return FakeNet(("etcd1", "etcd2", "etcd3"), 1, Member)


def refused(net: Any, line: str) -> str:
    """The message of a line that is refused."""
    with pytest.raises(UsageError) as told:
        run_command(net, line)
    return str(told.value)


def test_members_crash_stop_and_come_back(
    members: Any, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    """`kill 1` lost a member for good, and `py etcd1.restart()` left its link down."""
    lines = ("kill etcd1", "restart etcd1", "freeze etcd2 etcd3", "thaw etcd2", "restart etcd2 etcd2")
    assert [run_command(members, line) for line in lines] == [0] * 5
    assert [host.ran for host in members.hosts] == [
        ["kill", "restart"],
        ["freeze", "frozen True", "thaw", "frozen False", "kill", "restart"],
        ["freeze", "frozen True"],
    ]
    wrong = ("kill", "kill s1", "restart etcd4", "leader", "kill leader")
    assert [capsys.readouterr().out, *(refused(members, line) for line in wrong)] == snapshot


@pytest.mark.simulated(seeds=10)
def test_members_of_a_lab_join_their_cluster_again(members: Any, capsys: pytest.CaptureFixture[str]) -> None:
    quorum, killed = clock.Event(), list[str]()

    def restart(name: str, ready: Any, broken: Any) -> int:
        members[name].restart()
        ready()
        if name == "etcd3":
            raise RunError("its disk is full")
        if name == "etcd2":
            quorum.wait()
        return 1

    testbed: Any = SimpleNamespace(net=members, failure=None, emulated=SimpleNamespace(dilation=1))
    testbed.faults = SimpleNamespace(
        targets=Targets(("etcd1", "etcd2", "etcd3")),
        restart=restart,
        signal=lambda verb, name: members[name].kill(),
    )
    testbed.cluster = SimpleNamespace(expect_death=killed.append, leadership=lambda: Leadership("etcd2", 7))
    lab = Lab(testbed)
    for line in ("leader", "kill leader", "restart etcd1 etcd2"):
        assert run_command(members, line, lab) == 0
    with pytest.raises(RunError, match="etcd3: its disk is full"):
        run_command(members, "restart etcd3", lab)
    assert set(killed) == {"etcd1", "etcd2", "etcd3"} and killed[0] == "etcd2"
    assert all(host.alive for host in members.hosts)
    assert capsys.readouterr().out.splitlines() == [
        "etcd2 leads, in term 7",
        "etcd2: killed (at 12.345679 s of the monotonic clock)",
        "etcd1: started again, and answers",
        "etcd2: started again; it answers once it knows a leader",
    ]
    testbed.cluster.leadership = lambda: None
    run_command(members, "leader", lab)
    assert "no leader" in capsys.readouterr().out
    with pytest.raises(RunError, match="no leader"):
        run_command(members, "kill leader", lab)
    quorum.set()


def test_help_describes_our_commands_and_tab_completes_commands_and_nodes(
    net: FakeNet, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = command_line.OneLine(net)
    shell.onecmd("help")
    said = capsys.readouterr().out
    for verb in command_line.COMMANDS:
        assert f"  {verb}" in said
    shell.onecmd("?restart")
    assert capsys.readouterr().out.startswith("restart NAME")
    assert shell.completenames("re") == ["restart "]
    assert shell.completenames("et") == ["etcd1 ", "etcd2 "]
    assert shell.completedefault("et", "delay et", 6, 8) == ["etcd1 ", "etcd2 "]
    assert shell.complete_help("ki", "help ki", 5, 7) == ["kill"]
    with pytest.raises(UsageError, match="did you mean restart"):
        shell.onecmd("help restrat")
