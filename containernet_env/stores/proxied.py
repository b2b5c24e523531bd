"""etcd behind a proxy of the user's that serves clients of ZooKeeper or Consul, as stores.

Numbers and habits of the proxies are those of their sources (etcd-io/zetcd, etcd-io/cetcd).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import ClassVar

from containernet_env.base.programs import UserProgram, crash_line, how_ended, one_line
from containernet_env.model.config import Config, Node
from containernet_env.model.scenario import Scenario
from containernet_env.stores import consul, etcd, zookeeper
from containernet_env.stores.cluster import Cluster, MemberPlace, OwnHistory
from containernet_env.stores.etcd import Etcd, EtcdCluster, EtcdMember
from containernet_env.stores.store import RANGES, ImageParts, Lacking, LoadTerms, MemberStart, Timing, WriteSizes
from containernet_env.stores.zookeeper import ZnodeReader, ZooKeeper

# proxy_image/start-etcd-and-proxy.
_ENDED = re.compile(r"^the proxy ended with status ([0-9]+)$", re.MULTILINE)
_CETCD_ANSWER = len("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrue")
_READS = "answers reads without X-Consul-Index, and takes ?consistent and ?stale, as loads have them, for neither"

# --- members ----------------------------------------------------------------------------------------------------------


class ProxiedMember(EtcdMember):
    """One host with etcd and the proxy beside it, which serves clients: ``client_port``, ping and reads are its own."""

    # A member whose proxy does not serve has not rejoined.
    serves_late = True

    @classmethod
    def last_words(cls, log: str, killed: bool) -> str:
        # That the proxy ended, and its own words, where that came first; else etcd's.
        ended = _ENDED.search(log)
        before = log[: ended.start()] if ended else ""
        if ended is None or any(line["message"] == etcd.SIGNALLED for line in etcd.LOG.line.finditer(before)):
            return etcd.LOG.last_words(log, killed)
        status = int(ended[1])
        own = [line for line in etcd.LOG.line.sub("", before).splitlines() if line.strip()]
        words = crash_line(before) or (own[-1] if own and status <= 128 else "")
        return one_line(f"the proxy ended: {': '.join(filter(None, (how_ended(status), words)))}")


class ZetcdMember(ZnodeReader, ProxiedMember):
    pass


class CetcdMember(consul.KeyReader, ProxiedMember):
    # There is no such page, which the proxy itself answers.
    ping_request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class ProxiedCluster(EtcdCluster):
    """A cluster of etcd behind proxies; ``binary`` is the proxy's program."""

    def __init__(self, members: Sequence[EtcdMember], binary: UserProgram | None) -> None:
        super().__init__(members)
        self._binary = binary

    def version(self) -> str:
        return version_of(super().version(), self._binary)

    def written(self, prefix: str, since: int, keys: Collection[str], timeout_s: float) -> OwnHistory:
        # Only the proxy knows the names of keys in etcd, so it reads them.
        return Cluster.written(self, prefix, since, keys, timeout_s)


def version_of(etcd_version: str, binary: UserProgram | None) -> str:
    """The version in rows: etcd's, and the first digits of the program's SHA-256, where there is one yet."""
    return f"etcd {etcd_version}" if binary is None else f"etcd {etcd_version}, binary {binary.short}"


# --- the stores -------------------------------------------------------------------------------------------------------


class ProxiedEtcd(Etcd):
    """etcd behind a proxy. All that is not the proxy's is etcd's.

    Its floor has the necessary steps of any proxy, however it carries out requests: a write is at least one of etcd's
    with the key and value, a read that is not serializable one linearizable read of etcd's; between proxy and etcd is
    no link. A proxy that takes more of them for a request is above this floor. Sizes of requests and answers are the
    proxy's.
    """

    program: ClassVar[str] = "start-etcd-and-proxy"
    needs_binary = True
    externals = None
    follows_cpu_limit = False
    arguments: ClassVar[tuple[str, str]]
    """The two arguments with which the proxy is started."""

    @property
    def version(self) -> str:
        return version_of(super().version, self.choice.binary)

    @property
    def image(self) -> ImageParts:
        scripts, binary = (self.program,), self.choice.binary
        return replace(super().image, name=self.name, scripts=scripts, folder="proxy_image", binary=binary)

    def start(self, node: Node, config: Config, timing: Timing, run_id: str, *, profiled: bool = False) -> MemberStart:
        # The arguments of the proxy, then those of etcd. Each has half of the memory.
        half = replace(node, memory_bytes=node.memory_bytes and node.memory_bytes // 2)
        start = super().start(half, config, timing, run_id, profiled=profiled)
        return replace(start, command=(*self.arguments, *start.command))

    def cluster(self, places: Sequence[MemberPlace]) -> ProxiedCluster:
        return ProxiedCluster([self.members(place) for place in places], self.choice.binary)


class Zetcd(ProxiedEtcd):
    name: ClassVar[str] = "zetcd"
    section = "etcd"
    title: ClassVar[str] = "zetcd"
    members = ZetcdMember
    # cmd/zetcd/zetcd.go.
    arguments = (f"--zkaddr=0.0.0.0:{zookeeper.CLIENT_PORT}", f"--endpoints=127.0.0.1:{etcd.CLIENT_PORT}")
    # It knows no four-letter word but ruok, and takes others for the length of a message.
    load_terms = LoadTerms({"store": "zookeeper", "leaderless": True}, leaderless=True, second_tries=True)
    largest_value_bytes = 1_000_000
    consistency = ZooKeeper.consistency
    lacks: ClassVar[Lacking] = {
        "tls": "is run without TLS here",
        **{name: ZooKeeper.lacks[name] for name in ("default", *RANGES)},
    }

    def write_sizes(self, scenario: Scenario) -> WriteSizes:
        own = zookeeper.write_sizes(scenario)
        return super().write_sizes(scenario)._replace(request=own.request, answer=own.answer)

    def read_sizes(self, scenario: Scenario) -> tuple[int, int]:
        return zookeeper.read_sizes(scenario)


class Cetcd(ProxiedEtcd):
    name: ClassVar[str] = "cetcd"
    section = "etcd"
    title: ClassVar[str] = "cetcd"
    members = CetcdMember
    # cmd/cetcd/main.go.
    arguments = (f"--consuladdr=0.0.0.0:{consul.HTTP_PORT}", f"--etcd=127.0.0.1:{etcd.CLIENT_PORT}")
    load_terms = LoadTerms({"store": "consul", "leaderless": True}, leaderless=True)
    largest_value_bytes = 512 << 10
    keys_are_paths = True
    lacks: ClassVar[Lacking] = {
        "tls": "is run without TLS here",
        "txn": "has no transactions (/v1/txn is a stub)",
        **dict.fromkeys(("linearizable", "serializable", "default"), _READS),
        **dict.fromkeys(RANGES, "takes single keys alone"),
    }

    def write_sizes(self, scenario: Scenario) -> WriteSizes:
        return super().write_sizes(scenario)._replace(request=consul.write_sizes(scenario)[0], answer=_CETCD_ANSWER)

    def read_sizes(self, scenario: Scenario) -> tuple[int, int]:
        return consul.read_sizes(scenario)[0], _CETCD_ANSWER
