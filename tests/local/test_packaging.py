"""The metadata, the pins, and the package as a wheel has it, run away from the clone."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from containernet_env import __version__
from containernet_env.base import assets
from containernet_env.runs import version
from tests.deadline import HANG_S

PROJECT = tomllib.loads((assets.ROOT / "pyproject.toml").read_text())["project"]
MAIN = "from containernet_env.__main__ import main; main()"


def requirements() -> list[Requirement]:
    lines = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    # An extra may take in another one of ours, whose lines are among these.
    return [item for item in map(Requirement, lines) if item.name != PROJECT["name"]]


def pins() -> dict[str, Version]:
    lines = (assets.ROOT / "constraints.txt").read_text().splitlines()
    exact = [Requirement(line) for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"==[^,*]+", str(item.specifier)) for item in exact)
    return {canonicalize_name(item.name): Version(str(item.specifier).removeprefix("==")) for item in exact}


def test_every_range_begins_at_the_pin_and_ends() -> None:
    for item in requirements():
        bounds = {bound.operator: bound.version for bound in item.specifier}
        assert set(bounds) == {">=", "<"}, str(item)
        assert Version(bounds[">="]) <= pins()[canonicalize_name(item.name)] < Version(bounds["<"]), str(item)


def needed_by(name: str) -> Iterator[str]:
    """What the installed distribution ``name`` needs here without extras; nothing where it is not installed."""
    try:
        lines = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for item in map(Requirement, lines):
        if item.marker is None or item.marker.evaluate({"extra": ""}):
            yield canonicalize_name(item.name)


def test_what_the_requirements_need_is_pinned_too() -> None:
    left = [canonicalize_name(item.name) for item in requirements()]
    seen: set[str] = set()
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += needed_by(name)
    assert {"numpy", "requests", "urllib3"} <= seen
    assert sorted(seen - set(pins())) == []


def test_build_sh_takes_the_pythons_of_the_metadata() -> None:
    script = (assets.ROOT / "build.sh").read_text()
    allowed = SpecifierSet(PROJECT["requires-python"])
    wanted = [f"3.{minor}" for minor in range(30) if f"3.{minor}" in allowed]
    assert wanted[0] == "3.11"
    assert sorted(set(re.findall(r"python(3\.\d+)", script))) == wanted
    first, last = (tuple(map(int, name.split("."))) for name in (wanted[0], wanted[-1]))
    assert f"{first} <= sys.version_info[:2] <= {last}" in script
    assert f"Python {wanted[0]} to {wanted[-1]} " in script


def test_setuptools_is_asked_for_only_where_python_has_no_distutils() -> None:
    (setuptools,) = (item for item in requirements() if item.name == "setuptools")
    assert setuptools.marker is not None
    assert [setuptools.marker.evaluate({"python_version": name}) for name in ("3.11", "3.12", "3.14")] == [
        False,
        True,
        True,
    ]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as a wheel has it."""
    folder = tmp_path_factory.mktemp("installed")
    egg = tmp_path_factory.mktemp("egg")
    argv = ["setup.py", "-q", "egg_info", f"--egg-base={egg}", "build_py", f"--build-lib={folder}"]
    subprocess.run([sys.executable, *argv], cwd=assets.ROOT, check=True, timeout=2 * HANG_S, capture_output=True)
    return folder


def run(installed: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # -P: nothing of the folder that this runs in.
    code = f"import sys; sys.path.insert(0, {str(installed)!r}); {MAIN}"
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def test_wheel_has_what_travels_and_nothing_else(installed: Path) -> None:
    copies = installed / "containernet_env" / "assets"
    found = {path.relative_to(copies) for path in copies.rglob("*") if path.is_file()}
    expected = {
        path.relative_to(assets.ROOT) for name in assets.FOLDERS for path in assets.travelling(assets.ROOT, name)
    }
    assert found - {Path(version.COMMIT_FILE)} == expected


def test_wheel_has_what_the_page_is_made_of(installed: Path) -> None:
    made = [installed / "containernet_env", assets.PACKAGE]
    found, expected = ({path.name: path.read_bytes() for path in folder.glob("*/templates/*")} for folder in made)
    assert found == expected and {"page.css", "watch.css", "watch.js"} <= set(found)


def test_installed_package_knows_its_commit(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"containernet-env {__version__} (")
    if (assets.ROOT / ".git").exists() and (described := version.described(assets.ROOT)):
        assert f"(commit {described[:12]}" in done.stdout


@pytest.mark.parametrize("config", ["3node-3ms", "copy.json"])
def test_installed_package_checks_configs_away_from_the_clone(installed: Path, tmp_path: Path, config: str) -> None:
    (tmp_path / "copy.json").write_bytes((assets.ROOT / "configs" / "3node-3ms.json").read_bytes())
    done = run(installed, tmp_path, "check", config)
    assert done.returncode == 0, done.stderr
    assert "18 scenarios from " in done.stdout
    assert str(assets.ROOT) not in done.stdout


def test_installed_sources_make_the_same_programs_as_the_clones(installed: Path, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(installed)!r}); from containernet_env.base import sources; "
        "print([module.source_hash('go1.26.8') for module in sources.modules()])"
    )
    found = [
        subprocess.run(
            [sys.executable, "-P", "-c", code.replace(str(installed), str(root))],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=True,
        ).stdout
        for root in (installed, assets.ROOT)
    ]
    assert found[0] == found[1]
