"""Raw frames from one host to the other, many per system call: at the maximum rate, or at a fixed rate."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import time
from types import TracebackType

from bench.links.paths import Host
from containernet_env.hosts import netns

ETHERTYPE = 0x88B5
"""Local experimental (IEEE 802): the receiver's stack drops such frames early."""

BATCH = 64
_PR_SET_TIMERSLACK = 29  # linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True)


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _MsgHdr(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("parts", ctypes.POINTER(_IoVec)),
        ("part_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _MMsgHdr(ctypes.Structure):
    """struct mmsghdr of sendmmsg(2)."""

    _fields_ = (("header", _MsgHdr), ("length", ctypes.c_uint))


def frame(source: Host, target: Host, length_bytes: int) -> bytes:
    """A frame of ``length_bytes`` (14 or more) as the TAP shows it, from one host's address to the other's."""
    header = bytes.fromhex((target.mac + source.mac).replace(":", "")) + ETHERTYPE.to_bytes(2, "big")
    return header.ljust(length_bytes, b"\0")


class FrameSender:
    """Sends copies of one frame into ``source``'s interface; for one thread only."""

    def __init__(self, source: Host, target: Host, length_bytes: int) -> None:
        self._socket = netns.socket_in(source.pid, socket.AF_PACKET, socket.SOCK_RAW)
        netns.call_in(source.pid, lambda: self._socket.bind((source.interface, 0)))
        content = frame(source, target, length_bytes)
        self._buffer = ctypes.create_string_buffer(content, len(content))
        self._part = _IoVec(ctypes.addressof(self._buffer), len(content))
        self._messages = (_MMsgHdr * BATCH)()
        for message in self._messages:
            message.header.parts = ctypes.pointer(self._part)
            message.header.part_count = 1

    def send(self, count: int) -> int:
        """Offer ``count`` (at most ``BATCH``) frames in one call; return how many the kernel accepted."""
        sent = int(_libc.sendmmsg(self._socket.fileno(), self._messages, count, 0))
        if sent >= 0:
            return sent
        code = ctypes.get_errno()
        if code in (errno.ENOBUFS, errno.EAGAIN, errno.EINTR):
            return 0
        raise OSError(code, f"frames cannot be sent: {os.strerror(code)}")

    def flood(self, seconds: float) -> int:
        """Send at the maximum rate; return how many the kernel accepted."""
        taken = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            taken += self.send(BATCH)
        return taken

    def pace(self, seconds: float, every_s: float, burst: int) -> int:
        """Send ``burst`` frames every ``every_s`` and catch up when late; return how many the kernel accepted."""
        # The default timer slack of 50 us is the whole interval between frames at an even 20,000 per second.
        _libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
        taken = 0
        start = due = time.monotonic()
        while due - start < seconds:
            wait = due - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            taken += self.send(burst)
            due += every_s
        return taken

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()

    def __enter__(self) -> FrameSender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
