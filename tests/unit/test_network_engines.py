"""How the original Containernet is driven, on fakes of its classes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import mininet.net
import mininet.node
import mininet.nodelib
import pytest
from mininet.net import Mininet

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.containernet import live_links
from containernet_env.hosts import container, engine
from containernet_env.hosts.engine import OurContainer
from containernet_env.hosts.limits import Limits
from containernet_env.model.link import LinkSpec
from tests.unit import fakes
from tests.unit.fakes import FakeKernel
from tests.unit.test_engine_choice import plan_of

kernel = fakes.kernel
PLAN = plan_of()


class FakeApi:
    """The Docker SDK's low-level client: what it was last asked for."""

    def create_host_config(self, **asked: Any) -> dict[str, Any]:
        self.host_config = asked
        return asked

    def create_container(self, **asked: Any) -> dict[str, str]:
        self.created = asked
        return {"Id": "the container"}


class FakeNode:
    """What the original's classes of hosts and switches have in common."""

    def __init__(self, name: str, **params: Any) -> None:
        self.name, self.params = name, params
        self.intfs: dict[int, Any] = {}
        self.ports: dict[Any, int] = {}
        self.nameToIntf: dict[str, Any] = {}
        self.inNamespace = True
        self.shell = self.stdin = self.stdout = None
        self.pid = os.getpid()


class FakeDocker(FakeNode, mininet.node.Host):
    """The original's Docker class: what it always asks the engine for."""

    api = FakeApi()
    begun: Callable[[], None] = staticmethod(lambda: None)

    def __init__(
        self, name: str, dimage: Any = None, dcmd: Any = None, build_params: Any = None, **kwargs: Any
    ) -> None:
        self.dnameprefix = "mn"
        self.d_client = SimpleNamespace(api=FakeDocker.api, close=lambda: None)
        self.dcli = self.d_client.api
        FakeDocker.begun()
        host_config = self.dcli.create_host_config(
            network_mode=None, publish_all_ports=True, cap_add=["net_admin"], cgroup_parent="/docker"
        )
        place = {"name": f"{self.dnameprefix}.{name}", "image": dimage, "labels": ["com.containernet"]}
        self.dc = self.dcli.create_container(command=dcmd, host_config=host_config, **place)
        self.did = self.dc["Id"]
        self.dcinfo = {"State": {"Pid": os.getpid()}, "Config": {}}
        super().__init__(name, **kwargs)

    def config(self, **params: Any) -> None:
        """See Mininet: the address of the first interface."""
        self.setIP(params["ip"])


class FakeSwitch(FakeNode, mininet.node.Switch):
    """Both of its switches."""

    def start(self, controllers: Any) -> None:
        """It forwards."""


class FakeContainernet(Mininet):
    """The original's network class."""

    def addDocker(self, name: str, cls: Any = FakeDocker, **params: Any) -> Any:
        return self.addHost(name, cls=cls, **params)


swap_limits: list[tuple[int, int]] = []
named: list[tuple[str, dict[str, str]]] = []


@pytest.fixture
def original(monkeypatch: pytest.MonkeyPatch, kernel: FakeKernel) -> Iterator[Callable[[], Any]]:
    """Makes a network on the fakes."""
    FakeDocker.api, FakeDocker.begun = FakeApi(), lambda: None
    patches = {"net.Containernet": FakeContainernet, "net.CONTAINERNET_VERSION": "3.0", "node.Docker": FakeDocker}
    for place, value in (patches | {"node.OVSBridge": FakeSwitch, "nodelib.LinuxBridge": FakeSwitch}).items():
        monkeypatch.setattr(f"mininet.{place}", value, raising=False)
    name = "containernet_env.containernet.original"
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(name)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    # No interrupt of the constructors: these run where the fake kernel is.
    monkeypatch.setattr("mininet.link.makeIntfPair", lambda *args, **options: None)
    monkeypatch.setattr(container, "cgroups_of", lambda pid: None)
    held = Limits(100_000, 100_000, 512 << 20, None)
    monkeypatch.setattr(container, "read_limits", lambda groups: held)
    monkeypatch.setattr(container, "limit_swap", lambda groups, *limits: swap_limits.append(limits))
    swap_limits.clear()
    monkeypatch.setattr(container.Container, "write_names", lambda self, given: named.append((self.host, dict(given))))
    named.clear()
    monkeypatch.setattr(engine, "list_ours", lambda run=None: [])
    monkeypatch.setattr(engine, "remove_containers", lambda ids: None)
    made = []
    yield lambda: (made.append(module.OriginalNetwork(PLAN.run_id, "bridge")), made[-1])[1]
    for net in made:
        net.stop()
    sys.modules.pop(name, None)


