"""containernet-env: measure consistent stores on an emulated network, and prove the network it was measured on.

``from containernet_env import load_topology, load_scenarios, measure, rerun`` is the Python interface (docs/python.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from containernet_env.base import VERSION as __version__

if TYPE_CHECKING:
    from containernet_env.config.scenarios import load_scenarios
    from containernet_env.config.topologies import load_config as load_topology
    from containernet_env.runs.measure import measure
    from containernet_env.runs.rerun import rerun

__all__ = ["__version__", "load_scenarios", "load_topology", "measure", "rerun"]


def __getattr__(name: str) -> Any:
    # On first use: importing the package loads neither Docker's SDK nor Mininet nor pandas.
    if name == "load_topology":
        from containernet_env.config.topologies import load_config

        return load_config
    if name == "load_scenarios":
        from containernet_env.config.scenarios import load_scenarios

        return load_scenarios
    if name == "measure":
        from containernet_env.runs.measure import measure

        return measure
    if name == "rerun":
        from containernet_env.runs.rerun import rerun

        return rerun
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
