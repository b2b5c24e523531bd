"""The benchmark server as a process of this machine, for a cluster that somebody else runs."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from containernet_env.base import programs as life
from containernet_env.base.programs import LastWords, ending, last_words
from containernet_env.hosts.http import UnixConnection
from containernet_env.model.config import PASSWORD_VARIABLE, External
from containernet_env.runs.load import SERVER_ENTRY_POINT
from containernet_env.setup.commands import Ending, guarded

_END_TIMEOUT_S = 10.0
_SOCKET = "server.sock"
# The server gives its client 5 s (endGrace in benchmark_image/internal/api/runner.go).
_ENDING = Ending(signal.SIGTERM, leader_only=False, grace_s=8.0)
_NAMES = {"ca": "ca.pem", "cert": "cert.pem", "key": "key.pem", "token": "token"}


class LocalServer:
    """`benchmark-server` on a Unix socket; it ends when this process has ended, however that did.

    ``programs`` is the folder of its programs, ``folder`` one of its own, private to this user, where it keeps its
    socket, log, results, and links to the user's certificates and token. The password is in its environment alone.
    """

    name = "benchmark server"

    def __init__(self, programs: Path, folder: Path, external: External, password: str | None) -> None:
        self._programs = programs
        self._folder = folder
        self._external = external
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    @property
    def request(self) -> dict[str, str]:
        """The fields that let a load in (benchmark_image/README.md)."""
        fields = {} if self._external.user is None else {"user": self._external.user}
        return fields | {f"{kind}File": _NAMES[kind] for kind in self._files}

    @property
    def _files(self) -> dict[str, Path]:
        """The user's files by what they are."""
        tls = self._external.tls
        given = {} if tls is None else {"ca": tls.ca, "cert": tls.cert, "key": tls.key}
        found = {**given, "token": self._external.token_file}
        return {kind: path for kind, path in found.items() if path is not None}

    @property
    def connection(self) -> UnixConnection:
        """To the server, once it serves."""
        return UnixConnection(self.name, self._folder / _SOCKET)

    def start(self) -> None:
        """Start it; it serves later."""
        credentials = self._folder / "credentials"
        credentials.mkdir(mode=0o700)
        for kind, path in self._files.items():
            (credentials / _NAMES[kind]).symlink_to(os.path.abspath(path))
        allowed = ",".join(endpoint.address for endpoint in self._external.endpoints)
        argv = [str(self._programs / SERVER_ENTRY_POINT), f"--listen=unix:{_SOCKET}", f"--allow={allowed}"]
        argv += [f"--credentials={credentials}", f"--results={self._folder / 'results'}"]
        environment = {"PATH": os.defpath}
        if self._password is not None:
            environment[PASSWORD_VARIABLE] = self._password
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                guarded(argv, _ENDING),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self._folder,
                pass_fds=(life.descriptor(),),
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        """See ``runs.target.ClientHost``."""
        return self._process is not None and self._process.poll() is None

    def ending(self, words: LastWords = last_words) -> str | None:
        """See ``runs.target.ClientHost``."""
        if self._process is None or self._process.poll() is None:
            return None
        return ending(self._process.returncode, self.logs(), words)

    def why_gone(self) -> str | None:
        """That it has ended, and how; None while it runs."""
        ending = self.ending()
        return None if ending is None else f"the benchmark server did not start: {ending}"

    def logs(self) -> str:
        """What it has said; empty before it was started."""
        try:
            return self._log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def close(self) -> None:
        """End it and its client. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # Whatever is left in its session.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
