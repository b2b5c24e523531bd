"""A run as an RO-Crate: its directory, its rows and their meanings in one self-describing zip for other programs.

RO-Crate 1.3 (https://w3id.org/ro/crate/1.3) with the Process Run Crate profile: a run is an action of this program on
its inputs. The rows are described by CSV on the Web metadata (https://www.w3.org/TR/tabular-metadata/).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from containernet_env.base.errors import MissingRequirementError, UsageError
from containernet_env.results.columns import BY_NAME, NOT_APPLICABLE
from containernet_env.results.csv_file import rows_of_run
from containernet_env.results.files import CHECKSUMS, PARTIAL, digest_of, files_of, reason, remedy, replacing
from containernet_env.results.run_directory import LOGS, MANIFEST, SCENARIOS_INPUT, TOPOLOGY_INPUT, ReadRun
from containernet_env.results.run_files import FILES, Manifest, json_schema

METADATA, ROWS, ROWS_SCHEMA = "ro-crate-metadata.json", "rows.csv", "rows.csv-metadata.json"
_SCHEMA = "schemas/run-{}.schema.json"
_PROCESS_RUN_CRATE = "https://w3id.org/ro/wfrun/process/0.5"
_CSVW = "https://www.w3.org/TR/tabular-metadata/"
_NO_LICENSE = "Whoever exported this run named no license: ask before you use it."
_DESCRIPTIONS = {
    **{form.file: (form.__doc__ or "").partition("\n")[0].partition(": ")[2] for form in FILES.values()},
    TOPOLOGY_INPUT: "the topology as it was read",
    SCENARIOS_INPUT: "the scenarios as they were read",
    CHECKSUMS: "SHA-256 of every file of the run directory, as the run left it",
    LOGS: "the end of what a host's first process printed",
}
_SCHEMAS = {form.file: name for name, form in FILES.items()}
_FORMATS = {
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".csv": "text/csv",
    ".svg": "image/svg+xml",
    ".gz": "application/gzip",
    ".log": "text/plain",
    ".sha256": "text/plain",
}
# An SPDX identifier or a URL; anything else is a text.
_LICENSE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*|https?://.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Exported:
    """The content written to ``file``; ``notes`` list parts that are missing, or not as the run left them."""

    file: Path
    files: int
    rows: int
    notes: tuple[str, ...]


def export(run: ReadRun, file: Path, *, results: Path | None = None, license_name: str | None = None) -> Exported:
    """Write a run as an RO-Crate zip to ``file``, which must not exist; ``results`` has its rows.

    Of a crate that was unpacked, that is the file with the rows in it. ``license_name`` is an SPDX identifier, a URL,
    or a text. Raises ``UsageError``, and ``MissingRequirementError`` without the library ``rocrate``.
    """
    if run.manifest is None:
        raise UsageError(f"{run.path} cannot be exported: it has no {MANIFEST}\n  The run ended before it was written.")
    if os.path.lexists(file):
        raise UsageError(f"{file} is there already\n  Name another file, or remove it.")
    manifest, made = run.manifest, _crate(run.manifest, license_name)
    if run.checked is None:
        notes = [f"{run.path} has no {CHECKSUMS}: the run goes on, or was killed"]
    else:
        names = ", ".join(f"{item.name} ({item.how})" for item in run.checked.changed)
        notes = [f"not as the run left it: {names}"] if names else []
    # Files of an unpacked crate that are not the run's are generated again.
    again = {METADATA, ROWS, ROWS_SCHEMA, *map(_SCHEMA.format, FILES)}
    try:
        own = [*(name for name in files_of(run.path) if name not in again), *([CHECKSUMS] if run.checked else [])]
        parts = [_add(made, name, run.path / name) for name in own]
        parts += [_add(made, _SCHEMA.format(kind), _json(json_schema(kind))) for kind in FILES]
        unpacked = run.path / ROWS
        rows = _add_rows(made, manifest.run_id, unpacked if unpacked.is_file() else results, parts, notes)
        _add_action(made, run, manifest, parts)
        _write(made, file)
    except UnicodeError as error:
        raise UsageError(f"{run.path} cannot be exported: a text of it is none that UTF-8 has: {error}") from error
    except OSError as error:
        place = str(error.filename or file).removesuffix(PARTIAL)
        raise UsageError(f"{run.path} cannot be exported: {place}: {reason(error)}\n  {remedy(error)}") from error
    return Exported(file, len(parts), rows, tuple(notes))


def _crate(manifest: Manifest, license_name: str | None) -> Any:
    """An empty crate that describes its subject."""
    try:
        from rocrate.model.contextentity import ContextEntity
        from rocrate.rocrate import ROCrate
    except ImportError as error:
        raise MissingRequirementError(
            f"the library rocrate, which makes RO-Crates, cannot be loaded: {error}",
            "Install it where containernet-env is installed: python -m pip install rocrate",
        ) from error
    crate = ROCrate()
    # It adds all that is in its source, and takes "None" for the name of a folder.
    crate.source = os.devnull
    root = crate.root_dataset
    crate.name = f"containernet-env run {manifest.run_id}"
    store, links, machine = manifest.store, manifest.links, manifest.machine
    measured = f"{store.kind} {store.version}" if store is not None else "A store"
    by = f", links by {links.links}" if links is not None else ""
    crate.description = (
        f"{measured} on an emulated network{by}, measured with containernet-env {manifest.program.version} on "
        f"{machine.cores} cores of {machine.cpu_model}, Linux {machine.kernel}; config {manifest.config_hash}."
    )
    crate.license = _NO_LICENSE if license_name is None else license_name
    if license_name is not None and _LICENSE_ID.fullmatch(license_name):
        url = license_name if "://" in license_name else f"https://spdx.org/licenses/{license_name}"
        entity = {"@type": "CreativeWork", "name": license_name}
        crate.license = crate.add(ContextEntity(crate, url, properties=entity))
    profile = {"@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"}
    root["conformsTo"] = crate.add(ContextEntity(crate, _PROCESS_RUN_CRATE, properties=profile))
    return crate


def _add(crate: Any, name: str, source: Path | bytes, **more: Any) -> Any:
    if isinstance(source, Path):
        digest, size = digest_of(source), source.stat().st_size
    else:
        digest, size = hashlib.sha256(source).hexdigest(), len(source)
    pure = PurePosixPath(name)
    described = _DESCRIPTIONS.get(name) or _DESCRIPTIONS.get(pure.parts[0])
    properties = {
        "name": name,
        "encodingFormat": _FORMATS.get(pure.suffix, "application/octet-stream"),
        "contentSize": str(size),
        "sha256": digest,
        **({"description": described} if described else {}),
        **({"conformsTo": {"@id": _SCHEMA.format(_SCHEMAS[name])}} if name in _SCHEMAS else {}),
        **more,
    }
    return crate.add_file(io.BytesIO(source) if isinstance(source, bytes) else source, name, properties=properties)


def _add_rows(crate: Any, run_id: str, results: Path | None, parts: list[Any], notes: list[str]) -> int:
    """Add the rows of the run and the meanings of their columns; the number of rows."""
    if results is None:
        notes.append("without rows: the run directory lies beside no results file")
        return 0
    if not results.exists():
        notes.append(f"without rows: there is no {results}")
        return 0
    columns, lines = rows_of_run(results, run_id, notes.append)
    if len(lines) == 1:
        notes.append(f"without rows: {results} has none of this run")
        return 0
    of_rows, of_schema = ({"conformsTo": {"@id": place}} for place in (ROWS_SCHEMA, _CSVW))
    parts.append(_add(crate, ROWS, b"".join(lines), description="the rows of the run", **of_rows))
    meaning = f"what the columns of {ROWS} mean"
    parts.append(_add(crate, ROWS_SCHEMA, _json(_table_schema(columns)), description=meaning, **of_schema))
    return len(lines) - 1


def _table_schema(columns: Sequence[str]) -> dict[str, Any]:

    def described(name: str) -> dict[str, str]:
        column = BY_NAME[name]
        unit = {"schema:unitText": column.unit} if column.unit else {}
        meaning = column.meaning.replace("`", "")
        datatype = "number" if column.number else "string"
        return {"titles": name, "datatype": datatype, "null": NOT_APPLICABLE, "dc:description": meaning, **unit}

    return {
        "@context": "http://www.w3.org/ns/csvw",
        "url": ROWS,
        "dialect": {"header": True},
        "tableSchema": {"columns": [described(name) for name in columns]},
    }


def _add_action(crate: Any, run: ReadRun, manifest: Manifest, parts: Iterable[Any]) -> None:
    from rocrate.model.contextentity import ContextEntity

    def entity(place: str, kind: str, **properties: Any) -> Any:
        given = {key: value for key, value in properties.items() if value is not None}
        return crate.add(ContextEntity(crate, place, properties={"@type": kind, **given}))

    program = entity(
        "#containernet-env",
        "SoftwareApplication",
        name="containernet-env",
        softwareVersion=manifest.program.version,
        identifier=manifest.program.commit and f"commit {manifest.program.commit}",
        description="with uncommitted changes" if manifest.program.dirty else None,
    )
    instruments = [program]
    if (store := manifest.store) is not None:
        kind = "SoftwareApplication"
        instruments.append(entity(f"#{store.kind}", kind, name=store.kind, softwareVersion=store.version))
    inputs = [part for part in parts if part.id in (TOPOLOGY_INPUT, SCENARIOS_INPUT)]
    last = run.events[-1] if run.events else None
    ended = last is not None and last.kind == "run_ended"
    failed = not ended or any(event.kind in ("run_failed", "run_interrupted") for event in run.events)
    crate.root_dataset["mentions"] = entity(
        "#run",
        "CreateAction",
        name=f"run {manifest.run_id}",
        description=shlex.join(manifest.command),
        startTime=manifest.began,
        endTime=last.at if last is not None and ended else None,
        actionStatus={"@id": f"http://schema.org/{'Failed' if failed else 'Completed'}ActionStatus"},
        instrument=instruments,
        object=inputs,
        result=[part for part in parts if part not in inputs and not part.id.startswith("schemas/")],
    )


def _write(crate: Any, file: Path) -> None:
    refused: OSError | None = None
    with replacing(file) as target:
        for part in crate.stream_zip(chunk_size=1 << 16):
            # Read to its end all the same: the library reports an error if an archive is abandoned halfway.
            if refused is None:
                try:
                    target.write(part)
                except OSError as error:
                    refused = error
        if refused is not None:
            raise refused


def _json(value: Any) -> bytes:
    return f"{json.dumps(value, indent=2)}\n".encode()
