"""Which network engine, links and switches are chosen, what each is not asked for, and what it needs: on fakes."""

from __future__ import annotations

import importlib
import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import mininet.net
import pytest

from containernet_env.base.errors import MissingRequirementError, RunError, UsageError
from containernet_env.config.plan import Plan, PlanOptions
from containernet_env.config.planning import build_plan
from containernet_env.config.topologies import load_config
from containernet_env.containernet import engines
from containernet_env.containernet.original_links import keywords
from containernet_env.hosts import engine, netns, owner
from containernet_env.model import backends as original_rules
from containernet_env.model.config import Config
from containernet_env.model.link import DirectionSpec, GilbertElliottLoss, IndependentLoss, Jitter, Link, LinkSpec
from containernet_env.network import factory as network_select
from containernet_env.network import switches
from containernet_env.network.interface import delete_interface
from containernet_env.runs import clean
from tests.unit.test_docs_links import anchors

MS = 1_000_000
MBIT = 1_000_000
PROJECT = Path(__file__).resolve().parents[2]


def config_of(name: str = "3node-3ms.json") -> Config:
    return load_config(PROJECT / "configs" / name)


def plan_of(name: str = "3node-3ms.json", **options: Any) -> Plan:
    return build_plan(config_of(name), None, PlanOptions(2, run_id="abc123", engine="containernet", **options))


def test_what_a_run_is_made_by_is_known_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mininet.net, "Containernet", raising=False)
    monkeypatch.setattr(engines, "choose", lambda asked: "netem" if asked == "auto" else asked)
    monkeypatch.setattr(engines, "choose_switches", lambda asked, links: f"{asked} for {links}")
    plan = build_plan(config_of(), None, PlanOptions(2, seed=4711))
    engines.require(plan)
    found = engines.foreseen(plan)
    assert (found.network, found.network_version) == ("builtin", f"Mininet {mininet.net.VERSION}")
    assert (found.links, found.switches, found.network_commit) == ("netem", "auto for netem", None)
    asked: dict[str, Any] = {}
    monkeypatch.setattr(
        "containernet_env.containernet.network.BuiltinNetwork", lambda **keywords: asked.update(keywords)
    )
    engines.create(plan)
    assert (asked["links"], asked["switches"], asked["seed"]) == ("auto", "auto", 4711)


# --- what is refused, and how the rest is asked for -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("direction", "words"),
    [
        (DirectionSpec(rate_bps=1001 * MBIT), "above 1000 Mbit/s"),
        (DirectionSpec(5 * MS, jitter=Jitter("normal", MS, reorder=True)), "normal jitter"),
        (DirectionSpec(5 * MS, jitter=Jitter("uniform", MS, reorder=False)), "keeps the order"),
        (DirectionSpec(loss=GilbertElliottLoss(0.1, 0.5, 1.0, 0.0)), "in bursts"),
        (DirectionSpec(loss=IndependentLoss(0.123456789)), "five digits|5 digits"),
        (DirectionSpec(rate_bps=MBIT, loss=IndependentLoss(0.1)), "loss with a bandwidth"),
        (DirectionSpec(rate_bps=MBIT, queue_bytes=9000), "limit in bytes"),
        (DirectionSpec(MS, MBIT, queue_frames=9), "queue limit with a delay"),
        (DirectionSpec(rate_bps=MBIT, overhead_bytes=24), "overhead"),
        (DirectionSpec(MS, MBIT, uplink="host"), "takes the frames from their host"),
        (DirectionSpec(queue_frames=9), "without a bandwidth"),
        (DirectionSpec(seed=1), "seed"),
        (DirectionSpec(duplication_ratio=0.1), "duplication"),
    ],
)
def test_what_its_links_cannot_do_is_refused_with_the_link_and_the_reason(direction: DirectionSpec, words: str) -> None:
    with pytest.raises(UsageError, match=f"from s1 to a: .*({words})"):
        original_rules.check([Link("a", "s1", LinkSpec(DirectionSpec(), direction))], "auto")


def test_what_its_links_can_do_is_taken() -> None:
    for ratio in (0.07, 0.29, 1.0, 0.0000001, 0.123456):
        assert original_rules.containernet_refusal(DirectionSpec(loss=IndependentLoss(ratio))) is None
    with pytest.raises(UsageError, match="--links emulator"):
        plan_of(links="emulator")
    vde: Any = "vde"
    with pytest.raises(UsageError, match="allowed: auto, ovs"):
        build_plan(config_of(), None, PlanOptions(2, links="netem", switches=vde))


