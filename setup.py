"""What pyproject.toml cannot say: a wheel carries configs, image contexts, Go sources and its commit."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from containernet_env.base import assets  # noqa: E402 (a build has this folder on no path of its own)
from containernet_env.runs import version  # noqa: E402


def write_commit(folder: Path) -> None:
    """Put the commit into ``folder``; nothing where it is not known."""
    described = version.described(ROOT)
    if described is not None:
        (folder / version.COMMIT_FILE).write_text(f"{described}\n", encoding="ascii")


class BuildPy(build_py):  # type: ignore[misc]
    """The package with copies of what a clone has beside it; an editable installation needs none."""

    def run(self) -> None:
        """Build afresh: what an earlier build left in this clone must not travel."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if self.editable_mode:
            return
        copies = Path(self.build_lib) / assets.PACKAGE.name / assets.COPIES
        for folder in assets.FOLDERS:
            for path in assets.travelling(ROOT, folder):
                copy = copies / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, copy)
        write_commit(copies)


class SourceArchive(sdist):  # type: ignore[misc]
    """The files that MANIFEST.in names, and the commit."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Fill the archive's folder."""
        super().make_release_tree(base_dir, files)
        write_commit(Path(base_dir))


setup(cmdclass={"build_py": BuildPy, "sdist": SourceArchive})
