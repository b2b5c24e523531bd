"""Running replicas, seen from the driver; they are queried over their HTTP interface (replicas_image/replica.go)."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import quote

from containernet_env.base.assets import replicas_version
from containernet_env.base.errors import RunError
from containernet_env.base.programs import last_words
from containernet_env.stores import members
from containernet_env.stores.members import ASK_S, MemberStatus
from containernet_env.stores.protocol import MemberPlace, Written
from containernet_env.stores.replicas.settings import PORT

_STATUS = "/status"
_ENTITY = "/v0/entity?id={}&from={}"
# A key that no load writes.
_PROBE = "\0containernet-env"
_PING = b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Member(members.Member):
    """One replica and the host it runs on; ``read_quorum`` is how many a read asks."""

    client_port = PORT
    ping_request = _PING
    last_words = staticmethod(last_words)

    def __init__(self, place: MemberPlace, read_quorum: int) -> None:
        super().__init__(place)
        self._read_quorum = read_quorum
        self._version = replicas_version()

    def status(self, timeout_s: float = ASK_S) -> MemberStatus:
        """See ``members.Member``; a replica follows nobody."""
        answer = self.connection.request_json(PORT, "GET", _STATUS, timeout_s=timeout_s)
        try:
            number = str(answer["id"])
        except (KeyError, TypeError) as error:
            raise RunError(f"{self.name} does not say which replica it is") from error
        return MemberStatus(number, number, 0, self._version)

    def read(self, timeout_s: float) -> None:
        """See ``members.Member``."""
        self._value(_PROBE, timeout_s)

    def values(self, prefix: str, keys: Collection[str], timeout_s: float) -> list[Written]:
        """See ``members.Member``: as many replicas are asked as by each read of a load."""
        return members.read_each(keys, timeout_s, self._value)

    def _value(self, key: str, timeout_s: float) -> bytes | None:
        """What a key holds; ``None`` where there is no such key. Raises RunError."""
        path = _ENTITY.format(quote(key, safe=""), self._read_quorum)
        try:
            return self.connection.request_bytes(PORT, path, timeout_s=timeout_s)
        except RunError as error:
            # So many replicas have told that there is no such key.
            if getattr(error, "status", None) != 404:
                raise
            return None
