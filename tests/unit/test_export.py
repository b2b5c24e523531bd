"""A run as an RO-Crate: what is in it, that others can read it, and what is refused."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from containernet_env.base.errors import MissingRequirementError, UsageError
from containernet_env.cli import group
from containernet_env.results.columns import COLUMNS
from containernet_env.results.crate import METADATA, Exported, export
from containernet_env.results.run_directory import MANIFEST, find_run, read_run
from tests.unit.disk import file_limit
from tests.unit.manifests import PROGRAM
from tests.unit.run_fakes import FakeTestbed, on_fakes, rows, run


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FakeTestbed]:
    return on_fakes(monkeypatch)


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


def exported(out: Path, **options: Any) -> tuple[Exported, dict[str, Any]]:
    """What `export` says, and the entities of the crate by their ids."""
    done = export(read_run(find_run(out)), out.with_name("run.zip"), results=out, **options)
    with zipfile.ZipFile(done.file) as archive:
        graph = json.loads(archive.read(METADATA))["@graph"]
    return done, {entity["@id"]: entity for entity in graph}


def references(value: Any) -> list[str]:
    """Every id that a property refers to."""
    found = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    return [item["@id"] for item in found if isinstance(item, dict)]


def test_the_metadata_have_what_the_specification_requires(out: Path) -> None:
    _, entities = exported(out)
    descriptor, root = entities[METADATA], entities["./"]
    assert descriptor["@type"] == "CreativeWork" and descriptor["about"] == {"@id": "./"}
    assert descriptor["conformsTo"]["@id"].startswith("https://w3id.org/ro/crate/1.")
    assert root["@type"] == "Dataset"
    for name in ("name", "description", "datePublished", "license", "hasPart", "mentions"):
        assert root[name], name
    newest = find_run(out).name
    assert newest in root["name"]
    with zipfile.ZipFile(out.with_name("run.zip")) as archive:
        assert json.loads(archive.read(METADATA))["@context"] == f"{descriptor['conformsTo']['@id']}/context"
    for entity in entities.values():
        assert entity["@type"]
        for name in entity.keys() - {"@id", "@type"}:
            for place in references(entity[name]):
                elsewhere = place.startswith(
                    ("https://w3id.org/ro/crate/", "https://www.w3.org/", "http://schema.org/")
                )
                assert place in entities or elsewhere, (entity["@id"], name, place)


def test_every_file_is_listed_with_its_hash_and_size(out: Path) -> None:
    done, entities = exported(out)
    listed = {part["@id"] for part in entities["./"]["hasPart"]}
    with zipfile.ZipFile(done.file) as archive:
        names = set(archive.namelist()) - {METADATA}
        assert listed == names and done.files == len(names)
        for name in names:
            content = archive.read(name)
            assert entities[name]["@type"] == "File"
            assert entities[name]["sha256"] == hashlib.sha256(content).hexdigest(), name
            assert entities[name]["contentSize"] == str(len(content)), name
    directory = find_run(out)
    assert names > {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


def test_the_files_of_the_run_can_be_verified_by_its_own_checksums(out: Path, tmp_path: Path) -> None:
    done, _ = exported(out)
    with zipfile.ZipFile(done.file) as archive:
        for line in archive.read("checksums.sha256").decode().splitlines():
            digest, name = line.split("  ")
            assert hashlib.sha256(archive.read(name)).hexdigest() == digest


def test_the_rows_of_this_run_are_in_it_and_no_others(out: Path) -> None:
    done, _ = exported(out)
    with zipfile.ZipFile(done.file) as archive:
        found = list(csv.DictReader(archive.read("rows.csv").decode().splitlines()))
    assert done.rows == len(found) == 2
    assert found == [row for row in rows(out) if row["RunId"] == find_run(out).name]


def test_every_column_is_described_with_type_and_meaning(out: Path) -> None:
    done, entities = exported(out)
    with zipfile.ZipFile(done.file) as archive:
        table = json.loads(archive.read("rows.csv-metadata.json"))
        header = archive.read("rows.csv").decode().splitlines()[0]
    columns = table["tableSchema"]["columns"]
    assert [column["titles"] for column in columns] == list(COLUMNS) == next(csv.reader([header]))
    assert table["url"] == "rows.csv" and table["@context"] == "http://www.w3.org/ns/csvw"
    by_name = {column["titles"]: column for column in columns}
    assert by_name["50%"]["datatype"] == "number" and by_name["50%"]["schema:unitText"] == "s"
    assert by_name["Leader"]["datatype"] == "string" and "led" in by_name["Leader"]["dc:description"]
    assert entities["rows.csv"]["conformsTo"] == {"@id": "rows.csv-metadata.json"}


def test_files_name_the_schemas_that_they_keep_to(out: Path) -> None:
    done, entities = exported(out)
    with zipfile.ZipFile(done.file) as archive:
        for name in ("manifest.json", "scenarios.jsonl", "events.jsonl"):
            schema = json.loads(archive.read(entities[name]["conformsTo"]["@id"]))
            for line in archive.read(name).decode().splitlines() if name.endswith("l") else [archive.read(name)]:
                Draft202012Validator(schema).validate(json.loads(line))


def test_the_run_is_an_action_of_the_program_on_its_inputs(out: Path) -> None:
    _, entities = exported(out)
    action, program, etcd = entities["#run"], entities["#containernet-env"], entities["#etcd"]
    assert action["@type"] == "CreateAction" and entities["./"]["mentions"] == {"@id": "#run"}
    assert action["instrument"] == [{"@id": "#containernet-env"}, {"@id": "#etcd"}]
    assert {part["@id"] for part in action["object"]} == {"inputs/topology.json", "inputs/scenarios.json"}
    assert {"rows.csv", "scenarios.jsonl", "manifest.json"} <= {part["@id"] for part in action["result"]}
    assert action["startTime"] < action["endTime"]
    assert action["actionStatus"] == {"@id": "http://schema.org/CompletedActionStatus"}
    assert (program["softwareVersion"], program["identifier"]) == (PROGRAM.version, f"commit {PROGRAM.commit}")
    assert etcd["softwareVersion"] == "3.7.3"


def test_a_run_that_failed_is_a_failed_action(
    made: list[FakeTestbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: FakeTestbed) -> None:
        raise UsageError("no")

    monkeypatch.setattr(FakeTestbed, "up", fail)
    with pytest.raises(UsageError):
        run(tmp_path / "out.csv")
    done, entities = exported(tmp_path / "out.csv")
    assert entities["#run"]["actionStatus"] == {"@id": "http://schema.org/FailedActionStatus"}
    assert done.notes == (f"without rows: {tmp_path / 'out.csv'} has none of this run",)
    assert "rows.csv" not in entities and "#etcd" not in entities


def test_the_library_opens_it_again(out: Path, tmp_path: Path) -> None:
    from rocrate.rocrate import ROCrate

    done, _ = exported(out)
    crate = ROCrate(done.file)
    assert crate.name == f"containernet-env run {find_run(out).name}"
    assert len(crate.data_entities) == done.files
    assert crate.get("rows.csv")["encodingFormat"] == "text/csv"
    crate.write_zip(tmp_path / "again.zip")
    with zipfile.ZipFile(done.file) as first, zipfile.ZipFile(tmp_path / "again.zip") as second:
        assert {name: first.read(name) for name in first.namelist() if name != METADATA} == {
            name: second.read(name) for name in second.namelist() if name != METADATA
        }


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("CC-BY-4.0", "https://spdx.org/licenses/CC-BY-4.0"),
        ("https://example.org/terms", "https://example.org/terms"),
    ],
)
def test_a_license_is_named_by_whoever_exports(out: Path, name: str, place: str) -> None:
    _, entities = exported(out, license_name=name)
    assert entities["./"]["license"] == {"@id": place} and entities[place]["name"] == name


def test_a_license_may_be_a_text_and_is_not_invented(out: Path) -> None:
    assert exported(out, license_name="Ask us first.")[1]["./"]["license"] == "Ask us first."
    out.with_name("run.zip").unlink()
    assert "named no license" in exported(out)[1]["./"]["license"]


def test_a_file_that_was_changed_is_told(out: Path) -> None:
    (find_run(out) / "logs" / "etcd1.log").write_text("other\n")
    done, _ = exported(out)
    assert done.notes == ("not as the run left it: logs/etcd1.log (changed)",)


def test_files_with_odd_names_are_in_it_and_links_that_lead_out_are_not(out: Path) -> None:
    directory = find_run(out)
    (directory / "a b\u00e4 #1%.txt").write_text("mine")
    (directory / "empty file.txt").touch()
    (directory / "passwords").symlink_to("/etc/passwd")
    done, _ = exported(out)
    with zipfile.ZipFile(done.file) as archive:
        assert archive.read("a b\u00e4 #1%.txt") == b"mine"
        assert not [name for name in archive.namelist() if "passwords" in name]


def test_a_folder_of_a_certain_name_does_not_get_in(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library adds what is in its source, and takes "None" for a folder of that name."""
    (tmp_path / "None").mkdir()
    (tmp_path / "None" / "secret").touch()
    monkeypatch.chdir(tmp_path)
    done, _ = exported(out)
    with zipfile.ZipFile(done.file) as archive:
        assert "secret" not in archive.namelist()


