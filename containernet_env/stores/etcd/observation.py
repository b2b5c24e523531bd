"""What etcd members count themselves and warn of while something is measured, read before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from containernet_env.base.clock import utc_now
from containernet_env.base.work import answers_within
from containernet_env.model.usage import StoreActivity
from containernet_env.stores.etcd import metrics
from containernet_env.stores.etcd.flags import CLIENT_PORT
from containernet_env.stores.etcd.log import warnings_between
from containernet_env.stores.etcd.metrics import Metrics
from containernet_env.stores.protocol import MemberPlace

# A member that answers does so in some 10 ms, on a fifth of a core in 100 ms; a query that is not answered is repeated.
_TRY_S, _ASK_S = 1.0, 2.0
# The engine reads its own file for it.
_LOG_S = 2.0
# A member that warns more often in one scenario has the last ones counted.
_LOG_LINES = 10_000


class EtcdObservation:
    """See ``stores.protocol.Observation``. The members are asked on connections that cross no emulated link."""

    def __init__(self, places: Sequence[MemberPlace]) -> None:
        self._places = {place.host.name: place for place in places}
        self._before = self._metrics()
        self._began = utc_now()

    def end(self) -> StoreActivity:
        """See ``Observation``."""
        ended, after, warnings = utc_now(), self._metrics(), {}
        logs = answers_within(_LOG_S, lambda name: self._places[name].host.logs(tail=_LOG_LINES), self._places)
        for name, log in logs.items():
            warnings[name] = warnings_between(log, self._began, ended)
        return StoreActivity(
            {
                name: metrics.activity(self._before.get(name), after.get(name), warnings.get(name))
                for name in self._places
            }
        )

    def _metrics(self) -> Mapping[str, Metrics]:
        """Of each member that answers."""

        def ask(name: str) -> Metrics:
            connection = self._places[name].connection
            answer = connection.request_bytes(CLIENT_PORT, metrics.PATH, timeout_s=_TRY_S)
            return metrics.parse(answer.decode(errors="replace"))

        return answers_within(_ASK_S, ask, self._places)
