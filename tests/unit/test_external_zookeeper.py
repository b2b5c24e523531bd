"""ZooKeeper where somebody else runs it: what is looked at, what is refused, and that no znode is left."""

from __future__ import annotations

import socketserver
import ssl
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from containernet_env.base.errors import RunError
from containernet_env.model.leadership import Leadership
from containernet_env.stores.etcd.certificates import Authority
from containernet_env.stores.external import OwnKeys
from containernet_env.stores.zookeeper.external import MARK
from tests.unit.external_stores import config_of, of_zookeeper, opened
from tests.unit.zookeeper_server import zookeeper


def test_what_keys_hold_is_read_below_the_znode_of_the_run(tmp_path: Path) -> None:
    with zookeeper(1) as found:
        cluster = opened(of_zookeeper(tmp_path, found))
        assert cluster.try_write() is None
        found.znodes.update({"/containernet-env/abc/a%2Fb": b"own", "/k": b"other"})
        held = list(cluster.written("", 0, ["a/b", "k"], 5).writes)
        assert [(write.key, write.value) for write in held] == [("a/b", "own"), ("k", None)]


def test_observers_are_no_members_that_vote(tmp_path: Path) -> None:
    with zookeeper(2) as found:
        found.znodes["/zookeeper/config"] += b"\nserver.9=10.9.0.9:2888:3888:observer;0.0.0.0:2181\nversion=0"
        assert opened(of_zookeeper(tmp_path, found)).look(5).size == 2


def test_a_member_that_alone_finds_no_quorum_is_named(tmp_path: Path) -> None:
    with zookeeper(3) as found:
        found.servers[2].serves = False
        (problem,) = opened(of_zookeeper(tmp_path, found)).look(5).problems
        assert problem == f"{found.servers[2].address} serves no requests: it has found no quorum, and others have"


def test_a_znode_that_goes_while_the_one_below_it_is_made_is_made_again(tmp_path: Path) -> None:
    with zookeeper(1) as found:
        found.vanishing = "/containernet-env"
        assert opened(of_zookeeper(tmp_path, found)).try_write() is None
        assert found.own() == ["/containernet-env", "/containernet-env/abc"]


def test_keys_that_come_while_others_are_removed_are_removed_too(tmp_path: Path) -> None:
    with zookeeper(1) as found:
        cluster = opened(of_zookeeper(tmp_path, found))
        assert cluster.try_write() is None
        found.znodes["/containernet-env/abc/1"] = b"v"

        def late(removed: int) -> None:
            if removed == 1:
                found.znodes["/containernet-env/abc/2"] = b"v"

        assert cluster.remove_keys(late) == 2 and found.own() == []


def test_members_of_zookeeper_are_looked_at_and_nothing_is_written(tmp_path: Path) -> None:
    with zookeeper(3) as found:
        found.leader = 2
        before = dict(found.znodes)
        look = opened(of_zookeeper(tmp_path, found)).look(5)
        assert look.problems == [] and look.size == 3 and look.leadership == Leadership("zookeeper3", 3)
        assert [(member.version, member.leads) for member in look.members] == [("3.8.0", False)] * 2 + [("3.8.0", True)]
        assert found.znodes == before
    with zookeeper(1) as found:
        look = opened(of_zookeeper(tmp_path, found)).look(5)
        assert look.problems == [] and look.leadership == Leadership("zookeeper1", 3)


def test_why_zookeeper_cannot_be_measured_is_told(tmp_path: Path) -> None:
    with zookeeper(3) as found:
        config = of_zookeeper(tmp_path, found)
        found.leader = None
        (problem,) = opened(config).look(5).problems
        assert problem == "the cluster has no quorum: 3 of 3 endpoints answer, and serve no requests"
        found.leader = 0
        for word, told in (
            ("srvr is not executed because it is not in the whitelist.\n", "does not answer srvr: allow it (4lw"),
            ("HTTP/1.1 400 Bad Request\r\n", "is no voting member of ZooKeeper: srvr: HTTP/1.1 400 Bad Request"),
            ("Zookeeper version: 3.8.0\nZxid: 0x1\nMode: observer\n", "is no voting member of ZooKeeper"),
        ):
            found.word = word
            problems = opened(config).look(5).problems
            assert len(problems) == 3 and all(told in problem for problem in problems), problems
        found.word = None
        found.servers[1].number = 0
        assert opened(config).look(5).problems == ["two of the endpoints are of the same member"]
    with zookeeper(3) as found, zookeeper(1) as other:
        ends = [found.servers[0].address, other.servers[0].address]
        (problem,) = opened(config_of(tmp_path, "zookeeper", ends)).look(5).problems
        assert problem == "the endpoints are of different clusters: a member is alone"
    with zookeeper(3) as found, zookeeper(5) as other:
        ends = [found.servers[0].address, other.servers[4].address]
        (problem,) = opened(config_of(tmp_path, "zookeeper", ends)).look(5).problems
        assert problem == "the endpoints are of different clusters"


