"""ZooKeeper as a store: version and flags, timing, how its members are started, and its floor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from containernet_env.base import assets
from containernet_env.model import kinds
from containernet_env.model.config import Config, Node
from containernet_env.model.kinds import Kind
from containernet_env.model.scenario import Scenario
from containernet_env.model.topology import RttExpectation
from containernet_env.stores import store
from containernet_env.stores.store import Download, MemberStart, Request, Timing, WriteSizes, key_bytes
from containernet_env.stores.zookeeper.cluster import (
    CLIENT_PORT,
    ExternalZooKeeper,
    ZooKeeperCluster,
    ZooKeeperMember,
    chroot_of,
)

DATA_DIR = "/var/lib/zookeeper"
PEER_PORT, ELECTION_PORT = 2888, 3888

# --- versions and flags -----------------------------------------------------------------------------------------------

_CENTRAL = "https://repo1.maven.org/maven2"
# ZooKeeper's own jars, and the libraries that 3.9.4's pom names, with which older ones run: SHA-256 and path there.
_JARS = [line.split() for line in assets.content_of(assets.ROOT / "zookeeper_image" / "jars.sha256").splitlines()]
_OWN = "org/apache/zookeeper/"
VERSIONS = tuple(path.split("/")[-2] for _, path in _JARS if path.startswith(f"{_OWN}zookeeper/"))
"""The versions that can be fetched."""
PACKAGED = "3.8.0"
"""The version of the package in Debian 12, which is measured unless a topology names another one."""
TICK_MS, INIT_TICKS, SYNC_TICKS = 2000, 10, 5
"""Those of ZooKeeper's own conf/zoo_sample.cfg."""


def jars_of(version: str) -> tuple[Download, ...]:
    """The jars of one of ``VERSIONS``."""
    wanted = [(sha256, path) for sha256, path in _JARS if not path.startswith(_OWN) or path.endswith(f"-{version}.jar")]
    return tuple(Download(f"{path.split('/')[-3]}.jar", f"{_CENTRAL}/{path}", sha256) for sha256, path in wanted)


FLAGS: Mapping[str, Kind] = {
    "tickTime": kinds.milliseconds(1, 60_000, "100ms"),
    "initLimit": kinds.integer(1, 10_000),
    "syncLimit": kinds.integer(1, 10_000),
    "snapCount": kinds.integer(2, 10**9),
    "preAllocSize": kinds.integer(64, 4 << 20),
    "globalOutstandingLimit": kinds.integer(1, 10**6),
    "forceSync": kinds.choice("yes", "no"),
    "leaderServes": kinds.choice("yes", "no"),
}
"""Entries of zoo.cfg (ZooKeeper's Administrator's Guide); ``preAllocSize`` is in KiB."""
_OF_TIMING = ("tickTime", "initLimit", "syncLimit")

# --- messages ---------------------------------------------------------------------------------------------------------

# How many bytes ZooKeeper's messages are in a TCP stream. Fields are those of ZooKeeper's src/zookeeper.jute; between
# members those of ``QuorumPacket``.

_LENGTH = 4  # of a text, a buffer, a list, and before each message of a client
_REQUEST_HEADER = 4 + 4  # xid, type
_ANSWER_HEADER = 4 + 8 + 4  # xid, zxid, error
_STAT = 68
_VERSION = 4
_MULTI_HEADER = 4 + 1 + 4  # type, done, error

# QuorumPacket: type, zxid, data, list of ids (none). It has no length of its own.
_PACKET = 4 + 8 + _LENGTH + _LENGTH
# A transaction: session, cxid, zxid, time, type; after it the digest's version and value (3.6 and later).
_TXN_HEADER, _DIGEST = 8 + 4 + 8 + 8 + 4, 4 + 8
# Of a forwarded request: session, cxid, type.
_FORWARDED = 8 + 4 + 4

ACK = COMMIT = PING = SYNC_ANSWER = _PACKET
SYNC_REQUEST = _PACKET + _FORWARDED + _LENGTH + 1
"""``sync`` of the root, as a follower forwards it."""


def _text(length: int) -> int:
    return _LENGTH + length


def _path(scenario: Scenario) -> int:
    """A key is a node below the root."""
    return _text(1 + key_bytes(scenario))


def write_sizes(scenario: Scenario) -> WriteSizes:
    """Those of a scenario's writes; of writes that create a key a few bytes less than the least is taken."""
    path, data = _path(scenario), _text(scenario.val_size)
    body, answer, txn = path + data + _VERSION, _STAT, path + data + _VERSION
    if scenario.type == "txn":
        # multi: check that the key exists, set it, end.
        check = path + _VERSION
        body = 3 * _MULTI_HEADER + check + body
        answer = 3 * _MULTI_HEADER + _STAT
        txn = _LENGTH + 2 * (4 + _LENGTH) + check + txn
    return WriteSizes(
        request=_LENGTH + _REQUEST_HEADER + body,
        answer=_LENGTH + _ANSWER_HEADER + answer,
        forwarded=_PACKET + _FORWARDED + body,
        copied=_PACKET + _TXN_HEADER + txn + _DIGEST,
    )


