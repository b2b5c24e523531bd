"""What a user reads of a topology or scenario file that is refused: each mistake alone, and that none hides another.

The messages are in the snapshot. After a change that is meant: pytest tests/unit/test_refused_files.py
--snapshot-update, and read the difference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from functools import reduce
from itertools import combinations
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import ConfigError
from containernet_env.config.plan import PlanOptions
from containernet_env.config.planning import build_plan
from containernet_env.config.reader import MAX_FILE_BYTES
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.topologies import load_config
from containernet_env.config.writer import schema_of
from containernet_env.model.scenario import MAX_SCENARIOS
from tests.unit.blocks import DATA, LOAD, OPEN, mixed, reads, txns, writes
from tests.unit.commands import run

HOST = {"ip": "10.0.0.1", "mem": "64m", "cpus": 1}
NODE = HOST | {"bandwidth": 10, "link_delay": "3ms"}
BESIDE = NODE | {"ip": "10.0.0.9"}
Load = Callable[[Path], Any]


def problems(tmp_path: Path, value: Any, load: Load = load_config) -> tuple[Any, ...]:
    """Every problem of a file that is refused, in the order of their places."""
    path = tmp_path / "file.json"
    content = value if isinstance(value, str | bytes) else json.dumps(value)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        load(path)
    found = caught.value.problems
    assert caught.value.file == str(path) and found
    assert [(one.line, one.column) for one in found] == sorted((one.line, one.column) for one in found)
    return tuple(found)


def refused(tmp_path: Path, values: Iterable[Any], load: Load = load_config) -> dict[str, str]:
    """By the beginning of its text: what is said of each file, a line for each problem.

    A last line says where the JSON Schema, which knows a value's form alone, takes the file.
    """
    told = {}
    schema = Draft202012Validator(schema_of("scenarios" if load is load_scenarios else "config"))
    for value in values:
        name = str(value) if isinstance(value, str | bytes) else json.dumps(value)
        name = name if len(name) < 400 else f"{name[:200]}... of {len(name)}"
        assert name not in told, name
        told[name] = "\n".join(str(problem) for problem in problems(tmp_path, value, load))
        if not isinstance(value, str | bytes) and schema.is_valid(value):
            told[name] += "\n(taken by the JSON Schema)"
    return told


# --- topologies -------------------------------------------------------------------------------------------------------

VALUES: dict[str, list[Any]] = {
    "ip": [
        *("10.0.0.999", "10.0.0.01", "10.0.0", "10.0.0.1/24", "::1", "127.0.0.1", "224.0.0.1", "0.0.0.0"),
        *(167772161, None),
    ],
    "mem": [
        *("512", "512mb", "0m", "15m", "-512m", "99999g", "512 m", "512MB", "512MiB", "1Gi", "1T"),
        *(512, 536870912, True, None),
    ],
    "cpus": [0, -1, "-1", "two", 0.001, 100_000, True, None, "2 cores", "50%", "many"],
    "bandwidth": [*(0, -5, 1e30, False, "1000", "1g", "100 Mbit", "1G", "1Gbit", "500kbit/s", "10MB/s", "none")],
    "link_delay": [
        *("3", "-3ms", "11s", "3 ms", "3min", "3msec", "3 milliseconds", "3MS", "500µs", "2sec", "1,5ms", " 3ms"),
        *("2min", "11 s", "soon", 3, {"ms": 3}),
    ],
}


@pytest.mark.parametrize("key", VALUES)
def test_a_value_that_a_node_cannot_have(tmp_path: Path, snapshot: SnapshotAssertion, key: str) -> None:
    """With what was found, what is allowed, and what to write where that can be guessed."""
    told = refused(tmp_path, ([BESIDE, NODE | {key: value}] for value in VALUES[key]))
    assert all(f", $[1].{key}: is " in text and "; allowed: " in text for text in told.values())
    assert [text.split(", $", 1)[1] for text in told.values()] == snapshot


def nodes(*changes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A topology with a node for each of these changes."""
    return {"nodes": [NODE | change for change in changes or ({},)], **more}


