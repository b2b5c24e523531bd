"""A kind of store as topologies, plans and set-ups see it: versions, flags, images, timing, and unsupported features.

``Store`` is the base class of all kinds. Nothing here is running; ``stores.cluster`` is about members that run.
"""

from __future__ import annotations

import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

from containernet_env.base.assets import GoModule
from containernet_env.base.programs import UserProgram
from containernet_env.base.units import format_ms
from containernet_env.model.config import Config, Node, StoreChoice
from containernet_env.model.dilation import slowed
from containernet_env.model.kinds import Kind, checked
from containernet_env.model.scenario import CONSISTENCY_NAMES, Scenario, is_path
from containernet_env.model.topology import RttExpectation, UnloadedNetwork
from containernet_env.stores.cluster import Cluster, Member, MemberPlace
from containernet_env.stores.external import ExternalCluster, ExternalConnection, Login, OwnKeys

NO_LEADER = "no leader can be elected, or stays one"
"""The consequences of a timing that the network does not allow."""
CLIENT_SECRETS = "/run/credentials"
"""The client's directory, in memory, for its files of a ``Trust``."""
USER_PROGRAM = "user-program"
"""The user's program in images."""
GATE_SCRIPT = "wait-at-gate"
"""The first process of members' images, which becomes the program after it once the gate opens."""

# --- versions ---------------------------------------------------------------------------------------------------------


def no_version(reason: str) -> Kind:
    """The version of a store that has only one."""
    return checked(lambda value: False, "cannot be chosen", f"none: {reason}", {})


def version_from(oldest: tuple[int, int, int], pattern: str, example: str) -> Kind:
    """A version that matches ``pattern``, whose first three groups are its numbers, and is not below ``oldest``."""
    form = re.compile(pattern, re.ASCII)

    def parse(value: object) -> str:
        found = form.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            raise ValueError("is not a version")
        if tuple(map(int, found.groups()[:3])) < oldest:
            raise ValueError("is too old")
        return found[0]

    return Kind(parse, f'a version of at least {".".join(map(str, oldest))} such as "{example}"', {})


# --- features ---------------------------------------------------------------------------------------------------------

Lacking = Mapping[str, str]
"""The features that a kind of store lacks, and why: the end of a sentence such as "has no range reads".

Features are those that topologies and scenarios can request of a store, by the key or value that requests it; and
``profile``, which is an option, and ``data``.
"""
ELECTIONS = "heartbeat_interval", "election_timeout"
RANGES = "span", "limit", "keysOnly", "countOnly"

# --- images and hosts -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Download:
    """A file to fetch; ``name`` is its name in an image, ``sha256`` in hex."""

    name: str
    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class ImageParts:
    """The parts of an image besides the base image, and ``Dockerfile`` and ``scripts`` of ``folder``.

    ``folder`` is one of the project's, that of the ``module`` or ``NAME_image`` unless it is given. ``module``: its
    programs are copied. ``packages``: packages of the distribution, installed on the base image. ``files`` are put
    beside the scripts, and so is the user's ``binary``, as ``USER_PROGRAM``. ``version`` is that of parts that are not
    pinned. ``gated``: it is for members, and contains the script with which they wait at their gates.
    """

    name: str
    scripts: tuple[str, ...] = ()
    module: GoModule | None = None
    packages: tuple[str, ...] = ()
    files: tuple[Download, ...] = ()
    version: str | None = None
    folder: str | None = None
    binary: UserProgram | None = None
    gated: bool = True

    @property
    def label(self) -> str:
        """Its name; images of versions that are not pinned, and of the user's programs, stay beside the others."""
        version = self.version or (self.module.version if self.module is not None else None)
        return "-".join(filter(None, (self.name, version, self.binary.short if self.binary is not None else None)))


@dataclass(frozen=True, slots=True)
class MemberStart:
    """How a member is started: the arguments after its image's entry point, and the directories that hold its data.

    ``secrets`` is the directory, in memory, for its files of a ``Trust``.
    """

    command: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    secrets: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def go_environment(memory_bytes: int | None) -> dict[str, str]:
    """The environment of a Go program below a memory limit; ``None`` is no limit."""
    # A tenth is left for memory that Go's collector does not count: stacks, the binary, kernel buffers.
    return {"GOMEMLIMIT": f"{memory_bytes * 9 // 10}B"} if memory_bytes else {}


