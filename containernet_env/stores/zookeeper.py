"""ZooKeeper: its versions and flags, timing, four-letter words, sessions, members, its floor, and external clusters.

Members answer four-letter words (ZooKeeper's Administrator's Guide, "The Four Letter Words"). Followers do not name
their leader: the leader is the member that reports itself as the leader in the newest epoch, while enough others report
that they follow. In an external cluster nothing is written but by ``try_write`` and ``remove_keys``.
"""

from __future__ import annotations

import math
import re
import socket
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import ClassVar, TypeVar

from containernet_env.base import assets, clock
from containernet_env.base.errors import RunError
from containernet_env.base.http import Connection, NoAnswerError
from containernet_env.base.programs import one_line
from containernet_env.model import kinds
from containernet_env.model.config import Config, Node
from containernet_env.model.kinds import Kind
from containernet_env.model.scenario import Scenario
from containernet_env.model.topology import RttExpectation
from containernet_env.model.usage import Leadership, MemberActivity
from containernet_env.stores import cluster, external, store
from containernet_env.stores.cluster import QUERY_S, Counters, LogForm, LogPart, MemberStatus, Written
from containernet_env.stores.store import Download, MemberStart, Request, Timing, WriteSizes, key_bytes

T = TypeVar("T")
CLIENT_PORT = 2181

# --- four-letter words ------------------------------------------------------------------------------------------------

RUOK = b"ruok"
"""Answered whether or not the member has found a quorum."""
OBSERVER = "srvr: is an observer"
FOLLOWS = ""
"""The leader that a follower reports: it names none."""
_FIELD = re.compile(r"^([A-Z][A-Za-z ]*): (.*)$", re.MULTILINE)
_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)+")


def query(connection: Connection, word: str, timeout_s: float) -> str:
    """The whole answer of a member, after which it closes the connection. Raises ``RunError`` if there is none."""
    deadline, answer = clock.monotonic() + timeout_s, b""
    try:
        with connection.open(CLIENT_PORT, timeout_s=timeout_s) as made:
            made.sendall(word.encode())
            while part := made.recv(1 << 16):
                answer += part
                if len(answer) > _MOST_BYTES:
                    raise RunError(f"{word}: an answer of more than {_MOST_BYTES} bytes")
                if (left := deadline - clock.monotonic()) <= 0:
                    raise TimeoutError("timed out")
                made.settimeout(left)
    except OSError as error:
        raise RunError(f"{word}: {error}") from error
    return answer.decode(errors="replace")


def parse_srvr(name: str, answer: str) -> tuple[str, MemberStatus]:
    """The mode and the status that the member ``name`` reports.

    Raises ``RunError`` if it serves no client, is an observer, or reports something else.
    """
    fields = dict(_FIELD.findall(answer))
    version = _NUMBERS.match(fields.get("Zookeeper version", ""))
    mode = fields.get("Mode")
    if mode == "observer":
        raise RunError(OBSERVER)
    if version is None or mode not in ("leader", "follower", "standalone"):
        raise RunError(f"srvr: {answer.strip()[:80] or 'no answer'}")
    try:
        # The upper half of a transaction's number is that of the election of its leader.
        epoch = int(fields["Zxid"], 16) >> 32
    except (KeyError, ValueError) as error:
        raise RunError(f"srvr: {answer.strip()[:80]}") from error
    return mode, MemberStatus(name, FOLLOWS if mode == "follower" else name, epoch, version[0])


def parse_mntr(answer: str) -> Counters:
    """The figures that a member counts, without the ``zk_`` before their names; texts are left out."""
    return {name.removeprefix("zk_"): value for name, value in cluster.samples(answer, ("zk_",), "\t").items()}


# --- sessions ---------------------------------------------------------------------------------------------------------

# As much of ZooKeeper's wire protocol as the driver needs. Messages are jute's (ZooKeeper's src/zookeeper.jute): a
# length of four bytes, then fields in network order.


def _text(text: str) -> bytes:
    return _buffer(text.encode())