MANY = [{"ip": f"10.0.{index // 200}.{index % 200 + 1}"} for index in range(302)]
WITHOUT = [{name: value for name, value in NODE.items() if name != key} for key in NODE]
SHAPES = [
    *({}, [], 7, [1], [NODE] * 2, {"nodes": {}}, nodes(node=1), nodes(client=None), nodes(client={"speed": 1})),
    *([NODE | {"bandwith": 1}], [NODE | {"color": "red"}]),
    *({"nodes": [node]} for node in WITHOUT if "ip" in node),
    *(nodes(etcd=etcd) for etcd in ({"heartbeat": "1ms"}, {"data": "ram"}, {"heartbeat_interval": "1.5ms"})),
    *(nodes(etcd=etcd) for etcd in ({"heartbeat_interval": 100}, {"election_timeout": "51s"})),
    nodes(etcd={"heartbeat_interval": "0.5ms"}),  # no "30s": milliseconds are no minutes
    nodes(etcd={"heartbeat_interval": "100ms", "election_timeout": "499ms"}),
    *(nodes({"name": "near1"}, {"ip": "10.0.0.2"}, etcd={"leader": name}) for name in ("near2", "etcd1", "other", 1)),
    nodes({"name": "Near1"}, etcd={"leader": "near1"}),  # the leader may be the one that was meant
    *(nodes(subnet=subnet) for subnet in ("10.0.0.0/33", "10.0.0.1/24", "127.0.0.0/24")),
    nodes({}, {"ip": "10.0.0.2"}, subnet="10.0.0.0/30"),
    *(nodes(client={"ip": ip}) for ip in ("10.0.0.1", "10.9.0.1")),
    *([NODE, NODE | {"ip": ip}] for ip in ("10.0.1.1", "10.0.0.0", "10.0.0.255")),
    *(nodes(scenarios=""), nodes(*MANY[:301], subnet="10.0.0.0/16")),
    *(nodes({"name": name}) for name in ("", "1a", "A", "a_b", "-a", "a" * 64, "ä", 5, None)),
    *(nodes({"name": name}) for name in ("client", "benchmark", "s1", "link")),
    nodes({"name": "etcd2"}, {"ip": "10.0.0.2"}, {"ip": "10.0.0.3", "name": "etcd2"}),
    *(nodes({key: 1}) for key in ("bw", "delay", "cpu", "cpu_quota", "memory", "mem_limit", "Link-Delay", "loss")),
    *({"nodes": wrong, "client": {"cpus": 0, "ip": "10.9.0.1"}, "etcd": 5} for wrong in (5, None, "x")),
]


JITTER = {"distribution": "uniform", "value": "1ms"}
LINKS: list[dict[str, Any]] = [
    *({"loss": loss} for loss in ("1%", None, 1.5, True, {"good_to_bad_ratio": 2})),
    *({"jitter": jitter} for jitter in ("1ms", {"value": "0ms"}, JITTER | {"value": "1 us"})),
    *({"jitter": JITTER | change} for change in ({"distribution": "Normal"}, {"correlation": "7.9ms"})),
    {"jitter": JITTER | {"correlation": "9ms", "reorder": True}},
    {"to_switch": {"jitter": {"distribution": "normal", "value": "751us"}}},
    *({"queue": queue} for queue in (0, "5", "0b", 1.5, "64 k", "64KB")),
    *({"overhead": 1001}, {"overhead": "24b"}, {"uplink": "switch"}, {"from_switch": {"uplink": "host"}}),
    *({"seed": seed} for seed in (-1, 2**53, None)),
    *({"duplication": 1.1}, {"corruption": "1%"}, {"aqm": "red"}, {"aqm": {"target": "5ms"}}, {"aqm": "codle"}),
    {"aqm": {"kind": "codel", "flows": 8, "target": 5, "interval": "0s"}},
    {"aqm": {"kind": "fq_codel", "flows": 0, "quantum": 100, "ecn": 1}},
    {"aqm": "codel", "uplink": "host"},
    *({"delay": "3ms"}, {"los": 0.1}, {"bw": 5}, {"latency": "3ms"}, {"max_queue_size": 5}, {"to_switch": 5}),
    *({"to_switch": {}, "loss": 0.1}, {"to_switch": {"bandwidth": 5}, "from_switch": {"bandwidth": 5}}),
]


