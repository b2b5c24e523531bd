"""Images: tags from contents, building on the base, and never removing what is not ours."""

from __future__ import annotations

import tarfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound

from containernet_env.base import assets
from containernet_env.base.errors import MissingRequirementError
from containernet_env.base.sources import GoModule
from containernet_env.setup import base_image, image_build, images
from containernet_env.setup.commands import CommandError, Commands
from containernet_env.stores.protocol import ImageParts

LISTED = """\
http://mirror.example/debian/ bookworm main Debian
http://mirror.example/debian/ bookworm contrib Debian
http://mirror.example/debian/ bookworm-updates main Debian
http://mirror.example/debian-security/ bookworm-security main Debian
https://vendor.example/apt bookworm main Vendor
http://mirror.example/debian/ trixie main Debian
http://mirror.example/debian/ bookworm main Debian
"""


class Response:
    """The part of an HTTP response that the SDK's errors look at."""

    def __init__(self, status: int) -> None:
        self.status_code = status


class Engine:
    """An engine's image store; refuses to remove ``refused`` with 409 and ``gone`` with 404."""

    def __init__(
        self, rows: list[dict[str, Any]], used: set[str] = frozenset(), refused: str = "", gone: str = ""
    ) -> None:  # type: ignore[assignment]
        self.rows = rows
        self.used = used
        self.refused = refused
        self.gone = gone
        self.removed: list[str] = []

    def images(self, filters: dict[str, str]) -> list[dict[str, Any]]:
        assert filters == {"label": "containernet-env=1"}
        return self.rows

    def containers(self, **options: bool) -> list[dict[str, Any]]:
        assert options == {"all": True}, "stopped containers use their image too"
        return [{"ImageID": image} for image in self.used]

    def remove_image(self, tag: str) -> None:
        if tag == self.refused:
            raise APIError("conflict", Response(409))
        if tag == self.gone:
            raise ImageNotFound("gone", Response(404))
        self.removed.append(tag)


def row(image: str, *tags: str, clone: str = "") -> dict[str, Any]:
    labels = {"containernet-env": "1", "containernet-env.clone": clone}
    return {"Id": image, "RepoTags": list(tags) or None, "Labels": labels}


ETCD, BASE = "containernet-env/etcd", "containernet-env/base"


@pytest.mark.parametrize(
    ("engine", "kept", "removed"),
    [
        (
            Engine([row(f"{n}", f"{name}:{age}") for n, (name, age) in enumerate((
                (BASE, "old"), (ETCD, "old"), (ETCD, "new"), (BASE, "new"),
            ))]),
            {f"{ETCD}:new", f"{BASE}:new"},
            [f"{ETCD}:old", f"{BASE}:old"],
        ),
        (
            Engine([
                row("1", "mine/etcd:old"),
                row("2", "registry:5000/containernet-env/etcd:old"),
                row("3", "containernet-env/notes:1"),
                row("4"),
                row("5", "mine/keep:1", f"{ETCD}:old"),
            ]),
            set(),
            [f"{ETCD}:old"],
        ),
        (
            Engine([row(f"{n}", f"{ETCD}:{n}") for n in range(4)], {"0"}, refused=f"{ETCD}:1", gone=f"{ETCD}:2"),
            set(),
            [f"{ETCD}:3"],
        ),
    ],
    ids=["older ones of ours, children before their base", "none of others, whatever their labels", "none in use"],
)  # fmt: skip
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


@pytest.fixture
def module(tmp_path: Path) -> GoModule:
    folder = tmp_path / "etcd_image"
    folder.mkdir()
    for name in ("go.mod", "Dockerfile", "script"):
        (folder / name).write_text(name)
    return GoModule("etcd", folder, {"etcd": "./etcd"}, only=("go.mod",))


