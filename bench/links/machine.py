"""The machine that is measured on, and whether vde2 and netem are available."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import threading
from pathlib import Path
from signal import SIGINT
from typing import Any

from containernet_env import __version__
from containernet_env.base import programs
from containernet_env.base.errors import RunError
from containernet_env.network.factory import kernel_has_netem
from containernet_env.setup import packages
from containernet_env.setup.commands import CommandError, Commands, Ending, Stopped

_VDE_PROGRAMS = ("vde_switch", "wirefilter")
_TEXT_TIMEOUT_S = 10.0


def facts() -> dict[str, Any]:
    """Facts about the machine as JSON values; nothing that identifies it, such as a host name."""
    release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = Path("/proc/meminfo").read_text().split()
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "memory_kib": int(memory[1]),
        "kernel": platform.release(),
        "system": release.get("PRETTY_NAME", platform.system()),
        "versions": {
            "containernet-env": __version__,
            "python": platform.python_version(),
            "iproute2": _output("ip", "-V"),
            "vde2": _output("dpkg-query", "--show", "--showformat", "${Version}", "vde2"),
        },
        "load_average": [os.getloadavg()[0]],
    }


def _output(*argv: str) -> str | None:
    if shutil.which(argv[0]) is None:
        return None
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_TEXT_TIMEOUT_S, check=False)
    return done.stdout.strip() or None


def why_no_wirefilter(install_s: float, log: Path) -> str | None:
    """``None`` where vde2 is installed, or could be installed within ``install_s`` seconds; else why not."""
    missing = [program for program in _VDE_PROGRAMS if programs.which(program) is None]
    if not missing:
        return None
    if shutil.which("apt-get") is None:
        return f"{missing[0]} is not installed, and there is no apt-get to install vde2"
    argv = ["apt-get", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=10", "install", "vde2"]
    reason: list[str] = []
    commands = Commands()

    def work() -> None:
        try:
            # apt-get defers an interrupt until dpkg is between two packages.
            ending = Ending(SIGINT, leader_only=True, grace_s=60.0)
            commands.run(argv, log, timeout_s=install_s, env=packages.environment(), ending=ending)
        except CommandError as error:
            said = f": {error.tail[-1].strip()}" if error.tail else ""
            reason.append(f"vde2 cannot be installed: {error}{said}")
        except Stopped:
            reason.append("stopped")

    # In a thread: when this one is interrupted, Commands ends the running command.
    thread = threading.Thread(target=work)
    thread.start()
    try:
        thread.join()
    except BaseException:
        commands.stop()
        raise
    return reason[0] if reason else None


def why_no_netem() -> str | None:
    """``None`` where a netem qdisc can be added; else why not."""
    try:
        return None if kernel_has_netem() else "this kernel has no netem (sch_netem)"
    except (RunError, OSError) as error:
        return f"cannot find out whether this kernel has netem: {error}"
