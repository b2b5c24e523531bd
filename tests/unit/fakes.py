"""Fakes below a run: a cluster, a benchmark server, links and faults; a matrix, a testbed and whole runs on them."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containernet_env.base import clock
from containernet_env.base.errors import RunError
from containernet_env.base.work import Stop
from containernet_env.cli.terminal import StopSignals
from containernet_env.config.plan import Plan, PlannedScenario, PlanOptions
from containernet_env.hosts import netns
from containernet_env.hosts.container import SyncTimes
from containernet_env.hosts.counters import Pids
from containernet_env.hosts.netns import ProcessGoneError
from containernet_env.model.disruption import Disruption, Targets
from containernet_env.model.findings import Capacity
from containernet_env.model.load_result import LoadResult
from containernet_env.model.outcome import ScenarioOutcome
from containernet_env.model.proof import NetworkProof
from containernet_env.model.scenario import Dataset, Scenario, ScheduledScenario
from containernet_env.model.search import Probe
from containernet_env.model.usage import Consumers, Leadership, StoreActivity, Usage
from containernet_env.results.columns import RunFacts, row_of
from containernet_env.results.run_files import LinkFacts, Proof
from containernet_env.runs import machine
from containernet_env.runs import manifest as manifest_module
from containernet_env.runs import measure as measure_module
from containernet_env.runs import testbed as testbed_module
from containernet_env.runs.clean import Leftovers
from containernet_env.runs.load import Answer, Progress
from containernet_env.runs.matrix import Matrix
from containernet_env.runs.measure import measure
from containernet_env.runs.observer import Observer
from containernet_env.runs.progress import Silent
from containernet_env.runs.reuse import Change
from containernet_env.runs.target import Loader, Target
from containernet_env.runs.testbed import Testbed
from containernet_env.setup.images import Images
from containernet_env.stores.cluster import NEAR
from containernet_env.stores.store import LoadTerms
from tests.unit.answers import closed_loop
from tests.unit.manifests import LINKS, MACHINE, PROGRAM, bare_plan, plan_of

Patch = pytest.MonkeyPatch
MEMBERS = ("etcd1", "etcd2", "etcd3")
CONFIGS = Path(__file__).resolve().parents[2] / "configs"
CONFIG, QUICK = CONFIGS / "3node-3ms.json", CONFIGS / "scenarios" / "quick.json"
PLAN = plan_of()


def write(name: str, key_size: int = 8, val_size: int = 256, total: int = 1000) -> Scenario:
    sizes: dict[str, Any] = {"key_size": key_size, "val_size": val_size, "key_space": total}
    return Scenario(name=name, type="write", total=total, clients=10, conns=2, target="leader", **sizes)


def read(name: str) -> Scenario:
    """Of the data set."""
    sizes: dict[str, Any] = {"key_size": 8, "val_size": 256, "key_space": 1000}
    return Scenario(name=name, type="read", total=500, clients=10, conns=2, consistency="l", **sizes)


def result_of(ok: int = 1000, failed: int = 0) -> LoadResult:
    percentiles = dict.fromkeys(("10", "25", "50", "75", "90", "95", "99", "99.9"), 0.02)
    values: dict[str, Any] = {"ok": ok, "failed": failed, "done": ok + failed, "percentiles_s": percentiles}
    values |= {"outcomes": {"ok": ok, "failed": failed, "unknown": 0, "unsent": 0}, "requests_per_s": 100.5}
    values |= {"total_s": 10.0, "slowest_s": 0.05, "fastest_s": 0.018, "average_s": 0.02, "stddev_s": 0.001}
    values["response_time__percentiles_s"] = percentiles | {"99.99": None}
    return LoadResult.from_json(closed_loop(**values))


GOOD = Answer(result_of(), None)


class FakeCluster:
    """Three members; `dead` names those that died and why."""

    waits = NEAR

    def __init__(self) -> None:
        self.dead: dict[str, str] = {}
        self.leaders: Iterator[str | None] = iter(())
        self.answering = True
        self.late: list[str] = []
        self.catches_up_s = math.inf
        self.waited_s: list[float] = []
        self.term = 2
        self.led_by: str | None = "etcd1"
        self.moves: list[str] = []
        self.cannot_move: str | None = None
        self.expected: set[str] = set()
        self.size = 3
        self.asked = 0

    @property
    def endpoints(self) -> dict[str, str]:
        gone = self.dead.keys() | self.expected
        return {name: f"{name}:2379" for name in MEMBERS if name not in gone}

    def leader_now(self, timeout_s: float, without: Any) -> str | None:
        self.asked += 1
        return self.led_by if self.led_by not in without else None

    def kill(self, *names: str) -> None:
        self.dead |= {name: f"{name} was OOM-killed" for name in names}

    def expect_death(self, name: str) -> None:
        self.expected.add(name)

    def deaths(self) -> dict[str, str]:
        return dict(self.dead)

    def has_quorum(self) -> bool:
        return len(self.dead) <= 1

    def pings(self) -> dict[str, Any]:
        return {}

    def observe(self) -> Any:
        return SimpleNamespace(end=StoreActivity)

    def profile(self, member: str, kinds: Any) -> Any:
        return None

    def answers(self, timeout_s: float) -> bool:
        if self.has_quorum() and not self.answering:
            clock.sleep(timeout_s)
        return self.answering and self.has_quorum()

    query_s = 2.0

    def behind(self, timeout_s: float, hopeless: Callable[[str], bool]) -> list[str]:
        if self.late and not any(map(hopeless, self.late)):
            clock.sleep(min(timeout_s, self.catches_up_s))
            self.waited_s.append(timeout_s)
        return [name for name in self.late if name not in self.dead] if self.catches_up_s > timeout_s else []

    def leadership(self) -> Leadership | None:
        """Who leads by `leaders`, each time it is asked, and from its end on the last one; a change is a new term."""
        now = next(self.leaders, self.led_by)
        self.term += now != self.led_by
        self.led_by = now
        return Leadership(now, self.term) if now else None

    def move_leader(self, name: str, timeout_s: float, broken: Callable[[], str | None]) -> Leadership:
        self.moves.append(name)
        if (reason := broken() or self.cannot_move) is not None:
            raise RunError(f"{name} could not be made the leader: {reason}")
        self.term += name != self.led_by
        self.led_by = name
        return Leadership(name, self.term)


class FakeFaults:
    """Keeps what is done to members in ``done``; ``refused`` are calls that fail, with a reason."""

    def __init__(
        self,
        cluster: FakeCluster,
        links_at_once: bool = True,
        targets: Targets = Targets(MEMBERS),  # noqa: B008
    ) -> None:
        self.cluster = cluster
        self.targets = targets
        self.links_at_once = links_at_once
        self.done: list[tuple[str, Any]] = []
        self.refused: dict[str, str] = {}
        self.failure: type[Exception] = RunError
        self.given_up: list[str] = []
        self.sets: list[list[str]] | None = None
        self.down: set[str] = set()
        self.frozen: set[str] = set()
        self.values: dict[tuple[str, str], Any] = {}
        self.traced: tuple[Any, ...] = ()
        self.takes_s = 0.0

    def _note(self, verb: str, what: Any) -> int:
        if verb in self.refused:
            raise self.failure(self.refused[verb])
        self.done.append((verb, what))
        return clock.monotonic_ns()

    def _link(self, verb: str, what: Any) -> int:
        if not self.links_at_once:
            clock.sleep(self.takes_s)
        at_ns = self._note(verb, what)
        if self.links_at_once:
            clock.sleep(self.takes_s)  # for its answer
        return at_ns

    def partition(self, sets: Any) -> int:
        self.sets = [list(group) for group in sets]
        return self._link("partition", self.sets)

    def heal(self) -> int:
        self.sets = None
        return self._link("heal", None)

    def set_link_up(self, member: str, up: bool) -> int:
        (self.down.discard if up else self.down.add)(member)
        return self._link("up" if up else "down", member)

    def shape(self, member: str, event: Disruption) -> int:
        self.values[member, event.verb] = event.value
        return self._link(event.verb, member)

    def unshape(self, member: str, verbs: Any) -> int:
        for verb in verbs:
            self.values.pop((member, verb), None)
        return self._link("unshape", member)

    def follow(self, start_ns: int | None, of: str | None = None) -> int:
        return self._link("follow", (start_ns, of))

    def signal(self, verb: str, member: str) -> int:
        (self.frozen.add if verb == "freeze" else self.frozen.discard)(member)
        return self._note(verb, member)

    def wait_frozen(self, member: str, frozen: bool) -> None:
        assert (member in self.frozen) is frozen

    def restart(self, member: str, ready: Callable[[], None], broken: Callable[[], str | None]) -> int:
        at_ns = self._note("restart", member)
        ready()
        while not self.cluster.answering:
            if (reason := broken()) is not None:
                raise RunError(reason)
            clock.sleep(0.5)
        self.cluster.expected.discard(member)
        return at_ns

    def check(self, member: str) -> None:
        if "check" in self.refused:
            raise RunError(self.refused["check"])

    def give_up(self, reason: str) -> None:
        self.given_up.append(reason)

    @property
    def as_before(self) -> bool:
        """Whether nothing is in force."""
        return not (self.sets or self.down or self.frozen or self.values or self.cluster.expected)


class FakeServer:
    """Answers each benchmark by `behave(path, body)`, without errors; `cancel` sets `cancelled`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.cancelled = clock.Event()
        self.behave: Callable[[str, dict[str, Any]], Answer] = lambda path, body: GOOD
        self.began_ns: int | None = None

    def answer(self, *answers: Answer | Callable[[], object]) -> None:
        """Each benchmark after the other has such an answer, or what a call gives; the others have no errors."""
        rest = iter(answers)

        def behave(path: str, body: dict[str, Any]) -> Answer:
            given = next(rest, GOOD)
            found = given if isinstance(given, Answer) else given()
            return found if isinstance(found, Answer) else GOOD

        self.behave = behave

    def run(self, path: str, body: dict[str, Any], timeout_s: float) -> Answer:
        self.asked.append((path, body))
        return self.behave(path, body)

    def progress(self) -> Progress | None:
        return Progress(True, 1, 0, warmup_done=0, client_silent_s=0.0, began_ns=self.began_ns)

    def cancel(self) -> None:
        self.cancelled.set()


