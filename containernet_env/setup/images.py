"""The images of the hosts: which ones the sources demand, building what is missing, removing our older ones.

An image's tag is the hash of everything it is made from, so that a tag that exists is the right image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.errors import APIError, ImageNotFound

from containernet_env.base import assets, clock, programs, sources
from containernet_env.base.errors import MissingRequirementError
from containernet_env.base.user_program import UserProgram
from containernet_env.hosts import engine
from containernet_env.setup import base_image, binaries, downloads, image_build
from containernet_env.stores.kinds import DEFAULT
from containernet_env.stores.protocol import GATE_SCRIPT, USER_PROGRAM, ImageParts, Store

NAMESPACE = "containernet-env"
REPOSITORIES = tuple(f"{NAMESPACE}/{name}" for name in ("etcd", "benchmark", "base"))
_BASE = f"{NAMESPACE}/base"
_TAG_DIGITS = 12
_DOCKERFILE = "Dockerfile"
_GATE_FOLDER = "etcd_image"
# What our Dockerfiles run needs no network, and an engine may have none to give.
_NETWORK = "none"


@dataclass(frozen=True)
class Images:
    """The tags of the images that the sources now demand for a run: of its store, and of the load."""

    member: str
    benchmark: str


@dataclass(frozen=True)
class Recipe:
    """How an image is made on the base: ``files`` maps names in the build context to files of the project.

    ``packages`` of the distribution are in a base image of its own. ``binary``: the user's program in it.
    """

    name: str
    source: str
    files: Mapping[str, Path]
    packages: tuple[str, ...] = ()
    binary: UserProgram | None = None

    @property
    def tag(self) -> str:
        return tag_of(self.name, self.source)

    @property
    def base(self) -> str:
        """The tag of the image that it is made on."""
        return base_tag(self.packages)


def tag_of(name: str, source: str) -> str:
    """The tag of image ``name`` made from the sources with hash ``source``."""
    return f"{NAMESPACE}/{name}:{source[:_TAG_DIGITS]}"


def base_tag(packages: tuple[str, ...] = ()) -> str:
    """The tag of the base image that is demanded now, or of the one with these packages."""
    return tag_of("base-with" if packages else "base", base_image.source_hash(packages))


def recipe(parts: ImageParts, go_version: str, root: Path = assets.ROOT) -> Recipe:
    """The image that is made of these parts; without the programs that are not built yet."""
    module, scripts = parts.module, parts.scripts
    own_folder = module.folder if module is not None else root / f"{parts.name}_image"
    folder = own_folder if parts.folder is None else root / parts.folder
    own = {name: folder / name for name in (_DOCKERFILE, *scripts)}
    gate = {GATE_SCRIPT: root / _GATE_FOLDER / GATE_SCRIPT} if parts.gated else {}
    try:
        hashes = [sources.hash_files(folder, own.values()), sources.hash_files(root, gate.values())]
    except FileNotFoundError as error:
        raise MissingRequirementError(
            f"{error.filename} is missing: this clone or installation is not complete", sources.RESTORE
        ) from error
    programs_hash = module.source_hash(go_version) if module is not None else ""
    fetched = [item for file in parts.files for item in (file.name, file.url, file.sha256)]
    base = base_image.source_hash(parts.packages)
    users = [parts.binary.sha256] if parts.binary is not None else []
    source = sources.combine(parts.name, base, programs_hash, *hashes, *fetched, *users)
    found = programs.find(module, go_version) if module is not None else None
    built = {name: found / name for name in module.packages} if module is not None and found is not None else {}
    there = {file.name: path for file in parts.files if (path := downloads.find(file)) is not None}
    return Recipe(parts.label, source, {**own, **gate, **built, **there}, parts.packages, parts.binary)


def recipes(go_version: str, store: Store = DEFAULT, root: Path = assets.ROOT) -> tuple[Recipe, ...]:
    """The recipes of the store's image and of the benchmark's, and of the default store's where that is another one.

    ``go_version`` as in the hashes of their programs.
    """
    by_name = {module.name: module for module in sources.modules(root)}
    benchmark = recipe(ImageParts("benchmark", module=by_name["benchmark"], gated=False), go_version, root)
    member, default = (recipe(kind.image, go_version, root) for kind in (store, DEFAULT))
    return (member, benchmark) if member.tag == default.tag else (member, benchmark, default)


def required_images(store: Store = DEFAULT) -> Images:
    """The tags that a run has to use. Raises ``MissingRequirementError`` before anything was ever built."""
    go_version = binaries.go_version()
    if go_version is None:
        raise MissingRequirementError("nothing has been built yet", assets.set_up_hint())
    member, benchmark = recipes(go_version, store)[:2]
    return Images(member=member.tag, benchmark=benchmark.tag)


def present() -> set[str]:
    """The tags of all images that carry our label."""
    return {tag for row in _labelled() for tag in row.get("RepoTags") or ()}


def digest(tag: str) -> str | None:
    """The id ("sha256:...") of the image with that tag; None where there is none."""
    with engine.refusals(f"the engine does not describe the image {tag}"):
        try:
            return str(engine.client().api.inspect_image(tag)["Id"])
        except ImageNotFound:
            return None


def _labelled() -> list[dict[str, Any]]:
    with engine.refusals("the engine does not list its images"):
        return list(engine.client().api.images(filters={"label": f"{engine.LABEL}={engine.LABEL_VALUE}"}))


def build(wanted: Recipe, stopping: clock.Event, log: Path) -> None:
    """Build one image on the base image, which must be there; ``stopping`` ends it early with ``Stopped``.

    Raises ``MissingRequirementError`` with the builder's last lines.
    """
    labels = image_build.image_labels(wanted.source)
    client = image_build.patient_client()
    try:
        users = {} if wanted.binary is None else {USER_PROGRAM: wanted.binary.content()}
        build_context = image_build.context(users, wanted.files)
        image_build.build(
            client,
            wanted.tag,
            build_context,
            labels=labels,
            network=_NETWORK,
            base=wanted.base,
            stopping=stopping,
        )
    except (image_build.BuildError, *engine.UNREACHABLE) as error:
        log.write_text(f"{error}\n", encoding="utf-8")
        raise MissingRequirementError(
            f"the image {wanted.tag} was not built: {error}",
            f"Look at the engine's log and its free disk, then run again. Details: {log}",
        ) from error
    finally:
        client.close()


def remove_older(keep: set[str], root: Path = assets.ROOT) -> list[str]:
    """Remove images of ours that are none of ``keep`` and that no container uses; returns their tags.

    Those of stores that none of ``keep`` is of stay.

    Ours are those made by the clone or install at ``root``, and those whose own is gone.
    Only tags of our repositories on images with our label are touched: a user's image that was made from one
    of ours inherits the label, but not the name.
    """
    with engine.refusals("the engine does not list its containers"):
        in_use = {row["ImageID"] for row in engine.client().api.containers(all=True)}
    rows = [row for row in _labelled() if row["Id"] not in in_use and not _belongs_to_another(row, root)]
    tags = [tag for row in rows for tag in row.get("RepoTags") or () if tag not in keep]
    # Images made on the base go before it, as it cannot go while they stand.
    kept = sorted(tag.rpartition(":")[0] for tag in keep)
    members = [name for name in kept if not name.startswith(_BASE)]
    repositories = dict.fromkeys((*members, *REPOSITORIES, *kept))
    ordered = [tag for name in repositories for tag in tags if tag.rpartition(":")[0] == name]
    return [tag for tag in ordered if _remove(tag)]


def _remove(tag: str) -> bool:
    """Remove one tag; False where it is gone already or still needed."""
    with engine.refusals(f"the image {tag} could not be removed"):
        try:
            engine.client().api.remove_image(tag)
        except ImageNotFound:
            return False
        except APIError as error:
            # 409: a container began to use it, or another image stands on it. It goes with those.
            if error.status_code != 409:
                raise
            return False
    return True


def _belongs_to_another(row: Mapping[str, Any], root: Path) -> bool:
    """Whether the image was made by the set-up of another clone that still stands."""
    clone = (row.get("Labels") or {}).get(image_build.LABEL_CLONE, "")
    return clone not in ("", str(root)) and (Path(clone) / "etcd_image" / "go.mod").exists()
