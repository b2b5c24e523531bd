"""bench/load's comparison for ZooKeeper: command lines, reports and the table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.load.measure import Sample
from bench.load.plan import OURS
from bench.load.zookeeper import CELLS, PEER, Cell, command, markdown, parse_peer
from containernet_env.base.errors import RunError

PROGRAMS = {OURS: Path("/ours"), PEER: Path("/peer")}


def test_both_tools_send_the_same_load() -> None:
    put, read = Cell(10, 100, "put", 50), Cell(1, 1, "range-l", 5)
    for tool, prefix in ((OURS, "--prefix=r1-"), (PEER, "--prefix=r1-")):
        argv = command(tool, put, 50, "r1-", "a:1", PROGRAMS)
        assert {"--conns=10", "--clients=100", "--total=50", "--val-size=64", prefix} <= set(argv)
    assert {"range", "read0", "--consistency=l", "--require-found"} <= set(command(OURS, read, 5, "", "a:1", PROGRAMS))
    assert {"--operation=range-l", "--prefix=read0"} <= set(command(PEER, read, 5, "", "a:1", PROGRAMS))
    assert len({cell.name for cell in CELLS}) == len(CELLS)


def test_a_report_of_the_peer_that_is_not_whole_is_refused() -> None:
    fields = {"ok": 5, "total_s": 1.0, "requests_per_s": 5.0, "p50_s": 0.1, "p99_s": 0.2}
    assert parse_peer(json.dumps(fields), 5).requests_per_s == 5.0
    for text in ("", "{}", json.dumps({**fields, "ok": 4})):
        with pytest.raises(RunError):
            parse_peer(text, 5)


def test_the_table_says_how_far_the_aim_is_met() -> None:
    def sample(tool: str, cell: str, cpu: float) -> Sample:
        return Sample(tool, cell, 1, 10, 1.0, 1.0, 10.0, cpu, 1.0, 2.0, 1_000_000, 0.001, 0.002)

    cells = (("put 1/1", 4.0), ("range-s 1/1", 6.0))
    samples = [s for cell, cpu in cells for s in (sample(OURS, cell, cpu), sample(PEER, cell, 10.0))]
    text = markdown(samples, "here")
    assert "| put 1/1 | 10 | ours | 10 | 1.00 | 4.0 | 0.40 | 2 | 1 | 1.00 | 1.00 | 2.00 |" in text
    assert "met in 1 of 2 cells; furthest from it range-s 1/1, 0.60." in text
