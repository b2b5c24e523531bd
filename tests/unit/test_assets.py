"""Where files that travel, built things and state lie: in a clone, in an installation, for root and for users."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from containernet_env import __version__
from containernet_env.base import assets
from containernet_env.base.errors import MissingRequirementError
from containernet_env.hosts.options import PIDS_LIMIT
from containernet_env.runs import version


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
