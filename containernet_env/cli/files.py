"""Arguments that name a file: one of the user's, or one that comes with the program, by its name."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from containernet_env.base import assets

if TYPE_CHECKING:
    from containernet_env.model.scenario import ScenarioSet


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
"""What the names of shipped files are like."""


class ShippedFile(click.Path):
    """A JSON file, or the name of one in ``folders`` of those that travel with the program ("3node-3ms").

    A file that is there is always taken; a path with a folder in it never names one of ours.
    """

    def __init__(self, *folders: str) -> None:
        super().__init__(dir_okay=False, path_type=Path)
        self._folders = [assets.ROOT / folder for folder in folders]

    def names(self) -> list[str]:
        """What can be named."""
        return sorted(self._shipped())

    def _shipped(self) -> dict[str, Path]:
        return {path.stem: path for folder in self._folders for path in folder.glob("*.json")}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """A Path; whoever reads it says where it cannot be read. Fails for a mistyped name, with what was meant."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        # os.path, unlike Path, says of a name that is too long that it is not there.
        if os.path.exists(path):
            return path
        name, is_name = path.name.removesuffix(".json"), os.sep not in os.fsdecode(value)
        shipped = self._shipped() if is_name else {}
        if name in shipped:
            return shipped[name]
        from containernet_env.config.hints import near_file

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

    What is there is only replaced where its first 4 kB match ``own``, what the command itself writes, or it is empty.
    Raises ``UsageError``, also where it is one of the ``inputs``.
    """
    from containernet_env.base.errors import UsageError

    try:
        if not os.path.lexists(path):
            return
        if any(known.exists() and path.exists() and path.samefile(known) for known in inputs):
            raise UsageError(f"{path} is what is read here: name another file to write")
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

    Raises ``UsageError`` where it cannot be written.
    """
    from containernet_env.base.errors import UsageError

    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    try:
        try:
            with partial.open("xb") as file:
                file.write(content)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    return len(content)


CONFIG = ShippedFile("configs", "configs/endpoints")
SCENARIOS = ShippedFile("configs/scenarios")
PRESETS = ShippedFile("configs/sweeps")
SWEEP = ShippedFile("configs", "configs/endpoints", "configs/sweeps")


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
