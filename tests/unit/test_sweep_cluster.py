"""Which schedulers a sweep and its workers go to: who reaches one has workers do anything as root."""

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
from click.testing import CliRunner

from containernet_env.base.errors import MissingRequirementError, UsageError
from containernet_env.cli import sweep as sweep_command
from containernet_env.cli import worker as worker_command
from containernet_env.runs.measure import require_root
from containernet_env.setup import extras
from containernet_env.sweep import cluster
from containernet_env.sweep.cluster import TlsFiles, scheduler_at, tls_files
from tests.unit.run_fakes import CONFIG
from tests.unit.tls_files import certificates

ROOT = Path(__file__).resolve().parents[2]
SWEEP = ("--set", "clients=5", "--quick", "--only", "write-leader-50x*-4B*")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8786", "tcp://127.0.0.1:8786"),
        ("tcp://127.0.0.1", "tcp://127.0.0.1:8786"),
        ("127.8.9.10:1", "tcp://127.8.9.10:1"),
        ("[::1]:4711", "tcp://[::1]:4711"),
        ("localhost:99", "tcp://localhost:99"),
    ],
)
def test_the_loopback_interface_needs_no_certificate(text: str, address: str) -> None:
    assert scheduler_at(text, None).address == address


def test_a_worker_listens_where_its_scheduler_is() -> None:
    """On [::1] a worker ended with a traceback: Dask wants brackets."""
    for text, host in (("[::1]:1", "[::1]"), ("tcp://127.0.0.1", "127.0.0.1"), ("localhost:1", "localhost")):
        assert scheduler_at(text, None).host == host


@pytest.mark.parametrize("text", ["10.0.0.1:8786", "tcp://192.0.2.7:8786", "tcp://0.0.0.0:8786", "[2001:db8::1]:8786"])
def test_another_address_without_tls_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"is refused: whoever reaches it has workers do anything as root.*\n.*tls://"):
        scheduler_at(text, None)


@pytest.mark.parametrize("text", ["", "tcp://", ":8786", "ucx://127.0.0.1:1", "127.0.0.1:99999", "127.0.0.1:8786/x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="as the address of a scheduler; allowed: HOST:PORT"):
        scheduler_at(text, None)


def test_a_host_that_nobody_knows_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise OSError(-2, "Name or service not known")

    monkeypatch.setattr(cluster.socket, "getaddrinfo", unknown)
    with pytest.raises(UsageError, match=r"nobody knows the host 'nowhere.invalid'"):
        scheduler_at("nowhere.invalid:8786", None)


def test_tls_needs_three_files_that_can_be_read_and_belong_together(tmp_path: Path) -> None:
    made = certificates(tmp_path / "of-one", ("a", "b"))
    assert scheduler_at("10.0.0.1:8786", made["a"]).address == "tls://10.0.0.1:8786"
    with pytest.raises(UsageError, match=r"tls://10.0.0.1:8786 needs --tls-ca-file, --tls-cert and --tls-key"):
        scheduler_at("tls://10.0.0.1", None)
    with pytest.raises(UsageError, match=r"tcp://127.0.0.1:1 is not encrypted, and certificates are given"):
        scheduler_at("tcp://127.0.0.1:1", made["a"])
    with pytest.raises(UsageError, match="belong together: give all three"):
        tls_files(made["a"].ca_file, None, made["a"].key)
    missing = TlsFiles(made["a"].ca_file, tmp_path / "none.pem", made["a"].key)
    with pytest.raises(UsageError, match=r"--tls-cert: .*none.pem cannot be read: No such file"):
        scheduler_at("tls://10.0.0.1", missing)
    mixed = TlsFiles(made["a"].ca_file, made["a"].cert, made["b"].key)
    with pytest.raises(UsageError, match="are no certificate of an authority, an own one and its key"):
        scheduler_at("tls://10.0.0.1", mixed)


def test_both_commands_refuse_before_anything_is_connected_or_created(tmp_path: Path) -> None:
    run = CliRunner().invoke
    out = tmp_path / "out.csv"
    for command, words in ((worker_command.command, ()), (sweep_command.command, (str(CONFIG), str(out), *SWEEP))):
        address = ["10.0.0.1:8786"] if not words else ["--dask", "10.0.0.1:8786"]
        refused = run(command, [*words, *address], standalone_mode=False).exception
        assert isinstance(refused, UsageError) and "anything as root" in str(refused)
    alone = run(sweep_command.command, [str(CONFIG), str(out), *SWEEP, "--tls-key", "x"], standalone_mode=False)
    assert "go with --dask" in str(alone.exception)
    assert list(tmp_path.iterdir()) == []


def test_dask_is_made_sure_of_before_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def require(module: str, note: object) -> None:
        raise MissingRequirementError(f"this needs {module}", "Install it.")

    monkeypatch.setattr(extras, "require", require)
    words = [str(CONFIG), str(tmp_path / "out.csv"), *SWEEP, "--dask", "127.0.0.1:1"]
    for command, given in ((worker_command.command, ["127.0.0.1:1"]), (sweep_command.command, words)):
        refused = CliRunner().invoke(command, given, standalone_mode=False).exception
        assert isinstance(refused, MissingRequirementError) and "this needs distributed" in str(refused)


def test_a_worker_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(MissingRequirementError, match="need root"):
        require_root()
    refused = CliRunner().invoke(worker_command.command, ["127.0.0.1:1"], standalone_mode=False).exception
    assert isinstance(refused, MissingRequirementError) and "need root" in str(refused)


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
