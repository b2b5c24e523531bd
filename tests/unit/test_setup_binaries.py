"""Programs in bin/: fresh ones stay, everything else is built again, and a build that breaks off changes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from containernet_env.base.errors import MissingRequirementError
from containernet_env.setup.binaries import STAMP, Binaries
from containernet_env.setup.commands import Commands
from containernet_env.setup.go import Go
from containernet_env.setup.sources import GoModule

VERSION = "go1.26.1"
BUILDS = """#!/bin/sh
# Stands in for `go build ... -o OUTPUT PACKAGE`.
while [ "$1" != -o ]; do shift; done
echo "program from $3" > "$2"
chmod 755 "$2"
"""
BREAKS_OFF = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
printf half > "$2"
echo "main.go:1:1: expected 'package'" >&2
exit 1
"""
NO_NETWORK = """#!/bin/sh
echo 'go: example.org/x@v1: Get "https://mirror": dial tcp: lookup mirror: no such host' >&2
exit 1
"""


@pytest.fixture
def module(tmp_path: Path) -> GoModule:
    folder = tmp_path / "module"
    folder.mkdir()
    (folder / "go.mod").write_text("module example\n")
    return GoModule("example", folder, {"one": "./one", "two": "./two"})


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def go(tmp_path: Path, script: str) -> Go:
    path = tmp_path / "go"
    path.write_text(script)
    path.chmod(0o755)
    return Go(str(path), VERSION)


def build(tmp_path: Path, bin_folder: Path, module: GoModule, script: str = BUILDS) -> None:
    Binaries(bin_folder).build(module, go(tmp_path, script), Commands(), tmp_path / "log")


def test_built_programs_are_fresh(tmp_path: Path, bin_folder: Path, module: GoModule) -> None:
    assert not Binaries(bin_folder).is_fresh(module, VERSION)
    build(tmp_path, bin_folder, module)
    assert Binaries(bin_folder).is_fresh(module, VERSION)
    assert (bin_folder / "two").read_text() == "program from ./two\n"
    assert sorted(path.name for path in bin_folder.iterdir()) == [STAMP, "one", "two"]


@pytest.mark.parametrize("damage", ["changed", "truncated", "gone", "not executable"])
def test_damaged_program_is_not_fresh(tmp_path: Path, bin_folder: Path, module: GoModule, damage: str) -> None:
    build(tmp_path, bin_folder, module)
    path = bin_folder / "one"
    if damage == "changed":
        path.write_text("program from ./two\n")
    elif damage == "truncated":
        path.write_text("")
    elif damage == "gone":
        path.unlink()
    else:
        path.chmod(0o644)
    assert not Binaries(bin_folder).is_fresh(module, VERSION)
    build(tmp_path, bin_folder, module)
    assert Binaries(bin_folder).is_fresh(module, VERSION)


def test_copied_program_with_the_same_contents_stays_fresh(tmp_path: Path, bin_folder: Path, module: GoModule) -> None:
    build(tmp_path, bin_folder, module)
    shutil.copy(bin_folder / "one", tmp_path / "copy")
    (tmp_path / "copy").replace(bin_folder / "one")
    assert Binaries(bin_folder).is_fresh(module, VERSION)


def test_changed_source_and_newer_go_demand_a_build(tmp_path: Path, bin_folder: Path, module: GoModule) -> None:
    build(tmp_path, bin_folder, module)
    assert not Binaries(bin_folder).is_fresh(module, "go1.26.2")
    (module.folder / "main.go").write_text("package main\n")
    assert not Binaries(bin_folder).is_fresh(module, VERSION)


def test_build_that_breaks_off_keeps_the_old_program(tmp_path: Path, bin_folder: Path, module: GoModule) -> None:
    build(tmp_path, bin_folder, module)
    (module.folder / "main.go").write_text("broken\n")
    with pytest.raises(MissingRequirementError, match=r"one was not built(.|\n)*expected 'package'(.|\n)*Details"):
        build(tmp_path, bin_folder, module, BREAKS_OFF)
    assert (bin_folder / "one").read_text() == "program from ./one\n"
    assert not Binaries(bin_folder).is_fresh(module, VERSION)
    (module.folder / "main.go").unlink()
    assert Binaries(bin_folder).is_fresh(module, VERSION)


def test_interrupted_first_build_is_finished_by_the_next(tmp_path: Path, bin_folder: Path, module: GoModule) -> None:
    with pytest.raises(MissingRequirementError):
        build(tmp_path, bin_folder, module, BREAKS_OFF)
    assert not (bin_folder / "one").exists()
    build(tmp_path, bin_folder, module)
    assert Binaries(bin_folder).is_fresh(module, VERSION)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"one": 1}', '{"one": {"source": "x"}}'])
def test_damaged_stamp_means_nothing_is_fresh(tmp_path: Path, bin_folder: Path, module: GoModule, text: str) -> None:
    build(tmp_path, bin_folder, module)
    (bin_folder / STAMP).write_text(text)
    assert not Binaries(bin_folder).is_fresh(module, VERSION)


def test_missing_network_is_told_apart(tmp_path: Path, bin_folder: Path, module: GoModule) -> None:
    with pytest.raises(MissingRequirementError, match="Check the network"):
        build(tmp_path, bin_folder, module, NO_NETWORK)
