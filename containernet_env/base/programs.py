"""Programs: where those of the system and our own are, a program of the user's, and how one ended."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from containernet_env.base import assets, clock
from containernet_env.base.assets import GoModule
from containernet_env.base.errors import MissingRequirementError, RunError

# How a crash of the Go runtime begins (runtime/panic.go, signal_unix.go, proc.go, malloc.go); a dump of goroutines
# follows, which may be thousands of lines. Lines with the details come before the line that every crash has.
_GO_CRASH = re.compile(
    r"^(?:(?:runtime(?:/cgo)?: |unexpected fault address ).*\n)*(?:panic|fatal error|SIG[A-Z0-9]+): .*", re.MULTILINE
)
# A line of a log in a message; the log itself is kept elsewhere.
_LINE_MAX = 300
OOM_BY_OWN_LIMIT = "memory limit"
"""Precedes the limit in the ending of a host that its own memory limit ended, and only there."""
_BY_OWN_LIMIT = re.compile(rf"(?:\S+ ended: )?(?:OOM-killed|[\w ]+ after an OOM kill in it) \({OOM_BY_OWN_LIMIT} ")

LastWords = Callable[[str, bool], str]
"""Extracts the reason for a program's end from its log, as one line or "". True: a signal from outside ended it, so no
line of the log is the reason."""


def how_ended(status: int) -> str:
    """An exit status as in "exit status 2" or "killed by SIGKILL".

    Signals are negative (Python's ``subprocess``) or come after 128 (shells, the Docker engine).
    """
    killed_by = killing_signal(status)
    return f"exit status {status}" if killed_by is None else f"killed by {killed_by}"


def is_by_own_limit(ending: str) -> bool:
    """Whether a program's own memory limit has ended it. A program that writes of one before it ends is not that."""
    return _BY_OWN_LIMIT.match(ending) is not None


def killing_signal(status: int) -> str | None:
    """The name of the signal that an exit status stands for, if it does; see ``how_ended``."""
    number = -status if status < 0 else status - 128
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def crash_line(text: str) -> str | None:
    """The first line of the Go crash in a program's output, which states the reason."""
    found = _GO_CRASH.search(text)
    return None if found is None else one_line(found.group().partition("\n")[0])


def last_words(log: str, killed: bool = False) -> str:
    """The words of any program (see ``LastWords``): the first line of a Go crash, else the last line it wrote."""
    crash = crash_line(log)
    if crash is not None or killed:
        return crash or ""
    return one_line(log.strip().rpartition("\n")[2])


def one_line(text: str) -> str:
    """Text in one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= _LINE_MAX else line[: _LINE_MAX - 3] + "..."


def ending(status: int, text: str, words: LastWords = last_words) -> str:
    """How a program ended that exited with ``status`` and wrote ``text``."""
    killed = killing_signal(status) is not None
    return with_words(how_ended(status), words(text, killed), killed)


def with_words(how: str, words: str, killed: bool) -> str:
    """How a program ended, and its words: the reason, except where it was ``killed`` from outside."""
    separator = ", " if killed else ": "
    return separator.join(filter(None, (how, words)))


_lock = clock.Lock()
# By process: after a fork the child needs a pipe of its own. (It holds its parent's open as well while it lives.)
_pipes: dict[int, tuple[int, int]] = {}


def descriptor() -> int:
    """The side of the pipe that children watch, for ``pass_fds``: it is at its end once this process has ended."""
    with _lock:
        pid = os.getpid()
        if pid not in _pipes:
            _pipes[pid] = os.pipe()
        return _pipes[pid][0]


FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

# Programs that are run, and the package that brings each on Debian and Ubuntu.
PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "mnexec": "mininet",
    "unshare": "util-linux",
    "cat": "coreutils",
    "ovs-vsctl": "openvswitch-switch",
    "ethtool": "ethtool",
}


def search_path(path: str | None = None) -> str:
    """``path`` (of this process where it is not given) with the usual folders that it lacks."""
    named = [folder for folder in (os.environ.get("PATH", "") if path is None else path).split(os.pathsep) if folder]
    return os.pathsep.join(dict.fromkeys([*named, *FOLDERS]))


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """``base`` (of this process where it is not given) for a program that may run others."""
    given = os.environ if base is None else base
    return {**given, "PATH": search_path(given.get("PATH", ""))}


def which(program: str) -> str | None:
    """The path of a program; ``None`` where it is not installed."""
    return shutil.which(program, path=search_path())


def require(program: str) -> str:
    """The path of a program. Raises ``MissingRequirementError`` that names the package which has it.

    Raises ``RunError`` for a path that leads to none.
    """
    found = which(program)
    if found is None and os.sep in program:
        raise RunError(f"cannot run '{program}': there is no such program")
    if found is None:
        raise MissingRequirementError(
            f"{program} is not installed: it is neither in PATH nor in {', '.join(FOLDERS)}",
            f"Install the package {PACKAGES.get(program, program)} (Debian, Ubuntu: apt-get install).",
        )
    return found


def complete_path() -> None:
    """Add the folders to the PATH of this process: for libraries that run programs by themselves (Mininet)."""
    os.environ["PATH"] = search_path()


STAMP = "programs.json"
_HASH_DIGITS = 16
# The shortest time between two updates of a folder's time of last use.
_USE_GRAIN_S = 3600.0


@dataclass(frozen=True)
class Program:
    """A program as it was built. ``state`` is (inode, size_bytes, mtime_ns, ctime_ns)."""

    sha256: str
    state: tuple[int, int, int, int]

    @staticmethod
    def of(path: Path) -> Program:
        return Program(assets.hash_file(path), state_of(path))

    def is_at(self, path: Path) -> bool:
        """Whether ``path`` can be run and holds what was built."""
        if not os.access(path, os.X_OK):
            return False
        return state_of(path) == self.state or assets.hash_file(path) == self.sha256


@dataclass(frozen=True)
class Stamp:
    """What a folder was built from: the module's name, its ``source_hash`` and the Go version."""

    module: str
    source: str
    go: str
    programs: dict[str, Program]

    def write(self, folder: Path) -> None:
        (folder / STAMP).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")


def state_of(path: Path) -> tuple[int, int, int, int]:
    """What changes whenever a file's contents do (the kernel alone sets ctime). OSError if it is missing."""
    stat = path.stat()
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def read_stamp(folder: Path) -> Stamp | None:
    """The stamp of a folder; None where there is none, or a damaged one."""
    try:
        raw = json.loads((folder / STAMP).read_text(encoding="utf-8"))
        programs = {name: Program(item["sha256"], tuple(item["state"])) for name, item in raw["programs"].items()}
        return Stamp(str(raw["module"]), str(raw["source"]), str(raw["go"]), programs)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def folder_name(source: str) -> str:
    """The name of the folder of the programs built from sources with that ``source_hash``."""
    return source[:_HASH_DIGITS]


def find(module: GoModule, go_version: str | None = None) -> Path | None:
    """The folder with the programs of ``module`` as its sources now make them, all there and unchanged; else None.

    Built with ``go_version``; without one with any, the one used last first.
    """
    for cached in assets.trusted():
        if go_version is not None:
            candidates = [cached / "bin" / folder_name(module.source_hash(go_version))]
        else:
            candidates = sorted((cached / "bin").glob("[!.]*"), key=_last_used, reverse=True)
        for folder in candidates:
            stamp = read_stamp(folder)
            if stamp is None or stamp.module != module.label or stamp.source != module.source_hash(stamp.go):
                continue
            if all(name in stamp.programs and stamp.programs[name].is_at(folder / name) for name in module.packages):
                _note_use(folder)
                return folder
    return None


def _last_used(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def _note_use(folder: Path) -> None:
    """Set the folder's time of last use, so that it is not removed with unused ones."""
    if clock.time() - _last_used(folder) > _USE_GRAIN_S:
        # A user cannot set the times of root's files, and need not.
        with suppress(OSError):
            os.utime(folder)


def go_version(module: GoModule) -> str | None:
    """The Go version that the programs of ``module`` were built with; None where they are not built."""
    folder = find(module)
    stamp = read_stamp(folder) if folder is not None else None
    return stamp.go if stamp is not None else None


def path(name: str) -> Path:
    """The program ``name``, built from the present sources. Raises ``MissingRequirementError`` where it is not."""
    for module in assets.modules():
        if name in module.packages and (folder := find(module)) is not None:
            return folder / name
    raise MissingRequirementError(f"{name} has not been built from the present sources", assets.set_up_hint())


ALLOWED = f"the path of an executable file, an ELF program for this machine ({platform.machine()})"
# elf(5): the magic number; class, byte order; at 16 the type, at 18 the machine, both of two bytes.
_MAGIC, _CLASS_AND_ORDER, _TYPE, _MACHINE = slice(0, 4), slice(4, 6), slice(16, 18), slice(18, 20)
_HEADER_BYTES = 20
# ET_EXEC and ET_DYN, which is what position-independent programs are.
_PROGRAMS = (b"\2\0", b"\3\0", b"\0\2", b"\0\3")
# A sweep reads a topology once for each combination of its values.
_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class UserProgram:
    """A program of the user: its path and the SHA-256 of its contents, in hex."""

    path: Path
    sha256: str

    @property
    def short(self) -> str:
        return self.sha256[:12]

    def content(self) -> bytes:
        """The contents as they were read. Raises ``MissingRequirementError`` if the file has changed."""
        again = "Put it back, or begin again with what it is now."
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise MissingRequirementError(f"{self.path} cannot be read: {error.strerror}", again) from error
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise MissingRequirementError(f"{self.path} has changed since it was read", again)
        return content


def read_program(path: Path) -> UserProgram:
    """The program in a file. Raises ``ValueError`` with the problem."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("is not a file")
        if not os.access(path, os.X_OK):
            raise ValueError("is not executable")
        header, own = _header(path), _header(Path("/proc/self/exe"))
        same = all(header[part] == own[part] for part in (_MAGIC, _CLASS_AND_ORDER, _MACHINE))
        if len(header) != _HEADER_BYTES or not same or header[_TYPE] not in _PROGRAMS:
            raise ValueError("is not a program for this machine")
        return UserProgram(path, _hash(path, state_of(path)))
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEADER_BYTES)


@functools.lru_cache(_REMEMBERED)
def _hash(path: Path, state: tuple[int, int, int, int]) -> str:
    """Its SHA-256, computed once for each ``state`` of the file."""
    return assets.hash_file(path)
