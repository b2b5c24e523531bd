"""Keys that killed runs have left on services of which only URLs are known: which requests delete them, and where."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench.load.members import free_ports
from containernet_env.base import cache
from containernet_env.base.errors import RunError
from containernet_env.cli import clean
from containernet_env.config import load_config
from containernet_env.model.config import Config
from containernet_env.model.keys import Keys
from containernet_env.runs import external_left
from containernet_env.stores.external import OwnKeys
from tests.unit.service_server import Service, services
from tests.unit.test_external_service import SERVICE, STAY

KEYS = Keys(4, 300, "containernet-env/abc/")


@pytest.fixture(autouse=True)
def over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Folders are in a cache of the test's own; once called, the runs that they are of are over."""
    monkeypatch.setattr(cache, "own", lambda: tmp_path / "cache")
    return lambda: monkeypatch.setattr("containernet_env.hosts.owner.is_alive", lambda _: False)


def config_of(folder: Path, urls: Sequence[str], store: Any = SERVICE, **more: Any) -> Config:
    path = folder / "endpoints.json"
    path.write_text(json.dumps({"endpoints": list(urls), "store": {**store, **more}}))
    return load_config(path)


def killed(config: Config, at: Sequence[Service], over: Callable[[], None]) -> None:
    """A run that has written its keys and is no more."""
    external_left.begin(config, "abc", None, OwnKeys(KEYS.prefix, (KEYS,)))
    over()
    for service in at:
        service.values.update({KEYS.name(number): b"v" for number in range(KEYS.count)})


def cleaned(config: Config) -> list[str]:
    """What ``clean`` says of the runs that it finds."""
    found: list[str] = []
    external_left.clean(config, lambda run: found.append(run.done), found.append)
    return found


def test_keys_are_deleted_by_the_requests_that_the_run_had(tmp_path: Path, over: Callable[[], None]) -> None:
    """Those of a file that was changed meanwhile find nothing, which counts as deleted: 404."""
    with services(1) as found:
        killed(config_of(tmp_path, [found[0].url]), found, over)
        other = config_of(tmp_path, [found[0].url], delete="/v1/{key}")
        assert cleaned(other) == [f"removed 300 keys under {KEYS.prefix}"]
        assert found[0].values == {} and not list(external_left.records())


def test_of_a_killed_run_whose_keys_stay_that_is_said(tmp_path: Path, over: Callable[[], None]) -> None:
    with services(1) as found:
        stay = config_of(tmp_path, [found[0].url], STAY)
        killed(stay, found, over)
        assert cleaned(stay) == [f"up to 300 keys stay under {KEYS.prefix}"]
        assert len(found[0].values) == 300 and not list(external_left.records())


def test_members_that_are_gone_for_good_hold_up_nothing(tmp_path: Path, over: Callable[[], None]) -> None:
    """Neither where the file still names them, nor where it does not any more."""
    gone = f"http://127.0.0.1:{free_ports(1)[0]}"
    for again in (True, False):
        with services(2) as found:
            urls = [one.url for one in found]
            killed(config_of(tmp_path, [urls[0], gone, urls[1]]), found[:1], over)
            told = cleaned(config_of(tmp_path, [urls[0], gone, urls[1]] if again else urls))
            assert told[-1].endswith(f" keys under {KEYS.prefix}") and "removed" in told[-1]
            assert told[:-1] == ([f"left out: {gone} answers nothing: connection refused"] if again else [])
            deleted = {request for one in found for request in one.requests if request.startswith("DELETE")}
            assert len(deleted) == KEYS.count and not list(external_left.records())


def test_no_delete_goes_to_an_endpoint_that_the_run_did_not_have(tmp_path: Path, over: Callable[[], None]) -> None:
    """It may be of another service, where no key is found, which counts as deleted."""
    with services(2) as (one, other):
        killed(config_of(tmp_path, [one.url]), [one], over)
        assert cleaned(config_of(tmp_path, [other.url, one.url])) == [f"removed 300 keys under {KEYS.prefix}"]
        assert not any(request.startswith("DELETE") for request in other.requests)


def test_a_run_on_record_elsewhere_is_told(tmp_path: Path, over: Callable[[], None]) -> None:
    with services(2) as (one, other):
        killed(config_of(tmp_path, [one.url]), [one], over)
        config_of(tmp_path, [other.url])
        done = CliRunner().invoke(clean.command, [str(tmp_path / "endpoints.json")])
        assert done.exit_code == 0 and "nothing was left behind" in done.output
        assert f"left as it is: {KEYS.prefix} of a killed run at {one.url}\n" in done.output
        assert [record.endpoints for _, record in external_left.records()] == [(one.url,)]


def test_another_kind_of_store_at_the_same_endpoint_is_another_cluster(
    tmp_path: Path, over: Callable[[], None]
) -> None:
    with services(1) as found:
        killed(config_of(tmp_path, [found[0].url]), found, over)
        path = tmp_path / "etcd.json"
        path.write_text(json.dumps({"endpoints": [found[0].url]}))
        external_left.clean_up(load_config(path), "cluster-1", pytest.fail, pytest.fail)
        assert list(external_left.records()) and len(found[0].values) == 300


def test_where_its_delete_is_refused_the_one_of_the_file_is_tried(tmp_path: Path, over: Callable[[], None]) -> None:
    with services(1) as (one,):
        killed(config_of(tmp_path, [one.url], delete="/v0/entity?id={key}&ack=3"), [one], over)
        one.refused = "ack=3"
        for delete, told in (("/v0/entity?id={key}&ack=3", "HTTP 503"), ("/v1/{key}", "are still there")):
            with pytest.raises(RunError, match=told):
                cleaned(config_of(tmp_path, [one.url], delete=delete))
            assert list(external_left.records())
        assert cleaned(config_of(tmp_path, [one.url], delete="/v0/entity?id={key}&ack=2"))
        assert one.values == {} and not list(external_left.records())


def test_what_a_run_of_an_older_version_left_is_removed(tmp_path: Path, over: Callable[[], None]) -> None:
    """Its record named no kind of store, and had the URLs for an identity."""
    with services(2) as found:
        urls = [one.url for one in found]
        killed(config_of(tmp_path, urls), found[:1], over)
        (path,) = (folder / "run.json" for folder, _ in external_left.records())
        held = json.loads(path.read_text())
        del held["store"]
        path.write_text(json.dumps({**held, "identity": " ".join(sorted(urls))}))
        assert cleaned(config_of(tmp_path, urls[:1])) == [f"removed 300 keys under {KEYS.prefix}"]
        assert found[0].values == {} and not list(external_left.records())
