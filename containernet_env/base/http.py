"""HTTP requests: whole answers, answers that are read as they come, and several requests over one connection."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import Any

from containernet_env.base.errors import RunError

# No answer of a member or of the benchmark server is anywhere near this; more is refused, not read.
MAX_ANSWER_BYTES = 16 * 1024 * 1024
_ERROR_BYTES = 200
# OpenSSL's words (ssl.SSLError.reason) for a peer that answers something that is no TLS.
_NO_TLS = frozenset(
    {
        "WRONG_VERSION_NUMBER",
        "HTTP_REQUEST",
        "RECORD_LAYER_FAILURE",
        "PACKET_LENGTH_TOO_LONG",
        "UNEXPECTED_EOF_WHILE_READING",  # a server of Go that takes the greeting for bad HTTP
    }
)
_ASKS_CERTIFICATE = ("CERTIFICATE_REQUIRED", "ALERT_BAD_CERTIFICATE", "ALERT_HANDSHAKE_FAILURE")


class HttpError(RunError):
    """An answer with a status other than 2xx; `status` and the decoded JSON `body` (or None) are kept."""

    def __init__(self, status: int, body: Any, text: str) -> None:
        self.status = status
        self.body = body
        super().__init__(f"HTTP {status}: {text}")


class NoAnswerError(RunError):
    """The connection was refused, broken, or silent past its deadline."""


class Connection(ABC):
    """Requests to one server, each over a connection of its own, which crosses no emulated link.

    ``timeout_s`` bounds the connection and each wait for data. Raises ``HttpError`` for any status other than 2xx and
    ``NoAnswerError`` if there is no complete answer.
    """

    host: str
    authority = "localhost"
    """The value of the Host header."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Further headers of each request, which may be secret."""

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        """Send one request, with ``body`` as JSON; return the decoded JSON answer."""
        status, data = self._request(port, method, path, body, timeout_s)
        try:
            answer = json.loads(data) if data else None
        except ValueError:
            answer = None
        if not 200 <= status < 300:
            text = answer["error"] if isinstance(answer, dict) and isinstance(answer.get("error"), str) else None
            raise HttpError(status, answer, text or _text(data))
        if data and answer is None:
            raise NoAnswerError(f"{self._named(method, path, port)}: the answer is not JSON: {data[:80]!r}")
        return answer

    def request_bytes(self, port: int, path: str, *, timeout_s: float) -> bytes:
        """Send a GET; return the body of the answer."""
        status, data = self._request(port, "GET", path, None, timeout_s)
        if not 200 <= status < 300:
            raise HttpError(status, None, _text(data))
        return data

    @contextmanager
    def stream(
        self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float
    ) -> Iterator[http.client.HTTPResponse]:
        """As ``request_json``, with an answer that is read as it comes; ``RunError`` also where that fails within."""
        with self._errors(f"{method} {path}"), self._sent(port, method, path, body, timeout_s) as answer:
            if not 200 <= answer.status < 300:
                raise RunError(f"{method} {path}: HTTP {answer.status}: {_text(answer.read(_ERROR_BYTES))}")
            yield answer

    def open(self, port: int = 0, *, timeout_s: float | None) -> socket.socket:
        """A connection to ``port``. Raises ``NoAnswerError`` if nothing listens there."""
        with self._errors(self._place(port) or self.host):
            return self._connect(port, timeout_s)

    def _request(self, port: int, method: str, path: str, body: Any, timeout_s: float) -> tuple[int, bytes]:
        request = self._named(method, path, port)
        with self._errors(request), self._sent(port, method, path, body, timeout_s) as answer:
            return answer.status, _whole(answer, request)

    @contextmanager
    def _sent(
        self, port: int, method: str, path: str, body: Any, timeout_s: float
    ) -> Iterator[http.client.HTTPResponse]:
        """Send one request over a connection that is closed at the end. Raises ``OSError`` and ``HTTPException``."""
        connection = http.client.HTTPConnection(self.authority)
        connection.sock = self._connect(port, timeout_s)
        try:
            payload = None if body is None else json.dumps(body).encode()
            connection.request(method, path, payload, {"Content-Type": "application/json", **self.headers})
            yield connection.getresponse()
        finally:
            connection.close()

    @abstractmethod
    def _connect(self, port: int, timeout_s: float | None) -> socket.socket:
        """An open connection. Raises ``OSError``."""

    def _place(self, port: int) -> str:
        """The port in messages; empty where there is only one."""
        return ""

    def _named(self, method: str, path: str, port: int) -> str:
        return " on ".join(filter(None, (f"{method} {path}", self._place(port))))

    @contextmanager
    def _errors(self, subject: str) -> Iterator[None]:
        """Raise errors of the connection as ``NoAnswerError``, after ``subject`` and a colon."""
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            text = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NoAnswerError(f"{subject}: {text}") from error


