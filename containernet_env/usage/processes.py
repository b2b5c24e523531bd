"""A process and its threads, read from /proc: what they used since the process began."""

from __future__ import annotations

import os
from contextlib import suppress

from containernet_env.usage import texts
from containernet_env.usage.kept import KeptFile
from containernet_env.usage.texts import ThreadTimes

TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGESIZE")
# Three numbers of at most 20 digits.
_SCHEDSTAT_BYTES = 64
# What /proc/PID/io counts of disks; its other counters are those of system calls.
_READ, _WRITTEN = b"read_bytes:", b"write_bytes:"


class Process:
    """Reads one process; everything is opened within its folder, so that another one with its id is never read."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._folder: int | None = None
        self._tasks: int | None = None
        with suppress(OSError):
            self._folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._tasks = os.open("task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._folder)
        self._stat = KeptFile("stat", self._folder)
        self._memory = KeptFile("statm", self._folder)
        self._io = KeptFile("io", self._folder)
        self._cgroup = KeptFile("cgroup", self._folder)
        # By id: the open schedstat, and what it said last.
        self._threads: dict[str, int] = {}
        self._texts: dict[str, bytes] = {}
        self._ended = ThreadTimes(0, 0, 0)
        self.seen_disk_bytes = (0, 0)
        """What `disk_bytes` was when it was last known."""

    def ticks(self) -> tuple[int, int] | None:
        """User and system time, in ticks."""
        return None if self._folder is None else self._stat.read(texts.process_ticks)

    def rss_bytes(self) -> int | None:
        """What it holds of the machine's memory; ``None`` once it has ended."""
        pages = None if self._folder is None else self._memory.read(texts.resident_pages)
        return None if pages is None else pages * PAGE_BYTES

    def disk_bytes(self) -> tuple[int, int] | None:
        """Bytes read from disks, and bytes on their way to them."""
        found = None if self._folder is None else self._io.read(texts.counters)
        if found is None or not found.keys() >= {_READ, _WRITTEN}:
            return None
        self.seen_disk_bytes = found[_READ], found[_WRITTEN]
        return self.seen_disk_bytes

    def traffic(self) -> texts.Traffic | None:
        """Of the interfaces in its network namespace.

        Opened for each look: who holds that file open keeps the namespace, and with it the interfaces of a host that
        has ended.
        """
        if self._folder is None:
            return None
        file = KeptFile("net/dev", self._folder, 1 << 16)
        try:
            return file.read(texts.traffic)
        finally:
            file.close()

    def cgroup(self) -> bytes | None:
        """Which cgroups it is in, as the kernel writes it."""
        return None if self._folder is None else self._cgroup.read(bytes)

    def threads(self) -> ThreadTimes | None:
        """Of all its threads, those that have ended included as far as they were seen."""
        if self._tasks is None:
            return None
        # There are some ten threads for each other file that is read, so that this is what a look mostly costs.
        try:
            names = os.listdir(self._tasks)
        except OSError:
            names = []
        for name in self._threads.keys() - set(names):
            self._forget(name)
        for name in names:
            try:
                fd = self._threads[name] if name in self._threads else self._open(name)
                self._texts[name] = os.pread(fd, _SCHEDSTAT_BYTES, 0)
            except OSError:
                self._forget(name)  # it has ended; another one may have its number, and is read next time
        return self.seen_times if self._threads else None

    @property
    def seen_times(self) -> ThreadTimes:
        """What its threads had used when they were last seen."""
        return texts.thread_times(self._ended, self._texts.values())

    def _open(self, name: str) -> int:
        fd = os.open(f"{name}/schedstat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._tasks)
        self._threads[name] = fd
        return fd

    def _forget(self, name: str) -> None:
        if (fd := self._threads.pop(name, None)) is not None:
            os.close(fd)
        if (text := self._texts.pop(name, None)) is not None:
            self._ended = texts.thread_times(self._ended, [text])

    def close(self) -> None:
        """Let go of everything. Idempotent."""
        for file in (self._stat, self._memory, self._io, self._cgroup):
            file.close()
        for fd in (*self._threads.values(), self._tasks, self._folder):
            if fd is not None:
                os.close(fd)
        self._tasks = self._folder = None
        self._threads = {}
