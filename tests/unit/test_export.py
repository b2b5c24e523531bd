"""A run as an RO-Crate: what is in it, that others can read it, and what is refused."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from jsonschema import Draft202012Validator
from syrupy.assertion import SnapshotAssertion

from containernet_env.base.errors import MissingRequirementError, UsageError
from containernet_env.results.columns import COLUMNS
from containernet_env.results.crate import METADATA, Exported, export
from containernet_env.results.run_directory import MANIFEST, find_run, read_run
from tests.unit.disk import file_limit
from tests.unit.fakes import FakeTestbed, on_fakes, rows, run
from tests.unit.report_rows import shown


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a results file of two runs, two rows of each, and their directories."""
    folder = tmp_path_factory.mktemp("left")
    with pytest.MonkeyPatch.context() as patch:
        on_fakes(patch)
        for _ in range(2):
            run(folder / "out.csv", repeat=2)
    return folder


@pytest.fixture
def out(left: Path, tmp_path: Path) -> Path:
    """That results file, to be changed; one of its runs is exported."""
    shutil.copytree(left, tmp_path, dirs_exist_ok=True)
    return tmp_path / "out.csv"


Entities = dict[str, dict[str, Any]]


def exported(out: Path, **options: Any) -> tuple[Exported, Entities, dict[str, bytes]]:
    """What `export` says, the entities of the crate by their ids, and its files by their names."""
    done = export(read_run(find_run(out)), out.with_name("run.zip"), results=out, **options)
    with zipfile.ZipFile(done.file) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    return done, {entity["@id"]: entity for entity in json.loads(files[METADATA])["@graph"]}, files


@pytest.fixture(scope="module")
def crate(left: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Exported, Entities, dict[str, bytes]]:
    """The run directory and the crate of the newest run, to be read."""
    folder = tmp_path_factory.mktemp("crate")
    shutil.copytree(left, folder, dirs_exist_ok=True)
    return find_run(folder / "out.csv"), *exported(folder / "out.csv")


def references(value: Any) -> list[str]:
    """Every id that a property refers to."""
    found = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    return [item["@id"] for item in found if isinstance(item, dict)]


def test_the_metadata_have_what_the_specification_requires_and_the_run_is_an_action_on_its_inputs(
    crate: Any, snapshot: SnapshotAssertion
) -> None:
    directory, _, entities, files = crate
    descriptor, root = entities[METADATA], entities["./"]
    assert descriptor["@type"] == "CreativeWork" and descriptor["about"] == {"@id": "./"}
    assert descriptor["conformsTo"]["@id"].startswith("https://w3id.org/ro/crate/1.")
    assert root["@type"] == "Dataset" and directory.name in root["name"]
    assert all(root[name] for name in ("name", "description", "datePublished", "license", "hasPart", "mentions"))
    assert "named no license" in root["license"]
    assert json.loads(files[METADATA])["@context"] == f"{descriptor['conformsTo']['@id']}/context"
    elsewhere = ("https://w3id.org/ro/crate/", "https://www.w3.org/", "http://schema.org/")
    for entity in entities.values():
        assert entity["@type"]
        for name in entity.keys() - {"@id", "@type"}:
            for place in references(entity[name]):
                assert place in entities or place.startswith(elsewhere), (entity["@id"], name, place)
    action = entities["#run"]
    assert root["mentions"] == {"@id": "#run"} and action["startTime"] < action["endTime"]
    same = {name: action[name] for name in action.keys() - {"name", "description", "startTime", "endTime"}}
    assert [same, entities["#containernet-env"], entities["#etcd"]] == snapshot


def test_every_file_is_listed_with_its_hash_its_size_and_its_schema(crate: Any) -> None:
    directory, done, entities, files = crate
    names = files.keys() - {METADATA}
    assert {part["@id"] for part in entities["./"]["hasPart"]} == names and done.files == len(names)
    for name in names:
        assert entities[name]["@type"] == "File"
        assert entities[name]["sha256"] == hashlib.sha256(files[name]).hexdigest(), name
        assert entities[name]["contentSize"] == str(len(files[name])), name
    assert names > {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}
    for line in files["checksums.sha256"].decode().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256(files[name]).hexdigest() == digest
    # Files keep to the schemas that they name.
    for name in ("manifest.json", "scenarios.jsonl", "events.jsonl"):
        schema = json.loads(files[entities[name]["conformsTo"]["@id"]])
        for line in files[name].decode().splitlines() if name.endswith("l") else [files[name]]:
            Draft202012Validator(schema).validate(json.loads(line))


def test_the_rows_of_this_run_alone_are_in_it_and_every_column_is_described(crate: Any) -> None:
    directory, done, entities, files = crate
    found = list(csv.DictReader(files["rows.csv"].decode().splitlines()))
    assert done.rows == len(found) == 2
    assert found == [row for row in rows(directory.parents[1] / "out.csv") if row["RunId"] == directory.name]
    table = json.loads(files["rows.csv-metadata.json"])
    columns = {column["titles"]: column for column in table["tableSchema"]["columns"]}
    assert [*columns] == list(COLUMNS) == next(csv.reader([files["rows.csv"].decode().splitlines()[0]]))
    assert table["url"] == "rows.csv" and table["@context"] == "http://www.w3.org/ns/csvw"
    assert columns["50%"]["datatype"] == "number" and columns["50%"]["schema:unitText"] == "s"
    assert columns["Leader"]["datatype"] == "string" and "led" in columns["Leader"]["dc:description"]
    assert entities["rows.csv"]["conformsTo"] == {"@id": "rows.csv-metadata.json"}
    assert entities["rows.csv"]["encodingFormat"] == "text/csv"


