"""What runs on clusters of others leave behind: a folder for each while it runs, from which the next one cleans up.

The folder has the run's record and the benchmark server's files. It is made before the first key is written, and
removed after the last one was: what is there of a process that has ended was killed. While it is made and removed it
has a name with a dot and the process that does so, so that what is half there is known by that, too.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from containernet_env.base import assets, clock
from containernet_env.base.errors import RunError
from containernet_env.base.http import HttpError
from containernet_env.hosts import owner
from containernet_env.model.config import Config, HttpService
from containernet_env.model.scenario import Keys
from containernet_env.runs.external_access import LOOK_TIMEOUT_S, cluster_of, external_of, require_usable
from containernet_env.stores.external import OwnKeys

_RECORD = "run.json"
TOLD_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Record:
    """A run: the cluster by its own identity and its endpoints, the prefix of its keys, and the process that owns it.

    ``identity``: ``None`` where the store tells none. ``store``: its kind. ``generated``: see
    ``stores.external.OwnKeys``. ``service``: how keys are deleted where only URLs are known; the file may have others
    by then. It names no user, and no secret but what is in such URLs.
    """

    run_id: str
    identity: str | None
    endpoints: tuple[str, ...]
    prefix: str
    owner: str
    generated: tuple[Keys, ...] = ()
    service: HttpService | None = None
    store: str = "etcd"

    @property
    def keys_stay(self) -> bool:
        """Whether nothing removes its keys, as configured."""
        return self.service is not None and self.service.delete is None


@dataclass(frozen=True, slots=True)
class CleanedUp:
    """A run whose keys were removed, and how many there were; of one that still runs, ``None``.

    Where they stay, it is how many there are at most.
    """

    record: Record
    keys: int | None

    @property
    def done(self) -> str:
        """What became of them, of a run that is over."""
        if self.record.keys_stay:
            return f"up to {self.keys:,} keys stay under {self.record.prefix}"
        return f"removed {self.keys:,} keys under {self.record.prefix}"


class Told:
    """Says how many keys have been removed so far, where that takes long; called from any thread, one at a time."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._next_s = clock.monotonic() + TOLD_EVERY_S

    def __call__(self, removed: int) -> None:
        if clock.monotonic() >= self._next_s:
            self._next_s = clock.monotonic() + TOLD_EVERY_S
            self._say(f"{removed:,} keys removed so far")


def home() -> Path:
    """Where the folders are: in the user's own cache."""
    return assets.own() / "external"


def begin(config: Config, run_id: str, identity: str | None, own: OwnKeys) -> Path:
    """Make the folder of a run of this process, private to this user. Raises RunError where it cannot be written."""
    assets.make()
    folder, store = home() / run_id, config.store
    endpoints = external_of(config).urls
    record = Record(run_id, identity, endpoints, own.prefix, owner.current(), own.generated, store.service, store.kind)
    partial = _partial(run_id)
    try:
        home().mkdir(mode=0o700, exist_ok=True)
        partial.mkdir(mode=0o700)
        (partial / _RECORD).write_text(json.dumps(asdict(record)) + "\n", encoding="utf-8")
        partial.rename(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise RunError(f"{folder} cannot be written: {error.strerror}\n  Nothing was sent to the cluster.") from error
    return folder


def end(folder: Path) -> None:
    """Its keys are gone, and so is the folder. Idempotent."""
    partial = _partial(folder.name)
    with suppress(OSError):
        folder.rename(partial)
    for path in (partial, folder):
        shutil.rmtree(path, ignore_errors=True)


def _partial(run_id: str) -> Path:
    """What the folder of a run is called while this process makes or removes it."""
    return home() / f".{run_id}.{owner.current().replace('/', '_')}"


def _remove_partial() -> None:
    """Remove folders that processes were killed over: there are no keys yet, or no more."""
    for path in home().glob(".*"):
        by = path.name.rpartition(".")[2].replace("_", "/")
        if owner.is_owner(by) and not owner.is_alive(by):
            shutil.rmtree(path, ignore_errors=True)


def records() -> Iterator[tuple[Path, Record]]:
    """Those of this user, whole ones."""
    for path in sorted(home().glob(f"[!.]*/{_RECORD}")):
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            generated = tuple(Keys(**keys) for keys in held.pop("generated", ()))
            service = _service(held.pop("service", None))
            # Records of older versions name none of the two kinds that there were then.
            held.setdefault("store", "etcd" if service is None else "http")
            endpoints = tuple(held.pop("endpoints"))
            record = Record(**held, endpoints=endpoints, generated=generated, service=service)
        except (OSError, ValueError, TypeError, KeyError):
            continue
        if record.prefix.endswith(f"/{record.run_id}/") and owner.is_owner(record.owner):
            yield path.parent, record


def _service(held: dict[str, Any] | None) -> HttpService | None:
    if held is None:
        return None
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in held.items()}
    return HttpService(**values)


