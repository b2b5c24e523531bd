"""ICMP echo requests from the namespace of a host, sent from outside: the host needs no ping, shell or capability."""

from __future__ import annotations

import secrets
import socket
import struct

from containernet_env.base import clock
from containernet_env.hosts import netns

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