class _Tls(socketserver.BaseRequestHandler):
    """A member with a secureClientPort: it waits for more than a word of four letters."""

    context: ssl.SSLContext

    def handle(self) -> None:
        with suppress(OSError), self.context.wrap_socket(self.request, server_side=True):
            pass


def test_a_member_of_zookeeper_that_speaks_tls_is_told(tmp_path: Path) -> None:
    issued = Authority().issue("x")
    (tmp_path / "pair.pem").write_bytes(issued.certificate + issued.key)
    _Tls.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _Tls.context.load_cert_chain(tmp_path / "pair.pem")
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Tls) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        config = config_of(tmp_path, "zookeeper", [f"127.0.0.1:{server.server_address[1]}"])
        (problem,) = opened(config).look(0.5).problems
        assert problem.endswith("speaks TLS, which loads for ZooKeeper do not")
        server.shutdown()


def test_the_znode_of_the_run_is_made_and_is_at_all_members(tmp_path: Path) -> None:
    with zookeeper(3) as found, zookeeper(3) as other:
        cluster = opened(of_zookeeper(tmp_path, found))
        assert cluster.keys() == 0 and cluster.may_load() is None and cluster.try_write() is None
        assert found.own() == ["/containernet-env", "/containernet-env/abc"]
        ends = [found.servers[0].address, other.servers[1].address]
        told = opened(config_of(tmp_path, "zookeeper", ends)).try_write()
        assert "they are of different clusters" in str(told)
        assert cluster.remove_keys() == 0 and found.own() == other.own() == []
        found.denied = "/containernet-env"
        assert "its ACL does not allow that" in str(cluster.try_write()) and found.own() == []


@pytest.mark.parametrize("old", [False, True])
def test_all_znodes_of_a_run_are_removed_and_no_others(tmp_path: Path, old: bool) -> None:
    with zookeeper(3) as found:
        found.old = old
        cluster = opened(of_zookeeper(tmp_path, found))
        assert cluster.try_write() is None
        found.znodes.update({f"/containernet-env/abc/{number}%2F": b"v" for number in range(1200)})
        assert cluster.keys() == 1200
        found.znodes["/containernet-env/other"] = MARK
        told: list[int] = []
        assert cluster.remove_keys(told.append) == 1200 and told == [500, 1000, 1200]
        # Another run is there, so the znode above both stays.
        assert found.own() == ["/containernet-env", "/containernet-env/other"]


def test_a_znode_that_somebody_else_made_stays(tmp_path: Path) -> None:
    with zookeeper(3) as found:
        found.znodes.update({"/mine": b"", "/mine/bench": b""})
        cluster = opened(of_zookeeper(tmp_path, found, prefix="mine/bench/"), OwnKeys("mine/bench/abc/"))
        assert cluster.try_write() is None and "/mine/bench/abc" in found.own()
        cluster.remove_keys()
        assert found.own() == ["/mine", "/mine/bench"]


def test_that_the_znode_of_the_run_may_not_be_deleted_again_is_found_before_any_load(tmp_path: Path) -> None:
    with zookeeper(1) as found:
        found.znodes["/mine"] = b""
        for kept, prefix in (("/mine", "mine/"), ("/mine", "mine/bench/"), ("", "containernet-env/")):
            found.kept = kept
            told = opened(of_zookeeper(tmp_path, found, prefix=prefix), OwnKeys(f"{prefix}abc/")).try_write()
            assert "nobody may create, or delete, znodes here: delete /" in str(told), prefix
            assert found.own() == ["/mine"]


def test_a_znode_above_that_may_not_be_read_is_somebody_elses(tmp_path: Path) -> None:
    with zookeeper(1) as found:
        found.znodes["/mine"], found.secret = b"", "/mine"
        cluster = opened(of_zookeeper(tmp_path, found, prefix="mine/bench/"), OwnKeys("mine/bench/abc/"))
        assert cluster.try_write() is None and cluster.remove_keys() == 0
        assert found.own() == ["/mine"]


def test_znodes_above_are_removed_where_the_one_of_the_run_is_gone(tmp_path: Path) -> None:
    """As after a run, or its removal, that was ended between the two."""
    with zookeeper(1) as found:
        found.znodes["/containernet-env"] = MARK
        assert opened(of_zookeeper(tmp_path, found)).remove_keys() == 0 and found.own() == []


def test_where_one_member_of_zookeeper_is_silent_another_removes(tmp_path: Path) -> None:
    with zookeeper(3) as found:
        config = of_zookeeper(tmp_path, found)
        assert opened(config).try_write() is None
        found.znodes["/containernet-env/abc/1"] = b"v"
        found.servers[0].shutdown()
        found.servers[0].server_close()
        assert opened(config).remove_keys() == 1 and found.own() == []


def test_znodes_that_may_not_be_deleted_are_an_error(tmp_path: Path) -> None:
    with zookeeper(1) as found:
        cluster = opened(of_zookeeper(tmp_path, found))
        assert cluster.try_write() is None
        found.znodes["/containernet-env/abc/1"] = b"v"
        found.denied = "/containernet-env/abc/1"
        with pytest.raises(RunError, match="delete /containernet-env/abc/1: its ACL does not allow that"):
            cluster.remove_keys()
