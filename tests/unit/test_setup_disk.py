"""Disk: needs on one file system add up, and too little is told before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from containernet_env.base.errors import MissingRequirementError
from containernet_env.base.user_program import read_program
from containernet_env.model.config import StoreChoice
from containernet_env.setup import disk
from containernet_env.setup.disk import MB, Need
from containernet_env.setup.missing import Missing
from containernet_env.stores.kinds import KINDS


def test_needs_of_one_file_system_add_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(disk, "free_bytes", lambda path: 3000 * MB)
    text = disk.require([Need(tmp_path, 1000 * MB), Need(tmp_path / "not" / "yet" / "there", 500 * MB)])
    assert text == f"needs about 1.5 GB on {disk.mount_point(tmp_path)} (3.0 GB free)"


def test_too_little_is_refused_with_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(disk, "free_bytes", lambda path: 1499 * MB)
    with pytest.raises(MissingRequirementError, match=r"about 1\.5 GB on .* \(1\.5 GB free\)\n.*Make room"):
        disk.require([Need(tmp_path, 1000 * MB), Need(tmp_path, 500 * MB)])


@pytest.mark.parametrize(("kind", "besides"), [("http", 1 * MB), ("zetcd", 55 * MB), ("cetcd", 55 * MB)])
def test_an_image_with_a_program_of_the_users_takes_what_that_does(kind: str, besides: int) -> None:
    program = Path("/bin/true")
    store = KINDS[kind].make(StoreChoice(kind, binary=read_program(program)))
    (need,) = Missing(images=(store.image.label,), store=store).disk_needs()
    assert need.size == besides + program.stat().st_size
