"""Programs in the cache: fresh ones stay, all else is built again, a build that breaks off changes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base import cache, clock, programs
from containernet_env.base.errors import MissingRequirementError
from containernet_env.base.programs import STAMP
from containernet_env.base.side_by_side import side_by_side
from containernet_env.base.sources import GoModule
from containernet_env.setup import binaries
from containernet_env.setup.commands import CommandError, Commands
from containernet_env.setup.go import Go
from tests.simulated_time import simulated

VERSION = "go1.26.1"


class FakeGo(Commands):
    """``go build`` and ``go get -tool`` in this process; ``problem``: what a build prints that breaks off."""

    def __init__(self, problem: str | None = None) -> None:
        super().__init__()
        self._problem = problem

    def run(self, argv: Sequence[str], log: Path, *, cwd: Path | None = None, env: Any = None, **_: Any) -> None:
        assert cwd is not None
        clock.sleep(0)  # another build may be on
        if self._problem is not None:
            if argv[1] == "build":
                Path(argv[argv.index("-o") + 1]).write_text("half")
            raise CommandError(argv, "ended with exit status 1", log, [self._problem])
        if argv[1] == "get":
            assert "-mod=mod" in env["GOFLAGS"]
            with (cwd / "go.mod").open("a") as file:
                file.write(f"tools: {' '.join(argv[3:])}\n")
            return
        assert "-mod=readonly" in env["GOFLAGS"]
        program = Path(argv[argv.index("-o") + 1])
        # A module that is resolved for another version says what it is built from.
        is_resolved = cwd.name == "module" and cwd.parent.name.startswith(".partial-")
        program.write_text((cwd / "go.mod").read_text() if is_resolved else f"program from {argv[-1]}\n")


BREAKS_OFF = "main.go:1:1: expected 'package'"
NO_NETWORK = 'go: example.org/x@v1: Get "https://mirror": dial tcp: lookup mirror: no such host'


@pytest.fixture
def module(tmp_path: Path) -> GoModule:
    folder = tmp_path / "module"
    folder.mkdir()
    (folder / "go.mod").write_text("module example\n")
    return GoModule("example", folder, {"one": "./one", "two": "./two"})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of built programs, in a cache of the test's own."""
    monkeypatch.setattr(cache, "MACHINE", tmp_path / "cache")
    monkeypatch.setattr(cache, "own", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "bin"


def build(tmp_path: Path, module: GoModule, problem: str | None = None, version: str = VERSION) -> Path:
    return binaries.build(module, Go("go", version), FakeGo(problem), tmp_path / "log")


def test_built_programs_are_found(tmp_path: Path, home: Path, module: GoModule) -> None:
    assert programs.find(module, VERSION) is None
    folder = build(tmp_path, module)
    assert programs.find(module, VERSION) == programs.find(module) == folder
    assert (folder / "two").read_text() == "program from ./two\n"
    assert sorted(path.name for path in folder.iterdir()) == ["one", STAMP, "two"]
    assert list(home.iterdir()) == [folder]


def test_users_can_run_what_root_built_under_a_strict_umask(tmp_path: Path, module: GoModule) -> None:
    before = os.umask(0o077)
    try:
        folder = build(tmp_path, module)
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (folder, folder / "one")] == [0o755, 0o755]


@pytest.mark.parametrize("damage", ["changed", "truncated", "gone", "not executable"])
def test_damaged_program_is_built_again(tmp_path: Path, home: Path, module: GoModule, damage: str) -> None:
    path = build(tmp_path, module) / "one"
    if damage == "changed":
        path.write_text("program from ./two\n")
    elif damage == "truncated":
        path.write_text("")
    elif damage == "gone":
        path.unlink()
    else:
        path.chmod(0o644)
    assert programs.find(module, VERSION) is None
    assert build(tmp_path, module) == path.parent == programs.find(module, VERSION)
    assert list(home.iterdir()) == [path.parent]


def test_copied_program_with_the_same_contents_stays(tmp_path: Path, module: GoModule) -> None:
    folder = build(tmp_path, module)
    shutil.copy(folder / "one", tmp_path / "copy")
    (tmp_path / "copy").replace(folder / "one")
    assert programs.find(module, VERSION) == folder


def test_changed_source_and_newer_go_demand_a_build(tmp_path: Path, module: GoModule) -> None:
    folder = build(tmp_path, module)
    assert programs.find(module, "go1.26.2") is None
    newer = build(tmp_path, module, version="go1.26.2")
    assert newer != folder == programs.find(module, VERSION)
    (module.folder / "main.go").write_text("package main\n")
    assert programs.find(module, VERSION) is None
    assert programs.find(module) is None


def test_without_a_go_the_programs_used_last_are_taken(tmp_path: Path, module: GoModule) -> None:
    older, newer = build(tmp_path, module), build(tmp_path, module, version="go1.26.2")
    os.utime(older, (1, 1))
    assert programs.find(module) == newer
    assert programs.go_version(module) == "go1.26.2"
    os.utime(newer, (0, 0))
    assert programs.find(module) == older
    assert older.stat().st_mtime > 1, "its use is noted"


