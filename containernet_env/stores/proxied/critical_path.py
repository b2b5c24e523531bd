"""The critical path of a request to etcd behind a proxy: the client's messages, and etcd's own path. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from containernet_env.model.scenario import Scenario
from containernet_env.stores.critical_path import Deployment, put_share
from containernet_env.stores.etcd import critical_path
from containernet_env.stores.etcd.messages import ReadSizes, WriteSizes
from containernet_env.stores.proxied.proxy import Proxy


class CriticalPath:
    """Least latencies of requests: what any proxy has to wait for, however it carries them out.

    A write is one of etcd's that has its key and value at least, a read that is not serializable one linearizable read
    of etcd's; between proxy and etcd is no link. A proxy that takes more of them to a request is above this floor.
    """

    def __init__(self, deployment: Deployment, proxy: Proxy) -> None:
        self._etcd = critical_path.CriticalPath(deployment)
        self._proxy = proxy

    def shares(self, scenario: Scenario, asked: str, leader: str | None) -> Iterator[tuple[float, float]]:
        """See ``stores.protocol.LeastLatencies``. ``leader`` is not needed for serializable reads."""
        writes = put_share(scenario)
        if writes:
            assert leader is not None
            client = self._proxy.writes(scenario)
            sizes = replace(WriteSizes.of(scenario), request=client.request, answer=client.answer)
            yield writes, self._etcd.write_ns(asked, leader, sizes)
        if writes < 1:
            client = self._proxy.reads(scenario)
            agreed_by = None if scenario.consistency == "s" else leader
            yield 1 - writes, self._etcd.read_ns(asked, agreed_by, ReadSizes(client.request, client.answer))
