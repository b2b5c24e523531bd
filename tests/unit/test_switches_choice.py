"""Which switches join links by netem: what is refused, what is chosen, and which bridges in a database are ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from containernet_env import cli
from containernet_env.base.errors import MissingRequirementError, RunError, UsageError
from containernet_env.config import load_config
from containernet_env.hosts import engine, owner
from containernet_env.network import select
from containernet_env.network.kernel import ovs
from containernet_env.plan.build import build_plan
from containernet_env.plan.plan import PlanOptions
from containernet_env.runs import clean

CONFIG = Path(__file__).parents[2] / "configs" / "3node-3ms.json"
# As ovs-vsctl 3.1 prints it.
DEAD = f"{'0' * 8}-0000-0000-0000-{'0' * 12}/7/8"
TABLE = (
    '{"data":[["br-lan",["map",[]]],["0b0b0bb0",["map",[["containernet-env.owner","' + DEAD + '"],["note","x"]]]],'
    # Of people who copied our mark, or our name.
    '["br-dmz",["map",[["containernet-env.owner","' + DEAD + '"]]]],["0b0b0bb1",["map",[]]],'
    '["0b0b0bb2",["map",[["containernet-env.owner","me"]]]]],'
    '"headings":["name","external_ids"]}'
)


@pytest.fixture
def no_ovs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "ovs_problem", lambda: "ovs-vsctl is not installed")


@pytest.fixture
def some_ovs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "ovs_problem", lambda: None)


@pytest.mark.usefixtures("no_ovs")
def test_without_open_vswitch() -> None:
    assert select.choose_switches("auto", "netem") == "bridge"
    assert select.choose_switches("bridge", "netem") == "bridge"
    with pytest.raises(MissingRequirementError, match="ovs-vsctl is not installed") as refused:
        select.choose_switches("ovs", "netem")
    assert "--switches bridge" in refused.value.remedy


@pytest.mark.usefixtures("some_ovs")
def test_with_open_vswitch() -> None:
    assert select.choose_switches("auto", "netem") == "ovs"
    assert select.choose_switches("ovs", "netem") == "ovs"
    assert select.choose_switches("bridge", "netem") == "bridge"


def test_the_emulator_has_its_own() -> None:
    assert select.choose_switches("auto", "emulator") == "emulator"
    # On every machine alike: netem is asked for by name.
    assert select.choose("auto") == select.choose("emulator") == "emulator"
    with pytest.raises(UsageError, match="of its own"):
        select.choose_switches("bridge", "emulator")


@pytest.mark.parametrize(
    ("links", "switches", "words"),
    [("emulator", "ovs", "of its own"), ("auto", "bridge", "links='netem'"), ("netem", "vde", "allowed: auto, ovs")],
)
def test_what_means_nothing_together_is_refused_by_the_plan(links: str, switches: str, words: str) -> None:
    options = PlanOptions(machine_cores=2, links=links, switches=switches)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=words):
        build_plan(load_config(CONFIG), None, options)


def test_the_command_line_refuses_it_with_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", str(CONFIG), "out.csv", "--links", "emulator", "--switches", "ovs"])
    assert ended.value.code == 2
    assert "switches of its own" in capsys.readouterr().err


def test_our_bridges_are_those_with_our_name_and_an_owner() -> None:
    assert list(ovs.bridges_of(TABLE)) == [ovs.OurBridge("0b0b0bb0", DEAD)]
    assert list(ovs.bridges_of("")) == []


def test_bridges_and_containers_of_the_dead_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = ovs.OurBridge("0a0a0ab0", owner.current())
    removed: list[str] = []
    monkeypatch.setattr(engine, "list_ours", lambda run=None: [])
    monkeypatch.setattr(engine, "remove_containers", lambda ids: None)
    monkeypatch.setattr(ovs, "list_ours", lambda: [*ovs.bridges_of(TABLE), alive])
    monkeypatch.setattr(ovs, "remove_bridge", removed.append)
    assert clean.remove_leftovers() == clean.Leftovers(("bridge 0b0b0bb0",), ("bridge 0a0a0ab0",))
    assert removed == ["0b0b0bb0"]


def test_only_interfaces_of_our_run_go_with_a_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    monkeypatch.setattr(ovs, "list_ours", lambda: [ovs.OurBridge("0b0b0bb0", DEAD)])
    monkeypatch.setattr(ovs, "vsctl", lambda *words: "0b0b0be1\neth1\n" if words[0] == "list-ports" else "")
    monkeypatch.setattr(ovs, "delete_interface", lambda pid, name: removed.append(name))
    ovs.remove_bridge("0b0b0bb0")
    assert removed == ["0b0b0be1"]


@pytest.mark.parametrize(("name", "looked_for"), [("cnenv-a1b2c3.etcd1", ["a1b2c3"]), ("cnenv-a1b2c3-etcd1", [])])
def test_interfaces_are_looked_for_only_where_a_run_makes_some(
    name: str, looked_for: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    left = engine.OurContainer("c0ffee", name, "a1b2c3", "etcd1", DEAD, "running", "i")
    monkeypatch.setattr(engine, "list_ours", lambda run=None: [left])
    monkeypatch.setattr(engine, "remove_containers", lambda ids: None)
    monkeypatch.setattr(ovs, "list_ours", list)
    monkeypatch.setattr(clean, "remove_interfaces", lambda run: asked.append(run) or ["a1b2c3e0"])
    removed = clean.remove_leftovers().removed
    assert asked == looked_for
    assert removed == (*(["interface a1b2c3e0"] if looked_for else []), f"container {name}")


def test_a_database_that_does_not_run_has_no_bridges(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: str) -> str:
        raise RunError("ovs-vsctl failed with status 1: unix:/run/db.sock: database connection failed (No such file)")

    monkeypatch.setattr("shutil.which", lambda program, path=None: "/usr/bin/ovs-vsctl")
    monkeypatch.setattr(ovs, "vsctl", refuse)
    assert ovs.list_ours() == []
    assert "does not run" in (ovs.problem() or "")