def test_its_keywords_say_all_that_is_asked() -> None:
    slow, jitter = DirectionSpec(rate_bps=MBIT), Jitter("uniform", 250_500, reorder=True)
    said: list[tuple[DirectionSpec, dict[str, Any]]] = [
        (DirectionSpec(), {}),
        (DirectionSpec(rate_bps=100 * MBIT), {"bw": 100.0, "max_queue_size": 2000}),
        # netem counts frames under way as queued: 3 ms at 1000 Mbit/s hold up to 6250 of the smallest.
        (DirectionSpec(3 * MS, 1000 * MBIT), {"bw": 1000.0, "delay": "3000.000us", "max_queue_size": 2000 + 6250}),
        (replace(slow, default_queue_frames=1000), {"bw": 1.0}),
        (replace(slow, default_queue_frames=4000), {"bw": 1.0, "max_queue_size": 4000}),
        (replace(slow, queue_frames=7), {"bw": 1.0, "max_queue_size": 7}),
        (DirectionSpec(MS, jitter=jitter, loss=IndependentLoss(0.01)),
            {"delay": "1000.000us", "jitter": "250.500us", "loss": 1.0}),
    ]  # fmt: skip
    for direction, asked in said:
        found = keywords(direction)
        assert {key: found[key] for key in asked} == asked and set(found) - set(asked) <= {"max_queue_size"}, direction
        assert ("max_queue_size" in found) == ("max_queue_size" in asked or direction.jitter is not None), direction


# --- what the machine must have ---------------------------------------------------------------------------------------


def test_without_the_original_the_guide_is_named_and_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> ModuleType:
        raise ImportError("No module named 'distutils'")

    with monkeypatch.context() as patch:
        patch.setattr(engines, "kernel_has_netem", lambda: True)
        patch.setattr(importlib, "import_module", fail)
        with pytest.raises(MissingRequirementError, match="distutils"):
            engines.require(plan_of())
    monkeypatch.delattr(mininet.net, "Containernet", raising=False)
    monkeypatch.setattr(engines.programs, "which", lambda program: None)
    # A kernel without netem is told before anything that could be installed.
    for has_netem, words in ((True, "without Containernet"), (False, "no netem")):
        monkeypatch.setattr(engines, "kernel_has_netem", lambda has_netem=has_netem: has_netem)
        for make in (engines.require, engines.create):
            with pytest.raises(MissingRequirementError, match=rf"{words}(.|\n)*{engines.GUIDE}"):
                make(plan_of())
    page, _, section = engines.GUIDE.partition("#")
    assert section in anchors((PROJECT / page).read_text("utf-8"))


def test_its_programs_are_looked_for_and_netem_for_delays_and_queues(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mininet.net, "Containernet", object, raising=False)
    monkeypatch.setattr(engines.programs, "which", lambda program: f"/bin/{program}")
    monkeypatch.setattr(engines, "choose_switches", lambda asked, links: "bridge" if asked == "auto" else asked)
    monkeypatch.setattr(engines, "kernel_has_netem", lambda: True)
    engines.require(plan_of())
    with monkeypatch.context() as patch:
        patch.setattr(engines.programs, "which", lambda program: None if program == "brctl" else program)
        with pytest.raises(MissingRequirementError, match=r"brctl(.|\n)*bridge-utils"):
            engines.require(plan_of())
        engines.require(plan_of(switches="ovs"))
    monkeypatch.setattr(engines, "kernel_has_netem", lambda: False)
    node = {"ip": "10.0.0.1", "mem": "64m", "cpus": 1, "link_delay": "0ms"}
    undelayed = tmp_path / "fast.json"
    # 250 ms of 48.448 Mbit/s are the 1000 frames that an interface holds by itself.
    for mbps, links, is_needed in ((100, "auto", True), (48.448, "auto", False), (48.448, "netem", True)):
        undelayed.write_text(json.dumps([node | {"bandwidth": mbps}]))
        plan = plan_of(str(undelayed), links=links)
        with pytest.raises(MissingRequirementError, match="no netem") if is_needed else nullcontext():
            engines.require(plan)
    with pytest.raises(MissingRequirementError, match="no netem"):
        engines.require(plan_of())


# --- links and switches of the project's own network ------------------------------------------------------------------


