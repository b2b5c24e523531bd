"""What a run needs of a store, whichever it is: how its members are started, and how the running cluster is queried.

``Store`` is pure and used by the plan; ``Cluster`` is the running one, reached through the connections it is given.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from containernet_env.base.assets import GoModule
from containernet_env.base.programs import LastWords, UserProgram, last_words
from containernet_env.model.backends import ProfileKind
from containernet_env.model.config import Config, Node, StoreChoice
from containernet_env.model.scenario import Scenario
from containernet_env.model.topology import RttExpectation
from containernet_env.model.usage import Leadership, StoreActivity
from containernet_env.stores.critical_path import Deployment
from containernet_env.stores.features import Lacking
from containernet_env.stores.flags import Flag

Broken = Callable[[], str | None]
"""Why waiting any longer is pointless; ``None`` while it is not."""


# How much is kept of the beginning of a value: more than names its writer.
_VALUE_BYTES = 32

NO_LEADER = "no leader can be elected, or stays one"
"""What follows from a timing that the network does not allow."""

# How long a cluster may take on a busy machine, whatever its network.
_START_S = 60.0

CLIENT_SECRETS = "/run/credentials"
"""The client's directory, in memory, for its files of a ``Trust``."""


@dataclass(frozen=True, slots=True)
class MemberStart:
    """How a member is started: what follows its image's entry point, and the directories that hold its data.

    ``secrets`` is the directory, in memory, for its files of a ``Trust``. ``environment`` is for programs that ask it.
    """

    command: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    secrets: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoadTerms:
    """How loads speak with a store: fields of requests to the benchmark server (benchmark_image/README.md).

    ``always`` is in each, ``puts`` in those that write and ``gets`` in those that read. ``leaderless``: no member tells
    loads who leads, so that what a scenario sends to the leader goes to whoever led when it began, and stays there.
    ``second_tries``: a put may take two requests, one after the other, since the store has none that writes a key
    whether or not it exists.
    """

    always: Mapping[str, Any] = field(default_factory=dict)
    puts: Mapping[str, Any] = field(default_factory=dict)
    gets: Mapping[str, Any] = field(default_factory=dict)
    leaderless: bool = False
    second_tries: bool = False


@dataclass(frozen=True, slots=True)
class Download:
    """A file that is fetched; ``name`` is what it is called in an image, ``sha256`` in hex."""

    name: str
    url: str
    sha256: str


USER_PROGRAM = "user-program"
"""What the user's program is called in images."""
GATE_SCRIPT = "wait-at-gate"
"""The first process of members' images, which becomes the program after it once the gate opens."""


@dataclass(frozen=True, slots=True)
class ImageParts:
    """What an image is made of, besides the base image, and ``Dockerfile`` and ``scripts`` of ``folder``.

    ``folder`` is one of the project's, that of the ``module`` or ``NAME_image`` unless it is given. ``module``: whose
    programs it gets. ``packages``: those of the distribution that are installed on the base image. ``files`` are put
    beside the scripts, and so is the user's ``binary``, as ``USER_PROGRAM``. ``version`` is that of what is not pinned.
    ``gated``: it is of members, and has the script with which they wait at their gates.
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
class Trust:
    """What the hosts of one run know each other by. Private keys are nowhere but here and in the hosts' memory.

    ``context`` is the driver's own. ``files`` are to be put into each host: by its name, contents by path. ``request``
    is what a request to the benchmark server must have for the load to be let in.
    """

    context: ssl.SSLContext
    files: Mapping[str, Mapping[str, bytes]] = field(repr=False)
    request: Mapping[str, str]


LeastLatencies = Callable[[Scenario, str, str | None], Iterable[tuple[float, float]]]
"""(scenario, member that is asked, leader) -> for each kind of operation its share, and its least latency in ns."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A message that a leader repeats, and its answer: bytes in a TCP stream, at least."""

    interval_ms: int
    message_bytes: int
    answer_bytes: int


