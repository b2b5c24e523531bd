"""ZooKeeper as a store: see ``stores.protocol.Store``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from containernet_env.model.config import Config, Node, StoreChoice
from containernet_env.model.topology import RttExpectation
from containernet_env.stores.critical_path import Deployment
from containernet_env.stores.external import ExternalConnection, Login, OwnKeys
from containernet_env.stores.features import Lacking
from containernet_env.stores.protocol import (
    ImageParts,
    LeastLatencies,
    LoadTerms,
    MemberPlace,
    MemberStart,
    StoreKind,
    Timing,
    Trust,
)
from containernet_env.stores.zookeeper.cluster import ZooKeeperCluster, ZooKeeperMember
from containernet_env.stores.zookeeper.critical_path import CriticalPath
from containernet_env.stores.zookeeper.external import ExternalZooKeeper, chroot_of
from containernet_env.stores.zookeeper.jars import jars_of
from containernet_env.stores.zookeeper.log import last_words
from containernet_env.stores.zookeeper.settings import CLIENT_PORT, DATA_DIR, member_command
from containernet_env.stores.zookeeper.timing import ZooKeeperTiming, zookeeper_timing
from containernet_env.stores.zookeeper.tuning import FLAGS, PACKAGED, VERSION

_CHOICE = StoreChoice("zookeeper")
_JAVA = "openjdk-17-jre-headless"


@dataclass(frozen=True, slots=True)
class ZooKeeper:
    """See ``stores.protocol.Store``."""

    choice: StoreChoice = _CHOICE
    name: ClassVar[str] = "zookeeper"
    title: ClassVar[str] = "ZooKeeper"
    program: ClassVar[str] = "start-zookeeper"
    client_port: ClassVar[int] = CLIENT_PORT
    last_words = staticmethod(last_words)
    load_terms: ClassVar[LoadTerms] = LoadTerms({"store": "zookeeper"}, second_tries=True)
    largest_value_bytes: ClassVar[int | None] = 1_000_000
    keys_are_paths: ClassVar[bool] = False
    consistency: ClassVar[Mapping[str, str]] = {"l": "sync+read"}
    lacks: ClassVar[Lacking] = {
        "heartbeat_interval": "has ticks instead: the flags tickTime, initLimit and syncLimit of the store",
        "election_timeout": "has ticks instead: the flags tickTime, initLimit and syncLimit of the store",
        "leader": "cannot be told which member is to lead",
        "tls": "is not set up with TLS here",
        "profile": "gives no profiles",
        "default": 'has no third consistency beside "l" and "s"',
        "span": "reads one key at a time",
        "limit": "reads one key at a time",
        "keysOnly": "reads keys with their values",
        "countOnly": "reads keys with their values",
    }

    @property
    def version(self) -> str:
        """See ``Store``."""
        return self.choice.version or PACKAGED

    @property
    def image(self) -> ImageParts:
        """See ``Store``."""
        scripts = (self.program, "log4j.properties", "logback.xml")
        if self.version == PACKAGED:
            # Without the package zookeeper, which would bring a Java runtime with a desktop's libraries.
            return ImageParts("zookeeper", scripts, packages=("libzookeeper-java", _JAVA))
        files = jars_of(self.version)
        return ImageParts("zookeeper", scripts, packages=(_JAVA,), files=files, version=self.version)

    def timing(self, config: Config, largest_member_rtt: RttExpectation | None) -> ZooKeeperTiming:
        """See ``Store``."""
        return zookeeper_timing(config, largest_member_rtt)

    def start(self, node: Node, config: Config, timing: Timing, run_id: str, *, profiled: bool = False) -> MemberStart:
        """See ``Store``."""
        assert isinstance(timing, ZooKeeperTiming)
        return MemberStart(member_command(node, config, timing), (DATA_DIR,))

    def least_latencies(self, deployment: Deployment) -> LeastLatencies:
        """See ``Store``."""
        forced = dict(self.choice.flags).get("forceSync") != "no"
        return CriticalPath(deployment, forced=forced).shares

    def trust(self, config: Config) -> Trust | None:
        """See ``Store``."""
        return None

    def cluster(self, places: Sequence[MemberPlace]) -> ZooKeeperCluster:
        """See ``Store``."""
        return ZooKeeperCluster([ZooKeeperMember(place) for place in places])

    def place(self, prefix: str) -> tuple[LoadTerms, str]:
        """See ``stores.external.ExternalStore``: below a znode of the run's own, beside nobody else's."""
        return replace(self.load_terms, always={**self.load_terms.always, "chroot": chroot_of(prefix)}), ""

    def external(
        self, config: Config, connections: Sequence[ExternalConnection], login: Login | None, own: OwnKeys
    ) -> ExternalZooKeeper:
        """See ``ExternalStore``."""
        assert config.external is not None
        return ExternalZooKeeper(config.external, connections, own)


KIND = StoreKind("zookeeper", ZooKeeper, VERSION, FLAGS)
