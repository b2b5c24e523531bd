"""The choice of network engine, Containernet on stock Mininet or the original, and its requirements."""

from __future__ import annotations

import importlib
from typing import Any

from containernet_env.base import programs
from containernet_env.base.errors import MissingRequirementError
from containernet_env.config.plan import Plan
from containernet_env.containernet.testbed_network import TestbedNetwork
from containernet_env.hosts import engine
from containernet_env.model.backends import SwitchKind, needs_netem
from containernet_env.network.emulator import granted
from containernet_env.network.factory import choose, choose_switches, kernel_has_netem
from containernet_env.results.run_files import LinkFacts

GUIDE = "docs/containernet.md#on-the-original-containernet"
"""The guide that has the commands to install the original."""

# Programs that the original runs, and the package of each on Debian and Ubuntu.
_PROGRAMS = {"mnexec": "mininet", "ifconfig": "net-tools", "ip": "iproute2"}
_BRIDGE_PROGRAMS = {"brctl": "bridge-utils"}


def create(plan: Plan) -> TestbedNetwork:
    """The network of the plan's engine, empty. Raises the errors of its constructor; see ``require``."""
    network, options = _class_of(plan), plan.options
    made: TestbedNetwork
    if options.engine == "containernet":
        made = network(plan.run_id, _switches(plan))
    else:
        made = network(
            links=options.links,
            switches=options.switches,
            run_id=plan.run_id,
            seed=options.seed,
            emulator_core=options.links_cpu,
            offload=options.offload,
            controller=None,
        )
    return made


def foreseen(plan: Plan) -> LinkFacts:
    """The means by which ``create`` would make hosts and links, as the manifest of a run names them; needs root.

    Raises ``MissingRequirementError`` if the machine does not support the plan.
    """
    network, options = _class_of(plan), plan.options
    original = options.engine == "containernet"
    links = network.links_kind if original else choose(options.links)
    return LinkFacts(
        network=network.backend_name,
        network_version=network.backend_version,
        network_commit=network.backend_commit,
        docker_sdk=engine.SDK_VERSION,
        links=links,
        switches=_switches(plan) if original else choose_switches(options.switches, links),
        link_emulator=granted(options.links_cpu) if links == "emulator" else None,
    )


def _class_of(plan: Plan) -> Any:
    # On first use: the original brings its own Mininet, and cannot be imported where it is missing.
    if plan.options.engine == "containernet":
        require(plan)
        from containernet_env.containernet.original import OriginalNetwork

        return OriginalNetwork
    from containernet_env.containernet.network import BuiltinNetwork

    return BuiltinNetwork


def _switches(plan: Plan) -> SwitchKind:
    return choose_switches(plan.options.switches, "netem")


def require(plan: Plan) -> None:
    """Raise ``MissingRequirementError`` where the machine lacks something that the plan's engine needs.

    Nothing is created; finding out whether the kernel has netem needs root.
    """
    if plan.options.engine != "containernet":
        return
    # Checked first: installing anything is pointless if the kernel lacks netem.
    delayed = any(needs_netem(direction) for link in plan.links for direction in (link.spec.a_to_b, link.spec.b_to_a))
    if (delayed or plan.options.links == "netem") and not kernel_has_netem():
        raise MissingRequirementError(
            "this kernel has no netem (sch_netem): the original Containernet has no other way to delay packets and "
            "to limit queues",
            f"Use another kernel, or leave --engine out: the project's own links need no netem. See {GUIDE}.",
        )
    require_original()
    needed = _PROGRAMS if _switches(plan) == "ovs" else _PROGRAMS | _BRIDGE_PROGRAMS
    lacking = {program: package for program, package in needed.items() if programs.which(program) is None}
    if lacking:
        raise MissingRequirementError(
            f"the original Containernet runs {', '.join(lacking)}, not found in PATH",
            f"Install {', '.join(lacking.values())} (Debian, Ubuntu); the commands are in {GUIDE}.",
        )


def require_original() -> None:
    """Raise ``MissingRequirementError`` where the original Containernet is not installed; needs no root."""
    if (problem := original_problem()) is not None:
        raise MissingRequirementError(
            f"the original Containernet is not installed for this Python: {problem}",
            f"The commands that install it are in {GUIDE}. sudo drops PYTHONPATH unless it is given as "
            "`sudo PYTHONPATH=...`. Or leave --engine out.",
        )


def original_problem() -> str | None:
    """Why `from mininet.net import Containernet` finds nothing; ``None`` where it does."""
    try:
        module = importlib.import_module("mininet.net")
    except ImportError as error:
        return str(error)
    if not hasattr(module, "Containernet"):
        return "the module mininet.net is Mininet's own, without Containernet"
    return None
