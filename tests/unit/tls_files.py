"""Certificates in files, of a new authority."""

from __future__ import annotations

from pathlib import Path

from containernet_env.runs.sweep.worker import TlsFiles
from containernet_env.stores.etcd.certificates import Authority


def certificates(folder: Path, names: tuple[str, ...]) -> dict[str, TlsFiles]:
    """One for each of these names."""
    folder.mkdir()
    authority = Authority()
    found = {}
    (folder / "ca.pem").write_bytes(authority.certificate)
    for name in names:
        issued = authority.issue(name, ["127.0.0.1"])
        (folder / f"{name}.pem").write_bytes(issued.certificate)
        (folder / f"{name}.key").write_bytes(issued.key)
        (folder / f"{name}.key").chmod(0o600)
        found[name] = TlsFiles(folder / "ca.pem", folder / f"{name}.pem", folder / f"{name}.key")
    return found
