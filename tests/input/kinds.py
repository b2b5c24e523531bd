"""The kinds of generated inputs: how each is made, and what has to hold of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from containernet_env.base.errors import UsageError
from containernet_env.config.plan import PlanOptions, config_hash, plan_values
from containernet_env.config.planning import build_plan
from containernet_env.config.reader import read_document
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.config.writer import schema_of
from containernet_env.results.columns import COLUMNS, SEED_COLUMNS
from containernet_env.results.csv_file import ResultsFile, load
from containernet_env.runs.load import request_of
from containernet_env.runs.manifest import inputs_of
from tests.input import guard, texts, valid
from tests.unit.manifests import manifest, plan_of
from tests.unit.test_run_directory import OBSERVED, written

ROOT = Path(__file__).resolve().parents[2]
_SHIPPED = ROOT / "configs"
_PLAN = plan_of(_SHIPPED / "2node.json")


def _files() -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        directory = written(Path(folder))
        directory.write("manifest.json", manifest(_PLAN))
        directory.add_scenario(OBSERVED)
        paths = [path for path in directory.path.iterdir() if path.suffix in (".json", ".jsonl")]
        held = {path.name: path.read_text() for path in sorted(paths)}
    return {name: json.loads(text.splitlines()[-1] if name.endswith("l") else text) for name, text in held.items()}


FILES: dict[str, Any] = _files()
"""The files, by name; of those of lines, one line."""

INPUTS: dict[str, Any] = {name: json.loads(text) for name, text in inputs_of(_PLAN).items()}
"""The files of the folder ``inputs``, which `rerun` reads, and `report` the topology."""

CHECKSUMS = "".join(f"{'0' * 64}  {name}\n" for name in (*FILES, *INPUTS))
"""The lines of checksums.sha256."""
ALL_FILES = (*FILES, *INPUTS, "checksums.sha256")
_TOPOLOGY_NAME = "2node.json"
_REQUEST = json.loads((ROOT / "docs/benchmark-request.schema.json").read_text())


def _values(folder: Path) -> list[Any]:
    return [json.loads(json.dumps(read_document(path).value, default=float)) for path in sorted(folder.glob("*.json"))]


class Kinds:
    """Each method is the property of one kind; the scratch folder holds what its input is written to."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.topology = scratch / "topology.json"
        self.scenarios = scratch / "scenarios.json"
        self.out = scratch / "out.csv"
        self.run = scratch / "run"
        (self.run / "logs").mkdir(parents=True)
        (self.run / "inputs").mkdir()
        self.schema = {kind: Draft202012Validator(schema_of(kind)) for kind in ("config", "scenarios")}
        self.good_topology = str(_SHIPPED / "3node-3ms.json")

    @property
    def strategies(self) -> dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], None]]]:
        """Kind -> what is generated, and the property."""
        topologies = [*_values(_SHIPPED), *[valid.RICH_TOPOLOGY] * 2]
        scenarios = [*_values(_SHIPPED / "scenarios"), *[valid.RICH_SCENARIOS] * 2]
        return {
            "topologies": (texts.json_files(topologies), self.a_topology),
            "scenarios": (texts.json_files(scenarios), self.a_scenario_file),
            "valid": (st.tuples(valid.topologies(), valid.scenario_files()), self.valid_files),
            "tables": (_tables(), self.a_table),
            "runs": (_run_files(), self.a_run_directory),
            "words": (_command_lines(self), self.a_command_line),
        }

    def a_topology(self, content: bytes) -> None:
        """What `check` takes is planned, and the JSON Schema takes it too; what is refused names its file."""
        self.topology.write_bytes(content)
        # A good one may name a scenario file that is not there.
        self._checked("config", str(self.topology), named=(self.topology, "is refused:\n"))

    def a_scenario_file(self, content: bytes) -> None:
        """The same of scenario files."""
        self.scenarios.write_bytes(content)
        words = (self.good_topology, "--scenarios", str(self.scenarios))
        self._checked("scenarios", *words, named=(self.scenarios,))

    def _checked(self, kind: str, *words: str, named: Sequence[object]) -> None:
        result = guard.answer("check", *words)
        if not guard.judged(result, *named):
            _says_what_is_allowed(result.err)
            return
        planned = guard.answer("run", *words, "--dry-run")
        assert planned.code == 0, planned
        # As other readers of JSON have it: numbers that are no integers are floats.
        value = json.loads(json.dumps(read_document(Path(words[-1])).value, default=float))
        problems = [error.message for error in self.schema[kind].iter_errors(value)]
        assert not problems, problems

    def valid_files(self, files: tuple[Any, Any]) -> None:
        """What the documents allow is accepted and planned, its hashes tell the same however it is written, and the
        benchmark server takes every request that follows."""
        topology, scenarios = files
        self.topology.write_text(json.dumps(topology))
        self.scenarios.write_text(json.dumps(scenarios))
        scenario_words = ("--scenarios", str(self.scenarios))
        for words in (("check", str(self.topology)), ("run", str(self.topology), "--dry-run")):
            planned = guard.answer(*words, *scenario_words)
            assert planned.code == 0, planned
        guard.judgements["accepted"] += 1
        plan = self._plan()
        values = json.dumps(plan_values(plan), allow_nan=False)
        assert plan.estimated_s > 0
        endpoints = {member.name: f"{member.ip}:2379" for member in plan.config.nodes}
        for planned_scenario in plan.scenarios:
            path, body = request_of(planned_scenario.scheduled.scenario, endpoints, 60.0)
            Draft202012Validator(_REQUEST | {"anyOf": [{"$ref": f"#/$defs/{path.rpartition('/')[2]}"}]}).validate(body)
        self.topology.write_text(json.dumps(topology, indent=3, sort_keys=True))
        self.scenarios.write_text("// the same\n" + json.dumps(scenarios, indent=1, sort_keys=True))
        again = self._plan()
        assert config_hash(again) == config_hash(plan)
        assert [item.scheduled for item in again.scenarios] == [item.scheduled for item in plan.scenarios]
        assert len(json.dumps(plan_values(again))) == len(values)

    def _plan(self) -> Any:
        return build_plan(load_config(self.topology), load_scenarios(self.scenarios), PlanOptions(machine_cores=2))

    def a_table(self, case: tuple[bytes, tuple[str, ...]]) -> None:
        """`results` and `compare` show it or name it; a run would append to it whole or leave it as it is."""
        content, options = case
        self.out.write_bytes(content)
        form = [option for option in options if option == "--json"]
        guard.judged(guard.answer("compare", str(self.out), str(self.out), *form), self.out)
        guard.judged(guard.answer("results", str(self.out), *options), self.out, "--by")
        would = guard.judged(guard.answer("run", self.good_topology, str(self.out), "--dry-run"), self.out)
        assert self.out.read_bytes() == content
        results = ResultsFile(self.out)
        with guard.bounded():
            try:
                results.open()
            except UsageError as refusal:
                assert str(self.out) in str(refusal) and self.out.read_bytes() == content and not would
                return
            assert would
            try:
                self._appends(results, content)
            finally:
                results.close()

    def _appends(self, results: ResultsFile, content: bytes) -> None:
        before = self.out.read_bytes()
        if content.partition(b"\n")[1]:
            assert before.startswith(content)
        results.append({"TestType": "mark\n", "ClusterSize": "3"})
        after = self.out.read_bytes()
        assert after.startswith(before) and after.endswith(b"\n") and before.endswith(b"\n")
        assert after[len(before) :].count(b"\n") == 1
        with contextlib.suppress(UsageError):
            frame = load(self.out, lambda text: None)
            assert (frame["TestType"].iloc[-1], frame["ClusterSize"].iloc[-1]) == ("mark", 3)

    def a_run_directory(self, files: dict[str, bytes]) -> None:
        """`show` shows it and `rerun` would repeat it, or they name the file in which something is wrong."""
        for name in ALL_FILES:
            (self.run / name).unlink(missing_ok=True)
        for name, content in files.items():
            (self.run / name).write_bytes(content)
        guard.judged(guard.answer("show", str(self.run), "--events"), self.run)
        again = guard.answer("rerun", str(self.run), str(self.out), "--anyway", "--dry-run")
        if again.code != 3 or b"containernet" not in files.get("manifest.json", b""):
            # Values that contradict each other are refused by the name of the first file or of the option.
            guard.judged(again, self.run, _TOPOLOGY_NAME, "--congestion-control", "=")

    def a_command_line(self, words: list[str]) -> None:
        """Whatever the words are, the answer is 0 or a message with exit status 2, or 3 for what is not installed."""
        result = guard.answer(*words)
        if result.code != 3 or "containernet" not in words:
            guard.judged(result, "Error: ")


