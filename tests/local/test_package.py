"""The package as processes of its own: its pins, its wheel away from the clone, what imports load, the scripts."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import containernet_env
from containernet_env.base import assets
from containernet_env.runs import version
from tests.deadline import HANG_S

PROJECT = tomllib.loads((assets.ROOT / "pyproject.toml").read_text())["project"]
MAIN = "from containernet_env.__main__ import main; main()"


def done(*words: object, cwd: Path = assets.ROOT, **more: Any) -> subprocess.CompletedProcess[str]:
    command = list(map(str, words))
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=2 * HANG_S, **more)


# --- the pins ---------------------------------------------------------------------------------------------------------


def requirements() -> list[Requirement]:
    lines = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    # An extra may take in another one of ours, whose lines are among these.
    return [item for item in map(Requirement, lines) if item.name != PROJECT["name"]]


def pins() -> dict[str, Version]:
    lines = (assets.ROOT / "constraints.txt").read_text().splitlines()
    exact = [Requirement(line) for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"==[^,*]+", str(item.specifier)) for item in exact)
    return {canonicalize_name(item.name): Version(str(item.specifier).removeprefix("==")) for item in exact}


def needed_by(name: str) -> Iterator[str]:
    """What the installed distribution ``name`` needs here without extras; nothing where it is not installed."""
    try:
        lines = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for item in map(Requirement, lines):
        if item.marker is None or item.marker.evaluate({"extra": ""}):
            yield canonicalize_name(item.name)


def test_every_range_begins_at_the_pin_and_ends_and_what_requirements_need_is_pinned_too() -> None:
    for item in requirements():
        bounds = {bound.operator: bound.version for bound in item.specifier}
        assert set(bounds) == {">=", "<"}, str(item)
        assert Version(bounds[">="]) <= pins()[canonicalize_name(item.name)] < Version(bounds["<"]), str(item)
    left, seen = [canonicalize_name(item.name) for item in requirements()], set[str]()
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += needed_by(name)
    assert {"numpy", "requests", "urllib3"} <= seen <= set(pins())


def test_build_sh_takes_the_pythons_of_the_metadata() -> None:
    script = (assets.ROOT / "build.sh").read_text()
    allowed = SpecifierSet(PROJECT["requires-python"])
    wanted = [f"3.{minor}" for minor in range(30) if f"3.{minor}" in allowed]
    assert sorted(set(re.findall(r"python(3\.\d+)", script))) == wanted
    first, last = (tuple(map(int, name.split("."))) for name in (wanted[0], wanted[-1]))
    assert f"{first} <= sys.version_info[:2] <= {last}" in script
    assert f"Python {wanted[0]} to {wanted[-1]} " in script
    # Setuptools is needed only where Python has no distutils.
    (marker,) = (item.marker for item in requirements() if item.name == "setuptools")
    assert [name for name in ("3.11", "3.12", "3.14") if marker.evaluate({"python_version": name})] == ["3.12", "3.14"]


# --- the wheel --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as a wheel has it."""
    folder = tmp_path_factory.mktemp("installed")
    egg = tmp_path_factory.mktemp("egg")
    built = done(sys.executable, "setup.py", "-q", "egg_info", f"--egg-base={egg}", "build_py", f"--build-lib={folder}")
    assert built.returncode == 0, built.stderr
    return folder


def run(root: Path, cwd: Path, code: str, *words: str) -> str:
    """What a program prints that imports the package at ``root``. -P: nothing of the folder that it runs in."""
    ran = done(sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(root)!r}); {code}", *words, cwd=cwd)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_wheel_has_what_travels_and_nothing_else(installed: Path) -> None:
    copies = installed / "containernet_env" / "assets"
    found = {path.relative_to(copies) for path in copies.rglob("*") if path.is_file()}
    travelling = (path for name in assets.FOLDERS for path in assets.travelling(assets.ROOT, name))
    assert found - {Path(version.COMMIT_FILE)} == {path.relative_to(assets.ROOT) for path in travelling}
    pages, expected = (
        {path.name: path.read_bytes() for path in folder.glob("*/templates/*")}
        for folder in (installed / "containernet_env", assets.PACKAGE)
    )
    assert pages == expected and {"base.html", "page.css", "report.js", "watch.js"} <= set(pages)


