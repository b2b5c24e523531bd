"""Open vSwitch: its command line, whether it can switch here, and the bridges in its database that are ours.

The database outlives every process, and reboots: a bridge of ours carries its owner (see ``owner``), so that one whose
run was killed can be told from one that is in use, and from those of others.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from containernet_env.base import system_path
from containernet_env.base.errors import RunError
from containernet_env.hosts import owner
from containernet_env.network.interface import delete_interface

_TIMEOUT_S = 10
# A run's id and what tells its bridges apart; cnenv and more of those that are only tried out.
_NAME = re.compile(r"([0-9a-f]{6}|cnenv).+")
_NOT_RUNNING = "database connection failed"
MACHINE = 1  # a process in the machine's own network namespace, where Open vSwitch's interfaces have to be


@dataclass(frozen=True)
class OurBridge:
    """A bridge of ours and the process that made it (a value of ``owner.current``)."""

    name: str
    owner: str


def vsctl(*words: str) -> str:
    """Run ``ovs-vsctl``, which waits until ovs-vswitchd has carried out a change; its output.

    Raises ``RunError`` when it fails, and when the change is in the database but could not be made real.
    """
    try:
        done = subprocess.run(
            [system_path.require("ovs-vsctl"), f"--timeout={_TIMEOUT_S}", *words],
            capture_output=True,
            text=True,
            timeout=2 * _TIMEOUT_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise RunError(
            f"ovs-vsctl {' '.join(words)} failed with status {error.returncode}: {error.stderr.strip()}"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"ovs-vsctl {' '.join(words)}: {error}") from error
    if "Error detected while setting up" in done.stderr:
        # Its exit status is 0 all the same.
        raise RunError(f"ovs-vsctl {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def problem() -> str | None:
    """Why Open vSwitch cannot be used here, with what to do about it; ``None`` where it can.

    A bridge by the kernel's datapath is made for a moment: only that is a proof.
    """
    if system_path.find("ovs-vsctl") is None:
        return "ovs-vsctl is not installed (Debian, Ubuntu: openvswitch-switch)"
    trial = f"cnenv{os.getpid()}"
    try:
        try:
            add_bridge(trial)
        finally:
            vsctl("--if-exists", "del-br", trial)
    except RunError as error:
        if _NOT_RUNNING in str(error):
            return "Open vSwitch is installed but does not run (service openvswitch-switch start)"
        return f"Open vSwitch cannot make a bridge in this kernel (modprobe openvswitch): {error}"
    return None


def add_bridge(name: str) -> None:
    """A bridge of this process's by the kernel's datapath that learns addresses by itself."""
    vsctl(
        *("--may-exist", "add-br", name, "--", "set-fail-mode", name, "standalone", "--", "set", "Bridge", name),
        *("datapath_type=system", f'external_ids:{owner.LABEL}="{owner.current()}"'),
    )


def add_port(bridge: str, interface: str) -> None:
    """Make an interface of the machine a port of a bridge."""
    vsctl("--may-exist", "add-port", bridge, interface)


def remove_bridge(name: str) -> None:
    """Remove a bridge of ours with the interfaces that are its ports. Idempotent."""
    ports = vsctl("list-ports", name).split() if name in (bridge.name for bridge in list_ours()) else []
    vsctl("--if-exists", "del-br", name)
    for port in ports:
        # It may have gone with the namespace of its other end, or with another bridge's port. Somebody may have added
        # an interface of theirs; ours begin with the run's id, as the bridge does.
        if port.startswith(name[:6]):
            delete_interface(MACHINE, port)


def list_ours() -> list[OurBridge]:
    """The bridges that carry our mark; none where Open vSwitch is not installed or does not run."""
    if system_path.find("ovs-vsctl") is None:
        return []
    try:
        table = vsctl("--format=json", "--columns=name,external_ids", "list", "Bridge")
    except RunError as error:
        if _NOT_RUNNING in str(error):
            return []
        raise
    return list(bridges_of(table))


def bridges_of(table: str) -> Iterator[OurBridge]:
    """Our bridges in a table of ``ovs-vsctl --format=json`` (RFC 7047, section 5.1): name, external_ids.

    By mark and by name: one that somebody made with a copy of our mark is theirs.
    """
    for name, (_, pairs) in json.loads(table)["data"] if table.strip() else ():
        owned = str(dict(pairs).get(owner.LABEL, ""))
        if owner.is_owner(owned) and _NAME.fullmatch(name):
            yield OurBridge(name, owned)