class Timing(Protocol):
    """A store's timing, derived from the network: heartbeats, elections, and the like."""

    @property
    def settle_s(self) -> float:
        """Seconds that a new cluster may take to agree on a leader, for estimates."""

    @property
    def member_timeout_s(self) -> float:
        """After how many seconds of silence the other members take one for gone, at the earliest."""

    @property
    def short(self) -> str:
        """Its values in a few words."""

    @property
    def long(self) -> str:
        """Its values, and what decided each."""

    def values(self) -> Mapping[str, int | str]:
        """As JSON values, units in the names."""

    def notes(self, largest: RttExpectation) -> Iterator[str]:
        """Sentences about values that do not suit the largest RTT between two members."""

    @property
    def heartbeat(self) -> Heartbeat | None:
        """What an idle leader sends to each other member; ``None`` without heartbeats, or where they are unknown."""


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the driver waits for what crosses the network: longer where round trips are long or leaders come late.

    ``rtt_s`` is the longest round trip between two hosts; ``start_s`` is how long a cluster may take to be ready, and a
    member to rejoin it.
    """

    rtt_s: float = 0.0
    start_s: float = _START_S

    @classmethod
    def of(cls, timing: Timing, rtt_ns: int) -> Waits:
        """Beyond a minute as long as five times what the store's timing explains, and 20 round trips."""
        rtt_s = rtt_ns / 1e9
        return cls(rtt_s, max(_START_S, float(round(5 * timing.settle_s + 20 * rtt_s))))

    @property
    def request_s(self) -> float:
        """By how much the deadline of one request grows, whole seconds: eight round trips.

        A connection and its TLS take three, a proxy or a session one more, a consistent read at a follower two.
        """
        return float(round(8 * self.rtt_s))


NEAR = Waits()
"""Those of a network whose round trips are short."""


class Connection(Protocol):
    """A connection to one member, whatever network it is in; its requests cross no emulated link."""

    def request_json(self, port: int, method: str, path: str, body: Any = None, *, timeout_s: float) -> Any:
        """One HTTP request and its decoded answer; ``timeout_s`` bounds each wait. Raises ``RunError``."""

    def request_bytes(self, port: int, path: str, *, timeout_s: float) -> bytes:
        """The answer to a GET as it is; ``timeout_s`` bounds each wait. Raises ``RunError``."""

    def open(self, port: int, *, timeout_s: float) -> socket.socket:
        """A TCP connection to a port of the member. Raises ``RunError``."""


@dataclass(frozen=True, slots=True)
class Ping:
    """A question that costs a member nearly nothing: ``request`` on a connection to ``port``. Any bytes answer it."""

    connection: Connection
    port: int
    request: bytes


class MemberHost(Protocol):
    """What is needed of the host that a member runs on."""

    name: str

    @property
    def pid(self) -> int: ...

    @property
    def alive(self) -> bool: ...

    def ending(self, words: LastWords = last_words) -> str | None:
        """How its first process ended, in one line; ``None`` while it runs. ``words`` reads its log.

        As in "exit status 2: panic: ...", "killed by SIGKILL", "OOM-killed (memory limit 64 MiB)". Never raises: where
        that is not known, it says so.
        """

    def logs(self, tail: int = 20) -> str: ...


@dataclass(frozen=True, slots=True)
class MemberPlace:
    """Where a member runs: its host, its address on the emulated network, and the connection to it.

    ``endpoint``: the ``host:port`` at which it serves clients, where a file names that.
    """

    host: MemberHost
    ip: str
    connection: Connection
    endpoint: str | None = None


