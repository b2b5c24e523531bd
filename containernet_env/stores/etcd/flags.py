"""How etcd is started: its flags, ports, data directory and environment."""

from __future__ import annotations

from containernet_env.model.config import Config, Node
from containernet_env.stores.etcd.timing import EtcdTiming

DATA_DIR = "/var/lib/etcd"


CLIENT_PORT = 2379


PEER_PORT = 2380


TLS_DIR = "/run/tls"
"""Where a member finds its certificates and its key; see ``certificates``."""
CA_FILE, CERTIFICATE_FILE, KEY_FILE = (f"{TLS_DIR}/{name}" for name in ("ca.pem", "cert.pem", "key.pem"))


def etcd_flags(node: Node, config: Config, timing: EtcdTiming, run_id: str) -> tuple[str, ...]:
    """The arguments of one member's etcd, static bootstrap."""
    scheme = "https" if config.etcd.tls else "http"
    cluster = ",".join(f"{member.name}={scheme}://{member.ip}:{PEER_PORT}" for member in config.nodes)
    flags = {
        "name": node.name,
        "data-dir": DATA_DIR,
        "listen-client-urls": f"{scheme}://0.0.0.0:{CLIENT_PORT}",
        "advertise-client-urls": f"{scheme}://{node.ip}:{CLIENT_PORT}",
        "listen-peer-urls": f"{scheme}://0.0.0.0:{PEER_PORT}",
        "initial-advertise-peer-urls": f"{scheme}://{node.ip}:{PEER_PORT}",
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
    if config.etcd.tls:
        for prefix in ("", "peer-"):
            flags[f"{prefix}cert-file"], flags[f"{prefix}key-file"] = CERTIFICATE_FILE, KEY_FILE
            flags[f"{prefix}trusted-ca-file"], flags[f"{prefix}client-cert-auth"] = CA_FILE, "true"
    return tuple(f"--{name}={value}" for name, value in flags.items())


def etcdctl_environment(config: Config) -> dict[str, str]:
    """What lets etcdctl in at the member that it is started beside."""
    files = {"CACERT": CA_FILE, "CERT": CERTIFICATE_FILE, "KEY": KEY_FILE}
    return {f"ETCDCTL_{name}": path for name, path in files.items()} if config.etcd.tls else {}
