"""The members of a service, seen from the driver: each is asked for a key that no load writes."""

from __future__ import annotations

import socket
from collections.abc import Collection

from containernet_env.base.http import HttpError, KeptConnection
from containernet_env.base.programs import last_words
from containernet_env.model.config import HttpService
from containernet_env.stores import members
from containernet_env.stores.keyvalue.service import answers_a_read, listed, target
from containernet_env.stores.members import ASK_S, MemberStatus
from containernet_env.stores.protocol import MemberPlace, Ping, Written


class Member(members.Member):
    """One member at ``port``; ``prefix`` is what the key starts with that it is asked for.

    ``version`` is that of its program, where it was started here: it does not tell one.
    """

    last_words = staticmethod(last_words)

    def __init__(
        self, place: MemberPlace, service: HttpService, port: int, prefix: str = "", version: str = ""
    ) -> None:
        super().__init__(place)
        self.service = service
        self.port = port
        self.version = version
        self.probe = target(service.get, f"{prefix}containernet-env-probe")

    @property
    def endpoint(self) -> str:
        """See ``members.Member``."""
        return self.place.endpoint or f"{self.place.ip}:{self.port}"

    @property
    def ping(self) -> Ping | None:
        """See ``members.Member``; a read is none: it may ask other members, and their silence would be this one's."""
        if (health := self.service.health) is None:
            return None
        return Ping(self.connection, self.port, f"GET {health} HTTP/1.1\r\nHost: {self.endpoint}\r\n\r\n".encode())

    def kept(self, timeout_s: float) -> KeptConnection:
        """A connection for several requests, which is opened by the first one."""
        return KeptConnection(lambda: self.connection.open(self.port, timeout_s=timeout_s), self.endpoint)

    def status(self, timeout_s: float = ASK_S) -> MemberStatus:
        """See ``members.Member``; it follows nobody. Any answer will do where it is known what it answers by itself."""
        if (health := self.service.health) is None:
            self.read(timeout_s)
        else:
            with self.kept(timeout_s) as connection:
                connection.status("GET", health)
        return MemberStatus(self.name, self.name, 0, self.version)

    def read(self, timeout_s: float) -> None:
        """See ``members.Member``: what that costs it, and which others it asks, the URL says."""
        with self.kept(timeout_s) as connection:
            self._get(connection, self.probe)

    def values(self, prefix: str, keys: Collection[str], timeout_s: float) -> list[Written]:
        """See ``members.Member``: by the reads of loads."""
        opened: list[socket.socket] = []
        left_s = timeout_s

        def connect() -> socket.socket:
            opened[:] = [self.connection.open(self.port, timeout_s=left_s)]
            return opened[0]

        with KeptConnection(connect, self.endpoint) as connection:

            def read(key: str, key_left_s: float) -> bytes | None:
                nonlocal left_s
                left_s = key_left_s
                for kept in opened:
                    if kept.fileno() >= 0:
                        kept.settimeout(left_s)
                return self._get(connection, target(self.service.get, key))

            return members.read_each(keys, timeout_s, read)

    def _get(self, connection: KeptConnection, request: str) -> bytes | None:
        """The value; ``None`` where there is no such key. Raises RunError."""
        status, data = connection.answer("GET", request)
        if not answers_a_read(self.service, status):
            found, missing = listed(self.service.get_codes), listed(self.service.missing_codes)
            text = f"neither of a get that finds its key ({found}) nor of one that finds none ({missing})"
            raise HttpError(status, None, f"GET {request} answers with a status {text}")
        return data if status in self.service.get_codes else None
