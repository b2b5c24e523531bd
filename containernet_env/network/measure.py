"""Measurements from outside of hosts: frames recorded, echo requests, throughput. Nothing runs inside a host."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from containernet_env.base import clock
from containernet_env.base.errors import RunError, UsageError
from containernet_env.base.files import settled
from containernet_env.hosts import netns

LIMIT_BYTES = 256 << 20
"""How large a file gets at the most."""

_ETH_P_ALL = 0x0003  # linux/if_ether.h
# asm-generic/socket.h and linux/if_packet.h; Python has no names for them.
_SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 33, 35
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
# What the kernel keeps while this process is busy; FORCE: most machines allow 208 KiB.
_BUFFER_BYTES = 32 << 20
# Interfaces without segmentation have 1514; 64 KiB and headers are the most that any has.
_FRAME_MAX_BYTES = 1 << 17
_POLL_S = 0.1
_DRAIN_S = 1.0
# draft-ietf-opsawg-pcap, section 4: magic for nanoseconds, version 2.4, two reserved words, snap length, Ethernet.
_FILE_HEADER = struct.pack("=IHHIIII", 0xA1B2_3C4D, 2, 4, 0, 0, _FRAME_MAX_BYTES, 1)
_RECORD_HEADER = struct.Struct("=IIII")
_TIMESPEC = struct.Struct("=qq")


class Capture:
    """A recording that runs on a thread of its own until ``stop``, or until its file has ``limit_bytes``.

    ``path`` is written over. Every frame is whole, with the kernel's time stamp (CLOCK_REALTIME, ns); frames that the
    host sends have the checksums that its stack left open. ``frames`` counts what is in the file, ``lost`` what the
    kernel had no room for. Raises ``UsageError`` where the file cannot be written or is another user's link,
    ``RunError`` where the interface cannot be listened on.
    """

    def __init__(self, name: str, pid: int, interface: str, path: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self.name, self.path = name, path
        self.frames = self.lost = 0
        self.full = False
        self.problem: str | None = None
        self._limit_bytes = limit_bytes
        self._stop, self._done = clock.Event(), clock.Event()
        # No protocol yet: until it is bound it would receive from every interface.
        self._socket = netns.socket_in(pid, socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self._socket.bind((interface, _ETH_P_ALL))
            self._socket.settimeout(_POLL_S)
        except OSError as error:
            self._socket.close()
            raise RunError(f"{name}: cannot listen on {interface}: {error.strerror}") from error
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with settled(path, through_link=True) as place:
                self._file = open(os.open(place, flags, 0o666), "wb")  # noqa: SIM115 - the thread closes it
        except OSError as error:
            self._socket.close()
            raise UsageError(f"cannot write {path}: {error.strerror}") from error
        self._thread = clock.Thread(target=self._record, name=f"capture-{name}", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether frames are still being recorded."""
        return not self._done.is_set()

    def wait(self, seconds: float) -> None:
        """Return after ``seconds``, or when it has ended by itself."""
        # Not Thread.join: interrupted, it takes the thread for ended (bpo-45274 in CPython up to 3.12).
        self._done.wait(seconds)

    def stop(self) -> str:
        """End it with all frames that have arrived, and describe the recording. Idempotent."""
        self._stop.set()
        self._done.wait()
        words = f"{self.name}: {self.frames} frames in {self.path}"
        if self.full:
            words += f", which is full ({self._limit_bytes >> 20} MiB)"
        if self.lost:
            words += f"; {self.lost} more were lost, since this machine was too busy to take them"
        return words if self.problem is None else f"{words}; it ended early: {self.problem}"

    def _record(self) -> None:
        try:
            with self._socket, self._file:
                self._file.write(_FILE_HEADER)
                self._run()
                held = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
                self.lost = struct.unpack("=II", held)[1]
        except OSError as error:
            self.problem = str(error)
        finally:
            self._done.set()

    def _run(self) -> None:
        until: float | None = None
        while not self.full:
            if self._stop.is_set() and until is None:
                until = clock.monotonic() + _DRAIN_S
                self._socket.settimeout(0)
            try:
                frame, control, _, _ = self._socket.recvmsg(_FRAME_MAX_BYTES, 64)
            except (TimeoutError, BlockingIOError):
                if until is not None:
                    return
                continue
            except OSError as error:
                # The interface was set down; it may come up again.
                if error.errno != errno.ENETDOWN:
                    raise
                continue
            if until is not None and clock.monotonic() > until:
                return
            self._take(frame, control)

    def _take(self, frame: bytes, control: list[tuple[int, int, bytes]]) -> None:
        stamps = [data for level, kind, data in control if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS)]
        seconds, ns = _TIMESPEC.unpack(stamps[0]) if stamps else divmod(clock.time_ns(), 10**9)
        self.full = self._file.tell() + _RECORD_HEADER.size + len(frame) > self._limit_bytes
        if not self.full:
            self._file.write(_RECORD_HEADER.pack(seconds, ns, len(frame), len(frame)) + frame)
            self.frames += 1


