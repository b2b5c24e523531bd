"""Names of what is configured and measured: those of files and of columns are taken wherever one is to be named."""

from __future__ import annotations

from pathlib import Path

import pytest

from containernet_env.base.errors import ConfigError, UsageError
from containernet_env.config.sweeps import AXES, axis_name, load_sweep
from containernet_env.model.names import column_of, find
from containernet_env.report import paper
from containernet_env.results.columns import COLUMNS
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
