"""A host that was started again gets back what went with its network namespace: links, addresses, neighbours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from containernet_env.base.errors import RunError
from containernet_env.network.factory import LinkFactory
from containernet_env.network.interface import Interface, enter_neighbours, read_neighbours


def reconnect(host: Any, links: Iterable[Any], hosts: Iterable[Any], factory: LinkFactory) -> None:
    """Make the links of ``host`` again, as they were last, and enter its neighbours; all of it is read back.

    ``links`` and ``hosts`` are those of the network. Raises ``RunError`` where the system holds something else.
    """
    for link in links:
        for intf in (link.intf1, link.intf2):
            if intf.node is host and isinstance(intf.held, Interface):
                asked = (intf.held.ip, intf.held.mac)
                factory.remake_link(link.held, intf.held, host.pid)
                held = (intf.held.read_address(), intf.held.read_mac())
                if held != asked:
                    raise RunError(f"host {host.name}: its address is {held}, not {asked}")
    if not host.intfs:
        return
    if route := host.params.get("defaultRoute"):
        host.setDefaultRoute(route)
    own = host.defaultIntf()
    others = [other.defaultIntf() for other in hosts if other is not host and other.intfs]
    wanted = {end.ip: end.mac for end in others if end.ip is not None}
    enter_neighbours(host.pid, own.name, wanted.items())
    entered = read_neighbours(host.pid, own.name)
    if entered != wanted:
        raise RunError(f"host {host.name}: its neighbours are {entered}, not {wanted}")
