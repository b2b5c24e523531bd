"""The set-up as a whole: quick when nothing is missing, clear when it cannot be done."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from containernet_env import setup
from containernet_env.base import assets, cache, programs, sources
from containernet_env.base.errors import Interrupted, MissingRequirementError
from containernet_env.base.sources import GoModule
from containernet_env.base.stop import Stop
from containernet_env.cli import setup as cli_setup
from containernet_env.model.config import StoreChoice
from containernet_env.runs.progress import Silent
from containernet_env.setup import dockerd, go, missing
from containernet_env.setup.go import Go
from containernet_env.setup.images import Images
from containernet_env.setup.missing import Missing
from containernet_env.stores.kinds import DEFAULT, KINDS
from containernet_env.stores.protocol import Store
from tests.unit.test_setup_steps import left_over, wait_for, writers

ROOT = assets.ROOT
IMAGES = Images("containernet-env/etcd:1", "containernet-env/benchmark:1")


def lacking(monkeypatch: pytest.MonkeyPatch, found: Missing) -> None:
    monkeypatch.setattr(missing, "look", lambda *of: found)


def test_nothing_missing_is_ready_and_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch, Missing(required=IMAGES))
    monkeypatch.setattr(setup, "_Work", None)
    assert setup.is_ready()
    assert setup.ready_images() == IMAGES
    assert setup.set_up(Silent()) is False


def test_everything_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Missing(("mininet",), True, sources.modules()[:1], ("base", "etcd"), IMAGES)
    lacking(monkeypatch, found)
    assert not setup.is_ready()
    with pytest.raises(MissingRequirementError) as caught:
        setup.ready_images()
    for text in ("mininet", "running Docker engine", "etcdctl", "base image", "./build.sh"):
        assert text in str(caught.value)


def test_set_up_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch, Missing(packages=("mininet",)))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MissingRequirementError, match=r"needs root\n.*sudo"):
        setup.set_up(Silent())


def test_disk_is_only_asked_for_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing, "engine_data", lambda: Path("/var/lib/docker"))
    assert Missing(engine=True).disk_needs() == []
    some = Missing(images=("etcd",)).disk_needs()
    everything = Missing(("docker.io", "mininet"), True, sources.modules(), ("base", "etcd", "benchmark"))
    assert sum(need.size for need in some) < 100_000_000
    assert 1_000_000_000 < sum(need.size for need in everything.disk_needs()) < 4_000_000_000


def test_second_set_up_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(first, fcntl.LOCK_EX)
    told: list[str] = []

    def note(text: str) -> None:
        told.append(text)
        threading.Timer(0.05, os.close, [first]).start()

    with setup.only_one(note, path, deadline_s=20):
        assert told == ["waiting for another set-up on this machine to end"]


def test_a_stop_token_ends_waiting_for_another_set_up(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(first, fcntl.LOCK_EX)
    stop = Stop()
    with (
        pytest.raises(Interrupted),
        setup.only_one(lambda text: stop.request(), path, deadline_s=20, stop=stop),
    ):
        pass
    os.close(first)


WAITS = """#!/bin/sh
# Stands in for `go`: the first program is built, and the second one takes until it is ended.
while [ "$1" != -o ]; do shift; done
echo "program from $3" > "$2"
chmod 755 "$2"
case $3 in
    *two) echo waiting; sleep 60 & wait ;;