class FakeNet:
    """A network whose links saw what ``seen`` says, and whose emulator says ``hello``; ``hear`` takes its events."""

    hosts_kind, links_kind, switches_kind, link_backend = "docker", "emulator", "emulator", "the emulator"
    backend_name, backend_version, backend_commit = "containernet", "3.0", "c0ffee"
    hear: Any = None

    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.hello: dict[str, Any] = {}
        lateness = {"count": 9, "p99_ns": 20_000, "max_ns": 90_000}
        self.seen: dict[str, Any] = {"links": {}, "ports": {}, "lateness": lateness}

    def link_statistics(self, *, reset: bool = False, buckets: bool = False) -> dict[str, Any]:
        self.asked.append(reset)
        return self.seen

    def link_backend_facts(self) -> dict[str, Any]:
        return self.hello

    def link_backend_answers(self, timeout_s: float) -> bool:
        return True

    def on_event(self, handler: Any) -> None:
        self.hear = handler

    def stop(self) -> None: ...


NO_TIMES = {"count": 0, "p50_ns": 0, "p99_ns": 0, "max_ns": 0, "early_max_ns": 0, "too_early": 0}
NO_DROPS = dict.fromkeys(("buffers", "cut", "device", "down", "error", "loss", "oversize", "partition", "queue"), 0)
COUNTED = ("offered", "unmatched", "frames", "bytes", "in_flight", "queue_high_water", "queue_high_water_bytes")
IDLE: dict[str, Any] = dict.fromkeys(COUNTED, 0) | {
    "drops": NO_DROPS,
    "wire_delay": {"count": 0, "mean_ns": 0, "deviation_ns": 0},
    "lateness": NO_TIMES,
}


