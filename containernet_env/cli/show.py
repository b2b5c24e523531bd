"""`containernet-env show`: a run directory for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from containernet_env.cli.output import plain
from containernet_env.cli.progress import WIDE, milliseconds_text, name_text, rate_text, seconds_text

if TYPE_CHECKING:
    from containernet_env.results.checksums import Checked

_NAMED_FILES = 10


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--events", is_flag=True, help="Show what happened when, too.")
def command(run: Path, events: bool) -> None:
    """Show RUN: what was measured on what, the network's proof, every scenario and its findings, and whether its files
    are as the run left them.

    RUN is a run directory (OUT.runs/RUN), or a results file, whose newest run is shown.
    """
    from containernet_env.results.run_directory import find_run, read_run

    found = read_run(find_run(run))
    # What was written down may hold brackets or colons that rich would take for markup.
    console = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else WIDE)
    console.print(plain(f"run {found.path.name}, in {found.path}"), soft_wrap=True)
    for line in _header(found.manifest):
        console.print(plain(f"  {line}"), soft_wrap=True)
    for proof in (found.network or {}).get("proofs", ()):
        for line in _proof(proof):
            console.print(plain(f"  {line}"), soft_wrap=True)
    if found.scenarios:
        console.print()
        console.print(_table(found.scenarios))
        for finding in _findings(found.scenarios):
            console.print(finding, soft_wrap=True)
    if events and found.events:
        console.print()
        for line in _events(found.events):
            console.print(plain(line), soft_wrap=True)
    console.print()
    if found.torn:
        console.print(f"{found.torn} lines were cut short: the run was killed while it wrote them", style="yellow")
    logs = ", ".join(path.name for path in found.logs) or "none"
    console.print(f"logs: {logs}", soft_wrap=True)
    console.print(_files(found.checked), soft_wrap=True)


def _header(manifest: Mapping[str, Any] | None) -> list[str]:
    if manifest is None:
        return ["manifest.json is missing: the run ended before it was written"]
    plan = manifest["plan"]
    links, store, repeats = (manifest.get(name) for name in ("links", "store", "repeats"))
    members = [host for host in plan["hosts"] if host["role"] != "benchmark"]
    lines = [
        f"began {manifest['began']}, containernet-env {_program(manifest['program'])}",
        f"{plan['config']['path']}: {len(members)} members and the client, config {manifest['config_hash']}",
    ]
    if repeats:
        differing = ", ".join(item["name"] for item in repeats["differences"] if item["matters"])
        lines.append(f"repeats {repeats['run_id']}, {f'with other {differing}' if differing else 'on equal terms'}")
    if store:
        led = f", leader at the start {leader}" if (leader := store["leader_at_start"]) else ""
        lines.append(f"{store['kind']} {store['version']}{led}")
    if len(clusters := manifest.get("clusters", ())) > 1:
        led = ", ".join(str(cluster["leader_at_start"]) for cluster in clusters)
        lines.append(f"{len(clusters)} clusters, one after the other, led at their starts by {led}")
    if links:
        seed = f" (seed {plan['seed']})" if links["links"] == "emulator" and "seed" in plan else ""
        lines.append(f"links by {links['links']}{seed}, hosts by {links['network']} ({links['network_version']})")
    lines += _machine(manifest["machine"])
    if not links:
        lines.append("nothing was brought up as a whole: see events.jsonl and logs")
    return lines


_MOMENTS = {"before": "before the first scenario", "after": "after the last", "change": "after links were changed"}


def _proof(proof: Mapping[str, Any]) -> list[str]:
    checks = proof.get("checks", [])
    measured = [pair for pair in proof["pairs"] if pair["measured_ns"] is not None]
    words = "as configured" if proof["passed"] else "NOT as configured"
    line = f"network {words} {_MOMENTS[proof.get('moment', 'before')]}: "
    if checks:
        line += f"{sum(check['verdict'] == 'proved' for check in checks)} of {len(checks)} properties proved"
    else:
        line += f"{len(measured)} of {len(proof['pairs'])} RTTs proved"
    if measured:
        worst = max(measured, key=lambda pair: abs(pair["measured_ns"] - pair["expected_ns"]))
        line += (
            f", worst RTT {worst['a']}-{worst['b']}: {worst['expected_ns'] / 1e6:.3f} ms expected, "
            f"{worst['measured_ns'] / 1e6:.3f} ms measured"
        )
    problems = [f"  wrong: {text}" for text in proof["problems"]]
    return [line, *problems, *(f"  not proved: {text}" for text in proof["unproved"])]


def _table(scenarios: list[Mapping[str, Any]] | Any) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("scenario", no_wrap=True)
    for heading in ("requests/s", "p50", "p99", "errors", "valid", "took"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("leader", no_wrap=True)
    for line in scenarios:
        load = line["load"] or {}
        percentiles = (load.get("response_time") or {}).get("percentiles_s", {})
        table.add_row(
            plain(name_text(line["scenario"], line["repetition"], line.get("attempt", 1))),
            rate_text(load.get("requests_per_s") if load.get("ok") else None),
            milliseconds_text(percentiles.get("50")),
            milliseconds_text(percentiles.get("99")),
            str(load.get("failed", 0)),
            line.get("valid") or "-",
            seconds_text(line["seconds"]),
            plain(line["leader"] or "-"),
            style="red" if line["error"] else "",
        )
    return table


def _findings(scenarios: Any) -> list[Text]:
    lines = []
    for line in scenarios:
        name = plain(line["scenario"])
        if line["error"]:
            lines.append(Text(f"{name}: {plain(line['error'])}", style="red"))
        texts = [*(finding["text"] for finding in line["findings"]), line.get("advice")]
        lines += [Text(f"{name}: {plain(text)}", style="yellow") for text in filter(None, texts)]
    return [Text(""), *lines] if lines else []


def _events(events: Any) -> list[str]:
    start_ns = events[0]["at_ns"]
    return [f"{(event['at_ns'] - start_ns) / 1e9:9.3f} s  {event['kind']:<16} {event['text']}" for event in events]


def _program(program: Mapping[str, Any]) -> str:
    commit = program["commit"]
    changed = ", with changes" if program["dirty"] else ""
    return f"{program['version']} ({f'commit {commit[:12]}' if commit else 'unknown commit'}{changed})"


def _machine(machine: Mapping[str, Any]) -> list[str]:
    below = machine["virtualisation"]
    kind = "a virtual machine" if below["guest"] or below["hypervisor"] else "no hypervisor told"
    name = " ".join(filter(None, (below["vendor"], below["product"])))
    kind += f" in a container ({below['container']})" if below["container"] else ""
    return [
        f"on {machine['cores']} cores, {machine['cpu_model']}, {machine['memory_bytes'] / (1 << 30):.1f} GiB, "
        f"{kind}{f' ({name})' if name else ''}",
        f"Linux {machine['kernel']}, clock {machine['clock_source']}, Docker engine {machine['engine']} on "
        f"{machine['storage_driver']}, cgroup v{machine['cgroup_version']}",
    ]


def _files(checked: Checked | None) -> Text:
    if checked is None:
        return Text("files: no checksums: the run goes on, or was killed", style="yellow")
    added = [item.name for item in checked.changed if item.how == "added"]
    others = [f"{item.name} ({item.how})" for item in checked.changed if item.how != "added"]
    beside = f"; added since: {_some(added)}" if added else ""
    if others:
        return Text(f"files: NOT as the run left them: {_some(others)}{beside}", style="red")
    return Text(f"files: {checked.files}, all as the run left them{beside}")


def _some(names: list[str]) -> str:
    more = [f"{len(names) - _NAMED_FILES} more"] if len(names) > _NAMED_FILES else []
    return ", ".join([*names[:_NAMED_FILES], *more])