def test_two_clones_with_equal_sources_share_what_is_built(tmp_path: Path, module: GoModule) -> None:
    folder = build(tmp_path, module)
    shutil.copytree(module.folder, tmp_path / "other" / "module")
    other = GoModule(module.name, tmp_path / "other" / "module", module.packages)
    assert programs.find(other, VERSION) == folder


def test_build_that_breaks_off_leaves_nothing_and_keeps_the_old_program(
    tmp_path: Path, home: Path, module: GoModule
) -> None:
    folder = build(tmp_path, module)
    (module.folder / "main.go").write_text("broken\n")
    with pytest.raises(MissingRequirementError, match=r"one was not built(.|\n)*expected 'package'(.|\n)*Details"):
        build(tmp_path, module, BREAKS_OFF)
    assert list(home.iterdir()) == [folder]
    assert programs.find(module, VERSION) is None
    (module.folder / "main.go").unlink()
    assert programs.find(module, VERSION) == folder


@simulated(seeds=20)
def test_builds_at_once_all_succeed_and_leave_one_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, module: GoModule
) -> None:
    home = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(cache, "MACHINE", home)
    monkeypatch.setattr(cache, "own", lambda: home)
    found = side_by_side(lambda number: build(home, module), range(4), 4)
    assert found == [programs.find(module, VERSION)] * 4
    assert list((home / "bin").iterdir()) == found[:1]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"one": 1}', '{"module": "example", "programs": {"one": {}}}'])
def test_damaged_stamp_means_nothing_is_found(tmp_path: Path, module: GoModule, text: str) -> None:
    folder = build(tmp_path, module)
    (folder / STAMP).write_text(text)
    assert programs.find(module, VERSION) is None
    assert build(tmp_path, module) == folder == programs.find(module, VERSION)


def test_missing_network_is_told_apart(tmp_path: Path, module: GoModule) -> None:
    with pytest.raises(MissingRequirementError, match="Check the network"):
        build(tmp_path, module, NO_NETWORK)


def test_program_that_is_not_built_is_named_with_what_to_do() -> None:
    with pytest.raises(MissingRequirementError, match=r"link-emulator has not been built(.|\n)*build\.sh"):
        programs.path("link-emulator")


def aged(folder: Path, days: float) -> Path:
    time_s = folder.stat().st_mtime - days * 86400
    os.utime(folder, (time_s, time_s))
    return folder


def test_older_programs_go_but_not_the_last_two_nor_recent_ones(tmp_path: Path, home: Path, module: GoModule) -> None:
    (tmp_path / "go.mod").write_text("module other\n")
    other = build(tmp_path, GoModule("other", tmp_path, {"three": "./three"}, only=("go.mod",)))
    aged(other, 9)
    first, second, third, fourth = (build(tmp_path, module, version=f"go1.26.{number}") for number in range(4))
    aged(first, 5)
    aged(second, 4)
    aged(third, 3)
    left = home / ".partial-x"
    left.mkdir()
    assert binaries.remove_older(home, "example") == [second, first]
    assert sorted(home.iterdir()) == sorted([other, third, fourth, left])
    aged(left, 2)
    assert binaries.remove_older(home, "example") == [left]
    assert sorted(home.iterdir()) == sorted([other, third, fourth])


def test_another_version_has_a_go_mod_of_its_own_and_stays_beside_the_pinned_one(
    tmp_path: Path, home: Path, module: GoModule
) -> None:
    (module.folder / "go.mod").write_text("module example\n\ngo 1.26.0\n\nrequire other v1.2.3\n")
    pinned, other = build(tmp_path, module), replace(module, version="3.6.8")
    assert programs.find(other, VERSION) is None
    folder = build(tmp_path, other)
    assert (programs.find(other, VERSION), programs.find(module, VERSION)) == (folder, pinned)
    # Nothing that the pinned version requires is left.
    resolved = "module example\ngo 1.26.0\ntools: ./one@v3.6.8 ./two@v3.6.8\n"
    assert (folder / "one").read_text() == (folder / "module" / "go.mod").read_text() == resolved
    assert programs.read_stamp(folder).module == "example-3.6.8"  # type: ignore[union-attr]
    with pytest.raises(MissingRequirementError, match="Check the network"):
        build(tmp_path, replace(module, version="3.6.9"), NO_NETWORK)
    assert sorted(home.iterdir()) == sorted([folder, pinned])


def test_program_that_runs_is_never_removed(
    tmp_path: Path, home: Path, module: GoModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = (build(tmp_path, module, version=f"go1.26.{number}") for number in range(3))
    aged(first, 5)
    with monkeypatch.context() as running:
        running.setattr(binaries, "_running_in", lambda home: {first})
        assert binaries.remove_older(home, "example") == []
    assert binaries.remove_older(home, "example") == [first]
