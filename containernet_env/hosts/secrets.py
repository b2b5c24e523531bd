"""Files with secrets, put into the memory of a host that runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from containernet_env.base.container_files import open_folder, reason
from containernet_env.base.errors import RunError


def put_secrets(root: Path, host: str, files: Mapping[str, bytes]) -> None:
    """Write ``files``, contents by path, into ``host``, whose files are below ``root``; only root can read them there.

    The host must have mounted memory where they go: they must never be on a disk. They end with the host. Raises
    RunError, which names no contents.
    """
    for path, content in files.items():
        parent, name = os.path.split(path)
        try:
            folder = open_folder(root, parent)
            try:
                if os.fstat(folder).st_dev == root.stat().st_dev:
                    raise RunError(f"{host}: {path} would not be in memory: nothing is mounted there")
                # Nothing that is there is followed or replaced.
                file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
            finally:
                os.close(folder)
            with open(file, "wb") as opened:
                opened.write(content)
        except OSError as error:
            raise RunError(f"{host}: {path} could not be written: {reason(error)}") from error
