"""The parts of a manifest: what a run was made of, as far as it has to be equal for another run to repeat it."""

from __future__ import annotations

from types import GenericAlias
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from containernet_env.plan.plan import OPTIONS, PlanOptions

# What an int64 holds: larger ones are none of ours, and leave what a float can hold.
_Count = Annotated[int, Field(ge=0, lt=2**63)]


class Part(BaseModel):
    """An object of the manifest: every key is there, and no other one."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, json_schema_serialization_defaults_required=True
    )


class ProgramFacts(Part):
    """containernet-env itself."""

    version: str
    commit: str | None = Field(description="40 hex digits; null where it is unknown")
    dirty: bool | None = Field(description="whether files differed from that commit")
    sources: str = Field(description="SHA-256 over its Python and Go sources and its images' files")
    python: str
    go: str | None = Field(description="the Go that the programs are built with")


class Virtualisation(Part):
    """What the kernel tells of a hypervisor below it, and the file system of a container; null where they do not."""

    guest: bool | None = Field(description="the CPU's hypervisor flag")
    hypervisor: str | None = Field(description="/sys/hypervisor/type")
    vendor: str | None = Field(description="DMI: the system's vendor")
    product: str | None = Field(description="DMI: the system's product")
    container: str | None = Field(description="what made the container that the program itself runs in")


class MachineFacts(Part):
    """The machine when the run began."""

    cpu_model: str
    cores: _Count
    memory_bytes: _Count
    architecture: str
    virtualisation: Virtualisation
    kernel: str = Field(description="the kernel's release")
    kernel_build: str = Field(description="the kernel's version: how and when it was built")
    clock_source: str | None
    congestion_control: str | None = Field(description="the machine's own; hosts have that of the flags")
    engine: str | None = Field(description="the Docker engine's version")
    storage_driver: str | None
    data_filesystem: str | None = Field(description="type and device of the file system that the engine's data is on")
    cgroup_driver: str | None
    cgroup_version: str | None
    iproute2: str | None
    load_average: list[float] = Field(description="runnable tasks over 1, 5 and 15 minutes")
    memory_available_bytes: _Count | None


class ImageFacts(Part):
    """An image that hosts run."""

    tag: str
    digest: str | None = Field(description="the image's id; null where the engine has no such image")


class InputFile(Part):
    """A file of the run directory from which `rerun` reads what was configured."""

    file: str
    sha256: str


class Inputs(Part):
    """Topology and scenarios as they were read, in the forms of config.schema.json and scenarios.schema.json."""

    topology: InputFile
    scenarios: InputFile


class ToleranceFacts(Part):
    """How far a measured RTT may be from the expected one: the larger of both."""

    absolute_ns: _Count
    ratio: float = Field(ge=0)


def _kept(name: str) -> tuple[Any, Any]:
    """The type of an option in the manifest, where a tuple is a list, and its field."""
    kind, option = OPTIONS[name]
    default: Any = PlanOptions.__dataclass_fields__[name].default
    if get_origin(kind) is tuple:
        kind, default = GenericAlias(list, get_args(kind)[:1]), list(default)
    limits: Any = {"ge": 0, "lt": 2**63} if int in (kind, *get_args(kind)) else {}
    return kind, Field(default=default, description=option.text, **limits)


_KEPT: Any = {name: _kept(name) for name in OPTIONS if name != "only"}
_Options: Any = create_model("_Options", __base__=Part, **_KEPT)


class Flags(_Options):  # type: ignore[misc]
    """The options of the run, those left out with their defaults; --quick, --scenarios and --only are in the inputs."""

    rtt_tolerance: ToleranceFacts | None = Field(description="null: by the kind of link")

    @model_validator(mode="before")
    @classmethod
    def _without_port(cls, given: Any) -> Any:
        # Earlier manifests have that of the benchmark server.
        return {key: value for key, value in given.items() if key != "port"} if isinstance(given, dict) else given


class LinkFacts(Part):
    """What makes hosts and links."""

    network: str
    network_version: str | None
    network_commit: str | None
    docker_sdk: str
    links: str
    switches: str | None
    link_emulator: dict[str, Any] | None = Field(description="what it said of itself at its start")


class StoreFacts(Part):
    """What is measured."""

    kind: str
    version: str | None
    leader_at_start: str | None


class Difference(Part):
    """Something that is not as it was in the run that is repeated."""

    name: str
    was: str
    now: str
    matters: bool = Field(description="whether `rerun` refuses it")
    why: str

    def __str__(self) -> str:
        return f"{self.name}: was {self.was}, is {self.now}"


class Repeats(Part):
    """Which run is repeated here, and what differs."""

    run_id: str
    differences: list[Difference]

    @property
    def notes(self) -> list[str]:
        """What the user should read once: what differs, of that which matters."""
        differing = [f"unlike then, {item}" for item in self.differences if item.matters]
        return [f"repeats {self.run_id}", *differing]