def read_sizes(scenario: Scenario) -> tuple[int, int]:
    """``getData``, with a ``sync`` sent ahead of it for all but serializable reads: from the client and back."""
    request = _LENGTH + _REQUEST_HEADER + _path(scenario) + 1
    answer = _LENGTH + _ANSWER_HEADER + _text(scenario.val_size) + _STAT
    if scenario.consistency != "s":
        request += _LENGTH + _REQUEST_HEADER + _text(1)
        answer += _LENGTH + _ANSWER_HEADER + _text(1)
    return request, answer


# --- timing -----------------------------------------------------------------------------------------------------------

# As etcd's tuning guide has it for elections: a silence of ten round trips is none of the network.
_SILENCE_PER_RTT = 10
# Three members on two cores had a leader that all of them followed within 8 s; most of it is the start of Java.
_SETTLE_S = 6.0


_ORIGIN = {"default": "ZooKeeper's default", "rtt": "from the largest RTT", "config": "from the config"}


# --- the store --------------------------------------------------------------------------------------------------------

# As bin/zkServer.sh has it where nothing limits the memory.
_HEAP_MIB = 1000
_LEAST_HEAP_MIB = 16


_JAVA = "openjdk-17-jre-headless"
_TICKS = "has ticks instead: the flags tickTime, initLimit and syncLimit of the store"


def bad_prefix(prefix: str) -> tuple[str, str] | None:
    """The fault of a prefix of keys, and the allowed form, if there is a fault."""
    if (problem := store.path_problem(prefix)) is not None:
        return problem
    if not prefix.isascii() or " " in prefix:
        return "is no path of a znode here", "names of visible ASCII characters"
    if prefix.startswith("zookeeper/"):
        return "is of ZooKeeper's own znodes", "a prefix that does not begin with zookeeper/"
    return None


