"""How much disk the set-up needs for what is missing, and whether it is there.

The figures were measured from nothing on Debian 12 with amd64 and rounded up by about a fifth.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from containernet_env.base.errors import MissingRequirementError

MB = 1_000_000

# Installed size plus the downloaded archives.
PACKAGES = {"docker.io": 400 * MB, "mininet": 60 * MB, "mmdebstrap": 30 * MB}
OTHER_PACKAGE = 20 * MB
GO_TOOLCHAIN = 350 * MB
# Fetched modules, the build cache and the programs of each Go module, where nothing of them is cached.
GO_MODULES = {
    "etcd": 700 * MB,
    "consul": 2500 * MB,
    "replicas": 80 * MB,
    "benchmark": 150 * MB,
    "emulator": 80 * MB,
}
# The root file system and its archive while the base image is made; the image itself is the engine's.
BASE_WORK = 350 * MB
IMAGES = {"base": 170 * MB, "etcd": 55 * MB, "consul": 145 * MB, "replicas": 15 * MB, "benchmark": 40 * MB}
# Without the user's program: etcd's; the start script.
IMAGES |= {"zetcd": IMAGES["etcd"], "cetcd": IMAGES["etcd"], "http": 1 * MB}
# ZooKeeper's, of the distribution: 399 MB, of which Java is the half.
OTHER_IMAGE = 480 * MB


def image_size(name: str) -> int:
    """Bytes that an image takes in the engine: ``etcd``, ``etcd-3.6.8``, ``base of zookeeper``.

    A program of the user's, which it may have, comes on top.
    """
    return IMAGES.get(name) or IMAGES.get(name.partition("-")[0], OTHER_IMAGE)


@dataclass(frozen=True)
class Need:
    """``size`` bytes that will be written below ``path``."""

    path: Path
    size: int


def require(needs: Iterable[Need]) -> str:
    """Check that every file system has room for what will be written to it; says needed and free as one line.

    Raises ``MissingRequirementError`` naming each file system that is too small.
    """
    sums: dict[int, tuple[Path, int]] = {}
    for need in needs:
        place = existing(need.path)
        device = place.stat().st_dev
        path, size = sums.get(device, (place, 0))
        sums[device] = (path, size + need.size)
    parts, lacking = [], []
    for path, size in sums.values():
        free = free_bytes(path)
        text = f"about {gigabytes(size)} on {mount_point(path)} ({gigabytes(free)} free)"
        parts.append(text)
        if free < size:
            lacking.append(text)
    if lacking:
        raise MissingRequirementError(
            f"not enough disk for the set-up: it needs {', '.join(lacking)}",
            "Make room there, then run again: what is already installed and built stays.",
        )
    return f"needs {', '.join(parts)}"


def existing(path: Path) -> Path:
    """``path``, or the nearest directory above it that exists."""
    while not path.exists():
        path = path.parent
    return path


def mount_point(path: Path) -> Path:
    """Where the file system of ``path`` is mounted."""
    path = path.resolve()
    while not os.path.ismount(path):
        path = path.parent
    return path


def free_bytes(path: Path) -> int:
    """Bytes that can still be written to the file system of ``path``, its reserve left out."""
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def gigabytes(size: int) -> str:
    """A size for people: "60 MB", "1.4 GB", "12 GB"."""
    if size < 1e8:
        return f"{size / 1e6:.0f} MB"
    value = size / 1e9
    return f"{value:.1f} GB" if value < 9.95 else f"{value:.0f} GB"


def packages_size(names: Iterable[str], sizes: Mapping[str, int] = PACKAGES) -> int:
    """Bytes that installing the packages ``names`` takes."""
    return sum(sizes.get(name, OTHER_PACKAGE) for name in names)