@dataclass(frozen=True, slots=True)
class Trust:
    """The certificates of one run. Private keys exist only here and in the memory of the hosts.

    ``context`` is the driver's own. ``files`` belong into each host: by its name, contents by path. ``request`` are the
    fields that a request to the benchmark server needs so that members accept the load.
    """

    context: ssl.SSLContext
    files: Mapping[str, Mapping[str, bytes]] = field(repr=False)
    request: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LoadTerms:
    """How loads use a store: fields of requests to the benchmark server (benchmark_image/README.md).

    ``always`` is in each, ``puts`` in those that write and ``gets`` in those that read. ``leaderless``: loads cannot
    query who leads, so that requests for the leader go to the member that led when the scenario began, and stay there.
    ``second_tries``: a put may take two requests, one after the other, since the store has none that writes a key
    whether or not it exists.
    """

    always: Mapping[str, Any] = field(default_factory=dict)
    puts: Mapping[str, Any] = field(default_factory=dict)
    gets: Mapping[str, Any] = field(default_factory=dict)
    leaderless: bool = False
    second_tries: bool = False


# --- timing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A message that a leader repeats, and its answer: bytes in a TCP stream, at least."""

    interval_ms: int
    message_bytes: int
    answer_bytes: int


@dataclass(frozen=True, slots=True)
class Timing:
    """A store's timing, derived from the network: heartbeats, elections, and the like. By default it is unknown.

    ``short`` is its values in a few words, ``long`` with the source of each, ``values`` as JSON values with units in
    their names, and ``notes`` are sentences about values that do not suit the largest RTT between two members.
    ``settle_s``: seconds that a new cluster may take to agree on a leader, for estimates. ``member_timeout_s``: the
    shortest silence after which other members consider one gone; if it is unknown, the longest silence of a member
    that lives (``model.findings.SILENCE_MAX_S``). ``heartbeat``: the messages from an idle leader to each other member;
    ``None`` without heartbeats, or if they are unknown.
    """

    short: str = "timing not known"
    long: str = "its timing is not known"
    values: Mapping[str, int | str] = field(default_factory=dict)
    settle_s: float = 0.0
    member_timeout_s: float = 2.0
    heartbeat: Heartbeat | None = None
    notes: tuple[str, ...] = ()


def largest_rtt(largest: RttExpectation | None) -> tuple[float, str]:
    """The largest RTT between members in ms, 0 for a single member, and how notes on a timing refer to it."""
    rtt_ns = largest.expected_ns if largest else 0
    return rtt_ns / 10**6, f"the largest expected RTT between members, {format_ms(rtt_ns)} ms"


# --- floor ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a scenario from ``client`` to ``receiver``, one of ``members``, of which those in ``living`` answer.

    ``leader`` may be ``None`` for reads that involve none. ``sync_ns`` is how long each member takes for an fdatasync;
    needed for writes alone.
    """

    scenario: Scenario
    members: Sequence[str]
    living: Sequence[str]
    client: str
    receiver: str
    leader: str | None
    network: UnloadedNetwork
    sync_ns: Mapping[str, float]

    @property
    def followers_needed(self) -> int:
        """How many members complete a majority with the leader."""
        return len(self.members) // 2

    @property
    def written_bytes(self) -> int:
        """How long key and value of a write are together."""
        return key_bytes(self.scenario) + self.scenario.val_size

    def there_and_back_ns(self, a: str, b: str, message: int, answer: int) -> float:
        """From ``a`` sending ``message`` bytes to ``b`` until it has ``answer`` bytes of ``b``; 0 for one host."""
        if a == b:
            return 0.0
        return self.network.one_way_ns(a, b, message) + self.network.one_way_ns(b, a, answer)

    def client_ns(self, request: int, answer: int) -> float:
        """The client's own way to the member that gets its request, and back."""
        return self.there_and_back_ns(self.client, self.receiver, request, answer)

    def forwarded_ns(self, message: int, answer: int) -> float:
        """From the member that gets the request to the leader, and back; 0 without a leader."""
        return self.there_and_back_ns(self.receiver, self.leader or self.receiver, message, answer)

    def answered_ns(self, count: int, message: int, answer: int, sync_ns: Mapping[str, float]) -> float:
        """Until the leader has the answers of the ``count`` fastest others, each after its ``sync_ns``; 0 for none.

        Each gets a copy of its own over the leader's link, where copies of several frames may take turns. In whatever
        order frames go, the last one of the k-th copy to be complete is sent after k copies; at best those of the
        needed ones go first, that of the farthest of them before all others.
        """
        others = [member for member in self.living if member != self.leader]
        if not count or not others or self.leader is None:
            return 0.0
        leader = self.leader
        alone_ns, after_ns = [], []  # each by itself, and the part of that after its last frame was sent
        for member in others:
            ns = self.there_and_back_ns(leader, member, message, answer) + sync_ns.get(member, 0.0)
            alone_ns.append(ns)
            after_ns.append(ns - self.network.last_sent_ns(leader, member, message))
        copy_ns = self.network.sending_ns(leader, others[0], message)
        nearest_ns = enumerate(reversed(sorted(after_ns)[:count]), 1)
        return max(sorted(alone_ns)[:count][-1], *(sent * copy_ns + ns for sent, ns in nearest_ns))


