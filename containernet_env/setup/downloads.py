"""Files that images are made of and that are fetched by their address, each checked by its checksum, into the cache."""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import IO

from containernet_env.base import cache, clock, sources
from containernet_env.base.errors import MissingRequirementError
from containernet_env.setup.commands import Stopped
from containernet_env.stores.protocol import Download

_FOLDER = "downloads"
_SILENCE_S = 30.0
_MOST_BYTES = 200 << 20
_PIECE_BYTES = 1 << 16


def find(download: Download) -> Path | None:
    """The file in the cache, where it is there."""
    for cached in cache.trusted():
        path = cached / _FOLDER / _name(download)
        if path.is_file() and sources.hash_file(path) == download.sha256:
            return path
    return None


def fetch(download: Download, stopping: clock.Event) -> Path:
    """Fetch a file into the cache.

    Raises ``MissingRequirementError`` where it cannot be had or is another one, and ``Stopped`` once ``stopping`` is
    set; nothing is left of it then.
    """
    if (cached := find(download)) is not None:
        return cached
    home = cache.make() / _FOLDER
    home.mkdir(mode=0o755, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".partial-", dir=home)
    partial = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _receive(download.url, file, stopping)
        if (found := sources.hash_file(partial)) != download.sha256:
            raise ValueError(f"its SHA-256 is {found[:16]}..., not {download.sha256[:16]}...")
        partial.chmod(0o644)
        return partial.rename(home / _name(download))
    except (OSError, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise MissingRequirementError(
            f"{download.url} could not be fetched: {error}",
            "Check the network (a proxy is taken from HTTPS_PROXY), and that there is such a version.",
        ) from error
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()


def _name(download: Download) -> str:
    return f"{hashlib.sha256(download.url.encode()).hexdigest()[:16]}-{download.name}"


def _receive(url: str, file: IO[bytes], stopping: clock.Event) -> None:
    received = 0
    with urllib.request.urlopen(url, timeout=_SILENCE_S) as answer:
        while piece := answer.read(_PIECE_BYTES):
            if stopping.is_set():
                raise Stopped
            received += len(piece)
            if received > _MOST_BYTES:
                raise ValueError(f"it has more than {_MOST_BYTES} bytes")
            file.write(piece)
