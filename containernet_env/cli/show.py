"""`containernet-env show`: a run directory for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from containernet_env.cli.progress import WIDE, milliseconds_text, rate_text, seconds_text


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--events", is_flag=True, help="Show what happened when, too.")
def command(run: Path, events: bool) -> None:
    """Show RUN: what was measured on what, the network's proof, every scenario and its findings.

    RUN is a run directory (OUT.runs/RUN), or a results file, whose newest run is shown.
    """
    from containernet_env.results.run_directory import find_run, read_run

    found = read_run(find_run(run))
    # What was written down may hold brackets or colons that rich would take for markup.
    console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else WIDE)
    console.print(f"run {found.path.name}, in {found.path}", soft_wrap=True)
    for line in _header(found.manifest):
        console.print(f"  {line}", soft_wrap=True)
    for proof in (found.network or {}).get("proofs", ()):
        for line in _proof(proof):
            console.print(f"  {line}", soft_wrap=True)
    if found.scenarios:
        console.print()
        console.print(_table(found.scenarios))
        for finding in _findings(found.scenarios):
            console.print(finding, soft_wrap=True)
    if events and found.events:
        console.print()
        for line in _events(found.events):
            console.print(line, soft_wrap=True)
    console.print()
    if found.torn:
        console.print(f"{found.torn} lines were cut short: the run was killed while it wrote them", style="yellow")
    logs = ", ".join(path.name for path in found.logs) or "none"
    console.print(f"logs: {logs}", soft_wrap=True)


def _header(manifest: Mapping[str, Any] | None) -> list[str]:
    if manifest is None:
        return ["manifest.json is missing: the run ended before it was written"]
    plan, machine, links, store = (manifest[name] for name in ("plan", "machine", "links", "store"))
    members = [host for host in plan["hosts"] if host["role"] != "benchmark"]
    lines = [
        f"began {manifest['began']}, containernet-env {manifest['program'].get('version')}",
        f"{plan['config']['path']}: {len(members)} members and the client, config {manifest['config_hash']}",
    ]
    if store:
        lines.append(f"{store['kind']} {store['version']}, leader at the start {store['leader_at_start']}")
    if links:
        seed = f" (seed {plan['seed']})" if links["links"] == "emulator" and "seed" in plan else ""
        lines.append(f"links by {links['links']}{seed}, hosts by {links['network']} ({links['network_version']})")
    if machine:
        lines.append(f"on {machine['cores']} cores, {machine['cpu_model']}, Linux {machine['kernel']}")
    else:
        lines.append("nothing was brought up as a whole: see events.jsonl and logs")
    return lines


def _proof(proof: Mapping[str, Any]) -> list[str]:
    measured = [pair for pair in proof["pairs"] if pair["measured_ns"] is not None]
    words = "as configured" if proof["passed"] else "NOT as configured"
    line = f"network {words}: {len(measured)} of {len(proof['pairs'])} RTTs proved"
    if measured:
        worst = max(measured, key=lambda pair: abs(pair["measured_ns"] - pair["expected_ns"]))
        line += (
            f", worst {worst['a']}-{worst['b']}: {worst['expected_ns'] / 1e6:.3f} ms expected, "
            f"{worst['measured_ns'] / 1e6:.3f} ms measured"
        )
    return [line, *(f"  {text}" for text in (*proof["problems"], *proof["unproved"]))]


def _table(scenarios: list[Mapping[str, Any]] | Any) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("scenario", no_wrap=True)
    for heading in ("requests/s", "p50", "p99", "errors", "took"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("leader", no_wrap=True)
    for line in scenarios:
        load = line["load"] or {}
        percentiles = (load.get("response_time") or {}).get("percentiles_s", {})
        repetition = line["repetition"]
        table.add_row(
            line["scenario"] if repetition == 1 else f"{line['scenario']} #{repetition}",
            rate_text(load.get("requests_per_s") if load.get("ok") else None),
            milliseconds_text(percentiles.get("50")),
            milliseconds_text(percentiles.get("99")),
            str(load.get("failed", 0)),
            seconds_text(line["seconds"]),
            line["leader"] or "-",
            style="red" if line["error"] else "",
        )
    return table


def _findings(scenarios: Any) -> list[Text]:
    lines = []
    for line in scenarios:
        name = line["scenario"]
        if line["error"]:
            lines.append(Text(f"{name}: {line['error']}", style="red"))
        lines += [Text(f"{name}: {finding['text']}", style="yellow") for finding in line["findings"]]
    return [Text(""), *lines] if lines else []


def _events(events: Any) -> list[str]:
    start_ns = events[0]["at_ns"]
    return [f"{(event['at_ns'] - start_ns) / 1e9:9.3f} s  {event['kind']:<16} {event['text']}" for event in events]
