"""The files that travel with the program: configs, image contexts and Go sources.

In a clone they are its own top-level folders. A wheel carries copies of them inside the package, which setup.py puts
there when the wheel is built, so that an installed program needs no clone.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = (
    "configs",
    "etcd_image",
    "zookeeper_image",
    "consul_image",
    "replicas_image",
    "proxy_image",
    "http_image",
    "benchmark_image",
    "link_emulator",
)
# Inside an installed package only.
COPIES = "assets"
# Files in these folders that no program contains or reads.
LEFT_OUT = ("*_test.go", "*.md", "testdata/*", "*/testdata/*", ".*", "*/.*")


def clone_of(package: Path) -> Path | None:
    """The clone (or the unpacked source archive) that ``package`` is part of; None for an installed one."""
    return None if (package / COPIES).is_dir() else package.parent


CLONE = clone_of(PACKAGE)
ROOT = CLONE or PACKAGE / COPIES
"""The folder that holds ``FOLDERS``."""


def travelling(root: Path, folder: str) -> Iterator[Path]:
    """The files of one of ``FOLDERS`` below ``root`` that a wheel carries."""
    for path in sorted((root / folder).rglob("*")):
        relative = path.relative_to(root / folder).as_posix()
        if path.is_file() and not any(fnmatchcase(relative, pattern) for pattern in LEFT_OUT):
            yield path


def set_up_hint() -> str:
    """What a user does where the set-up has not been done, as one sentence."""
    if CLONE is not None:
        return "Run ./build.sh as root."
    called = Path(sys.argv[0])
    found = str(called.absolute()) if called.name == "containernet-env" else shutil.which("containernet-env")
    return f"Run as root: {found or 'containernet-env'} setup"