class WriteSizes(NamedTuple):
    """A put or a transaction: from the client and back, forwarded to the leader, and from the leader to a follower."""

    request: int
    answer: int
    forwarded: int
    copied: int


def key_bytes(scenario: Scenario) -> int:
    """How long a key of a scenario is."""
    return len(scenario.key_prefix) + scenario.key_size


# --- the store --------------------------------------------------------------------------------------------------------


def path_problem(prefix: str) -> tuple[str, str] | None:
    """The fault of a prefix of keys that has to be a path, and the allowed form, if there is a fault."""
    if not is_path(prefix):
        return "has parts that are no names", "names with a slash after each, none of them '.' or '..'"
    return None


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The allowed content of a file that names the endpoints of an external cluster of this store.

    ``urls``: endpoints are URLs, and may use TLS. ``no_users`` is why no user can log in, ``None`` if one can.
    ``takes_token``: a token can be given. ``bad_prefix`` returns the fault of a prefix of keys and the allowed form, if
    there is a fault.
    """

    urls: bool = True
    no_users: str | None = None
    takes_token: bool = False
    bad_prefix: Callable[[str], tuple[str, str] | None] = lambda prefix: None


@dataclass(frozen=True, slots=True)
class Store(ABC):
    """One kind of store in one version; everything specific to it (flags, ports, API) is in its subclass.

    The class describes the kind, for topology files; an instance is the store that a topology chooses of it.
    """

    choice: StoreChoice

    name: ClassVar[str]
    """Its kind, as in topologies and rows."""
    title: ClassVar[str]
    """The name that its makers use, for sentences."""
    section: ClassVar[str]
    """The key of its settings in topology files; its name unless another one is given."""
    node: ClassVar[str]
    """The name of nodes without one, before their number; its own name unless another one is given."""
    program: ClassVar[str]
    """The program that a host's first process becomes; it waits at a gate until the network has been proved."""
    members: ClassVar[type[Member]]
    """The class of its members."""
    clusters: ClassVar[type[Cluster[Any]]]
    """The class of its clusters."""
    externals: ClassVar[type[ExternalCluster[Any]] | None] = None
    """The class of its external clusters; ``None`` if it cannot be measured as one."""
    endpoints: ClassVar[Endpoints] = Endpoints()
    """The allowed content of files with endpoints of an external cluster."""
    needs_binary: ClassVar[bool] = False
    """Whether a topology has to name a program for its members; no other kind takes one."""
    versions: ClassVar[Kind]
    """How a version is chosen."""
    flags: ClassVar[Mapping[str, Kind]] = {}
    """The flags that a topology may set."""
    lacks: ClassVar[Lacking] = {}
    """The features that it does not have, and why."""
    largest_value_bytes: ClassVar[int | None] = None
    """The largest value that it takes as it is set up here; ``None`` if no scenario can have a larger one."""
    keys_are_paths: ClassVar[bool] = False
    """Whether it takes no keys with an empty part, '.' or '..' between slashes."""
    most_members: ClassVar[int | None] = None
    """The number of members above which its documentation advises against adding any; ``None`` without such advice."""
    waits_for_majority: ClassVar[bool] = False
    """Whether writes and reads with `l` wait for the leader, and for answers of a majority to what it sends then."""
    follows_cpu_limit: ClassVar[bool] = False
    """Whether running members adapt to another CPU limit, and do not keep what they sized by that of their start."""
    setup_note: ClassVar[str | None] = None
    """A remark for users while its programs are built."""

    def __init_subclass__(cls) -> None:
        for attribute in ("section", "node"):
            if attribute not in vars(cls):
                setattr(cls, attribute, cls.name)

    @classmethod
    def default(cls) -> Self:
        """The store of a topology that names only the kind."""
        return cls(StoreChoice(cls.name))

    @classmethod
    def node_name(cls, index: int) -> str:
        """The name of the node at ``index`` (from 0) of a file that gives it none: etcd1, etcd2, ..."""
        return f"{cls.node}{index + 1}"

    @classmethod
    def clash(cls, flags: Mapping[str, int | str]) -> tuple[str, str, str] | None:
        """The fault of a combination of flags, if there is one: the flag, the fault, the allowed values."""
        return None

    def refused(self, scenario: Scenario) -> Iterator[tuple[str, str]]:
        """What a scenario needs and the store lacks: the key of its block, and why, as the end of a sentence."""
        if self.largest_value_bytes is not None and scenario.val_size > self.largest_value_bytes:
            yield "data", f"takes values of at most {self.largest_value_bytes} bytes"
        span, consistency = scenario.span, scenario.consistency
        needs = {
            ("txn", "type"): scenario.type == "txn",
            (CONSISTENCY_NAMES[consistency or "l"], "consistency"): consistency is not None,
            ("span", "spanKeys"): span.keys,
            ("span", "prefix"): span.prefix is not None,
            ("span", "span"): span.start is not None,
            ("limit", "limit"): span.limit is not None,
            ("keysOnly", "keysOnly"): span.answer == "keys",
            ("countOnly", "countOnly"): span.answer == "count",
            ("history", "history"): scenario.history,
        }
        for (feature, key), is_needed in needs.items():
            if is_needed and (reason := self.lacks.get(feature)) is not None:
                yield key, reason

    @property
    @abstractmethod
    def version(self) -> str:
        """The version that is going to run. Raises ``MissingRequirementError`` if the program is not complete."""

    @property
    @abstractmethod
    def image(self) -> ImageParts:
        """The parts of its members' image."""

    @property
    @abstractmethod
    def load_terms(self) -> LoadTerms:
        """How loads use it."""

    @property
    def client_port(self) -> int:
        return self.members.client_port

    @property
    def consistency(self) -> Mapping[str, str]:
        """Names of its reads in rows, by a scenario's consistency, where they differ from the usual ones."""
        return {}

    def timing(self, config: Config, largest: RttExpectation | None) -> Timing:
        """The timing for the largest RTT between members; values in the config take precedence.

        Raises ``ConfigError``.
        """
        return Timing()

    def slowed(self, timing: Timing, factor: int) -> tuple[Self, Timing]:
        """The store and its timing where everything runs ``factor`` times slower (``model.dilation``).

        Raises ``ValueError`` where it takes no such timing.
        """
        return self, slowed(timing, factor)

    @abstractmethod
    def start(self, node: Node, config: Config, timing: Timing, run_id: str, *, profiled: bool = False) -> MemberStart:
        """How the member of ``node`` is started; ``profiled``: so that profiles of it can be taken.

        ``node.memory_bytes`` is the limit as the kernel keeps it.
        """

    @abstractmethod
    def write_ns(self, request: Request) -> float:
        """The least latency of a put or a transaction: the sequential steps that its protocol makes it wait for."""

    @abstractmethod
    def read_ns(self, request: Request) -> float:
        """The same of a read."""

    def trust(self, config: Config) -> Trust | None:
        """New certificates for one run; ``None`` if its hosts need none."""
        return None

    def member_at(self, place: MemberPlace, prefix: str = "") -> Any:
        """The member at that place, one of ``members``; all keys that are read start with ``prefix``."""
        return self.members(place, prefix)

    def cluster(self, places: Sequence[MemberPlace]) -> Cluster[Any]:
        """The cluster of these members, not yet started."""
        return self.clusters([self.member_at(place) for place in places])

    def place(self, prefix: str) -> tuple[LoadTerms, str]:
        """How loads use an external cluster so that all their keys are under ``prefix``, and how each key begins."""
        return self.load_terms, prefix

    def external(
        self, config: Config, connections: Sequence[ExternalConnection], login: Login | None, own: OwnKeys
    ) -> ExternalCluster[Any]:
        """The external cluster of ``config``, each endpoint with its connection, in their order; sends nothing yet."""
        assert self.externals is not None
        return self.externals(self.member_at, config, connections, login, own)
