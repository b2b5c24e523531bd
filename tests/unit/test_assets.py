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


def test_root_keeps_to_the_machines_cache_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert assets.own() == Path("/var/cache/containernet-env")
    assert tmp_path not in [path.parent for path in assets.trusted()]


def test_a_user_has_a_cache_by_xdg_or_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/u")
    for named, expected in (("/x/cache", "/x/cache"), ("", "/home/u/.cache"), ("relative", "/home/u/.cache")):
        monkeypatch.setenv("XDG_CACHE_HOME", named)
        assert assets.own() == Path(expected) / "containernet-env"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(MissingRequirementError, match="XDG_CACHE_HOME"):
        assets.own()


def test_what_others_can_write_to_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(assets, "MACHINE", tmp_path / "cache")
    monkeypatch.setattr(assets, "own", lambda: tmp_path / "cache")
    assert assets.trusted() == ()
    assert assets.make() == tmp_path / "cache"
    assert assets.trusted() == (tmp_path / "cache",)
    for mode in (0o775, 0o757, 0o777):
        (tmp_path / "cache").chmod(mode)
        assert assets.trusted() == ()
        with pytest.raises(MissingRequirementError, match="others may write"):
            assets.make()


def test_what_another_user_owns_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    owner = os.geteuid() or 1000
    if os.geteuid() == 0:
        os.chown(tmp_path, owner, owner)
    tmp_path.chmod(0o755)
    monkeypatch.setattr(assets, "MACHINE", tmp_path)
    monkeypatch.setattr(assets, "own", lambda: tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    assert assets.trusted() == (tmp_path,)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert assets.trusted() == ()


def test_logs_and_what_to_do_are_of_a_clone_or_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (assets.logs(), assets.set_up_hint()) == (assets.ROOT / ".build", "Run ./build.sh as root.")
    monkeypatch.setattr(assets, "CLONE", None)
    assert assets.logs() == assets.own() / "logs"
    monkeypatch.setattr(assets.sys, "argv", ["/home/u/.local/bin/containernet-env", "run"])
    assert assets.set_up_hint() == "Run as root: /home/u/.local/bin/containernet-env setup"


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        ("0123456789abcdef", ("0123456789abcdef", False, "(commit 0123456789ab)")),
        ("0123456789abcdef-dirty", ("0123456789abcdef", True, "(commit 0123456789ab-dirty)")),
        (None, (None, None, "(unknown commit)")),
    ],
)
def test_version_text(monkeypatch: pytest.MonkeyPatch, described: str | None, expected: tuple[object, ...]) -> None:
    monkeypatch.setattr(version, "_ours", lambda: described)
    commit, dirty, text = expected
    assert (version.commit(), version.dirty(), version.text()) == (commit, dirty, f"{__version__} {text}")
