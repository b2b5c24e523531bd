"""A service that somebody else runs, by its endpoints: whether it is one, and the keys that a run writes to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.base.http import HttpError, KeptConnection, NoAnswerError
from containernet_env.base.work import persistently, side_by_side
from containernet_env.model.config import Endpoint, External, HttpService
from containernet_env.model.scenario import Keys
from containernet_env.stores.external import (
    SPEAKS_TLS,
    ClusterLook,
    ExternalConnection,
    MemberLook,
    OwnKeys,
    places,
    why_silent,
)
from containernet_env.stores.keyvalue import cluster
from containernet_env.stores.keyvalue.service import answers_a_read, listed, target
from containernet_env.stores.leaderless import LeaderlessCluster
from containernet_env.stores.protocol import MemberPlace

MOST_KEYS = 1_000_000
"""So many different keys a run may write that are deleted one by one: minutes."""
FIRST_KEYS = 10
"""So many of the keys of each size that would be written are looked for before."""
_WORKERS, _BATCH_KEYS = 16, 200
_ASK_S = 10.0
_AGAIN_S = 2.0


class _Member(cluster.Member):
    """A member at an endpoint that a file names."""

    def __init__(
        self, place: MemberPlace, connection: ExternalConnection, endpoint: Endpoint, service: HttpService, prefix: str
    ) -> None:
        super().__init__(place, service, endpoint.port, prefix)
        self.speaks = connection


class ExternalService(LeaderlessCluster[_Member]):
    """See ``stores.external.ExternalCluster``. Keys are known by their numbers alone: a service does not list them."""

    def __init__(
        self, external: External, service: HttpService, connections: Sequence[ExternalConnection], own: OwnKeys
    ) -> None:
        self._external = external
        self._service = service
        self._own = own
        found = zip(places("http", external, connections), connections, external.endpoints, strict=True)
        super().__init__([_Member(*each, service, own.prefix) for each in found], quorum=1)

    def look(self, timeout_s: float) -> ClusterLook:
        """See ``ExternalCluster``; who else it consists of, nobody tells."""
        looks = side_by_side(lambda member: self._look_at(member, timeout_s), self.members, len(self.members))
        found = ClusterLook(tuple(looks))
        return found if found.problems else replace(found, leadership=self.leadership())

    def _look_at(self, member: _Member, timeout_s: float) -> MemberLook:
        url, problem = self._external.urls[self.members.index(member)], None
        try:
            member.read(timeout_s)
        except NoAnswerError as error:
            problem = why_silent(member.speaks, error, self._external.tls is not None, timeout_s)
        except HttpError as error:
            is_tls = self._external.tls is None and member.speaks.speaks_tls(timeout_s)
            problem = SPEAKS_TLS if is_tls else f"is no such service: {error}"
        return MemberLook(member.name, url, problem)

    def may_load(self) -> None:
        """See ``ExternalCluster``: whether it takes a put, only a put would tell."""
        return

    def try_write(self) -> str | None:
        """See ``ExternalCluster``: the first key is put, and deleted again."""
        if not self._own.generated:
            return None
        name, member, missing = self._own.generated[0].name(0), self.members[0], self._service.missing_codes
        steps = [("PUT", self._service.put, self._service.put_codes)]
        if self._service.delete is not None:
            steps.append(("DELETE", self._service.delete, self._service.delete_codes))
        for method, template, codes in steps:
            request = f"{method} {target(template, name)} at {member.endpoint}"
            try:
                with member.kept(_ASK_S) as connection:
                    status = connection.status(method, target(template, name), b"-" if method == "PUT" else None)
                    # A path that the service does not know is answered as a key that it does not hold.
                    stays = method == "DELETE" and status in missing and self._is_there(connection, name)
            except NoAnswerError as error:
                return f"{request}: it {error}"
            if status not in codes:
                return f"{request} answers with the status {status}, and not {listed(codes)}"
            if stays:
                return f"{request} answers with the status {status}, and the key that was put is still there"
        return None

    def keys(self) -> int | None:
        """See ``ExternalCluster``: of the first ones that the run would write."""
        names = [keys.name(number) for keys in self._own.generated for number in range(min(keys.count, FIRST_KEYS))]
        if not names:
            return None
        with self.members[0].kept(_ASK_S) as connection:
            return sum(self._is_there(connection, name) for name in names)

    def _is_there(self, connection: KeptConnection, name: str) -> bool:
        request = target(self._service.get, name)
        status = connection.status("GET", request)
        if not answers_a_read(self._service, status):
            raise HttpError(status, None, f"GET {request} at {self.members[0].endpoint}")
        return status in self._service.get_codes

    def remove_keys(self, checked: Callable[[int], None] = lambda removed: None) -> int:
        """See ``ExternalCluster``: every key that the run can have written, whether it is there or not.

        It counts those of which the service did not say that they were missing.
        """
        if not self._own.generated:
            return 0
        if self._service.delete is None:
            raise RunError('nothing says how they are deleted: "delete" in the store')
        removal = _Removal(self._service, self._service.delete, self._own, checked)
        workers = [self.members[number % len(self.members)] for number in range(_WORKERS)]
        return removal.carry_out(workers)


_Batch = tuple[Keys, range]


class _Removal:
    """Deletes keys side by side; what a member that fell silent has not deleted, the others do."""

    def __init__(self, service: HttpService, template: str, own: OwnKeys, checked: Callable[[int], None]) -> None:
        self._service = service
        self._template = template
        self._checked = checked
        self._todo = deque(
            (keys, range(first, min(first + _BATCH_KEYS, keys.count)))
            for keys in own.generated
            for first in range(0, keys.count, _BATCH_KEYS)
        )
        self._changed = clock.Condition()
        self._held = 0
        self._refusal: HttpError | None = None
        self._removed = 0

    def carry_out(self, workers: Sequence[_Member]) -> int:
        """How many were removed. Raises RunError where some are left."""
        problems = [problem for problem in side_by_side(self._work, workers, len(workers)) if problem is not None]
        if self._refusal is not None:
            raise self._refusal
        if self._todo:
            raise problems[0]
        return self._removed

    def _work(self, member: _Member) -> NoAnswerError | None:
        """Until nothing is left to do, or this member does no more of it: why."""
        with member.kept(_ASK_S) as connection:
            while (batch := self._take()) is not None:
                keys, numbers = batch
                removed, left = 0, numbers
                try:
                    for number in numbers:
                        removed += self._delete(connection, keys.name(number))
                        left = range(number + 1, numbers.stop)
                except NoAnswerError as error:
                    return NoAnswerError(f"{member.endpoint} {error}")
                except HttpError as error:
                    self._refusal = HttpError(error.status, None, f"DELETE at {member.endpoint}")
                finally:
                    self._give_back((keys, left), removed)
        return None

    def _take(self) -> _Batch | None:
        """What to delete next; waits while others hold what they may have to give back. ``None``: nothing is left."""
        with self._changed:
            while self._held and not self._todo and self._refusal is None:
                self._changed.wait()
            if not self._todo or self._refusal is not None:
                return None
            self._held += 1
            return self._todo.popleft()

    def _give_back(self, left: _Batch, removed: int) -> None:
        """Of a batch that was taken, what was not deleted, and how many keys were removed."""
        with self._changed:
            self._held -= 1
            if left[1]:
                self._todo.appendleft(left)
            self._changed.notify_all()
            self._removed += removed
            self._checked(self._removed)

    def _delete(self, connection: KeptConnection, name: str) -> bool:
        def ask() -> bool:
            status = connection.status("DELETE", target(self._template, name))
            if status not in self._service.delete_codes:
                raise HttpError(status, None, name)
            return status not in self._service.missing_codes

        return persistently(ask, _AGAIN_S)
