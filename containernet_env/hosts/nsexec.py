"""Run one program as if it had been started inside a container, and end the way it ends.

Started as a program of its own (``python -I -S nsexec.py ...``), never imported by the driver: entering namespaces
changes the whole process. It needs nothing of the engine, so it costs a few milliseconds instead of the 50 of an
``exec`` through the engine, passes descriptors on, and its caller gets a real process with a real exit status.

The program gets what the container's first process has: all namespaces (the user namespace, too, where the engine
remaps users), the cgroups (so limits hold for it and for what it starts), the capability bounding set, no_new_privs and
resource limits. What it does not get is the engine's seccomp filter, which the kernel only lets a process inherit from
its parent.

Exit status: the program's; 128 + n when signal n ended it; 126 and 127 as in sh when it could not be started.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import sys
import termios
import warnings  # noqa: F401 - os.execvpe imports it, inside the container
from types import SimpleNamespace

# linux/sched.h
_NAMESPACES = {
    # The kernel requires its rights to enter the others.
    "user": 0x1000_0000,
    "ipc": 0x0800_0000,
    "uts": 0x0400_0000,
    "net": 0x4000_0000,
    "pid": 0x2000_0000,
    "cgroup": 0x0200_0000,
    # Last: from then on /proc is the container's.
    "mnt": 0x0002_0000,
}
# linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

# No caller passes descriptors to numbers as high as this.
_ABOVE_TARGETS = 64

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _prctl(option: int, argument: int = 0) -> int:
    zero = ctypes.c_ulong(0)
    return int(_libc.prctl(option, ctypes.c_ulong(argument), zero, zero, zero))


def _status(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def _copy_resource_limits(pid: int) -> None:
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            number = getattr(resource, name)
            resource.setrlimit(number, resource.prlimit(pid, number))


def _drop_capabilities(bounding: int) -> None:
    capability = 0
    while (held := _prctl(_PR_CAPBSET_READ, capability)) >= 0:  # -1: beyond the last one this kernel knows
        if held and not bounding >> capability & 1:
            _check(_prctl(_PR_CAPBSET_DROP, capability), f"drop capability {capability}")
        capability += 1
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def _become_program(options: SimpleNamespace, argv: list[str], status: dict[str, str], joined: list[int]) -> None:
    """In the child: take on the container's limits and privileges and become the program."""
    # PID 1 of this namespace is another process: the ordinary death signal reaches this one.
    _check(_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL), "ask for the parent's death signal")
    for descriptor in joined:
        os.write(descriptor, b"0")  # 0: the writing process
    os.setsid()
    if options.tty:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # First out of the way: one pair's target may be another's source.
    copies = [(target, fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, _ABOVE_TARGETS)) for target, source in options.fds]
    for target, copy in copies:
        os.dup2(copy, target)
    _drop_capabilities(int(status["CapBnd"], 16))
    os.setgroups(options.groups)
    os.setgid(options.gid)
    os.setuid(options.uid)
    if int(status.get("NoNewPrivs", "0")):
        _check(_prctl(_PR_SET_NO_NEW_PRIVS, 1), "set no_new_privs")
    # A change of user clears it.
    _check(_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL), "ask for the parent's death signal")
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.chdir(options.directory)
    os.execvpe(argv[0], argv, options.env)


def _enter(pid: int) -> None:
    # Programs of the container cannot trace what still has the driver's rights and descriptors; execve sets it again.
    _check(_prctl(_PR_SET_DUMPABLE, 0), "become untraceable")
    process = os.pidfd_open(pid)
    namespaces = 0
    for name, flag in _NAMESPACES.items():
        try:
            same = os.stat(f"/proc/{pid}/ns/{name}").st_ino == os.stat(f"/proc/self/ns/{name}").st_ino
        except FileNotFoundError:
            continue  # this kernel was built without that kind
        if not same:
            namespaces |= flag
    _check(_libc.setns(process, namespaces), f"enter the namespaces of process {pid}")
    os.close(process)


def _wait(child: int, life: int) -> None:
    """Return when the program has ended; end it with its session where the caller has, however that did."""
    ended = os.pidfd_open(child)
    poll = select.poll()  # select takes no descriptor above 1023
    poll.register(ended, select.POLLIN)
    poll.register(life, select.POLLIN)
    if ended not in (descriptor for descriptor, _ in poll.poll()):
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:  # it has no session of its own yet
            os.kill(child, signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Enter, start the program, pass signals on, return its exit status.

    ``arguments`` are JSON with ``pid``, ``join`` (cgroup.procs files), ``life`` (a pipe that ends with the caller),
    ``tty`` (whether standard input becomes the controlling terminal), ``fds`` (pairs of a target and a descriptor to
    pass on), ``env``, ``uid``, ``gid``, ``groups`` and ``directory``; and the program's own.
    """
    options, argv = SimpleNamespace(**json.loads(arguments[0])), arguments[1:]
    os.set_inheritable(options.life, False)
    try:
        status = _status(options.pid)
        joined = [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in options.join]
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        _copy_resource_limits(options.pid)
        # From here on all paths are the container's, also those that modules would be imported from.
        sys.meta_path.clear()
        _enter(options.pid)
    except OSError as error:
        print(f"cannot enter the container: {error}", file=sys.stderr)
        return 126
    # A process moves into a PID namespace by being born into it.
    child = os.fork()
    if child == 0:
        code = 126
        try:
            _become_program(options, argv, status, joined)
        except OSError as error:
            code = 127 if isinstance(error, FileNotFoundError) else 126
            print(f"cannot run {argv[0]} in the container: {error.strerror or error}", file=sys.stderr)
        except Exception as error:  # noqa: BLE001 - a child has no caller to raise it to
            print(f"cannot run {argv[0]} in the container: {error}", file=sys.stderr)
        finally:
            # The child must never return into the parent's work.
            sys.stderr.flush()
            os._exit(code)
    for number in _FORWARDED:
        signal.signal(number, lambda signum, _frame: os.kill(child, signum))
    for _, source in options.fds:
        os.close(source)
    # Only the program may hold the other ends of its caller's pipes: its end must be seen as their end.
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    _wait(child, options.life)
    _, result = os.waitpid(child, 0)
    return os.WEXITSTATUS(result) if os.WIFEXITED(result) else 128 + os.WTERMSIG(result)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
