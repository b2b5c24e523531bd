"""How much one TCP flow carries between two namespaces, measured from outside: nothing runs inside the hosts."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.hosts import netns

_CHUNK_BYTES = 256 * 1024
# A lost SYN is sent again after 1, 3 and 7 s (tcp_syn_retries in tcp(7)).
_CONNECT_DEADLINE_S = 10.0
_SILENCE_S = 0.2


@dataclass(frozen=True)
class Throughput:
    """What arrived in ``seconds``; ``congestion_control`` is the sender's."""

    received_bytes: int
    seconds: float
    congestion_control: str

    @property
    def rate_bps(self) -> float:
        """Bits of payload per second."""
        return self.received_bytes * 8 / self.seconds


def measure(sender_pid: int, receiver_pid: int, address: str, seconds: float, port: int = 0) -> Throughput:
    """Send from the namespace of one process to ``address`` in that of another, as much as fits; port 0 is any.

    The time counts from the first arrival on. The sockets belong to this process: the hosts' limits do not hold for
    them, while links, addresses and congestion control are the hosts'. Raises ``RunError`` where no connection comes
    up or nothing arrives; ends after ``seconds`` and at most 20 s more.
    """
    listener, sender = netns.socket_in(receiver_pid), netns.socket_in(sender_pid)
    with listener, sender:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(1)
            for end in (listener, sender):
                end.settimeout(_CONNECT_DEADLINE_S)
            sender.connect(listener.getsockname())
            receiver, _ = listener.accept()
        except OSError as error:
            raise RunError(f"no TCP connection to {address}: {error}") from error
        name = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
        stop = clock.Event()
        sender.settimeout(_SILENCE_S)
        thread = clock.Thread(target=_send, args=(sender, stop), name="throughput", daemon=True)
        thread.start()
        with receiver:
            try:
                received, taken_s = _receive(receiver, seconds)
            except OSError as error:
                raise RunError(f"nothing arrived at {address}: {error}") from error
            finally:
                stop.set()
                thread.join(_CONNECT_DEADLINE_S)
    return Throughput(received, taken_s, name)


def _send(sender: socket.socket, stop: clock.Event) -> None:
    chunk = bytes(_CHUNK_BYTES)
    while not stop.is_set():
        try:
            sender.send(chunk)
        except TimeoutError:
            continue
        except OSError:
            return


def _receive(receiver: socket.socket, seconds: float) -> tuple[int, float]:
    """Bytes that arrived within ``seconds`` of the first ones, which do not count, and how long that was."""
    buffer = bytearray(_CHUNK_BYTES)
    receiver.settimeout(_CONNECT_DEADLINE_S)
    receiver.recv_into(buffer)
    begin = now = clock.monotonic()
    received = 0
    receiver.settimeout(_SILENCE_S)
    while now - begin < seconds:
        with suppress(TimeoutError):  # the link may be down for a while
            count = receiver.recv_into(buffer)
            if count == 0:
                raise ConnectionResetError("the connection has ended")
            received += count
        now = clock.monotonic()
    return received, now - begin
