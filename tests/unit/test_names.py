"""Names of what is configured and measured: those of files and of columns are taken wherever one is to be named; texts
of files that become the names of files are never paths.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containernet_env.base.errors import ConfigError, UsageError
from containernet_env.base.files import NAME_MAX, file_name
from containernet_env.config.scenarios import load_scenarios
from containernet_env.config.sweeps import AXES, axis_name, load_sweep
from containernet_env.model.names import column_of, find
from containernet_env.report import paper
from containernet_env.results.columns import COLUMNS
from containernet_env.results.run_directory import (
    CLIENT_SUFFIX,
    STORE_SUFFIX,
    KeptHistory,
    RunDirectory,
    histories_of,
    history_name,
    missing_histories,
)
from containernet_env.results.run_files import ScenarioLine
from tests.unit import blocks
from tests.unit.report_rows import shown, sweep, write
from tests.unit.store_files import topology


def test_axes_and_their_columns_stand_for_each_other() -> None:
    columns = {axis: column for axis in AXES if (column := find(axis, COLUMNS))}
    assert {axis: axis_name(column) for axis, column in columns.items()} == {axis: axis for axis in columns}
    assert {"queue", "zipfExponent", "dataset.keys"} < {*AXES} - {*columns} and len(columns) > 20
    # A column counts where it is spelt exactly, in letters of other size the key of files.
    assert [find(name, COLUMNS) for name in ("Leader", "leader", "Total")] == ["Leader", "LeaderConfigured", "Total"]


COLUMNS_OF = {
    "LinkDelay_ms": ("link_delay", "linkdelay_ms", "link-delay", "Delay"),
    "Requests/sec": ("throughput", "requests/s", "Requests/sec", "rps"),
    "99.9%": ("p99.9", "P99.9", "99.9%"),
    "ValueSize": ("valSize", "val_size", "value_size"),
    "Heartbeat_ms": ("heartbeat_interval", "heartbeat", "Heartbeat_ms"),
    "ClientCpus": ("client.cpus",),
}
AXES_OF = {
    "link_delay": ("LinkDelay_ms", "link-delay", "delay"), "clients": ("ClientCount",), "valSize": ("ValueSize",),
    "client.mem": ("ClientMemory_bytes",), "etcd2.link_delay": ("etcd2.LinkDelay_ms",),
    "client.bandwidth": ("client.Bandwidth_mbps",), "etcd2.colour": ("etcd2.colour",),
}  # fmt: skip


def test_names_of_columns_and_of_axes() -> None:
    for column, names in COLUMNS_OF.items():
        assert {name: column_of("--x", name, COLUMNS) for name in names} == dict.fromkeys(names, column)
    for axis, names in AXES_OF.items():
        assert {name: axis_name(name) for name in names} == dict.fromkeys(names, axis)


def test_commands_take_either_name_and_suggest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two names in one option or in two; what is printed and the numbers behind a figure are the same."""
    monkeypatch.setattr(paper, "draw", lambda drawing, form: b"")  # it takes seconds
    out, figure = write(tmp_path / "out.csv", sweep(2, 2, 3)), tmp_path / "fig.svg"
    other = write(tmp_path / "other.csv", [{**row, "RunId": "run-2", "50%": "0.02"} for row in sweep(2, 2, 3)])
    plot = ("plot", out, "-o", figure)

    def answer(*words: object) -> tuple[str, str]:
        done = shown(*words)
        assert done.exit_code == 0, (words, done.output, done.exception)
        return done.output, figure.with_name("fig.svg.csv").read_text() if words[0] == "plot" else ""

    for words, option, names, columns in (
        (("results", out, "--csv"), "--by", ("link_delay", "bandwidth"), ("LinkDelay_ms", "bw")),
        (("compare", out, other), "--figure", ("p50", "throughput"), ("50%", "rps")),
        ((*plot, "--by", "bw,consistency", "--y", "p50"), "--x", ("link_delay",), ("LinkDelay_ms",)),
        ((*plot, "--by", "bw,consistency", "--x", "delay"), "--y", ("p50", "throughput"), ("P50", "Requests/sec")),
        (
            (*plot, "--x", "delay", "--y", "p50"),
            "--by",
            ("bandwidth", "consistency"),
            ("Bandwidth_mbps", "Consistency"),
        ),
    ):
        apart = [word for name in columns for word in (option, name)]
        assert answer(*words, option, ",".join(names)) == answer(*words, *apart), words
        mistyped = f"{names[-1][:-2]}{names[-1][-1]}"
        refused = shown(*words, option, mistyped).exception
        assert isinstance(refused, UsageError) and f"no such column, did you mean {names[-1]}?" in str(refused)


