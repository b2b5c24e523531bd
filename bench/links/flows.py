"""TCP flows and a UDP stream between two hosts, and their goodput. Every thread ends with its flow."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench.links.paths import Host
from bench.links.theory import DATAGRAM_BYTES
from containernet_env.base.errors import RunError
from containernet_env.hosts import netns

_CHUNK = 256 * 1024
_CONNECT_S = 10.0
_POLL_S = 0.2
# struct tcp_info in linux/tcp.h: eight bytes, then words; snd_mss is the third, total_retrans the 24th.
_TCP_INFO_BYTES = 104
_SEND_MSS_AT, _TOTAL_RETRANS_AT = 8 + 2 * 4, 8 + 23 * 4
_SO_TIMESTAMPNS = 35  # asm-generic/socket.h; the value is also that of its control message
_SO_RCVBUFFORCE = 33
_RECEIVE_BUFFER_BYTES = 16 << 20
_UDP_PORT = 9


@dataclass(frozen=True, slots=True)
class FlowResult:
    """One TCP flow. ``retransmissions`` are those within the window, in segments."""

    goodput_bps: float
    window_s: float
    retransmissions: int
    segment_bytes: int


@dataclass(frozen=True, slots=True)
class _Mark:
    at_ns: int
    received_bytes: int
    retransmissions: int


class TcpFlow:
    """One connection that always has data to send."""

    def __init__(self, sender: Host, receiver: Host) -> None:
        self._stop = threading.Event()
        self._latest = (time.monotonic_ns(), 0)
        with ExitStack() as stack:
            listener = stack.enter_context(netns.socket_in(receiver.pid))
            listener.bind((receiver.address, 0))
            listener.listen(1)
            listener.settimeout(_CONNECT_S)
            self._out = netns.socket_in(sender.pid)
            stack.callback(self._out.close)
            self._out.settimeout(_CONNECT_S)
            # Not the machine's default: some use bbr, which slows down every ten seconds.
            self._out.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
            try:
                self._out.connect(listener.getsockname())
                self._in, _ = listener.accept()
            except OSError as error:
                raise RunError(f"no TCP connection from {sender.name} to {receiver.name}: {error}") from error
            for side in (self._in, self._out):
                side.settimeout(_POLL_S)
            listener.close()
            stack.pop_all()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._receive)]

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    def mark(self) -> _Mark:
        """The last arrival so far."""
        at_ns, received = self._latest
        return _Mark(at_ns, received, self._info(_TOTAL_RETRANS_AT))

    def result(self, begin: _Mark, end: _Mark) -> FlowResult:
        """The flow between two marks. Windows begin and end with an arrival, so no arrival counts in part."""
        window_ns = end.at_ns - begin.at_ns
        if window_ns <= 0:
            raise RunError("nothing arrived over TCP within the window")
        return FlowResult(
            goodput_bps=(end.received_bytes - begin.received_bytes) * 8e9 / window_ns,
            window_s=window_ns / 1e9,
            retransmissions=end.retransmissions - begin.retransmissions,
            segment_bytes=self._info(_SEND_MSS_AT),
        )

    def close(self) -> None:
        """End the connection and its threads."""
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._in.close()
        self._out.close()

    def _info(self, at: int) -> int:
        info = self._out.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        return int(struct.unpack_from("=I", info, at)[0])

    def _send(self) -> None:
        chunk = bytes(_CHUNK)
        while not self._stop.is_set():
            try:
                self._out.send(chunk)
            except TimeoutError:
                continue
            except OSError:
                return  # the path is gone: nothing arrives in the window

    def _receive(self) -> None:
        buffer = bytearray(_CHUNK)
        received = 0
        while not self._stop.is_set():
            try:
                count = self._in.recv_into(buffer)
            except TimeoutError:
                continue
            except OSError:
                return
            received += count
            self._latest = (time.monotonic_ns(), received)


def tcp(directions: Sequence[tuple[Host, Host]], warmup_s: float, seconds: float) -> list[FlowResult]:
    """One flow per (sender, receiver), all at once, measured for ``seconds`` after ``warmup_s``."""
    with ExitStack() as stack:
        flows = []
        for sender, receiver in directions:
            flows.append(TcpFlow(sender, receiver))
            stack.callback(flows[-1].close)
        for flow in flows:
            flow.start()
        time.sleep(warmup_s)
        begins = [flow.mark() for flow in flows]
        time.sleep(seconds)
        ends = [flow.mark() for flow in flows]
        return [flow.result(begin, end) for flow, begin, end in zip(flows, begins, ends, strict=True)]


def udp(sender: Host, receiver: Host, packets_per_s: float, warmup_s: float, seconds: float) -> list[int]:
    """Send datagrams that fill their frames at a fixed rate; return the kernel's time stamp (ns) of each arrival.

    Arrivals in the first ``warmup_s`` are left out.
    """
    stop = threading.Event()
    stamps: list[int] = []

    def receive() -> None:
        while not stop.is_set():
            try:
                _, ancillary, _, _ = incoming.recvmsg(1, 64)
            except TimeoutError:
                continue
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                    whole_s, rest_ns = struct.unpack("=qq", data[:16])
                    stamps.append(whole_s * 10**9 + rest_ns)

    with (
        netns.socket_in(receiver.pid, socket.AF_INET, socket.SOCK_DGRAM) as incoming,
        netns.socket_in(sender.pid, socket.AF_INET, socket.SOCK_DGRAM) as outgoing,
    ):
        incoming.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        incoming.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
        incoming.bind((receiver.address, _UDP_PORT))
        incoming.settimeout(_POLL_S)
        outgoing.connect((receiver.address, _UDP_PORT))
        outgoing.setblocking(False)
        thread = threading.Thread(target=receive, daemon=True)
        thread.start()
        try:
            _pace_datagrams(outgoing, packets_per_s, warmup_s + seconds)
        finally:
            stop.set()
            thread.join()
    if not stamps:
        raise RunError("no datagram arrived")
    first = stamps[0] + round(warmup_s * 1e9)
    # The queue drains at the same rate afterwards; the window ends when sending ended.
    last = first + round(seconds * 1e9)
    return [stamp for stamp in stamps if first <= stamp <= last]


def _pace_datagrams(outgoing: socket.socket, packets_per_s: float, seconds: float) -> None:
    datagram = bytes(DATAGRAM_BYTES)
    start = time.monotonic()
    sent = 0
    while (elapsed := time.monotonic() - start) < seconds:
        for _ in range(int(elapsed * packets_per_s) - sent):
            sent += 1
            try:
                outgoing.send(datagram)
            except BlockingIOError:
                break  # the interface's queue is full, and so is the link
        time.sleep(0.001)
