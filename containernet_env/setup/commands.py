"""Runs the programs of the set-up: output to a log file, a time limit, and an end that leaves no process behind.

Commands are started by worker threads only. The main thread, where a signal raises, waits for the workers and
calls ``stop``: so no signal can fall between the start of a process and its registration.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from containernet_env.base import clock, programs
from containernet_env.base.errors import MissingRequirementError
from containernet_env.base.files import try_lock
from containernet_env.base.work import Progress, Stop

_GUARD = Path(__file__).with_name("guard.py")
_GUARD_S = 10.0
"""A guard that takes longer than its program's grace and this is killed with it."""
_TAIL_LINES = 8
_POLL_S = 0.1
# Messages of apt-get, mmdebstrap and Go.
_NO_NETWORK = re.compile(
    r"could not (resolve|connect)|failure resolving|failed to fetch|network is unreachable|timed out"
    r"|dial tcp|no such host|connection refused|i/o timeout|TLS handshake timeout",
    re.IGNORECASE,
)
_NO_ROOM = re.compile(r"enough free space|no space left", re.IGNORECASE)
_ROOM = "Make room on that disk, then run again."


class CommandError(Exception):
    """A program failed; ``tail`` holds its last lines, ``shown`` as text, ``log`` is the file with all of them."""

    def __init__(self, argv: Sequence[str], reason: str, log: Path, tail: Sequence[str]) -> None:
        self.log = log
        self.tail = tuple(tail)
        self.shown = "\n".join(f"    {line}" for line in tail)
        super().__init__(f"'{' '.join(argv[:3])}{' ...' if len(argv) > 3 else ''}' {reason}")

    def missing(self, what: str, network: str, otherwise: str) -> MissingRequirementError:
        """What it did not make, with its last lines and what to do: about the ``network``, the disk, or otherwise."""
        remedy = network if _NO_NETWORK.search(self.shown) else _ROOM if _NO_ROOM.search(self.shown) else otherwise
        return MissingRequirementError(f"{what}: {self}\n{self.shown}", f"{remedy} Details: {self.log}")


class Stopped(Exception):
    """The work was stopped from outside; never shown to the user."""


@dataclass(frozen=True)
class Ending:
    """How to end a program: signal its group, or only its leader if that ends its children."""

    signum: signal.Signals = signal.SIGINT
    leader_only: bool = False
    grace_s: float = 10.0


class Guarded(subprocess.Popen[bytes]):
    """A program in a session of its own, whose guard (``guard.py``) ends it with ``life``: a pipe that `end` closes, or
    the kernel when this process ends for any reason.

    Its standard error is its standard output; ``options`` are those of ``Popen``. Raises ``OSError``.
    """

    def __init__(self, argv: Sequence[str], ending: Ending = Ending(), **options: Any) -> None:
        watched, life = os.pipe()
        self.life = open(life, "wb", buffering=0)  # noqa: SIM115 - closed by `end`
        self._limit_s = ending.grace_s + _GUARD_S
        how = (watched, int(ending.signum), int(ending.leader_only), ending.grace_s)
        try:
            super().__init__(
                [sys.executable, "-I", "-S", str(_GUARD), *map(str, how), *argv],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                pass_fds=(watched,),
                start_new_session=True,
                **options,
            )
        except OSError:
            self.life.close()
            raise
        finally:
            os.close(watched)

    def end(self) -> None:
        """End it, and all other processes of its session; returns when it has ended. Idempotent."""
        self.life.close()
        with suppress(subprocess.TimeoutExpired):
            self.wait(self._limit_s)
        # What outlives a program that has ended by itself, and a guard that was stopped.
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()