@pytest.fixture
def net(original: Callable[[], Any]) -> Any:
    return original()


def add_host(net: Any) -> Any:
    return net.add_host(PLAN.hosts[0], "image:tag", ["wait-at-gate", "--name=x"])


def bring_up(net: Any) -> None:
    add_host(net)
    net.add_switch("s1")
    net.add_link(PLAN.links[0].a, PLAN.links[0].b, PLAN.links[0].spec)
    net.start()


def test_the_engine_is_asked_for_no_more_than_a_host_needs(net: Any) -> None:
    host, asked, created = add_host(net), FakeDocker.api.host_config, FakeDocker.api.created
    assert (asked["network_mode"], asked["cap_drop"]) == ("none", ["ALL"])
    assert (asked["security_opt"], asked["pids_limit"]) == (["no-new-privileges"], 4096)
    assert not {"cap_add", "cgroup_parent", "publish_all_ports", "port_bindings"} & set(asked)
    assert asked["log_config"]["config"]["max-size"]
    assert (asked["mem_limit"], asked["memswap_limit"]) == (512 << 20, 512 << 20)
    assert (asked["cpu_quota"], asked["cpu_period"]) == (100_000, 100_000)
    assert (created["name"], created["labels"]) == ("cnenv-abc123.etcd1", engine.labels("abc123", "etcd1"))
    assert created["command"] == ["wait-at-gate", "--name=x"]
    assert created["use_config_proxy"] is False
    # Some engines drop the limit of swap on cgroup v2.
    assert swap_limits == [(512 << 20, 512 << 20)]
    assert host.alive
    assert (net.backend_name, net.hosts_kind, net.links_kind) == ("containernet", "containernet", "tclink")
    assert net.backend_version.startswith("3.0 (Mininet ")


