"""What the command line says and refuses where a file names endpoints of a cluster that somebody else runs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from containernet_env.model.config import Config
    from containernet_env.plan.plan import Plan

_Command = TypeVar("_Command", bound=Callable[..., Any])

CONSENT = "--yes-load-this-cluster"
_REFUSED = {
    "rtt_tolerance": "its network is measured and nothing is expected of it",
    "strict": "nobody can say that its rows are certainly valid",
    "seed": "no links of ours draw losses or jitter; loads have seeds of their own in scenario files",
    "dask": "the cluster is measured from this machine",
}


def consent_option(command: _Command) -> _Command:
    """Add --yes-load-this-cluster."""
    text = "Where CONFIG names endpoints of a cluster that somebody else runs: it may be loaded, and written to."
    return click.option(CONSENT, "consent", is_flag=True, help=text)(command)


def refuse_options(config: Config, taken: Collection[str] = ()) -> None:
    """Raise ``UsageError`` where an option was given that such a cluster cannot have; those ``taken`` mean more."""
    if config.external is None:
        return
    context = click.get_current_context()
    for name, reason in _REFUSED.items():
        given = name in context.params and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if given and name not in taken:
            option = next(item for item in context.command.params if item.name == name)
            raise click.UsageError(f"{option.opts[0]}: {config.path}: somebody else runs this cluster: {reason}")


def render_external_plan(plan: Plan, console: Console) -> None:
    """Print what a run would do, as `run --dry-run` does; nothing is asked of the cluster."""
    from containernet_env.cli.render import render_lines, render_scenarios, render_summary

    external = plan.config.external
    assert external is not None
    login = "" if external.user is None else f", as {external.user}"
    if external.token_file is not None:
        login = f", with the token in {external.token_file}"
    after = "they stay" if plan.config.keys_stay else "removed afterwards"
    lines = [*external.urls, f"keys under {external.prefix_of(plan.run_id)}, {after}{login}"]
    render_lines(f"{plan.config.path}: {plan.store.name}, run by somebody else", lines, console)
    render_scenarios(plan, console)
    render_summary(plan, console)


def render_endpoints(config: Config, console: Console) -> bool:
    """Look at the cluster without loading or writing, and print what it is; whether it can be measured."""
    from containernet_env.base.units import describe_size
    from containernet_env.runs.external_access import LOOK_TIMEOUT_S, cluster_of, external_of
    from containernet_env.stores.external import OwnKeys

    external = external_of(config)
    cluster = cluster_of(config, OwnKeys(external.prefix))
    try:
        look = cluster.look(LOOK_TIMEOUT_S)
        refusal = cluster.may_load() if not look.problems else None
        keys = cluster.keys() if not look.problems and refusal is None else None
    finally:
        cluster.close()
    count = len(look.members)
    several = "s" if count > 1 else ""
    console.print(
        f"{config.path}: {count} endpoint{several} of {config.store.kind}, run by somebody else", soft_wrap=True
    )
    for member in look.members:
        if member.problem is not None:
            told = member.problem
        else:
            size = None if member.data_bytes is None else f"{describe_size(member.data_bytes)} of data"
            version = None if member.version is None else f"version {member.version}"
            leads = "leads" if member.leads else None
            told = ", ".join(filter(None, (member.member_name, version, size, leads))) or "answers"
        console.print(Text(f"  {member.name}  {member.url}  {told}"), soft_wrap=True)
    problems = [*([] if look.problem is None else [look.problem]), *([] if refusal is None else [refusal])]
    if look.size is not None and look.size != count:
        console.print(f"  the cluster has {look.size} members: {count} of them are endpoints here", soft_wrap=True)
    if look.users is not None and not look.problems:
        console.print(f"  users: {f'on, logged in as {external.user}' if look.users else 'none'}", soft_wrap=True)
    if keys is not None:
        console.print(f"  {keys:,} keys under {external.prefix}; runs have prefixes of their own below it")
    for problem in problems:
        console.print(Text(f"  {problem}"), soft_wrap=True)
    return not look.problems and refusal is None
