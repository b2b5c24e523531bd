"""What a run needs of a network, of every engine: our own, and the original Containernet where it is here.

Whole runs on the original, and what kill -9 leaves of one, are the vm ring's (tests/vm).
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mininet.net
import pytest

from containernet_env.base.errors import RunError
from containernet_env.config.plan import Plan, PlanOptions
from containernet_env.config.planning import build_plan
from containernet_env.config.topologies import load_config
from containernet_env.containernet import engines
from containernet_env.containernet.docker import new_run_id
from containernet_env.containernet.network import Containernet
from containernet_env.hosts import engine, netns
from containernet_env.hosts.limits import cgroups_of
from containernet_env.model.backends import EngineChoice, SwitchesChoice
from containernet_env.network.kernel import DELAY_TOLERANCE_NS, RATE_TOLERANCE_RATIO
from containernet_env.network.link import check_held
from tests.deadline import eventually
from tests.docker.machine_state import left_over, snapshot
from tests.docker.runs import PROJECT, call
from tests.root.network import answers, check_not_early, has_netem, needs_ovs, silent

if TYPE_CHECKING:  # pytest would collect it
    from containernet_env.containernet.testbed_network import TestbedNetwork

pytestmark = [pytest.mark.docker, pytest.mark.root]

PROBLEM = engines.original_problem()
ORIGINAL = pytest.mark.skipif(PROBLEM is not None, reason=f"the original Containernet is not installed: {PROBLEM}")
ENGINES = [
    pytest.param(("builtin", "auto"), id="builtin"),
    pytest.param(("containernet", "bridge"), id="containernet-bridge", marks=ORIGINAL),
    pytest.param(("containernet", "ovs"), id="containernet-ovs", marks=[ORIGINAL, needs_ovs]),
]
MIB = 1 << 20
DELAY = "3ms" if has_netem() else "0ms"
# Without netem the original holds no other queue than the 1000 frames of an interface: 250 ms of 48.448 Mbit/s.
SLOW, FAST = (100, 1000) if has_netem() else (48.448, 48.448)
MEMBERS = [
    {"ip": "10.0.0.251", "mem": "64m", "cpus": 0.5, "bandwidth": SLOW, "link_delay": DELAY},
    {"ip": "10.0.0.252", "mem": "64m", "cpus": 64, "bandwidth": FAST, "link_delay": DELAY},
    {"ip": "10.0.0.253", "mem": "64m", "cpus": 1, "bandwidth": FAST, "link_delay": "0ms"},
]


def make_plan(folder: Path, which: EngineChoice, switches: SwitchesChoice) -> Plan:
    config = folder / "config.json"
    config.write_text(json.dumps(MEMBERS))
    return build_plan(
        load_config(config),
        None,
        PlanOptions(os.cpu_count() or 1, run_id=new_run_id(), engine=which, switches=switches),
    )


@contextmanager
def network(plan: Plan) -> Iterator[TestbedNetwork]:
    before = snapshot()
    net = engines.create(plan)
    try:
        yield net
    finally:
        net.stop()
        net.stop()
    assert left_over(before) == {}


@pytest.fixture(scope="module", params=ENGINES)
def plan(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return make_plan(tmp_path_factory.mktemp("engine"), *request.param)


@pytest.fixture(scope="module")
def net(plan: Plan, image: str) -> Iterator[Any]:
    """The plan's network, started, with shells as the first processes of its hosts."""
    with network(plan) as made:
        hosts = [made.add_host(host, image, ["sh"]) for host in plan.hosts]
        for host in hosts:
            host.wait_up(30)
        for switch in plan.switches:
            made.add_switch(switch)
        for link in plan.links:
            made.add_link(link.a, link.b, link.spec)
        made.start()
        made.staticArp()
        yield made


def pids(net: Any) -> dict[str, int]:
    return {host.name: host.pid for host in net.hosts}


