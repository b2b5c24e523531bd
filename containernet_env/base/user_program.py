"""A program that the user brings: a file that this machine can run, known by its contents and not by its name."""

from __future__ import annotations

import functools
import os
import platform
import stat
from dataclasses import dataclass
from pathlib import Path

from containernet_env.base import sources
from containernet_env.base.errors import MissingRequirementError
from containernet_env.base.programs import state_of

ALLOWED = f"the path of an executable file, an ELF program for this machine ({platform.machine()})"
# elf(5): the magic number; class, byte order; at 16 the type, at 18 the machine, both of two bytes.
_MAGIC, _CLASS_AND_ORDER, _TYPE, _MACHINE = slice(0, 4), slice(4, 6), slice(16, 18), slice(18, 20)
_HEADER_BYTES = 20
# ET_EXEC and ET_DYN, which is what position-independent programs are.
_PROGRAMS = (b"\2\0", b"\3\0", b"\0\2", b"\0\3")
_OWN = Path("/proc/self/exe")
# A sweep reads a topology once for each combination of its values.
_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class UserProgram:
    """Where it lies, and the SHA-256 of its contents, in hex."""

    path: Path
    sha256: str

    @property
    def short(self) -> str:
        """What it is called among other programs: the first 12 digits."""
        return self.sha256[:12]

    def content(self) -> bytes:
        """What it was when it was read. Raises ``MissingRequirementError`` where it is not that any more."""
        again = "Put it back, or begin again with what it is now."
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise MissingRequirementError(f"{self.path} cannot be read: {error.strerror}", again) from error
        if sources.hash_bytes(content) != self.sha256:
            raise MissingRequirementError(f"{self.path} has changed since it was read", again)
        return content


def read_program(path: Path) -> UserProgram:
    """The program in a file. Raises ``ValueError`` with what is wrong with it."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("is not a file")
        if not os.access(path, os.X_OK):
            raise ValueError("is not executable")
        if not _is_program(_header(path), _header(_OWN)):
            raise ValueError("is not a program for this machine")
        return UserProgram(path, _hash(path, state_of(path)))
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEADER_BYTES)


def _is_program(header: bytes, own: bytes) -> bool:
    same = all(header[part] == own[part] for part in (_MAGIC, _CLASS_AND_ORDER, _MACHINE))
    return len(header) == _HEADER_BYTES and same and header[_TYPE] in _PROGRAMS


@functools.lru_cache(_REMEMBERED)
def _hash(path: Path, state: tuple[int, int, int, int]) -> str:
    """Its SHA-256, computed once for each ``state`` of the file."""
    return sources.hash_file(path)
