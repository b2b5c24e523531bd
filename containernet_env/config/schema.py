"""The keys of a config file, in both of its forms."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter

from containernet_env.config.fields import (
    UNLIMITED,
    Bandwidth,
    Cpus,
    DataChoice,
    Delay,
    FilePath,
    Ip,
    Memory,
    OptionalElectionMs,
    OptionalHeartbeatMs,
    OptionalIp,
    OptionalName,
    OptionalSubnet,
)
from containernet_env.config.validation import StrictModel

MAX_NODES = 100


class RawNode(StrictModel):
    """A member as the list form has it: every key is required."""

    model_config = ConfigDict(title="Node")

    ip: Ip
    mem: Memory
    cpus: Cpus
    bandwidth: Bandwidth
    link_delay: Delay


class RawNamedNode(RawNode):
    """A member as the object form has it."""

    model_config = ConfigDict(title="Named node")

    name: OptionalName = None


class RawClient(StrictModel):
    """The client's own address, limits and link; what is left out does not limit it."""

    model_config = ConfigDict(title="Client")

    ip: OptionalIp = None
    mem: Memory = Field(default=None, json_schema_extra={"default": UNLIMITED})
    cpus: Cpus = Field(default=None, json_schema_extra={"default": UNLIMITED})
    bandwidth: Bandwidth = Field(default=None, json_schema_extra={"default": UNLIMITED})
    link_delay: Delay = Field(default=0, json_schema_extra={"default": "0ms"})


class RawEtcd(StrictModel):
    """What is asked of etcd instead of its defaults."""

    model_config = ConfigDict(title="etcd")

    heartbeat_interval: OptionalHeartbeatMs = None
    election_timeout: OptionalElectionMs = None
    data: DataChoice = "disk"


NodeList = Annotated[list[RawNamedNode], Field(min_length=1, max_length=MAX_NODES)]
PlainNodeList = Annotated[list[RawNode], Field(min_length=1, max_length=MAX_NODES)]


class RawConfig(StrictModel):
    """The object form."""

    model_config = ConfigDict(title="Config")

    subnet: OptionalSubnet = None
    nodes: NodeList
    client: RawClient = RawClient()
    etcd: RawEtcd = RawEtcd()
    scenarios: FilePath = None


LIST_FORM: TypeAdapter[list[RawNode]] = TypeAdapter(PlainNodeList)
OBJECT_FORM: TypeAdapter[RawConfig] = TypeAdapter(RawConfig)
EITHER_FORM: TypeAdapter[Any] = TypeAdapter(PlainNodeList | RawConfig)
