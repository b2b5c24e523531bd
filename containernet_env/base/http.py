"""One HTTP request over an open socket: its whole answer, or an answer that is read as it comes."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from containernet_env.base.errors import RunError

# No answer of a member or of the benchmark server is anywhere near this; more is refused, not read.
MAX_ANSWER_BYTES = 16 * 1024 * 1024
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


@contextmanager
def sent(
    connected: socket.socket,
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    host: str = "localhost",
) -> Iterator[http.client.HTTPResponse]:
    """Send one request over a connection, which is closed at the end, and give the answer to read.

    ``body`` is sent as JSON, ``headers`` besides. Raises ``OSError`` and ``http.client.HTTPException``.
    """
    connection = http.client.HTTPConnection(host)
    connection.sock = connected
    try:
        payload = None if body is None else json.dumps(body).encode()
        connection.request(method, path, payload, {"Content-Type": "application/json", **(headers or {})})
        yield connection.getresponse()
    finally:
        connection.close()


def decoded(status: int, data: bytes, request: str) -> Any:
    """The answer's JSON. Raises HttpError for any status other than 2xx and NoAnswerError where it is not JSON.

    ``request`` names it in messages.
    """
    try:
        answer = json.loads(data) if data else None
    except ValueError:
        answer = None
    if not 200 <= status < 300:
        text = answer["error"] if isinstance(answer, dict) and isinstance(answer.get("error"), str) else None
        raise HttpError(status, answer, text or data[:200].decode(errors="replace").strip())
    if data and answer is None:
        raise NoAnswerError(f"{request}: the answer is not JSON: {data[:80]!r}")
    return answer


class Connection(Protocol):
    """A connection to one member, whatever network it is in; its requests cross no emulated link."""

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        """One HTTP request and its decoded answer; ``timeout_s`` bounds each wait. Raises ``RunError``."""

    def request_bytes(self, port: int, path: str, *, timeout_s: float) -> bytes:
        """The answer to a GET as it is; ``timeout_s`` bounds each wait. Raises ``RunError``."""

    def open(self, port: int, *, timeout_s: float) -> socket.socket:
        """A TCP connection to a port of the member. Raises ``RunError``."""


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
        """The status of an ``answer``."""
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
            data = answer.read(MAX_ANSWER_BYTES + 1)
            if len(data) > MAX_ANSWER_BYTES:
                raise NoAnswerError(f"{method} {target}: answer of more than {MAX_ANSWER_BYTES} bytes")
            return answer.status, data
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


_ERROR_BYTES = 200


@contextmanager
def streamed(
    connected: socket.socket, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> Iterator[http.client.HTTPResponse]:
    """As ``sent``; raises RunError for any status other than 2xx, and where reading fails within."""
    try:
        with sent(connected, method, path, body, headers) as answer:
            if not 200 <= answer.status < 300:
                text = answer.read(_ERROR_BYTES).decode(errors="replace").strip()
                raise RunError(f"{method} {path}: HTTP {answer.status}: {text}")
            yield answer
    except (OSError, http.client.HTTPException) as error:
        raise RunError(f"{method} {path}: {str(error) or type(error).__name__}") from error