def test_a_mistyped_results_file_is_suggested(tmp_path: Path) -> None:
    """Topologies and presets were."""
    out = write(tmp_path / "mine.csv", sweep())
    figure = ("-o", tmp_path / "fig.svg", "--x", "link_delay", "--y", "p50")
    for typed in ("mien.csv", "mine.cvs", "Min", "mine"):
        path = tmp_path / typed
        for words in (
            *((name, path) for name in ("results", "show", "verify", "rerun", "export")),
            *(("compare", *two) for two in ((path, out), (out, path))),
            ("table", "clients", path),
            ("report", path, "-o", tmp_path / "page.html"),
            ("plot", path, *figure),
        ):
            refused = shown(*words).exception
            assert isinstance(refused, UsageError) and f"; did you mean {out}?" in str(refused), words
    for far in (tmp_path / "other.csv", tmp_path / "no" / "mine.csv", out):
        assert "did you mean" not in str(shown("show", far).exception)


def test_sweeps_take_either_name_and_suggest_for_typing_errors(tmp_path: Path) -> None:
    path = topology(tmp_path)
    made = load_sweep(path, ["LinkDelay_ms=1ms,5ms", "ClientCount=10,100", "conns=ClientCount/10"])
    (delay, clients, ratio) = made.dimensions
    assert [axis.name for one in (delay, clients) for axis in one.axes] == ["link_delay", "clients"]
    assert [(axis.name, of.of) for axis, of in ratio.ratios] == [("conns", "clients")]
    for settings, words in ((["LinkDelai_ms=1ms"], "did you mean "), (["clients=1", "ClientCount=2"], "clients twice")):
        with pytest.raises(ConfigError, match=words):
            load_sweep(path, settings)
    file = tmp_path / "sweep.json"
    file.write_text('{"topology": "topology.json", "axes": [{"LinkDelay_ms": ["1ms"]}]}')
    with pytest.raises(ConfigError, match='is not an axis, did you mean "link_delay"'):
        load_sweep(file)
    done = shown("sweep", path, "--ci-of", "50%", "--ci-of", "requests/sec", "--ci-of", "p5")
    assert "'p5' is not one of" in done.output


# --- texts of files, such as keys and names of scenarios, that become the names of files ------------------------------

# What keys in a scenario file may hold, and what is not checked before: names of hosts and scenarios of a script.
TEXTS = st.text(alphabet="a./_:-\\\0\n ä", max_size=12) | st.text(max_size=300)


@given(TEXTS, TEXTS)
def test_any_two_texts_are_two_names_in_one_folder(one: str, other: str) -> None:
    name = file_name(one)
    assert name.isascii() and 0 < len(name) <= NAME_MAX
    assert "/" not in name and not name.startswith(("-", ".")) and name.isprintable()
    assert (file_name(other) == name) == (one == other)


def test_a_name_is_readable() -> None:
    for text, name in {
        "blocks.write-cut:etcd1~etcd2@5s": "blocks.write-cut:etcd1-etcd2@5s-",
        "a" * (NAME_MAX + 1): "a" * (NAME_MAX - 11) + "-",
        "read-l-10x1x1-prefix:../../../../tmp/x": "read-l-10x1x1-prefix:..-..-..-..-tmp-x-",
        "..": "",
        "": "",
        "-rf": "rf-",
    }.items():
        assert file_name(text)[:-10] == name
    for text in ("read-leader-l-1000x1x1-a..b-limit10", "a" * NAME_MAX):
        assert file_name(text) == text


@pytest.mark.parametrize("prefix", ["../../../../../../tmp/leaving", "/etc/cron.d/x", "a/b/c/", "x:" * 100])
def test_the_prefix_of_a_scenario_leads_nowhere_but_to_its_run_directory(tmp_path: Path, prefix: str) -> None:
    file = blocks.write(
        tmp_path, {"dataset": {"keyPrefix": prefix, "keys": 10}, "scenarios": [blocks.reads(prefix=prefix)]}
    )
    (scenario,) = load_scenarios(file).scenarios
    assert prefix in scenario.name
    directory = RunDirectory(tmp_path / "kept/out.csv", "1-a")
    name = history_name(1, scenario.name, 1)
    line = ScenarioLine.model_construct(scenario=scenario.name, repetition=1, history=True, load=None)
    assert missing_histories([line], histories_of(directory.path)) == [scenario.name]
    directory.write_profile(name, "etcd1-cpu.pb.gz", b"profile")
    directory.write_history(name + CLIENT_SUFFIX, [b"done"])
    directory.write_history(name + STORE_SUFFIX, [b"final"])
    directory.write_log(scenario.name, "log")
    found = sorted(path.relative_to(directory.path) for path in tmp_path.rglob("*") if path.is_file() and path != file)
    parts = [(path.parts[0], len(path.parts)) for path in found]
    assert parts == [("history", 2), ("history", 2), ("logs", 2), ("profiles", 3)]
    (kept,) = histories_of(directory.path)
    ends = (directory.path / "history" / f"{name}{end}" for end in (CLIENT_SUFFIX, STORE_SUFFIX))
    assert kept == KeptHistory(name, *ends) and missing_histories([line], [kept]) == []
