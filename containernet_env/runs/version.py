"""Which version and which commit this is."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from containernet_env.base import VERSION, assets
from containernet_env.hosts import clone

# The file of a wheel or a source archive with the output of `described` for the clone that they were made from.
COMMIT_FILE = "commit.txt"
_DIRTY = "-dirty"
_SHOWN_DIGITS = 12


def commit() -> str | None:
    """The commit (40 hex digits) that the program is at or was built from; None if that is not known."""
    described = _ours()
    return described.removesuffix(_DIRTY) if described else None


def dirty() -> bool | None:
    """Whether tracked files differed from ``commit()``; None if that is not known."""
    described = _ours()
    return described.endswith(_DIRTY) if described else None


def commit_text() -> str | None:
    """The commit as rows have it: 12 hex digits, with "-dirty" where tracked files differed; None if unknown."""
    name, mark = commit(), _DIRTY if dirty() else ""
    return f"{name[:_SHOWN_DIGITS]}{mark}" if name else None


def text() -> str:
    """Both as users read them: "0.1.0 (commit 0123456789ab-dirty)", "0.1.0 (unknown commit)"."""
    name = commit_text()
    return f"{VERSION} (commit {name})" if name else f"{VERSION} (unknown commit)"


@cache
def source_hash() -> str:
    """SHA-256 over the program's files: two with the same hash behave the same, whatever their commits are."""
    python = [
        path for path in assets.PACKAGE.rglob("*.py") if path.relative_to(assets.PACKAGE).parts[0] != assets.COPIES
    ]
    others = [
        path for folder in assets.FOLDERS if folder != "configs" for path in assets.travelling(assets.ROOT, folder)
    ]
    return assets.combine(assets.hash_files(assets.PACKAGE, python), assets.hash_files(assets.ROOT, others))


@cache
def _ours() -> str | None:
    return described(assets.ROOT)


def described(root: Path) -> str | None:
    """The commit of the clone at ``root``, by git, with "-dirty" if tracked files differ; otherwise by the file there.

    None if both are missing. A repository around ``root`` is none of ours.
    """
    if not (root / ".git").exists():
        try:
            return (root / COMMIT_FILE).read_text(encoding="ascii").strip() or None
        except (OSError, ValueError):
            return None
    return clone.described(root)