def test_hosts_have_what_the_plan_asks_and_nothing_more(net: Any, plan: Plan) -> None:
    for asked, host in zip(plan.hosts, net.hosts, strict=True):
        limits = host.limits()
        assert limits.memory_bytes == asked.memory_bytes
        assert limits.memswap_bytes in (asked.memswap_bytes, None)
        groups = cgroups_of(host.pid)
        if asked.memory_bytes is not None and groups.v2 is not None and (groups.v2 / "memory.swap.max").exists():
            assert limits.memswap_bytes == asked.memswap_bytes
        assert limits.cpu_quota_us == asked.cpu_quota_us
        shown = netns.run(host.pid, ["ip", "-br", "address", "show", "dev", host.defaultIntf().name]).stdout
        assert f" {asked.ip}/24" in shown
        assert host.alive
        assert host.exit_state().exit_code is None
        container = next(found for found in engine.list_ours(plan.run_id) if found.host == asked.name)
        state = engine.client().api.inspect_container(container.id)
        assert container.owner
        assert state["HostConfig"]["NetworkMode"] == "none"
        assert not state["HostConfig"]["CapAdd"]
        assert state["HostConfig"]["CapDrop"] == ["ALL"]
        assert not state["HostConfig"]["Privileged"]
        assert not state["HostConfig"]["PublishAllPorts"]
        assert state["HostConfig"]["LogConfig"]["Config"]["max-size"]
        # No way around the emulated links.
        links = netns.run(host.pid, ["ip", "-d", "-o", "link", "show", "up"]).stdout.splitlines()
        assert len(links) == 2, links
        # netem would take up to 64 KiB of a flow for one frame.
        assert net.links_kind == "emulator" or "gso_max_segs 1 " in links[1]
        neighbours = netns.run(host.pid, ["ip", "neighbour", "show", "nud", "permanent"]).stdout.splitlines()
        assert len(neighbours) == len(plan.hosts) - 1, neighbours


def test_commands_give_their_status_and_their_output(net: Any) -> None:
    host = net.hosts[0]
    assert host.run("echo one; echo two >&2; false") == (1, "one\ntwo\n")
    assert host.run("grep CapEff /proc/self/status") == (0, "CapEff:\t0000000000000000\n")
    assert host.run("exit 9")[0] == 9
    assert host.run("echo a new one") == (0, "a new one\n")
    assert net.pingAll(1) == 0
    # What the command line of `shell` is given.
    assert isinstance(net, mininet.net.Mininet)
    assert [host.name for host in net.hosts] == ["etcd1", "etcd2", "etcd3", "benchmark"]
    assert isinstance(net, Containernet) == (net.backend_name == "builtin")


def test_links_hold_what_was_asked_and_change_while_it_runs(net: Any, plan: Plan) -> None:
    for asked, link in zip(plan.links, net.links, strict=True):
        check_held(link.name, asked.spec, link.read_back(), DELAY_TOLERANCE_NS, RATE_TOLERANCE_RATIO)
    for one, other in combinations(zip(plan.hosts, plan.links, strict=True), 2):
        propagation_ns = 2 * sum(link.spec.a_to_b.delay_ns for _, link in (one, other))
        check_not_early(pids(net)[one[0].name], str(other[0].ip), propagation_ns)
    net.set_rate("etcd1", "s1", 20, one_way=True)
    held = net.link_between("etcd1", "s1").read_back()
    asked = plan.links[0].spec
    assert held.a_to_b.rate_bps == 20_000_000
    assert held.b_to_a.rate_bps == asked.b_to_a.rate_bps
    assert abs(held.a_to_b.delay_ns - asked.a_to_b.delay_ns) <= DELAY_TOLERANCE_NS
    if DELAY == "0ms":
        net.set_rate("etcd1", "s1", None)
        held = net.link_between("etcd1", "s1").read_back()
        assert (held.a_to_b.rate_bps, held.b_to_a.rate_bps) == (None, None)
    seen = net.link_statistics(reset=True)["links"]
    assert set(seen) == {f"{host.name}-s1" for host in plan.hosts}
    assert seen["etcd1-s1"]["a_to_b"]["frames"] > 20
    assert net.link_statistics()["links"]["etcd1-s1"]["a_to_b"]["frames"] < 20


