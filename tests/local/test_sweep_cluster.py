"""Schedulers on real sockets that others reach besides, and which commands import Dask."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from containernet_env.base.errors import UsageError
from containernet_env.sweep import cluster
from containernet_env.sweep.cluster import scheduler_at

ROOT = Path(__file__).resolve().parents[2]


def test_no_other_command_imports_dask() -> None:
    """It takes a second, and is an extra."""
    code = (
        "import importlib, sys\n"
        "from containernet_env import cli\n"
        "for name in cli.COMMANDS: importlib.import_module(f'containernet_env.cli.{name}')\n"
        "import containernet_env.sweep.runner, containernet_env.sweep.design\n"
        "sys.exit(' '.join(sorted({'dask', 'distributed', 'tornado'} & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_scheduler_that_others_reach_besides_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers on 127.0.0.1, and listens everywhere: the default of `dask scheduler`."""

    @asynccontextmanager
    async def everywhere(*_: object, **__: object) -> AsyncIterator[SimpleNamespace]:
        async def identity(n_workers: int) -> dict[str, str]:
            return {"address": "tcp://192.0.2.7:8786"}

        yield SimpleNamespace(identity=identity)

    monkeypatch.setattr(cluster, "rpc", everywhere)
    with pytest.raises(UsageError, match=r"also listens at tcp://192\.0\.2\.7:8786: .*as root\n  Start it with --host"):
        asyncio.run(cluster.identity_of(scheduler_at("127.0.0.1:8786", None)))


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_scheduler_on_every_interface_is_refused_whatever_it_says(
    family: socket.AddressFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a default route, or with a contact address, it calls itself 127.0.1.1 and listens everywhere."""

    @asynccontextmanager
    async def said(*_: object, **__: object) -> AsyncIterator[SimpleNamespace]:
        async def identity(n_workers: int) -> dict[str, str]:
            return {"address": f"tcp://127.0.1.1:{port}"}

        yield SimpleNamespace(identity=identity)

    monkeypatch.setattr(cluster, "rpc", said)
    everywhere, loopback = ("0.0.0.0", "127.0.0.1") if family == socket.AF_INET else ("::", "::1")
    try:
        socket.create_server((loopback, 0), family=family).close()
    except OSError as error:
        pytest.skip(f"this machine has no {loopback}: {error.strerror}")
    with socket.create_server((loopback, 0), family=family) as listening:
        port = listening.getsockname()[1]
        asyncio.run(cluster.identity_of(scheduler_at(f"localhost:{port}", None)))
    with socket.create_server((everywhere, 0), family=family) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(UsageError, match=rf"also listens at \[?{everywhere}\]?:{port}: .*as root\n"):
            asyncio.run(cluster.identity_of(scheduler_at(f"localhost:{port}", None)))
