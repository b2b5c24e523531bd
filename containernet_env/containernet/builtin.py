"""The project's own network engine: ``containernet_env.containernet.network`` on stock Mininet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mininet.net import VERSION

from containernet_env.containernet.docker import Docker
from containernet_env.containernet.network import Containernet
from containernet_env.model.link import LinkSpec
from containernet_env.network.select import describe
from containernet_env.plan.plan import HostPlan


class BuiltinNetwork(Containernet):
    """See ``testbed_network.TestbedNetwork``."""

    backend_name = "builtin"
    backend_version = f"Mininet {VERSION}"
    backend_commit = None
    hosts_kind = "docker"

    @property
    def link_backend(self) -> str:
        """See ``testbed_network.TestbedNetwork``."""
        return describe(self.switches_kind)

    def add_host(self, plan: HostPlan, image: str, command: Sequence[str]) -> Docker:
        """See ``testbed_network.TestbedNetwork``."""
        return self.addDocker(
            plan.name,
            ip=f"{plan.ip}/{plan.prefix_length}",
            dimage=image,
            dcmd=list(command),
            environment=dict(plan.environment),
            tmpfs=[f"{path}:{options}" for path, options in plan.tmpfs.items()],
            mem_limit=plan.memory_bytes,
            memswap_limit=plan.memswap_bytes,
            cpu_period=plan.cpu_period_us,
            cpu_quota=plan.cpu_quota_us,
            cpuset_cpus=",".join(map(str, plan.cpuset)) or None,
            cap_drop=["ALL"],
            logs=True,
        )

    def add_switch(self, name: str) -> None:
        """See ``testbed_network.TestbedNetwork``."""
        self.addSwitch(name)

    def add_link(self, node1: str, node2: str, spec: LinkSpec) -> None:
        """See ``testbed_network.TestbedNetwork``."""
        self.addSpecLink(node1, node2, spec)

    def link_backend_log(self) -> str | None:
        """See ``testbed_network.TestbedNetwork``."""
        emulator = self.factory.emulator
        return emulator.log if emulator.hello else None

    def link_backend_answers(self, timeout_s: float) -> bool:
        """See ``testbed_network.TestbedNetwork``."""
        return self.factory.emulator.answers(timeout_s)

    def link_backend_facts(self) -> Mapping[str, Any]:
        """See ``testbed_network.TestbedNetwork``."""
        return self.factory.emulator.hello
