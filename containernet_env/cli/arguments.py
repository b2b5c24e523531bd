"""Arguments and options that several commands have: files, a testbed's options, external clusters."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

import click
from click.shell_completion import CompletionItem
from rich.console import Console
from rich.text import Text

from containernet_env.base import assets
from containernet_env.base.errors import ContainernetEnvError, RunError, UsageError
from containernet_env.cli import Parsed
from containernet_env.config.plan import AUTO, OPTIONS, PlanOptions
from containernet_env.model.backends import ProfileKind
from containernet_env.model.config import DILATION_MAX
from containernet_env.network.rtt import Tolerance
from containernet_env.results.files import replacing

if TYPE_CHECKING:
    from containernet_env.config.plan import Plan
    from containernet_env.config.scenarios import ScenarioSet
    from containernet_env.model.config import Config

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
"""The pattern of the names of shipped files."""


class ShippedFile(click.Path):
    """A JSON file, or the name of one in ``folders`` of those that travel with the program ("3node-3ms").

    A file that is there is always taken; a path with a folder in it never names one of ours.
    """

    def __init__(self, *folders: str) -> None:
        super().__init__(dir_okay=False, path_type=Path)
        self._folders = [assets.ROOT / folder for folder in folders]

    def names(self) -> list[str]:
        return sorted(self._shipped())

    def _shipped(self) -> dict[str, Path]:
        return {path.stem: path for folder in self._folders for path in folder.glob("*.json")}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """A Path; its reader reports if it cannot be read. Fails for a mistyped name, with the probable name."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        # os.path, unlike Path, reports a name that is too long as missing.
        if os.path.exists(path):
            return path
        name, is_name = path.name.removesuffix(".json"), os.sep not in os.fsdecode(value)
        shipped = self._shipped() if is_name else {}
        if name in shipped:
            return shipped[name]
        from containernet_env.model.hints import near_file

        if is_name and (near := near_file(path, shipped)) is not None:
            self.fail(f"there is no {str(path)!r}; did you mean {near}?", param, ctx)
        if is_name and _NAME.fullmatch(str(path)):
            self.fail(f"there is no file {name!r}; allowed: a file, or one of {', '.join(self.names())}", param, ctx)
        return path

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The shell's own files; our names where no file begins like that (a shell shows one kind at a time)."""
        if os.sep not in incomplete and not any(Path().glob(f"{incomplete}*" if incomplete else "*.json")):
            found = [CompletionItem(name) for name in self.names() if name.startswith(incomplete)]
            if found:
                return found
        return super().shell_complete(ctx, param, incomplete)


def check_output(path: Path, own: re.Pattern[bytes], inputs: Collection[Path]) -> None:
    """Whether a command may write this file; called before it reads or writes any.

    An existing file is only replaced if its first 4 kB match ``own``, the command's own output, or it is empty. Raises
    ``UsageError``, also if it is one of the ``inputs``.
    """
    try:
        if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
            raise UsageError(f"cannot write {path}: its folder takes no file\n  Name another file to write.")
        if not os.path.lexists(path):
            return
        if any(known.exists() and path.exists() and path.samefile(known) for known in inputs):
            raise UsageError(f"{path} is an input of this command: name another file to write")
        if not path.is_file():
            raise UsageError(f"cannot write {path}: it is no regular file")
        with path.open("rb") as file:
            begins = file.read(4096)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    if begins and not own.match(begins):
        raise UsageError(f"{path} is not replaced: this command did not write it\n  Name another file to write.")


def write_output(path: Path, content: bytes) -> int:
    """Write a file that `check_output` allowed, whole or not at all; its size in bytes.

    Raises ``UsageError`` if it cannot be written.
    """
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    return len(content)


CONFIG = ShippedFile("configs", "configs/endpoints")
SCENARIOS = ShippedFile("configs/scenarios")
PRESETS = ShippedFile("configs/sweeps")
SWEEP = ShippedFile("configs", "configs/endpoints", "configs/sweeps")