def test_whatever_its_classes_raise_is_an_error_that_names_the_host(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for raised in (SystemExit(1), Exception("Error creating interface pair"), ValueError("odd")):

        def begin(raised: BaseException = raised) -> None:
            raise raised

        FakeDocker.begun = begin
        with pytest.raises(RunError, match=r"host etcd1 \(image image:tag\): "):
            add_host(net)
    FakeDocker.begun = lambda: None
    monkeypatch.setattr(container, "read_limits", lambda groups: Limits(None, 100_000, 512 << 20, None))
    with pytest.raises(RunError, match=r"host etcd1 \(image image:tag\): .*cpu_quota_us=None instead of 100000"):
        add_host(net)


def test_its_links_are_shaped_at_both_ends_read_back_and_parted(
    net: Any, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_up(net)
    for name in ("abc123e0", "abc123s1e1"):
        shaped = [line for line in kernel.ran if line.startswith("tc ") and f"dev {name} " in line and " add " in line]
        assert [line.split()[1] for line in shaped] == ["qdisc", "class", "qdisc"]
        assert "rate 1000.000000Mbit" in shaped[1]
        assert shaped[2].endswith("netem delay 3000.000us limit 8250")
    assert named == [("etcd1", {"etcd1": "10.0.0.251"})]
    (link,) = net.links
    assert link.read_back().a_to_b.delay_ns == 3_000_000
    assert any("10.0.0.251/24" in line and "abc123e0" in line for line in kernel.ran)
    net.set_rate("etcd1", "s1", 10, one_way=True)
    assert "rate 10.000000Mbit" in "\n".join(kernel.ran)
    held = link.read_back()
    assert (held.a_to_b.rate_bps, held.b_to_a.rate_bps) == (10**7, 10**9)
    with pytest.raises(RunError, match="above 1000"):
        net.set_rate("etcd1", "s1", 1001)
    # Its TCIntf would return early and leave the old limits.
    net.change_link("etcd1", "s1", delay_ns=0, rate_bps=None)
    assert link.read_back() == LinkSpec()
    # What fails at its second end leaves the link as it was, also after a read-back that was wrong.
    with monkeypatch.context() as patched, pytest.raises(RunError, match="another delay"):
        patched.setattr(type(link.held), "check", fakes.raising(RunError("the system holds another delay")))
        net.change_link("etcd1", "s1", delay_ns=2_000_000)
    kernel.refused = {"dev abc123s1e1 root handle 10: netem delay 3000": "tc failed"}
    with pytest.raises(RunError, match="tc failed"):
        net.change_link("etcd1", "s1", delay_ns=3_000_000)
    kernel.refused.clear()
    delays = [side.delay_ns for spec in (link.held.spec, link.read_back()) for side in spec.sides]
    assert delays == [2_000_000] * 4
    # `partition` was refused, since no link counted as made.
    net.add_host(PLAN.hosts[1], "image:tag", ["sh"])
    net.add_link(PLAN.links[1].a, PLAN.links[1].b, PLAN.links[1].spec)
    monkeypatch.setattr(net.fabric, "partition", lambda groups: [[end.name for end in group] for group in groups])
    monkeypatch.setattr(net.fabric, "heal", lambda: 6)
    monkeypatch.setattr(live_links, "forwarded", lambda groups, hosts, links: [])
    assert (net.partition([["etcd1"], ["etcd2"]]), net.heal()) == ([["abc123e0"], ["abc123e2"]], 6)


@pytest.mark.parametrize(
    ("spoilt", "words"),
    [
        ({"refused": {"netem": "it said so"}}, r"link etcd1-s1: .*it said so"),
        ({"deaf": True}, "link etcd1-s1, a to b: configured"),
        ({"homeless": True}, r"should have 10\.0\.0\.251/24"),
    ],
    ids=["an error of tc", "a link that is not held", "an address that is not held"],
)
def test_what_the_kernel_refuses_or_does_not_hold_stops_the_run(
    net: Any, kernel: FakeKernel, spoilt: dict[str, Any], words: str
) -> None:
    vars(kernel).update(spoilt)
    with pytest.raises(RunError, match=words):
        bring_up(net)


def test_stop_removes_what_carries_the_runs_label_and_names_what_it_cannot(
    net: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what was never noted."""
    bring_up(net)
    removed: list[str] = []

    def refuse(ids: Any) -> None:
        raise RunError("the engine is gone")

    with monkeypatch.context() as patched:
        patched.setattr(engine, "remove_containers", refuse)
        patched.setattr(net.switches[0], "remove", lambda: removed.append("s1"))
        with pytest.raises(RunError, match="containers: the engine is gone"):
            net.stop()
    there = OurContainer("half made", "cnenv-abc123.etcd2", "abc123", "etcd2", "", "created", "image")
    monkeypatch.setattr(engine, "list_ours", lambda run=None: [there] if run == "abc123" else [])
    monkeypatch.setattr(engine, "remove_containers", removed.extend)
    net.stop()
    net.stop()
    assert removed == ["s1", "half made", "half made"]


@pytest.mark.usefixtures("net")
def test_a_switch_whose_shell_ends_at_its_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ended the shell of a bridge before it had a session of its own, and the run waited for it for ever."""

    class Short(mininet.node.Node):
        isSetup = True

        def _popen(self, cmd: list[str], **params: Any) -> Any:
            return super()._popen(["true"], **params)

    class Switch(sys.modules["containernet_env.containernet.original"].EndingShell, Short):
        """With a shell that ends at once."""

    monkeypatch.setattr(Short, "outToNode", {})
    monkeypatch.setattr(Short, "inToNode", {})
    switch = Switch.__new__(Switch)
    with pytest.raises(OSError, match="Input/output error"):
        switch.__init__("s1", inNamespace=False)
    switch.stdin.close()
    switch.shell.wait()


@pytest.mark.simulated(seeds=20)
def test_stop_waits_for_what_is_being_made(original: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    net = original()
    begun, go_on, order = clock.Event(), clock.Event(), list[str]()

    def begin() -> None:
        begun.set()
        go_on.wait()
        order.append("made")

    FakeDocker.begun = begin
    monkeypatch.setattr(engine, "remove_containers", lambda ids: order.append("removed"))
    # The thread that an interrupt leaves behind.
    maker, stopper = clock.Thread(target=add_host, args=(net,)), clock.Thread(target=net.stop)
    maker.start()
    begun.wait()
    stopper.start()
    go_on.set()
    stopper.join()
    maker.join()
    assert order == ["made", "removed"]
