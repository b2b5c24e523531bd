"""One TCP flow between two network namespaces, and what arrives of it per second."""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from containernet_env.hosts import netns

_CHUNK = 256 * 1024


@contextmanager
def flowing(sender_pid: int, receiver_pid: int, address: str) -> Iterator[socket.socket]:
    """A flow that always has data to send; the socket at its end, from which nothing is read."""
    listener = netns.socket_in(receiver_pid)
    sender = netns.socket_in(sender_pid)
    stop = threading.Event()

    def send() -> None:
        chunk = bytes(_CHUNK)
        while not stop.is_set():
            try:
                sender.send(chunk)
            except TimeoutError:
                continue
            except OSError:
                return

    with listener, sender:
        listener.bind((address, 0))
        listener.listen(1)
        listener.settimeout(5)
        sender.settimeout(5)
        # The same algorithm wherever the test runs: bbr, some machines' default, slows down every ten seconds.
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        sender.connect(listener.getsockname())
        receiver, _ = listener.accept()
        sender.settimeout(0.2)
        with receiver:
            receiver.settimeout(5)
            thread = threading.Thread(target=send)
            thread.start()
            try:
                yield receiver
            finally:
                stop.set()
                receiver.shutdown(socket.SHUT_RDWR)
                thread.join()


def goodput_bps(sender_pid: int, receiver_pid: int, address: str, *, warmup_s: float = 0.4, windows: int = 3) -> float:
    """The median over windows of 0.3 s of the bits of payload that arrive per second."""
    with flowing(sender_pid, receiver_pid, address) as receiver:
        _receive_for(receiver, warmup_s)
        return statistics.median(_receive_for(receiver, 0.3) for _ in range(windows))


def _receive_for(receiver: socket.socket, seconds: float) -> float:
    buffer = bytearray(_CHUNK)
    received = 0
    start = time.monotonic()
    while (elapsed := time.monotonic() - start) < seconds:
        received += receiver.recv_into(buffer)
    return received * 8 / elapsed
