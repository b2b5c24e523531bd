"""Arguments that name a file: one of the user's, or one that comes with the program, by its name."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from containernet_env.base import assets

if TYPE_CHECKING:
    from containernet_env.model.scenario import ScenarioSet


class ShippedFile(click.Path):
    """A JSON file, or the name of one in ``folder`` of those that travel with the program ("3node-3ms").

    A file that is there is always taken; a path with a folder in it never names one of ours.
    """

    def __init__(self, folder: str) -> None:
        super().__init__(dir_okay=False, path_type=Path)
        self._folder = assets.ROOT / folder

    def names(self) -> list[str]:
        """What can be named."""
        return sorted(path.stem for path in self._folder.glob("*.json"))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """A Path; whoever reads it says where it cannot be read."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        # os.path, unlike Path, says of a name that is too long that it is not there.
        if os.sep not in os.fsdecode(value) and not os.path.exists(path):
            name = path.name.removesuffix(".json")
            if name in self.names():
                return self._folder / f"{name}.json"
        return path

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The shell's own files; our names where no file begins like that (a shell shows one kind at a time)."""
        if os.sep not in incomplete and not any(Path().glob(f"{incomplete}*" if incomplete else "*.json")):
            found = [CompletionItem(name) for name in self.names() if name.startswith(incomplete)]
            if found:
                return found
        return super().shell_complete(ctx, param, incomplete)


def write_output(path: Path, content: bytes, inputs: Collection[Path]) -> int:
    """Write a file that a command was asked for, whole or not at all; its size in bytes.

    Raises ``UsageError`` where it cannot be written, and where it is one of the ``inputs``.
    """
    from containernet_env.base.errors import UsageError

    if any(path.exists() and os.path.samefile(path, known) for known in inputs):
        raise UsageError(f"{path} is what is read here: name another file to write")
    if path.exists() and not path.is_file():
        raise UsageError(f"cannot write {path}: it is no regular file")
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    return len(content)


CONFIG = ShippedFile("configs")
SCENARIOS = ShippedFile("configs/scenarios")


def complete_scenarios(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Types and names of the scenarios that the command line so far takes, for --only; nothing where it is wrong."""
    from containernet_env.base.errors import ContainernetEnvError

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
    config = CONFIG.convert(ctx.args[0], None, ctx) if ctx.args else ctx.params.get("config")
    own = load_config(config).scenarios if config is not None else None
    return load_scenarios(own or DEFAULT_SCENARIOS)