def clean_up(
    config: Config, identity: str | None, told: Callable[[CleanedUp], None], say: Callable[[str], None]
) -> None:
    """Remove the keys of this user's killed runs on the cluster of that identity; ``told`` hears of each run.

    ``say`` hears of the progress where that takes long. Folders of killed runs that have no keys go, too. Raises
    RunError where keys cannot be removed; their record stays.
    """
    _remove_partial()
    for folder, record in records():
        if not _is_on(record, config, identity):
            continue
        if owner.is_alive(record.owner):
            told(CleanedUp(record, None))
            continue
        try:
            count = sum(keys.count for keys in record.generated) if record.keys_stay else _remove(config, record, say)
        except RunError as error:
            raise RunError(f"keys under {record.prefix}, of a killed run, could not be removed: {error}") from error
        end(folder)
        told(CleanedUp(record, count))


def _is_on(record: Record, config: Config, identity: str | None) -> bool:
    """Whether it is of that cluster. Where a store does not say which one it is, an endpoint of both tells that.

    Records of older versions have the URLs of such a store for its identity.
    """
    if record.store != config.store.kind:
        return False
    if identity is not None:
        return record.identity == identity
    return not set(record.endpoints).isdisjoint(external_of(config).urls)


def _remove(config: Config, record: Record, say: Callable[[str], None]) -> int:
    """Remove the keys of a run that is over; how many there were. Raises RunError.

    The requests are those on record, since others, which the file may have by now, would find no keys; they go to
    endpoints that the file names, too. Where they are refused, as by a service that has lost a member for good and
    deletes in all of them, the delete that the file names now is tried, and a few keys are looked for afterwards.
    """
    own, service, named = OwnKeys(record.prefix, record.generated), record.service, config.store.service
    if service is None or named is None:  # another kind of store
        return _remove_by(config, own, say)
    there = _at(config, record.endpoints)
    try:
        return _remove_by(_by(there, service), own, say)
    except HttpError:
        if named.delete in (None, service.delete):
            raise
    other = _by(there, replace(service, delete=named.delete, delete_codes=named.delete_codes))
    removed = _remove_by(other, own, say)
    cluster = cluster_of(other, own)
    try:
        left = cluster.keys()
    finally:
        cluster.close()
    if left:
        raise RunError(f"{config.path} names another delete, after which they are still there")
    return removed


def _remove_by(config: Config, own: OwnKeys, say: Callable[[str], None]) -> int:
    cluster = cluster_of(config, own)
    try:
        return cluster.remove_keys(Told(say))
    finally:
        cluster.close()


def _at(config: Config, urls: Collection[str]) -> Config:
    """The same with those of its endpoints alone."""
    external = external_of(config)
    chosen = tuple(endpoint for endpoint in external.endpoints if external.url(endpoint) in urls)
    return replace(config, external=replace(external, endpoints=chosen))


def _by(config: Config, service: HttpService) -> Config:
    """The same with other requests."""
    return replace(config, store=replace(config.store, service=service))


def clean(config: Config, told: Callable[[CleanedUp], None], say: Callable[[str], None]) -> list[Record]:
    """The same on the cluster that a config names; the killed runs on record elsewhere, which are left as they are.

    A service may have lost members for good: the others delete. Raises RunError where the cluster cannot be used.
    """
    cluster = cluster_of(config, OwnKeys(external_of(config).prefix))
    try:
        look = cluster.look(LOOK_TIMEOUT_S)
    finally:
        cluster.close()
    answering = [member.url for member in look.members if member.problem is None]
    if config.store.service is None or not answering:
        require_usable(look, config)
    for member in look.members:
        if member.problem is not None:
            say(f"left out: {member.url} {member.problem}")
    config = _at(config, answering)
    clean_up(config, look.identity, told, say)
    return [
        record
        for _, record in records()
        if not _is_on(record, config, look.identity) and not owner.is_alive(record.owner)
    ]
