"""A host that was started again gets back what went with its network namespace: links, addresses, routes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext, suppress
from typing import Any

from containernet_env.base.errors import RunError
from containernet_env.hosts.netns import ip_batch
from containernet_env.network.factory import LinkFactory


def reconnect(host: Any, links: Iterable[Any], factory: LinkFactory) -> None:
    """Make ``links``, those of ``host``, again as they were last, and routes over them; addresses are read back.

    A link to a host that has ended is made when that one is started again. Raises ``RunError`` where the system holds
    something else.
    """
    nodes = {host}
    for link in links:
        own, peer = (link.intf1, link.intf2) if link.intf1.node is host else (link.intf2, link.intf1)
        if hasattr(peer.node, "alive") and not (peer.node.alive and peer.node.pid == peer.held.pid):
            link.held.clear()
            own.held.pid = host.pid
            continue
        nodes.add(peer.node)
        asked = (own.held.ip, own.held.mac)
        factory.remake_link(link.held, own.held, host.pid)
        held = (own.held.read_address(), own.held.read_mac())
        if held != asked:
            raise RunError(f"host {host.name}: its address is {held}, not {asked}")
    for node in nodes:
        # Those that are still missing go over links that are.
        missing = any(link is not None and not link.held.made for link in (intf.link for intf in node.intfs.values()))
        for route in getattr(node, "routes", {}).values():
            with suppress(RunError) if missing else nullcontext():
                ip_batch(node.pid, [route])
