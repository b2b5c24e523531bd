"""The base image of every host: Debian with the few network tools that hosts need.

The official slim image where a registry answers within seconds; else made on this machine with mmdebstrap.
Both ways give the same tools, so its hash covers what is wanted, not the way; a label tells that.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError

from containernet_env.base import clock, sources, system_path
from containernet_env.base.errors import MissingRequirementError
from containernet_env.hosts import engine
from containernet_env.setup import image_build, packages
from containernet_env.setup.commands import CommandError, Commands, Stopped

OFFICIAL = "debian:bookworm-slim"
TOOLS = ("iproute2", "iputils-ping", "procps")
LABEL_ORIGIN = "containernet-env.origin"
# ping's file carries a capability that hosts do not have, and the kernel then refuses to run it at all. A plain copy
# uses the ICMP sockets that the engine allows everybody (net.ipv4.ping_group_range).
PLAIN_PING = "cp /usr/bin/ping /usr/bin/ping.plain && mv /usr/bin/ping.plain /usr/bin/ping"
# Alternatives have pages of the manual, and a package that cannot link its own there is not installed.
_MAN = "mkdir -p /usr/share/man/man1 && "
_MAN_HOOK = 'mkdir -p "$1/usr/share/man/man1"'


def dockerfile(packages: Sequence[str] = ()) -> str:
    """How the base image is made of the official one; with ``packages`` besides its own tools."""
    return f"""ARG BASE_IMAGE={OFFICIAL}