LINK_HOSTS: list[dict[str, Any]] = [
    *(NODE | {"link": link} for link in (*LINKS, 5, None)),
    NODE | {"bandwidth": "unlimited", "link": {"queue": 5, "overhead": 24, "uplink": "network", "aqm": "codel"}},
    HOST | {"link": {}},
    HOST | {"bandwidth": 5, "link": {"to_switch": {"delay": "3ms"}, "from_switch": {}}},
    NODE | {"mem": 5, "link": {"delay": "3ms", "loss": 2, "seed": "x"}},
]
LINK_FILES = [*({"nodes": [host]} for host in LINK_HOSTS), nodes(client={"link": {"queue": 9}})]

# --- scenarios --------------------------------------------------------------------------------------------------------

WRITES: list[dict[str, Any]] = [
    *({"type": kind} for kind in ("put", 5)),
    *({"load": load} for load in ([], {"clients": 1, "conns": 1})),
    *({"load": LOAD | change} for change in ({"duration": "1s"}, {"arrival": "poisson"}, {"clients": [1, 11]})),
    *({"load": LOAD | {"total": total}} for total in (0, True, 1.5, -1, 86_400_000_001)),
    *({"load": LOAD | change} for change in ({"total": 100_000, "rate": 1}, {"clients": 11}, {"timeout": "0s"})),
    *({"load": LOAD | change} for change in ({"stallTimeout": "10us"}, {"conns": 10_001})),
    *({"load": [LOAD, LOAD | {"conns": 0}]}, {"load": {"total": 20_000, "clients": 10_001, "conns": 1}}),
    *({"load": OPEN | {"duration": duration}} for duration in (10, "13h")),
    *({"load": OPEN | {"rate": rate}} for rate in (0, True, [5, "x"], [])),
    *({"load": OPEN | {"warmup": warmup}} for warmup in (0, "2h", True)),
    *({"load": OPEN | change} for change in ({"arrival": "even"}, {"rate": 0.1, "warmup": 1000})),
    *({"consistency": "l"}, {"spanKeys": 5}, {"verify": True}, {"zipfExponent": 1}),
    *({"target": target} for target in ("All", ["leader", 1])),
    *({"data": DATA | change} for change in ({"keySize": 1025}, {"valSize": (1 << 20) + 1})),
    *({"data": {"keySize": 4}}, {"load": OPEN, "data": DATA | {"keySize": 3}}),
    {"load": LOAD | {"total": 3845}, "data": [DATA, DATA | {"keySize": 2}]},
    {"load": LOAD | {"total": 62, "warmup": 1}, "data": {"keySize": 1, "valSize": 8}},
    *({"keySpace": 0}, {"keySpace": 62**4 + 1}, {"load": OPEN, "keys": "uniform"}),
]
SEARCH: dict[str, Any] = {"search": {"p99": "50ms"}, "clients": 100, "conns": 10}
OBJECTIVES: list[dict[str, Any]] = [
    *({"p99": limit} for limit in ("0ms", "-1ms", 50, "20s")),
    *({"p99": "50ms"} | more for more in ({"p50": "50ms"}, {"p999": "1s"}, {"from": 500, "to": 500}, {"within": 0})),
    *({"p99": "50ms"} | more for more in ({"from": 1_000_000}, {"from": 0.5}, {"to": 2_000_000}, {"repeats": 2})),
    *({"p99": "50ms", "step": "1ms"}, {}, {"p99": "50ms", "repeats": 0, "to": "x"}),
]
SEARCHES: list[dict[str, Any]] = [
    *({"load": SEARCH | change} for change in ({"total": 1000}, {"duration": "5s"}, {"rate": 100}, {"search": None})),
    *({"load": SEARCH | change} for change in ({"warmup": 100}, {"timeout": "50ms"}, {"total": 500, "rate": 7})),
    *({"load": SEARCH | {"search": search}} for search in OBJECTIVES),
]
READS: list[dict[str, Any]] = [
    *({"ratio": 0.5}, {"consistency": ["l", "x"]}, {"consistency": "linearizable"}, {"target": "Leader"}),
    *({"keys": "zipf"}, {"zipfExponent": 1}, {"keys": "zipfian", "zipfExponent": 0}, {"keySpace": 5}, {"verify": 1}),
    *({"spanKeys": keys} for keys in (0, [5, 10_001])),
    *({"spanKeys": 5, "prefix": "0"}, {"limit": 5}, {"spanKeys": 5, "limit": 0}, {"prefix": "0", "keys": "uniform"}),
    *({"prefix": prefix} for prefix in ("", "0*", "x")),
    *({"span": span} for span in ({"from": "a"}, {"from": "b", "to": "b"}, {"from": "a", "to": "b", "x": 1})),
    *({"keysOnly": True, "countOnly": True}, {"load": "y", "q": 1}),
    *({"load": LOAD | change} for change in ({"clients": "10"}, {"total": "10k"}, {"warmup": "2 s"})),
    *({"load": LOAD | {"timeout": timeout}} for timeout in ("5 s", 5, "2min")),
]
MIXED: list[dict[str, Any]] = [{"ratio": 1.1}, {"ratio": "20%"}, {"prefix": "0"}]
FILES: list[Any] = [
    *([], {}, {"scenarios": []}, {"scenarios": [writes()], "more": 1}, {"scenarios": [5]}),
    *({"scenarios": [block]} for block in ({"load": LOAD}, {"type": "txn"}, txns(consistency="l"))),
    {"scenarios": [{"type": "mixed", "load": LOAD, "consistency": "l"}]},
    *({"dataset": {"keyPrefix": prefix}, "scenarios": [reads()]} for prefix in ("0000", "a b")),
    {"dataset": {"keyPrefix": "d/"}, "scenarios": [reads(span={"from": "d/", "to": "e"})]},
    {"dataset": {"keySize": 1}, "scenarios": [reads()]},
    # Spans that are verified, and writes that may put keys between those of the data set.
    *({"scenarios": [span, writes()]} for span in (reads(spanKeys=5), reads(prefix="0000"), mixed(spanKeys=5))),
    {"scenarios": [reads(span={"from": "00000000", "to": "0000001"}), writes(data={"keySize": 7, "valSize": 1})]},
    {"scenarios": [writes(), writes(target=["cluster", "leader"])]},
    {"scenarios": [writes(load=[LOAD | {"total": n + 1} for n in range(MAX_SCENARIOS)], target=["leader", "cluster"])]},
]


