"""Access to external clusters: connections, secrets, the user's consent, and the keys that killed runs left there.

A run has a folder while it loads such a cluster, from which the next run cleans up; it contains the run's record and
the benchmark server's files, and its name has the run's process. The record is made before the first key is written,
and removed after the last one was removed: a folder with a record, of a process that has ended, is that of a killed
run; one without a record has no keys.
"""

from __future__ import annotations

import os
import shutil
import ssl
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from containernet_env.base import assets, clock
from containernet_env.base.errors import RunError, UsageError
from containernet_env.base.http import HttpError
from containernet_env.base.work import persistently
from containernet_env.config.plan import Plan
from containernet_env.hosts import owner
from containernet_env.hosts.http import TcpConnection
from containernet_env.model.config import PASSWORD_VARIABLE, Config, External, HttpService, TlsFiles
from containernet_env.model.scenario import Keys
from containernet_env.stores.external import ClusterLook, ExternalCluster, Login, OwnKeys
from containernet_env.stores.kinds import store_of

LOOK_TIMEOUT_S = 5.0
# Queries that a member refuses (HTTP 503, a lost connection) are repeated for this long, about that of an election.
AGAIN_S = 2.0
CONSENT = "--yes-load-this-cluster"
_PASSWORD_BYTES = 4096
_RECORD = "run.json"
REPORT_EVERY_S = 10.0


def external_of(config: Config) -> External:
    """The external cluster of a config that names endpoints."""
    assert config.external is not None
    return config.external


def connections_to(external: External) -> list[TcpConnection]:
    """A connection to each endpoint, in order; nothing is opened but the files. Raises ``UsageError``."""
    context = None if external.tls is None else _context(external.tls)
    return [TcpConnection(endpoint.host, endpoint.port, context) for endpoint in external.endpoints]


def login_of(external: External) -> Login | None:
    """The user and the password, from its file or the environment, or the token. Raises ``UsageError``."""
    if external.token_file is not None:
        token = _first_line("token", external.token_file)
        if not all("!" <= character <= "~" for character in token):
            raise UsageError(f"the token file {external.token_file} has more than visible ASCII on its first line")
        return Login(None, token)
    if external.user is None:
        return None
    if external.password_file is None:
        password = os.environ.get(PASSWORD_VARIABLE, "")
        if not password:
            raise UsageError(
                f"{external.user} has no password\n"
                f'  Put it into the environment variable {PASSWORD_VARIABLE}, or name a file: "password_file".'
            )
        return Login(external.user, password)
    return Login(external.user, _first_line("password", external.password_file))


def _first_line(what: str, path: Path) -> str:
    """A secret, which a file has on its first line. Raises ``UsageError``."""
    try:
        with path.open(encoding="utf-8") as file:
            secret = file.readline(_PASSWORD_BYTES).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"the {what} file {path} cannot be read: {reason}") from error
    if not secret:
        raise UsageError(f"the {what} file {path} has no {what} on its first line")
    return secret


def cluster_of(config: Config, own: OwnKeys) -> ExternalCluster[Any]:
    """The cluster, with access to its ``own`` keys alone; nothing is connected yet. Raises ``UsageError``."""
    external = external_of(config)
    return store_of(config).external(config, connections_to(external), login_of(external), own)


def inspect(cluster: ExternalCluster[Any], config: Config) -> ClusterLook:
    """Inspect a cluster; repeated for a while where it could not be measured. Raises nothing."""
    looks: list[ClusterLook] = []

    def look() -> None:
        looks.append(cluster.look(LOOK_TIMEOUT_S))
        require_usable(looks[-1], config)

    with suppress(RunError):
        persistently(look, AGAIN_S)
    return looks[-1]


def refuse(reason: str | None, before: str = "") -> None:
    """Raise ``RunError`` for a reason why a cluster cannot be loaded, if there is one."""
    if reason is not None:
        raise RunError(before + reason)


def require_usable(look: ClusterLook, config: Config) -> None:
    """Raise ``RunError`` with all obstacles to measuring a cluster."""
    if problems := look.problems:
        raise RunError("\n  ".join((f"the cluster of {config.path} cannot be measured:", *problems)))


