"""How Consul is started: a server agent, its arguments, ports and data directory."""

from __future__ import annotations

import json

from containernet_env.model.config import Config, Node
from containernet_env.stores.consul.timing import ConsulTiming

DATA_DIR = "/var/lib/consul"
HTTP_PORT = 8500
SERVER_PORT = 8300
"""Where servers reach each other; a leader is told by its address with this port."""


def arguments(node: Node, config: Config, timing: ConsulTiming) -> tuple[str, ...]:
    """The arguments of one member's ``consul agent``."""
    others = [str(member.ip) for member in config.nodes if member is not node and member.name != node.name]
    return (
        "agent",
        "-server",
        f"-bootstrap-expect={len(config.nodes)}",
        f"-node={node.name}",
        f"-bind={node.ip}",
        f"-advertise={node.ip}",
        "-client=0.0.0.0",
        f"-http-port={HTTP_PORT}",
        f"-server-port={SERVER_PORT}",
        # Nothing asks for names, for other data centres or for service meshes here.
        "-dns-port=-1",
        "-grpc-port=-1",
        "-grpc-tls-port=-1",
        "-serf-wan-port=-1",
        f"-data-dir={DATA_DIR}",
        "-log-level=info",
        # The default, 30 s, is a long time for members that start at nearly one moment.
        "-retry-interval=1s",
        *(f"-retry-join={other}" for other in others),
        f"-hcl={json.dumps(_settings(config, timing))}",
    )


def _settings(config: Config, timing: ConsulTiming) -> dict[str, object]:
    """What has no flag, as its configuration files have it."""
    settings: dict[str, object] = {
        "performance": {"raft_multiplier": timing.multiplier},
        # Counted since the start, instead of for 10 s each.
        "telemetry": {"prometheus_retention_time": "24h", "disable_hostname": True},
        # The load has all its connections from one address; 200 are allowed otherwise.
        "limits": {"http_max_conns_per_client": 0},
        # A member that is dead stays a member: a majority of three is always two.
        "autopilot": {"cleanup_dead_servers": False},
        "disable_update_check": True,
    }
    for name, value in config.store.flags:
        if name == "raft_logstore":
            settings[name] = {"backend": value}
        elif name != "raft_multiplier":
            settings[name] = value
    return settings
