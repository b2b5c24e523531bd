"""How many bytes Consul's messages are in a TCP stream, at least. Pure.

Requests are those of benchmark_image/internal/store/consul, answers as Consul 1.16.1 gave them. Of what servers send
each other (MessagePack over yamux or Raft's own connections) only keys and values are counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from containernet_env.model.scenario import Scenario

SMALL = 1
"""A message between servers that carries no value: heartbeats, answers, requests for reads."""

_LINE_END = len("\r\n")
_REQUEST = len(" HTTP/1.1\r\nHost: 1.1.1.1:8500\r\n\r\n")
_LENGTH = len("Content-Length: 1\r\n")
_PUT, _GET, _TXN = len("PUT /v1/kv/"), len("GET /v1/kv/?raw"), len("PUT /v1/txn")
_ASKED = {"l": len("&consistent"), "s": len("&stale"), "default": 0}
# The parts of a transaction around its two keys and its value (consul.go there).
_TXN_PARTS = len('[{"KV":{"Verb":"get","Key":""}},{"KV":{"Verb":"set","Key":"","Value":""}}]')
_ANSWER = (
    len("HTTP/1.1 200 OK\r\nContent-Type: \r\nVary: Accept-Encoding\r\nX-Consul-Default-Acl-Policy: allow\r\n")
    + len("Date: Mon, 23 Nov 2026 03:05:16 GMT\r\n")
    + _LENGTH
    + _LINE_END
)
_WRITTEN = len("application/json") + len("true")
_READ = len(
    "text/plainContent-Security-Policy: sandbox\r\nX-Consul-Index: 1\r\nX-Consul-Knownleader: true\r\n"
    "X-Consul-Lastcontact: 0\r\nX-Content-Type-Options: nosniff\r\n"
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """From the client and back, from the agent that is asked to the leader and back, and from leader to followers."""

    request: int
    answer: int
    forwarded: int
    forwarded_answer: int
    append: int

    @classmethod
    def of_write(cls, scenario: Scenario) -> Sizes:
        """Those of the writes of a scenario."""
        key, value = len(scenario.key_prefix) + scenario.key_size, scenario.val_size
        if scenario.type == "txn":
            coded = 4 * -(-value // 3)
            request = _TXN + _REQUEST + _LENGTH + _TXN_PARTS + 2 * key + coded
        else:
            request = _PUT + key + _REQUEST + _LENGTH + value
        return cls(request, _ANSWER + _WRITTEN, key + value, SMALL, key + value)

    @classmethod
    def of_read(cls, scenario: Scenario) -> Sizes:
        """Those of the reads of a scenario, of one key."""
        key, value = len(scenario.key_prefix) + scenario.key_size, scenario.val_size
        assert scenario.consistency is not None
        request = _GET + key + _ASKED[scenario.consistency] + _REQUEST
        return cls(request, _ANSWER + _READ + value, key, value, SMALL)
