"""Work in namespaces, as far as it goes without root: the machine's own namespace and the refusals."""

from __future__ import annotations

import pytest

from containernet_env.base.errors import RunError
from containernet_env.base.http import NoAnswerError
from containernet_env.hosts import netns
from containernet_env.hosts.http import NamespaceConnection
from containernet_env.network.interface import too_many_neighbours


def test_a_process_that_is_gone_is_an_error() -> None:
    gone = 4194304
    netns.ip_batch(gone, [])  # nothing is run for no lines
    with pytest.raises(RunError, match="process 4194304"):
        netns.is_own(gone)
    with pytest.raises(netns.ProcessGoneError, match="cannot enter the network namespace of process 4194304"):
        netns.call_in(gone, lambda: None)
    connection = NamespaceConnection(gone, "etcd1")
    with pytest.raises(NoAnswerError, match="GET /progress on port 8080: host etcd1 has ended"):
        connection.request_json(8080, "GET", "/progress", timeout_s=60)
    with pytest.raises(NoAnswerError, match="GET /metrics on port 2379: host etcd1 has ended"):
        connection.request_bytes(2379, "/metrics", timeout_s=60)


def test_hosts_that_come_near_the_kernels_table_of_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    for hosts, limit, too_many in ((23, "1024", False), (24, "1024", True), (40, "16384", False), (24, None, True)):

        def read(pid: int, name: str, limit: str | None = limit) -> str:
            if limit is None:
                raise RunError("no such sysctl in this namespace")
            return limit

        monkeypatch.setattr(netns, "read_sysctl", read)
        assert too_many_neighbours(hosts * (hosts - 1)) is too_many, (hosts, limit)