def complete_scenarios(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Types and names of the scenarios that the command line so far takes, for --only; nothing where it is wrong."""
    try:
        scenarios = _scenarios_of(ctx).scenarios
    except (ContainernetEnvError, click.UsageError):
        return []
    types = [CompletionItem(name, help="all of this type") for name in dict.fromkeys(item.type for item in scenarios)]
    items = [*types, *(CompletionItem(scenario.name) for scenario in scenarios)]
    return [item for item in items if str(item.value).startswith(incomplete)]


def _scenarios_of(ctx: click.Context) -> ScenarioSet:
    from containernet_env.config.scenarios import DEFAULT_SCENARIOS, QUICK_SCENARIOS, load_scenarios
    from containernet_env.config.topologies import load_config

    if ctx.params.get("scenarios"):
        return load_scenarios(ctx.params["scenarios"])
    if ctx.params.get("quick"):
        return load_scenarios(QUICK_SCENARIOS)
    # While an option still lacks its value, click leaves the arguments before it where they are.
    config = CONFIG.convert(ctx.args[0], None, ctx) if ctx.args else ctx.params.get("config", ctx.params.get("sweep"))
    own = load_config(config).scenarios if config is not None else None
    return load_scenarios(own or DEFAULT_SCENARIOS)


_Command = TypeVar("_Command", bound=Callable[..., Any])

_REFUSED = {
    "rtt_tolerance": "its network is measured and no RTT is expected",
    "strict": "its rows are never certainly valid",
    "seed": "no links of ours draw losses or jitter; loads have seeds of their own in scenario files",
    "dask": "the cluster is measured from this machine",
    "figure": "its network is not known",
}

consent_option = click.option(
    "--yes-load-this-cluster",
    "consent",
    is_flag=True,
    help="Where CONFIG names the endpoints of an external cluster: it may be loaded, and written to.",
)
strict_option = click.option(
    "--strict", is_flag=True, help="Exit status 1 also where a scenario's figures are not certainly valid."
)

scenarios_option = click.option(
    "--scenarios", type=SCENARIOS, metavar="FILE", help="Scenario file (JSON), or a shipped one by its name."
)


def refuse_options(config: Config, taken: Collection[str] = ()) -> None:
    """Raise ``UsageError`` if an option was given that such a cluster cannot have; those ``taken`` mean more."""
    if config.external is None:
        return
    context = click.get_current_context()
    for name, reason in _REFUSED.items():
        given = name in context.params and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if given and name not in taken:
            option = next(item for item in context.command.params if item.name == name)
            raise click.UsageError(f"{option.opts[0]}: {config.path}: external cluster: {reason}")


def render_external_plan(plan: Plan, console: Console) -> None:
    """Print the plan of a run, as `run --dry-run` does; nothing is sent to the cluster."""
    from containernet_env.cli.render import render_scenarios, render_section, render_summary

    external = plan.config.external
    assert external is not None
    login = "" if external.user is None else f", as {external.user}"
    if external.token_file is not None:
        login = f", with the token in {external.token_file}"
    after = "they stay" if plan.config.keys_stay else "removed afterwards"
    lines = [*external.urls, f"keys under {external.prefix_of(plan.run_id)}, {after}{login}"]
    render_section(console, f"{plan.config.path}: external {plan.store.name}", *lines)
    render_scenarios(plan, console)
    render_summary(plan, console)


def render_endpoints(config: Config, console: Console) -> bool:
    """Query the cluster without loading or writing, and print its properties; returns whether it can be measured."""
    from containernet_env.base.units import describe_size
    from containernet_env.base.work import persistently
    from containernet_env.runs.external_access import AGAIN_S, cluster_of, external_of, inspect, refuse
    from containernet_env.stores.external import OwnKeys

    external = external_of(config)
    cluster = cluster_of(config, OwnKeys(external.prefix))
    refusal = keys = None
    try:
        look = inspect(cluster, config)
        if not look.problems:
            try:
                persistently(lambda: refuse(cluster.may_load()), AGAIN_S)
            except RunError as error:
                refusal = str(error)
            else:
                keys = persistently(cluster.keys, AGAIN_S)
    finally:
        cluster.close()
    count = len(look.members)
    several = "s" if count > 1 else ""
    console.print(f"{config.path}: {count} endpoint{several} of external {config.store.kind}", soft_wrap=True)
    for member in look.members:
        if member.problem is not None:
            state = member.problem
        else:
            size = None if member.data_bytes is None else f"{describe_size(member.data_bytes)} of data"
            version = None if member.version is None else f"version {member.version}"
            leads = "leads" if member.leads else None
            state = ", ".join(filter(None, (member.member_name, version, size, leads))) or "answers"
        console.print(Text(f"  {member.name}  {member.url}  {state}"), soft_wrap=True)
    if look.size is not None and look.size != count:
        console.print(f"  the cluster has {look.size} members: {count} of them are endpoints here", soft_wrap=True)
    if look.users is not None and not look.problems:
        console.print(f"  users: {f'on, logged in as {external.user}' if look.users else 'none'}", soft_wrap=True)
    if keys is not None:
        console.print(f"  {keys:,} keys under {external.prefix}; runs have prefixes of their own below it")
    for problem in filter(None, (look.problem, refusal)):
        console.print(Text(f"  {problem}"), soft_wrap=True)
    return not look.problems and refusal is None


def _kinds_of(text: str) -> tuple[str, ...]:
    kinds, known = tuple(dict.fromkeys(part.strip() for part in text.split(","))), get_args(ProfileKind)
    if wrong := [kind for kind in kinds if kind not in known]:
        raise ValueError(f"got {wrong[0]!r}, allowed: {', '.join(known)}, with commas between")
    return kinds


def _dilation_of(text: str) -> int:
    """A factor, or ``AUTO`` for "auto"."""
    if text == "auto":
        return AUTO
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= DILATION_MAX):
        raise ValueError(f"got {text!r}, allowed: 1 to {DILATION_MAX}, or auto")
    return int(text)


_tolerance_option = click.option(
    "--rtt-tolerance",
    type=Parsed("tolerance", Tolerance.parse),
    metavar="SPEC",
    help="How far a round trip may be off: '1ms', '15%', or '1ms,15%' (the larger counts). Default: by the kind of "
    "links.",
)


def run_options(name: str) -> Callable[[_Command], _Command]:
    """Add the options of runs that the command of this name has."""

    def add(command: _Command) -> _Command:
        command = _tolerance_option(command)
        for option in reversed([key for key, (_, option) in OPTIONS.items() if name in option.commands]):
            command = click.option(f"--{option.replace('_', '-')}", **_form(option))(command)
        return command

    return add


def _form(name: str) -> dict[str, Any]:
    kind, option = OPTIONS[name]
    form: dict[str, Any] = {"help": option.text, "metavar": option.metavar}
    if kind is bool:
        return form | {"is_flag": True}
    if name == "only":
        return form | {"multiple": True, "shell_complete": complete_scenarios}
    default = None if name == "seed" else PlanOptions.__dataclass_fields__[name].default
    form |= {"default": default, "show_default": bool(default)}
    if name == "dilation":
        return form | {"type": Parsed("dilation", _dilation_of)}
    if name == "profile":
        return form | {"type": Parsed("kinds", _kinds_of)}
    if get_origin(kind) is Literal:
        return form | {"type": click.Choice(get_args(kind))}
    if int in (kind, *get_args(kind)):
        return form | {"type": click.IntRange(option.least, option.most)}
    return form


def tls_options(command: _Command) -> _Command:
    """Add the certificates of a Dask cluster, with the names that `dask scheduler` has for them."""
    options = (
        ("--tls-ca-file", "The certificate of the authority that scheduler, workers and sweeps are of (PEM)."),
        ("--tls-cert", "The certificate that is shown to the others (PEM)."),
        ("--tls-key", "Its key (PEM)."),
    )
    for name, text in reversed(options):
        command = click.option(name, type=click.Path(path_type=Path), metavar="FILE", help=text)(command)
    return command
