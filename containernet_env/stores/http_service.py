"""Any service that keeps values by key over HTTP/1.1, of which only URLs are known, as a store."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar
from urllib.parse import quote

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.base.http import HttpError, KeptConnection, NoAnswerError
from containernet_env.base.work import persistently, side_by_side
from containernet_env.model.config import Config, HttpService, Node
from containernet_env.stores import cluster, external, store
from containernet_env.stores.cluster import QUERY_S, LeaderlessCluster, MemberPlace, MemberStatus, Written
from containernet_env.stores.store import MemberStart, Request, Timing, key_bytes

MOST_KEYS = 1_000_000
"""So many different keys a run may write that are deleted one by one: minutes."""
FIRST_KEYS = 10
"""So many of the keys of each size that would be written are looked for before."""
_WORKERS, _BATCH_KEYS = 16, 200
_AGAIN_S = 2.0

# --- requests ---------------------------------------------------------------------------------------------------------


def target(template: str, key: str) -> str:
    """The target of a request about a key; encoded as in loads (benchmark_image/internal/http1/conn.go)."""
    return template.replace("{key}", quote(key, safe=""))


def answers_a_read(service: HttpService, status: int) -> bool:
    """Whether a get with this status has found its key, or has found that there is none."""
    return status in service.get_codes or status in service.missing_codes


def listed(codes: Iterable[int]) -> str:
    """Status codes as text, such as ``200,204``."""
    return ",".join(map(str, codes))


_REQUEST = len("GET  HTTP/1.1\r\nHost: 1.1.1.1:80\r\n\r\n")
_ANSWER = len("HTTP/1.1 200 OK\r\n\r\n")


# --- members ----------------------------------------------------------------------------------------------------------


class ServiceMember(cluster.Member):
    """One member; its probe is a read of a key with ``prefix`` that no load writes.

    ``version`` is that of its program, where it was started here: it reports none.
    """

    def __init__(self, place: MemberPlace, service: HttpService, prefix: str, version: str) -> None:
        super().__init__(place, prefix)
        self.service = service
        self.client_port = service.port
        self.version = version
        self.probe = target(service.get, f"{prefix}containernet-env-probe")

    @property
    def ping(self) -> cluster.Ping | None:
        # A read is no probe: it may involve other members, and their silence would be this one's.
        if (health := self.service.health) is None:
            return None
        return cluster.Ping(
            self.connection, self.client_port, f"GET {health} HTTP/1.1\r\nHost: {self.endpoint}\r\n\r\n".encode()
        )

    def kept(self, timeout_s: float) -> KeptConnection:
        """A connection for several requests, which is opened by the first one."""
        return KeptConnection(partial(self.connection.open, self.client_port), self.endpoint, timeout_s)

    def status(self, timeout_s: float = QUERY_S) -> MemberStatus:
        # It follows no other. Any answer will do where a request is known that it answers by itself.
        if (health := self.service.health) is None:
            self.read(timeout_s)
        else:
            with self.kept(timeout_s) as connection:
                connection.status("GET", health)
        return MemberStatus(self.name, self.name, 0, self.version)

    def read(self, timeout_s: float) -> None:
        # The URL decides the cost of the check, and the other members that it involves.
        with self.kept(timeout_s) as connection:
            self._get(connection, self.probe)

    def values(self, prefix: str, keys: Collection[str], timeout_s: float) -> list[Written]:
        # By the reads of loads, one after the other over one connection, each with the remaining time.
        deadline, found = clock.monotonic() + timeout_s, list[Written]()
        with self.kept(timeout_s) as connection:
            for key in keys:
                connection.timeout_s = deadline - clock.monotonic()
                if connection.timeout_s <= 0:
                    raise RunError(f"{len(found)} of {len(keys)} keys were read within {timeout_s:g} s")
                found.append(Written.of(0, key, self._get(connection, target(self.service.get, key))))
        return found

    def _get(self, connection: KeptConnection, request: str) -> bytes | None:
        """The value; ``None`` if there is no such key. Raises RunError."""
        status, data = connection.answer("GET", request)
        if not answers_a_read(self.service, status):
            found, missing = listed(self.service.get_codes), listed(self.service.missing_codes)
            text = f"neither of a get that finds its key ({found}) nor of one that finds none ({missing})"
            raise HttpError(status, None, f"GET {request} answers with a status {text}")
        return data if status in self.service.get_codes else None


# --- external services ------------------------------------------------------------------------------------------------


class ExternalService(external.ExternalCluster[ServiceMember], LeaderlessCluster[ServiceMember]):
    """An external service. Keys are known by their numbers alone: a service does not list them."""

    @property
    def _service(self) -> HttpService:
        return self.members[0].service

    def _look_at(self, member: ServiceMember, look: external.MemberLook, timeout_s: float) -> external.MemberLook:
        member.read(timeout_s)
        return look

    def _other(self, error: HttpError) -> str:
        return f"is no such service: {error}"

    def _judge(self, found: external.ClusterLook, timeout_s: float) -> external.ClusterLook:
        return found if found.problems else replace(found, leadership=self.leadership())

    def try_write(self) -> str | None:
        # The first key is put, and deleted again.
        if not self._own.generated:
            return None
        name, member, missing = self._own.generated[0].name(0), self.members[0], self._service.missing_codes
        steps = [("PUT", self._service.put, self._service.put_codes)]
        if self._service.delete is not None:
            steps.append(("DELETE", self._service.delete, self._service.delete_codes))
        for method, template, codes in steps:
            request = f"{method} {target(template, name)} at {member.endpoint}"
            try:
                with member.kept(external.REQUEST_S) as connection:
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
        # Of the first ones that the run would write.
        names = [keys.name(number) for keys in self._own.generated for number in range(min(keys.count, FIRST_KEYS))]
        if not names:
            return None
        with self.members[0].kept(external.REQUEST_S) as connection:
            return sum(self._is_there(connection, name) for name in names)

    def _is_there(self, connection: KeptConnection, name: str) -> bool:
        request = target(self._service.get, name)
        status = connection.status("GET", request)
        if not answers_a_read(self._service, status):
            raise HttpError(status, None, f"GET {request} at {self.members[0].endpoint}")
        return status in self._service.get_codes

    def remove_keys(self, checked: Callable[[int], None] = lambda removed: None) -> int:
        # Every key that the run can have written, whether it exists or not. The service counts a key unless it reported
        # that the key was missing.
        if not self._own.generated:
            return 0
        if (template := self._service.delete) is None:
            raise RunError('no request deletes them: "delete" in the store')
        batches = [
            (keys, range(first, min(first + _BATCH_KEYS, keys.count)))
            for keys in self._own.generated
            for first in range(0, keys.count, _BATCH_KEYS)
        ]
        lock, removed, refused, silent = clock.Lock(), 0, list[HttpError](), dict[str, NoAnswerError]()

        def remove(number: int) -> bool:
            """Remove a batch at one member; what one that falls silent leaves, at the next. Whether some are left."""
            nonlocal removed
            keys, left = batches[number]
            for member in (*self.members[number % self.size :], *self.members[: number % self.size]):
                found = 0
                try:
                    with member.kept(external.REQUEST_S) as connection:
                        while left and not refused and member.name not in silent:
                            found += self._delete(connection, target(template, keys.name(left[0])))
                            left = left[1:]
                except NoAnswerError as error:
                    silent[member.name] = NoAnswerError(f"{member.endpoint} {error}")
                except HttpError as error:
                    refused.append(HttpError(error.status, None, f"DELETE at {member.endpoint}"))
                with lock:
                    removed += found
                    checked(removed)
            return bool(left)

        if any(side_by_side(remove, range(len(batches)), _WORKERS)):
            raise [*refused, *silent.values()][0]
        return removed

    def _delete(self, connection: KeptConnection, request: str) -> bool:
        """Whether the service did not report the key as missing. Raises HttpError if it refuses the request."""

        def delete() -> bool:
            status = connection.status("DELETE", request)
            if status not in self._service.delete_codes:
                raise HttpError(status, None, request)
            return status not in self._service.missing_codes

        return persistently(delete, _AGAIN_S)


# --- the store --------------------------------------------------------------------------------------------------------

_BRACES = {"{{": "{", "}}": "}"}
_PLACE = re.compile(r"\{\{|\}\}|\{[^{}]*\}|[{}]")
PLACES: Mapping[str, str] = {
    "{index}": "its number in the topology, from 0",
    "{name}": "its name",
    "{ip}": "its address",
    "{port}": "the port",
    "{peers}": "IP:PORT of all members, itself too, separated by commas",
    "{data}": "the directory for its data",
}
"""The placeholders in the arguments, and the member properties that replace them."""


def filled_in(argument: str, places: Mapping[str, str]) -> str:
    """The argument with all placeholders filled in, and single braces for double ones.

    Raises ``KeyError`` for other braces, with their content.
    """
    meanings = {**places, **_BRACES}
    return _PLACE.sub(lambda found: meanings[found[0]], argument)


_BY_URLS = "is known by its URLs alone"


class Http(store.Store):
    """A service by its URLs. Its members are started from a program of the user's, or are external.

    Its settings in topology files are in ``config.stores``.
    """

    name: ClassVar[str] = "http"
    title: ClassVar[str] = "the service"
    program: ClassVar[str] = store.USER_PROGRAM
    members = ServiceMember
    clusters = LeaderlessCluster
    needs_binary = True
    externals: ClassVar[type[ExternalService] | None] = ExternalService
    versions = store.no_version("the program is yours")
    lacks: ClassVar[store.Lacking] = {
        **dict.fromkeys(store.ELECTIONS, f"{_BY_URLS}, and they show neither heartbeats nor elections"),
        "leader": "has no leader that is known",
        "tls": "speaks plain HTTP in hosts of ours",
        "profile": "is not profiled",
        "txn": f"{_BY_URLS}, and they have no transactions",
        **dict.fromkeys(("serializable", "default"), "has no consistency but that of its URLs"),
        **dict.fromkeys(store.RANGES, "is known by the URLs of single keys alone"),
    }
    endpoints = store.Endpoints(no_users="of the service only URLs are known")

    @property
    def service(self) -> HttpService:
        assert self.choice.service is not None
        return self.choice.service

    @property
    def version(self) -> str:
        # A hash of the program; empty for an external one.
        return "" if self.choice.binary is None else self.choice.binary.short

    @property
    def client_port(self) -> int:
        return self.service.port

    @property
    def consistency(self) -> Mapping[str, str]:
        return {"l": "by URL"}

    @property
    def load_terms(self) -> store.LoadTerms:
        service = self.service
        puts = {"putPath": service.put, "putCodes": listed(service.put_codes)}
        codes = {"getCodes": listed(service.get_codes), "absentCodes": listed(service.missing_codes)}
        return store.LoadTerms({"store": "http"}, puts, {"getPath": service.get, **codes}, leaderless=True)

    @property
    def image(self) -> store.ImageParts:
        return store.ImageParts("http", binary=self.choice.binary)

    def start(self, node: Node, config: Config, timing: Timing, run_id: str, *, profiled: bool = False) -> MemberStart:
        port, data = self.service.port, f"/var/lib/{self.name}"
        places = {
            "{index}": str([member.name for member in config.nodes].index(node.name)),
            "{name}": node.name,
            "{ip}": str(node.ip),
            "{port}": str(port),
            "{peers}": ",".join(f"{member.ip}:{port}" for member in config.nodes),
            "{data}": data,
        }
        arguments = tuple(filled_in(argument, places) for argument in self.service.arguments)
        return MemberStart(arguments, (data,), environment=store.go_environment(node.memory_bytes))

    # The client's own way there and back, of the least sizes: members are taken to answer at once, since nothing else
    # is known.

    def write_ns(self, request: Request) -> float:
        return request.client_ns(_REQUEST + len(target(self.service.put, "")) + request.written_bytes, _ANSWER)

    def read_ns(self, request: Request) -> float:
        sent = len(target(self.service.get, "")) + key_bytes(request.scenario)
        return request.client_ns(_REQUEST + sent, _ANSWER + request.scenario.val_size)

    def member_at(self, place: MemberPlace, prefix: str = "") -> ServiceMember:
        return ServiceMember(place, self.service, prefix, self.version)