@pytest.mark.parametrize(
    ("make", "changes"),
    [(writes, WRITES), (reads, READS), (mixed, MIXED), (writes, SEARCHES)],
    ids=["write", "read", "mixed", "search"],
)
def test_a_block_that_no_load_can_be_made_of(
    tmp_path: Path, snapshot: SnapshotAssertion, make: Callable[..., Any], changes: list[dict[str, Any]]
) -> None:
    told = refused(tmp_path, ({"scenarios": [make(**change)]} for change in changes), load_scenarios)
    assert {json.dumps(change): text for change, text in zip(changes, told.values(), strict=True)} == snapshot


def test_a_member_that_the_topology_does_not_have(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps([NODE]))
    value = {"scenarios": [reads(target=["etcd1", "etcd4"]), mixed(target="etcd5")]}
    options = PlanOptions(machine_cores=1)
    (told,) = refused(
        tmp_path, [value], lambda path: build_plan(load_config(config), load_scenarios(path), options)
    ).values()
    assert told.replace(str(config), "CONFIG") == snapshot


# --- texts ------------------------------------------------------------------------------------------------------------

CONFIG = """// a comment, "with": a string
{
  "subnet": "10.0.0.0/24", /* two
  lines "nodes": */ "nodes": [
    {"ip": "10.0.0.1", "mem": "512m", "cpus": 1,
     "bandwidth": 10, "link_delay": "1ms"},
    {
      "ip": "10.0.0.2", // "mem": 5
      "mem":
        5,
      "cpus": 1, "bandwith": 10, "cpus": 2,
      "link": {
        "to_switch": {"los": 0.1},
        "from_switch": {}
      }
    }
  ],
  "client": {"link": {"queue": "9 k"}},
  "etcd": {"heartbeat_interval": "100ms", "election_timeout": "0.4s"},
}
"""
# The timing is judged by the members that are good: the second one would make it worse.
TIMING = """{"nodes": [
  {"ip": "10.0.0.1", "mem": "64m", "cpus": 1, "bandwidth": "unlimited", "link_delay": "100ms"},
  {"ip": "10.0.0.2", "mem": "64m", "cpus": 0, "bandwidth": "unlimited", "link_delay": "9s"},
  {"ip": "10.0.0.3", "mem": "64m", "cpus": 1, "bandwidth": "unlimited", "link_delay": "100ms"}],
"etcd": {
  "election_timeout": "1999ms"}}"""