def require_consent(plan: Plan, consented: bool) -> None:
    """Raise ``UsageError`` with the planned actions, unless the user has agreed that this cluster may be loaded."""
    external = plan.config.external
    if external is None or consented:
        return
    scenarios = [planned.scheduled.scenario for planned in plan.scenarios]
    requests = sum(scenario.total or 0 for scenario in scenarios)
    clients = max((scenario.clients for scenario in scenarios), default=0)
    after = "they stay" if plan.config.keys_stay else "removed afterwards"
    raise UsageError(
        f"{plan.config.path} names an external cluster: add {CONSENT} if it may be loaded\n"
        f"  {len(scenarios)} scenarios, {requests:,} requests or more, up to {clients:,} clients at once, would go to "
        f"{', '.join(external.urls)}.\n"
        f"  Keys are written under {external.prefix_of('RUN')}, where there must be none, and {after}.\n"
        "  `containernet-env check` with the same file looks at the cluster without loading or writing anything."
    )


def _context(files: TlsFiles) -> ssl.SSLContext:
    """The context that checks members as the load does (benchmark_image/README.md)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cafile=files.ca)
    except OSError as error:
        raise UsageError(f"the CA file {files.ca} cannot be used: {_reason(error)}") from error
    if files.cert is not None and files.key is not None:
        try:
            # A key with a passphrase is refused; ssh would prompt for it on the terminal.
            context.load_cert_chain(files.cert, files.key, password=lambda: "")
        except OSError as error:
            text = f"the certificate {files.cert} with the key {files.key} cannot be used: {_reason(error)}"
            raise UsageError(text) from error
    return context


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is no PEM file").lower().replace("_", " ")
    return error.strerror or str(error)


# --- what killed runs left --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """A run: the cluster by its own identity and its endpoints, and the prefix of its keys.

    ``identity``: ``None`` if the store has none. ``store``: its kind. ``generated``: see
    ``stores.external.OwnKeys``. ``service``: how to delete keys if only URLs are known; the file may have changed
    by then. It contains no user, and no secrets except those in such URLs.
    """

    run_id: str
    identity: str | None
    endpoints: tuple[str, ...]
    prefix: str
    generated: tuple[Keys, ...] = ()
    service: HttpService | None = None
    store: str = "etcd"


_RECORDS = TypeAdapter(Record)


OnRun = Callable[[Record, str | None], None]
"""Receives each run that is found, and the result for a finished one; ``None`` for one that still runs."""


def removal_report(say: Callable[[str], None]) -> Callable[[int], None]:
    """Reports how many keys have been removed so far, if that takes long; called from any thread, one at a time."""
    next_s = clock.monotonic() + REPORT_EVERY_S

    def report(removed: int) -> None:
        nonlocal next_s
        if clock.monotonic() >= next_s:
            next_s = clock.monotonic() + REPORT_EVERY_S
            say(f"{removed:,} keys removed so far")

    return report


def home() -> Path:
    """The directory of the folders: in the user's own cache."""
    return assets.own() / "external"


def begin(config: Config, run_id: str, identity: str | None, own: OwnKeys) -> Path:
    """Make the folder of a run of this process, private to this user. Raises RunError if it cannot be written."""
    assets.make()
    folder, store = home() / f"{run_id}.{owner.current().replace('/', '_')}", config.store
    record = Record(run_id, identity, external_of(config).urls, own.prefix, own.generated, store.service, store.kind)
    try:
        home().mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700)
        partial = folder / "partial"
        partial.write_bytes(_RECORDS.dump_json(record) + b"\n")
        partial.rename(folder / _RECORD)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise RunError(f"{folder} cannot be written: {error.strerror}\n  Nothing was sent to the cluster.") from error
    return folder


def end(folder: Path) -> None:
    """Remove the folder, its record first: its keys are gone. Idempotent."""
    with suppress(OSError):
        (folder / _RECORD).unlink()
    shutil.rmtree(folder, ignore_errors=True)


def is_alive(folder: Path) -> bool:
    """Whether the process of a run's folder still runs."""
    return owner.is_alive(_owner_of(folder))


def _owner_of(folder: Path) -> str:
    return folder.name.rpartition(".")[2].replace("_", "/")