def _buffer(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


_CREATE, _DELETE, _EXISTS, _GET, _CHILDREN, _SYNC, _CLOSE, _DESCENDANTS = 1, 2, 3, 4, 8, 9, -11, 104
NO_NODE, NO_AUTH, NODE_EXISTS, NOT_EMPTY, _UNIMPLEMENTED = -101, -102, -110, -111, -6
_MEANINGS = {
    NO_NODE: "there is no such znode",
    NO_AUTH: "its ACL does not allow that",
    NODE_EXISTS: "it is there already",
    NOT_EMPTY: "it has children",
}
_SESSION_MS = 10_000
# A member lists a million children within this time.
_LIST_S = 120.0
# Protocol version, last zxid seen, timeout in ms, session id, then an empty password of 16 bytes, and not read-only.
_CONNECT = struct.pack(">iqiqi", 0, 0, _SESSION_MS, 0, 16) + bytes(16) + b"\0"
# Of an answer: xid, zxid and error. Of a znode (Stat): czxid and mzxid at its begin, 68 bytes in all.
_HEADER_BYTES, _STAT_BYTES = 16, 68
# The largest packet that members accept (jute.maxbuffer); the names of a znode's children may be more.
_MOST_BYTES, _MOST_BYTES_OF_NAMES = 1 << 20, 256 << 20
# A list of one: everything is allowed (31) to everybody.
_FOR_ALL = struct.pack(">ii", 1, 31) + _text("world") + _text("anyone")
# Kinds of znodes (CreateMode), without a number in their names: one that stays, and one that ends with its session.
_STAYS, _EPHEMERAL = struct.pack(">i", 0), struct.pack(">i", 1)
_ANY_VERSION = struct.pack(">i", -1)
_CONFIG = "/zookeeper/config"
# Those that vote: observers have that word after their ports.
_VOTER = re.compile(rb"^server\.([0-9]+)=(?![^;\n]*:observer)", re.MULTILINE)
# Names below the root that mean something else; the load escapes their first byte (store/zookeeper/jute/request.go).
_SPECIAL = (".", "..", "zookeeper")


def path_of(key: str) -> str:
    """The path of a key's znode, as the load has it: every byte that is no plain character is ``%`` and two digits."""
    escaped = "".join(chr(c) if 32 <= c < 127 and c not in b"/%" else f"%{c:02X}" for c in key.encode())
    return f"/%{ord(key[0]):02X}{key[1:]}" if key in _SPECIAL else f"/{escaped}"


class ZnodeError(RunError):
    """A member refused an operation on a znode: ``code`` is ZooKeeper's (KeeperException.Code)."""

    def __init__(self, what: str, path: str, code: int) -> None:
        super().__init__(f"{what} {path}: {_MEANINGS.get(code, f'error {code}')}")
        self.code = code


class Session:
    """A session that a member has given. Every method raises ``RunError`` if it is silent or ends the session.

    ``deadline`` is on the monotonic clock, seconds; operations with a duration of their own move it.
    """

    def __init__(self, made: socket.socket, deadline: float) -> None:
        self._made = made
        self._deadline = deadline
        self._requests = 0
        self._send(_CONNECT)
        answer = self._packet()
        self.id = struct.unpack(">Q", answer[8:16])[0] if len(answer) >= 16 else 0
        if self.id == 0:
            raise RunError("the member gives no session")

    @property
    def server(self) -> int:
        """The number of the member (SessionTrackerImpl.initializeNextSessionId), 0 of one that is alone."""
        return int(self.id >> 56)

    def request(self, operation: int, body: bytes = b"") -> tuple[int, bytes]:
        """The answer's error, and the part after its header."""
        self._request(operation, body)
        return self._answer()

    def read(self, path: str) -> tuple[bytes, int] | None:
        """The content of a znode, and the transaction that wrote it; ``None`` if there is no such znode."""
        code, body = self._do("read", path, _GET, b"\0", NO_NODE)
        if code == NO_NODE:
            return None
        if len(body) < 4 + _STAT_BYTES:
            raise RunError(f"the read of {path} failed: {len(body)} bytes")
        return body[4:-_STAT_BYTES], int(struct.unpack(">q", body[-_STAT_BYTES:][8:16])[0])

    def voters(self) -> frozenset[str]:
        """The numbers of the cluster's voting servers, by its configuration; none if it does not list them.

        Each member has written its addresses as in its own file, so they may differ from those of others.
        """
        config, _ = self.read(_CONFIG) or (b"", 0)
        return frozenset(number.decode() for number in _VOTER.findall(config))

    def exists(self, path: str) -> bool:
        return self._do("look for", path, _EXISTS, b"\0", NO_NODE)[0] == 0

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        """Make a znode for all clients, which stays or ends with this session. Raises ``ZnodeError``."""
        self._do("create", path, _CREATE, _buffer(data) + _FOR_ALL + (_EPHEMERAL if ephemeral else _STAYS))

    def delete_empty(self, path: str) -> bool:
        """Delete a znode unless it has children; whether it no longer exists."""
        return self._do("delete", path, _DELETE, _ANY_VERSION, NO_NODE, NOT_EMPTY)[0] != NOT_EMPTY

    def delete_all(self, paths: Sequence[str], timeout_s: float) -> int:
        """Delete znodes, all requests ahead of the first answer; how many were there. Raises ``ZnodeError``."""
        self._deadline = clock.monotonic() + timeout_s
        for path in paths:
            self._request(_DELETE, _text(path) + _ANY_VERSION)
        codes = [self._answer()[0] for _ in paths]
        for path, code in zip(paths, codes, strict=True):
            if code not in (0, NO_NODE):
                raise ZnodeError("delete", path, code)
        return codes.count(0)

    def children(self, path: str) -> list[str]:
        """The names of a znode's children; none where there is no such znode."""
        self._deadline = clock.monotonic() + _LIST_S
        code, body = self._do("list", path, _CHILDREN, b"\0", NO_NODE, most_bytes=_MOST_BYTES_OF_NAMES)
        if code == NO_NODE:
            return []
        names, at = list[str](), 4
        try:
            for _ in range(*struct.unpack(">i", body[:4])):
                (size,) = struct.unpack(">i", body[at : at + 4])
                names.append(body[at + 4 : at + 4 + size].decode())
                at += 4 + size
        except (struct.error, UnicodeError) as error:
            raise RunError(f"the member's list of the children of {path} cannot be read") from error
        return names

    def descendants(self, path: str) -> int:
        """How many znodes are below one, at any depth; of a member older than 3.6 its children alone."""
        code, body = self._do("count what is below", path, _DESCENDANTS, b"", NO_NODE, _UNIMPLEMENTED)
        if code == _UNIMPLEMENTED:
            return len(self.children(path))
        if code == 0 and len(body) != 4:
            raise RunError(f"the count of what is below {path} failed: {len(body)} bytes")
        return int(struct.unpack(">i", body)[0]) if code == 0 else 0

    def _do(
        self, what: str, path: str, operation: int, body: bytes, *allowed: int, most_bytes: int = _MOST_BYTES
    ) -> tuple[int, bytes]:
        """The error, 0 or one of those that are ``allowed``, and the answer to an operation. Raises ``ZnodeError``."""
        self._request(operation, _text(path) + body)
        code, answer = self._answer(most_bytes)
        if code not in (0, *allowed):
            raise ZnodeError(what, path, code)
        return code, answer

    def _request(self, operation: int, body: bytes) -> None:
        self._requests += 1
        self._send(struct.pack(">ii", self._requests, operation) + body)

    def _send(self, message: bytes) -> None:
        self._made.settimeout(self._left())
        self._made.sendall(_buffer(message))

    def _answer(self, most_bytes: int = _MOST_BYTES) -> tuple[int, bytes]:
        answer = self._packet(most_bytes)
        if len(answer) < _HEADER_BYTES:
            raise RunError(f"the member's answer ends after {len(answer)} bytes")
        return struct.unpack(">i", answer[12:_HEADER_BYTES])[0], answer[_HEADER_BYTES:]

    def _packet(self, most_bytes: int = _MOST_BYTES) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        if not 0 <= length <= most_bytes:
            raise RunError(f"the member answers with a message of {length} bytes")
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            self._made.settimeout(self._left())
            part = self._made.recv(min(count - len(data), 1 << 20))
            if not part:
                raise RunError("the member closed the connection")
            data += part
        return bytes(data)

    def _left(self) -> float:
        left = self._deadline - clock.monotonic()
        if left <= 0:
            raise RunError("the member does not answer in time")
        return left


@contextmanager
def synced(connection: Connection, timeout_s: float) -> Iterator[Session]:
    """A session at the member, which has synced with its leader; it is closed at the end. Raises ``RunError``."""
    deadline = clock.monotonic() + timeout_s
    try:
        with connection.open(CLIENT_PORT, timeout_s=timeout_s) as made:
            session = Session(made, deadline)
            code, _ = session.request(_SYNC, _text("/"))
            # A proxy that carries out a sync as a read has no node for the root (zetcd); ZooKeeper ignores the path.
            if code not in (0, NO_NODE):
                raise RunError(f"sync failed with error {code}")
            try:
                yield session
            except ZnodeError:
                with suppress(OSError, RunError):  # the first error is the one to report
                    session.request(_CLOSE)
                raise
            session.request(_CLOSE)
    except OSError as error:
        raise RunError(f"a session of ZooKeeper failed: {error}") from error


# --- log and counters -------------------------------------------------------------------------------------------------

# zookeeper_image/logback.xml and log4j.properties; a stack trace may follow on lines of its own.
LINE = re.compile(
    r"^(?P<at>[0-9-]{10}T[0-9:.]+Z) (?P<level>[A-Z]+) +(?P<logger>[^ \n]+) - (?P<message>[^\n]*)$", re.MULTILINE
)
LOG = LogForm(
    LINE,
    ("ERROR",),
    "WARN",
    # Numbers, addresses, names of files and sessions.
    varying=re.compile(r"0x[0-9a-f]+|/[^ ,]*|\b[0-9]+(?:\.[0-9]+)*(?:ms)?\b"),
    notable=re.compile(r"^(Snapshotting|LEADING - LEADER ELECTION TOOK|FOLLOWING - LEADER ELECTION TOOK)"),
)
_OUT_OF_MEMORY = re.compile(r"^Terminating due to (java\.lang\.OutOfMemoryError: .*)$", re.MULTILINE)
_JAVA = re.compile(r"^(?:Error: |Exception in thread )(.*)$", re.MULTILINE)


# --- members ----------------------------------------------------------------------------------------------------------


class ZnodeReader(cluster.Member):
    """A member that serves ZooKeeper's protocol. It is read in sessions, on which most members have to agree."""

    client_port = CLIENT_PORT
    ping_request = RUOK

    def read(self, timeout_s: float) -> None:
        with synced(self.connection, timeout_s):
            pass

    def values(self, prefix: str, keys: Collection[str], timeout_s: float) -> list[Written]:
        # In one session, after a sync: the member has everything that was committed before.
        chroot = chroot_of(self.prefix)
        with synced(self.connection, timeout_s) as session:
            read = ((key, session.read(f"{chroot}{path_of(key)}") or (None, 0)) for key in keys)
            return [Written.of(transaction, key, value) for key, (value, transaction) in read]


class ZooKeeperMember(ZnodeReader):
    log_form: ClassVar[LogForm] = LOG

    def status(self, timeout_s: float = QUERY_S) -> MemberStatus:
        return parse_srvr(self.name, query(self.connection, "srvr", timeout_s))[1]

    def has_started(self, timeout_s: float = QUERY_S) -> bool:
        # A member without a leader answers this query, too.
        try:
            return bool(query(self.connection, RUOK.decode(), timeout_s))
        except RunError:
            return False

    def counters(self, timeout_s: float) -> Counters:
        if not (found := parse_mntr(query(self.connection, "mntr", timeout_s))):
            raise RunError(f"{self.name} serves no requests")
        return found

    @classmethod
    def last_words(cls, log: str, killed: bool) -> str:
        if (memory := _OUT_OF_MEMORY.search(log)) is not None:
            return one_line(memory[1])
        # Errors are more informative than the warnings of connections that end with the member.
        for level in ("ERROR", "WARN"):
            if lines := [line for line in LINE.finditer(log) if line["level"] == level]:
                before = f"last {'error' if level == 'ERROR' else 'warning'}: " if killed else ""
                return one_line(f"{before}{lines[-1]['message']}")
        if (java := _JAVA.search(log)) is not None:
            return one_line(java[0])
        return "" if killed or LINE.search(log) else one_line(log.strip().partition("\n")[0])

    @staticmethod
    def activity(before: Counters, after: Counters, log: LogPart | None) -> MemberActivity:
        size = after.get("approximate_data_size")
        if after.get("uptime", 0) < before.get("uptime", 0):
            before = {}  # it counts from 0 again
        return MemberActivity(
            leader_changes=cluster.grown(before, after, "cnt_election_time"),
            # Writes of the log forced to disk.
            log_syncs=cluster.durations(before, after, "cnt_fsynctime", "sum_fsynctime"),
            data_bytes=None if size is None else int(size),
            data_grown_bytes=cluster.grown(before, after, "approximate_data_size"),
            warnings=None if log is None else log.warnings,
        )


class ZooKeeperCluster(cluster.Cluster[ZooKeeperMember]):
    def _leadership(self, statuses: Mapping[ZooKeeperMember, MemberStatus | None], required: int) -> Leadership | None:
        answers = [status for status in statuses.values() if status is not None]
        leading = [status for status in answers if status.leader_id == status.member_id]
        following = sum(status.leader_id == FOLLOWS for status in answers)
        if not leading or 1 + following < required:
            return None
        newest = max(leading, key=lambda status: status.raft_term)
        return Leadership(newest.member_id, newest.raft_term)

    def _is_ready(self, leadership: Leadership) -> bool:
        try:
            in_sync = self._member(leadership.leader).counters(QUERY_S).get("synced_followers", 0)
            return in_sync >= len(self.members) - 1
        except RunError:
            return False


# --- external clusters ------------------------------------------------------------------------------------------------

MARK = b"containernet-env"
"""The content of the znodes above the keys that runs have made: those without it are of others, and stay."""
_BATCH_KEYS = 500
# Answers of members without a quorum (NettyServerCnxn, ServerCnxn), and to words that are not allowed.
_NO_QUORUM = "serves no requests: it has found no quorum, and others have"
_NOT_SERVING, _NOT_ALLOWED = "not currently serving requests", "not in the whitelist"
# Another run may remove a znode that is empty while this one creates a child of it.
_TRIES = 5
_TEXT = 120


def chroot_of(prefix: str) -> str:
    """The znode below which keys with a prefix are; empty for the root."""
    return f"/{prefix.removesuffix('/')}" if prefix else ""


def _above(chroot: str) -> list[str]:
    """The path and those above it, from the first one below the root on."""
    names = chroot.split("/")
    return ["/".join(names[:end]) for end in range(2, len(names) + 1)]


class ExternalZooKeeper(external.ExternalCluster[ZooKeeperMember], ZooKeeperCluster):
    """An external ZooKeeper cluster; see ``ExternalCluster``.

    ZooKeeper has no name for a cluster; members of one have the same configuration.
    """

    @property
    def _chroot(self) -> str:
        return chroot_of(self._own.prefix)

    def _is_refusal(self, error: RunError) -> bool:
        return isinstance(error, ZnodeError)

    def _look_at(self, member: ZooKeeperMember, look: external.MemberLook, timeout_s: float) -> external.MemberLook:
        # A member without a quorum has no status.
        try:
            mode, status = parse_srvr(member.name, query(member.connection, "srvr", timeout_s))
        except NoAnswerError:
            raise
        except RunError as error:
            text = external.first_line(error, _TEXT)
            if _NOT_SERVING in text:
                return look
            if _NOT_ALLOWED in text:
                return replace(look, problem="does not answer srvr: allow it (4lw.commands.whitelist)")
            # A port with TLS waits for more than the word.
            if isinstance(error.__cause__, OSError) and self._plain[member].speaks_tls(timeout_s):
                return replace(look, problem="speaks TLS, which loads for ZooKeeper do not")
            if text == OBSERVER:
                return replace(look, problem="is an observer, which does not vote: leave it out")
            return replace(look, problem=f"is no voting member of ZooKeeper: {text}")
        return replace(look, version=status.version, status=status, cluster=mode)

    def _judge(self, found: external.ClusterLook, timeout_s: float) -> external.ClusterLook:
        count = len(found.members)
        if found.problems:
            return found
        if not found.statuses:
            counts = f"{count} of {count} endpoints answer, and serve no requests"
            return replace(found, problem=f"the cluster has no quorum: {counts}")
        if len(found.statuses) < count:
            looks = (look if look.status else replace(look, problem=_NO_QUORUM) for look in found.members)
            return replace(found, members=tuple(looks))
        if count > 1 and any(look.cluster == "standalone" for look in found.members):
            return replace(found, problem="the endpoints are of different clusters: a member is alone")
        # The number of each member, and the servers of its cluster, on which a majority agrees in each session.
        sessions = []
        try:
            for member in self.members:
                with synced(member.connection, timeout_s) as opened:
                    sessions.append((opened.server, opened.voters()))
        except RunError as error:
            reason = external.first_line(error, _TEXT)
            return replace(found, problem=f"the cluster has no quorum: a sync was not answered ({reason})")
        if len({own for own, _ in sessions}) < count:
            return replace(found, problem="two of the endpoints are of the same member")
        if len({servers for _, servers in sessions}) > 1:
            return replace(found, problem="the endpoints are of different clusters")
        # Followers do not name their leader.
        leader = next((look.name for look in found.members if look.leads), None)
        newest = max(status.raft_term for status in found.statuses)
        leadership = None if leader is None else Leadership(leader, newest)
        return replace(found, size=len(sessions[0][1]) or None, leadership=leadership)

    def try_write(self) -> str | None:
        # Makes the znode that the keys are below, which all members have then.
        try:
            with synced(self.members[0].connection, external.REQUEST_S) as opened:
                self._try_delete(opened)
                self._make_chroot(opened)
        except ZnodeError as error:
            if error.code == NO_AUTH:
                return f"znodes may not be created, or deleted, here: {error}"
            return str(error)
        except RunError as error:
            return f"{self.members[0].endpoint}: {error}"
        return self._lacking(lambda member: self._in_session(member, lambda opened: opened.exists(self._chroot)))

    def _try_delete(self, opened: Session) -> None:
        """Make a znode beside the first one that lacks, and delete it: where that is refused it ends with the session.

        All znodes below it will be of this run. Raises RunError.
        """
        there = [path for path in _above(self._chroot) if opened.exists(path)]
        trial = f"{there[-1] if there else ''}/{self._chroot.rpartition('/')[2]}"
        opened.create(trial, MARK, ephemeral=True)
        opened.delete_all([trial], external.REQUEST_S)

    def _make_chroot(self, opened: Session) -> None:
        for tried in range(_TRIES):
            try:
                for path in _above(self._chroot):
                    if not opened.exists(path):
                        opened.create(path, MARK)
                return
            except ZnodeError as error:
                if error.code not in (NO_NODE, NODE_EXISTS) or tried == _TRIES - 1:
                    raise

    def keys(self) -> int:
        # The znodes below the one of the prefix, at any depth.
        return self._at_one(lambda member: self._in_session(member, lambda opened: opened.descendants(self._chroot)))

    def remove_keys(self, checked: Callable[[int], None] = lambda removed: None) -> int:
        # Then the znodes above them that runs have made and that are empty.
        removed = 0

        def remove(opened: Session) -> None:
            nonlocal removed
            while names := opened.children(self._chroot):
                for first in range(0, len(names), _BATCH_KEYS):
                    paths = [f"{self._chroot}/{name}" for name in names[first : first + _BATCH_KEYS]]
                    removed += opened.delete_all(paths, external.REQUEST_S)
                    checked(removed)
            for path in reversed(_above(self._chroot)):
                # If some are gone, or were never made, the ones above may exist.
                if opened.exists(path) and not (_is_of_runs(opened, path) and opened.delete_empty(path)):
                    break

        self._at_one(lambda member: self._in_session(member, remove))
        return removed

    @staticmethod
    def _in_session(member: ZooKeeperMember, act: Callable[[Session], T]) -> T:
        with synced(member.connection, external.REQUEST_S) as opened:
            return act(opened)


def _is_of_runs(opened: Session, path: str) -> bool:
    try:
        found = opened.read(path)
        return found is not None and found[0] == MARK
    except ZnodeError as error:
        if error.code == NO_AUTH:  # those that runs make can be read by all clients
            return False
        raise


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


def _text_bytes(length: int) -> int:
    return _LENGTH + length


def _path(scenario: Scenario) -> int:
    """A key is a node below the root."""
    return _text_bytes(1 + key_bytes(scenario))


def write_sizes(scenario: Scenario) -> WriteSizes:
    """Those of a scenario's writes; of writes that create a key a few bytes less than the least is taken."""
    path, data = _path(scenario), _text_bytes(scenario.val_size)
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
    answer = _LENGTH + _ANSWER_HEADER + _text_bytes(scenario.val_size) + _STAT
    if scenario.consistency != "s":
        request += _LENGTH + _REQUEST_HEADER + _text_bytes(1)
        answer += _LENGTH + _ANSWER_HEADER + _text_bytes(1)
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


_RUNTIME = "openjdk-17-jre-headless"
_TICKS = "has ticks instead: the flags tickTime, initLimit and syncLimit of the store"


def bad_prefix(prefix: str) -> tuple[str, str] | None:
    """The fault of a prefix of keys and the allowed form; ``None`` if there is no fault."""
    if (problem := store.path_problem(prefix)) is not None:
        return problem
    if not prefix.isascii() or " " in prefix:
        return "is no path of a znode here", "names of visible ASCII characters"
    if prefix.startswith("zookeeper/"):
        return "is of ZooKeeper's own znodes", "a prefix that does not begin with zookeeper/"
    return None


class ZooKeeper(store.Store):
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
            return store.ImageParts("zookeeper", scripts, packages=("libzookeeper-java", _RUNTIME))
        files = jars_of(self.version)
        return store.ImageParts("zookeeper", scripts, packages=(_RUNTIME,), files=files, version=self.version)

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
