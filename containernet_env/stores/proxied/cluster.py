"""A running cluster of etcd behind proxies: etcd tells who leads, and what is written; proxies serve the clients."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from containernet_env.base.errors import RunError
from containernet_env.base.programs import UserProgram
from containernet_env.stores.etcd import cluster as etcd
from containernet_env.stores.etcd.cluster import EtcdCluster
from containernet_env.stores.members import MemberCluster, MemberStatus
from containernet_env.stores.protocol import MemberPlace, OwnHistory, Ping, Written
from containernet_env.stores.proxied.last_words import last_words
from containernet_env.stores.proxied.proxy import Proxy


class Member(etcd.Member):
    """One host with etcd and the proxy beside it."""

    last_words = staticmethod(last_words)

    def __init__(self, place: MemberPlace, proxy: Proxy) -> None:
        super().__init__(place)
        self._proxy = proxy

    @property
    def endpoint(self) -> str:
        """See ``members.Member``."""
        return f"{self.place.ip}:{self._proxy.port}"

    @property
    def ping(self) -> Ping:
        """See ``members.Member``: whether the proxy answers."""
        return Ping(self.connection, self._proxy.port, self._proxy.ping)

    def read(self, timeout_s: float) -> None:
        """See ``members.Member``: through the proxy."""
        self._proxy.read(self.connection, timeout_s)

    def values(self, prefix: str, keys: Collection[str], timeout_s: float) -> list[Written]:
        """See ``members.Member``: as the proxy says."""
        return self._proxy.values(self.connection, prefix, keys, timeout_s)

    def knows_a_leader(self, timeout_s: float) -> bool:
        """See ``members.Member``: a member that nobody can ask has not rejoined."""
        try:
            self.read(timeout_s)
        except RunError:
            return False
        return super().knows_a_leader(timeout_s)


class ProxiedCluster(EtcdCluster):
    """See ``stores.protocol.Cluster``; ``binary`` is the proxy's program."""

    def __init__(self, places: Sequence[MemberPlace], proxy: Proxy, binary: UserProgram | None) -> None:
        super().__init__([Member(place, proxy) for place in places])
        self._binary = binary

    def _is_ready(self, statuses: Mapping[etcd.Member, MemberStatus | None]) -> bool:
        """Every proxy carries out a consistent read."""
        return self.answers(self.ask_s)

    def version(self) -> str:
        """See ``stores.protocol.Cluster``."""
        return version_of(super().version(), self._binary)

    def written(self, prefix: str, since: int, keys: Collection[str], timeout_s: float) -> OwnHistory:
        """See ``stores.protocol.Cluster``: only the proxy knows what it calls keys in etcd, so it is asked for them."""
        return MemberCluster.written(self, prefix, since, keys, timeout_s)


def version_of(etcd_version: str, binary: UserProgram | None) -> str:
    """What rows call a version: etcd's, and the first digits of the program's SHA-256, where there is one yet."""
    return f"etcd {etcd_version}" if binary is None else f"etcd {etcd_version}, binary {binary.short}"
