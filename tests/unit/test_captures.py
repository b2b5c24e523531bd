"""Recordings of the shell share no file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base.errors import ContainernetEnvError
from containernet_env.containernet import live_links


def test_two_recordings_into_one_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both write over each other: `capture stop` told of 370 frames, and the file could be read up to the fifth."""
    monkeypatch.setattr(
        live_links, "Capture", lambda name, pid, interface, path: SimpleNamespace(name=name, path=path, running=True)
    )
    net: Any = SimpleNamespace(
        _captures=(),
        _node=lambda name: SimpleNamespace(name=name, pid=1, defaultIntf=lambda: SimpleNamespace(name="e")),
    )
    live_links.LiveLinks.start_capture(net, "etcd1", tmp_path / "a.pcap")
    with pytest.raises(ContainernetEnvError, match=r"a\.pcap"):
        live_links.LiveLinks.start_capture(net, "etcd2", tmp_path / "a.pcap")
