"""Every problem of a file carries the line and the column that a user has to go to."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from containernet_env import cli
from containernet_env.base.errors import ConfigError
from containernet_env.config import load_config
from containernet_env.config.positions import Positions
from containernet_env.config.reader import parse_document, strip_comments
from containernet_env.config.scenarios import load_scenarios
from containernet_env.model.config import Config
from containernet_env.plan.build import build_plan
from containernet_env.plan.plan import PlanOptions


def refused(tmp_path, text, load=load_config):
    """The lines of what a user sees, without the first one."""
    path = tmp_path / "file.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load(path)
    places = [(problem.line, problem.column) for problem in caught.value.problems]
    assert places == sorted(places)
    return [line.strip().split("; allowed")[0] for line in str(caught.value).splitlines()[1:]]


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


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (r'{"\udd80": 1, "nodes": [{}]}', r'line 1, column 2, $["\udd80"]'),
        (r'{"nodes": [{"ip": "10.0.0.1", "q\udc00": 1}]}', r'line 1, column 31, $.nodes[0]["q\udc00"]'),
    ],
)
def test_a_key_that_is_half_a_character_is_named(tmp_path, text, place):
    """JSON can write one; it was 'unable to parse raw data as a unicode string', of the whole object."""
    assert [line.split("; got")[0] for line in refused(tmp_path, text) if "is no Unicode text" in line] == [
        f"{place}: is no Unicode text"
    ]


def test_a_value_with_half_a_character_is_named_once(tmp_path):
    text = r'{"store": {"kind": "http", "binary": "\ud800", "arguments": ["x", "\uDFFFx"]}, "nodes": "\ud83d\ude00"}'
    found = [line for line in refused(tmp_path, text) if "$.store.binary" in line or "arguments" in line]
    assert found == [
        r'line 1, column 38, $.store.binary: is no Unicode text; got "\ud800"',
        r'line 1, column 67, $.store.arguments[1]: is no Unicode text; got "\udfffx"',
    ]


def test_comments_nested_objects_keys_given_twice_missing_and_unknown(tmp_path):
    assert refused(tmp_path, CONFIG) == [
        "line 7, column 5, $.nodes[1].link_delay: is missing",
        "line 7, column 5, $.nodes[1].bandwidth: is missing",
        "line 10, column 9, $.nodes[1].mem: is not an amount of memory; got 5",
        'line 11, column 18, $.nodes[1].bandwith: is not a known key, did you mean "bandwidth"?; got 10',
        "line 11, column 34, $.nodes[1].cpus: is given more than once; got 2 again",
        'line 13, column 23, $.nodes[1].link.to_switch.los: is not a known key, did you mean "loss"?; got 0.1',
        "line 18, column 32, $.client.link.queue: is not a queue limit, no space between number and unit: "
        'write "9k"; got "9 k"',
        'line 18, column 32, $.client.link.queue: limits nothing; got "9 k"',
        'line 19, column 63, $.etcd.election_timeout: is too short for the heartbeat; got "0.4s"',
        "line 19, column 70: has a comma with nothing after it; got ,",
    ]


DOCUMENTED = """[
  {
    "ip": "10.0.0.1", "mem": "64m",
    "cpus": 1, "bandwidth": 1, "bw": 10,
    "link_delay": "3 ms"
  },
]
"""


def test_the_documentation_shows_what_a_user_sees(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.json").write_text(DOCUMENTED)
    with pytest.raises(SystemExit):
        cli.main(["check", "mine.json"])
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 4
    assert f"```text\n{shown}```" in (Path(__file__).resolve().parents[2] / "docs" / "config.md").read_text()


SCENARIOS = """{"scenarios": [
  {"type": "write", "data": {"keySize": 1, "valSize": 1},
   "target": ["leader",
     "etcd9"],
   "load": {"total": 100, "clients": 1, "conns": 1}},
  {"type": "reads", "load": {"total": 5,
     "clients": 6, "conns": 1}}
]}"""


def test_a_scenario_file(tmp_path):
    assert refused(tmp_path, SCENARIOS, load_scenarios) == [
        "line 2, column 41, $.scenarios[0].data.keySize: is too small for 100 different keys; got 1",
        'line 6, column 12, $.scenarios[1].type: is not one of the choices: write "read"; got "reads"',
        "line 7, column 17, $.scenarios[1].load.clients: is more than there are requests; got 6",
    ]


def test_a_member_that_the_topology_does_not_have(tmp_path):
    text = SCENARIOS[: SCENARIOS.index(",\n  {")].replace('"keySize": 1', '"keySize": 4') + "\n]}"
    config = tmp_path / "config.json"
    config.write_text('[{"ip": "10.0.0.1", "mem": "64m", "cpus": 1, "bandwidth": 10, "link_delay": "1ms"}]')

    def load(path) -> Config:
        return build_plan(load_config(config), load_scenarios(path), PlanOptions(machine_cores=1))

    assert refused(tmp_path, text, load) == [
        f'line 4, column 6, $.scenarios[0].target[1]: is not a member of {config}; got "etcd9"'
    ]


def test_a_timing_that_cannot_go_with_the_rtt(tmp_path):
    text = """{"nodes": [
      {"ip": "10.0.0.1", "mem": "64m", "cpus": 1, "bandwidth": "unlimited", "link_delay": "100ms"},
      {"ip": "10.0.0.2", "mem": "64m", "cpus": 0, "bandwidth": "unlimited", "link_delay": "9s"},
      {"ip": "10.0.0.3", "mem": "64m", "cpus": 1, "bandwidth": "unlimited", "link_delay": "100ms"}],
    "etcd": {
      "election_timeout": "1999ms"}}"""
    # Of the members that are good: the second one would make it worse.
    assert refused(tmp_path, text) == [
        "line 3, column 48, $.nodes[1].cpus: is out of range; got 0",
        "line 6, column 27, $.etcd.election_timeout: is too short for the heartbeat of 400ms, "
        "which follows from the largest RTT; got 1999ms",
    ]


def test_every_comma_too_much_is_told_beside_what_else_is_wrong(tmp_path):
    text = (
        '{"nodes": [\n {"ip": "10.0.0.1", "mem": "64m", "cpus": 0, "bandwidth": 1, "link_delay": "1ms",},\n], // x\n}'
    )
    assert refused(tmp_path, text) == [
        "line 2, column 43, $.nodes[0].cpus: is out of range; got 0",
        "line 2, column 81: has a comma with nothing after it; got ,},",
        "line 2, column 83: has a comma with nothing after it; got ,",
        "line 3, column 2: has a comma with nothing after it; got ,",
    ]
    assert refused(tmp_path, '[1,]\n "x') == [
        "line 1, column 3: has a comma with nothing after it; got ,]",
        'line 2, column 2: has more text after the end of the JSON value; got "x',
    ]


def test_the_earlier_one_of_a_key_given_twice_has_its_own_place():
    text = '{"a": {"b": 1},\n "a": 5, "a": [1,\n 2]}'
    positions = Positions(text)
    value, findings = parse_document(text)
    assert value == {"a": [1, 2]}
    assert [positions.line_and_column(positions.offset(f.location, f.at_key)) for f in findings] == [(2, 2), (2, 10)]
    assert positions.line_and_column(positions.offset(("a", 1))) == (3, 2)
    assert positions.line_and_column(positions.offset(("a", 7, "c"))) == (2, 15)
    assert positions.line_and_column(positions.offset(("x", "y"))) == (1, 1)


KEYS = st.text(alphabet='ab"\\/*,:{}[] \näß', max_size=5)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | KEYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=25,
)


def gaps(seed):
    """A source of what may stand between two tokens."""
    drawn = random.Random(seed)
    return lambda: "".join(drawn.choices([" ", "\n", "\t", '/* \n" */', '// "x\n', ""], k=drawn.randint(0, 3)))


def written(value, gap, location=(), places=None, at=0):
    """A text of a value with gaps between all tokens; the offset of every value and key is kept in ``places``."""
    text = gap()
    places[location] = at + len(text)
    if isinstance(value, dict):
        text += "{"
        for index, (key, item) in enumerate(value.items()):
            text += ("," if index else "") + gap()
            places[(*location, key), "key"] = at + len(text)
            text += json.dumps(key) + gap() + ":"
            text += written(item, gap, (*location, key), places, at + len(text))
        text += gap() + "}"
    elif isinstance(value, list):
        text += "["
        for index, item in enumerate(value):
            text += "," if index else ""
            text += written(item, gap, (*location, index), places, at + len(text))
        text += gap() + "]"
    else:
        text += json.dumps(value, ensure_ascii=False)
    return text + gap()


@settings(deadline=None)
@given(DOCUMENTS, st.integers())
def test_every_value_and_key_of_any_document_is_found(value, seed):
    places = {}
    text = written(value, gaps(seed), (), places)
    assert parse_document(text) == (value, [])
    positions = Positions(strip_comments(text))
    for place, offset in places.items():
        at_key = bool(place) and place[-1] == "key" and isinstance(place[0], tuple)
        assert positions.offset(place[0] if at_key else place, at_key) == offset
        line, column = positions.line_and_column(offset)
        assert sum(len(part) + 1 for part in text.split("\n")[: line - 1]) + column - 1 == offset


NODE = {
    "ip": "10.0.0.{}",
    "mem": "64m",
    "cpus": 1,
    "bandwidth": 10,
    "link": {"delay": "3ms", "jitter": {"distribution": "uniform", "value": "1ms"}, "loss": 0.5},
}
MUTATIONS = [
    (("ip",), "x"),
    (("mem",), "64 m"),
    (("cpus",), -1),
    (("bandwidth",), "1G"),
    (("link", "delay"), "3msec"),
    (("link", "jitter", "value"), "1"),
    (("link", "jitter", "distribution"), {}),
    (("link", "loss"), [0.5]),
]


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(), st.data())
def test_one_wrong_value_in_any_valid_config_is_told_on_its_line(tmp_path_factory, count, seed, data):
    nodes = [json.loads(json.dumps(NODE).replace("{}", str(index + 1))) for index in range(count)]
    index = data.draw(st.integers(0, count - 1))
    (*way, key), wrong = data.draw(st.sampled_from(MUTATIONS))
    target = nodes[index]
    for step in way:
        target = target[step]
    target[key] = wrong
    location = ("nodes", index, *way, key)
    places = {}
    text = written({"subnet": "10.0.0.0/24", "nodes": nodes}, gaps(seed), (), places)
    path = tmp_path_factory.mktemp("config") / "config.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    (problem,) = caught.value.problems
    before = text[: places[location]]
    assert (problem.line, problem.column) == (before.count("\n") + 1, len(before) - before.rfind("\n"))
    assert problem.path.endswith(f".{key}")
