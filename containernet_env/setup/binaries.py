"""The programs in bin/: which are fresh, and building those that are not.

Each lands by rename. bin/.sources.json, written by rename after it, says what a program was built from and
what the file then was: a program that was changed, cut short or never finished is built again.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from containernet_env.base.errors import MissingRequirementError
from containernet_env.setup import go, sources
from containernet_env.setup.commands import CommandError, Commands
from containernet_env.setup.sources import GoModule

STAMP = ".sources.json"
_BUILD_TIMEOUT_S = 1800.0
_NO_NETWORK = ("dial tcp", "no such host", "connection refused", "i/o timeout", "TLS handshake timeout")


@dataclass(frozen=True)
class Built:
    """What the stamp holds of one program. ``state`` is (inode, size_bytes, mtime_ns, ctime_ns)."""

    source: str
    sha256: str
    go: str
    state: tuple[int, int, int, int]


def state_of(path: Path) -> tuple[int, int, int, int]:
    """What changes whenever a file's contents do (the kernel alone sets ctime). OSError if it is missing."""
    stat = path.stat()
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


class Binaries:
    """The programs of the project in one folder. Safe to use from threads."""

    def __init__(self, folder: Path = sources.BIN) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._stamp = self._read()

    def _read(self) -> dict[str, Built]:
        try:
            raw = json.loads((self.folder / STAMP).read_text(encoding="utf-8"))
            return {name: Built(**{**entry, "state": tuple(entry["state"])}) for name, entry in raw.items()}
        except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
            # No stamp, or a damaged one, or one of another form: all is built again, which is just slow.
            return {}

    def go_version(self) -> str | None:
        """The version that hashes are made with: the Go found now, else the one of the last build."""
        found = go.find()
        if found is not None:
            return found.version
        return next((entry.go for entry in self._stamp.values()), None)

    def is_fresh(self, module: GoModule, go_version: str) -> bool:
        """Whether every program of ``module`` is the one that its sources now make."""
        wanted = module.source_hash(go_version)
        return all(self._matches(name, wanted) for name in module.packages)

    def _matches(self, name: str, source: str) -> bool:
        entry = self._stamp.get(name)
        path = self.folder / name
        if entry is None or entry.source != source or not os.access(path, os.X_OK):
            return False
        return state_of(path) == entry.state or sources.hash_file(path) == entry.sha256

    def build(self, module: GoModule, toolchain: go.Go, commands: Commands, log: Path) -> None:
        """Build the programs of ``module`` into the folder, or raise ``MissingRequirementError``."""
        source = module.source_hash(toolchain.version)
        linker = sources.LINKER_FLAGS + (f" -X main.sourceHash={source}" if module.ours else "")
        for name, package in module.packages.items():
            partial = self.folder / f".{name}.partial"
            argv = [toolchain.path, "build", "-trimpath", "-ldflags", linker, "-o", str(partial), package]
            try:
                commands.run(argv, log, timeout_s=_BUILD_TIMEOUT_S, cwd=module.folder, env=go.environment())
            except CommandError as error:
                raise _not_built(name, error) from error
            self._land(name, partial, source, toolchain.version)

    def _land(self, name: str, partial: Path, source: str, go_version: str) -> None:
        digest = sources.hash_file(partial)
        os.replace(partial, self.folder / name)
        with self._lock:
            self._stamp[name] = Built(source, digest, go_version, state_of(self.folder / name))
            text = json.dumps({key: asdict(entry) for key, entry in self._stamp.items()}, indent=2)
            temporary = self.folder / f"{STAMP}.partial"
            temporary.write_text(text + "\n", encoding="utf-8")
            os.replace(temporary, self.folder / STAMP)


def _not_built(name: str, error: CommandError) -> MissingRequirementError:
    shown = "\n".join(f"    {line}" for line in error.tail)
    if any(sign in line for line in error.tail for sign in _NO_NETWORK):
        remedy = "Check the network: Go modules are fetched through GOPROXY (a proxy is taken from HTTPS_PROXY)."
    else:
        remedy = "If the sources were changed, mend what Go names; else clone again."
    return MissingRequirementError(f"{name} was not built: {error}\n{shown}", f"{remedy} Details: {error.log}")
