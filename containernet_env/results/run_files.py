"""The form of the files in a run directory and what they must hold; docs/run-*.schema.json are their JSON Schemas."""

from __future__ import annotations

from dataclasses import fields
from types import GenericAlias
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, create_model, model_validator

from containernet_env.config.plan import OPTIONS, PlanOptions
from containernet_env.model.config import DILATION_MAX
from containernet_env.model.disruption import ExecutedEvent
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.usage import Consumption

# What an int64 holds: larger ones are none of ours, and leave what a float can hold.
_Nanoseconds = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Count = Annotated[int, Field(ge=0, lt=2**63)]


class _ReadPart(BaseModel):
    """What the program itself reads of an object that others wrote; any other key may be there, too."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


class SourceFile(_ReadPart):
    """A file of the user's."""

    path: str
    sha256: str


class _Host(_ReadPart):
    role: str


class _PlannedScenario(_ReadPart):
    name: str
    dilation: Annotated[int, Field(ge=1, le=DILATION_MAX)] = 1


class PlanFiles(_ReadPart):
    """What is read of the plan in a manifest."""

    config: SourceFile
    scenario_file: SourceFile | None
    hosts: list[_Host]
    scenarios: list[_PlannedScenario] = []


class _Pair(_ReadPart):
    a: str
    b: str
    expected_ns: _Nanoseconds
    measured_ns: _Nanoseconds | None


class _Check(_ReadPart):
    verdict: str


class _Times(_ReadPart):
    percentiles_s: dict[str, float | None] = {}
    histogram: str | None = None


class _Step(_ReadPart):
    second: float
    ok: int
    failed: int
    unknown: int
    p50_s: float | None
    p99_s: float | None


class _Load(_ReadPart):
    began_ns: _Nanoseconds | None = None
    ok: int = 0
    failed: int = 0
    requests_per_s: float | None = None
    response_time: _Times | None = None
    timeline_interval_s: Annotated[float, Field(gt=0)] | None = None
    timeline: list[_Step] = []


class _Finding(_ReadPart):
    text: str


