"""What killed runs have left on external clusters: who removes it, by which requests, and where."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from containernet_env.base import cache
from containernet_env.base.errors import RunError
from containernet_env.cli import check, clean
from containernet_env.hosts import owner
from containernet_env.model.config import Config
from containernet_env.model.keys import Keys
from containernet_env.runs import external_left
from containernet_env.stores.external import OwnKeys
from tests.unit import fake_servers
from tests.unit.fake_servers import (
    KEYS,
    OWN,
    PREFIX,
    SERVICE,
    STAY,
    ConsulCluster,
    Network,
    Service,
    ZooKeeperCluster,
    config_of,
    of,
    opened,
    services,
)

network = fake_servers.network
FEW = Keys(4, 300, PREFIX)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the folders of runs on external clusters are, in a cache of the test's own."""
    monkeypatch.setattr(cache, "own", lambda: tmp_path / "cache")
    return external_left.home()


@pytest.fixture
def over(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Once called, all runs are over."""
    return lambda: monkeypatch.setattr(owner, "is_alive", lambda _: False)


def of_services(folder: Path, urls: Sequence[str], store: Any = SERVICE, **more: Any) -> Config:
    return config_of(folder, {**store, **more}, list(urls))


def killed(config: Config, at: Sequence[Service], over: Callable[[], None]) -> None:
    """A run that has written its keys and is no more."""
    external_left.begin(config, "abc", None, OwnKeys(PREFIX, (FEW,)))
    over()
    for service in at:
        service.values.update({FEW.name(number): b"v" for number in range(FEW.count)})


def cleaned(config: Config) -> list[str]:
    """What ``clean`` says of the runs that it finds."""
    found: list[str] = []
    external_left.clean(config, lambda run: found.append(run.done), found.append)
    return found


# --- the folder of a run ----------------------------------------------------------------------------------------------


class _Killed(BaseException):
    """SIGKILL: nothing is caught or cleaned up any more."""


@pytest.mark.parametrize("call", ["write_text", "rename", "rmtree"])
def test_a_run_that_is_killed_while_it_makes_or_removes_its_folder_leaves_none(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, over: Callable[[], None]
) -> None:
    config = config_of(tmp_path, "etcd", ["http://10.1.0.1:2379"])
    folder = external_left.begin(config, "abc", "cluster-1", OWN) if call == "rmtree" else home
    with monkeypatch.context() as struck:

        def killed(*of: object, **more: object) -> None:
            struck.undo()
            raise _Killed

        struck.setattr(shutil if call == "rmtree" else Path, call, killed)
        with pytest.raises(_Killed):
            if call == "rmtree":
                external_left.end(folder)
            else:
                external_left.begin(config, "abc", "cluster-1", OWN)
    over()
    assert len(list(home.iterdir())) == 1 and not list(external_left.records())
    external_left.clean_up(config, "cluster-1", pytest.fail, pytest.fail)
    assert list(home.iterdir()) == []
    external_left.end(folder)


def test_what_another_process_makes_or_the_user_keeps_there_stays(home: Path, tmp_path: Path) -> None:
    home.mkdir(parents=True)
    kept = [home / f".abc.{owner.current().replace('/', '_')}", home / ".abc.mine", home / "mine"]
    for path in kept:
        path.mkdir()
    config = config_of(tmp_path, "etcd", ["http://10.1.0.1:2379"])
    external_left.clean_up(config, "cluster-1", pytest.fail, pytest.fail)
    assert sorted(home.iterdir()) == sorted(kept)


# --- keys -------------------------------------------------------------------------------------------------------------


def test_what_a_killed_run_left_is_removed_by_an_endpoint_of_both(
    network: Network, tmp_path: Path, over: Callable[[], None]
) -> None:
    consul, zookeeper = ConsulCluster(network, 2), ZooKeeperCluster(network, 1)
    external_left.begin(of(tmp_path, consul), "abc", None, OWN)
    over()
    consul.values.update(dict.fromkeys(map(KEYS.name, range(10)), b"v"))
    assert external_left.clean(of(tmp_path, zookeeper), pytest.fail, pytest.fail)[0].store == "consul"
    assert cleaned(config_of(tmp_path, "consul", consul.urls[1:])) == [f"removed 10 keys under {PREFIX}"]
    assert consul.values == {}
    external_left.begin(of(tmp_path, zookeeper), "abc", None, OWN)
    assert opened(of(tmp_path, zookeeper)).try_write() is None
    assert cleaned(of(tmp_path, zookeeper)) == [f"removed 0 keys under {PREFIX}"] and zookeeper.own() == []


def test_another_kind_of_store_at_the_same_endpoint_is_another_cluster(
    network: Network, tmp_path: Path, over: Callable[[], None]
) -> None:
    found = services(network, 1)
    killed(of_services(tmp_path, [found[0].url]), found, over)
    external_left.clean_up(config_of(tmp_path, "etcd", [found[0].url]), "cluster-1", pytest.fail, pytest.fail)
    assert list(external_left.records()) and len(found[0].values) == 300


def test_keys_are_deleted_by_the_requests_that_the_run_had(
    network: Network, tmp_path: Path, over: Callable[[], None]
) -> None:
    """Those of a file that was changed meanwhile find nothing, which counts as deleted: 404."""
    found = services(network, 1)
    killed(of_services(tmp_path, [found[0].url]), found, over)
    assert cleaned(of_services(tmp_path, [found[0].url], delete="/v1/{key}")) == [f"removed 300 keys under {PREFIX}"]
    assert found[0].values == {} and not list(external_left.records())


def test_of_a_killed_run_whose_keys_stay_that_is_said(
    network: Network, tmp_path: Path, over: Callable[[], None]
) -> None:
    found = services(network, 1)
    stay = of_services(tmp_path, [found[0].url], STAY)
    killed(stay, found, over)
    assert cleaned(stay) == [f"up to 300 keys stay under {PREFIX}"]
    assert len(found[0].values) == 300 and not list(external_left.records())


@pytest.mark.parametrize("again", [True, False], ids=["the file still names it", "the file does not any more"])
def test_members_that_are_gone_for_good_hold_up_nothing(
    network: Network, tmp_path: Path, over: Callable[[], None], again: bool
) -> None:
    one, gone, other = services(network, 3)
    gone.gone = True
    urls = [one.url, gone.url, other.url]
    killed(of_services(tmp_path, urls), [one], over)
    told = cleaned(of_services(tmp_path, urls if again else [one.url, other.url]))
    assert told[-1].startswith("removed ") and told[-1].endswith(f" keys under {PREFIX}")
    assert told[:-1] == ([f"left out: {gone.url} answers nothing: connection refused"] if again else [])
    deleted = {request for each in (one, other) for request in each.requests if request.startswith("DELETE")}
    assert len(deleted) == FEW.count and not list(external_left.records())


def test_no_delete_goes_to_an_endpoint_that_the_run_did_not_have(
    network: Network, tmp_path: Path, over: Callable[[], None]
) -> None:
    """It may be of another service, where no key is found, which counts as deleted."""
    one, other = services(network, 2)
    killed(of_services(tmp_path, [one.url]), [one], over)
    assert cleaned(of_services(tmp_path, [other.url, one.url])) == [f"removed 300 keys under {PREFIX}"]
    assert not any(request.startswith("DELETE") for request in other.requests)


def test_a_run_on_record_elsewhere_is_told(network: Network, tmp_path: Path, over: Callable[[], None]) -> None:
    one, other = services(network, 2)
    killed(of_services(tmp_path, [one.url]), [one], over)
    of_services(tmp_path, [other.url])
    done = CliRunner().invoke(clean.command, [str(tmp_path / "endpoints.json")])
    assert done.exit_code == 0 and "nothing was left behind" in done.output
    assert f"left as it is: {PREFIX} of a killed run at {one.url}\n" in done.output
    assert [record.endpoints for _, record in external_left.records()] == [(one.url,)]


def test_where_its_delete_is_refused_the_one_of_the_file_is_tried(
    network: Network, tmp_path: Path, over: Callable[[], None]
) -> None:
    (one,) = services(network, 1)
    killed(of_services(tmp_path, [one.url], delete="/v0/entity?id={key}&ack=3"), [one], over)
    one.refused = "ack=3"
    for delete, told in (("/v0/entity?id={key}&ack=3", "HTTP 503"), ("/v1/{key}", "are still there")):
        with pytest.raises(RunError, match=told):
            cleaned(of_services(tmp_path, [one.url], delete=delete))
        assert list(external_left.records())
    assert cleaned(of_services(tmp_path, [one.url], delete="/v0/entity?id={key}&ack=2"))
    assert one.values == {} and not list(external_left.records())


def test_what_a_run_of_an_older_version_left_is_removed(
    network: Network, tmp_path: Path, over: Callable[[], None]
) -> None:
    """Its record named no kind of store, and had the URLs for an identity."""
    found = services(network, 2)
    urls = [one.url for one in found]
    killed(of_services(tmp_path, urls), found[:1], over)
    (path,) = (folder / "run.json" for folder, _ in external_left.records())
    held = json.loads(path.read_text())
    del held["store"]
    path.write_text(json.dumps({**held, "identity": " ".join(sorted(urls))}))
    assert cleaned(of_services(tmp_path, urls[:1])) == [f"removed 300 keys under {PREFIX}"]
    assert found[0].values == {} and not list(external_left.records())


# --- what `check` prints ----------------------------------------------------------------------------------------------


def test_check_prints_what_the_members_are(network: Network, tmp_path: Path) -> None:
    found = ZooKeeperCluster(network, 3)
    of(tmp_path, found)
    done = CliRunner().invoke(check.command, [str(tmp_path / "endpoints.json")])
    assert done.exit_code == 0, done.output
    assert "3 endpoints of zookeeper, run by somebody else" in done.output
    assert f"zookeeper1  {found.servers[0].address}  version 3.8.0, leads" in done.output
    assert "0 keys under containernet-env/" in done.output and found.own() == []
