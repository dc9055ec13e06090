"""An Iceberg table as the sink uses it: its catalogue, its state, and what is noted there. Driver; needs pyiceberg.

An epoch is one snapshot. In the same commit the table's property ``onceonly/{query}/{sink}`` says which epoch is the
newest, and which attempts were added and which are void in it: properties outlive snapshots that expire. The commit
is made only on the snapshot that was read; pyiceberg's own retries, which put the same files on top of a newer one, are
turned off.
"""

from __future__ import annotations

import importlib
import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceonly.durable import disk
from onceonly.errors import ConfigurationError, OnceonlyError, SetupError, UnavailableError, required
from onceonly.families.loaded import INSTEAD, NEVER, Books, ConflictError
from onceonly.families.loaded.places import home_at
from onceonly.sinks.iceberg.login import login
from onceonly.sinks.iceberg.types import record_text
from onceonly.stores.address import Kind, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata

    from onceonly.families.loaded import Load
    from onceonly.families.loaded.places import Home

FORMAT_MAX = 2
WITHDRAWN = "onceonly.withdrawn"
"""What the summary of a snapshot has in which epochs were taken back."""
_RETRIES = "commit.retry.num-retries"
# Transforms whose value is told by a file's bounds.
_LINEAR = ("identity", "year", "month", "day", "hour", "truncate")


def require() -> None:
    """See that the client is there. Driver and executor. Raises ``SetupError``."""
    with required("the sink iceberg needs the package pyiceberg", extra="iceberg"):
        importlib.import_module("pyiceberg")


def open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """Connect. Raises ``SetupError``, ``ConfigurationError``, ``UnavailableError``; shows no property."""
    require()
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NotInstalledError

    try:
        return load_catalog(name, **{**login(properties), **properties})
    except NotInstalledError as error:
        raise SetupError(
            f"the Iceberg catalogue {name} needs a package that is missing: {error}",
            next_step="install it as pyiceberg's own pages say, for example pyiceberg[sql-postgres]",
        ) from error
    except OnceonlyError:
        raise
    except ValueError:
        # Its text may have the properties.
        raise ConfigurationError(
            f"pyiceberg makes nothing of what is said of the Iceberg catalogue {name}.",
            next_step="set catalog.type and catalog.uri, or give the catalogue in pyiceberg's own configuration",
        ) from None
    except Exception as error:  # noqa: BLE001  whatever the client of a catalogue raises
        raise _unavailable(name, error) from None


def file_of(catalog: Catalog) -> Path | None:
    """Return the file that a catalogue is, as SQLite has it; None of others, which do not tell what they permit."""
    scheme, _, path = str(catalog.properties.get("uri", "")).partition(":///")
    return Path(path) if scheme.partition("+")[0] == "sqlite" and path and not path.startswith(":") else None


def find_table(catalog: Catalog, identifier: tuple[str, ...]) -> Table | None:
    """Read the newest state; None where there is no such table. Raises ``UnavailableError``."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        return catalog.load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except Exception as error:  # noqa: BLE001  whatever the client of a catalogue raises
        raise _unavailable(".".join(identifier), error) from None


def open_table(catalog: Catalog, identifier: tuple[str, ...]) -> Table:
    """Read the newest state. Raises ``UnavailableError``."""
    table = find_table(catalog, identifier)
    if table is None:
        raise UnavailableError(
            f"there is no Iceberg table {'.'.join(identifier)} any more",
            next_step="restore it, and start the query again",
        )
    return table


def create(catalog: Catalog, identifier: tuple[str, ...], schema: Any, partition_by: Sequence[str]) -> Table:  # noqa: ANN401
    """Make a table, unless somebody was quicker. Raises ``ConfigurationError``."""
    from pyiceberg.exceptions import TableAlreadyExistsError

    try:
        with catalog.create_table_transaction(identifier, schema) as begun, begun.update_spec() as spec:
            _home(identifier, begun.table_metadata)  # before anything is on a store
            for name in partition_by:
                spec.add_identity(name)
    except TableAlreadyExistsError:
        pass
    except OnceonlyError:
        raise
    except Exception as error:  # noqa: BLE001  whatever the client of a catalogue raises
        raise ConfigurationError(
            f"the Iceberg table {'.'.join(identifier)} could not be made: {_named(error)}",
            next_step="make its namespace, see to the permissions there, or make the table yourself",
        ) from None
    return open_table(catalog, identifier)


def add_columns(table: Table, schema: Any) -> None:  # noqa: ANN401  an Arrow schema
    """Add columns that can be null. Raises ``UnavailableError``."""
    try:
        with table.update_schema() as update:
            update.union_by_name(schema)
    except Exception as error:  # noqa: BLE001  whatever the client of a catalogue raises
        raise _unavailable(".".join(table.name()), error) from None


def refuse(table: Table) -> None:
    """Refuse a table to which files cannot simply be added. Raises ``ConfigurationError``."""
    for what, why in _wrong(table):
        raise ConfigurationError(
            f"The Iceberg table {'.'.join(table.name())} has {what}: {why}. Nothing was written.",
            next_step="write to a table without it",
        )


def _wrong(table: Table) -> Iterator[tuple[str, str]]:
    from pyiceberg.io.pyarrow import compute_statistics_plan
    from pyiceberg.types import BinaryType, DoubleType, FixedType, FloatType

    if table.format_version > FORMAT_MAX:
        yield f"the format version {table.format_version}", f"no newer one than {FORMAT_MAX} is written here"
    schema = table.schema()
    statistics = compute_statistics_plan(schema, table.properties)
    for field in table.spec().fields:
        transform, source = str(field.transform), schema.find_field(field.source_id)
        if not transform.startswith(_LINEAR):
            yield f"the partition {field.name} by {transform}", "a file's partition is told from its bounds"
        if source.name not in {column.name for column in schema.fields}:
            yield f"the partition {field.name} by a field inside a struct", "it is not read here"
        if isinstance(source.field_type, FloatType | DoubleType | BinaryType | FixedType):
            yield f"the partition {field.name} by a {source.field_type}", "its bounds do not tell every value"
        if statistics[field.source_id].mode.type.name in {"NONE", "COUNTS"}:
            yield (
                f"no bounds for {source.name} (write.metadata.metrics)",
                "a file's partition is told from them",
            )


def home_of(table: Table) -> Home:
    """Return the place of a table's data files. Raises ``ConfigurationError`` for where none can be put."""
    return _home(table.name(), table.metadata)