class ZooKeeper(store.Store):
    """ZooKeeper, as the distribution has it or in another version."""

    name: ClassVar[str] = "zookeeper"
    title: ClassVar[str] = "ZooKeeper"
    program: ClassVar[str] = "start-zookeeper"
    members = ZooKeeperMember
    clusters = ZooKeeperCluster
    externals = ExternalZooKeeper
    versions = kinds.checked(
        lambda value: value in (PACKAGED, *VERSIONS),
        "is no version whose files are known by their SHA-256",
        f"one of {', '.join((PACKAGED, *VERSIONS))}",
        {},
    )
    flags = FLAGS
    load_terms: ClassVar[store.LoadTerms] = store.LoadTerms({"store": "zookeeper"}, second_tries=True)
    largest_value_bytes = 1_000_000
    consistency: ClassVar[Mapping[str, str]] = {"l": "sync+read"}
    lacks: ClassVar[store.Lacking] = {
        **dict.fromkeys(store.ELECTIONS, _TICKS),
        "leader": "cannot be given a leader",
        "tls": "is not set up with TLS here",
        "profile": "gives no profiles",
        "default": 'has no third consistency beside "l" and "s"',
        **dict.fromkeys(("span", "limit"), "reads one key at a time"),
        **dict.fromkeys(("keysOnly", "countOnly"), "reads keys with their values"),
    }
    endpoints = store.Endpoints(
        urls=False, no_users="loads for ZooKeeper are sent without a user", bad_prefix=bad_prefix
    )

    @property
    def version(self) -> str:
        return self.choice.version or PACKAGED

    @property
    def image(self) -> store.ImageParts:
        scripts = (self.program, "log4j.properties", "logback.xml")
        if self.version == PACKAGED:
            # Without the package zookeeper, which would bring a Java runtime with a desktop's libraries.
            return store.ImageParts("zookeeper", scripts, packages=("libzookeeper-java", _JAVA))
        files = jars_of(self.version)
        return store.ImageParts("zookeeper", scripts, packages=(_JAVA,), files=files, version=self.version)

    def timing(self, config: Config, largest: RttExpectation | None) -> Timing:
        # ZooKeeper's own ticks, longer where the sync limit would be below ten of the largest RTTs; or the config's.
        (rtt_ms, rtt), flags = store.largest_rtt(largest), dict(config.store.flags)
        init_ticks, sync_ticks = int(flags.get("initLimit", INIT_TICKS)), int(flags.get("syncLimit", SYNC_TICKS))
        tick_ms, tick_from = max(TICK_MS, -(-_SILENCE_PER_RTT * math.ceil(rtt_ms) // sync_ticks)), "default"
        if "tickTime" in flags:
            tick_ms, tick_from = FLAGS["tickTime"].parse(flags["tickTime"]), "config"
        elif tick_ms > TICK_MS:
            tick_from = "rtt"
        notes = []
        for name, ticks in (("sync", sync_ticks), ("init", init_ticks)):
            limit = f"the {name} limit of {ticks} ticks, {ticks * tick_ms} ms,"
            if ticks * tick_ms < rtt_ms:
                notes.append(f"{limit} is below {rtt}: {store.NO_LEADER}")
            elif name == "sync" and ticks * tick_ms < _SILENCE_PER_RTT * rtt_ms:
                notes.append(f"{limit} is below {_SILENCE_PER_RTT} times {rtt}: leaders may change under load")
        # A leader pings its followers twice in a tick (Leader.lead).
        heartbeat = store.Heartbeat(max(1, tick_ms // 2), PING, PING)
        return Timing(
            short=f"tick {tick_ms} ms, sync limit {sync_ticks} ticks",
            long=(
                f"tick {tick_ms} ms ({_ORIGIN[tick_from]}); members may lag {sync_ticks} ticks, "
                f"and take {init_ticks} to join"
            ),
            values={
                "tick_ms": tick_ms,
                "init_ticks": init_ticks,
                "sync_ticks": sync_ticks,
                # No leader is replaced before the sync limit.
                "heartbeat_ms": heartbeat.interval_ms,
                "election_ms": sync_ticks * tick_ms,
                "tick_from": tick_from,
            },
            # Members that join wait for each other in ticks.
            settle_s=_SETTLE_S * max(1.0, tick_ms / TICK_MS),
            # For ``syncLimit`` ticks a leader waits for its followers, and they for it.
            member_timeout_s=sync_ticks * tick_ms / 1000,
            heartbeat=heartbeat,
            notes=tuple(notes),
        )

    def start(self, node: Node, config: Config, timing: Timing, run_id: str, *, profiled: bool = False) -> MemberStart:
        # The other half of a memory limit is for the runtime itself (at least 60 MB), its threads, and the buffers of
        # connections.
        half_mib = _HEAP_MIB if node.memory_bytes is None else node.memory_bytes // 2 >> 20
        java = (
            f"-Xmx{max(_LEAST_HEAP_MIB, min(_HEAP_MIB, half_mib))}m",
            # A member without memory ends, as bin/zkServer.sh has it, instead of lingering.
            "-XX:+ExitOnOutOfMemoryError",
            # It would write to a file in /tmp that is mapped into memory, and stop for as long as that takes.
            "-XX:-UsePerfData",
            # Lines of the log are in UTC, wherever the host is.
            "-Duser.timezone=UTC",
        )
        entries = {
            "tickTime": timing.values["tick_ms"],
            "initLimit": timing.values["init_ticks"],
            "syncLimit": timing.values["sync_ticks"],
            "dataDir": DATA_DIR,
            "clientPort": CLIENT_PORT,
            # All clients come from one address.
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,mntr,ruok",
            **{name: value for name, value in self.choice.flags if name not in _OF_TIMING},
            **{f"server.{n}": f"{each.ip}:{PEER_PORT}:{ELECTION_PORT}" for n, each in enumerate(config.nodes, 1)},
        }
        number = [other.name for other in config.nodes].index(node.name) + 1
        # The arguments of zookeeper_image/start-zookeeper: options of Java, and the lines of zoo.cfg.
        options = (f"--java={option}" for option in java)
        command = (f"--id={number}", *options, *(f"{name}={value}" for name, value in entries.items()))
        return MemberStart(command, (DATA_DIR,))

    # The critical path of a request in ZooKeeper; docs/stores.md derives it, with the places in its source.

    def write_ns(self, request: Request) -> float:
        # The leader proposes a write and logs it itself at the same time; it commits once a majority has logged it,
        # whether or not it is one of them. A follower answers when it learns of the commit, whether or not its own sync
        # is over.
        assert request.leader is not None
        sizes, others, sync_ns = write_sizes(request.scenario), request.followers_needed, request.sync_ns
        if dict(self.choice.flags).get("forceSync") == "no":
            sync_ns = dict.fromkeys(request.members, 0.0)
        with_leader_ns = max(sync_ns[request.leader], request.answered_ns(others, sizes.copied, ACK, sync_ns))
        agreed_ns = with_leader_ns
        if len(request.living) - 1 > others:
            agreed_ns = min(with_leader_ns, request.answered_ns(others + 1, sizes.copied, ACK, sync_ns))
        served_ns = request.client_ns(sizes.request, sizes.answer) + request.forwarded_ns(sizes.forwarded, COMMIT)
        return served_ns + agreed_ns

    def read_ns(self, request: Request) -> float:
        # A member answers from its own state, after a way to the leader and back for all but serializable reads. The
        # leader answers at once: ``sync`` involves no majority.
        client_ns = request.client_ns(*read_sizes(request.scenario))
        if request.scenario.consistency == "s":
            return client_ns
        return client_ns + request.forwarded_ns(SYNC_REQUEST, SYNC_ANSWER)

    def place(self, prefix: str) -> tuple[store.LoadTerms, str]:
        # Below a znode of the run's own, where no other client writes.
        return replace(self.load_terms, always={**self.load_terms.always, "chroot": chroot_of(prefix)}), ""
