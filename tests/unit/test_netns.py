"""Work in namespaces, as far as it goes without root: the machine's own namespace and the refusals."""

from __future__ import annotations

import pytest

from containernet_env.base.errors import RunError
from containernet_env.hosts import netns
from containernet_env.hosts.http import NamespaceConnection, NoAnswerError
from containernet_env.network.interface import too_many_neighbours


def test_a_process_that_is_gone_is_an_error() -> None:
    with pytest.raises(RunError, match="process 4194304"):
        netns.is_own(4194304)
    with pytest.raises(netns.ProcessGoneError, match="cannot enter the network namespace of process 4194304"):
        netns.call_in(4194304, lambda: None)
    with pytest.raises(NoAnswerError, match="GET /progress on port 8080: host benchmark has ended"):
        NamespaceConnection(4194304, "benchmark").request_json(8080, "GET", "/progress", timeout_s=60)
    with pytest.raises(NoAnswerError, match="GET /metrics on port 2379: host etcd1 has ended"):
        NamespaceConnection(4194304, "etcd1").request_bytes(2379, "/metrics", timeout_s=60)


def test_nothing_is_run_for_no_lines() -> None:
    netns.ip_batch(4194304, [])


@pytest.mark.parametrize(
    ("hosts", "limit", "too_many"), [(23, "1024", False), (24, "1024", True), (40, "16384", False), (24, None, True)]
)
def test_hosts_that_come_near_the_kernels_table_of_neighbours(
    hosts: int, limit: str | None, too_many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(pid: int, name: str) -> str:
        if limit is None:
            raise RunError("no such sysctl in this namespace")
        return limit

    monkeypatch.setattr(netns, "read_sysctl", read)
    assert too_many_neighbours(hosts * (hosts - 1)) is too_many
