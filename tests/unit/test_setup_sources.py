"""Hashes of sources: what changes them, and what must not."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from containernet_env.base import assets, sources
from containernet_env.base.errors import MissingRequirementError
from containernet_env.base.sources import GoModule


@pytest.fixture
def module(tmp_path: Path) -> GoModule:
    folder = tmp_path / "module"
    (folder / "cmd").mkdir(parents=True)
    (folder / "go.mod").write_text("module example\n")
    (folder / "cmd" / "main.go").write_text("package main\n")
    return GoModule("example", folder, {"example": "./cmd"})


def test_hash_ignores_times_tests_documentation_and_hidden_files(module: GoModule) -> None:
    before = module.source_hash("go1.26.1")
    os.utime(module.folder / "go.mod", ns=(1, 1))
    (module.folder / "cmd" / "main_test.go").write_text("package main\n")
    (module.folder / "README.md").write_text("words\n")
    (module.folder / "Dockerfile").write_text("FROM scratch\n")
    (module.folder / ".go.mod.swp").write_text("editor\n")
    (module.folder / "cmd" / "testdata").mkdir()
    (module.folder / "cmd" / "testdata" / "golden.json").write_text("{}\n")
    assert module.source_hash("go1.26.1") == before


@pytest.mark.parametrize("change", ["content", "name", "new file", "go version"])
def test_hash_changes_with_what_reaches_the_program(module: GoModule, change: str) -> None:
    before = module.source_hash("go1.26.1")
    version = "go1.26.1"
    main = module.folder / "cmd" / "main.go"
    if change == "content":
        main.write_text("package main // changed\n")
    elif change == "name":
        main.rename(main.with_name("other.go"))
    elif change == "new file":
        (module.folder / "embedded.txt").write_text("data\n")
    else:
        version = "go1.26.2"
    assert module.source_hash(version) != before


def test_hash_keeps_boundaries_between_name_and_content(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, name, content in ((first, "a", "bc"), (second, "ab", "c")):
        folder.mkdir()
        (folder / name).write_text(content)
    assert sources.hash_files(first, first.iterdir()) != sources.hash_files(second, second.iterdir())


def test_only_the_named_files_count_where_they_are_named(module: GoModule) -> None:
    pinned = GoModule("etcd", module.folder, {}, only=("go.mod",))
    before = pinned.source_hash("go1.26.1")
    (module.folder / "start").write_text("#!/bin/sh\n")
    assert pinned.source_hash("go1.26.1") == before


def test_incomplete_clone_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingRequirementError, match=r"go\.mod is missing.*\n.*Restore it"):
        GoModule("gone", tmp_path / "gone", {}).source_hash("go1.26.1")


def test_etcd_version_stands_in_go_mod() -> None:
    version = sources.etcd_version()
    assert re.fullmatch(r"3\.\d+\.\d+", version)
    text = (assets.ROOT / "etcd_image" / "go.mod").read_text()
    assert text.count(f"go.etcd.io/etcd/server/v3 v{version}") == 1
    assert f"go.etcd.io/etcd/etcdctl/v3 v{version}" in text


def test_every_module_of_the_project_is_there_and_its_programs_are_distinct() -> None:
    modules = sources.modules()
    programs = [name for module in modules for name in module.packages]
    assert sorted(programs) == [
        "benchmark-client",
        "benchmark-client-tls",
        "benchmark-server",
        "etcd",
        "etcdctl",
        "history-checker",
        "link-emulator",
    ]
    assert all((module.folder / "go.sum").is_file() for module in modules)
