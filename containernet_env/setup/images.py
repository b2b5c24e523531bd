"""The images of the hosts: the ones that the sources need, building them and their base, removing older ones."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import docker
from docker.errors import APIError, ImageNotFound

from containernet_env.base import assets, clock, programs
from containernet_env.base.errors import MissingRequirementError
from containernet_env.base.programs import UserProgram
from containernet_env.hosts import engine
from containernet_env.results.files import replacing
from containernet_env.setup import builds, packages
from containernet_env.setup.commands import CommandError, Commands, Stopped, output_of
from containernet_env.stores.kinds import DEFAULT
from containernet_env.stores.store import GATE_SCRIPT, USER_PROGRAM, Download, ImageParts, Store

_FOLDER = "downloads"
_SILENCE_S = 30.0
_MOST_BYTES = 200 << 20
_PIECE_BYTES = 1 << 16


def find(download: Download) -> Path | None:
    """The file in the cache, if it exists."""
    for cached in assets.trusted():
        path = cached / _FOLDER / _name(download)
        if path.is_file() and assets.hash_file(path) == download.sha256:
            return path
    return None


def fetch(download: Download, stopping: clock.Event) -> Path:
    """Fetch a file into the cache.

    Raises ``MissingRequirementError`` if the download fails or has a wrong checksum, and ``Stopped`` once
    ``stopping`` is set; nothing of it remains then.
    """
    if (cached := find(download)) is not None:
        return cached
    home = assets.make() / _FOLDER
    home.mkdir(mode=0o755, exist_ok=True)
    path, received = home / _name(download), hashlib.sha256()
    try:
        with (
            replacing(path, for_caller=False) as file,
            urllib.request.urlopen(download.url, timeout=_SILENCE_S) as answer,
        ):
            while piece := answer.read(_PIECE_BYTES):
                if stopping.is_set():
                    raise Stopped
                file.write(piece)
                received.update(piece)
                if file.tell() > _MOST_BYTES:
                    raise ValueError(f"it has more than {_MOST_BYTES} bytes")
            if (found := received.hexdigest()) != download.sha256:
                raise ValueError(f"its SHA-256 is {found[:16]}..., not {download.sha256[:16]}...")
            os.fchmod(file.fileno(), 0o644)
    except (OSError, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise MissingRequirementError(
            f"{download.url} could not be fetched: {error}",
            "Check the network (a proxy is taken from HTTPS_PROXY), and that this version exists.",
        ) from error
    return path


def _name(download: Download) -> str:
    return f"{hashlib.sha256(download.url.encode()).hexdigest()[:16]}-{download.name}"


OFFICIAL = "debian:bookworm-slim"
TOOLS = ("iproute2", "iputils-ping", "procps")
# ping's file has a capability that hosts lack, so the kernel refuses to run it. A plain copy uses ICMP sockets, which
# the engine allows for all users (net.ipv4.ping_group_range).
PLAIN_PING = "cp /usr/bin/ping /usr/bin/ping.plain && mv /usr/bin/ping.plain /usr/bin/ping"
# Packages with alternatives fail to install if the folder of manual pages is missing.
_MAN = "mkdir -p /usr/share/man/man1 && "
_MAN_HOOK = 'mkdir -p "$1/usr/share/man/man1"'


def dockerfile(packages: Sequence[str] = ()) -> str:
    """The Dockerfile that makes the base image from the official one; with ``packages`` besides its own tools."""
    return f"""ARG BASE_IMAGE={OFFICIAL}
