"""A host that was started again gets back what went with its network namespace: links, addresses, routes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from containernet_env.base.errors import RunError
from containernet_env.network.factory import LinkFactory
from containernet_env.network.interface import Interface


def reconnect(host: Any, links: Iterable[Any], factory: LinkFactory) -> None:
    """Make the links of ``host`` again, as they were last; their addresses are read back.

    ``links`` are those of the network. Raises ``RunError`` where the system holds something else.
    """
    for link in links:
        for intf in (link.intf1, link.intf2):
            if intf.node is host and isinstance(intf.held, Interface):
                asked = (intf.held.ip, intf.held.mac)
                factory.remake_link(link.held, intf.held, host.pid)
                held = (intf.held.read_address(), intf.held.read_mac())
                if held != asked:
                    raise RunError(f"host {host.name}: its address is {held}, not {asked}")
    if host.intfs and (route := host.params.get("defaultRoute")):
        host.setDefaultRoute(route)