# Of what can be read as no value at all nobody knows what was meant.
_NO_VALUE = ("is not JSON", "is not UTF-8", "cannot be read")


def _says_what_is_allowed(message: str) -> None:
    """Each problem has its place in the file, and what may stand there."""
    first, *problems = message.splitlines()
    assert first.endswith(" is refused:") and problems, message
    for problem in problems:
        told = "; allowed: " in problem or any(said in problem for said in _NO_VALUE)
        assert told or problem.endswith(" more"), problem


def _run_files() -> st.SearchStrategy[dict[str, bytes]]:
    """Run directories; the inputs are always there, so that `rerun` gets as far as to compare."""
    found = {name: texts.json_files([base]) for name, base in FILES.items()}
    for name in found:
        if name.endswith(".jsonl"):
            found[name] = st.lists(found[name], max_size=3).map(b"\n".join)
    inputs = {name: st.just(json.dumps(base).encode()) | texts.json_files([base]) for name, base in INPUTS.items()}
    more = st.text(max_size=200).map(lambda text: (CHECKSUMS + text).encode("utf-8", "surrogatepass"))
    sums = st.just(CHECKSUMS.encode()) | st.binary(max_size=200) | more
    return st.fixed_dictionaries(inputs, optional=found | {"checksums.sha256": sums})


