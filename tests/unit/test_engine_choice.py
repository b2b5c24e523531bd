"""Which network engine is made, what the original Containernet is not asked for, and what it needs: on fakes."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import mininet.net
import pytest

from containernet_env.base.errors import MissingRequirementError, UsageError
from containernet_env.config import load_config
from containernet_env.containernet import builtin, select
from containernet_env.containernet.original.links import keywords
from containernet_env.model import containernet_rules as original_rules
from containernet_env.model.chance import GilbertElliottLoss, IndependentLoss, Jitter
from containernet_env.model.link import DirectionSpec, LinkSpec
from containernet_env.model.topology import Link
from containernet_env.plan.build import build_plan
from containernet_env.plan.plan import Plan, PlanOptions
from tests.unit.test_docs_links import anchors

MS = 1_000_000
MBIT = 1_000_000
PROJECT = Path(__file__).resolve().parents[2]


def plan_of(name: str = "3node-3ms.json", **options: Any) -> Plan:
    chosen = PlanOptions(2, run_id="abc123", engine="containernet", **options)
    return build_plan(load_config(PROJECT / "configs" / name), None, chosen)


def test_what_a_run_will_be_made_by_is_known_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "choose", lambda asked: "netem" if asked == "auto" else asked)
    monkeypatch.setattr(select, "choose_switches", lambda asked, links: f"{asked} for {links}")
    plan = build_plan(load_config(PROJECT / "configs" / "3node-3ms.json"), None, PlanOptions(2))
    found = select.foreseen(plan)
    assert (found.network, found.network_version) == ("builtin", f"Mininet {mininet.net.VERSION}")
    assert (found.links, found.switches, found.network_commit) == ("netem", "auto for netem", None)


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
    ],
)
def test_what_its_links_cannot_do_is_refused_with_the_link_and_the_reason(direction: DirectionSpec, words: str) -> None:
    with pytest.raises(UsageError, match=f"from s1 to a: .*({words})"):
        original_rules.check([Link("a", "s1", LinkSpec(DirectionSpec(), direction))], "auto")


@pytest.mark.parametrize("ratio", [0.07, 0.29, 1.0, 0.0000001, 0.123456])
def test_losses_that_five_digits_can_say_are_taken(ratio: float) -> None:
    assert original_rules.refusal(DirectionSpec(loss=IndependentLoss(ratio))) is None


def test_the_link_emulator_is_not_the_originals() -> None:
    with pytest.raises(UsageError, match="--links emulator"):
        plan_of(links="emulator")


def test_its_keywords_say_all_that_is_asked() -> None:
    assert keywords(DirectionSpec()) == {}
    assert keywords(DirectionSpec(rate_bps=100 * MBIT)) == {"bw": 100.0, "max_queue_size": 2000}
    # netem counts frames under way as queued: 3 ms at 1000 Mbit/s hold up to 6250 of the smallest.
    assert keywords(DirectionSpec(3 * MS, 1000 * MBIT)) == {
        "bw": 1000.0,
        "delay": "3000.000us",
        "max_queue_size": 2000 + 6250,
    }
    assert keywords(DirectionSpec(rate_bps=MBIT, default_queue_frames=1000)) == {"bw": 1.0}
    assert keywords(DirectionSpec(rate_bps=MBIT, default_queue_frames=4000)) == {"bw": 1.0, "max_queue_size": 4000}
    assert keywords(DirectionSpec(rate_bps=MBIT, queue_frames=7)) == {"bw": 1.0, "max_queue_size": 7}
    jittered = DirectionSpec(MS, jitter=Jitter("uniform", 250_500, reorder=True), loss=IndependentLoss(0.01))
    assert keywords(jittered) | {"max_queue_size": 0} == {
        "delay": "1000.000us",
        "jitter": "250.500us",
        "loss": 1.0,
        "max_queue_size": 0,
    }


# --- what the machine must have ---------------------------------------------------------------------------------------


def test_without_the_original_the_guide_is_named_and_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mininet.net, "Containernet", raising=False)
    monkeypatch.setattr(select, "kernel_has_netem", lambda: True)
    with pytest.raises(MissingRequirementError, match=rf"without Containernet(.|\n)*{select.GUIDE}"):
        select.require(plan_of())
    with pytest.raises(MissingRequirementError):
        select.create(plan_of())
    page, _, section = select.GUIDE.partition("#")
    assert section in anchors((PROJECT / page).read_text("utf-8"))


def test_the_projects_network_has_what_the_plan_says_of_links(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(builtin, "BuiltinNetwork", lambda **keywords: asked.update(keywords))
    plan = build_plan(load_config(PROJECT / "configs" / "3node-3ms.json"), None, PlanOptions(2, seed=4711))
    select.create(plan)
    assert (asked["links"], asked["switches"], asked["seed"]) == ("auto", "auto", 4711)


def test_a_kernel_without_netem_is_told_before_anything_that_could_be_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(mininet.net, "Containernet", raising=False)
    monkeypatch.setattr(select.system_path, "find", lambda program: None)
    monkeypatch.setattr(select, "kernel_has_netem", lambda: False)
    with pytest.raises(MissingRequirementError, match=rf"no netem(.|\n)*{select.GUIDE}"):
        select.require(plan_of())


def test_a_containernet_that_cannot_be_imported_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "kernel_has_netem", lambda: True)

    def fail(name: str) -> ModuleType:
        raise ImportError("No module named 'distutils'")

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(MissingRequirementError, match="distutils"):
        select.require(plan_of())


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the original and all its programs were here."""
    monkeypatch.setattr(mininet.net, "Containernet", object, raising=False)
    monkeypatch.setattr(select.system_path, "find", lambda program: f"/bin/{program}")
    monkeypatch.setattr(select, "choose_switches", lambda asked, links: "bridge" if asked == "auto" else asked)
    monkeypatch.setattr(select, "kernel_has_netem", lambda: True)


@pytest.mark.usefixtures("installed")
def test_programs_that_it_runs_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    select.require(plan_of())
    monkeypatch.setattr(select.system_path, "find", lambda program: None if program == "brctl" else program)
    with pytest.raises(MissingRequirementError, match=r"brctl(.|\n)*bridge-utils"):
        select.require(plan_of())
    select.require(plan_of(switches="ovs"))


@pytest.mark.usefixtures("installed")
def test_netem_is_needed_for_delays_and_for_queues(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(select, "kernel_has_netem", lambda: False)
    with pytest.raises(MissingRequirementError, match="no netem"):
        select.require(plan_of())
    undelayed = tmp_path / "fast.json"
    shorter = json.dumps([{"ip": "10.0.0.1", "mem": "64m", "cpus": 1, "bandwidth": 100, "link_delay": "0ms"}])
    undelayed.write_text(shorter)
    with pytest.raises(MissingRequirementError, match="no netem"):
        select.require(plan_of(str(undelayed)))
    undelayed.write_text(
        json.dumps([{"ip": "10.0.0.1", "mem": "64m", "cpus": 1, "bandwidth": 48.448, "link_delay": "0ms"}])
    )  # 250 ms of that are the 1000 frames that an interface holds by itself
    select.require(plan_of(str(undelayed)))
    with pytest.raises(MissingRequirementError, match="no netem"):
        select.require(plan_of(str(undelayed), links="netem"))


def test_our_own_network_needs_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mininet.net, "Containernet", raising=False)
    select.require(build_plan(load_config(PROJECT / "configs" / "3node-3ms.json"), None, PlanOptions(2)))
