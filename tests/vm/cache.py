"""What a virtual machine needs and what takes long to make: kept on this machine, whichever clone made it.

An entry's name ends with the hash of all that it is made from, so one that is there is the right one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path("/var/cache/containernet-env/vm")
# Two of a kind: a clone with another recipe does not take the place of this one's at every turn.
KEPT = 2
_LOCK_DEADLINE_S = 1200.0
_LOCK_POLL_S = 0.2


def entry(kind: str, digest: str, make: Callable[[Path], None]) -> Path:
    """The folder of ``kind`` made from what has that hash; ``make`` fills a new one where there is none yet.

    One maker at a time on this machine. What an interrupted one left, and entries that were not used for longest, are
    removed. Raises what ``make`` raises, and ``TimeoutError`` where another maker does not end.
    """
    wanted = ROOT / f"{kind}-{digest}"
    ROOT.mkdir(mode=0o755, parents=True, exist_ok=True)
    with _only_one(ROOT / f"{kind}.lock"):
        if not wanted.is_dir():
            for left in ROOT.glob(f".{kind}-*"):
                # What a killed maker has mounted in it must not be emptied.
                if f" {left}/" not in Path("/proc/self/mounts").read_text():
                    shutil.rmtree(left)
            partial = Path(tempfile.mkdtemp(prefix=f".{kind}-", dir=ROOT))
            try:
                make(partial)
                partial.replace(wanted)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
        os.utime(wanted)
        for old in sorted(ROOT.glob(f"{kind}-*"), key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
            # A machine that runs from it keeps its files open.
            shutil.rmtree(old)
    return wanted


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_DEADLINE_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path} is held for more than {_LOCK_DEADLINE_S:.0f} s") from None
            time.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(fd)
