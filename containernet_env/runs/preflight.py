"""Errors that a run would raise after planning, found before anything exists; a dry run raises them too."""

from __future__ import annotations

import os
from pathlib import Path

from containernet_env.base import programs
from containernet_env.base.errors import UsageError, allow_open_files
from containernet_env.config.plan import AUTO, Plan
from containernet_env.containernet import engines
from containernet_env.hosts import disk
from containernet_env.network.factory import choose, choose_switches
from containernet_env.results.csv_file import columns_of
from containernet_env.results.files import reason, remedy
from containernet_env.results.run_directory import check_place, least_bytes

# What hosts choose from: the same list in every network namespace (net/ipv4/sysctl_net_ipv4.c of Linux).
_CONGESTION_CONTROLS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
# Per run, and per host: connections, namespaces, processes and their pipes, files of /proc for each thread and of
# cgroups; several times the observed numbers.
_OPEN_FILES, _OPEN_FILES_PER_HOST = 256, 96
# Longer than any header.
_HEADER_BYTES = 1 << 16


def preflight(plan: Plan, out: Path | None = None) -> str:
    """Raise the errors of a run of ``plan`` with its rows in ``out``; returns a sentence about unchecked requirements.

    Nothing created remains: as root, netem and Open vSwitch are tried out if the plan requires one of them.
    Raises ``UsageError``, and ``MissingRequirementError`` if the machine lacks a requirement.
    """
    if out is not None:
        check_out(plan, out)
    if plan.config.external is not None:
        allow_open_files(_OPEN_FILES)
        return "Only a run shows whether the endpoints answer and let this user in; so does `check`."
    _check_congestion_control(plan.options.congestion_control)
    if plan.fsyncs_ns:
        disk.require()
    allow_open_files(_OPEN_FILES + _OPEN_FILES_PER_HOST * len(plan.hosts))
    open_questions = ["whether the Docker engine and its images are ready"]
    if os.geteuid() == 0:
        _check_network(plan)
    else:
        open_questions += _check_network_without_root(plan)
    return f"Only a run{'' if os.geteuid() == 0 else ' as root'} can determine: {'; '.join(open_questions)}."


def check_out(plan: Plan, out: Path) -> None:
    """Raise the errors of storing the rows of ``plan`` in ``out``."""
    check_place(out, least_bytes(len(plan.scenarios), len(plan.hosts), len(plan.cluster_ends)))
    try:
        with out.open("rb") as file:
            columns = columns_of(out, file.read(_HEADER_BYTES))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"cannot write results to {out}: {reason(error)}\n  {remedy(error)}") from error
    marks = {"Dilation": plan.options.dilation == AUTO or plan.dilation > 1, "LinkOffload": plan.options.offload}
    for mark, needed in marks.items():
        if needed and columns is not None and "Scenario" in columns and mark not in columns:
            raise UsageError(
                f"{out} has no column {mark}, so rows at another one would be merged with its own\n"
                "  Choose another file."
            )


def _check_congestion_control(algorithm: str) -> None:
    try:
        available = _CONGESTION_CONTROLS.read_text().split()
    except OSError:
        return  # the host's own namespace reports it
    if algorithm not in available:
        raise UsageError(
            f"--congestion-control: this kernel has no TCP congestion control {algorithm!r}; "
            f"it has: {', '.join(available)}"
        )


def _check_network(plan: Plan) -> None:
    if plan.options.engine == "containernet":
        engines.require(plan)
    elif plan.options.links == "netem":
        choose_switches(plan.options.switches, choose("netem"))


def _check_network_without_root(plan: Plan) -> list[str]:
    """The checks that need no trial; returns the open questions."""
    wants_ovs = plan.options.switches == "ovs"
    if wants_ovs and programs.which("ovs-vsctl") is None:
        choose_switches("ovs", "netem")
    if plan.options.engine == "containernet":
        engines.require_original()
        return ["whether this kernel has what the original Containernet needs"]
    questions = ["whether Open vSwitch can make a bridge"] if wants_ovs else []
    return [*questions, "whether this kernel has netem"] if plan.options.links == "netem" else questions