def _whole(answer: http.client.HTTPResponse, request: str) -> bytes:
    data = answer.read(MAX_ANSWER_BYTES + 1)
    if len(data) > MAX_ANSWER_BYTES:
        raise NoAnswerError(f"{request}: answer of more than {MAX_ANSWER_BYTES} bytes")
    return data


def _text(data: bytes) -> str:
    return data[:_ERROR_BYTES].decode(errors="replace").strip()


class KeptConnection(AbstractContextManager["KeptConnection"]):
    """Requests one after the other over a connection that ``connect`` opens, as long as the peer keeps it.

    ``timeout_s`` bounds each wait, that for a connection too.
    """

    def __init__(self, connect: Callable[..., socket.socket], host: str, timeout_s: float) -> None:
        self._connect = connect
        self.timeout_s = timeout_s
        self._http = http.client.HTTPConnection(host)

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def status(self, method: str, target: str, body: bytes | None = None) -> int:
        return self.answer(method, target, body)[0]

    def answer(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of the answer to a request that may be sent twice. Raises NoAnswerError.

        It is, where a connection that was kept has been closed meanwhile.
        """
        with worded():
            if self._http.sock is not None:
                self._http.sock.settimeout(self.timeout_s)
                try:
                    return self._ask(method, target, body)
                except ConnectionError:
                    self._http.close()
            self._http.sock = self._connect(timeout_s=self.timeout_s)
            return self._ask(method, target, body)

    def _ask(self, method: str, target: str, body: bytes | None) -> tuple[int, bytes]:
        try:
            self._http.request(method, target, body)
            answer = self._http.getresponse()
            return answer.status, _whole(answer, f"{method} {target}")
        except BaseException:
            self._http.close()
            raise


@contextmanager
def worded() -> Iterator[None]:
    """Within it, what is wrong with a connection becomes a NoAnswerError that says so in words without the address."""
    try:
        yield
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise NoAnswerError(_words(error)) from error


def is_no_tls(error: ssl.SSLError) -> bool:
    """Whether a handshake failed because the peer does not speak TLS."""
    # An end without a word: Python before 3.11.4 took that for an orderly one.
    return error.reason in _NO_TLS or isinstance(error, ssl.SSLZeroReturnError)


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"shows a certificate that is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        if is_no_tls(error):
            return "does not speak TLS"
        if reason.endswith(_ASKS_CERTIFICATE):
            return "asks for a certificate of the client that it trusts"
        return f"fails in TLS: {reason.lower().replace('_', ' ') or error}"
    if isinstance(error, UnicodeError):  # of the codec idna
        return "has a name that no host can have"
    if isinstance(error, socket.gaierror):
        return f"has a name that is not known: {error.strerror}"
    if isinstance(error, TimeoutError):
        return "answers nothing: no answer in time"
    if isinstance(error, http.client.RemoteDisconnected):
        return "closes the connection without an answer"
    if isinstance(error, http.client.HTTPException):
        return f"answers something that is no HTTP: {str(error)[:60].strip() or type(error).__name__!r}"
    text = error.strerror if isinstance(error, OSError) else None
    return f"answers nothing: {(text or str(error) or type(error).__name__).lower()}"
