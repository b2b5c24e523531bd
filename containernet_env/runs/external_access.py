"""How a cluster that somebody else runs is reached: files, password, connections, and the user's own consent."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from containernet_env.base.errors import RunError, UsageError
from containernet_env.base.work import persistently
from containernet_env.hosts.http import TcpConnection
from containernet_env.model.config import PASSWORD_VARIABLE, Config, External, TlsFiles
from containernet_env.plan.plan import Plan
from containernet_env.stores.external import ClusterLook, ExternalCluster, Login, OwnKeys
from containernet_env.stores.kinds import external_store_of

LOOK_TIMEOUT_S = 5.0
# Queries that a member refuses (HTTP 503, a lost connection) are repeated for this long, about that of an election.
AGAIN_S = 2.0
CONSENT = "--yes-load-this-cluster"
_PASSWORD_BYTES = 4096


def external_of(config: Config) -> External:
    """What a config names; only of one that names endpoints."""
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


def cluster_of(config: Config, own: OwnKeys) -> ExternalCluster:
    """The cluster, asked about its ``own`` keys alone; nothing is connected yet. Raises ``UsageError``."""
    external = external_of(config)
    return external_store_of(config).external(config, connections_to(external), login_of(external), own)


def usable(cluster: ExternalCluster, config: Config) -> ClusterLook:
    """Look at a cluster that is to be measured. Raises ``RunError`` with everything that keeps it from that."""

    def look() -> ClusterLook:
        found = cluster.look(LOOK_TIMEOUT_S)
        require_usable(found, config)
        return found

    return persistently(look, AGAIN_S)


def require_usable(look: ClusterLook, config: Config) -> None:
    """Raise ``RunError`` with everything that keeps a cluster from being measured."""
    if problems := look.problems:
        raise RunError("\n  ".join((f"the cluster of {config.path} cannot be measured:", *problems)))


def require_consent(plan: Plan, consented: bool) -> None:
    """Raise ``UsageError`` with what would be done, where nobody has said that this cluster may be loaded."""
    external = plan.config.external
    if external is None or consented:
        return
    scenarios = [planned.scheduled.scenario for planned in plan.scenarios]
    requests = sum(scenario.total or 0 for scenario in scenarios)
    clients = max((scenario.clients for scenario in scenarios), default=0)
    after = "they stay" if plan.config.keys_stay else "removed afterwards"
    raise UsageError(
        f"{plan.config.path} names a cluster that somebody else runs: say {CONSENT} where it may be loaded\n"
        f"  {len(scenarios)} scenarios, {requests:,} requests or more, up to {clients:,} clients at once, would go to "
        f"{', '.join(external.urls)}.\n"
        f"  Keys are written under {external.prefix_of('RUN')}, where there must be none, and {after}.\n"
        "  `containernet-env check` with the same file looks at the cluster without loading or writing anything."
    )


def _context(files: TlsFiles) -> ssl.SSLContext:
    """What members are checked by, as the load checks them (benchmark_image/README.md)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cafile=files.ca)
    except OSError as error:
        raise UsageError(f"the CA file {files.ca} cannot be used: {_reason(error)}") from error
    if files.cert is not None and files.key is not None:
        try:
            # A key with a passphrase is refused instead of asking for it on the terminal.
            context.load_cert_chain(files.cert, files.key, password=_no_passphrase)
        except OSError as error:
            text = f"the certificate {files.cert} with the key {files.key} cannot be used: {_reason(error)}"
            raise UsageError(text) from error
    return context


def _no_passphrase() -> str:
    return ""


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is no PEM file").lower().replace("_", " ")
    return error.strerror or str(error)