def test_a_run_that_failed_is_a_failed_action(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_fakes(monkeypatch)
    monkeypatch.setattr(FakeTestbed, "up", mock.Mock(side_effect=UsageError("no")))
    with pytest.raises(UsageError):
        run(tmp_path / "out.csv")
    done, entities, _ = exported(tmp_path / "out.csv")
    assert entities["#run"]["actionStatus"] == {"@id": "http://schema.org/FailedActionStatus"}
    assert done.notes == (f"without rows: {tmp_path / 'out.csv'} has none of this run",)
    assert "rows.csv" not in entities and "#etcd" not in entities


@pytest.mark.parametrize(
    ("named", "place"),
    [
        ("CC-BY-4.0", "https://spdx.org/licenses/CC-BY-4.0"),
        ("https://example.org/terms", "https://example.org/terms"),
        ("Ask us first.", None),
    ],
)
def test_license_and_changed_files_are_named(out: Path, named: str, place: str | None) -> None:
    (find_run(out) / "logs" / "etcd1.log").write_text("other\n")
    done, entities, _ = exported(out, license_name=named)
    assert entities["./"]["license"] == ({"@id": place} if place else named)
    assert place is None or entities[place]["name"] == named
    assert done.notes == ("not as the run left it: logs/etcd1.log (changed)",)


def test_odd_names_are_in_it_and_links_are_not(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library adds what is in its source, and takes "None" for a folder of that name."""
    directory = find_run(out)
    (directory / "a b\u00e4 #1%.txt").write_text("mine")
    (directory / "empty file.txt").touch()
    (directory / "passwords").symlink_to("/etc/passwd")
    (tmp_path / "None").mkdir()
    (tmp_path / "None" / "secret").touch()
    monkeypatch.chdir(tmp_path)
    files = exported(out)[2]
    assert files["a b\u00e4 #1%.txt"] == b"mine"
    assert not [name for name in files if "passwords" in name or "secret" in name]


def test_a_crate_that_was_unpacked_is_a_run_and_can_be_exported_again(crate: Any, tmp_path: Path) -> None:
    _, done, _, files = crate
    with zipfile.ZipFile(done.file) as archive:
        archive.extractall(tmp_path / "unpacked")
    told = shown("show", tmp_path / "unpacked").output
    assert "all as the run left them; added since: ro-crate-metadata.json, rows.csv, " in " ".join(told.split())
    again = export(read_run(tmp_path / "unpacked"), tmp_path / "again.zip")
    assert (again.files, again.rows) == (done.files, done.rows)
    with zipfile.ZipFile(again.file) as second:
        assert sorted(files) == sorted(second.namelist()) and files["rows.csv"] == second.read("rows.csv")


# --- the command ------------------------------------------------------------------------------------------------------


def test_rows_are_found_beside_a_run_or_where_named(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    directory, moved = find_run(out), tmp_path / "moved"
    done = shown("export", directory, "--license", "MIT")
    assert f"{directory.name}.zip: " in done.output and " files, 2 rows" in done.output, repr(done.exception)
    directory.rename(moved)
    done = shown("export", moved, tmp_path / "b.zip")
    assert "without rows: the run directory lies beside no results file" in done.output and "0 rows" in done.output
    assert "2 rows" in shown("export", moved, tmp_path / "c.zip", "--rows", out).output
    moved.rename(directory)
    out.unlink()
    assert f"without rows: there is no {out}" in shown("export", directory, tmp_path / "d.zip").output


def no_text(run: Path) -> None:
    """A name that UTF-8 does not have."""
    (run / os.fsdecode(b"\xff")).touch()


@pytest.mark.parametrize(
    ("name", "spoil", "words"),
    [
        ("mine.zip", lambda run: None, "is there already"),
        ("nothing/run.zip", lambda run: None, "run.zip: No such file"),
        ("run.zip", lambda run: (run / "large").write_bytes(os.urandom(100_000)), "run.zip: File too large"),
        ("run.zip", lambda run: (run / MANIFEST).unlink(), "it has no manifest.json"),
        ("run.zip", no_text, "cannot be exported: a text "),
        ("run.zip", lambda run: None, "pip install rocrate"),  # how to get the library
    ],
)
def test_what_cannot_be_exported_is_named_and_leaves_nothing(
    out: Path, monkeypatch: pytest.MonkeyPatch, name: str, spoil: Any, words: str
) -> None:
    error = MissingRequirementError if "pip" in words else UsageError
    out.with_name("mine.zip").write_text("mine")
    spoil(find_run(out))
    if error is MissingRequirementError:
        monkeypatch.setitem(sys.modules, "rocrate.rocrate", None)
    with file_limit(20_000) if "large" in words else nullcontext():
        done = shown("export", out, out.parent / name)
    assert isinstance(done.exception, error) and words in str(done.exception)
    assert out.with_name("mine.zip").read_text() == "mine"
    assert not list(out.parent.glob("run.zip*")) and not (out.parent / "nothing").exists()