class FakeEmulator:
    """The ports and links that a link emulator holds by name; each direction of a link has ``counted`` what it did.

    ``sets`` are the ports that a partition keeps apart.
    """

    counted = IDLE

    def __init__(self) -> None:
        self.ports: dict[str, dict[str, Any]] = {}
        self.links: dict[str, dict[str, Any]] = {}
        self.traces: dict[str, list[dict[str, Any]]] = {}
        self.sets: list[list[str]] = []

    def carry_out(self, op: str, name: str = "", **fields: Any) -> Any:
        """The result of a request. Raises ``RunError`` where the emulator refuses it."""
        held = self.ports if op.endswith("port") else self.links
        if op in ("set_port", "remove_port", "set_link", "link_state", "read_link", "remove_link") and name not in held:
            raise RunError(f"there is no {op.partition('_')[2]} {name!r}")
        match op:
            case "add_port":
                self.ports[name] = fields
            case "add_link":
                sides = {side: self.counted | fields[side] for side in ("a_to_b", "b_to_a")}
                ends = [fields[end].get("port") for end in "ab"]
                self.links[name] = {"up": True, "admin_up": True, "stamps": "kernel", "ports": ends, **sides}
            case "set_link":
                for side, values in fields.items():
                    self.links[name][side] |= values
            case "add_trace":
                self.traces.setdefault(name, []).append(fields)
            case "follow":
                for side in ("a_to_b", "b_to_a"):
                    of = fields[side]
                    assert all(trace in self.traces for trace in of.values()), of
                    self.links[name][side].pop("traces", None)
                    if of:
                        self.links[name][side]["traces"] = {"rate": None, "delay": None, **of}
                return self.carry_out("read_link", name)
            case "link_state":
                self.links[name] |= {"up": fields["up"], "admin_up": fields["up"]}
            case "partition" | "heal":
                self.sets = fields.get("sets", [])
            case "read_link":
                return json.loads(json.dumps(self.links[name]))
            case "remove_port" if any(name in link["ports"] for link in self.links.values()):
                raise RunError("remove the link first")
            case "remove_port" | "remove_link":
                del held[name]
            case "stats":
                found = {"links": {name: self.carry_out("read_link", name) for name in self.links}, "ports": {}}
                of_all = {"switches": {}, "partition": None, "stamps": "kernel", "unmatched": 0, "lateness": NO_TIMES}
                return found | of_all
            case other:
                assert other in ("set_port", "add_switch", "remove_switch", "routes"), other
        return None