def _with(part: type[_ReadPart]) -> AfterValidator:
    """An object of any keys; where it is read from a file, those of ``part`` have to be as that says."""

    def check(value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if info.mode == "json":
            part.model_validate(value)
        return value

    return AfterValidator(check)


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Part(_Record):
    """An object of the manifest: every key is there, and no other one."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, json_schema_serialization_defaults_required=True)


class ProgramFacts(Part):
    """containernet-env itself."""

    version: str
    commit: str | None = Field(description="40 hex digits; null where it is unknown")
    dirty: bool | None = Field(description="whether files differed from that commit")
    sources: str = Field(description="SHA-256 over its Python and Go sources and its images' files")
    python: str
    go: str | None = Field(description="the Go that the programs are built with")


class Virtualisation(Part):
    """What the kernel reports of a hypervisor below it, and the file system of a container; null where they do not."""

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


class RunFile(_Record):
    """What all of them have; ``file`` is the name of the file that is one, or has such lines."""

    model_config = ConfigDict(allow_inf_nan=False, json_schema_serialization_defaults_required=True)

    file: ClassVar[str]

    schema_version: Literal[1] = Field(default=1, alias="schema", description="version of this form")


class Sync(_Record):
    """What appending 512 bytes and an fdatasync took, before the cluster started."""

    samples: int
    median_ns: int
    slowest_ns: int


class ClusterRecord(_Record):
    """One cluster of a run: with --fresh there is one for each repetition."""

    number: int = Field(description="from 1; the CSV's Cluster")
    at: str = Field(description="when it was up, UTC")
    leader_at_start: str | None
    term_at_start: int | None
    sync: dict[str, Sync] = Field(description="by member, where its data lies; the floor counts the median")


class Manifest(RunFile):
    """manifest.json: what the run is, known before the load."""

    file = "manifest.json"

    run_id: str
    began: str = Field(description="when the run began, UTC, ISO 8601")
    began_ns: int = Field(description="the same moment on the monotonic clock, ns")
    command: list[str] = Field(description="the command line, or the caller's")
    program: ProgramFacts
    machine: MachineFacts
    images: dict[str, ImageFacts] = Field(description="by the role of the hosts")
    flags: Flags
    inputs: Inputs
    config_hash: str = Field(description="hash of everything configured but the load; the CSV's ConfigHash")
    tolerances: dict[str, Any] = Field(
        default={},
        description="what the gate allows links of each kind (ns, shares and bit/s, in real time) and the chance that "
        "its tests err, and the thresholds by which a row is judged, by kind of finding (docs/fidelity.md)",
    )
    plan: Annotated[dict[str, Any], _with(PlanFiles)] = Field(
        description="the resolved plan, as `run --dry-run` works it out"
    )
    repeats: Repeats | None = Field(default=None, description="the run that `rerun` repeats here")
    links: LinkFacts | None = Field(default=None, description="known when the testbed is up, as what follows")
    hosts: dict[str, Any] = Field(
        default_factory=dict, description="limits and TCP settings, read back from each host, by its name"
    )
    store: StoreFacts | None = None
    clusters: list[ClusterRecord] = Field(default_factory=list, description="every cluster that was brought up")


class Proof(_Record):
    """One proof of the network: what a gate found, with its samples."""

    at: str = Field(description="when it was made, UTC")
    at_ns: int
    moment: Literal["before", "after", "change"] = Field(
        default="before", description="before the first scenario, after the last, or after links were changed"
    )
    passed: bool
    problems: list[str] = Field(description="what is not as configured, a line each")
    unproved: list[str] = Field(description="what the samples cannot show, a line each")
    checks: list[Annotated[dict[str, Any], _with(_Check)]] = Field(
        default=[],
        description="each property (kind) of each direction of a link (subject): verdict, what was configured, "
        "measured and allowed, why, and the figures behind it",
    )
    pairs: list[Annotated[dict[str, Any], _with(_Pair)]] = Field(
        description="expected and measured RTT of each pair of hosts, in ns"
    )
    paths: list[dict[str, Any]] = Field(
        default=[], description="each way between two hosts: frames sent and lost, and every one-way delay in ns"
    )


class NetworkFile(RunFile):
    """network.json: the proofs that the network is the one that was configured, also those that failed."""

    file = "network.json"

    run_id: str
    proofs: list[Proof]


def _described(value: type[ScenarioOutcome | ExecutedEvent], **absent: Any) -> dict[str, Any]:
    """The fields of a value that are annotated with a description; one with another default than None must be there.

    ``absent``: what it means where one is not there, which files of earlier versions lack.
    """
    types = get_type_hints(value, include_extras=True)
    found = {field.name: field for field in fields(value) if get_origin(types[field.name]) is Annotated}
    return {
        name: (
            types[name],
            Field(
                default=absent.get(name, None if field.default is None else ...),
                description=types[name].__metadata__[0],
            ),
        )
        for name, field in found.items()
    }


OF_OUTCOME = _described(ScenarioOutcome, dilation=1)
_OutcomeLine: Any = create_model("_OutcomeLine", __base__=RunFile, **OF_OUTCOME)


class ScenarioLine(_OutcomeLine):  # type: ignore[misc]
    """A line of scenarios.jsonl: one scenario, ended."""

    file = "scenarios.jsonl"

    scenario: str
    repetition: int
    attempt: int = Field(default=1, description="the CSV's Attempt")
    client: str | None = Field(
        default=None, description="the CSV's Client: of several clients the one that it is of, or all; null for one"
    )
    identity: str | None = Field(description="hash of scenario and data set; the CSV's ScenarioHash")
    valid: Literal["yes", "no", "unknown"] | None = Field(
        description="whether the figures are those of the store under what was configured; null without figures"
    )
    findings: list[Annotated[dict[str, Any], _with(_Finding)]] = Field(
        description="what a reader of the figures has to know"
    )
    load: Annotated[dict[str, Any], _with(_Load)] | None = Field(
        description="the benchmark server's whole result (benchmark-result.schema.json)"
    )
    network: dict[str, Any] | None = Field(description="what every link, port and switch saw, with whole histograms")
    search: dict[str, Any] | None = Field(
        default=None, description="what a saturation search found; the figures are those of one of its probes"
    )
    history: bool = Field(default=False, description="whether it was to keep a history (docs/verify.md)")


class ProbeLine(ScenarioLine):
    """A line of probes.jsonl: one probe of a saturation search, with what a scenario of its rate would leave."""

    file = "probes.jsonl"

    probe: dict[str, Any] = Field(description="its number, purpose, rate, seed, verdict and why")


_ExecutedEventLine: Any = create_model("_ExecutedEventLine", __base__=RunFile, **_described(ExecutedEvent, apart=()))


class DisruptionLine(_ExecutedEventLine):  # type: ignore[misc]
    """A line of disruptions.jsonl: something that an event of a scenario did to members, or should have done.

    The lines of a scenario are in the order in which it happened; there is one for each end of an event, too.
    """

    file = "disruptions.jsonl"

    scenario: str
    repetition: int
    attempt: int
    began_ns: int | None = Field(description="when the load began; null where it did not")
    seed: str = Field(description="what random members were drawn from: the run's seed, scenario, repetition, attempt")
    first_success_s: float | None = Field(description="how long after it the first request succeeded")


class UsageLine(RunFile):
    """A line of usage.jsonl: what each consumer has used since it exists; a counter that is not kept is absent.

    There is one each second while the matrix runs, and one at each edge of a scenario.
    """

    file = "usage.jsonl"

    at_ns: int
    edge: Literal["begin", "end"] | None = Field(description="whether a scenario begins or ends with it")
    members: dict[str, Consumption] = Field(description="by name, those that live")
    client: Consumption | None = Field(description="the host that makes the load; of several, all of them together")
    clients: dict[str, Consumption] = Field(default={}, description="by name, where there are several")
    links: Consumption | None = Field(description="the link emulator; null where the kernel carries the links")
    driver: Consumption | None = Field(description="containernet-env itself")
    machine: Consumption | None


class EventLine(RunFile):
    """A line of events.jsonl: something that happened."""

    file = "events.jsonl"

    at: str
    at_ns: int
    kind: str = Field(
        description="run_began, hosts_up, network_proved, network_wrong, network_unproved, cluster_up, matrix_began, "
        "dataset_loaded, scenario_began, probe_ended, scenario_ended, scenario_not_run, event (a configured one was "
        "carried out), profiled, member_died, leader_changed, "
        "leader_moved, port_down, emulator_died, testbed_failed, progress_failed, run_failed, run_interrupted, "
        "tear_down_began, run_ended; in a sweep also testbed_reused, testbed_not_reused, limits_changed, "
        "links_changed, testbed_left (to the next run), testbed_not_left"
    )
    text: str = Field(description="one line for people")
    subject: str | None = Field(default=None, description="the host, link or scenario that it is about")


FILES: dict[str, type[RunFile]] = {
    "manifest": Manifest,
    "network": NetworkFile,
    "scenario": ScenarioLine,
    "probe": ProbeLine,
    "event": EventLine,
    "usage": UsageLine,
    "disruption": DisruptionLine,
}
"""By the name of its JSON Schema."""


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of one of ``FILES``."""
    schema = FILES[name].model_json_schema(by_alias=True, mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
