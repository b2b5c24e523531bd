"""A user without rights measures a cluster on loopback, with programs of the machine and with its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bench.load.cluster import Cluster
from containernet_env.base import cache, programs
from containernet_env.base.errors import MissingRequirementError
from containernet_env.setup import go
from tests.root.etcd_processes import endpoints_file, keys_below
from tests.root.test_external import COMMAND, PROJECT, TINY, kill, rows, scenarios, started

NOBODY = 65534


def _has_etcd() -> bool:
    try:
        return programs.path("etcd").exists()
    except MissingRequirementError:
        return False


pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="not root"),
    pytest.mark.skipif(not _has_etcd(), reason="etcd has not been built"),
]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(Cluster, tmp_path_factory.mktemp("plain")) as cluster:
        yield cluster
        kill(cluster)


def as_user(uid: int) -> list[str]:
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]


AS_NOBODY = as_user(NOBODY)


def interpreter_for_all() -> tuple[str, str] | None:
    """A Python that every user can run, with this clone and what it needs, and its PYTHONPATH."""
    packages = Path(click.__file__).resolve().parents[1]
    path = f"{PROJECT}{os.pathsep}{packages}"
    program = "import subprocess, sys, containernet_env.cli; subprocess.run([sys.executable, '-c', ''], check=True)"
    for python in (sys.executable, "/usr/bin/python3"):
        argv = [*AS_NOBODY, python, "-c", program]
        if not subprocess.run(argv, cwd="/", env={"PYTHONPATH": path}, check=False, capture_output=True).returncode:
            return python, path
    return None


def test_a_user_without_rights_measures(plain: Cluster) -> None:
    if (found := interpreter_for_all()) is None:
        pytest.skip("this clone, or its Python, is not readable to others")
    python, path = found
    folder = Path("/var/tmp") / f"cnenv-test-{os.getpid()}"
    folder.mkdir(mode=0o700)
    try:
        config, wanted = endpoints_file(folder, plain), scenarios(folder, TINY)
        for made in (folder, config, wanted):
            os.chown(made, NOBODY, NOBODY)
        words = ["run", config, folder / "out.csv", "--scenarios", wanted, "--yes-load-this-cluster"]
        done = subprocess.run(
            [*AS_NOBODY, python, *COMMAND[1:], *map(str, words)],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "XDG_CACHE_HOME": str(folder / "cache")},
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(rows(folder / "out.csv")) == 4
        kept = {path for path in (folder / "cache").rglob("*") if path.is_file()}
        assert {path.stat().st_uid for path in kept} == {NOBODY}
    finally:
        shutil.rmtree(folder)
    assert keys_below(plain) == []


# Where root's cache of programs is, there is none; the user's Go has root's caches beneath what it adds itself. All of
# that ends with the command.
WITHOUT_PROGRAMS = """
set -e
mount -t tmpfs -o mode=755 tmpfs "$MACHINE"
mkdir -p "$HOME/.cache/go-build" "$HOME/go/pkg/mod"
mount --bind -o ro "$MODULES" "$HOME/go/pkg/mod"
mount -t tmpfs tmpfs "$HOME/.cache/go-build"
mkdir "$HOME/.cache/go-build/upper" "$HOME/.cache/go-build/work"
mount -t overlay -o "lowerdir=$BUILT,upperdir=$HOME/.cache/go-build/upper,workdir=$HOME/.cache/go-build/work" \
    overlay "$HOME/.cache/go-build"
chown "$USER_ID:$USER_ID" "$HOME" "$HOME/.cache" "$HOME/.cache/go-build" "$HOME/.cache/go-build/"*
exec "$@"
"""
PREPARED = ["unshare", "--mount", "--propagation=private", "sh", "-c", WITHOUT_PROGRAMS, "sh"]


def test_a_user_without_rights_builds_the_load_and_writes_nowhere_else(plain: Cluster) -> None:
    if (found := interpreter_for_all()) is None:
        pytest.skip("this clone, or its Python, is not readable to others")
    python, path = found
    toolchain = go.find()
    assert toolchain is not None
    asked = [toolchain.path, "env", "GOCACHE", "GOMODCACHE"]
    built, modules = subprocess.check_output(asked, text=True, env=go.environment()).split()
    uid = 100_000 + os.getpid()  # a user of whom the machine knows nothing else
    folder = Path("/var/tmp") / f"cnenv-test-{os.getpid()}"
    home = folder / "home"
    folder.mkdir(mode=0o700)
    try:
        home.mkdir()
        config, wanted = endpoints_file(folder, plain), scenarios(folder, {"scenarios": TINY["scenarios"][:1]})
        for made in (folder, home, config, wanted):
            os.chown(made, uid, uid)
        words = ["run", config, folder / "out.csv", "--scenarios", wanted, "--yes-load-this-cluster"]
        given = {"HOME": home, "MACHINE": cache.MACHINE, "BUILT": built, "MODULES": modules, "USER_ID": uid}
        done = subprocess.run(
            [*PREPARED, *as_user(uid), python, *COMMAND[1:], *map(str, words)],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": path} | {name: str(value) for name, value in given.items()},
            check=False,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0 and "built benchmark-client" in done.stdout, done.stdout + done.stderr
        assert [row["Error"] for row in rows(folder / "out.csv")] == ["-"] * 2
        programs_at = home / ".cache" / "containernet-env" / "bin"
        (folder_of_programs,) = programs_at.iterdir()
        assert (folder_of_programs / "benchmark-server").stat().st_uid == uid
        assert list((home / ".cache" / "containernet-env" / "external").iterdir()) == []
        # As this user, since nothing can be its own where it cannot look.
        look = [*as_user(uid), "find", "/", "/dev/shm", "/run", "-xdev", "-user", str(uid), "-print"]
        seen = subprocess.run(look, cwd="/", check=False, capture_output=True, text=True, timeout=120).stdout.split(
            "\n"
        )
        own = [line for line in seen if line and not line.startswith("/proc/")]
        assert str(folder / "out.csv") in own and all(Path(line).is_relative_to(folder) for line in own), own
    finally:
        shutil.rmtree(folder)
    assert keys_below(plain) == []
