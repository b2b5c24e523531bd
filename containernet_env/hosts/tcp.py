"""Which congestion control a host's TCP uses: set inside its namespace only, and read back from a real socket.

The obvious sysctl (net.ipv4.tcp_congestion_control) is refused in a namespace for every algorithm that the machine
does not list as allowed (tcp_set_default_congestion_control in net/ipv4/tcp_cong.c), and the machine's own list is
not ours to change. A route may name any algorithm the kernel has (``congctl``, RTAX_CC_ALGO), for connections that
go out over it and for those that come in (tcp_ca_dst_init).
"""

from __future__ import annotations

import errno
import os
import socket

from containernet_env.base.errors import RunError
from containernet_env.hosts import netns

_DISCARD_PORT = 9


def set_congestion_control(pid: int, interface: str, address: str, subnet: str, algorithm: str) -> None:
    """Make TCP between `address` (on `interface`, in the namespace of `pid`) and `subnet` use `algorithm`.

    Raises RunError where the kernel does not have the algorithm or does not take the route.
    """
    available = netns.read_sysctl(pid, "net.ipv4.tcp_available_congestion_control").split()
    if algorithm not in available:
        raise RunError(f"this kernel has no TCP congestion control {algorithm!r}; it has: {', '.join(available)}")
    route = f"route replace {subnet} dev {interface} proto kernel scope link src {address} congctl {algorithm}"
    netns.ip_batch(pid, [route])


def forget_paths(pid: int) -> None:
    """Have its connections of tomorrow begin without what those of before have learnt of their paths (tcp_metrics)."""
    netns.ip_batch(pid, ["tcp_metrics flush all"])


def congestion_control_towards(pid: int, address: str) -> str:
    """The algorithm that a TCP connection from the namespace of `pid` to `address` really uses.

    Reads it from a socket that has begun to connect; whether anybody answers does not matter. Raises RunError where
    there is no route.
    """
    with netns.socket_in(pid, socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        code = probe.connect_ex((address, _DISCARD_PORT))
        if code not in (0, errno.EINPROGRESS, errno.ECONNREFUSED):
            raise RunError(f"no connection to {address} can be begun: {os.strerror(code)}")
        name = probe.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.rstrip(b"\0").decode()