FROM ${{BASE_IMAGE}}
RUN {_MAN if packages else ""}apt-get update \\
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends {" ".join((*TOOLS, *packages))} \\
 && rm -rf /var/lib/apt/lists/* \\
 && {PLAIN_PING}
CMD ["/bin/sh"]
"""


_ANSWER_S = 5
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
    """Hash of what the base image has to be, with ``packages`` besides its own tools."""
    return sources.combine("base", dockerfile(packages), *_NO_DOCUMENTATION)


def make(tag: str, commands: Commands, log: Path, note: Callable[[str], None], more: Sequence[str] = ()) -> str:
    """Make the base image as ``tag``, with the packages ``more`` besides its own tools; says how.

    Raises ``MissingRequirementError`` when neither way works.
    """
    reason = registry_problem()
    if reason is None:
        try:
            return _from_official(tag, commands, more)
        except (image_build.BuildError, *engine.UNREACHABLE) as error:
            reason = str(error)
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{OFFICIAL} is not used: {reason}\n")
    return _from_packages(tag, commands, log, note, more)


def registry_problem() -> str | None:
    """Why the official image cannot be had, as one line; None where it is here or its registry answers."""
    try:
        with closing(engine.connect(_ANSWER_S)) as client:
            if not client.api.images(name=OFFICIAL):
                client.api.inspect_distribution(OFFICIAL)
    except engine.UNREACHABLE as error:
        return str(error).splitlines()[0]
    return None


def _from_official(tag: str, commands: Commands, more: Sequence[str]) -> str:
    client = image_build.patient_client()
    try:
        if not client.api.images(name=OFFICIAL):
            _pull(client, commands)
        # The host's network: an engine without a bridge has no other.
        image_build.build(
            client,
            tag,
            image_build.context({"Dockerfile": dockerfile(more).encode()}, {}),
            labels=image_labels(OFFICIAL, more),
            network="host",
            base=OFFICIAL,
            stopping=commands.stopping,
        )
    finally:
        client.close()
    return f"from {OFFICIAL}"


def _pull(client: docker.DockerClient, commands: Commands) -> None:
    repository, _, name = OFFICIAL.partition(":")
    deadline = clock.monotonic() + _PULL_DEADLINE_S
    for event in client.api.pull(repository, tag=name, stream=True, decode=True):
        if "error" in event:
            raise image_build.BuildError(event["error"])
        if commands.stopping.is_set():
            raise Stopped
        if clock.monotonic() > deadline:
            raise TimeoutError(f"the pull took longer than {_PULL_DEADLINE_S:.0f} s")


def _from_packages(tag: str, commands: Commands, log: Path, note: Callable[[str], None], more: Sequence[str]) -> str:
    if system_path.find(packages.IMAGE_BUILDER) is None:
        packages.install([packages.IMAGE_BUILDER], commands, log, note)
    remove_leftovers()
    distribution, suite, lines = apt_sources()
    work = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=WORK))
    try:
        archive = work / "root.tar"
        try:
            commands.run(
                bootstrap_command(suite, archive, lines, more),
                log,
                timeout_s=_BOOTSTRAP_TIMEOUT_S,
                env={**packages.environment(), "TMPDIR": str(work)},
            )
        except CommandError as error:
            shown = "\n".join(f"    {line}" for line in error.tail)
            raise MissingRequirementError(
                f"the base image was not made: no registry has {OFFICIAL}, and {error}\n{shown}",
                f"Check the network, or load {OFFICIAL} by hand (docker load). Details: {log}",
            ) from error
        origin = f"{distribution} {suite}, mmdebstrap"
        _import(archive, tag, image_labels(origin, more))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return f"made with mmdebstrap from {distribution} {suite}"


def bootstrap_command(suite: str, archive: Path, lines: list[str], more: Sequence[str] = ()) -> list[str]:
    """mmdebstrap's command line for a root file system with our tools and ``more``, from the sources ``lines``."""
    hooks = [f"--essential-hook={_MAN_HOOK}"] if more else []
    without = [f"--dpkgopt=path-exclude={pattern}" for pattern in _NO_DOCUMENTATION]
    return [
        packages.IMAGE_BUILDER,
        "--mode=root",
        "--variant=minbase",
        f"--include={','.join((*TOOLS, *more))}",
        *hooks,
        f"--customize-hook=chroot \"$1\" sh -c '{PLAIN_PING}'",
        *without,
        suite,
        str(archive),
        *lines,
    ]


def apt_sources() -> tuple[str, str, list[str]]:
    """The distribution's id, its suite, and the machine's own package sources of it as lines for mmdebstrap.

    Foreign sources on the machine are left out; without any left, mmdebstrap takes the suite's default.
    """
    release = dict(_assignments(Path("/etc/os-release").read_text(encoding="utf-8")))
    distribution, suite = release.get("ID", ""), release.get("VERSION_CODENAME", "")
    if distribution not in _KEYRINGS or not suite:
        # A derivative's own archive need not have our tools; Debian's own serves every kernel.
        return "debian", "bookworm", []
    form = "$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)"
    listed = subprocess.run(
        [system_path.require("apt-get"), "indextargets", "--format", form, "Created-By: Packages"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return distribution, suite, source_lines(distribution, suite, listed.stdout)


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


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not key.startswith("#"):
            yield key.strip(), "".join(shlex.split(value))


def remove_leftovers() -> None:
    """Remove what a killed set-up left of its root file system, unless something is mounted in it."""
    mounted = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    for path in WORK.glob(f"{_WORK_PREFIX}*"):
        if f" {path}/" not in mounted:
            shutil.rmtree(path, ignore_errors=True)


def image_labels(origin: str, more: Sequence[str] = ()) -> dict[str, str]:
    """The labels of the base image; ``origin`` says what it was made from."""
    return {**image_build.image_labels(source_hash(more)), LABEL_ORIGIN: origin}


def _import(archive: Path, tag: str, labels: Mapping[str, str]) -> None:
    repository, _, name = tag.partition(":")
    changes = [f"LABEL {json.dumps(key)}={json.dumps(value)}" for key, value in labels.items()]
    client = image_build.patient_client()
    try:
        answer: Any = client.api.import_image_from_file(
            str(archive),
            repository=repository,
            tag=name,
            changes=[*changes, f"ENV {_DEFAULT_PATH}", 'CMD ["/bin/sh"]'],
        )
    except APIError as error:
        raise MissingRequirementError(
            f"the engine did not take the base image: {error.explanation or error}",
            "Look at the engine's log and its free disk, then run again.",
        ) from error
    finally:
        client.close()
    if '"error"' in str(answer):
        raise MissingRequirementError(
            f"the engine did not take the base image: {answer}", "Look at the engine's log and its free disk."
        )
