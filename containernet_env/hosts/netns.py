"""Work inside the network namespace of another process: run a command, configure interfaces, open a socket.

Only the network namespace is entered. Programs, files and privileges stay the driver's own, so a container needs
neither tools nor capabilities for its interfaces to be configured.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from containernet_env.base import clock, programs
from containernet_env.base.errors import RunError, resource_errors, shortage

# linux/sched.h
CLONE_NEWNET = 0x4000_0000

_libc = ctypes.CDLL(None, use_errno=True)
_T = TypeVar("_T")


class ProcessGoneError(RunError):
    """There is no network namespace to enter: its process, the first one of a host, has ended."""


def _enter(pid: int) -> None:
    """Move the calling thread, and it alone, into the network namespace of ``pid``; raises ``OSError``."""
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # os.setns exists from Python 3.12 only.
        if _libc.setns(namespace, CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    finally:
        os.close(namespace)


def call_in(pid: int, action: Callable[[], _T]) -> _T:
    """Call ``action`` on a thread of its own inside the network namespace of ``pid``; return what it returns.

    A namespace belongs to a thread: the caller's stays what it is, and what ``action`` forks inherits the one
    it runs in. ``action`` has to be short: an interrupt waits for it, too. Its exceptions are raised
    here. Raises ``ProcessGoneError`` where the process is gone.
    """
    result: list[_T] = []
    failure: list[BaseException] = []
    working = clock.Lock()
    wanted = True

    def work() -> None:
        with working:
            if not wanted:
                return
            try:
                _enter(pid)
            except OSError as error:
                reason = f"cannot enter the network namespace of process {pid}: {error.strerror}"
                gone = error.errno in (errno.ENOENT, errno.ESRCH)
                failure.append(ProcessGoneError(reason) if gone else shortage(error) or RunError(reason))
                return
            try:
                result.append(action())
            except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, which raises it
                failure.append(error)

    thread = clock.Thread(target=work, name=f"netns-{pid}", daemon=True)
    try:
        with resource_errors():
            thread.start()
        thread.join()
    except BaseException:
        with working:  # an interrupt: nothing more is created while the caller tears down
            wanted = False
        raise
    if failure:
        raise failure[0]
    return result[0]


def run(
    pid: int,
    argv: Sequence[str],
    *,
    input: str | None = None,  # noqa: A002 - subprocess's name for it
    timeout: float = 10.0,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a program of the machine in the network namespace of ``pid``; return its exit status and output.

    ``input`` is its standard input (nothing when ``None``); ``timeout`` is in seconds, after which it is killed.
    Raises ``RunError`` with the command and the last lines it wrote to standard error when it cannot be started,
    takes too long, or (unless ``check`` is false) ends with a status other than 0; ``MissingRequirementError`` where it
    is not installed.
    """
    command = " ".join(argv)
    program = programs.require(argv[0])

    started: list[subprocess.Popen[str]] = []

    def start() -> None:
        process = subprocess.Popen(
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # The terminal's Ctrl-C is for the driver, which then tears down in its own order.
            start_new_session=True,
        )
        started.append(process)

    try:
        call_in(pid, start)
        out, err = started[0].communicate(input, timeout=timeout)
    except OSError as error:
        raise RunError(f"cannot run '{command}': {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise RunError(f"'{command}' in the namespace of process {pid} took more than {timeout:g} s") from error
    finally:
        for process in started:
            with process:
                process.kill()  # nothing where it has ended
    done = subprocess.CompletedProcess(list(argv), started[0].returncode, out, err)
    if check and done.returncode != 0:
        # The output of a batch is the error and, on the next line, the number of its line.
        output = "; ".join((err.strip() or out.strip() or "no message").splitlines()[-2:])
        detail = f" (input: {input.strip()!r})" if input else ""
        raise RunError(f"'{command}'{detail} failed with status {done.returncode}: {output}")
    return done


def ip_batch(pid: int, lines: Iterable[str]) -> None:
    """Carry out ``ip`` commands (each without the leading ``ip``) in order, by one process; stops at the first error.

    Raises ``RunError`` that names the line. No lines: nothing is run.
    """
    batch = "".join(f"{line}\n" for line in lines)
    if batch:
        run(pid, ["ip", "-batch", "-"], input=batch)


def socket_in(
    pid: int,
    family: int = socket.AF_INET,
    type: int = socket.SOCK_STREAM,  # noqa: A002 - socket's name for it
    proto: int = 0,
) -> socket.socket:
    """A socket made inside the network namespace of ``pid``: it stays there wherever it is used afterwards.

    Raises ``RunError`` where the process is gone, ``OSError`` where the kernel refuses the socket.
    """
    return call_in(pid, lambda: socket.socket(family, type, proto))


def is_own(pid: int) -> bool:
    """Whether ``pid`` is in this process's network namespace. Raises ``RunError`` where the process is gone."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino
    except OSError as error:
        raise RunError(f"process {pid} has no network namespace: {error.strerror}") from error


def read_sysctl(pid: int, name: str) -> str:
    """The value of a ``net.*`` sysctl in the namespace of ``pid``, as text without the final newline.

    Raises ``RunError`` where this kernel has no such sysctl.
    """
    try:
        # /proc/sys/net shows the namespace of the thread that looks it up, whichever /proc is mounted.
        return call_in(pid, Path("/proc/sys", *name.split(".")).read_text).strip()
    except OSError as error:
        raise RunError(f"cannot read sysctl {name} of process {pid}: {error.strerror}") from error


_DEADLINE_S = 5.0


class ThrowawayNamespace:
    """A fresh network namespace held by one process; nothing is mounted, so nothing can be left behind.

    The process waits for the end of its standard input, which comes when this one closes it or dies.
    """

    def __init__(self) -> None:
        # A session of its own: the terminal's Ctrl-C must not take the switches away before the hosts.
        self._process = subprocess.Popen(
            [programs.require("unshare"), "--net", programs.require("cat")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self._process.pid
        deadline = clock.monotonic() + _DEADLINE_S
        ours = os.stat("/proc/self/ns/net").st_ino
        try:
            while os.stat(f"/proc/{self.pid}/ns/net").st_ino == ours:
                if self._process.poll() is not None or clock.monotonic() > deadline:
                    raise RunError(f"no network namespace could be made (status {self._process.poll()})")
                clock.sleep(0.001)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise RunError(f"no network namespace could be made: {error}") from error
            raise

    def close(self) -> None:
        """Let the namespace go, with every interface in it. Idempotent."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> ThrowawayNamespace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_DISCARD_PORT = 9


def set_congestion_control(
    pid: int, interface: str, address: str, subnet: str, algorithm: str, rto_min_ms: int | None = None
) -> None:
    """Make TCP between `address` (on `interface`, in the namespace of `pid`) and `subnet` use `algorithm`.

    `rto_min_ms` is its shortest retransmission timeout; ``None`` leaves the kernel's. Raises RunError where the kernel
    does not have the algorithm or does not take the route.
    """
    available = read_sysctl(pid, "net.ipv4.tcp_available_congestion_control").split()
    if algorithm not in available:
        raise RunError(f"this kernel has no TCP congestion control {algorithm!r}; it has: {', '.join(available)}")
    route = f"route replace {subnet} dev {interface} proto kernel scope link src {address} congctl {algorithm}"
    ip_batch(pid, [route if rto_min_ms is None else f"{route} rto_min {rto_min_ms}ms"])


def forget_paths(pid: int) -> None:
    """Forget the path metrics of earlier TCP connections (tcp_metrics), which later ones would start with."""
    ip_batch(pid, ["tcp_metrics flush all"])


def congestion_control_towards(pid: int, address: str) -> str:
    """The algorithm that a TCP connection from the namespace of `pid` to `address` really uses.

    Reads it from a socket that has begun to connect; no answer is needed. Raises RunError where
    there is no route.
    """
    with socket_in(pid, socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        code = probe.connect_ex((address, _DISCARD_PORT))
        if code not in (0, errno.EINPROGRESS, errno.ECONNREFUSED):
            raise RunError(f"no connection to {address} can be begun: {os.strerror(code)}")
        name = probe.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.rstrip(b"\0").decode()
