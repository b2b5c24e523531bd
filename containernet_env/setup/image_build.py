"""Builds one image with the engine's own builder, from a context that is composed here."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import docker

from containernet_env.base import assets, clock
from containernet_env.hosts import engine
from containernet_env.setup.commands import Stopped

# The clone or install whose set-up made an image: those of several on a machine leave each other's images alone.
LABEL_CLONE = "containernet-env.clone"
_CALL_TIMEOUT_S = 600
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


class BuildError(Exception):
    """The engine refused or failed to build; the message holds its reason and last lines."""


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
    with tarfile.open(fileobj=output, mode="w") as archive:
        for name, content in texts.items():
            archive.addfile(_entry(name, len(content)), io.BytesIO(content))
        for name, path in files.items():
            with path.open("rb") as file:
                archive.addfile(_entry(name, path.stat().st_size), file)
    output.seek(0)
    return output


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mode = 0o755
    return entry


def build(
    client: docker.DockerClient,
    tag: str,
    build_context: IO[bytes],
    *,
    labels: Mapping[str, str],
    network: str,
    base: str,
    stopping: clock.Event,
) -> None:
    """Build ``tag`` from ``build_context`` (closed here) on ``base``; the tag appears when all is done.

    ``network`` is the one that RUN lines see; where there is one, they have the proxies of the environment, which the
    image does not keep. Raises ``BuildError`` with the builder's last
    lines, ``Stopped`` once ``stopping`` is set (the engine ends a build whose caller is gone).
    """
    proxies = {key: os.environ[key] for key in _PROXIES if key in os.environ and network != "none"}
    lines: list[str] = []
    with build_context:
        events = client.api.build(
            fileobj=build_context,
            custom_context=True,
            tag=tag,
            labels=dict(labels),
            buildargs={"BASE_IMAGE": base, **proxies},
            network_mode=network,
            rm=True,
            forcerm=True,
            decode=True,
        )
        for event in events:
            if stopping.is_set():
                raise Stopped
            if "error" in event:
                raise BuildError("\n".join([*lines[-6:], event["error"].strip()]))
            if text := event.get("stream", "").strip():
                lines.append(text)
