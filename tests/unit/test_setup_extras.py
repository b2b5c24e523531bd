"""Optional packages: installed in a clone's own environment, named with the remedy elsewhere."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from bench.links import plot
from containernet_env.base import assets
from containernet_env.base.errors import MissingRequirementError
from containernet_env.setup import extras
from containernet_env.setup.commands import CommandError, Commands

ROOT = assets.ROOT
PIP = rf"Install it: {re.escape(sys.executable)} -m pip install"


class Machine:
    """A clone with an environment of its own, in which ``versions`` are installed; what pip was told."""

    def __init__(self, clone: Path) -> None:
        self.clone = clone
        self.versions: dict[str, str] = {}
        self.installs: list[tuple[str, ...]] = []
        self.notes: list[str] = []
        self.fails = False

    def run(self, argv: Sequence[str], log: Path, **options: Any) -> None:
        self.installs.append(tuple(argv))
        assert options["timeout_s"] <= 900
        if self.fails:
            raise CommandError(argv, "ended with exit status 1", log, ["ERROR: no route to the index"])
        lines = (self.clone / "constraints.txt").read_text().splitlines()
        self.versions |= dict(line.split("==") for line in lines if "==" in line)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    (tmp_path / ".venv").mkdir()
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    monkeypatch.setattr(assets, "CLONE", tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.setattr(Commands, "run", lambda self, *arguments, **options: made.run(*arguments, **options))

    def version(name: str) -> str:
        if name not in made.versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return made.versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in made.versions else None)
    return made


def test_the_table_is_that_of_the_metadata() -> None:
    given = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, modules in extras.EXTRAS.items():
        assert sorted(modules) == sorted(Requirement(line).name for line in given[extra])
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    optional = {name for modules in extras.EXTRAS.values() for name in modules}
    assert not optional & {Requirement(line).name for line in needs}


def test_what_is_there_is_not_spoken_of(machine: Machine) -> None:
    machine.versions = {"scipy": "1.17.1"}
    extras.require("scipy", machine.notes.append)
    assert (machine.installs, machine.notes) == ([], [])


@pytest.mark.parametrize("before", [{}, {"scipy": "1.0.0"}])
def test_a_clones_environment_gets_the_pinned_packages_with_one_line(machine: Machine, before: dict[str, str]) -> None:
    machine.versions = before
    extras.require("scipy", machine.notes.append)
    extras.require("matplotlib", machine.notes.append)
    (argv,) = machine.installs
    assert argv[:4] == (sys.executable, "-m", "pip", "install")
    assert argv[argv.index("--constraint") + 1] == str(machine.clone / "constraints.txt")
    assert {Requirement(line).name for line in argv[-3:]} == {"scipy", "matplotlib", "plotly"}
    assert machine.notes == [f"installing scipy, matplotlib, plotly into {sys.prefix}, once"]


def test_an_interrupted_installation_is_missing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    extras.require("scipy", machine.notes.append)
    assert len(machine.installs) == 1


def test_an_installation_that_fails_says_why_and_where_the_details_are(machine: Machine) -> None:
    machine.fails = True
    with pytest.raises(MissingRequirementError, match=r"(?s)no route to the index.*extras\.log"):
        extras.require("plotly", machine.notes.append)
    assert "no route to the index" in str(plot.why_no_pictures())


@pytest.mark.parametrize(
    ("version", "used"),
    [("{least}.1", True), ("0.9", False), ("{below}.0", False), ("{least}.1rc1", False)],
)
@pytest.mark.parametrize("writable", [True, False])
def test_without_a_network_a_version_that_the_range_allows_is_used(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, version: str, used: bool, writable: bool
) -> None:
    given = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["analysis"]
    (scipy,) = (item for item in map(Requirement, given) if item.name == "scipy")
    bounds = {bound.operator: bound.version for bound in scipy.specifier}
    found = version.format(least=bounds[">="], below=bounds["<"])
    machine.versions, machine.fails = {"scipy": found}, True
    monkeypatch.setattr(extras.os, "access", lambda path, mode: writable)
    if not used:
        with pytest.raises(MissingRequirementError):
            extras.require("scipy", machine.notes.append)
        return
    extras.require("scipy", machine.notes.append)
    why = "no route to the index" if writable else f"and {found} is installed; this user cannot write to {sys.prefix}"
    assert machine.notes[-1].endswith(f"{why}; scipy {found} is used")


def test_who_cannot_write_the_environment_is_told_what_root_does(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras.os, "access", lambda path, mode: False)
    with pytest.raises(MissingRequirementError, match=r"(?s)cannot write.*As root: .* pip install .*scipy"):
        extras.require("scipy", machine.notes.append)
    assert machine.installs == []


def test_an_environment_of_somebody_else_is_left_alone(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/usr")
    with pytest.raises(MissingRequirementError, match=rf"{PIP} --constraint \S+ --editable '\S+\[analysis\]'"):
        extras.require("scipy", machine.notes.append)
    machine.versions = {"scipy": "1.99"}
    extras.require("scipy", machine.notes.append)
    assert (machine.installs, machine.notes) == ([], [])


def test_an_installed_program_names_the_extra(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "CLONE", None)
    with pytest.raises(MissingRequirementError, match=rf"{PIP} 'containernet-env\[analysis\]'"):
        extras.require("scipy", machine.notes.append)
    assert machine.installs == []