def _home(identifier: Sequence[str], metadata: TableMetadata) -> Home:
    place = metadata.properties.get("write.data.path") or f"{metadata.location}/data"
    what = f"the Iceberg table {'.'.join(identifier)}"
    address = parse(place, what=what)
    if address.kind not in {Kind.FOLDER, Kind.S3}:
        raise ConfigurationError(
            f"{what} {address.shown} is on {address.kind.system}, where it cannot be written yet",
            next_step=f"give a path on a mount that all machines share, or a bucket of S3{INSTEAD}",
        )
    return home_at(place)


def columns_of(table: Table, names: Sequence[str]) -> str:
    """Return, as JSON, what is known of some columns: it goes with the files that were written by it. Pure."""
    schema, spec = json.loads(table.schema().model_dump_json()), json.loads(table.spec().model_dump_json())
    fields = [field for field in schema["fields"] if field["name"] in names]
    return json.dumps({"fields": fields, "spec": spec}, separators=(",", ":"), sort_keys=True)


def told(columns: str) -> tuple[Schema, Any]:
    """Return the columns of that JSON, and the partitions. Executor. Raises ``SetupError``."""
    require()
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

    given = json.loads(columns)
    schema = Schema.model_validate({"type": "struct", "schema-id": 0, "fields": given["fields"]})
    return schema, PartitionSpec.model_validate(given["spec"])


def differing(table: Table, columns: str) -> str:
    """Say what of the table files with these columns do not fit; empty where they do. Pure."""
    then = json.loads(columns)
    now = json.loads(columns_of(table, [field.name for field in table.schema().fields]))
    if then["spec"] != now["spec"]:
        return f"it is partitioned in another way, {' '.join(str(table.spec()).split())}"
    given, has = ({field["name"]: field for field in each["fields"]} for each in (then, now))
    for name, field in given.items():
        if name not in has or has[name]["id"] != field["id"]:
            return f"it has no column {name} any more"
        if field["type"] != has[name]["type"]:
            return f"its column {name} is of type {has[name]['type']}"
    for name, field in has.items():
        if field["required"] and (name not in given or not given[name]["required"]):
            return f"its column {name} is required"
    return ""


def newest(table: Table, app: str) -> int | None:
    """Return the newest epoch of ours that was entered. Pure."""
    return None if app not in table.properties else int(_note_of(table, app)["epoch"])


def books_of(table: Table, app: str, epoch: int | None) -> Books:
    """Return what the table's property says: of the newest epoch, and of no older one. Pure."""
    if app not in table.properties:
        return Books(at=table)
    note = _note_of(table, app)
    return Books(
        committed=frozenset(note["attempts"]),
        void=frozenset(note["void"]),
        newest=note["epoch"],
        # What it has added itself is forgotten where later ones were taken back.
        is_whole=not note.get("bare") or (epoch is not None and epoch > note["epoch"]),
        withdrawn=note.get("withdrawn", NEVER),
        at=table,
    )