def check_path(text: str) -> Path:
    """The file that ``text`` names; raises ``UsageError`` unless it ends in .pcap, so that nothing else is lost."""
    path = Path(text)
    if path.suffix != ".pcap":
        raise UsageError(f"a capture is written to a file whose name ends in .pcap, got {text!r}")
    return Path(os.path.abspath(path))


# linux/icmp.h; linux/in.h: errors of the path are then reported by the socket.
_ECHO, _ECHO_REPLY = 8, 0
_IP_RECVERR = 11
_PAYLOAD_BYTES = 56  # as ping(8) sends


def round_trip_ns(pid: int, address: str, timeout_s: float) -> int | None:
    """How long one echo request from the namespace of ``pid`` to ``address`` took; ``None`` if nothing answered it.

    It ends before ``timeout_s`` where the kernel reports that there is no way. Raises ``RunError`` where that namespace
    cannot be entered (``ProcessGoneError``: it has ended): nothing was sent then.
    """
    request = _request()
    with netns.socket_in(pid, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        try:
            raw.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
            raw.connect((address, 0))
            begin_ns = clock.monotonic_ns()
            raw.send(request)
            while (left_s := timeout_s - (clock.monotonic_ns() - begin_ns) / 1e9) > 0:
                raw.settimeout(left_s)
                packet = raw.recv(1 << 16)
                if _answers(packet, request):
                    return clock.monotonic_ns() - begin_ns
        except OSError:  # a time-out is one, too
            pass
    return None


def _request() -> bytes:
    payload = secrets.token_bytes(_PAYLOAD_BYTES)
    head = struct.pack("!BBHHH", _ECHO, 0, 0, secrets.randbits(16), 1)
    return head[:2] + struct.pack("!H", checksum(head + payload)) + head[4:] + payload


def _answers(packet: bytes, request: bytes) -> bool:
    """Whether an IPv4 packet is the answer to that request: of another type, and the same from its identifier on."""
    message = packet[(packet[0] & 0xF) * 4 :]
    return message[:1] == bytes([_ECHO_REPLY]) and message[4:] == request[4:]


def checksum(data: bytes) -> int:
    """RFC 1071, of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


_CHUNK_BYTES = 256 * 1024
# A lost SYN is sent again after 1, 3 and 7 s (tcp_syn_retries in tcp(7)).
_CONNECT_DEADLINE_S = 10.0
_SILENCE_S = 0.2


@dataclass(frozen=True)
class Throughput:
    """What arrived in ``length_s``; ``congestion_control`` is the sender's."""

    received_bytes: int
    length_s: float
    congestion_control: str

    @property
    def rate_bps(self) -> float:
        return self.received_bytes * 8 / self.length_s


@contextmanager
def flowing(
    sender_pid: int, receiver_pid: int, address: str, port: int = 0, congestion_control: str | None = None
) -> Iterator[tuple[socket.socket, str]]:
    """A TCP flow that always has data to send: the socket at its end, and the sender's congestion control.

    It goes from the namespace of one process to ``address`` in that of another; port 0 is any. The sockets belong to
    this process: the hosts' limits do not hold for them, while links, addresses and, unless given, congestion control
    are the hosts'. Raises ``RunError`` if no connection can be made.
    """
    listener, sender = netns.socket_in(receiver_pid), netns.socket_in(sender_pid)
    with listener, sender:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(1)
            for end in (listener, sender):
                end.settimeout(_CONNECT_DEADLINE_S)
            if congestion_control is not None:
                sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
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
            receiver.settimeout(_CONNECT_DEADLINE_S)
            try:
                yield receiver, name
            finally:
                stop.set()
                thread.join(_CONNECT_DEADLINE_S)


def measure(sender_pid: int, receiver_pid: int, address: str, seconds: float, port: int = 0) -> Throughput:
    """Send as much as the links carry, see ``flowing``, and count what arrives from the first arrival on.

    Raises ``RunError`` also if nothing arrives; ends after ``seconds`` and at most 20 s more.
    """
    with flowing(sender_pid, receiver_pid, address, port) as (receiver, name):
        try:
            return Throughput(*_receive(receiver, seconds), name)
        except OSError as error:
            raise RunError(f"nothing arrived at {address}: {error}") from error


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
