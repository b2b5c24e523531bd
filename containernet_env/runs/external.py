"""An external cluster as a target: no hosts, no links; nothing of it is started or changed.

See ``runs.target.Target``. The load comes from a benchmark server on this machine; its keys are under a prefix of the
run's own, and are removed when the run ends.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from containernet_env.base.errors import RunError, text_of
from containernet_env.base.programs import ending, last_words
from containernet_env.base.work import Stop, persistently, side_by_side
from containernet_env.config.plan import Plan
from containernet_env.config.planning import keys_of
from containernet_env.hosts.counters import Pids
from containernet_env.hosts.http import TcpConnection, UnixConnection
from containernet_env.model.config import PASSWORD_VARIABLE, External
from containernet_env.model.usage import leader_words
from containernet_env.runs import external_access
from containernet_env.runs.load import SERVER_ENTRY_POINT, BenchmarkServer
from containernet_env.runs.progress import OnEvent, RunProgress
from containernet_env.runs.target import Loader, Target
from containernet_env.setup.builds import ready_load_programs
from containernet_env.setup.commands import Ending, Guarded
from containernet_env.stores.external import ClusterLook, ExternalCluster, OwnKeys
from containernet_env.stores.kinds import store_of

_SOCKET = "server.sock"
# The server gives its client 5 s (endGrace in benchmark_image/internal/api/runner.go).
_ENDING = Ending(signal.SIGTERM, leader_only=False, grace_s=8.0)
_NAMES = {"ca": "ca.pem", "cert": "cert.pem", "key": "key.pem", "token": "token"}
_SERVER_TIMEOUT_S = 20.0
# TCP connections that are opened to each endpoint before a scenario, and after it.
RTT_SAMPLES = 10
_RTT_TIMEOUT_S = 2.0


class ExternalTestbed(Target):
    """Replaces ``runs.testbed.Testbed`` if the plan names endpoints."""

    cluster: ExternalCluster[Any]
    hosts_kind = "external"
    links_kind = "external"
    unseen: str | None = "external cluster: CPU, disks and network of its members are not observable"
    consists_of = "the load and its keys"

    def __init__(self, plan: Plan, progress: RunProgress, on_event: OnEvent, stop: Stop) -> None:
        super().__init__(plan, progress, on_event, stop)
        self._external = external_access.external_of(plan.config)
        own_prefix = self._external.prefix_of(plan.run_id)
        self._own = OwnKeys(own_prefix, keys_of(plan))
        self.load_terms, self.key_prefix = store_of(plan.config).place(own_prefix)
        self._connections: Sequence[TcpConnection] = ()
        self._look: ClusterLook | None = None
        self._local: LocalServer | None = None
        self._server: BenchmarkServer | None = None
        self._folder: Path | None = None

    def loader(self, client: str | None) -> Loader:
        assert self._local is not None and self._server is not None
        return self._local, self._server

    def client_rtts_ns(self) -> Mapping[str, Sequence[int]]:
        names = [node.name for node in self.plan.config.nodes]
        return dict(zip(names, side_by_side(_rtts_ns, self._connections, len(names)), strict=True))

    def up(self) -> None:
        """Check the cluster, remove leftovers of killed runs, and start the benchmark server. Raises RunError."""
        login = external_access.login_of(self._external)
        programs = ready_load_programs(self.progress, self.stop)
        self._connections = external_access.connections_to(self._external)
        self.cluster = external_access.cluster_of(self.plan.config, self._own)
        self._closing.append(self.cluster.close)
        with self.progress.stage("cluster") as stage:
            look = self._look = external_access.inspect(self.cluster, self.plan.config)
            external_access.require_usable(look, self.plan.config)
            self.led_at_start = look.leadership
            external_access.clean_up(self.plan.config, look.identity, self._report_cleaned, self.progress.note)
            if count := persistently(self.cluster.keys, external_access.AGAIN_S):
                raise RunError(
                    f"{count:,} keys are under {self._own.prefix} already, which are not of this run\n"
                    '  Nothing was written. Remove them, or name another "prefix".'
                )
            persistently(lambda: external_access.refuse(self.cluster.may_load()), external_access.AGAIN_S)
            leader = leader_words(self.led_at_start) or "leader not among them"
            text = f"{len(look.members)} endpoints answer, {leader}"
            stage.done(text)
            self.on_event("cluster_up", text)
        self.stop.check()
        self._folder = external_access.begin(self.plan.config, self.plan.run_id, look.identity, self._own)
        unusable = f"the cluster of {self.plan.config.path} cannot be measured: "
        persistently(lambda: external_access.refuse(self.cluster.try_write(), unusable), external_access.AGAIN_S)
        password = login.password if login is not None and login.user is not None else None
        self._local = LocalServer(programs, self._folder, self._external, password)
        self._local.start()
        self._server = BenchmarkServer(self._local.connection, self._local.request)
        self._server.wait_ready(_SERVER_TIMEOUT_S, self._local.why_gone)

    def _report_cleaned(self, record: external_access.Record, done: str | None) -> None:
        text = f"another run loads this cluster now, under {record.prefix}: their measurements disturb each other"
        if done is not None:
            text = f"{done}, left behind by a killed run"
        self.progress.note(text)
        self.on_event("leftovers", text)

    def down(self) -> None:
        """End the load, remove every key of the run and its record. Idempotent. Raises RunError if keys remain."""
        if self._local is not None:
            self._local.close()
        try:
            if self._folder is not None:
                self.after_down = self._remove_keys()
                external_access.end(self._folder)
                self._folder = None
        finally:
            for close in self._closing:
                close()

    def _remove_keys(self) -> str:
        """Remove the keys of the run; returns a sentence about the remaining ones."""
        if self.plan.config.keys_stay:
            count = sum(keys.count for keys in self._own.generated)
            return f"up to {count:,} keys stay under {self._own.prefix}, as configured"
        try:
            removed = self.cluster.remove_keys(external_access.removal_report(self.progress.note))
        except Exception as error:
            raise RunError(
                f"keys under {self._own.prefix} are left: {text_of(error)}\n"
                f"  Once the cluster answers: containernet-env clean {self.plan.config.path}"
            ) from error
        return f"{removed:,} keys removed; nothing of this run is left"

    def host_facts(self) -> dict[str, Any]:
        """By member: its endpoint, name and version."""
        return {
            look.name: {"endpoint": look.url, "member": look.member_name, "version": look.version}
            for look in (self._look.members if self._look is not None else ())
        }

    def pids(self) -> Pids:
        """The processes whose usage is sampled: the load reports its own."""
        return Pids({}, None, None, os.getpid())

    def logs(self) -> Iterator[tuple[str, str]]:
        if self._local is not None:
            yield "benchmark", self._local.logs()


def _rtts_ns(connection: TcpConnection) -> list[int]:
    """RTTs to one endpoint; those until the first that fails."""
    found: list[int] = []
    with suppress(RunError):
        while len(found) < RTT_SAMPLES:
            found.append(connection.rtt_ns(_RTT_TIMEOUT_S))
    return found


class LocalServer:
    """`benchmark-server` on a Unix socket; it ends when this process has ended, in whatever way.

    ``programs`` is the folder of its programs, ``folder`` its own, private to this user, for its socket, log, results,
    and links to the user's certificates and token. The password is only in its environment.
    """

    name = "benchmark server"

    def __init__(self, programs: Path, folder: Path, external: External, password: str | None) -> None:
        self._programs = programs
        self._folder, self._log = folder, folder / "server.log"
        self._external = external
        self._password = password
        self._process: Guarded | None = None

    @property
    def request(self) -> dict[str, str]:
        """The fields that authorize a load (benchmark_image/README.md)."""
        fields = {} if self._external.user is None else {"user": self._external.user}
        return fields | {f"{kind}File": _NAMES[kind] for kind in self._files}

    @property
    def _files(self) -> dict[str, Path]:
        tls = self._external.tls
        given = {} if tls is None else {"ca": tls.ca, "cert": tls.cert, "key": tls.key}
        found = {**given, "token": self._external.token_file}
        return {kind: path for kind, path in found.items() if path is not None}

    @property
    def connection(self) -> UnixConnection:
        """A connection to the server, once it serves."""
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
            self._process = Guarded(argv, _ENDING, stdout=log, env=environment, cwd=self._folder)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ending(self) -> str | None:
        if self._process is None or self._process.poll() is None:
            return None
        return ending(self._process.returncode, self.logs(), last_words)

    def why_gone(self) -> str | None:
        """That it has ended, and how; None while it runs."""
        ending = self.ending()
        return None if ending is None else f"the benchmark server did not start: {ending}"

    def logs(self) -> str:
        """Its output; empty before it was started."""
        try:
            return self._log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def close(self) -> None:
        """End it and its client. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.end()
