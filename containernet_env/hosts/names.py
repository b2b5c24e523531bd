"""Name resolution in a host: /etc/hosts and the resolver's file, written where the engine keeps them.

The engine mounts them into the container, which can change what they hold but not what is at these paths.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from containernet_env.base.errors import RunError
from containernet_env.hosts.options import hostname

_BEGIN, _END = "# hosts of the emulated network", "# end of these hosts"


def hosts_text(text: str, addresses: Mapping[str, str]) -> str:
    """The text of /etc/hosts with these hosts (name -> address) in the place of those that it had; the rest stays."""
    before, found, rest = text.partition(f"{_BEGIN}\n")
    after = rest.partition(f"{_END}\n")[2] if found else ""
    if before and not before.endswith("\n"):
        before += "\n"
    # A long name is beside the shorter one that its host has.
    names = {name: dict.fromkeys((name, hostname(name))) for name in addresses}
    lines = "".join(f"{address}\t{' '.join(names[name])}\n" for name, address in addresses.items())
    return f"{before}{_BEGIN}\n{lines}{_END}\n{after}"


def write_hosts(path: str, addresses: Mapping[str, str]) -> None:
    """Have the hosts file at ``path`` hold these hosts, see ``hosts_text``. Raises ``RunError``."""
    _rewrite(path, lambda text: hosts_text(text, addresses))


def write_resolver(path: str, servers: Iterable[str]) -> None:
    """Have the resolver's file at ``path`` name these servers alone; with none a look-up fails at once, as nothing
    listens at the default, 127.0.0.1. Raises ``RunError``."""
    _rewrite(path, lambda _: "".join(f"nameserver {server}\n" for server in servers))


def _rewrite(path: str, change: Callable[[str], str]) -> None:
    # In place: the container has this file mounted, not its name.
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "r+", encoding="utf-8", errors="surrogateescape", newline="") as file:
            held = file.read()
            wanted = change(held)
            if wanted != held:
                file.seek(0)
                file.write(wanted)
                file.truncate()
    except OSError as error:
        raise RunError(f"{path}, which the engine keeps for the container, cannot be written: {error}") from error
