"""What the set-up builds of sources: the hashes that decide, programs in the cache, images of the engine.

Fresh ones stay, all else is built again, a build that breaks off changes nothing, nothing of others is removed.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from docker.errors import APIError, ImageNotFound

from containernet_env.base import assets, clock, programs
from containernet_env.base.assets import GoModule
from containernet_env.base.errors import MissingRequirementError
from containernet_env.base.programs import STAMP
from containernet_env.base.work import side_by_side
from containernet_env.setup import builds, images
from containernet_env.setup.builds import Go
from containernet_env.setup.commands import CommandError, Commands
from containernet_env.stores.store import ImageParts
from tests.simulated_time import simulated
from tests.unit.test_setup import FakeCommands

VERSION = "go1.26.1"


@pytest.fixture
def module(tmp_path: Path) -> GoModule:
    folder = tmp_path / "module"
    (folder / "cmd").mkdir(parents=True)
    (folder / "go.mod").write_text("module example\n")
    (folder / "cmd" / "main.go").write_text("package main\n")
    for name in ("Dockerfile", "script"):
        (folder / name).write_text(name)
    return GoModule("example", folder, {"one": "./one", "two": "./two"})


# --- hashes of sources ------------------------------------------------------------------------------------------------


def test_hash_changes_with_what_reaches_the_program_and_with_nothing_else(module: GoModule, tmp_path: Path) -> None:
    main = module.folder / "cmd" / "main.go"
    only_named = replace(module, only=("go.mod",))
    pinned = only_named.source_hash(VERSION)
    hashes = [module.source_hash(VERSION), module.source_hash("go1.26.2")]
    os.utime(module.folder / "go.mod", ns=(1, 1))
    (module.folder / "cmd" / "testdata").mkdir()
    for name in ("cmd/main_test.go", "README.md", "Dockerfile", ".go.mod.swp", "cmd/testdata/golden.json"):
        (module.folder / name).write_text("changed\n")
    assert module.source_hash(VERSION) == hashes[0], "times, tests, documentation and hidden files count"
    main.write_text("package main // changed\n")
    hashes.append(module.source_hash(VERSION))
    main.rename(main.with_name("other.go"))
    hashes.append(module.source_hash(VERSION))
    (module.folder / "embedded.txt").write_text("data\n")
    hashes.append(module.source_hash(VERSION))
    assert len(set(hashes)) == len(hashes) == 5
    assert only_named.source_hash(VERSION) == pinned
    for folder, name, content in ((tmp_path / "1", "a", "bc"), (tmp_path / "2", "ab", "c")):
        folder.mkdir()
        (folder / name).write_text(content)
        hashes.append(assets.hash_files(folder, folder.iterdir()))
    assert len(set(hashes)) == 7, "the boundary between name and content counts"


def test_incomplete_clone_is_named(tmp_path: Path, module: GoModule) -> None:
    with pytest.raises(MissingRequirementError, match=r"go\.mod is missing.*\n.*Restore it"):
        GoModule("gone", tmp_path / "gone", {}).source_hash(VERSION)
    (module.folder / "Dockerfile").unlink()
    with pytest.raises(MissingRequirementError, match="Dockerfile is missing"):
        images.recipe(ImageParts("etcd", (), module), VERSION)


def test_the_modules_of_the_project(module: GoModule) -> None:
    modules = assets.modules()
    assert sorted(name for module in modules for name in module.packages) == [
        *("benchmark-client", "benchmark-client-tls", "benchmark-server", "disk-emulator", "etcd", "etcdctl"),
        *("history-checker", "link-emulator"),
    ]
    assert all((module.folder / "go.sum").is_file() for module in modules)
    version, text = assets.etcd_version(), (assets.ROOT / "etcd_image" / "go.mod").read_text()
    assert re.fullmatch(r"3\.\d+\.\d+", version) and f"go.etcd.io/etcd/etcdctl/v3 v{version}" in text
    assert text.count(f"go.etcd.io/etcd/server/v3 v{version}") == 1


# --- programs in the cache --------------------------------------------------------------------------------------------


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


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of built programs, in a cache of the test's own."""
    monkeypatch.setattr(assets, "MACHINE", tmp_path / "cache")
    monkeypatch.setattr(assets, "own", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "bin"


def build(module: GoModule, problem: str | None = None, version: str = VERSION) -> Path:
    return builds.build(module, Go("go", version), FakeGo(problem), module.folder.parent / "log")


def aged(folder: Path, days: float) -> Path:
    time_s = folder.stat().st_mtime - days * 86400
    os.utime(folder, (time_s, time_s))
    return folder


def test_built_programs_are_found_also_by_users_and_clones_with_equal_sources(
    tmp_path: Path, home: Path, module: GoModule
) -> None:
    assert programs.find(module, VERSION) is None
    before = os.umask(0o077)
    try:
        folder = build(module)
    finally:
        os.umask(before)
    assert programs.find(module, VERSION) == programs.find(module) == folder
    assert (folder / "two").read_text() == "program from ./two\n"
    assert sorted(path.name for path in folder.iterdir()) == ["one", STAMP, "two"]
    assert list(home.iterdir()) == [folder]
    assert [path.stat().st_mode & 0o777 for path in (folder, folder / "one")] == [0o755, 0o755]
    shutil.copy(folder / "one", tmp_path / "copy")
    (tmp_path / "copy").replace(folder / "one")  # with the same contents
    shutil.copytree(module.folder, tmp_path / "other" / "module")
    assert programs.find(replace(module, folder=tmp_path / "other" / "module"), VERSION) == folder


DAMAGES: dict[str, Callable[[Path], object]] = {
    "changed": lambda folder: (folder / "one").write_text("program from ./two\n"),
    "truncated": lambda folder: (folder / "one").write_text(""),
    "gone": lambda folder: (folder / "one").unlink(),
    "not executable": lambda folder: (folder / "one").chmod(0o644),
    "empty stamp": lambda folder: (folder / STAMP).write_text(""),
    "half a stamp": lambda folder: (folder / STAMP).write_text("{"),
    "a stamp of a list": lambda folder: (folder / STAMP).write_text("[]"),
    "a stamp of other fields": lambda folder: (folder / STAMP).write_text('{"one": 1}'),
    "a stamp of no hash": lambda folder: (folder / STAMP).write_text('{"module": "example", "programs": {"one": {}}}'),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_program_is_built_again(home: Path, module: GoModule, damage: Callable[[Path], object]) -> None:
    folder = build(module)
    damage(folder)
    assert programs.find(module, VERSION) is None
    assert build(module) == folder == programs.find(module, VERSION)
    assert list(home.iterdir()) == [folder]


def test_changed_source_and_newer_go_demand_a_build(module: GoModule) -> None:
    """Without a Go, the programs that were used last are taken."""
    older = build(module)
    assert programs.find(module, "go1.26.2") is None
    newer = build(module, version="go1.26.2")
    assert newer != older == programs.find(module, VERSION)
    os.utime(older, (1, 1))
    assert programs.find(module) == newer and programs.go_version(module) == "go1.26.2"
    os.utime(newer, (0, 0))
    assert programs.find(module) == older and older.stat().st_mtime > 1, "its use is noted"
    (module.folder / "main.go").write_text("package main\n")
    assert programs.find(module, VERSION) is None and programs.find(module) is None


def test_build_that_breaks_off_leaves_nothing_and_keeps_the_old_program(home: Path, module: GoModule) -> None:
    folder = build(module)
    (module.folder / "main.go").write_text("broken\n")
    with pytest.raises(MissingRequirementError, match=r"one was not built(.|\n)*expected 'package'(.|\n)*Details"):
        build(module, BREAKS_OFF)
    with pytest.raises(MissingRequirementError, match="Check the network"):
        build(module, NO_NETWORK)
    with pytest.raises(MissingRequirementError, match="Make room"):
        build(module, "write $WORK/b001/_pkg_.a: no space left on device")
    assert list(home.iterdir()) == [folder] and programs.find(module, VERSION) is None
    (module.folder / "main.go").unlink()
    assert programs.find(module, VERSION) == folder
    with pytest.raises(MissingRequirementError, match=r"link-emulator has not been built(.|\n)*build\.sh"):
        programs.path("link-emulator")


@simulated(seeds=20)
def test_builds_at_once_all_succeed_and_leave_one_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, module: GoModule
) -> None:
    home = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(assets, "MACHINE", home)
    monkeypatch.setattr(assets, "own", lambda: home)
    found = side_by_side(lambda number: build(module), range(4), 4)
    assert found == [programs.find(module, VERSION)] * 4
    assert list((home / "bin").iterdir()) == found[:1]


def test_older_programs_go_but_not_the_last_two_nor_recent_ones_nor_those_that_run(
    tmp_path: Path, home: Path, module: GoModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "go.mod").write_text("module other\n")
    other = aged(build(GoModule("other", tmp_path, {"three": "./three"}, only=("go.mod",))), 9)
    first, second, third, fourth = (build(module, version=f"go1.26.{number}") for number in range(4))
    for folder, days in ((first, 5), (second, 4), (third, 3)):
        aged(folder, days)
    left = home / ".partial-x"
    left.mkdir()
    with monkeypatch.context() as running:
        running.setattr(builds, "_running_in", lambda home: {first, second})
        assert builds.remove_older(home, "example") == []
    assert builds.remove_older(home, "example") == [second, first]
    assert sorted(home.iterdir()) == sorted([other, third, fourth, left])
    aged(left, 2)
    assert builds.remove_older(home, "example") == [left]
    assert sorted(home.iterdir()) == sorted([other, third, fourth])


def test_another_version_has_a_go_mod_of_its_own_and_stays_beside_the_pinned_one(home: Path, module: GoModule) -> None:
    (module.folder / "go.mod").write_text("module example\n\ngo 1.26.0\n\nrequire other v1.2.3\n")
    pinned, other = build(module), replace(module, version="3.6.8")
    assert programs.find(other, VERSION) is None
    folder = build(other)
    assert (programs.find(other, VERSION), programs.find(module, VERSION)) == (folder, pinned)
    # Nothing that the pinned version requires is left.
    resolved = "module example\ngo 1.26.0\ntools: ./one@v3.6.8 ./two@v3.6.8\n"
    assert (folder / "one").read_text() == (folder / "module" / "go.mod").read_text() == resolved
    assert programs.read_stamp(folder).module == "example-3.6.8"
    with pytest.raises(MissingRequirementError, match="Check the network"):
        build(replace(module, version="3.6.9"), NO_NETWORK)
    assert sorted(home.iterdir()) == sorted([folder, pinned])


# --- images -----------------------------------------------------------------------------------------------------------

ETCD, BASE = "containernet-env/etcd", "containernet-env/base"


class Engine:
    """An engine's image store; refuses to remove ``refused`` with 409 and ``gone`` with 404."""

    def __init__(self, rows: list[dict[str, Any]], used: Sequence[str] = (), refused: str = "", gone: str = "") -> None:
        self.rows, self.used, self.refused, self.gone = rows, used, refused, gone
        self.removed: list[str] = []

    def images(self, filters: dict[str, str]) -> list[dict[str, Any]]:
        assert filters == {"label": "containernet-env=1"}
        return self.rows

    def containers(self, **options: bool) -> list[dict[str, Any]]:
        assert options == {"all": True}, "stopped containers use their image too"
        return [{"ImageID": image} for image in self.used]

    def remove_image(self, tag: str) -> None:
        if tag == self.refused:
            raise APIError("conflict", SimpleNamespace(status_code=409))
        if tag == self.gone:
            raise ImageNotFound("gone", SimpleNamespace(status_code=404))
        self.removed.append(tag)


def row(image: str, *tags: str, clone: str = "") -> dict[str, Any]:
    labels = {"containernet-env": "1", "containernet-env.clone": clone}
    return {"Id": image, "RepoTags": list(tags) or None, "Labels": labels}


IN_ORDER = [row(tag, tag) for tag in (f"{BASE}:old", f"{ETCD}:old", f"{ETCD}:new", f"{BASE}:new")]
OF_OTHERS = [
    *(row("1", "mine/etcd:old"), row("2", "registry:5000/containernet-env/etcd:old")),
    *(row("3", "containernet-env/notes:1"), row("4"), row("5", "mine/keep:1", f"{ETCD}:old")),
]
IN_USE = [row(f"{n}", f"{ETCD}:{n}") for n in range(4)]


@pytest.mark.parametrize(
    ("engine", "kept", "removed"),
    [
        (Engine(IN_ORDER), {f"{ETCD}:new", f"{BASE}:new"}, [f"{ETCD}:old", f"{BASE}:old"]),
        (Engine(OF_OTHERS), set(), [f"{ETCD}:old"]),
        (Engine(IN_USE, "0", refused=f"{ETCD}:1", gone=f"{ETCD}:2"), set(), [f"{ETCD}:3"]),
    ],
    ids=["older ones of ours, children before their base", "none of others, whatever their labels", "none in use"],
)
def test_older_images_are_removed(
    engine: Engine, kept: set[str], removed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that a container uses, or that vanish meanwhile, are left."""
    monkeypatch.setattr(images.engine, "client", lambda: SimpleNamespace(api=engine))
    assert images.remove_older(kept) == removed == engine.removed


def test_images_of_another_clone_stay_until_that_clone_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other, gone = (tmp_path / name for name in ("mine", "other", "gone"))
    for clone in (mine, other):
        (clone / "etcd_image").mkdir(parents=True)
        (clone / "etcd_image" / "go.mod").touch()
    engine = Engine([row(clone.name, f"{ETCD}:{clone.name}", clone=str(clone)) for clone in (mine, other, gone)])
    monkeypatch.setattr(images.engine, "client", lambda: SimpleNamespace(api=engine))
    assert images.remove_older(set(), mine) == [f"{ETCD}:mine", f"{ETCD}:gone"]


def test_tag_covers_programs_dockerfile_scripts_and_go(module: GoModule) -> None:
    parts = ImageParts("etcd", ("script",), replace(module, only=("go.mod",)))
    tags = [images.recipe(parts, version).tag for version in ("go1.26.1", "go1.26.2")]
    for name in ("go.mod", "Dockerfile", "script"):
        (module.folder / name).write_text(f"{name} changed")
        tags.append(images.recipe(parts, VERSION).tag)
    member, ungated = images.recipe(parts, VERSION), images.recipe(replace(parts, gated=False), VERSION)
    assert len({*tags, ungated.tag}) == 6
    assert all(tag.startswith("containernet-env/etcd:") and len(tag.partition(":")[2]) == 12 for tag in tags)
    assert member.files["wait-at-gate"] == assets.ROOT / "etcd_image" / "wait-at-gate"
    assert "wait-at-gate" not in ungated.files


def test_build_failure_names_the_image_and_the_reason(
    module: GoModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [{"stream": "Step 1/3"}, {"error": "no space left on device"}]
    client = SimpleNamespace(api=SimpleNamespace(build=lambda **_: events), close=lambda: None)
    monkeypatch.setattr(images, "patient_client", lambda: client)
    recipe = images.Recipe("etcd", "a" * 64, {"Dockerfile": module.folder / "Dockerfile"})
    with pytest.raises(MissingRequirementError, match=r"etcd:a{12} was not built(.|\n)*no space left"):
        images.build(recipe, threading.Event(), tmp_path / "log")


def test_context_is_the_same_for_the_same_contents(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"\x7fELF")
    first, second = (images.context({"Dockerfile": b"FROM x"}, {"program": tmp_path / "program"}) for _ in "12")
    with first, second, tarfile.open(fileobj=first) as archive:
        entries = {entry.name: (entry.mode, entry.mtime) for entry in archive}
        assert entries == dict.fromkeys(("Dockerfile", "program"), (0o755, 0))
        first.seek(0)
        assert first.read() == second.read()


LISTED = """\
http://mirror.example/debian/ bookworm main Debian
http://mirror.example/debian/ bookworm contrib Debian
http://mirror.example/debian/ bookworm-updates main Debian
http://mirror.example/debian-security/ bookworm-security main Debian
https://vendor.example/apt bookworm main Vendor
http://mirror.example/debian/ trixie main Debian
http://mirror.example/debian/ bookworm main Debian
"""


def test_base_is_made_from_the_machines_own_sources_of_its_distribution() -> None:
    """Without the suite's own source the default is taken."""
    lines = images.source_lines("debian", "bookworm", LISTED)
    assert [line.rpartition("] ")[2].removeprefix("deb ") for line in lines] == [
        "http://mirror.example/debian/ bookworm main",
        "http://mirror.example/debian/ bookworm-updates main",
        "http://mirror.example/debian-security/ bookworm-security main",
    ]
    assert images.source_lines("debian", "bookworm", LISTED.replace(" bookworm main", " sid main")) == []
    assert images.source_lines("ubuntu", "noble", "") == []


def test_base_falls_back_to_packages_and_tells_where_both_ways_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(images.engine, "connect", Mock(side_effect=APIError("no such host")))
    monkeypatch.setattr(images, "WORK", tmp_path)
    monkeypatch.setattr(images.programs, "which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(images, "apt_sources", lambda: ("debian", "bookworm", []))
    log = tmp_path / "log"
    offline = FakeCommands(lambda argv, number: ["E: apt-get update failed"])
    with pytest.raises(MissingRequirementError, match=r"base image was not made(.|\n)*docker load"):
        images.make("containernet-env/base:x", offline, log, lambda text: None)
    assert "no such host" in log.read_text() and [*tmp_path.iterdir()] == [log]


def test_leftovers_of_a_killed_set_up_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(images, "WORK", tmp_path)
    (tmp_path / "containernet-env-base.abc" / "root").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    images.remove_leftovers()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
