"""What a dry run refuses: all that the run would refuse later than its plan, without making anything."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import mininet.net
import pytest

from containernet_env.base.errors import MissingRequirementError, UsageError
from containernet_env.containernet import engines
from containernet_env.results import run_directory
from containernet_env.results.csv_file import FORMS, ResultsFile
from containernet_env.runs import preflight
from tests.unit.manifests import bare_plan

OURS = ",".join(FORMS[0])


@pytest.fixture(autouse=True)
def kernel(monkeypatch, tmp_path):
    """A kernel without netem and with two congestion controls; the user is root. Changed by what a test sets."""
    controls = tmp_path / "controls"
    controls.write_text("reno cubic\n")
    monkeypatch.setattr(preflight, "_CONGESTION_CONTROLS", controls)
    monkeypatch.setattr(preflight.os, "geteuid", lambda: 0)

    def choose(asked):
        if asked == "netem":
            raise MissingRequirementError("this kernel has no netem", "Use --links emulator, or auto.")
        return "emulator"

    monkeypatch.setattr(preflight, "choose", choose)
    return monkeypatch


def as_user(kernel):
    kernel.setattr(preflight.os, "geteuid", lambda: 1000)
    for name in ("choose", "choose_switches"):
        kernel.setattr(preflight, name, lambda *asked: pytest.fail(f"tried out without root: {asked}"))


@pytest.mark.parametrize(
    ("options", "untold"),
    [
        ({}, ""),
        ({"links": "emulator"}, ""),
        ({"links": "netem"}, "; whether this kernel has netem"),
        ({"links": "netem", "switches": "bridge"}, "; whether this kernel has netem"),
        (
            {"links": "netem", "switches": "ovs"},
            "; whether Open vSwitch can make a bridge; whether this kernel has netem",
        ),
    ],
)
def test_what_is_left_to_the_run_is_one_sentence(kernel, options, untold):
    engine = "whether the Docker engine and its images are ready"
    if untold:
        with pytest.raises(MissingRequirementError, match="no netem"):
            preflight.preflight(bare_plan(**options))
    else:
        assert preflight.preflight(bare_plan(**options)) == f"Only a run can determine: {engine}."
    as_user(kernel)
    kernel.setattr(preflight.programs, "which", lambda program: f"/bin/{program}")
    assert preflight.preflight(bare_plan(**options)) == f"Only a run as root can determine: {engine}{untold}."


def test_what_is_not_installed_is_missed_also_without_root(kernel):
    with pytest.raises(UsageError) as refused:
        preflight.preflight(bare_plan(congestion_control="vegas"))
    told = "--congestion-control: this kernel has no TCP congestion control 'vegas'; it has: reno, cubic"
    assert str(refused.value) == told
    preflight.preflight(bare_plan(congestion_control="reno"))
    with kernel.context() as without_ovs:
        without_ovs.setattr(preflight.os, "geteuid", lambda: 1000)
        without_ovs.setattr(preflight.programs, "which", lambda program: None)
        with pytest.raises(MissingRequirementError, match="ovs-vsctl is not installed"):
            preflight.preflight(bare_plan(links="netem", switches="ovs"))
    kernel.setattr(engines, "kernel_has_netem", lambda: True)
    kernel.delattr(mininet.net, "Containernet", raising=False)
    for user in (lambda: None, lambda: as_user(kernel)):
        user()
        with pytest.raises(MissingRequirementError, match="the original Containernet is not installed"):
            preflight.preflight(bare_plan(engine="containernet"))
    kernel.setattr(mininet.net, "Containernet", object, raising=False)
    assert "what the original Containernet needs" in preflight.preflight(bare_plan(engine="containernet"))


def test_a_configured_fsync_needs_fuse(kernel, tmp_path):
    plan = bare_plan()
    plan = replace(plan, hosts=(replace(plan.hosts[0], fsync_ns=2_000_000), *plan.hosts[1:]))
    kernel.setattr(preflight.disk, "DEVICE", tmp_path / "fuse")
    preflight.preflight(bare_plan())
    with pytest.raises(MissingRequirementError, match=f"fsync of a member needs FUSE, and there is no {tmp_path}/fuse"):
        preflight.preflight(plan)
    (tmp_path / "fuse").touch()
    preflight.preflight(plan)


@pytest.mark.parametrize(
    ("content", "good"),
    [
        (None, True),
        ("", True),
        (OURS, True),
        (f"{OURS}\n", True),
        (f"{OURS}\r\n1,2", True),
        (",".join(FORMS[-1]) + "\n1,2\n", True),
        (OURS.replace(",Advice", "") + "\n1,2\n", True),
        (OURS.replace("Valid,Reasons", "Reasons,Valid") + "\n", False),
        (OURS[:20], True),
        (OURS[:20] + "\n", False),
        (f"{OURS},x\n", False),
        ("root:x:0:0\n", False),
        ('"TestType"' + OURS[8:] + "\n", False),
        ("\n", False),
        ("\x00\udcff", False),
    ],
)
def test_a_file_is_refused_where_the_run_would_refuse_it(tmp_path, content, good):
    path = tmp_path / "out.csv"
    if content is not None:
        path.write_bytes(content.encode(errors="surrogateescape"))
    before = path.read_bytes() if path.exists() else None
    if good:
        preflight.preflight(bare_plan(), path)
        assert (path.read_bytes() if path.exists() else None) == before
        results = ResultsFile(path)
        results.open()
        results.close()
        return
    with pytest.raises(UsageError) as early:
        preflight.preflight(bare_plan(), path)
    with pytest.raises(UsageError) as late:
        ResultsFile(path).open()
    assert str(early.value) == str(late.value)


def refused(out):
    with pytest.raises(UsageError) as caught:
        preflight.preflight(bare_plan(), out)
    return str(caught.value)


def test_a_place_where_no_file_can_be(tmp_path):
    (tmp_path / "file").write_text("")
    for out, words in (
        (tmp_path, "Is a directory"),
        (tmp_path / "file" / "a" / "out.csv", "is not a directory"),
        (Path("/dev/null"), r"it is no regular file\n  Name a file, or one that does not exist yet\."),
    ):
        assert re.match(f"cannot write results to .*{words}", refused(out))
    preflight.preflight(bare_plan(), tmp_path / "a" / "b" / "out.csv")
    assert not (tmp_path / "a").exists(), "directories are left to the run"
    with pytest.raises(UsageError, match="File name too long"):
        ResultsFile(tmp_path / ("x" * 300)).open()
    (tmp_path / "out.runs").write_text("notes\n")
    assert refused(tmp_path / "out.csv") == (
        f"cannot keep run directories in {tmp_path / 'out.runs'}: it is no folder\n"
        f"  Move it away, or choose another name than {tmp_path / 'out.csv'}."
    )
    assert not (tmp_path / "out.csv").exists()


# What a file system says of itself.
HELD = {"f_bavail": 1 << 30, "f_frsize": 4096, "f_blocks": 1 << 30, "f_files": 1000, "f_favail": 1000, "f_flag": 0}


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ({"f_bavail": 10}, r"0.0 MB free in .*; this run writes about 0.3 MB\n  Make room there"),
        ({"f_favail": 0}, r"no inode free in .*\n  Make room there"),
        ({"f_flag": os.ST_RDONLY}, r"is on a read-only file system\n  Mount it for writing"),
        ({"f_blocks": 0, "f_bavail": 0, "f_files": 0, "f_favail": 0}, None),  # some FUSE file systems do not tell
    ],
)
def test_a_file_system_that_takes_no_results_is_refused(kernel, tmp_path, held, words):
    kernel.setattr(run_directory.os, "statvfs", lambda path: SimpleNamespace(**HELD | held))
    out = tmp_path / "out.csv"
    if words is None:
        preflight.preflight(bare_plan(), out)
    else:
        assert re.match(f"cannot write results to {out}: .*{words}", refused(out))


@pytest.mark.parametrize("which", ["its folder", "OUT.runs"])
def test_as_root_folders_are_tried_and_nothing_stays_in_them(kernel, tmp_path, which):
    """No permission stops root; an immutable folder does, and only making a file tells."""
    (tmp_path / "out.runs").mkdir()
    immutable = tmp_path / "out.runs" if which == "OUT.runs" else tmp_path
    real = run_directory.tempfile.TemporaryFile

    def make(**place):
        if place["dir"] == immutable:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return real(**place)

    kernel.setattr(run_directory.tempfile, "TemporaryFile", make)
    assert refused(tmp_path / "out.csv") == (
        f"cannot write results to {tmp_path / 'out.csv'}: no file can be made in {immutable}: Operation not permitted\n"
        "  Allow writing there (lsattr shows what is immutable), then run again."
    )
    kernel.setattr(run_directory.tempfile, "TemporaryFile", real)
    preflight.preflight(bare_plan(), tmp_path / "out.csv")
    assert [path.name for path in tmp_path.rglob("*") if path.name != "controls"] == ["out.runs"]
