"""Consul as a store: version and flags, timing, floor, members, and external clusters."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self
from urllib.parse import quote

from containernet_env.base import assets
from containernet_env.base.assets import GoModule
from containernet_env.base.errors import RunError
from containernet_env.base.http import Connection, HttpError
from containernet_env.base.work import persistently
from containernet_env.model import kinds
from containernet_env.model.config import Config, Node
from containernet_env.model.dilation import slowed
from containernet_env.model.kinds import Kind
from containernet_env.model.scenario import ALPHABET, Keys, Scenario
from containernet_env.model.topology import RttExpectation
from containernet_env.model.usage import Leadership, MemberActivity
from containernet_env.stores import cluster, external, store
from containernet_env.stores.cluster import QUERY_S, Cluster, Counters, LogForm, LogPart, MemberStatus, Written
from containernet_env.stores.store import MemberStart, Request, Timing, key_bytes

MODULE = GoModule(
    "consul",
    assets.ROOT / "consul_image",
    {"consul": "github.com/hashicorp/consul"},
    only=("go.mod", "go.sum"),
    ours=False,
    unsummed="github.com/hashicorp/consul/*,github.com/hashicorp/hcp-sdk-go",
)
DATA_DIR = "/var/lib/consul"
HTTP_PORT = 8500
SERVER_PORT = 8300
"""Where servers reach each other; a leader is identified by its address with this port."""

MULTIPLIER_MAX = 10
"""Consul's own bound of ``raft_multiplier`` (agent/consul/config.go)."""
FLAGS: Mapping[str, Kind] = {
    "raft_multiplier": kinds.integer(1, MULTIPLIER_MAX),
    "raft_snapshot_threshold": kinds.integer(1, 10**9),
    "raft_trailing_logs": kinds.integer(1, 10**9),
    "raft_logstore": kinds.choice("boltdb", "wal"),
}
"""Names are those of Consul's configuration files; ``raft_logstore`` is ``raft_logstore.backend`` there."""

# --- messages ---------------------------------------------------------------------------------------------------------

# How many bytes Consul's messages are in a TCP stream, at least. Requests are those of
# benchmark_image/internal/store/consul, answers as Consul 1.16.1 gave them. Of messages between servers (MessagePack in
# yamux or Raft connections) only keys and values are counted.

# A message between servers that carries no value: heartbeats, answers, requests for reads.
_SMALL = 1
_PUT = len("PUT  HTTP/1.1\r\nHost: 1.1.1.1:8500\r\nContent-Length: 1\r\n\r\n")
_GET = len("GET /v1/kv/?raw HTTP/1.1\r\nHost: 1.1.1.1:8500\r\n\r\n")
_OPTIONS = {"l": len("&consistent"), "s": len("&stale"), "default": 0}
# A transaction without its two keys and its value (consul.go there).
_TXN = len('/v1/txn[{"KV":{"Verb":"get","Key":""}},{"KV":{"Verb":"set","Key":"","Value":""}}]')
_ANSWER = len(
    "HTTP/1.1 200 OK\r\nContent-Type: \r\nVary: Accept-Encoding\r\nX-Consul-Default-Acl-Policy: allow\r\n"
    "Date: Mon, 23 Nov 2026 03:05:16 GMT\r\nContent-Length: 1\r\n\r\n"
)
_WRITTEN = _ANSWER + len("application/json") + len("true")
_READ = _ANSWER + len(
    "text/plainContent-Security-Policy: sandbox\r\nX-Consul-Index: 1\r\nX-Consul-Knownleader: true\r\n"
    "X-Consul-Lastcontact: 0\r\nX-Content-Type-Options: nosniff\r\n"
)


