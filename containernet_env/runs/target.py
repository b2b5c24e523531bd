"""What the scenario matrix is run against: a store, a benchmark server, and perhaps a network and hosts of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from containernet_env.load.server import BenchmarkServer
from containernet_env.stores.protocol import Cluster


class MeasuredNetwork(Protocol):
    """Links that count what goes over them."""

    def link_statistics(self, *, reset: bool = False, buckets: bool = False) -> Mapping[str, Any]:
        """What every link saw; see ``containernet_env.model.link_statistics``."""


class ClientHost(Protocol):
    """The host that makes the load."""

    @property
    def alive(self) -> bool: ...


class Target(Protocol):
    """Something that can be measured. A store that somebody else runs has neither ``network`` nor ``client_host``."""

    network_failure: str | None
    """Why the network is no longer what was proved; ``None`` while it is."""
    leader_at_start: str | None

    @property
    def cluster(self) -> Cluster: ...

    @property
    def server(self) -> BenchmarkServer: ...

    @property
    def network(self) -> MeasuredNetwork | None: ...

    @property
    def client_host(self) -> ClientHost | None: ...