_CELLS = (
    *("1", "0", "-", "", "0.01", "1e999", "-1e999", "nan", "inf", "-inf", "9" * 30, "9" * 400, "1_000", "0x10"),
    *('"', '"a', 'a"b', '""', '"a,b"', "'", "\\", "[red]", "[/]", "=1+1", "yes", "True", "None", "NA", "1,5", " 1 "),
    *("\t", "\r", "\x00", "\x1b[31m", "\uff11", "\u202e", "\u2028", "\x85", "x" * 300, "x" * 140_000),
    "1" + "0" * 320 + ".5",
)
_HEADERS = (",".join(COLUMNS), ",".join(SEED_COLUMNS))
_FOREIGN = (
    *("a,b,c", "", "{}", _HEADERS[0].replace(",", ";"), _HEADERS[1].upper(), _HEADERS[0] + ",x", _HEADERS[1][:-1]),
    *('"' + _HEADERS[1], _HEADERS[0] + " ", "\ufeff" + _HEADERS[0], "x," * 100_000, "x" * 300_000),
)
# Strategies that are the same each time are made once: hypothesis examines each new one.
_ENDS = st.sampled_from(("\n", "\n", "\n", "\r\n", "\r", "", "\n\n", "\x0b"))
_FEW_CELLS = st.lists(st.sampled_from(_CELLS) | st.text(max_size=4), min_size=1, max_size=4)


@st.composite
def _rows(draw: st.DrawFn, columns: int) -> str:
    count = draw(st.sampled_from((columns, columns, columns, columns - 1, columns + 1, 1, 100_000)))
    # A few cells that repeat: drawing each of 70 would make the generator what is tested.
    few = draw(_FEW_CELLS)
    if count > columns + 1:
        few = ["1"]
    return ",".join(few[index % len(few)] for index in range(count)) + draw(_ENDS)


@st.composite
def _tables(draw: st.DrawFn) -> tuple[bytes, tuple[str, ...]]:
    """The bytes of a file, and options of `results`."""
    header = draw(st.sampled_from((*_HEADERS, *_HEADERS, draw(st.sampled_from(_FOREIGN)))))
    columns = header.count(",") + 1 if header in _HEADERS else 3
    rows = draw(st.lists(_rows(columns), max_size=4))
    text = header + draw(_ENDS) + "".join(rows)
    content = draw(texts.spoilt(text.encode(errors="surrogatepass"), draw(st.sampled_from((0, 0, 2)))))
    by = draw(st.sampled_from(((), (), ("--by", "TestType"), ("--by", "50%", "--by", "Error"), ("--by", "x"))))
    return content, (*by, *draw(st.sampled_from(((), (), ("--json",), ("--csv",)))))


def _command_lines(kinds: Kinds) -> st.SearchStrategy[list[str]]:
    kinds.topology.write_bytes(Path(kinds.good_topology).read_bytes())
    (kinds.scratch / "empty").write_bytes(b"")
    files = ["3node-3ms", "quick", str(kinds.topology), str(kinds.scratch), str(kinds.scratch / "empty"), "/dev/null"]
    odd = ["", "-", "--", "-h", "--help", "x" * 5000, "\udcff", "ä", "*", "[", "[!", "[a-", "?", "\n", "%s", "{}", "-1"]
    globs = ["write", "read", "*", "w*", "[w]*", "write,read", "!x", "**" * 50]
    numbers = ["0", "1", "1000", "1001", "-1", "1e3", "1.5", "9" * 30, "\uff11", "65535", "65536", "nan", " 1", "0x10"]
    tolerances = ["1ms", "15%", "1ms,15%", "15%,1ms", "1ms,1ms", ",", "%", "nan%", "1e9%", "-1%", "0.5ns"]
    known = ["check", "run", "results", "compare", "show", "rerun", "schema", "--version", "chek"]
    options = ["--only", "--repeat", "--rtt-tolerance", "--scenarios", "--links", "--switches", "--engine", "--strict"]
    options += ["--congestion-control", "--quick", "--by", "--json", "--csv", "--events", "--dry-run", "--repeat=1"]
    values = ["auto", "netem", "emulator", "ovs", "bridge", "builtin", "containernet", "cubic", "reno", "TestType"]
    text = st.text(st.characters(exclude_characters="\0"), max_size=6)
    word = st.one_of(*(st.sampled_from(one) for one in (files, odd, globs, numbers, tolerances, options, values)), text)
    pairs = st.one_of(
        st.tuples(st.just("--only"), st.sampled_from(globs + odd)),
        st.tuples(st.just("--repeat"), st.sampled_from(numbers)),
        st.tuples(st.just("--rtt-tolerance"), st.sampled_from(tolerances) | text),
        st.tuples(st.sampled_from(options), word),
        st.tuples(word),
    )
    rest = st.lists(pairs, max_size=4).map(lambda found: [one for pair in found for one in pair])
    return st.builds(
        lambda command, file, more: [command, *file, *more, *(["--dry-run"] if command in ("run", "rerun") else [])],
        st.sampled_from(known),
        st.lists(st.sampled_from(files * 3 + odd), max_size=2),
        rest,
    )
