"""How many bytes etcd's messages are in a TCP stream, once a connection has carried some. Pure.

A least size, right within a few bytes: numbers that grow (revision, index, term) are taken as they are early in a run.
Fields are those of etcd's api/etcdserverpb/rpc.proto and raft_internal.proto, and of raft/v3's raftpb/raft.proto.
"""

from __future__ import annotations

from dataclasses import dataclass

from containernet_env.model.scenario import Scenario

# A field of a protobuf message: its tag, and its value as a varint.
_TAG = 1
_ID = _TAG + 9  # members', clusters' and requests' ids: most 64-bit numbers take 9 or 10 bytes
_SMALL = _TAG + 1  # below 128: types, terms, booleans
_INDEX = _TAG + 2  # revisions and indices below 16,384

# HTTP/2 (RFC 9113): a frame's header, and the most that a DATA frame may hold unless both sides agree on more.
_FRAME, _DATA_MAX = 9, 16_384
# gRPC's prefix of a message: compressed or not, and its length (gRPC's doc/PROTOCOL-HTTP2.md).
_PREFIX = 5
# Header fields are in HPACK's tables (RFC 7541) from the second request on, and take a byte each: the seven of
# benchmark_image/internal/h2/frame.go; status and content type of an answer; and the status in its trailers.
_REQUEST_FIELDS, _ANSWER_FIELDS, _TRAILER_FIELDS = 7, 2, 1

# server/etcdserver/api/rafthttp: msgappv2_codec.go (type, number of entries, each with its length, commit index), and
# message.go (length of the message).
_APPEND, _MESSAGE_LENGTH = 1 + 8 + 8 + 8, 8


def _varint(number: int) -> int:
    """How many bytes a number takes."""
    return max(1, -(-number.bit_length() // 7))


def _bytes(length: int) -> int:
    """A field of so many bytes."""
    return _TAG + _varint(length) + length


_RESPONSE_HEADER = _bytes(_ID + _ID + _INDEX + _SMALL)  # cluster, member, revision, term


def _request(message: int) -> int:
    """A gRPC request of the load generator."""
    data = _PREFIX + message
    return _FRAME + _REQUEST_FIELDS + -(-data // _DATA_MAX) * _FRAME + data


def _answer(message: int) -> int:
    """Its answer: headers, data, trailers."""
    data = _PREFIX + message
    return _FRAME + _ANSWER_FIELDS + -(-data // _DATA_MAX) * _FRAME + data + _FRAME + _TRAILER_FIELDS


def _chunk(content: int) -> int:
    """A chunk of HTTP/1.1 (RFC 9112, section 7.1), in which members send each other messages."""
    return len(f"{content:x}") + 2 + content + 2


def _raft(*fields: int) -> int:
    """A message between members: type, to, from, and the fields given."""
    return _chunk(_MESSAGE_LENGTH + _SMALL + _ID + _ID + sum(fields))


_CONTEXT = _bytes(8)
HEARTBEAT = _raft(_SMALL, _INDEX, _CONTEXT)
HEARTBEAT_ANSWER = _raft(_SMALL, _CONTEXT)
READ_INDEX = _raft(_bytes(_bytes(8)))
READ_INDEX_ANSWER = _raft(_SMALL, _INDEX, _bytes(_bytes(8)))
APPEND_ANSWER = _raft(_SMALL, _INDEX)
COMMIT = _chunk(1 + 8 + 8)
"""An append without entries, which tells the commit index."""


@dataclass(frozen=True, slots=True)
class WriteSizes:
    """A put or a transaction: from the client and back, forwarded to the leader, and from the leader to a follower."""

    request: int
    answer: int
    proposal: int
    append: int

    @classmethod
    def of(cls, scenario: Scenario) -> WriteSizes:
        """Those of the writes of a scenario."""
        key = len(scenario.key_prefix) + scenario.key_size
        put = _bytes(key) + _bytes(scenario.val_size)
        message, answer = put, _RESPONSE_HEADER
        if scenario.type == "txn":
            # benchmark_image/internal/store/etcd/wire/request.go: if the key exists, it is put again.
            compare = _SMALL + _SMALL + _bytes(key) + _SMALL
            message = _bytes(compare) + _bytes(_bytes(put))
            answer += _SMALL + _bytes(_bytes(_bytes(_INDEX)))  # succeeded; a put's answer with the revision alone
        # InternalRaftRequest: a header (field 100, so a tag of two bytes) with the request's id, and the request.
        proposed = 1 + _bytes(_ID) + _bytes(message)
        entry = _bytes(proposed)
        return cls(
            request=_request(message),
            answer=_answer(answer),
            proposal=_raft(_bytes(entry)),
            append=_chunk(_APPEND + _SMALL + _INDEX + entry),
        )


@dataclass(frozen=True, slots=True)
class ReadSizes:
    """A range: from the client and back."""

    request: int
    answer: int

    @classmethod
    def of(cls, scenario: Scenario) -> ReadSizes:
        """Those of the reads of a scenario, with as many keys in an answer as there are at most."""
        span, key = scenario.span, len(scenario.key_prefix) + scenario.key_size
        start, end = key, key + 1 if span.keys else 0
        if span.prefix is not None:
            start = end = len(span.prefix)
        elif span.start is not None and span.end is not None:
            start, end = len(span.start), len(span.end)
        request = _bytes(start) + (_bytes(end) if end else 0)
        request += _SMALL * sum((span.answer != "values", scenario.consistency == "s", span.limit is not None))
        pair = _bytes(key) + _INDEX + _INDEX + _SMALL  # created, modified, version
        pair += _bytes(scenario.val_size) if span.answer == "values" else 0
        answer = _RESPONSE_HEADER + scenario.keys_answered * _bytes(pair) + _SMALL
        return cls(_request(request), _answer(answer))