ALL_WRONG = """[ // all wrong
  {"ip": "10.0.0.999", "mem": "512", "cpus": true, "bandwith": 10, "link_delay": "3"},
  {"ip": "10.0.0.2", "mem": "1m", "cpus": 0, "bandwidth": NaN, "link_delay": "-3ms", "mem": "2m"},
  {"ip": "10.0.0.2", "mem": "1g", "cpus": 1, "bandwidth": 1, "link_delay": "1s"},
  {"ip": "10.0.7.2", "mem": "1g", "cpus": 1, "bandwidth": 1, "link_delay": "1s"}
]"""
COMMAS = '{"nodes": [\n {"ip": "10.0.0.1", "mem": "64m", "cpus": 0, "bandwidth": 1, "link_delay": "1ms",},\n], // x\n}'
TEXTS: list[str | bytes] = [
    *(CONFIG, TIMING, ALL_WRONG, COMMAS, '[1,]\n "x', '{"a": 1,}', "[1, // one\n 2, // two\n]"),
    *("[1 2]", "[1] [2]", "", " \n", "// x", "[1, /* open", "['a']", "[01]", "# x\n[]", '["a\nb"]'),
    *("[" * 100_000, "[" * 50 + "]" * 50, b"[\xff]", b'\xef\xbb\xbf["\xc3\xa4",\n "\xc3\xa4\xff"]', b"\x89PNG\r\n"),
    *(b" " * (MAX_FILE_BYTES + 1), r'{"\udd80": 1, "nodes": [{}]}', r'{"nodes": [{"ip": "10.0.0.1", "q\udc00": 1}]}'),
    r'{"store": {"kind": "http", "binary": "\ud800", "arguments": ["x", "\uDFFFx"]}, "nodes": "\ud83d\ude00"}',
    '{"a": {"b": 1, "b": 2}, "c": [NaN, -Infinity, 1e99999999999999999999999], "d e": ' + "9" * 5000 + "}",
]


@pytest.mark.parametrize(
    ("values", "load"),
    [(SHAPES, load_config), (LINK_FILES, load_config), (FILES, load_scenarios), (TEXTS, load_config)],
    ids=["topologies", "links", "scenario files", "texts"],
)
def test_every_place_of_a_file_that_is_refused(
    tmp_path: Path, snapshot: SnapshotAssertion, values: list[Any], load: Load
) -> None:
    assert refused(tmp_path, values, load) == snapshot


DOCUMENTED = """[
  {
    "ip": "10.0.0.1", "mem": "64m",
    "cpus": 1, "bandwidth": 1, "bw": 10,
    "link_delay": "3 ms"
  },
]
"""


def test_the_documentation_shows_what_a_user_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.json").write_text(DOCUMENTED)
    shown = run("check", "mine.json").err
    assert len(shown.splitlines()) == 4
    assert f"```text\n{shown}```" in (Path(__file__).resolve().parents[2] / "docs" / "config.md").read_text()


