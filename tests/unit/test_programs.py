"""Programs: found whatever PATH says, those of users known by their contents, and how one ended, in one line; and where
files that travel, built things and state lie: in a clone, in an installation, for root and for users.

tests/recorded/go_crashes.txt was written by small programs of Go 1.26; dumps of goroutines and registers are cut.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from containernet_env import __version__, cli
from containernet_env.base import assets, programs
from containernet_env.base.errors import MissingRequirementError
from containernet_env.base.programs import UserProgram, ending, last_words, read_program
from containernet_env.hosts import netns
from containernet_env.hosts.options import PIDS_LIMIT
from containernet_env.runs import version
from containernet_env.setup import images
from containernet_env.stores.kinds import DEFAULT
from containernet_env.stores.store import USER_PROGRAM, ImageParts

# --- of the system ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/bin", "", None])
def test_programs_of_administrators_are_found_whatever_path_says(
    path: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PATH") if path is None else monkeypatch.setenv("PATH", path)
    for program in ("cat", "unshare", "apt-get", "dpkg"):
        assert Path(programs.require(program)).is_absolute()
    folders = programs.environment()["PATH"].split(":")
    assert set(programs.FOLDERS) <= set(folders) and "" not in folders
    assert folders[0] == (path or programs.FOLDERS[0])
    own = tmp_path / "cat"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    with monkeypatch.context() as first:
        first.setenv("PATH", str(tmp_path))
        assert programs.which("cat") == str(own), "what it names goes first"
    programs.complete_path()
    assert os.environ["PATH"] == ":".join(folders)


def test_a_program_that_is_not_installed_is_a_missing_requirement_with_its_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(programs, "FOLDERS", ("/nowhere",))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingRequirementError) as raised:
        netns.run(os.getpid(), ["tc", "qdisc"])
    assert str(raised.value) == (
        "tc is not installed: it is neither in PATH nor in /nowhere\n"
        "  Install the package iproute2 (Debian, Ubuntu: apt-get install)."
    )
    assert cli.exit_code_of(raised.value) == 3


# --- of the user ------------------------------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """One that this machine can run."""
    path = tmp_path / "program"
    shutil.copy(os.path.realpath(sys.executable), path)
    return path


def test_a_program_is_known_by_its_contents(program: Path, tmp_path: Path) -> None:
    found = read_program(program)
    assert found == UserProgram(program, hashlib.sha256(program.read_bytes()).hexdigest())
    assert found.content() == program.read_bytes() and found.short == found.sha256[:12]
    moved = program.rename(tmp_path / "other")
    assert read_program(moved).sha256 == found.sha256
    moved.write_bytes(moved.read_bytes() + b"more")
    assert read_program(moved).sha256 != found.sha256
    for path, words in ((program, "No such file"), (moved, "has changed since it was read")):
        with pytest.raises(MissingRequirementError, match=words):
            UserProgram(path, found.sha256).content()


def changed(place: int, byte: int) -> Callable[[Path], object]:
    return lambda path: path.write_bytes((held := path.read_bytes())[:place] + bytes([byte]) + held[place + 1 :])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (Path.unlink, "cannot be read: No such file"),
        (lambda path: (path.unlink(), path.mkdir()), "is not a file"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "is not a file"),
        (lambda path: path.chmod(0o644), "is not executable"),
        (lambda path: path.write_text("#!/bin/sh\n"), "is not a program"),
        (lambda path: path.write_bytes(path.read_bytes()[:19]), "is not a program"),
        (changed(18, 8), "is not a program"),  # MIPS
        (changed(4, 1), "is not a program"),  # of 32 bits
        (changed(16, 1), "is not a program"),  # an object file
    ],
)
def test_what_this_machine_cannot_run_is_refused(program: Path, spoil: Any, words: str) -> None:
    spoil(program)
    with pytest.raises(ValueError, match=words):
        read_program(program)


def test_an_image_is_called_by_its_program(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, binary = DEFAULT.image.module, read_program(program)
    parts = ImageParts("own", (), module, folder="etcd_image", binary=binary)
    recipe = images.recipe(parts, "go1.26.8")
    assert recipe.name == f"own-{binary.short}" and recipe.binary == binary
    without = images.recipe(ImageParts("own", (), module, folder="etcd_image"), "go1.26.8")
    assert without.name == "own" and without.tag != recipe.tag

    found: dict[str, bytes] = {}

    def build(tag: str, build_context: Any, *more: Any) -> None:
        with build_context, tarfile.open(fileobj=build_context) as archive:
            found.update({entry.name: cast(Any, archive.extractfile(entry)).read() for entry in archive})

    monkeypatch.setattr(images, "build_image", build)
    images.build(recipe, threading.Event(), tmp_path / "log")
    assert found[USER_PROGRAM] == program.read_bytes() and "Dockerfile" in found
    program.write_bytes(b"another one")
    with pytest.raises(MissingRequirementError, match="has changed"):
        images.build(recipe, threading.Event(), tmp_path / "log")


# --- how they end: statuses, signals, crashes of Go programs ----------------------------------------------------------


RECORDED = Path(__file__).resolve().parents[1] / "recorded"
CRASHES = dict(re.findall(r"^== (\w+)\n((?:(?!== ).*\n)*)", (RECORDED / "go_crashes.txt").read_text(), re.MULTILINE))
REASONS = {
    "nil": "panic: runtime error: invalid memory address or nil pointer dereference",
    "error": "panic: read the TAP: file descriptor in bad state",
    "lines": "panic: two",
    "again": "panic: first [recovered]",
    "deadlock": "fatal error: all goroutines are asleep - deadlock!",
    "stack": "runtime: goroutine stack exceeds 1048576-byte limit",
    "map": "fatal error: concurrent map writes",
    "memory": "runtime: out of memory: cannot allocate 67108864-byte block (742064128 in use)",
    "fault": "unexpected fault address 0x7f3227401388",
    "quit": "SIGQUIT: quit",
    "abort": "SIGABRT: abort",
    "segv": "SIGSEGV: segmentation violation",
}


def test_a_crash_of_a_go_program_is_described_by_its_first_line() -> None:
    before = "link-emulator: port d1: queue is full\nruntime: mlock of signal stack failed: 12\nstarted\n"
    assert {name: ending(2, before + crash) for name, crash in CRASHES.items()} == {
        name: f"exit status 2: {reason}" for name, reason in REASONS.items()
    }
    assert {name: last_words(crash.replace("\n", "\r\n")) for name, crash in CRASHES.items()} == REASONS


@pytest.mark.parametrize(
    ("status", "log", "reason"),
    [
        (1, "one\nlisten tcp :8080:\t address in use\n\n", "exit status 1: listen tcp :8080: address in use"),
        (1, "a panic: no\nfine\n", "exit status 1: fine"),
        (3, "", "exit status 3"),
        (128, "", "exit status 128"),
        (255, "", "exit status 255"),
        (137, "", "killed by SIGKILL"),
        (-15, "", "killed by SIGTERM"),
        # What a killed program said last is not the reason.
        (-9, "listening on :8080\n", "killed by SIGKILL"),
        (134, "panic: no room\n\ngoroutine 1 [running]:\n", "killed by SIGABRT, panic: no room"),
    ],
)
def test_any_other_program_is_described_by_its_last_line(status: int, log: str, reason: str) -> None:
    assert ending(status, log) == reason
    assert len(ending(1, "x" * 5000)) < 400


# --- files that travel, the cache, logs -------------------------------------------------------------------------------


def test_a_clone_has_its_files_beside_the_package_and_an_installation_inside(tmp_path: Path) -> None:
    package = tmp_path / "containernet_env"
    package.mkdir()
    assert assets.clone_of(package) == tmp_path
    (package / "assets").mkdir()
    assert assets.clone_of(package) is None
    assert assets.CLONE == assets.ROOT == Path(__file__).resolve().parents[2]


def test_what_travels_is_all_that_builds_and_runs_need_and_no_tests() -> None:
    found = {
        folder: {path.relative_to(assets.ROOT / folder).as_posix() for path in assets.travelling(assets.ROOT, folder)}
        for folder in assets.FOLDERS
    }
    assert {"3node-3ms.json", "scenarios/default.json", "scenarios/quick.json"} <= found["configs"]
    assert found["etcd_image"] == {"Dockerfile", "compose.yaml", "go.mod", "go.sum", "wait-at-gate"}
    assert {"Dockerfile", "go.sum", "cmd/benchmark-server/main.go"} <= found["benchmark_image"]
    assert {"go.mod", "main.go", "realtime/pin.s"} <= found["link_emulator"]
    assert not [name for names in found.values() for name in names if name.endswith(("_test.go", ".md"))]


def test_services_of_compose_are_confined_as_hosts_are_and_use_no_proxy() -> None:
    text = (assets.ROOT / "etcd_image" / "compose.yaml").read_text()
    for line in (f"pids_limit: {PIDS_LIMIT}", "no-new-privileges:true", 'NO_PROXY: "*"'):
        assert text.count(line) == 2, f"{line}: of the members, and of the benchmark server"


def test_every_module_is_hashed_over_files_that_travel() -> None:
    for module in assets.modules():
        travelling = set(assets.travelling(assets.ROOT, module.folder.name))
        paths = [module.folder / name for name in module.only] or assets.compiled_files(module.folder)
        assert set(paths) <= travelling


def test_root_has_the_machines_cache_and_a_user_one_by_xdg_or_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert assets.own() == Path("/var/cache/containernet-env")
    assert tmp_path not in [path.parent for path in assets.trusted()]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/u")
    for named, expected in (("/x/cache", "/x/cache"), ("", "/home/u/.cache"), ("relative", "/home/u/.cache")):
        monkeypatch.setenv("XDG_CACHE_HOME", named)
        assert assets.own() == Path(expected) / "containernet-env"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(MissingRequirementError, match="XDG_CACHE_HOME"):
        assets.own()


def test_what_others_can_write_to_or_own_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache, owner = tmp_path / "cache", os.geteuid() or 1000
    monkeypatch.setattr(assets, "MACHINE", cache)
    monkeypatch.setattr(assets, "own", lambda: cache)
    assert assets.trusted() == ()
    assert assets.make() == cache
    assert assets.trusted() == (cache,)
    for mode in (0o775, 0o757, 0o777):
        cache.chmod(mode)
        assert assets.trusted() == ()
        with pytest.raises(MissingRequirementError, match="others may write"):
            assets.make()
    cache.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(cache, owner, owner)
    for user, trusted in ((owner, (cache,)), (0, ())):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        assert assets.trusted() == trusted


def test_logs_and_what_to_do_are_of_a_clone_or_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (assets.logs(), assets.set_up_hint()) == (assets.ROOT / ".build", "Run ./build.sh as root.")
    monkeypatch.setattr(assets, "CLONE", None)
    assert assets.logs() == assets.own() / "logs"
    monkeypatch.setattr(assets.sys, "argv", ["/home/u/.local/bin/containernet-env", "run"])
    assert assets.set_up_hint() == "Run as root: /home/u/.local/bin/containernet-env setup"


def test_version_text(monkeypatch: pytest.MonkeyPatch) -> None:
    for described, expected in {
        "0123456789abcdef": ("0123456789abcdef", False, "(commit 0123456789ab)"),
        "0123456789abcdef-dirty": ("0123456789abcdef", True, "(commit 0123456789ab-dirty)"),
        None: (None, None, "(unknown commit)"),
    }.items():
        monkeypatch.setattr(version, "_ours", lambda described=described: described)
        commit, dirty, text = expected
        assert (version.commit(), version.dirty(), version.text()) == (commit, dirty, f"{__version__} {text}")