class Observation(Protocol):
    """Members that are observed: what they count themselves is read at the begin and at the end, and not between."""

    def end(self) -> StoreActivity:
        """What they counted since; takes a few seconds at most, and never raises."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile as the member gave it; ``before`` is what a cumulative one was at the begin.

    ``measured`` is which of its values it is about. ``problem`` is why there is no ``data``.
    """

    kind: ProfileKind
    measured: str
    data: bytes = b""
    before: bytes | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A write as the store itself has it: its revision, the key, and how the value begins.

    ``revision`` is 0 where the store has none. ``value`` is ``None`` where there is no such key.
    """

    revision: int
    key: str
    value: str | None

    @classmethod
    def of(cls, revision: int, key: str, value: bytes | None) -> Written:
        """One whose value is cut to its beginning."""
        text = None if value is None else value[:_VALUE_BYTES].decode(errors="replace")
        return cls(revision, key, text)


@dataclass(frozen=True, slots=True)
class OwnHistory:
    """What the store itself has of a load: every write, in order; with ``final`` only the last one of each key."""

    writes: Iterator[Written]
    final: bool = False


class Profiling(Protocol):
    """Profiles of one member that are taken: made, then ``begin``, ``end``, ``profiles``, ``close``.

    Nothing of it raises, nor takes longer than some seconds.
    """

    def begin(self) -> None:
        """The scenario begins."""

    def end(self) -> None:
        """It has ended; returns at once."""

    def profiles(self) -> Sequence[Profile]:
        """One of each kind; asks the member for them."""

    def close(self) -> None:
        """Take no profile any more. Idempotent."""


class Cluster(Protocol):
    """The running members, in config order. ``waits`` are set before ``start``, and when the network changes."""

    waits: Waits

    @property
    def endpoints(self) -> Mapping[str, str]:
        """``ip:port`` of each living member by its name, for clients."""

    @property
    def size(self) -> int:
        """How many members there are, the dead ones too."""

    def start(self, broken: Broken) -> Leadership:
        """Start every member, wait until all agree on a leader, and who that is. Raises ``RunError``."""

    def leadership(self) -> Leadership | None:
        """Who leads as at least a quorum says; ``None`` where there is nobody."""

    def leader_now(self, timeout_s: float, without: Collection[str]) -> str | None:
        """Who leads in the newest term that a member tells within ``timeout_s``; ``None`` where none does.

        Those in ``without`` are not asked: they are known to be silent.
        """

    def expect_death(self, name: str) -> None:
        """That member is killed next: its end is no death that ``deaths`` tells, until it has rejoined."""

    def rejoin(self, place: MemberPlace, broken: Broken) -> None:
        """Start the member of that place again, on its data, and return once it answers and knows a leader.

        Without a quorum that takes as long as that lacks. Raises ``RunError`` once the member has ended or ``broken``
        gives a reason.
        """

    def move_leader(self, name: str, timeout_s: float, broken: Broken) -> Leadership:
        """Make that member the leader, and return once all living members say that it is.

        Nothing happens where it leads already. Raises ``RunError`` where that member is dead, or once ``timeout_s`` are
        over or ``broken`` gives a reason.
        """

    def version(self) -> str:
        """The version that a living member reports. Raises ``RunError`` where none answers."""

    def deaths(self) -> Mapping[str, str]:
        """Dead members but those whose death was expected: name -> why, in config order."""

    def pings(self) -> Mapping[str, Ping]:
        """How each living member is asked whether it answers at all, by name; what it answers depends on no other.

        One of which no such question is known is left out.
        """

    def observe(self) -> Observation:
        """Begin to observe the living members; takes a few seconds at most, and never raises."""

    def profile(self, member: str, kinds: Sequence[ProfileKind]) -> Profiling | None:
        """Profile a member, whose store was started for that; ``None`` where it does not live."""

    def revision(self) -> int:
        """How many changes the store has seen, as its own numbering has it. Raises ``RunError``."""

    def written(self, prefix: str, since: int, keys: Collection[str], timeout_s: float) -> OwnHistory:
        """Every write of keys that start with ``prefix``, from a revision on up to the present.

        A store that does not tell past writes tells what each of ``keys`` holds now, by its strongest read; all of them
        start with ``prefix``. That begins when it is iterated, which raises ``RunError`` where the store does not have
        it any more, or does not answer.
        """

    def has_quorum(self) -> bool:
        """Whether enough members live for the store to take writes; false is never true again without a restart."""

    def answers(self, timeout_s: float) -> bool:
        """Whether every living member answers a consistent read within ``timeout_s``, and they are a quorum."""

    def close(self) -> None:
        """End helper threads; the members keep running."""


class Store(Protocol):
    """One kind of store in one version. Everything that only it knows (flags, ports, API) is behind this."""

    @property
    def name(self) -> str:
        """Its kind, as in topologies and rows."""

    @property
    def title(self) -> str:
        """What its makers call it, for sentences."""

    @property
    def version(self) -> str:
        """The version that is going to run. Raises ``MissingRequirementError`` where the program is not complete."""

    @property
    def image(self) -> ImageParts:
        """What its members' image is made of."""

    @property
    def lacks(self) -> Lacking:
        """What it cannot do, and why."""

    @property
    def load_terms(self) -> LoadTerms:
        """How loads speak with it."""

    @property
    def largest_value_bytes(self) -> int | None:
        """The largest value that it takes as it is set up here; ``None`` where no scenario can have a larger one."""

    @property
    def keys_are_paths(self) -> bool:
        """Whether it takes no keys with an empty part, '.' or '..' between slashes."""

    @property
    def consistency(self) -> Mapping[str, str]:
        """What its reads are called in rows, by a scenario's consistency, where they are not what that stands for."""

    @property
    def client_port(self) -> int:
        """Where its members serve clients."""

    @property
    def program(self) -> str:
        """What a host's first process, which waits at a gate until the network has been proved, becomes then."""

    def timing(self, config: Config, largest_member_rtt: RttExpectation | None) -> Timing:
        """The timing for the network; values in the config take precedence. Raises ``ConfigError``."""

    def start(self, node: Node, config: Config, timing: Timing, run_id: str, *, profiled: bool = False) -> MemberStart:
        """How the member of ``node`` is started; ``profiled``: so that profiles of it can be taken.

        ``node.memory_bytes`` is the limit as the kernel keeps it.
        """

    def last_words(self, log: str, killed: bool) -> str:
        """What a member's log tells of its end; see ``base.endings.LastWords``."""

    def least_latencies(self, deployment: Deployment) -> LeastLatencies:
        """What its protocol makes a request wait for."""

    def trust(self, config: Config) -> Trust | None:
        """A new trust for one run; ``None`` where its hosts need none."""

    def cluster(self, places: Sequence[MemberPlace]) -> Cluster:
        """The cluster of these members, not yet started."""


@dataclass(frozen=True, slots=True)
class StoreKind:
    """A kind of store, for topology files: what may be said of it, and the store that is meant then.

    ``version`` reads a version, ``flags`` a flag each. ``clash`` says what is wrong with several flags together, if
    anything: the flag, what is wrong with it, and what is allowed. ``member`` is what nodes without names are called,
    before their number: ``name`` where it is empty. ``needs_binary``: a topology has to name a program for its members;
    no other kind takes one. ``settings`` is the kind whose settings it has, its own without one.
    """

    name: str
    make: Callable[[StoreChoice], Store]
    version: Flag
    flags: Mapping[str, Flag]
    clash: Callable[[Mapping[str, int | str]], tuple[str, str, str] | None] = lambda flags: None
    member: str = ""
    needs_binary: bool = False
    settings: str | None = None

    @property
    def section(self) -> str:
        """The key of its settings in topology files."""
        return self.settings or self.name

    def node_name(self, index: int) -> str:
        """The name of the node at ``index`` (from 0) of a file that gives it none: etcd1, etcd2, ..."""
        return f"{self.member or self.name}{index + 1}"