FROM ${{BASE_IMAGE}}
RUN {_MAN if packages else ""}apt-get update \\
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends {" ".join((*TOOLS, *packages))} \\
 && rm -rf /var/lib/apt/lists/* \\
 && {PLAIN_PING}
CMD ["/bin/sh"]
"""


_ANSWER_S = 5
_APT_TIMEOUT_S = 30.0
_PULL_DEADLINE_S = 180.0
_BOOTSTRAP_TIMEOUT_S = 900.0
# The root file system is unpacked here: /tmp is often small, in memory, or forbids device nodes.
WORK = Path("/var/tmp")
_WORK_PREFIX = "containernet-env-base."
_DEFAULT_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NO_DOCUMENTATION = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")
_KEYRINGS = {
    "debian": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "ubuntu": "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
}


def source_hash(packages: Sequence[str] = ()) -> str:
    """Hash of the required contents of the base image, with ``packages`` besides its own tools."""
    return assets.combine("base", dockerfile(packages), *_NO_DOCUMENTATION)


def make(tag: str, commands: Commands, log: Path, note: Callable[[str], None], more: Sequence[str] = ()) -> str:
    """Make the base image as ``tag``, with the packages ``more`` besides its own tools; returns how.

    Raises ``MissingRequirementError`` when neither way works.
    """
    try:
        with closing(engine.connect(_ANSWER_S)) as client:
            if not client.api.images(name=OFFICIAL):
                client.api.inspect_distribution(OFFICIAL)  # a registry may be out of reach
        # The engine pulls it. The host's network: the only one of an engine without a bridge.
        texts = {"Dockerfile": dockerfile(more).encode()}
        build_image(tag, context(texts, {}), source_hash(more), "host", OFFICIAL, commands.stopping)
        return f"from {OFFICIAL}"
    except (BuildError, *engine.UNREACHABLE) as error:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{OFFICIAL} is not used: {error}\n")
    return _from_packages(tag, commands, log, note, more)


def _from_packages(tag: str, commands: Commands, log: Path, note: Callable[[str], None], more: Sequence[str]) -> str:
    if programs.which(packages.IMAGE_BUILDER) is None:
        packages.install([packages.IMAGE_BUILDER], commands, log, note)
    remove_leftovers()
    argv = [packages.IMAGE_BUILDER, "--mode=root", "--variant=minbase", f"--include={','.join((*TOOLS, *more))}"]
    argv += [f"--essential-hook={_MAN_HOOK}"] if more else []
    argv.append(f"--customize-hook=chroot \"$1\" sh -c '{PLAIN_PING}'")
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in _NO_DOCUMENTATION]
    distribution, suite, lines = apt_sources()
    work = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=WORK))
    try:
        archive = work / "root.tar"
        try:
            env = {**packages.environment(), "TMPDIR": str(work)}
            commands.run([*argv, suite, str(archive), *lines], log, timeout_s=_BOOTSTRAP_TIMEOUT_S, env=env)
        except CommandError as error:
            what = f"the base image was not made: no registry has {OFFICIAL}, and the packages failed"
            remedy = f"Check the network, or load {OFFICIAL} by hand (docker load)."
            raise error.missing(what, remedy, remedy) from error
        _import(archive, tag, image_labels(source_hash(more)))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return f"made with mmdebstrap from {distribution} {suite}"


def apt_sources() -> tuple[str, str, list[str]]:
    """The distribution's id, its suite, and the machine's own package sources of it as lines for mmdebstrap.

    Foreign sources on the machine are left out; without any left, mmdebstrap takes the suite's default.
    """
    release = platform.freedesktop_os_release()
    distribution, suite = release.get("ID", ""), release.get("VERSION_CODENAME", "")
    if distribution not in _KEYRINGS or not suite:
        # A derivative's own archive may lack our tools; Debian's works with every kernel.
        return "debian", "bookworm", []
    form = "$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)"
    argv = [programs.require("apt-get"), "indextargets", "--format", form, "Created-By: Packages"]
    return distribution, suite, source_lines(distribution, suite, output_of(argv, _APT_TIMEOUT_S) or "")


def source_lines(distribution: str, suite: str, listed: str) -> list[str]:
    """sources.list lines of ``distribution``'s main archive for ``suite`` and its updates.

    ``listed`` has a line "URI RELEASE COMPONENT ORIGIN" per source of the machine.
    """
    keyring = _KEYRINGS[distribution]
    option = f"[signed-by={keyring}] " if Path(keyring).exists() else ""
    wanted = {suite, f"{suite}-updates", f"{suite}-security"}
    found = []
    for line in listed.splitlines():
        uri, release, component, origin = [*line.split(), "", "", "", ""][:4]
        if release in wanted and component == "main" and origin.lower() == distribution:
            found.append(f"deb {option}{uri} {release} main")
    return list(dict.fromkeys(found)) if any(f" {suite} main" in line for line in found) else []


def remove_leftovers() -> None:
    """Remove the root file system of a killed set-up, unless something is mounted in it."""
    mounted = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    for path in WORK.glob(f"{_WORK_PREFIX}*"):
        if f" {path}/" not in mounted:
            shutil.rmtree(path, ignore_errors=True)


def _import(archive: Path, tag: str, labels: Mapping[str, str]) -> None:
    repository, _, name = tag.partition(":")
    changes = [f"LABEL {json.dumps(key)}={json.dumps(value)}" for key, value in labels.items()]
    try:
        with closing(patient_client()) as client:
            answer: Any = client.api.import_image_from_file(
                str(archive),
                repository=repository,
                tag=name,
                changes=[*changes, f"ENV {_DEFAULT_PATH}", 'CMD ["/bin/sh"]'],
            )
        if '"error"' in str(answer):
            raise APIError(str(answer))
    except APIError as error:
        raise MissingRequirementError(
            f"the engine refused the base image: {error.explanation or error}",
            "Look at the engine's log and its free disk, then run again.",
        ) from error


# The clone or installation whose set-up made an image: several on a machine do not remove each other's images.
LABEL_CLONE = "containernet-env.clone"
_CALL_TIMEOUT_S = 600
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


class BuildError(Exception):
    """The engine refused or failed to build; the message has its reason and last lines."""


def image_labels(source: str) -> dict[str, str]:
    """The labels of an image of ours that is made here from the sources with hash ``source``."""
    return {**engine.labels(), engine.LABEL_SOURCE: source, LABEL_CLONE: str(assets.ROOT)}


def patient_client() -> docker.DockerClient:
    """A client for calls that move whole images. The caller closes it."""
    return engine.connect(_CALL_TIMEOUT_S)


def context(texts: Mapping[str, bytes], files: Mapping[str, Path]) -> IO[bytes]:
    """A build context as an open temporary tar file: ``texts`` by content, ``files`` by path; all executable.

    Owner and times are fixed, so that equal contents give equal layers. The caller closes it.
    """
    output = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    contents = chain(texts.items(), ((name, path.read_bytes()) for name, path in files.items()))
    with tarfile.open(fileobj=output, mode="w") as archive:
        for name, content in contents:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    output.seek(0)
    return output


def build_image(
    tag: str, build_context: IO[bytes], source: str, network: str, base: str, stopping: clock.Event
) -> None:
    """Build ``tag`` from ``build_context`` (closed here) on ``base``; the tag appears when it is complete.

    ``source`` is the hash of its sources. ``network`` is the one that RUN lines see; if set, they have the proxies of
    the environment, which the image does not keep. Raises ``BuildError`` with the builder's last lines, one of
    ``engine.UNREACHABLE``, or ``Stopped`` once ``stopping`` is set (the engine ends a build when the connection
    closes).
    """
    proxies = {key: os.environ[key] for key in _PROXIES if key in os.environ and network != "none"}
    lines: list[str] = []
    with build_context, closing(patient_client()) as client:
        events = client.api.build(
            fileobj=build_context,
            custom_context=True,
            tag=tag,
            labels=image_labels(source),
            buildargs={"BASE_IMAGE": base, **proxies},
            network_mode=network,
            rm=True,
            forcerm=True,
            decode=True,
        )
        deadline_s = clock.monotonic() + _PULL_DEADLINE_S
        for event in events:
            if stopping.is_set():
                raise Stopped
            if "status" in event and clock.monotonic() > deadline_s:  # of a pull
                raise BuildError(f"pulling {base} took longer than {_PULL_DEADLINE_S:.0f} s")
            if "error" in event:
                raise BuildError("\n".join([*lines[-6:], event["error"].strip()]))
            if text := event.get("stream", "").strip():
                lines.append(text)


NAMESPACE = "containernet-env"
REPOSITORIES = tuple(f"{NAMESPACE}/{name}" for name in ("etcd", "benchmark", "base"))
_BASE = f"{NAMESPACE}/base"
_TAG_DIGITS = 12
_DOCKERFILE = "Dockerfile"
_GATE_FOLDER = "etcd_image"
# RUN lines of our Dockerfiles need no network, and an engine may have none.
_NETWORK = "none"


@dataclass(frozen=True)
class Images:
    """The tags of the images that the current sources need for a run: of its store, and of the load."""

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
        return base_tag(self.packages)


def tag_of(name: str, source: str) -> str:
    """The tag of image ``name`` made from the sources with hash ``source``."""
    return f"{NAMESPACE}/{name}:{source[:_TAG_DIGITS]}"


def base_tag(packages: tuple[str, ...] = ()) -> str:
    """The tag of the required base image, or of the one with these packages."""
    return tag_of("base-with" if packages else "base", source_hash(packages))


def recipe(parts: ImageParts, go_version: str) -> Recipe:
    """The image that is made of these parts; without programs that are not built yet."""
    root, module, scripts = assets.ROOT, parts.module, parts.scripts
    own_folder = module.folder if module is not None else root / f"{parts.name}_image"
    folder = own_folder if parts.folder is None else root / parts.folder
    own = {name: folder / name for name in (_DOCKERFILE, *scripts)}
    gate = {GATE_SCRIPT: root / _GATE_FOLDER / GATE_SCRIPT} if parts.gated else {}
    try:
        hashes = [assets.hash_files(folder, own.values()), assets.hash_files(root, gate.values())]
    except FileNotFoundError as error:
        raise MissingRequirementError(
            f"{error.filename} is missing: this clone or installation is not complete", assets.RESTORE
        ) from error
    programs_hash = module.source_hash(go_version) if module is not None else ""
    fetched = [item for file in parts.files for item in (file.name, file.url, file.sha256)]
    base = source_hash(parts.packages)
    users = [parts.binary.sha256] if parts.binary is not None else []
    source = assets.combine(parts.name, base, programs_hash, *hashes, *fetched, *users)
    found = programs.find(module, go_version) if module is not None else None
    built = {name: found / name for name in module.packages} if module is not None and found is not None else {}
    there = {file.name: path for file in parts.files if (path := find(file)) is not None}
    return Recipe(parts.label, source, {**own, **gate, **built, **there}, parts.packages, parts.binary)


def recipes(go_version: str, store: Store = DEFAULT) -> tuple[Recipe, ...]:
    """The recipes of the store's image, the benchmark's, and the default store's if it differs.

    ``go_version`` as in the hashes of their programs.
    """
    module = next(module for module in assets.modules() if module.name == "benchmark")
    benchmark = recipe(ImageParts("benchmark", module=module, gated=False), go_version)
    member, default = (recipe(kind.image, go_version) for kind in (store, DEFAULT))
    return (member, benchmark) if member.tag == default.tag else (member, benchmark, default)


def required_images(store: Store = DEFAULT) -> Images:
    """The tags that a run must use. Raises ``MissingRequirementError`` before the first build."""
    go_version = builds.go_version()
    if go_version is None:
        raise MissingRequirementError("nothing has been built yet", assets.set_up_hint())
    member, benchmark = recipes(go_version, store)[:2]
    return Images(member=member.tag, benchmark=benchmark.tag)


def present() -> set[str]:
    """The tags of all images with our label."""
    return {tag for row in _labelled() for tag in row.get("RepoTags") or ()}


def digest(tag: str) -> str | None:
    """The id ("sha256:...") of the image with that tag; None if there is none."""
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
    users = {} if wanted.binary is None else {USER_PROGRAM: wanted.binary.content()}
    try:
        build_image(wanted.tag, context(users, wanted.files), wanted.source, _NETWORK, wanted.base, stopping)
    except (BuildError, *engine.UNREACHABLE) as error:
        log.write_text(f"{error}\n", encoding="utf-8")
        raise MissingRequirementError(
            f"the image {wanted.tag} was not built: {error}",
            f"Look at the engine's log and its free disk, then run again. Details: {log}",
        ) from error


def remove_older(keep: set[str], root: Path = assets.ROOT) -> list[str]:
    """Remove images of ours that are none of ``keep`` and that no container uses; returns their tags.

    Images of stores that no image of ``keep`` belongs to stay.

    Ours are those made by the clone or installation at ``root``, and by ones that no longer exist.
    Only tags of our repositories on images with our label are touched: a user's image based on one of ours
    inherits the label, but not the name.
    """
    with engine.refusals("the engine does not list its containers"):
        in_use = {row["ImageID"] for row in engine.client().api.containers(all=True)}
    rows = [row for row in _labelled() if row["Id"] not in in_use and not _belongs_to_another(row, root)]
    tags = [tag for row in rows for tag in row.get("RepoTags") or () if tag not in keep]
    repositories = {*REPOSITORIES, *(tag.rpartition(":")[0] for tag in keep)}
    removed = []
    # Images made on the base are removed before it; the engine refuses the other order.
    for tag in sorted(tags, key=lambda tag: tag.startswith(_BASE)):
        if tag.rpartition(":")[0] not in repositories:
            continue
        with engine.refusals(f"the image {tag} could not be removed"):
            try:
                engine.client().api.remove_image(tag)
                removed.append(tag)
            except APIError as error:
                # 404: it is gone. 409: a container uses it now, or another image is based on it; a later set-up
                # removes it.
                if error.status_code not in (404, 409):
                    raise
    return removed


def _belongs_to_another(row: Mapping[str, Any], root: Path) -> bool:
    """Whether the image was made by the set-up of another clone that still exists."""
    clone = (row.get("Labels") or {}).get(LABEL_CLONE, "")
    return clone not in ("", str(root)) and (Path(clone) / "etcd_image" / "go.mod").exists()
