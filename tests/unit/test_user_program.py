"""A program that the user brings: which files are taken, by what it is known, and that images have that one."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from containernet_env.base.errors import MissingRequirementError
from containernet_env.base.programs import UserProgram, read_program
from containernet_env.setup import images
from containernet_env.stores.kinds import DEFAULT
from containernet_env.stores.store import USER_PROGRAM, ImageParts


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """One that this machine can run."""
    path = tmp_path / "program"
    shutil.copy(os.path.realpath(sys.executable), path)
    return path


def test_a_program_is_known_by_its_contents(program: Path, tmp_path: Path) -> None:
    found = read_program(program)
    assert found == UserProgram(program, hashlib.sha256(program.read_bytes()).hexdigest())
    assert found.content() == program.read_bytes() and found.short == found.sha256[:12]
    moved = program.rename(tmp_path / "other")
    assert read_program(moved).sha256 == found.sha256
    moved.write_bytes(moved.read_bytes() + b"more")
    assert read_program(moved).sha256 != found.sha256
    for path, words in ((program, "No such file"), (moved, "has changed since it was read")):
        with pytest.raises(MissingRequirementError, match=words):
            UserProgram(path, found.sha256).content()


def changed(place: int, byte: int) -> Callable[[Path], object]:
    return lambda path: path.write_bytes((held := path.read_bytes())[:place] + bytes([byte]) + held[place + 1 :])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (Path.unlink, "cannot be read: No such file"),
        (lambda path: (path.unlink(), path.mkdir()), "is not a file"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "is not a file"),
        (lambda path: path.chmod(0o644), "is not executable"),
        (lambda path: path.write_text("#!/bin/sh\n"), "is not a program"),
        (lambda path: path.write_bytes(path.read_bytes()[:19]), "is not a program"),
        (changed(18, 8), "is not a program"),  # MIPS
        (changed(4, 1), "is not a program"),  # of 32 bits
        (changed(16, 1), "is not a program"),  # an object file
    ],
)
def test_what_this_machine_cannot_run_is_refused(program: Path, spoil: Any, words: str) -> None:
    spoil(program)
    with pytest.raises(ValueError, match=words):
        read_program(program)


def test_an_image_is_called_by_its_program(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, binary = DEFAULT.image.module, read_program(program)
    parts = ImageParts("own", (), module, folder="etcd_image", binary=binary)
    recipe = images.recipe(parts, "go1.26.8")
    assert recipe.name == f"own-{binary.short}" and recipe.binary == binary
    without = images.recipe(ImageParts("own", (), module, folder="etcd_image"), "go1.26.8")
    assert without.name == "own" and without.tag != recipe.tag

    found: dict[str, bytes] = {}

    def build(tag: str, build_context: Any, *more: Any) -> None:
        with build_context, tarfile.open(fileobj=build_context) as archive:
            found.update({entry.name: cast(Any, archive.extractfile(entry)).read() for entry in archive})

    monkeypatch.setattr(images, "build_image", build)
    images.build(recipe, threading.Event(), tmp_path / "log")
    assert found[USER_PROGRAM] == program.read_bytes() and "Dockerfile" in found
    program.write_bytes(b"another one")
    with pytest.raises(MissingRequirementError, match="has changed"):
        images.build(recipe, threading.Event(), tmp_path / "log")
