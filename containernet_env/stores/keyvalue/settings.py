"""How a member of a service is started, from a program of the user's."""

from __future__ import annotations

import re
from collections.abc import Mapping

from containernet_env.model.config import Config, HttpService, Node

DATA_DIR = "/var/lib/http"
_BRACES = {"{{": "{", "}}": "}"}
_PLACE = re.compile(r"\{\{|\}\}|\{[^{}]*\}|[{}]")
PLACES: Mapping[str, str] = {
    "{index}": "its number in the topology, from 0",
    "{name}": "its name",
    "{ip}": "its address",
    "{port}": "the port",
    "{peers}": "IP:PORT of all members, itself too, separated by commas",
    "{data}": "the directory for its data",
}
"""What stands in the arguments for what a member has."""


def filled_in(argument: str, places: Mapping[str, str]) -> str:
    """The argument with all placeholders filled in, and single braces for double ones.

    Raises ``KeyError`` for other braces, with what is in them.
    """
    meanings = {**places, **_BRACES}
    return _PLACE.sub(lambda found: meanings[found[0]], argument)


def arguments(node: Node, config: Config, service: HttpService) -> tuple[str, ...]:
    """The arguments of one member's program."""
    names = [member.name for member in config.nodes]
    places = {
        "{index}": str(names.index(node.name)),
        "{name}": node.name,
        "{ip}": str(node.ip),
        "{port}": str(service.port),
        "{peers}": ",".join(f"{member.ip}:{service.port}" for member in config.nodes),
        "{data}": DATA_DIR,
    }
    return tuple(filled_in(argument, places) for argument in service.arguments)