def test_installed_package_knows_its_commit_configs_and_programs_away_from_the_clone(
    installed: Path, tmp_path: Path
) -> None:
    told = run(installed, tmp_path, MAIN, "--version")
    assert told.startswith(f"containernet-env {containernet_env.__version__} (")
    if (assets.ROOT / ".git").exists() and (described := version.described(assets.ROOT)):
        assert f"(commit {described[:12]}" in told
    (tmp_path / "copy.json").write_bytes((assets.ROOT / "configs" / "3node-3ms.json").read_bytes())
    for config in ("3node-3ms", "copy.json"):
        told = run(installed, tmp_path, MAIN, "check", config)
        assert "18 scenarios from " in told and str(assets.ROOT) not in told
    hashes = "from containernet_env.base import assets; print([m.source_hash('go1.26.8') for m in assets.modules()])"
    assert run(installed, tmp_path, hashes) == run(assets.ROOT, tmp_path, hashes)


# --- what imports load ------------------------------------------------------------------------------------------------

COMPLETION = (
    "from click.shell_completion import ShellComplete; from containernet_env.cli import group; "
    "ShellComplete(group, {}, 'containernet-env', '_CONTAINERNET_ENV_COMPLETE').get_completions([], '')"
)
COMMANDS = (
    "import importlib; from containernet_env import cli; "
    "[importlib.import_module(f'containernet_env.cli.{cli.MODULES.get(name, name)}') for name in cli.COMMANDS]; "
    "import containernet_env.runs.sweep.runner, containernet_env.runs.sweep.design"
)
WATCH = "import containernet_env.cli.report, containernet_env.report.watch"
LIBRARY = ("docker", "mininet", "pandas", "click", "rich")


OF_WATCH = ("config.reader", "stores.kinds", "config.planning", "runs.sweep.design")
NEVER: dict[str, tuple[str, ...]] = {
    "import containernet_env": (*LIBRARY, "pydantic"),
    "from containernet_env import load_topology, load_scenarios": (*LIBRARY, "pydantic"),
    "from containernet_env import measure": ("click",),
    "from containernet_env.network.factory import LinkFactory": ("mininet", "docker"),
    # `check` makes plans too, and has to be quick.
    "import containernet_env.config.planning": ("mininet.node", "mininet.link", "docker"),
    # The command is a script that imports this: Ctrl-C meanwhile would be a traceback.
    "import containernet_env.__main__": ("click", "containernet_env.cli", "dataclasses"),
    COMPLETION: ("docker", "pandas", "pydantic", "mininet.node", "containernet_env.cli.run"),
    # It takes a second, and is an extra.
    COMMANDS: ("dask", "distributed", "tornado"),
    # That is most of the program, and what loading it takes is taken from what is measured beside it.
    f"{WATCH}, containernet_env.runs.sweep.ledger": tuple(f"containernet_env.{name}" for name in OF_WATCH),
}


@pytest.mark.parametrize("code", NEVER)
def test_what_an_import_does_not_load(code: str) -> None:
    ran = done(sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)")
    assert (ran.returncode, ran.stderr) == (0, "")
    never = tuple(f"{name}." for name in NEVER[code])
    assert [name for name in ran.stdout.split() if f"{name}.".startswith(never)] == []


def test_the_names_are_those_that_are_documented() -> None:
    assert set(containernet_env.__all__) == {"__version__", "load_scenarios", "load_topology", "measure", "rerun"}
    assert all(getattr(containernet_env, name) for name in containernet_env.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = containernet_env.nothing


@pytest.mark.parametrize("environment", [{}, {"PATH": ""}, {"PATH": "/bin"}])
def test_the_command_and_the_python_interface_need_no_path(environment: dict[str, str]) -> None:
    code = "from containernet_env.base import programs; print(programs.require('cat'))"
    for words in (["-m", "containernet_env", "--version"], ["-c", code]):
        ran = done(sys.executable, *words, env=environment)
        assert ran.returncode == 0 and ran.stdout, ran.stderr


# --- scripts and other programs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("script", "wrong"), [("build.sh", "--what"), ("test.sh", "only-one"), ("check.sh", "x")])
def test_scripts_have_help_and_refuse_what_they_do_not_know(script: str, wrong: str) -> None:
    told, refused = (done(assets.ROOT / script, word) for word in ("--help", wrong))
    assert (told.returncode, told.stderr) == (0, "") and told.stdout.startswith(f"Usage: sudo ./{script}")
    assert refused.returncode == 2 and refused.stderr.startswith("Usage:")


def test_build_without_root_says_sudo_and_leaves_3(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    ran = done(assets.ROOT / "build.sh", env={**os.environ, "PATH": path})
    assert ran.returncode == 3 and "needs root" in ran.stderr and "sudo" in ran.stderr
