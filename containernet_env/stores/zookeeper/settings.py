"""How ZooKeeper is started: its ports, zoo.cfg, and the options of its Java runtime."""

from __future__ import annotations

from containernet_env.model.config import Config, Node
from containernet_env.stores.zookeeper.timing import ZooKeeperTiming
from containernet_env.stores.zookeeper.tuning import lines

DATA_DIR = "/var/lib/zookeeper"
CLIENT_PORT, PEER_PORT, ELECTION_PORT = 2181, 2888, 3888

# As bin/zkServer.sh has it where nothing limits the memory.
_HEAP_MIB = 1000
_LEAST_HEAP_MIB = 16


def heap_mib(memory_bytes: int | None) -> int:
    """The largest heap, in MiB: half of a memory limit.

    The other half is for the runtime itself (at least 60 MB), its threads, and the buffers of connections.
    """
    return _HEAP_MIB if memory_bytes is None else max(_LEAST_HEAP_MIB, min(_HEAP_MIB, memory_bytes // 2 >> 20))


def java_options(node: Node) -> tuple[str, ...]:
    """For the Java runtime of one member."""
    return (
        f"-Xmx{heap_mib(node.memory_bytes)}m",
        # A member without memory ends, as bin/zkServer.sh has it, instead of lingering.
        "-XX:+ExitOnOutOfMemoryError",
        # It would write to a file in /tmp that is mapped into memory, and stop for as long as that takes.
        "-XX:-UsePerfData",
        # Lines of the log are in UTC, wherever the host is.
        "-Duser.timezone=UTC",
    )


def config_lines(config: Config, timing: ZooKeeperTiming) -> tuple[str, ...]:
    """The lines of zoo.cfg, the same for all members."""
    entries = {
        "tickTime": timing.tick_ms,
        "initLimit": timing.init_ticks,
        "syncLimit": timing.sync_ticks,
        "dataDir": DATA_DIR,
        "clientPort": CLIENT_PORT,
        # All clients come from one address.
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr,mntr,ruok",
    }
    servers = tuple(
        f"server.{number}={node.ip}:{PEER_PORT}:{ELECTION_PORT}" for number, node in enumerate(config.nodes, start=1)
    )
    return (*(f"{name}={value}" for name, value in entries.items()), *lines(config.store.flags), *servers)


def member_command(node: Node, config: Config, timing: ZooKeeperTiming) -> tuple[str, ...]:
    """What follows the image's entry point, zookeeper_image/start-zookeeper."""
    number = [other.name for other in config.nodes].index(node.name) + 1
    options = (f"--java={option}" for option in java_options(node))
    return (f"--id={number}", *options, *config_lines(config, timing))