@pytest.mark.skipif(not has_netem(), reason="this kernel has no netem")
def test_delay_and_loss_change_while_it_runs(net: Any) -> None:
    net.set_rate("etcd1", "s1", None)
    net.set_delay("etcd1", "s1", "20ms")
    net.set_loss("etcd1", "s1", 1.0, one_way=True)
    held = net.link_between("etcd1", "s1").read_back()
    assert abs(held.b_to_a.delay_ns - 20_000_000) <= DELAY_TOLERANCE_NS
    assert (held.a_to_b.loss.mean_ratio, held.b_to_a.loss) == (1.0, None)
    assert silent(pids(net)["etcd1"], pids(net)["etcd2"], "10.0.0.252")
    net.set_loss("etcd1", "s1", 0)
    assert answers(pids(net)["etcd1"], pids(net)["etcd2"], "10.0.0.252")


def test_cables_and_partitions(net: Any) -> None:
    one, two, three = (pids(net)[name] for name in ("etcd1", "etcd2", "etcd3"))
    assert answers(one, two, "10.0.0.252")
    net.set_link_up("etcd1", "s1", False)
    assert silent(one, two, "10.0.0.252")
    net.set_link_up("etcd1", "s1", True)
    assert answers(one, two, "10.0.0.252")
    try:
        net.partition([["etcd1"], ["etcd2", "etcd3"]])
    except RunError as error:
        # cls_u32 or act_gact is missing here; nothing stays parted.
        if "talking to the kernel" not in str(error) or net.backend_name == "builtin":
            raise
    else:
        assert silent(one, two, "10.0.0.252")
        assert answers(two, three, "10.0.0.253")
    net.heal()
    assert answers(one, two, "10.0.0.252")


def test_the_end_of_a_host_is_seen_and_the_others_carry_on(net: Any) -> None:
    """The last one of the tests that share the network."""
    host, two, three = net.hosts[:3]
    os.kill(host.pid, signal.SIGKILL)
    eventually(lambda: not host.alive, "the end of the host")
    assert host.exit_state().exit_code == 137
    assert host.ending() == "killed by SIGKILL"
    assert two.ending() is None
    assert answers(two.pid, three.pid, "10.0.0.253")


@pytest.mark.parametrize("which", ENGINES)
def test_an_image_that_is_missing_and_a_first_process_that_fails_are_named_with_the_reason(
    tmp_path: Path, image: str, which: tuple[EngineChoice, SwitchesChoice]
) -> None:
    plan = make_plan(tmp_path, *which)
    with network(plan) as net:
        with pytest.raises(RunError, match=r"host etcd1 \(image containernet-env/nosuch:1\)"):
            net.add_host(plan.hosts[0], "containernet-env/nosuch:1", ["sh"]).wait_up(30)
        with pytest.raises(RunError, match=r"etcd3.*nonexistent"):
            net.add_host(plan.hosts[2], image, ["/nonexistent"]).wait_up(30)
        try:
            host = net.add_host(plan.hosts[1], image, ["sh", "-c", "echo this is why; exit 4"])
            host.wait_up(30)
        except RunError as error:
            assert all(words in str(error) for words in ("host etcd2", "exit status 4", "this is why"))
        else:
            # It was seen running before it ended.
            eventually(lambda: not host.alive, "the end of the host")
            assert host.exit_state().exit_code == 4 and "this is why" in host.logs()


def test_pythonpath_reaches_a_run_through_test_sh(tmp_path: Path) -> None:
    package = tmp_path / "checkout" / "mininet"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text("raise ImportError('this is the one in PYTHONPATH')")
    config = tmp_path / "config.json"
    # Nothing of it needs netem, which is looked for first.
    config.write_text(json.dumps([{**MEMBERS[2], "bandwidth": 48.448}]))
    words = (config, tmp_path / "out.csv", "--engine", "containernet")
    done = call(*words, command=PROJECT / "test.sh", env={**os.environ, "PYTHONPATH": str(package.parent)})
    assert done.returncode == 3, done.stdout + done.stderr
    assert "this is the one in PYTHONPATH" in done.stderr
