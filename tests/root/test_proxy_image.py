"""What starts etcd and a proxy in one member, with programs of the test's in their places."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from containernet_env.hosts import netns
from containernet_env.hosts.netns import ThrowawayNamespace
from containernet_env.stores.proxied import ProxiedMember
from tests.root.network import needs_root

pytestmark = [pytest.mark.root, needs_root]

SCRIPT = Path(__file__).resolve().parents[2] / "proxy_image" / "start-etcd-and-proxy"
PROGRAMS = {
    # A process 1 ignores signals that it does not handle: the real etcd handles them before it listens.
    "user-program": "read _ <handled; echo serving; echo 'panic: a value of 13' >&2; exit 2",
    "etcd": "trap 'exit 129' HUP\necho >handled\nsleep 600 &\nwait",
}


def test_the_proxys_last_words_come_before_the_line_that_says_it_ended(tmp_path: Path) -> None:
    """They went to two streams, which the engine reads in any order: a row named no reason where it read them late."""
    for name, commands in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{commands}\n")
        (tmp_path / name).chmod(0o755)
    os.mkfifo(tmp_path / "handled")
    with ThrowawayNamespace() as namespace, netns.socket_in(namespace.pid, socket.AF_INET) as listener:
        listener.bind(("0.0.0.0", 2379))
        listener.listen()
        # A process namespace of its own, whose process 1 is the member's.
        words = ["nsenter", f"--net=/proc/{namespace.pid}/ns/net", "unshare", "--pid", "--fork", "--kill-child"]
        done = subprocess.run(
            [*words, str(SCRIPT), "first", "second"],
            cwd=tmp_path,
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stdout) == (129, "")
    assert ProxiedMember.last_words(done.stderr, killed=False) == "the proxy ended: exit status 2: panic: a value of 13"
