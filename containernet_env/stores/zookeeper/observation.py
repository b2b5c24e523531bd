"""What ZooKeeper members count themselves and warn of while something is measured, read before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from containernet_env.base.clock import utc_now
from containernet_env.base.errors import RunError
from containernet_env.base.work import answers_within
from containernet_env.model.usage import Durations, MemberActivity, StoreActivity
from containernet_env.stores.protocol import MemberPlace
from containernet_env.stores.zookeeper.log import warnings_between
from containernet_env.stores.zookeeper.words import ask, parse_mntr

Counts = Mapping[str, float]
# As for etcd's members (stores/etcd/observation.py).
_TRY_S, _ASK_S, _LOG_S, _LOG_LINES = 1.0, 2.0, 2.0, 10_000


class ZooKeeperObservation:
    """See ``stores.protocol.Observation``. The members are asked on connections that cross no emulated link."""

    def __init__(self, places: Sequence[MemberPlace]) -> None:
        self._places = {place.host.name: place for place in places}
        self._before = self._counts()
        self._began = utc_now()

    def end(self) -> StoreActivity:
        """See ``Observation``."""
        ended, after = utc_now(), self._counts()
        logs = answers_within(_LOG_S, lambda name: self._places[name].host.logs(tail=_LOG_LINES), self._places)
        warnings = {name: warnings_between(log, self._began, ended) for name, log in logs.items()}
        return StoreActivity(
            {name: activity(self._before.get(name), after.get(name), warnings.get(name)) for name in self._places}
        )

    def _counts(self) -> Mapping[str, Counts]:
        """Of each member that serves."""

        def counts(name: str) -> Counts:
            if not (found := parse_mntr(ask(self._places[name].connection, "mntr", _TRY_S))):
                raise RunError(f"{name} serves no requests")
            return found

        return answers_within(_ASK_S, counts, self._places)


def activity(before: Counts | None, after: Counts | None, warnings: Mapping[str, int] | None) -> MemberActivity:
    """What a member counted between two looks; what one of both lacks is not known, as where it began anew."""
    size = None if after is None else after.get("approximate_data_size")
    data_bytes = None if size is None else int(size)
    if before is None or after is None or after.get("uptime", 0) < before.get("uptime", 0):
        return MemberActivity(data_bytes=data_bytes, warnings=warnings)
    return MemberActivity(
        leader_changes=_grown(before, after, "cnt_election_time"),
        log_syncs=_syncs(before, after),
        data_bytes=data_bytes,
        data_grown_bytes=_grown(before, after, "approximate_data_size"),
        warnings=warnings,
    )


def _grown(before: Counts, after: Counts, name: str) -> int | None:
    return int(after[name] - before[name]) if name in before and name in after else None


def _syncs(before: Counts, after: Counts) -> Durations | None:
    """Writes of the log forced to disk. ZooKeeper counts them and adds their times up, in milliseconds, no more."""
    count, sum_ms = (_grown(before, after, f"{what}_fsynctime") for what in ("cnt", "sum"))
    if count is None or sum_ms is None:
        return None
    return Durations(count, sum_ms / 1000 / count if count else None, None)