class Commands:
    """Runs programs, several at a time, and can end all running ones. Thread-safe."""

    def __init__(self) -> None:
        self._lock = clock.Lock()
        self._running: set[Guarded] = set()
        self.stopping = clock.Event()

    def run(
        self,
        argv: Sequence[str],
        log: Path,
        *,
        timeout_s: float,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        ending: Ending = Ending(),
    ) -> None:
        """Run ``argv``; its output is appended to ``log``. ``env`` replaces the environment when given.

        Raises ``CommandError`` (no such program, a non-zero exit, the time limit), ``Stopped`` after ``stop``.
        """
        given = programs.environment(env)
        with log.open("ab") as output, self._lock:
            begin = output.tell()
            output.write(f"$ {' '.join(argv)}\n".encode())
            output.flush()
            if self.stopping.is_set():
                raise Stopped
            if (found := shutil.which(argv[0], path=given["PATH"])) is None:
                raise CommandError(argv, "cannot be started: there is no such program", log, ())
            try:
                program = Guarded([found, *argv[1:]], ending, stdout=output, cwd=cwd, env=given)
            except OSError as error:
                raise CommandError(argv, f"cannot be started: {error}", log, ()) from error
            self._running.add(program)
        try:
            program.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            program.end()
            raise CommandError(argv, f"did not end within {timeout_s:.0f} s", log, tail(log, begin)) from error
        finally:
            program.life.close()
            with self._lock:
                self._running.remove(program)
        if self.stopping.is_set():
            raise Stopped
        if program.returncode != 0:
            raise CommandError(argv, f"ended: {programs.how_ended(program.returncode)}", log, tail(log, begin))

    def stop(self) -> None:
        """End every running program and refuse new ones; returns when all have ended."""
        with self._lock:
            self.stopping.set()
            running = list(self._running)
        for program in running:
            program.life.close()
        for program in running:
            program.end()

    def side_by_side(self, *jobs: Callable[[], None], stop: Stop | None = None) -> None:
        """Run jobs in threads and wait for all; where signals are to end them, called in the main thread.

        The first error stops the others and is raised. So does an exception in this thread meanwhile, of a signal or
        of the stop token: every running program is ended before it is raised.
        """
        if not jobs:
            return
        with clock.ThreadPoolExecutor(len(jobs)) as pool:
            futures = [pool.submit(job) for job in jobs]
            try:
                failed, left = False, True
                while left and not failed:
                    if stop is not None:
                        stop.check()
                    done, running = wait(futures, timeout=_POLL_S, return_when=FIRST_EXCEPTION)
                    left, failed = bool(running), any(future.exception() is not None for future in done)
            except BaseException:
                self.stop()
                raise
            if failed:
                self.stop()
        errors = [error for future in futures if (error := future.exception()) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, Stopped)):
            raise error


def output_of(argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None) -> str | None:
    """What a program prints that only looks; ``None`` if it cannot be run, fails, or does not end in time."""
    try:
        found = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, env=env, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout


def tail(log: Path, begin: int = 0) -> list[str]:
    """The last non-empty lines of ``log`` after byte ``begin``."""
    text = log.read_bytes()[begin:].decode(errors="replace")
    return [line.rstrip() for line in text.splitlines() if line.strip()][-_TAIL_LINES:]


@dataclass
class Step:
    """One step in progress: its log file and its reports."""

    log: Path
    note: Callable[[str], None]
    done: Callable[[str], None]


class Steps:
    """The steps of one set-up. They run in threads, so that a signal in the main thread, or ``stop``, can end them."""

    def __init__(self, report: Progress, logs: Path, stop: Stop | None = None) -> None:
        self._report = report
        self.note = report.note
        self._logs = logs
        self._stop = stop
        self.commands = Commands()

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """One step, with a fresh log file named after it. An error passes through and no line is shown."""
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"{name.replace(' ', '-')}.log"
        log.write_bytes(b"")
        with self._report.stage(name) as stage:
            yield Step(log, self.note, stage.done)

    def run(self, *jobs: Callable[[], None]) -> None:
        self.commands.side_by_side(*jobs, stop=self._stop)


LOCK = Path("/run/containernet-env-setup.lock")
_LOCK_DEADLINE_S = 3600.0
_LOCK_POLL_S = 0.2


@contextmanager
def only_one(
    note: Callable[[str], object],
    path: Path | None = None,
    deadline_s: float = _LOCK_DEADLINE_S,
    stop: Stop | None = None,
) -> Iterator[None]:
    """Hold the lock of set-ups (or of ``path``); waits for another set-up, with a note, until ``stop`` is set.

    The lock is released when the process ends.
    """
    path = path or LOCK
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = clock.monotonic() + deadline_s
        noted = False
        while not try_lock(fd):
            if not noted:
                note("waiting for another set-up on this machine to end")
                noted = True
            if clock.monotonic() > deadline:
                raise MissingRequirementError(
                    f"another set-up has held {path} for more than {deadline_s:.0f} s",
                    "Wait for it to end, then run again.",
                )
            if stop is not None:
                stop.check()
            clock.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(fd)
