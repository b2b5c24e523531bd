"""Files and parts of files that are made from the program: kept as they should be, rewritten by --snapshot-update."""

from __future__ import annotations

from pathlib import Path

from syrupy.assertion import SnapshotAssertion

COMMAND = "run: pytest tests/unit --snapshot-update"


def check_file(path: Path, wanted: str, snapshot: SnapshotAssertion) -> None:
    """A file is what the program makes of it."""
    if snapshot.session.update_snapshots:
        path.write_text(wanted)
    assert path.read_text() == wanted, COMMAND


def check_block(page: Path, name: str, source: str, text: str, snapshot: SnapshotAssertion) -> None:
    """A page has the block ``name`` as ``source`` makes it."""
    begin, end = f"<!-- {name}: made from {source} -->\n", f"<!-- end of {name} -->"
    before, found, rest = page.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    assert found and found_end, f"{page} has no block {name}"
    check_file(page, f"{before}{begin}{text}{end}{after}", snapshot)