def test_tag_covers_programs_dockerfile_scripts_and_go(module: GoModule) -> None:
    tags = [images.recipe(ImageParts("etcd", ("script",), module), "go1.26.1").tag]
    tags.append(images.recipe(ImageParts("etcd", ("script",), module), "go1.26.2").tag)
    for name in ("go.mod", "Dockerfile", "script"):
        (module.folder / name).write_text(f"{name} changed")
        tags.append(images.recipe(ImageParts("etcd", ("script",), module), "go1.26.1").tag)
    assert len(set(tags)) == 5
    assert all(tag.startswith("containernet-env/etcd:") and len(tag.partition(":")[2]) == 12 for tag in tags)


def test_the_images_of_members_have_the_script_that_waits_at_their_gate(module: GoModule) -> None:
    member = images.recipe(ImageParts("etcd", module=module), "go1.26.1")
    other = images.recipe(ImageParts("etcd", module=module, gated=False), "go1.26.1")
    assert member.files["wait-at-gate"] == assets.ROOT / "etcd_image" / "wait-at-gate"
    assert "wait-at-gate" not in other.files and member.tag != other.tag


def test_missing_dockerfile_is_named(module: GoModule) -> None:
    (module.folder / "Dockerfile").unlink()
    with pytest.raises(MissingRequirementError, match="Dockerfile is missing"):
        images.recipe(ImageParts("etcd", (), module), "go1.26.1")


def test_build_failure_names_the_image_and_the_reason(
    module: GoModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def events(**_: Any) -> list[dict[str, str]]:
        return [{"stream": "Step 1/3"}, {"error": "no space left on device"}]

    client = SimpleNamespace(api=SimpleNamespace(build=events), close=lambda: None)
    monkeypatch.setattr(image_build, "patient_client", lambda: client)
    recipe = images.Recipe("etcd", "a" * 64, {"Dockerfile": module.folder / "Dockerfile"})
    with pytest.raises(MissingRequirementError, match=r"etcd:a{12} was not built(.|\n)*no space left"):
        images.build(recipe, threading.Event(), tmp_path / "log")


def test_context_is_the_same_for_the_same_contents(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"\x7fELF")
    contexts = [image_build.context({"Dockerfile": b"FROM x"}, {"program": tmp_path / "program"}) for _ in "12"]
    first, second = (context.read() for context in contexts)
    assert first == second
    contexts[0].seek(0)
    with tarfile.open(fileobj=contexts[0]) as archive:
        assert {entry.name: (entry.mode, entry.mtime) for entry in archive} == {
            "Dockerfile": (0o755, 0),
            "program": (0o755, 0),
        }
    for context in contexts:
        context.close()


def test_base_is_made_from_the_machines_own_sources_of_its_distribution() -> None:
    lines = base_image.source_lines("debian", "bookworm", LISTED)
    assert [line.rpartition("] ")[2].removeprefix("deb ") for line in lines] == [
        "http://mirror.example/debian/ bookworm main",
        "http://mirror.example/debian/ bookworm-updates main",
        "http://mirror.example/debian-security/ bookworm-security main",
    ]


def test_without_the_suites_own_source_the_default_is_taken() -> None:
    assert base_image.source_lines("debian", "bookworm", LISTED.replace(" bookworm main", " sid main")) == []
    assert base_image.source_lines("ubuntu", "noble", "") == []


def test_base_falls_back_to_packages_and_tells_where_both_ways_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Offline(Commands):
        def run(self, argv: Any, log: Path, **_: object) -> None:  # type: ignore[override]
            raise CommandError(argv, "ended with exit status 25", log, ["E: apt-get update failed"])

    monkeypatch.setattr(base_image, "registry_problem", lambda: "no such host")
    monkeypatch.setattr(base_image, "WORK", tmp_path)
    monkeypatch.setattr(base_image.system_path, "find", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(base_image, "apt_sources", lambda: ("debian", "bookworm", []))
    log = tmp_path / "log"
    with pytest.raises(MissingRequirementError, match=r"base image was not made(.|\n)*docker load"):
        base_image.make("containernet-env/base:x", Offline(), log, lambda text: None)
    assert "no such host" in log.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_leftovers_of_a_killed_set_up_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(base_image, "WORK", tmp_path)
    (tmp_path / "containernet-env-base.abc" / "root").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    base_image.remove_leftovers()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