def write_sizes(scenario: Scenario) -> tuple[int, int]:
    """How long the requests of a scenario's writes are, and their answers."""
    key, value = key_bytes(scenario), scenario.val_size
    if scenario.type == "txn":
        return _PUT + _TXN + 2 * key + 4 * -(-value // 3), _WRITTEN
    return _PUT + len("/v1/kv/") + key + value, _WRITTEN


def read_sizes(scenario: Scenario) -> tuple[int, int]:
    """The same of its reads, of one key."""
    assert scenario.consistency is not None
    return _GET + key_bytes(scenario) + _OPTIONS[scenario.consistency], _READ + scenario.val_size


# --- timing -----------------------------------------------------------------------------------------------------------

# hashicorp/raft's DefaultConfig, which Consul multiplies (agent/config/builder.go): heartbeat and election timeouts,
# and how long a leader goes on without its followers. It sends a heartbeat after a tenth of the first at the earliest,
# and after a fifth at the latest (raft/replication.go, heartbeat).
_TIMEOUT_MS, _LEASE_MS, _HEARTBEATS = 1000, 500, 10
# Consul's requirements of servers require that with a multiplier of 1: 99 % of RTTs below 100 ms, the average below 50.
_RTT_MS, _AVERAGE_RTT_MS = 100, 50
# How long servers take to find each other before they elect: they look for each other once a second.
_JOIN_S = 3.0


# --- log and counters -------------------------------------------------------------------------------------------------

# hclog's text form: time, level, logger, message, and perhaps fields ("key=value") after a colon.
LINE = re.compile(
    r"^(?P<at>[0-9-]{10}T[0-9:.]+(?:Z|[+-][0-9:]{4,5})) \[(?P<level>[A-Z]+)\] +(?P<logger>[\w.-]+): "
    r"(?P<message>[^\n]*?)(?P<fields>: [\w-]+=[^\n]*)?$",
    re.MULTILINE,
)
LOG = LogForm(
    LINE,
    ("ERROR",),
    "WARN",
    # Numbers and addresses.
    varying=re.compile(
        r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\[::\]:[0-9]+|\b[0-9]+(?:\.[0-9]+)*(?::[0-9]+)?\b"
    ),
    notable=re.compile(r"creating new snapshot|starting snapshot|Installed remote snapshot|[Ee]lection won"),
    signalled="Caught",
    ready="Consul agent running!",
    detail=lambda line: line["fields"] or "",
)
_ELECTED = "New leader elected"
# Batches of log entries that raft-boltdb wrote, in ms: each ends with the two fdatasyncs of a transaction of bbolt.
# Summaries have a count and a sum since the agent's start; their quantiles are those of the last seconds.
_LOG_WRITES_COUNT, _LOG_WRITES_MS = (f"consul_raft_boltdb_storeLogs_{what}" for what in ("count", "sum"))


# --- members ----------------------------------------------------------------------------------------------------------

SELF = "/v1/agent/self"
"""The agent's own state, from its memory (agent/agent_endpoint.go): it queries no other for that."""
# The addresses of all servers that its Raft has; empty before they have found each other.
_PEERS = "/v1/status/peers"
# A key, and all keys with one prefix. Consul ignores the values of parameters; cetcd takes a parameter without one for
# one that was not given (kv.go, gorilla/schema).
_KEY, _KEYS = "/v1/kv/{}?consistent=true", "/v1/kv/{}?recurse=true&consistent=true"
# A key that no load writes.
_PROBE_KEY = "containernet-env/probe"
_MOVE_LEADER = "/v1/operator/raft/transfer-leader?id="


def status_of(answer: Any) -> MemberStatus:
    """The status in a server's own answer; its id is the address that other servers have of it.

    Raises KeyError, TypeError or ValueError if the answer has another form, as that of a client agent.
    """
    consul, raft = answer["Stats"]["consul"], answer["Stats"]["raft"]
    host, port = answer["Member"]["Addr"], answer["Member"]["Tags"]["port"]
    return MemberStatus(
        member_id=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        leader_id=consul["leader_addr"] or None,
        raft_term=int(raft["term"]),
        version=str(answer["Config"]["Version"]),
        node_id=str(answer["Config"]["NodeID"]),
    )


def get(connection: Connection, path: str, timeout_s: float) -> Any:
    """The answer to a GET about keys; ``None`` if there are none, on which a quorum agrees, too. Raises RunError."""
    try:
        return connection.request_json(HTTP_PORT, "GET", path, timeout_s=max(timeout_s, 0.1))
    except HttpError as error:
        if error.status != 404:
            raise
        return None


class KeyReader(cluster.Member):
    """A member that serves Consul's API, of which keys are read."""

    client_port = HTTP_PORT

    def read(self, timeout_s: float) -> None:
        get(self.connection, _KEY.format(quote(self.prefix or _PROBE_KEY)), timeout_s)

    def values(self, prefix: str, keys: Collection[str], timeout_s: float) -> list[Written]:
        # All keys with the prefix in one answer, of at most 16 MiB.
        found = {}
        try:
            for entry in get(self.connection, _KEYS.format(quote(prefix)), timeout_s) or ():
                value = base64.b64decode(entry["Value"] or "", validate=True)
                found[entry["Key"]] = Written.of(int(entry["ModifyIndex"]), entry["Key"], value)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError("its answer does not have what keys hold: is it a server of Consul?") from error
        return [found.get(key, Written(0, key, None)) for key in keys]


class ConsulMember(KeyReader):
    # Answered by the agent from memory: no quorum, no disk.
    ping_request = b"GET /v1/agent/version HTTP/1.1\r\nHost: localhost\r\n\r\n"
    log_form: ClassVar[LogForm] = LOG
    metrics = (HTTP_PORT, "/v1/agent/metrics?format=prometheus", (_LOG_WRITES_COUNT, _LOG_WRITES_MS))
    # Raft may know a leader that the gossip between servers has not found yet.
    serves_late = True

    def status(self, timeout_s: float = QUERY_S) -> MemberStatus:
        answer = self.connection.request_json(HTTP_PORT, "GET", SELF, timeout_s=timeout_s)
        try:
            return status_of(answer)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{self.name} does not say who leads: is it a server of Consul?") from error

    def peers(self) -> list[str]:
        """The addresses of the servers that this one knows, itself among them. Raises RunError."""
        return self.connection.request_json(HTTP_PORT, "GET", _PEERS, timeout_s=QUERY_S) or []

    def hand_over(self, member_id: str, timeout_s: float) -> None:
        self.connection.request_json(HTTP_PORT, "POST", _MOVE_LEADER + member_id, timeout_s=max(timeout_s, 0.1))

    @staticmethod
    def activity(before: Counters, after: Counters, log: LogPart | None) -> MemberActivity:
        log_syncs = cluster.durations(before, after, _LOG_WRITES_COUNT, _LOG_WRITES_MS)
        elections = None if log is None else sum(line["message"] == _ELECTED for line in log.lines)
        return MemberActivity(elections, log_syncs, warnings=None if log is None else log.warnings)


class ConsulCluster(Cluster[ConsulMember]):
    def _is_ready(self, leadership: Leadership) -> bool:
        # Every server knows all of them.
        try:
            known = list(self._pool.map(ConsulMember.peers, self.members))
        except RunError:
            return False
        return all(len(servers) == len(self.members) for servers in known) and super()._is_ready(leadership)


# --- external clusters ------------------------------------------------------------------------------------------------

# Of the names of keys that are listed at once: answers have a bound of 16 MiB.
_MOST_LISTED_BYTES = 12 << 20
# So many all versions take in one transaction (agent/txn_endpoint.go, maxTxnOps): one entry of the log.
_BATCH_KEYS = 64
_WANTS_TOKEN = 'requires a token (ACLs): name its file with "token_file"'


class ExternalConsul(external.ExternalCluster[ConsulMember], ConsulCluster):
    """An external Consul cluster; see ``ExternalCluster``.

    Consul has no name for a cluster; servers of one name the same servers.
    """

    def _access(self, connection: external.ExternalConnection) -> Connection:
        return connection.with_headers({} if self._login is None else {"X-Consul-Token": self._login.password})

    def _look_at(self, member: ConsulMember, look: external.MemberLook, timeout_s: float) -> external.MemberLook:
        try:
            answer = member.connection.request_json(HTTP_PORT, "GET", SELF, timeout_s=timeout_s)
            status = status_of(answer)
            peers, name = frozenset(member.peers()), str(answer["Config"]["NodeName"])
        except (KeyError, TypeError, ValueError):
            # A client agent has no Raft.
            return replace(look, problem="is no server of Consul: GET /v1/agent/self answers something else")
        return replace(look, version=status.version, member_name=name, status=status, cluster=peers)

    def _other(self, error: HttpError) -> str:
        return self._refused(error) if error.status == 403 else f"is no Consul: {external.first_line(error, 80)}"

    def _refused(self, error: HttpError) -> str:
        """The meaning of a 403."""
        refused = _WANTS_TOKEN if self._login is None else "refuses the token, or what it may do"
        return f"{refused} ({external.first_line(error, 160)})"

    def _judge(self, found: external.ClusterLook, timeout_s: float) -> external.ClusterLook:
        found = replace(found, problem=found.conflict())
        if found.problems:
            return found
        try:
            for member in self.members:
                member.read(timeout_s)
        except RunError as error:
            problem = f"has no quorum: a consistent read was not answered ({external.first_line(error)})"
            if isinstance(error, HttpError) and error.status == 403:
                problem = self._refused(error)
            return replace(found, problem=f"the cluster {problem}")
        return replace(found, size=len(found.members[0].cluster), leadership=found.led())

    def try_write(self) -> str | None:
        # The first key is put, which all members have then, and deleted again.
        if not self._own.generated:
            return None
        path, lacking = f"/v1/kv/{quote(self._own.generated[0].name(0))}", None

        def has_key(member: ConsulMember) -> bool:
            return get(member.connection, f"{path}?consistent", external.REQUEST_S) is not None

        for method in ("PUT", "DELETE"):
            try:
                done = self._request(method, path)
            except HttpError as error:
                if error.status == 403:
                    return f"it {self._refused(error)}"
                return f"{method} {path}: {external.first_line(error)}"
            if done is not True:
                return f"{method} {path} answers {str(done)[:40]}, and not true"
            if method == "PUT":
                lacking = self._lacking(has_key)
        return lacking

    def keys(self) -> int:
        return len(self._listed(self._own.prefix))

    def remove_keys(self, checked: Callable[[int], None] = lambda removed: None) -> int:
        # A few at once, for a whole prefix would be one entry of the log, however large.
        removed = 0
        for part in self._parts():
            names = self._listed(part)
            for first in range(0, len(names), _BATCH_KEYS):
                batch = names[first : first + _BATCH_KEYS]
                verbs = [{"KV": {"Verb": "delete", "Key": name}} for name in batch]
                persistently(partial(self._request, "PUT", "/v1/txn", verbs), cluster.PATIENCE_S)
                removed += len(batch)
                checked(removed)
        return removed

    def _parts(self) -> Iterator[str]:
        """Prefixes that few of the run's keys have in common, and last the one of all: answers have a bound."""
        for keys in self._own.generated:
            digits = 0
            while digits < keys.size and _listed_bytes(keys) * len(ALPHABET) ** (digits + 1) <= _MOST_LISTED_BYTES:
                digits += 1
            for first in range(0, keys.count, len(ALPHABET) ** digits):
                yield keys.name(first)[: -digits or None]
        yield self._own.prefix

    def _listed(self, prefix: str) -> list[str]:
        """The names of all keys with a prefix, by a consistent read. Raises RunError."""
        path = f"/v1/kv/{quote(prefix)}?keys&consistent"
        return list(self._at_one(lambda member: get(member.connection, path, external.REQUEST_S)) or ())


def _listed_bytes(keys: Keys) -> int:
    """How many bytes the name of each takes in a list, in JSON as Consul has it, or with more escapes."""
    name = keys.name(0)
    return len(json.dumps(name)) + len(",") + sum(5 * name.count(escaped) for escaped in "<>&")


# --- the store --------------------------------------------------------------------------------------------------------


# A transaction of bbolt ends with two fdatasyncs, one of the pages and one of the page that points to them (tx.go);
# hashicorp/raft-wal appends to its file, and syncs that once.
_SYNCS = {"boltdb": 2, "wal": 1}


class Consul(store.Store):
    name: ClassVar[str] = "consul"
    title: ClassVar[str] = "Consul"
    program: ClassVar[str] = "consul"
    members = ConsulMember
    clusters = ConsulCluster
    externals = ExternalConsul
    # The transfer of leadership over HTTP came with 1.15.
    versions = store.version_from((1, 15, 0), r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,4})", "1.22.0")
    flags = FLAGS
    load_terms: ClassVar[store.LoadTerms] = store.LoadTerms({"store": "consul"})
    # Consul's own bound of a value, which limits.kv_max_value_size may change (docs: limits).
    largest_value_bytes = 512 << 10
    keys_are_paths = True
    consistency: ClassVar[Mapping[str, str]] = {"s": "stale"}
    lacks: ClassVar[store.Lacking] = {
        **dict.fromkeys(store.ELECTIONS, "scales all its timeouts by one number, the flag raft_multiplier"),
        "tls": "is run without TLS here",
        "profile": "is not profiled here",
        **dict.fromkeys(store.RANGES, "answers ranges without an end or a limit"),
    }
    follows_cpu_limit = True
    setup_note = "Consul is built from its Go modules: 3 to 6 minutes on two cores, a program of 118 MB"
    endpoints = store.Endpoints(
        no_users="Consul knows tokens, which token_file is for", takes_token=True, bad_prefix=store.path_problem
    )

    @property
    def version(self) -> str:
        return self.choice.version or str(MODULE.pinned)

    @property
    def image(self) -> store.ImageParts:
        # The pinned one, however it is named.
        other = None if self.choice.version == MODULE.pinned else self.choice.version
        return store.ImageParts("consul", module=replace(MODULE, version=other))

    def timing(self, config: Config, largest: RttExpectation | None) -> Timing:
        # As small as the largest RTT allows, 100 ms of it for each 1, from 1 to 10; or the configured value.
        (rtt_ms, rtt), flags = store.largest_rtt(largest), dict(config.store.flags)
        multiplier, source = min(max(1, math.ceil(rtt_ms / _RTT_MS)), MULTIPLIER_MAX), "rtt"
        if "raft_multiplier" in flags:
            multiplier, source = int(flags["raft_multiplier"]), "config"
        origin = "largest RTT" if source == "rtt" else "config"
        # Heartbeat and election timeouts are equal.
        election_ms, longest_ms, notes = _TIMEOUT_MS * multiplier, _RTT_MS * multiplier, []
        heartbeat = store.Heartbeat(election_ms // _HEARTBEATS, _SMALL, _SMALL)
        if rtt_ms > longest_ms:
            none = "; no larger one exists" if multiplier == MULTIPLIER_MAX else ""
            notes.append(
                f"Consul's raft_multiplier of {multiplier} is made for RTTs up to {longest_ms} ms{none}: {rtt}, is "
                f"above that, and leaders may change under load"
            )
        if rtt_ms > election_ms:
            notes.append(f"the election timeout of {election_ms} ms is below {rtt}: {store.NO_LEADER}")
        if rtt_ms > _AVERAGE_RTT_MS:
            notes.append(
                f"Consul requires an average RTT below {_AVERAGE_RTT_MS} ms between servers; {rtt}, is above that"
            )
        return Timing(
            short=f"raft_multiplier {multiplier}, election {election_ms} ms",
            long=(
                f"raft_multiplier {multiplier} (from the {origin}): heartbeat and election timeouts {election_ms} ms, "
                f"a leader steps down after {_LEASE_MS * multiplier} ms without a quorum"
            ),
            values={
                "raft_multiplier": multiplier,
                "heartbeat_ms": heartbeat.interval_ms,
                "election_ms": election_ms,
                "raft_multiplier_from": source,
            },
            # Servers find each other, then two election timeouts.
            settle_s=_JOIN_S + 2 * election_ms / 1000,
            # Followers wait for the heartbeat timeout at least.
            member_timeout_s=election_ms / 1000,
            heartbeat=heartbeat,
            notes=tuple(notes),
        )

    def slowed(self, timing: Timing, factor: int) -> tuple[Self, Timing]:
        multiplier = factor * int(timing.values["raft_multiplier"])
        if multiplier > MULTIPLIER_MAX:
            raise ValueError(f"Consul takes no raft_multiplier of {multiplier}, but at most {MULTIPLIER_MAX}")
        slower = slowed(timing, factor)
        return self, replace(slower, values={**slower.values, "raft_multiplier": multiplier})

    def start(self, node: Node, config: Config, timing: Timing, run_id: str, *, profiled: bool = False) -> MemberStart:
        settings: dict[str, object] = {
            "performance": {"raft_multiplier": timing.values["raft_multiplier"]},
            # Counted since the start, instead of for 10 s each.
            "telemetry": {"prometheus_retention_time": "24h", "disable_hostname": True},
            # The load has all its connections from one address; 200 are allowed otherwise.
            "limits": {"http_max_conns_per_client": 0},
            # A member that is dead stays a member: a majority of three is always two.
            "autopilot": {"cleanup_dead_servers": False},
            "disable_update_check": True,
        }
        for name, value in self.choice.flags:
            if name != "raft_multiplier":
                settings[name] = {"backend": value} if name == "raft_logstore" else value
        command = (
            "agent",
            "-server",
            f"-bootstrap-expect={len(config.nodes)}",
            f"-node={node.name}",
            f"-bind={node.ip}",
            f"-advertise={node.ip}",
            "-client=0.0.0.0",
            f"-http-port={HTTP_PORT}",
            f"-server-port={SERVER_PORT}",
            # Nothing here uses names, other data centres or service meshes.
            "-dns-port=-1",
            "-grpc-port=-1",
            "-grpc-tls-port=-1",
            "-serf-wan-port=-1",
            f"-data-dir={DATA_DIR}",
            "-log-level=info",
            # The default, 30 s, is a long time for members that start at nearly one moment.
            "-retry-interval=1s",
            *(f"-retry-join={other.ip}" for other in config.nodes if other.name != node.name),
            f"-hcl={json.dumps(settings)}",
        )
        return MemberStart(command, (DATA_DIR,), environment=store.go_environment(node.memory_bytes))

    # The critical path of a request in Consul; docs/stores.md derives it, with the places in its source and in Raft's.

    def write_ns(self, request: Request) -> float:
        # The leader writes its log first, and sends the entry to its followers only then.
        assert request.leader is not None
        syncs = _SYNCS[str(dict(self.choice.flags).get("raft_logstore", "boltdb"))]
        log_ns = {name: syncs * ns for name, ns in request.sync_ns.items()}
        copied_ns = request.answered_ns(len(request.members) // 2, request.written_bytes, _SMALL, log_ns)
        served_ns = request.client_ns(*write_sizes(request.scenario)) + request.forwarded_ns(
            request.written_bytes, _SMALL
        )
        return served_ns + log_ns[request.leader] + copied_ns

    def read_ns(self, request: Request) -> float:
        # A consistent read waits until a quorum has answered heartbeats; those that were sent before it count, so at
        # best it need not wait.
        scenario = request.scenario
        client_ns = request.client_ns(*read_sizes(scenario))
        if scenario.consistency == "s":
            return client_ns
        return client_ns + request.forwarded_ns(key_bytes(scenario), scenario.val_size)
