"""Keys that killed runs have left on services of which only URLs are known: which requests delete them, and where."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from containernet_env.base import cache
from containernet_env.config import load_config
from containernet_env.model.config import Config
from containernet_env.model.keys import Keys
from containernet_env.runs import external_left
from containernet_env.runs.external_access import external_of
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
    urls = external_of(config).urls
    own = OwnKeys(KEYS.prefix, (KEYS,))
    external_left.begin("abc", " ".join(sorted(urls)), urls, own, config.store.service)
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