esac
"""


def test_a_stop_token_ends_the_build_of_a_store_and_nothing_of_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "module"
    folder.mkdir()
    (folder / "go.mod").write_text("module example\n")
    module = GoModule("example", folder, {"one": "./one", "two": "./two"})
    (tmp_path / "go").write_text(WAITS)
    (tmp_path / "go").chmod(0o755)
    toolchain = Go(str(tmp_path / "go"), "go1.26.1")
    own = tmp_path / "cache"
    zookeeper = KINDS["zookeeper"].make(StoreChoice("zookeeper"))
    lacks = Missing(modules=(module,), required=IMAGES, store=zookeeper)
    ready = Missing(required=IMAGES)
    monkeypatch.setattr(missing, "look", lambda store=DEFAULT: lacks if store == zookeeper else ready)
    monkeypatch.setattr(missing.Missing, "disk_needs", lambda self: [])
    monkeypatch.setattr(cache, "MACHINE", own)
    monkeypatch.setattr(cache, "own", lambda: own)
    monkeypatch.setattr(cache, "logs", lambda: tmp_path / "logs")
    monkeypatch.setattr(setup, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(go, "find", lambda: toolchain)
    monkeypatch.setattr(dockerd, "ensure_running", lambda *of: "")
    stop = Stop()
    caught: list[Interrupted] = []

    def run() -> None:
        try:
            setup.ready_images(zookeeper, Silent(), stop)
        except Interrupted as error:
            caught.append(error)

    caller = threading.Thread(target=run)
    caller.start()
    log = cache.logs() / "example.log"
    wait_for(log, "waiting\n")
    assert len(list((own / "bin").iterdir())) == 1 and len(writers(log)) >= 2
    began = time.monotonic()
    stop.request()
    caller.join(20)
    assert not caller.is_alive() and time.monotonic() - began < 5 and len(caught) == 1
    assert left_over(log) == []
    assert list((own / "bin").iterdir()) == [] and programs.find(module, toolchain.version) is None


def test_waiting_for_another_set_up_has_a_deadline(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(first, fcntl.LOCK_EX)
    with (
        pytest.raises(MissingRequirementError, match="another set-up holds"),
        setup.only_one(lambda text: None, path, deadline_s=0),
    ):
        pass
    os.close(first)


def test_nothing_to_do_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch, Missing(required=IMAGES))
    result = CliRunner().invoke(cli_setup.command, [], standalone_mode=False)
    assert result.exception is None
    assert result.output.count("\n") == 1
    assert result.output.startswith("Set-up: nothing to do (")


def test_the_command_that_follows_replaces_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch, Missing(required=IMAGES))
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, argv: became.append(argv))
    result = CliRunner().invoke(cli_setup.command, ["--", "run", "a.json", "out.csv", "--quick"], standalone_mode=False)
    assert result.exception is None
    assert result.output == ""
    assert [argv[1:] for argv in became] == [["run", "a.json", "out.csv", "--quick"]]


@pytest.mark.parametrize("script", ["build.sh", "test.sh", "check.sh"])
def test_scripts_have_help(script: str) -> None:
    done = subprocess.run([ROOT / script, "--help"], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: sudo ./{script}")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("script", "arguments"), [("build.sh", ["--what"]), ("test.sh", ["only-one"]), ("check.sh", ["x"])]
)
def test_scripts_refuse_what_they_do_not_know(script: str, arguments: list[str]) -> None:
    done = subprocess.run([ROOT / script, *arguments], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage:")


def test_build_without_root_says_sudo_and_leaves_3(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([ROOT / "build.sh"], capture_output=True, text=True, timeout=20, check=False, env=environment)
    assert done.returncode == 3
    assert "needs root" in done.stderr
    assert "sudo" in done.stderr


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_what_is_built_is_ignored_by_git() -> None:
    names = [
        ".venv/x",
        "build/lib/x",
        "bin/etcd",
        ".build/etcd.log",
        "out.csv",
        "results/out.csv",
        "containernet_env.egg-info/x",
    ]
    done = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "check-ignore", "--no-index", *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.stdout.split() == names


def test_another_store_is_set_up_when_a_run_of_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who measures etcd waits for it, and nobody has to set it up by a command of its own."""
    zookeeper = KINDS["zookeeper"].make(StoreChoice("zookeeper"))
    there: list[Store] = []
    lacks = Missing(images=("zookeeper",), required=IMAGES, store=zookeeper)

    def look(store: Store = DEFAULT) -> Missing:
        return lacks if store == zookeeper and not there else Missing(required=IMAGES)

    def set_up(report: object, store: Store, stop: object) -> bool:
        there.append(store)
        return True

    monkeypatch.setattr(missing, "look", look)
    monkeypatch.setattr(setup, "set_up", set_up)
    assert setup.is_ready() and setup.ready_images(DEFAULT, Silent()) == IMAGES and there == []
    with pytest.raises(MissingRequirementError, match="the zookeeper image"):
        setup.ready_images(zookeeper)
    assert setup.ready_images(zookeeper, Silent()) == IMAGES and there == [zookeeper]


def test_a_run_that_lacks_more_than_its_store_is_not_set_up_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch, Missing(("mininet",), images=("zookeeper",)))
    monkeypatch.setattr(setup, "set_up", None)
    with pytest.raises(MissingRequirementError, match="mininet"):
        setup.ready_images(KINDS["zookeeper"].make(StoreChoice("zookeeper")), Silent())