def enter(
    table: Table, app: str, epoch: int, loads: Sequence[Load], void: Sequence[str], *, home: Home
) -> None:
    """Commit one snapshot. Raises ``ConflictError``, ``ConfigurationError``, ``UnavailableError``."""
    from pyiceberg.io.pyarrow import parquet_file_to_data_file

    former = _note_of(table, app) if app in table.properties else {}
    before = former if former.get("epoch") == epoch else {"attempts": [], "void": []}
    note = {
        "epoch": epoch,
        "attempts": [*before["attempts"], *(load.name for load in loads)],
        "void": [*before["void"], *void],
        **{key: value for key, value in former.items() if key == "withdrawn"},
    }
    with _committing(table, app, note) as transaction:
        update = transaction.update_snapshot({"onceonly.app": app, "onceonly.epoch": str(epoch)})
        with update.fast_append() as append:
            for load in loads:
                for file in load.files:
                    path = f"{home.text}/{load.folder}/{file.path}"
                    found = parquet_file_to_data_file(table.io, table.metadata, path)
                    _see_partition(table, found, file.keys)
                    append.append_data_file(found)


def leave_out(table: Table, app: str, epoch: int, names: frozenset[str], home: Home) -> None:
    """Commit one snapshot without these files, as their home calls them. Operator's. Raises as ``enter``."""
    withdrawn = books_of(table, app, epoch).withdrawn + 1
    note = {"epoch": epoch, "attempts": [], "void": [], "withdrawn": withdrawn, "bare": True}
    with _committing(table, app, note) as transaction:
        if not names:
            return
        marks = {"onceonly.app": app, "onceonly.epoch": str(epoch), WITHDRAWN: "true"}
        _delete(table, transaction, names, home, marks)


def take_out(table: Table, app: str, epoch: int, loads: Sequence[Load], *, home: Home) -> None:
    """Commit one snapshot without these files, whose attempts are void from now on. Driver. Raises as ``enter``."""
    names = [load.name for load in loads]
    former = _note_of(table, app)
    left = [name for name in former["attempts"] if name not in names]
    note = {**former, "attempts": left, "void": [*former["void"], *names]}
    files = frozenset(home.called(f"{load.folder}/{file.path}") for load in loads for file in load.files)
    with _committing(table, app, note) as transaction:
        _delete(table, transaction, files, home, {"onceonly.app": app, "onceonly.epoch": str(epoch)})


def _delete(
    table: Table, transaction: Transaction, names: frozenset[str], home: Home, marks: Mapping[str, str]
) -> None:
    with transaction.update_snapshot(dict(marks)).overwrite() as update:
        for task in table.scan().plan_files():
            if home.known([task.file.file_path]) & names:
                update.delete_data_file(task.file)


def left_out_in(table: Table, app: str) -> int | None:
    """Return the newest snapshot in which epochs of ours were taken back. Pure."""
    found = [
        snapshot.snapshot_id
        for snapshot in table.snapshots()
        if (summary := snapshot.summary) is not None
        and summary.get("onceonly.app") == app
        and summary.get(WITHDRAWN)
    ]
    return found[-1] if found else None


@contextmanager
def _committing(table: Table, app: str, note: Mapping[str, Any]) -> Iterator[Transaction]:
    """Commit what is done to a transaction, and the note with it; sort what goes wrong into errors."""
    from pyiceberg.exceptions import CommitFailedException

    # In memory only. Its retries would not look whether another of ours has been quicker.
    table.metadata.properties[_RETRIES] = "0"
    try:
        with table.transaction() as transaction:
            yield transaction
            transaction.set_properties({app: json.dumps(note, separators=(",", ":"))})
    except CommitFailedException as error:
        raise ConflictError(str(error)) from error
    except OnceonlyError:
        raise
    except Exception as error:
        raise _unavailable(".".join(table.name()), error) from error


def sync(table: Table) -> None:
    """Make durable what the catalogue names of the current state, where it is in a file system. Raises ``OSError``."""
    snapshot = table.current_snapshot()
    paths = [table.metadata_location]
    if snapshot is not None:
        mine = (
            each for each in snapshot.manifests(table.io) if each.added_snapshot_id == snapshot.snapshot_id
        )
        paths += [snapshot.manifest_list, *(each.manifest_path for each in mine)]
    folders = set()
    for path in paths:
        address = parse(path, what="the Iceberg table's metadata")
        if address.kind is Kind.FOLDER:
            place = Path(address.path)
            disk.sync(place)
            folders.add(place.parent)
    for folder in folders:
        disk.sync(folder)


def _see_partition(table: Table, file: DataFile, keys: Sequence[str | None]) -> None:
    """See that pyiceberg takes a file for one of the partition that its rows are of."""
    schema = table.schema()
    for place, (field, key) in enumerate(zip(table.spec().fields, keys, strict=True)):
        value = file.partition[place]
        found = None if value is None else record_text(field, schema, value)
        if found != key:
            raise ConfigurationError(
                f"the partition {field.name} of {file.file_path} is {key}, and by its bounds it would be {found}",
                next_step="see to write.metadata.metrics of the table: the partition columns need bounds",
            )


def _note_of(table: Table, app: str) -> dict[str, Any]:
    note: dict[str, Any] = json.loads(table.properties[app])
    return note


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _unavailable(name: str, error: Exception) -> UnavailableError:
    return UnavailableError(
        f"the Iceberg table or catalogue {name} does not answer as it should: {_named(error)}",
        next_step="see to the catalogue and the table's files, and start the query again",
    )