def test_which_switches_join_links(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = "ovs-vsctl is not installed"
    chosen: dict[tuple[str | None, Any, Any], str] = {
        (missing, "auto", "netem"): "bridge",
        (missing, "bridge", "netem"): "bridge",
        (None, "auto", "netem"): "ovs",
        (None, "ovs", "netem"): "ovs",
        (None, "bridge", "netem"): "bridge",
        (None, "auto", "emulator"): "emulator",
    }
    for (problem, asked, links), switches_of in chosen.items():
        monkeypatch.setattr(network_select, "ovs_problem", lambda problem=problem: problem)
        assert network_select.choose_switches(asked, links) == switches_of, (problem, asked, links)
    monkeypatch.setattr(network_select, "ovs_problem", lambda: missing)
    with pytest.raises(MissingRequirementError, match=r"ovs-vsctl is not installed\n(.|\n)*--switches bridge"):
        network_select.choose_switches("ovs", "netem")
    # On every machine alike: netem is asked for by name.
    assert network_select.choose("auto") == network_select.choose("emulator") == "emulator"
    for has_netem in (True, False):
        monkeypatch.setattr(network_select, "kernel_has_netem", lambda has_netem=has_netem: has_netem)
        with nullcontext() if has_netem else pytest.raises(MissingRequirementError, match="no netem"):
            assert network_select.choose("netem") == "netem"
    with pytest.raises(UsageError, match="of its own"):
        network_select.choose_switches("bridge", "emulator")


# --- bridges of Open vSwitch and interfaces, and which of them are ours -----------------------------------------------

# As ovs-vsctl 3.1 prints it.
DEAD = f"{'0' * 8}-0000-0000-0000-{'0' * 12}/7/8"
TABLE = (
    '{"data":[["br-lan",["map",[]]],["0b0b0bb0",["map",[["containernet-env.owner","' + DEAD + '"],["note","x"]]]],'
    # Of people who copied our mark, or our name.
    '["br-dmz",["map",[["containernet-env.owner","' + DEAD + '"]]]],["0b0b0bb1",["map",[]]],'
    '["0b0b0bb2",["map",[["containernet-env.owner","me"]]]]],'
    '"headings":["name","external_ids"]}'
)


def test_bridges_of_the_dead_are_removed_with_the_interfaces_of_their_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(switches.bridges_of("")) == []
    alive = switches.OurBridge("0a0a0ab0", owner.current())
    removed: list[str] = []
    monkeypatch.setattr(engine, "list_ours", lambda run=None: [])
    monkeypatch.setattr(engine, "remove_containers", lambda ids: None)
    monkeypatch.setattr(switches, "list_ours", lambda: [*switches.bridges_of(TABLE), alive])
    monkeypatch.setattr(switches, "vsctl", lambda *words: "0b0b0be1\neth1\n" if words[0] == "list-ports" else "")
    monkeypatch.setattr(switches, "delete_interface", lambda pid, name: removed.append(name))
    assert clean.remove_leftovers() == clean.Leftovers(("bridge 0b0b0bb0",), ("bridge 0a0a0ab0",))
    assert removed == ["0b0b0be1"]


def test_interfaces_are_looked_for_only_where_a_run_makes_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "remove_containers", lambda ids: None)
    monkeypatch.setattr(switches, "list_ours", list)
    monkeypatch.setattr(clean, "remove_interfaces", lambda run: [f"{run}e0"])
    for name, interfaces in (("cnenv-a1b2c3.etcd1", ["interface a1b2c3e0"]), ("cnenv-a1b2c3-etcd1", [])):
        left = engine.OurContainer("c0ffee", name, "a1b2c3", "etcd1", DEAD, "running", "i")
        monkeypatch.setattr(engine, "list_ours", lambda run=None, left=left: [left])
        assert clean.remove_leftovers().removed == (*interfaces, f"container {name}")


def test_a_database_that_does_not_run_has_no_bridges(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: str) -> str:
        raise RunError("ovs-vsctl failed with status 1: unix:/run/db.sock: database connection failed (No such file)")

    monkeypatch.setattr("shutil.which", lambda program, path=None: "/usr/bin/ovs-vsctl")
    monkeypatch.setattr(switches, "vsctl", refuse)
    assert switches.list_ours() == []
    assert "does not run" in (switches.ovs_problem.__wrapped__() or "")


def test_an_interface_that_goes_by_itself_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, gone in (
        ('Cannot find device "e0"', True),
        # Its host ended between the look for its name and its removal: the tear-down of a run failed once.
        ("RTNETLINK answers: No such device; Command failed -:1", True),
        ("RTNETLINK answers: Operation not permitted", False),
    ):

        def refuse(pid: int, lines: object, said: str = said) -> None:
            raise RunError(f"'ip -batch -' failed with status 1: {said}")

        monkeypatch.setattr(netns, "ip_batch", refuse)
        with nullcontext() if gone else pytest.raises(RunError, match="not permitted"):
            assert delete_interface(1, "e0") is False
