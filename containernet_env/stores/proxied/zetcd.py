"""zetcd: ZooKeeper's protocol in front of etcd. Numbers and habits are those of its source (etcd-io/zetcd)."""

from __future__ import annotations

from collections.abc import Collection

from containernet_env.model.scenario import Scenario
from containernet_env.stores.etcd.flags import CLIENT_PORT as ETCD_PORT
from containernet_env.stores.protocol import Connection, LoadTerms, Written
from containernet_env.stores.proxied.proxy import ClientSizes, Proxy
from containernet_env.stores.zookeeper.messages import ReadSizes, WriteSizes
from containernet_env.stores.zookeeper.session import consistent_read, values
from containernet_env.stores.zookeeper.settings import CLIENT_PORT
from containernet_env.stores.zookeeper.store import ZooKeeper
from containernet_env.stores.zookeeper.words import PING


def _writes(scenario: Scenario) -> ClientSizes:
    sizes = WriteSizes.of(scenario)
    return ClientSizes(sizes.request, sizes.answer)


def _reads(scenario: Scenario) -> ClientSizes:
    sizes = ReadSizes.of(scenario)
    return ClientSizes(sizes.request, sizes.answer)


def _values(connection: Connection, prefix: str, keys: Collection[str], timeout_s: float) -> list[Written]:
    return values(connection, keys, timeout_s)


_AS_ZOOKEEPER = ("default", "span", "limit", "keysOnly", "countOnly")
ZETCD = Proxy(
    name="zetcd",
    port=CLIENT_PORT,
    # cmd/zetcd/zetcd.go.
    arguments=(f"--zkaddr=0.0.0.0:{CLIENT_PORT}", f"--endpoints=127.0.0.1:{ETCD_PORT}"),
    # It knows no four-letter word but ruok, and takes others for the length of a message.
    load_terms=LoadTerms({"store": "zookeeper", "leaderless": True}, leaderless=True, second_tries=True),
    largest_value_bytes=1_000_000,
    consistency=ZooKeeper.consistency,
    lacks={"tls": "is run without TLS here", **{name: ZooKeeper.lacks[name] for name in _AS_ZOOKEEPER}},
    ping=PING,
    read=consistent_read,
    values=_values,
    writes=_writes,
    reads=_reads,
)
