"""What Consul agents count themselves and warn of while something is measured, read before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from containernet_env.base.clock import utc_now
from containernet_env.base.work import answers_within
from containernet_env.model.usage import StoreActivity
from containernet_env.stores.consul import metrics
from containernet_env.stores.consul.log import elections_between, warnings_between
from containernet_env.stores.consul.settings import HTTP_PORT
from containernet_env.stores.protocol import MemberPlace

# As for etcd's members (stores/etcd/observation.py).
_TRY_S, _ASK_S, _LOG_S, _LOG_LINES = 1.0, 2.0, 2.0, 10_000


class ConsulObservation:
    """See ``stores.protocol.Observation``. The members are asked on connections that cross no emulated link."""

    def __init__(self, places: Sequence[MemberPlace]) -> None:
        self._places = {place.host.name: place for place in places}
        self._before = self._metrics()
        self._began = utc_now()

    def end(self) -> StoreActivity:
        """See ``Observation``."""
        ended, after = utc_now(), self._metrics()
        logs = answers_within(_LOG_S, lambda name: self._places[name].host.logs(tail=_LOG_LINES), self._places)
        warnings = {name: warnings_between(log, self._began, ended) for name, log in logs.items()}
        elections = {name: elections_between(log, self._began, ended) for name, log in logs.items()}
        return StoreActivity(
            {
                name: metrics.activity(self._before.get(name), after.get(name), elections.get(name), warnings.get(name))
                for name in self._places
            }
        )

    def _metrics(self) -> Mapping[str, Mapping[str, float]]:
        """Of each member that answers."""

        def ask(name: str) -> Mapping[str, float]:
            answer = self._places[name].connection.request_bytes(HTTP_PORT, metrics.PATH, timeout_s=_TRY_S)
            return metrics.parse(answer.decode(errors="replace"))

        return answers_within(_ASK_S, ask, self._places)
