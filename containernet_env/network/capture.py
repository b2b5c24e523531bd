"""Records the frames of an interface into a pcap file, from outside its namespace: nothing runs inside the host."""

from __future__ import annotations

import errno
import os
import socket
import struct
from pathlib import Path

from containernet_env.base import clock
from containernet_env.base.errors import RunError, UsageError
from containernet_env.base.named_files import followed
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
        # No protocol yet: until it is bound it would hear every interface.
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
            self._file = open(os.open(followed(path), flags, 0o666), "wb")  # noqa: SIM115 - the thread closes it
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
        """End it with all that has come by now, and say what was recorded. Idempotent."""
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
