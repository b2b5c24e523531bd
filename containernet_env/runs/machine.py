"""What this machine is, for the manifest of a run."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from containernet_env.hosts import engine


def cpu_model() -> str:
    """The processor's name as the kernel has it; the architecture where it has none."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def facts() -> dict[str, Any]:
    """Kernel, cores, CPU model, and the Docker engine, as JSON values. Raises what asking the engine raises."""
    info = engine.facts()
    return {
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "cpu_model": cpu_model(),
        "engine": info.get("ServerVersion"),
        "cgroup_driver": info.get("CgroupDriver"),
        "cgroup_version": info.get("CgroupVersion"),
        "storage_driver": info.get("Driver"),
    }
