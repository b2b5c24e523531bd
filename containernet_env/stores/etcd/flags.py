"""How etcd is started: its flags, ports, data directory and environment."""

from __future__ import annotations

from containernet_env.model.config import Config, Node
from containernet_env.stores.etcd.timing import EtcdTiming

DATA_DIR = "/var/lib/etcd"


CLIENT_PORT = 2379


PEER_PORT = 2380


def client_endpoint(ip: str) -> str:
    """``ip:port`` at which the member with that address serves clients."""
    return f"{ip}:{CLIENT_PORT}"


def etcd_flags(node: Node, config: Config, timing: EtcdTiming, run_id: str) -> tuple[str, ...]:
    """The arguments of one member's etcd, static bootstrap."""
    cluster = ",".join(f"{member.name}=http://{member.ip}:{PEER_PORT}" for member in config.nodes)
    flags = {
        "name": node.name,
        "data-dir": DATA_DIR,
        "listen-client-urls": f"http://0.0.0.0:{CLIENT_PORT}",
        "advertise-client-urls": f"http://{client_endpoint(str(node.ip))}",
        "listen-peer-urls": f"http://0.0.0.0:{PEER_PORT}",
        "initial-advertise-peer-urls": f"http://{node.ip}:{PEER_PORT}",
        "initial-cluster": cluster,
        "initial-cluster-state": "new",
        # Members of another run refuse this one, should it ever reach them.
        "initial-cluster-token": f"containernet-env-{run_id}",
        "heartbeat-interval": str(timing.heartbeat_ms),
        "election-timeout": str(timing.election_ms),
        # Elections and lost peers are logged at level info; requests are not. Plain lines read well in a
        # failure message.
        "log-level": "info",
        "log-format": "console",
    }
    return tuple(f"--{name}={value}" for name, value in flags.items())
