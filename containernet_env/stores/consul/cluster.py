"""A running Consul cluster, seen from the driver; agents are queried over their HTTP API."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import quote

from containernet_env.base.errors import RunError
from containernet_env.stores import members
from containernet_env.stores.consul.log import last_words
from containernet_env.stores.consul.observation import ConsulObservation
from containernet_env.stores.consul.settings import HTTP_PORT
from containernet_env.stores.members import ASK_S, MemberCluster, MemberStatus
from containernet_env.stores.protocol import Connection, MemberPlace, Written

SELF = "/v1/agent/self"
"""What the agent itself is and knows, from its memory (agent/agent_endpoint.go): it asks no other for that."""
# The addresses of all servers that its Raft has; empty before they have found each other.
_PEERS = "/v1/status/peers"
# The consistent read that proves that a quorum answers.
_PROBE = "/v1/kv/{}?consistent"
# All keys with one prefix, and what they hold. Consul looks at no values of parameters, and cetcd wants some.
_KEYS = "/v1/kv/{}?recurse=true&consistent=true"
# What a key that is not there holds, and since when.
_NONE = (0, None)
_MOVE_LEADER = "/v1/operator/raft/transfer-leader?id="
# Answered by the agent from memory: no quorum, no disk.
_PING = b"GET /v1/agent/version HTTP/1.1\r\nHost: localhost\r\n\r\n"


def status_of(answer: Any) -> MemberStatus:
    """What a server's own answer says; its id is the address that other servers have of it.

    Raises KeyError, TypeError or ValueError where it says something else, as a client agent does.
    """
    consul, raft = answer["Stats"]["consul"], answer["Stats"]["raft"]
    host, port = answer["Member"]["Addr"], answer["Member"]["Tags"]["port"]
    return MemberStatus(
        member_id=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        leader_id=consul["leader_addr"] or None,
        raft_term=int(raft["term"]),
        version=str(answer["Config"]["Version"]),
    )


def values(connection: Connection, prefix: str, keys: Collection[str], timeout_s: float) -> list[Written]:
    """See ``members.Member.values``: all keys with the prefix in one answer, of at most 16 MiB."""
    path = _KEYS.format(quote(prefix))
    try:
        answer = connection.request_json(HTTP_PORT, "GET", path, timeout_s=max(timeout_s, 0.1)) or ()
        held = {
            entry["Key"]: (int(entry["ModifyIndex"]), base64.b64decode(entry["Value"] or "", validate=True))
            for entry in answer
        }
    except RunError as error:
        if getattr(error, "status", None) != 404:
            raise
        held = {}
    except (KeyError, TypeError, ValueError) as error:
        raise RunError("it does not tell what keys hold: is it a server of Consul?") from error
    return [Written.of(index, key, value) for key in keys for index, value in [held.get(key, _NONE)]]


class Member(members.Member):
    """One server agent and the host it runs on."""

    client_port = HTTP_PORT
    ping_request = _PING
    last_words = staticmethod(last_words)
    probe_key = "containernet-env/probe"
    """A key that no load writes."""

    def __init__(self, place: MemberPlace) -> None:
        super().__init__(place)
        self.node_id = ""

    def status(self, timeout_s: float = ASK_S) -> MemberStatus:
        """See ``members.Member``."""
        answer = self.connection.request_json(HTTP_PORT, "GET", SELF, timeout_s=timeout_s)
        try:
            self.node_id = str(answer["Config"]["NodeID"])
            return status_of(answer)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{self.name} does not say who leads: is it a server of Consul?") from error

    def peers(self) -> list[str]:
        """The addresses of the servers that this one knows, itself among them. Raises RunError."""
        return self.connection.request_json(HTTP_PORT, "GET", _PEERS, timeout_s=ASK_S) or []

    def read(self, timeout_s: float) -> None:
        """See ``members.Member``."""
        try:
            path = _PROBE.format(quote(self.probe_key))
            self.connection.request_json(HTTP_PORT, "GET", path, timeout_s=timeout_s)
        except RunError as error:
            # What tells that there is no such key has gone through a quorum.
            if getattr(error, "status", None) != 404:
                raise

    def values(self, prefix: str, keys: Collection[str], timeout_s: float) -> list[Written]:
        """See ``members.Member``."""
        return values(self.connection, prefix, keys, timeout_s)

    def knows_a_leader(self, timeout_s: float) -> bool:
        """See ``members.Member``: Raft may know a leader that the gossip between servers has not found yet."""
        try:
            self.read(timeout_s)
        except RunError:
            return False
        return super().knows_a_leader(timeout_s)

    def hand_over(self, member_id: str, timeout_s: float) -> None:
        """See ``members.Member``; servers are chosen by the ids of their nodes."""
        self.connection.request_json(HTTP_PORT, "POST", _MOVE_LEADER + member_id, timeout_s=max(timeout_s, 0.1))


class ConsulCluster(MemberCluster[Member]):
    """See ``stores.protocol.Cluster``."""

    def _is_ready(self, statuses: Mapping[Member, MemberStatus | None]) -> bool:
        """Every server knows all of them, and answers consistent reads."""
        try:
            known = list(self._pool.map(Member.peers, self.members))
        except RunError:
            return False
        return all(len(servers) == len(self.members) for servers in known) and self.answers(self.ask_s)

    @staticmethod
    def _id_of(member: Member, statuses: Mapping[Member, MemberStatus | None]) -> str:
        MemberCluster._id_of(member, statuses)
        return member.node_id

    def observe(self) -> ConsulObservation:
        """See ``stores.protocol.Cluster``."""
        return ConsulObservation([member.place for member in self.living()])