class FakeKernel:
    """What `tc`, `ip` and `ifconfig` answer, by what interfaces hold; a fixture of that name has it for `netns.run`.

    ``commands`` are the lines of tc's batches, ``ran`` those of all programs. ``refused`` are words of lines that fail,
    each with the error. A ``deaf`` one holds no qdiscs, a ``homeless`` one no addresses; ``gone`` are processes.
    """

    def __init__(self) -> None:
        self.ran, self.commands = list[str](), list[str]()
        self.refused: dict[str, str] = {}
        self.deaf = self.homeless = False
        self.gone: set[int] = set()
        self.qdiscs: dict[str, dict[str, dict[str, Any]]] = {}  # by interface and parent
        self.classes: dict[str, str] = {}
        self.filters: dict[str, int] = {}  # of interfaces that have a clsact
        self.addresses: dict[str, dict[str, Any]] = {}
        self.settings: dict[str, int] = {}
        self.dropped = self.waiting = 0

    def run(self, pid: int, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if pid in self.gone:
            raise ProcessGoneError(f"process {pid} is gone")
        program, *words = argv
        lines = [line.split() for line in options["input"].splitlines()] if "-batch" in words else [words]
        return subprocess.CompletedProcess(argv, 0, "".join([self._carry_out(program, line) for line in lines]), "")

    def _carry_out(self, program: str, words: list[str]) -> str:
        line = " ".join(words)
        self.ran.append(f"{program} {line}")
        if (error := next((self.refused[part] for part in self.refused if part in line), None)) is not None:
            raise RunError(error)
        match [program, *(word for word in words if word not in ("-j", "-s"))]:
            case ["tc", "qdisc", "show", "dev", name]:
                default = {"kind": "noqueue", "handle": "0:", "root": True}
                held = list(self.qdiscs.get(name, {}).values()) or [default]
                if "-j" not in words:
                    return "".join(f"qdisc {qdisc['kind']} {qdisc['handle']} root\n" for qdisc in held)
                return json.dumps([qdisc | {"drops": self.dropped, "qlen": self.waiting} for qdisc in held])
            case ["tc", "class", "show", "dev", name]:
                return self.classes.get(name, "")
            case ["tc", what, verb, "dev", name, *rest] if what == "filter" or rest == ["clsact"]:
                self._filter(f"{what} {verb}", name)
            case ["tc", "qdisc", "del" | "delete", "dev", name, "root"]:
                self.qdiscs.pop(name, None)
                self.classes.pop(name, None)
            case ["tc", what, _, "dev", name, *rest]:
                self.commands.append(line)
                if not self.deaf:
                    (self._set_class if what == "class" else self._set_qdisc)(name, rest, dict(pairwise(rest)))
            case ["ip", "link", "set", "dev", _, setting, value] if value.isdigit():
                self.settings[setting] = int(value)
            # Containernet's own way, and Mininet's.
            case ["ip", "address", "add", address, "dev", name] | ["ifconfig", name, address, "up"]:
                ip, _, length = address.partition("/")
                self.addresses[name] = {"family": "inet", "local": ip, "prefixlen": int(length)}
            case ["ip", "address", "show", "dev", name]:
                held = [] if self.homeless else [self.addresses[name]]
                return json.dumps([{"flags": ["UP"], "addr_info": held}])
            case ["ip", "link", "show", "master", switch]:
                up = {line.split()[1] for line in self.ran if line.startswith("ifconfig ")}
                return json.dumps([{"ifname": name} for name in sorted(up) if f"{switch}e" in name])
        return ""

    def _set_class(self, name: str, words: list[str], given: dict[str, str]) -> None:
        rate = re.sub(r"\.0+(?=\D)", "", given["rate"])
        overhead = f"overhead {given['overhead']} " if "overhead" in given else ""
        self.classes[name] = f"class htb {given['classid']} root prio 0 rate {rate} {overhead}ceil {rate} burst 15Kb\n"

    def _set_qdisc(self, name: str, words: list[str], given: dict[str, str]) -> None:
        options: dict[str, Any] = {"limit": int(given["limit"])} if "limit" in given else {}
        if "delay" in given:
            seconds = float(given["delay"].removesuffix("us")) / 1e6
            options["delay"] = {"delay": seconds, "jitter": 0, "correlation": 0}
        is_root, handle = words[0] == "root", given["handle"]
        made = {"kind": given[handle], "handle": handle, "root": is_root, "options": options}
        self.qdiscs.setdefault(name, {})["root" if is_root else given["parent"]] = made

    def _filter(self, what: str, name: str) -> None:
        if what == "qdisc add" and name in self.filters:
            raise RunError("Exclusivity flag on, cannot modify")
        if what in ("qdisc add", "qdisc replace"):
            self.filters.setdefault(name, 0)
        elif name not in self.filters:
            raise RunError("Error: Cannot find specified qdisc on specified device.")
        elif what == "qdisc delete":
            del self.filters[name]
        else:
            self.filters[name] = self.filters[name] + 1 if what == "filter add" else 0


@pytest.fixture
def kernel(monkeypatch: Patch) -> FakeKernel:
    made = FakeKernel()
    monkeypatch.setattr(netns, "run", made.run)
    return made


class Notes(Silent):
    """Keeps what the user is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


UNUSED: Any = SimpleNamespace(
    start=lambda: None, begin=lambda: None, end=lambda: Usage(0, Consumers()), close=lambda: None
)
"""In the place of a sampler: nothing is used, so how busy this machine is decides no verdict."""


def observing(target: Any, sampler: Any = UNUSED, keep_profile: Any = None) -> Observer:
    return Observer(target, sampler, keep_profile, lambda name, content: None)


class FakeTarget(Target):
    """Of three members, with nothing behind it."""

    member_timeout_s = 1.0
    led_at_start = Leadership("etcd1", 2)
    hosts_kind, links_kind = "docker", "emulator"
    faults: Any = None

    def __init__(self) -> None:
        self.cluster: Any = FakeCluster()
        self.server: Any = FakeServer()
        self.net: Any = FakeNet()
        self.client_host: Any = SimpleNamespace(alive=True, ending=lambda: None)
        self.load_terms, self.capacity = LoadTerms(), Capacity(2)

    def loader(self, client: str | None) -> Loader:
        return self.client_host, self.server

    def up(self) -> None: ...

    def down(self) -> None: ...

    def pids(self) -> Pids:
        return Pids({"etcd1": os.getpid()}, None, None, os.getpid())

    def host_facts(self) -> dict[str, Any]:
        return {}

    def logs(self) -> Iterator[tuple[str, str]]:
        yield "etcd1", "ready\n"


class Bench:
    """A matrix on fakes, the outcomes that it left (by ``leave``), and its events: kind and subject."""

    def __init__(self, *scenarios: Scenario, stop: Stop | None = None, dilation: int = 1, **options: Any) -> None:
        self.target: Any = FakeTarget()
        self.cluster, self.server, self.net = self.target.cluster, self.target.server, self.target.net
        self.progress = Notes()
        self.faults = self.target.faults = FakeFaults(self.cluster)
        self.outcomes: list[ScenarioOutcome] = []
        self.events: list[tuple[str, str | None]] = []
        self.leave: Callable[[ScenarioOutcome], str | None] = self.outcomes.append
        self.stop: Stop = stop or StopSignals()
        self.facts = RunFacts("run-1", PLAN)
        planned = tuple(
            PlannedScenario(ScheduledScenario(scenario, 1 + scenarios[:index].count(scenario)), False, 1.0)
            for index, scenario in enumerate(scenarios)
        )
        self.probes: list[tuple[Probe, ScenarioOutcome]] = []
        self.target.progress, self.target.stop = self.progress, self.stop
        self.target.on_event = lambda kind, text, subject=None: self.events.append((kind, subject))
        how = PlanOptions(2, dilation=dilation, **options)
        plan = replace(PLAN, scenarios=planned, dataset=Dataset(8, 256, 1000), options=how)
        self.target.plan = self.target.emulated = plan
        self.matrix = Matrix(
            self.target,
            lambda outcome: self.leave(outcome),
            observing(self.target),
            keep_probe=lambda probe, outcome: self.probes.append((probe, outcome)),
        )

    def run(self) -> list[str]:
        """The errors of the rows that the matrix leaves."""
        self.matrix.run()
        return self.errors()

    def fail(self, why: str) -> str:
        """The testbed fails."""
        self.target.failure = why
        return why

    def rows(self) -> list[dict[str, str]]:
        return [row_of(self.facts, outcome) for outcome in self.outcomes]

    def errors(self) -> list[str]:
        return [row["Error"] for row in self.rows()]

    def findings(self) -> list[str]:
        return [finding.text for outcome in self.outcomes for finding in outcome.findings]


# --- a testbed on a network that is not there -------------------------------------------------------------------------


def make_bed(monkeypatch: Patch, plan: Plan | None = None) -> Any:
    """A testbed on a fake network; ``events`` has the kind and text of each event, ``proofs`` each proof."""
    monkeypatch.setattr(testbed_module.engines, "create", lambda plan: FakeNet())
    events: list[tuple[str, str]] = []
    proofs: list[Proof] = []
    made: Any = Testbed(
        plan or bare_plan(),
        Images(member="e", benchmark="b"),
        Notes(),
        on_proof=proofs.append,
        on_event=lambda kind, text, subject=None: events.append((kind, text)),
    )
    made.events, made.proofs = events, proofs
    return made


# --- runs on testbeds of fakes, and what they left --------------------------------------------------------------------


def raising(error: BaseException) -> Callable[..., Any]:
    """Raises it whenever it is called."""

    def call(*arguments: object, **named: object) -> Any:
        raise error

    return call


class Beds(list["FakeTestbed"]):
    """The testbeds that were made, in order.

    ``at`` is what happens in a call of one, by the call's name. ``special`` is what a benchmark has, by its number from
    1: an answer, an error, or a call that may give one; all others have no errors. ``asked`` is how many there were.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[str, Callable[[FakeTestbed], object]] = {}
        self.special: dict[int, Any] = {}
        self.asked = 0

    def answer(self, path: str, body: dict[str, Any]) -> Answer:
        self.asked += 1
        found = self.special.get(self.asked)
        if isinstance(found, BaseException):
            raise found
        found = found() if callable(found) else found
        return found if isinstance(found, Answer) else GOOD


class FakeTestbed(FakeTarget):
    """Comes up and goes down; ``downs`` counts the latter."""

    beds = Beds()
    proved_again: NetworkProof | RunError = NetworkProof("after", ())

    def __init__(self, plan: Any, images: Any, progress: Any, **others: Any) -> None:
        super().__init__()
        self.plan = self.emulated = plan
        self.turned, self.rests = list[Change](), 0
        self.progress, self.stop, self.on_event = progress, others["stop"], others["on_event"]
        self.images: dict[str, str] = {}
        self.on_proof = others["on_proof"]
        self.ups = self.downs = 0
        self.sync = {"etcd1": SyncTimes(100, 500_000, 900_000)}
        self.server.behave = self.beds.answer
        self.cluster.version = lambda: "3.7.3"
        self.unproved: str | None = "not proved"
        self.beds.append(self)

    def _at(self, call: str) -> None:
        if (happens := self.beds.at.get(call)) is not None:
            happens(self)

    def up(self) -> None:
        self.ups += 1
        self._at("up")

    @contextmanager
    def causes_named(self) -> Iterator[None]:
        try:
            yield
        except RunError as error:
            raise RunError("etcd2 ended before the first scenario: killed by SIGKILL") from error

    def prove_again(self) -> NetworkProof:
        self._at("prove_again")
        if isinstance(self.proved_again, RunError):
            raise self.proved_again
        self.unproved = None if self.proved_again.passed else "its network is wrong"
        return self.proved_again

    @property
    def why_unfit(self) -> str | None:
        return self.failure or self.unproved

    def rest(self, loaded: bool) -> None:
        self.loaded = loaded
        self.rests += 1
        self._at("rest")

    def turn_to(self, plan: Any, change: Change, progress: Any, on_event: Any, on_proof: Any) -> None:
        self._at("turn_to")
        self.turned.append(change)
        if self.failure is not None:
            raise RunError(self.failure)
        self.plan = self.emulated = plan
        self.reused, self.on_proof = change.reused, on_proof
        self.progress, self.on_event = progress, on_event

    def down(self) -> None:
        self.downs += 1
        self._at("down")

    def link_facts(self) -> LinkFacts:
        return LINKS

    def host_facts(self) -> dict[str, Any]:
        self._at("host_facts")
        return {}


def on_fakes(monkeypatch: Patch) -> Beds:
    """Runs have fakes for testbeds, root, the lock and the engine from here on; gives the testbeds that are made."""
    beds = Beds()
    monkeypatch.setattr(measure_module, "require_root", lambda: None)
    monkeypatch.setattr(measure_module, "lock_for", lambda plan: nullcontext())
    monkeypatch.setattr(measure_module, "ready_images", lambda *of: Images(member="e", benchmark="b"))
    monkeypatch.setattr(measure_module.clean, "remove_leftovers", lambda: Leftovers((), ()))
    monkeypatch.setattr(measure_module, "keep_costs", lambda *_: None)  # this machine's own file stays as it is
    monkeypatch.setattr(measure_module, "AllUse", lambda *_: None)
    monkeypatch.setattr(measure_module, "Sampler", lambda *_: UNUSED)
    monkeypatch.setattr(machine, "facts", lambda: MACHINE)
    monkeypatch.setattr(manifest_module.images, "digest", lambda tag: f"sha256:{tag}")
    monkeypatch.setattr(manifest_module, "program_facts", lambda: PROGRAM)
    monkeypatch.setattr(measure_module, "Testbed", FakeTestbed)
    monkeypatch.setattr(FakeTestbed, "beds", beds)
    return beds


def run(out: Path, **arguments: Any) -> Any:
    return measure(CONFIG, QUICK, out, only=["write-leader-50x1x1-4B-64B"], **arguments)


def rows(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(out.read_text().splitlines()))


def events(out: Path) -> list[dict[str, Any]]:
    path = next(out.with_suffix(".runs").iterdir()) / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]
