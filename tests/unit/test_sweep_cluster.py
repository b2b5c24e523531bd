"""Which schedulers a sweep and its workers go to: who reaches one has workers do anything as root."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from containernet_env.base.errors import MissingRequirementError, UsageError
from containernet_env.cli import sweep as sweep_command
from containernet_env.cli import worker as worker_command
from containernet_env.runs.measure import require_root
from containernet_env.setup import extras
from containernet_env.sweep import cluster
from containernet_env.sweep.cluster import TlsFiles, scheduler_at, tls_files
from tests.unit.run_fakes import CONFIG, raising
from tests.unit.tls_files import certificates

SWEEP = ("--set", "clients=5", "--quick", "--only", "write-leader-50x*-4B*")


ROOT = r"is refused: whoever reaches it has workers do anything as root.*\n.*tls://"
NONE = "as the address of a scheduler; allowed: HOST:PORT"


@pytest.mark.parametrize(
    ("text", "address", "host"),
    [
        ("127.0.0.1:8786", "tcp://127.0.0.1:8786", "127.0.0.1"),
        ("tcp://127.0.0.1", "tcp://127.0.0.1:8786", "127.0.0.1"),
        ("127.8.9.10:1", "tcp://127.8.9.10:1", "127.8.9.10"),
        ("[::1]:4711", "tcp://[::1]:4711", "[::1]"),  # Dask wants brackets: a worker ended with a traceback
        ("localhost:99", "tcp://localhost:99", "localhost"),
    ],
)
def test_the_loopback_interface_needs_no_certificate_and_workers_listen_there(
    text: str, address: str, host: str
) -> None:
    found = scheduler_at(text, None)
    assert (found.address, found.host) == (address, host)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, ROOT) for text in ("10.0.0.1:8786", "tcp://192.0.2.7:8786", "tcp://0.0.0.0:8786", "[2001:db8::1]:1")),
        *((text, NONE) for text in ("", "tcp://", ":8786", "ucx://127.0.0.1:1", "127.0.0.1:99999", "127.0.0.1:1/x")),
        ("nowhere.invalid:8786", r"nobody knows the host 'nowhere.invalid'"),
    ],
)
def test_another_address_is_refused(text: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "nowhere" in text:
        unknown = raising(OSError(-2, "Name or service not known"))
        monkeypatch.setattr(cluster.socket, "getaddrinfo", unknown)
    with pytest.raises(UsageError, match=words):
        scheduler_at(text, None)


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


TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2252 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 00000000:2253 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 0 0 10 0
   2: 070200C0:2253 00000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 3 1 0 100 0 0 10 0
"""
TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue
   0: 00000000000000000000000000000000:2253 00000000000000000000000000000000:0000 0A 00000000:00000000
   1: 00000000000000000000000001000000:2253 00000000000000000000000000000000:0000 0A 00000000:00000000
"""


def test_who_listens_is_read_from_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of addresses in words of a little-endian machine; a connection (01) does not listen."""
    monkeypatch.setattr(cluster, "_NET", tmp_path)
    monkeypatch.setattr(cluster.sys, "byteorder", "little")
    (tmp_path / "tcp").write_text(TCP)
    assert cluster.listening_elsewhere({8786}) == []
    assert cluster.listening_elsewhere({8786, 8787}) == ["0.0.0.0:8787"]
    (tmp_path / "tcp6").write_text(TCP6)
    assert cluster.listening_elsewhere({8787}) == ["0.0.0.0:8787", "[::]:8787"]
