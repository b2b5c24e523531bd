"""How many bytes ZooKeeper's messages are in a TCP stream. Pure.

Fields are those of ZooKeeper's src/zookeeper.jute; between members those of ``QuorumPacket``.
"""

from __future__ import annotations

from dataclasses import dataclass

from containernet_env.model.scenario import Scenario

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

ACK = COMMIT = PING = _PACKET
SYNC_ANSWER = _PACKET


def _text(length: int) -> int:
    return _LENGTH + length


def _path(scenario: Scenario) -> int:
    """A key is a node below the root."""
    return _text(1 + len(scenario.key_prefix) + scenario.key_size)


def sync_request() -> int:
    """``sync`` of the root, as a follower forwards it."""
    return _PACKET + _FORWARDED + _text(1)


@dataclass(frozen=True, slots=True)
class WriteSizes:
    """A write: from the client and back, forwarded to the leader, and from the leader to a follower."""

    request: int
    answer: int
    forwarded: int
    proposal: int

    @classmethod
    def of(cls, scenario: Scenario) -> WriteSizes:
        """Those of the writes of a scenario; of writes that create a key a few bytes less than the least is taken."""
        path, data = _path(scenario), _text(scenario.val_size)
        body, answer, txn = path + data + _VERSION, _STAT, path + data + _VERSION
        if scenario.type == "txn":
            # multi: check that the key exists, set it, end.
            check = path + _VERSION
            body = 3 * _MULTI_HEADER + check + body
            answer = 3 * _MULTI_HEADER + _STAT
            txn = _LENGTH + 2 * (4 + _LENGTH) + check + txn
        return cls(
            request=_LENGTH + _REQUEST_HEADER + body,
            answer=_LENGTH + _ANSWER_HEADER + answer,
            forwarded=_PACKET + _FORWARDED + body,
            proposal=_PACKET + _TXN_HEADER + txn + _DIGEST,
        )


@dataclass(frozen=True, slots=True)
class ReadSizes:
    """``getData``, with a ``sync`` sent ahead of it for all but serializable reads: from the client and back."""

    request: int
    answer: int

    @classmethod
    def of(cls, scenario: Scenario) -> ReadSizes:
        """Those of the reads of a scenario."""
        request = _LENGTH + _REQUEST_HEADER + _path(scenario) + 1
        answer = _LENGTH + _ANSWER_HEADER + _text(scenario.val_size) + _STAT
        if scenario.consistency != "s":
            request += _LENGTH + _REQUEST_HEADER + _text(1)
            answer += _LENGTH + _ANSWER_HEADER + _text(1)
        return cls(request, answer)
