"""The keys of a config file, in both of its forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, create_model

from containernet_env.config.endpoints import RawEndpoints
from containernet_env.config.fields import (
    UNLIMITED,
    Bandwidth,
    Boolean,
    Cpus,
    DataChoice,
    Delay,
    FilePath,
    Ip,
    Memory,
    OptionalElectionMs,
    OptionalHeartbeatMs,
    OptionalIp,
    OptionalMember,
    OptionalName,
    OptionalSubnet,
    refuse,
)
from containernet_env.config.link_schema import LEFT_OUT, RawLink
from containernet_env.config.store_schema import StoreValue, kind_named
from containernet_env.config.validation import Length, StrictModel, rule
from containernet_env.stores.etcd.store import ELECTION_PER_HEARTBEAT
from containernet_env.stores.kinds import KINDS
from containernet_env.stores.store import Store

MAX_NODES = 100


class RawNode(StrictModel):
    """A member as the list form has it: every key is required."""

    model_config = ConfigDict(title="Node")

    ip: Ip
    mem: Memory
    cpus: Cpus
    bandwidth: Bandwidth
    link_delay: Delay


def _either(own: str, key: str) -> dict[str, Any]:
    """JSON Schema: a host's own key, or the same said in its ``link``."""
    said = {"required": [key]}
    apart = {"properties": {"to_switch": said, "from_switch": said}, "required": ["to_switch", "from_switch"]}
    link = {"properties": {"link": {"anyOf": [said, apart]}}, "required": ["link"]}
    return {"anyOf": [{"required": [own]}, link]}


class RawNamedNode(RawNode):
    """A member as the object form has it: bandwidth and delay are its own, or said in its link."""

    model_config = ConfigDict(
        title="Named node",
        json_schema_extra={"allOf": [_either("bandwidth", "bandwidth"), _either("link_delay", "delay")]},
    )

    name: OptionalName = None
    bandwidth: Bandwidth = None
    link_delay: Delay = LEFT_OUT
    link: RawLink = LEFT_OUT


class RawClient(StrictModel):
    """The client's own address, limits and link; what is left out does not limit it."""

    model_config = ConfigDict(title="Client")

    ip: OptionalIp = None
    mem: Memory = Field(default=None, json_schema_extra={"default": UNLIMITED})
    cpus: Cpus = Field(default=None, json_schema_extra={"default": UNLIMITED})
    bandwidth: Bandwidth = Field(default=None, json_schema_extra={"default": UNLIMITED})
    link_delay: Delay = Field(default=0, json_schema_extra={"default": "0ms"})
    link: RawLink = LEFT_OUT


_DATA = "where members keep their data, on disk or in memory"


class RawEtcd(StrictModel):
    """Settings of etcd instead of the defaults."""

    model_config = ConfigDict(title="etcd")

    heartbeat_interval: OptionalHeartbeatMs = None
    election_timeout: OptionalElectionMs = None
    data: DataChoice = Field(default="disk", json_schema_extra={"meaning": _DATA})
    leader: OptionalMember = None
    tls: Boolean = False

    @rule
    def _election_is_longer_than_heartbeats(self) -> None:
        if self.heartbeat_interval is None or self.election_timeout is None:
            return
        least_ms = ELECTION_PER_HEARTBEAT * self.heartbeat_interval
        if self.election_timeout < least_ms:
            allowed = f"at least {ELECTION_PER_HEARTBEAT} x heartbeat_interval, {least_ms}ms"
            refuse("is too short for the heartbeat", allowed, key="election_timeout")


NodeList = Annotated[list[RawNamedNode], Length(1, MAX_NODES)]
PlainNodeList = Annotated[list[RawNode], Length(1, MAX_NODES)]


def _settings_of(store: type[Store]) -> type[RawEtcd]:
    """The settings of a store other than etcd.

    JSON Schema leaves out those that it lacks; they are keys nevertheless, so that an error can give the reason.
    """

    def leave_out(schema: dict[str, Any]) -> None:
        properties = schema["properties"].items()
        schema["properties"] = {key: value for key, value in properties if key not in store.lacks}

    namespace = {
        "__module__": __name__,
        "__doc__": f"Settings of {store.title} instead of the defaults.",
        "model_config": ConfigDict(title=store.__name__, json_schema_extra=leave_out),
    }
    return type(f"Raw{store.__name__}", (RawEtcd,), namespace)


SECTIONS: Mapping[str, type[RawEtcd]] = {
    section: RawEtcd if section == RawEtcd.model_config["title"] else _settings_of(KINDS[section])
    for section in dict.fromkeys(store.section for store in KINDS.values())
}
"""The models of the settings of each kind of store, by their keys."""


class RawConfig(StrictModel):
    """The object form, without the settings of stores: ``CONFIG`` has them."""

    model_config = ConfigDict(title="Config")

    subnet: OptionalSubnet = None
    nodes: NodeList
    client: RawClient = RawClient()
    store: StoreValue = LEFT_OUT
    scenarios: FilePath = None

    @rule
    def _settings_are_of_the_store(self) -> None:
        wanted = KINDS[kind_named(self.store)].section
        for section in SECTIONS:
            if section in self.model_fields_set and section != wanted:
                refuse("is about another store than the one that is measured", f'"{wanted}": ...', key=section)


_FIELDS: dict[str, Any] = {
    section: (model, Field(model(), json_schema_extra={"meaning": f"settings of {KINDS[section].title}"}))
    for section, model in SECTIONS.items()
}
CONFIG: type[RawConfig] = create_model("RawConfig", __base__=RawConfig, __doc__="The object form.", **_FIELDS)
NODE: TypeAdapter[RawNamedNode] = TypeAdapter(RawNamedNode)
LIST_FORM: TypeAdapter[list[RawNode]] = TypeAdapter(PlainNodeList)
OBJECT_FORM: TypeAdapter[RawConfig] = TypeAdapter(CONFIG)
_EITHER: Any = PlainNodeList | CONFIG | RawEndpoints
EITHER_FORM: TypeAdapter[Any] = TypeAdapter(_EITHER)