def records() -> Iterator[tuple[Path, Record]]:
    """This user's folders that have a record; of the others, those of killed processes are removed."""
    for folder in sorted(home().glob("*")):
        if not owner.is_owner(_owner_of(folder)):
            continue
        try:
            record = _RECORDS.validate_json((folder / _RECORD).read_bytes())
        except FileNotFoundError:
            if not is_alive(folder):
                shutil.rmtree(folder, ignore_errors=True)
        except (OSError, ValueError):
            continue
        else:
            if record.prefix.endswith(f"/{record.run_id}/"):
                yield folder, record


def clean_up(config: Config, identity: str | None, report: OnRun, say: Callable[[str], None]) -> None:
    """Remove the keys of this user's killed runs on the cluster of that identity; ``report`` gets each run.

    ``say`` receives the progress if that takes long. Folders of killed runs without keys are removed, too. Raises
    RunError if keys cannot be removed; their record stays.
    """
    for folder, record in records():
        if not _is_on(record, config, identity):
            continue
        if is_alive(folder):
            report(record, None)
            continue
        if record.service is not None and record.service.delete is None:
            most = sum(keys.count for keys in record.generated)
            done = f"up to {most:,} keys stay under {record.prefix}"
        else:
            try:
                done = f"removed {_remove(config, record, say):,} keys under {record.prefix}"
            except RunError as error:
                raise RunError(f"keys under {record.prefix}, of a killed run, could not be removed: {error}") from error
        end(folder)
        report(record, done)


def _is_on(record: Record, config: Config, identity: str | None) -> bool:
    """Whether it is of that cluster: by the identity, or by an endpoint of both if the store has none."""
    if record.store != config.store.kind:
        return False
    if identity is not None:
        return record.identity == identity
    return not set(record.endpoints).isdisjoint(external_of(config).urls)


def _remove(config: Config, record: Record, say: Callable[[str], None]) -> int:
    """Remove the keys of a finished run; returns their number. Raises RunError.

    The requests are those on record, since others, which the file may have by now, would find no keys; they go to
    endpoints that the file names, too. If they are refused, as by a service that has lost a member for good and
    deletes in all of them, the delete that the file names now is tried, and a few keys are read afterwards.
    """
    own, service, named = OwnKeys(record.prefix, record.generated), record.service, config.store.service
    if service is None or named is None:  # another kind of store
        return _remove_by(config, own, say)
    there = _at(config, record.endpoints)
    try:
        return _remove_by(_by(there, service), own, say)
    except HttpError:
        if named.delete in (None, service.delete):
            raise
    other = _by(there, replace(service, delete=named.delete, delete_codes=named.delete_codes))
    removed = _remove_by(other, own, say)
    with closing(cluster_of(other, own)) as cluster:
        left = cluster.keys()
    if left:
        raise RunError(f"{config.path} names another delete, after which they are still there")
    return removed


def _remove_by(config: Config, own: OwnKeys, say: Callable[[str], None]) -> int:
    with closing(cluster_of(config, own)) as cluster:
        return cluster.remove_keys(removal_report(say))


def _at(config: Config, urls: Collection[str]) -> Config:
    external = external_of(config)
    chosen = tuple(endpoint for endpoint in external.endpoints if external.url(endpoint) in urls)
    return replace(config, external=replace(external, endpoints=chosen))


def _by(config: Config, service: HttpService) -> Config:
    return replace(config, store=replace(config.store, service=service))


def clean(config: Config, report: OnRun, say: Callable[[str], None]) -> list[Record]:
    """The same on the cluster that a config names; the killed runs on record elsewhere, which are left as they are.

    A service may have lost members for good: the others delete. Raises RunError if the cluster cannot be used.
    """
    with closing(cluster_of(config, OwnKeys(external_of(config).prefix))) as cluster:
        look = inspect(cluster, config)
    answering = [member.url for member in look.members if member.problem is None]
    if config.store.service is None or not answering:
        require_usable(look, config)
    for member in look.members:
        if member.problem is not None:
            say(f"left out: {member.url} {member.problem}")
    config = _at(config, answering)
    clean_up(config, look.identity, report, say)
    return [
        record for folder, record in records() if not _is_on(record, config, look.identity) and not is_alive(folder)
    ]
