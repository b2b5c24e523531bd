"""cetcd: Consul's key-value API in front of etcd. Numbers and habits are those of its source (etcd-io/cetcd)."""

from __future__ import annotations

from containernet_env.model.scenario import Scenario
from containernet_env.stores.consul.cluster import values
from containernet_env.stores.consul.messages import Sizes
from containernet_env.stores.consul.settings import HTTP_PORT
from containernet_env.stores.etcd.flags import CLIENT_PORT as ETCD_PORT
from containernet_env.stores.protocol import Connection, LoadTerms
from containernet_env.stores.proxied.proxy import ClientSizes, Proxy

# It takes a parameter without a value for one that was not given (kv.go, gorilla/schema): so this one has a value. Of a
# key that is not there it gives an empty list.
_PROBE = "/v1/kv/containernet-env/probe?consistent=true"
_ANSWER = len("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue")
_READS = "answers reads without X-Consul-Index, and takes ?consistent and ?stale, as loads have them, for neither"
_NO_RANGES = "is asked for single keys"


def _read(connection: Connection, timeout_s: float) -> None:
    connection.request_json(HTTP_PORT, "GET", _PROBE, timeout_s=timeout_s)


def _writes(scenario: Scenario) -> ClientSizes:
    return ClientSizes(Sizes.of_write(scenario).request, _ANSWER)


def _reads(scenario: Scenario) -> ClientSizes:
    return ClientSizes(Sizes.of_read(scenario).request, _ANSWER)


CETCD = Proxy(
    name="cetcd",
    port=HTTP_PORT,
    # cmd/cetcd/main.go.
    arguments=(f"--consuladdr=0.0.0.0:{HTTP_PORT}", f"--etcd=127.0.0.1:{ETCD_PORT}"),
    load_terms=LoadTerms({"store": "consul", "leaderless": True}, leaderless=True),
    largest_value_bytes=512 << 10,
    lacks={
        "tls": "is run without TLS here",
        "txn": "has no transactions (/v1/txn is a stub)",
        "linearizable": _READS,
        "serializable": _READS,
        "default": _READS,
        "span": _NO_RANGES,
        "limit": _NO_RANGES,
        "keysOnly": _NO_RANGES,
        "countOnly": _NO_RANGES,
    },
    # There is no such page: it says so itself.
    ping=b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    read=_read,
    values=values,
    writes=_writes,
    reads=_reads,
    keys_are_paths=True,
)