def test_a_crate_that_was_unpacked_is_a_run_and_can_be_exported_again(out: Path, tmp_path: Path) -> None:
    done, _ = exported(out)
    with zipfile.ZipFile(done.file) as archive:
        archive.extractall(tmp_path / "unpacked")
    shown = CliRunner().invoke(group, ["show", str(tmp_path / "unpacked")], catch_exceptions=False).output
    assert "all as the run left them; added since: ro-crate-metadata.json, rows.csv, " in " ".join(shown.split())
    again = export(read_run(tmp_path / "unpacked"), tmp_path / "again.zip")
    assert (again.files, again.rows) == (done.files, done.rows)
    with zipfile.ZipFile(done.file) as first, zipfile.ZipFile(again.file) as second:
        assert sorted(first.namelist()) == sorted(second.namelist())
        assert first.read("rows.csv") == second.read("rows.csv")


# --- the command ------------------------------------------------------------------------------------------------------


def called(*words: str) -> Any:
    return CliRunner().invoke(group, ["export", *words])


def test_the_command_says_what_it_wrote(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = called(str(out), "--license", "MIT")
    assert done.exit_code == 0, repr(done.exception)
    assert f"{find_run(out).name}.zip: " in done.output and " files, 2 rows" in done.output


def test_of_a_run_directory_the_rows_are_found_beside_it_or_where_they_are_said_to_be(
    out: Path, tmp_path: Path
) -> None:
    directory = find_run(out)
    assert "2 rows" in called(str(directory), str(tmp_path / "a.zip")).output
    moved = tmp_path / "moved"
    directory.rename(moved)
    done = called(str(moved), str(tmp_path / "b.zip"))
    assert "without rows: the run directory lies beside no results file" in done.output and "0 rows" in done.output
    assert "2 rows" in called(str(moved), str(tmp_path / "c.zip"), "--rows", str(out)).output


def test_rows_of_a_results_file_that_is_gone_are_left_out_with_a_note(out: Path, tmp_path: Path) -> None:
    directory = find_run(out)
    out.unlink()
    assert f"without rows: there is no {out}" in called(str(directory), str(tmp_path / "a.zip")).output


def test_a_file_that_is_there_is_not_overwritten(out: Path, tmp_path: Path) -> None:
    (tmp_path / "run.zip").write_text("mine")
    done = called(str(out), str(tmp_path / "run.zip"))
    assert isinstance(done.exception, UsageError) and "is there already" in str(done.exception)
    assert (tmp_path / "run.zip").read_text() == "mine"


def test_a_folder_that_is_missing_is_named_and_nothing_is_left(out: Path, tmp_path: Path) -> None:
    done = called(str(out), str(tmp_path / "nothing" / "run.zip"))
    assert isinstance(done.exception, UsageError) and "run.zip: No such file" in str(done.exception)
    assert not (tmp_path / "nothing").exists()


def test_a_disk_that_is_full_is_named_and_nothing_is_left(out: Path, tmp_path: Path) -> None:
    (find_run(out) / "large").write_bytes(os.urandom(100_000))
    with file_limit(20_000):
        done = called(str(out), str(tmp_path / "run.zip"))
    assert isinstance(done.exception, UsageError) and "run.zip: File too large" in str(done.exception)
    assert not list(tmp_path.glob("run.zip*"))


def test_a_run_without_a_manifest_is_refused(out: Path, tmp_path: Path) -> None:
    (find_run(out) / MANIFEST).unlink()
    done = called(str(out), str(tmp_path / "run.zip"))
    assert isinstance(done.exception, UsageError) and "it has no manifest.json" in str(done.exception)


def test_without_the_library_the_message_says_how_to_get_it(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rocrate.rocrate", None)
    done = called(str(out), str(tmp_path / "run.zip"))
    assert isinstance(done.exception, MissingRequirementError) and "pip install rocrate" in str(done.exception)
    assert not (tmp_path / "run.zip").exists()


def test_a_text_that_utf_8_does_not_have_is_no_traceback(out: Path) -> None:
    run = read_run(find_run(out))
    manifest = json.loads((run.path / MANIFEST).read_text())
    manifest["machine"]["cpu_model"] = "\ud800"
    (run.path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match=r"cannot be exported: a text .* UTF-8"):
        exported(out)
    assert not list(out.parent.glob("run.zip*"))