def test_a_list_of_very_many_problems_is_cut_and_too_many_of_something_hide_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_config(path)
    path.write_text(json.dumps([dict.fromkeys(NODE)] * 60))
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    first, *shown, last = str(caught.value).splitlines()
    assert (len(caught.value.problems), len(shown)) == (300, 200)
    assert (first, last) == (f"{path} is refused:", "  and 100 more")
    many = nodes(*MANY[:7], MANY[7] | {"cpus": 0}, *MANY[8:], etcd={"data": "ram"}, subnet="10.0.0.0/16")
    found = problems(tmp_path, many)
    assert [problem.path for problem in found] == ["$.nodes", "$.nodes[7].cpus", "$.etcd.data"]
    load = LOAD | {"clients": list(range(1, 11)), "rate": list(range(1, 201))}
    value = {"scenarios": [txns(load=load), reads(load=LOAD | {"conns": 0}), reads(spanKeys=20_000)]}
    found = problems(tmp_path, value, load_scenarios)
    assert [one.path for one in found] == ["$.scenarios", "$.scenarios[1].load.conns", "$.scenarios[2].spanKeys"]


# --- no mistake hides another -----------------------------------------------------------------------------------------

Mistakes = dict[str, tuple[tuple[Any, ...], Any]]
"""What is wrong, by the path that must be told: the place in a good document, and what is there instead of a value.

Any two must be told together.
"""


def combined(good: Any, mistakes: Mistakes) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each mistake alone, any two, and all of them: their paths, and the document that has them."""
    for number in (1, 2, len(mistakes)):
        for paths in combinations(mistakes, number):
            made = deepcopy(good)
            for (*way, key), wrong in map(mistakes.__getitem__, paths):
                reduce(getitem, way, made)[key] = wrong
            yield paths, made


CONFIG_MISTAKES: Mistakes = {
    "$.subnet": (("subnet",), 5),
    "$.more": (("more",), 1),
    **{f"$.nodes[0].{key}": (("nodes", 0, key), value) for key, value in {"cpus": 0, "mem": None, "bw": 1}.items()},
    "$.nodes[0].link.loss": (("nodes", 0, "link"), {"loss": []}),
    "$.nodes[1].ip": (("nodes", 1, "ip"), "10.0.0.1"),
    "$.nodes[1].name": (("nodes", 1, "name"), "etcd1"),
    "$.client": (("client",), []),
    "$.etcd.data": (("etcd", "data"), "ram"),
    "$.etcd.election_timeout": (("etcd", "election_timeout"), "499ms"),
    "$.scenarios": (("scenarios",), 0),
}


def test_no_mistake_of_a_config_hides_another(tmp_path: Path) -> None:
    good = nodes({}, {"ip": "10.0.0.2"}, etcd={"heartbeat_interval": "100ms"})
    for paths, value in combined(good, CONFIG_MISTAKES):
        assert {problem.path for problem in problems(tmp_path, value)} == set(paths), paths


OF_LOAD = {"clients": 11, "conns": 0, "arrival": "poisson", "duration": "1s", "totl": 1}
OF_BLOCK = {"type": "reed", "consistency": "x", "zipfExponent": 1, "countOnly": True, "verify": 5, "more": 1}
BLOCK_MISTAKES: Mistakes = {
    **{key: ((key,), value) for key, value in (OF_BLOCK | {"target": []}).items()},
    **{f"load.{key}": (("load", key), value) for key, value in OF_LOAD.items()},
}
# Which of them only the type of the block tells.


def test_no_mistake_of_a_block_hides_another(tmp_path: Path) -> None:
    """Beside a mistake of the data set, of another block and of the file itself; one needs the type of the block."""
    small = writes(data={"keySize": 1, "valSize": 1}, load=LOAD | {"total": 100})
    for paths, block in combined(reads(keysOnly=True), BLOCK_MISTAKES):
        value = {"scenarios": [block, txns(), txns(), small], "dataset": {"keys": 0}}
        told = {f"$.scenarios[0].{path}" for path in paths if "type" not in paths or path != "countOnly"}
        found = {problem.path for problem in problems(tmp_path, value, load_scenarios)}
        assert found == told | {"$.scenarios[2]", "$.scenarios[3].data.keySize", "$.dataset.keys"}, paths
