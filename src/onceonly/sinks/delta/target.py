"""A Delta table as the sink uses it: opened, checked, its log read and added to. Needs deltalake.

An epoch is one version. Its ``commitInfo`` has a note of ours with the names of the attempts whose files it adds, and
of those that are void; beside it stands a ``txn`` action of the query's sink with the epoch, by which Delta itself
refuses an entry that was begun before another one of the same sink was made.
"""

from __future__ import annotations

import importlib
import json
import time
from typing import TYPE_CHECKING, Any

from onceonly.durable import disk
from onceonly.errors import ConfigurationError, UnavailableError, required
from onceonly.families.loaded import NEVER, Books, ConflictError
from onceonly.sinks.delta.place import said

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

    from onceonly.families.loaded import DataFile, Load
    from onceonly.sinks.delta.place import Place

NOTE = "onceonly"
LOG = "_delta_log"
_HISTORY_FIRST, _HISTORY_TIMES = 32, 8
_INDEXED = 32
"""How many columns have statistics where the table says nothing else, as in Spark's Delta."""
# What an append has nothing to do with. Where a feature is only allowed, whether it is used is asked as well.
_HARMLESS = frozenset(
    {
        "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "generatedColumns", "identityColumns",
        "invariants", "timestampNtz", "vacuumProtocolCheck",
    }
)  # fmt: skip
_ANEW = "start the query again, or do it yourself"
_FORGETS = "delta.setTransactionRetentionDuration"


def require() -> None:
    """See that the client is there. Driver and executor. Raises ``SetupError``."""
    with required("the sink delta needs the package deltalake", extra="delta"):
        importlib.import_module("deltalake")


def open_table(place: Place) -> DeltaTable:
    """Read the newest version. Driver. Raises ``UnavailableError`` where there is none, or it cannot be read."""
    table = find_table(place)
    if table is None:
        raise UnavailableError(
            f"there is no Delta table in {place.shown}: it was removed, or a file system is not mounted",
            next_step="mount or restore it, and start the query again",
        )
    return table


def find_table(place: Place) -> DeltaTable | None:
    """Read the newest version; None where there is no table. Driver. Raises ``UnavailableError`` and typed errors."""
    require()
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(place.uri, storage_options=place.told())
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        what = f"the Delta table {place.shown} cannot be read"
        raise place.failed(error, what, "read", "see to the table and its log") from None


def create(place: Place, schema: pa.Schema, partition_by: Sequence[str]) -> DeltaTable:
    """Make a table, durably, unless somebody was quicker. Driver. Raises ``ConfigurationError``."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        DeltaTable.create(
            place.uri,
            schema=schema,
            mode="ignore",
            partition_by=list(partition_by),
            storage_options=place.told(),
        )
        sync(place, first=0, last=0)
        if place.folder is not None:
            disk.sync(place.folder)
            disk.sync(place.folder.parent)
    except (DeltaError, OSError) as error:
        if place.folder is None:
            raise place.failed(
                error, f"the Delta table {place.shown} could not be made", "put", _ANEW
            ) from None
        raise ConfigurationError(
            f"the Delta table {place.shown} could not be made: {said(error)}",
            next_step="see to the permissions of this folder, or make the table yourself",
        ) from error
    return open_table(place)


def add_columns(table: DeltaTable, place: Place, schema: pa.Schema) -> DeltaTable:
    """Add columns that can be null, in a version of their own. Driver. Raises ``UnavailableError``."""
    from deltalake import Field
    from deltalake.exceptions import DeltaError

    try:
        table.alter.add_columns([Field.from_arrow(field) for field in schema])
    except (DeltaError, OSError) as error:
        what = f"the columns {', '.join(schema.names)} could not be added to the Delta table {place.shown}"
        raise place.failed(error, what, "put", _ANEW) from None
    return open_table(place)


def refuse_features(table: DeltaTable, place: Place) -> None:
    """Refuse a table that asks more of its writers than to add files. Driver. Raises ``ConfigurationError``."""
    for what, why in _asked(table):
        raise ConfigurationError(
            f"The Delta table {place.shown} has {what}: {why}. Nothing was written.",
            next_step="take it away, or write to a table without it",
        )


def _asked(table: DeltaTable) -> Iterator[tuple[str, str]]:
    settings, protocol = table.metadata().configuration, table.protocol()
    for name in sorted(settings):
        if name.startswith("delta.constraints."):
            yield f"the constraint {name.rpartition('.')[2]}", "nobody would check it against the rows"
    if settings.get("delta.columnMapping.mode", "none") != "none":
        yield "column mapping", "its files have other names of columns than the table"
    if _FORGETS in settings:
        yield _FORGETS, "it would forget which epochs were committed, and they would be written twice"
    for field in table.schema().fields:
        used = {name.removeprefix("delta.") for name in field.metadata if name.startswith("delta.")}
        for name, what in (
            ("generationExpression", "the generated column"),
            ("identity.start", "the identity column"),
            ("invariants", "an invariant on the column"),
        ):
            if name in used:
                yield f"{what} {field.name}", "nobody would compute or check it"
    others = {*(protocol.writer_features or ()), *(protocol.reader_features or ())} - _HARMLESS
    if others:
        yield f"the feature {', '.join(sorted(others))}", "it asks more of a writer than is done here"


def columns_of(table: DeltaTable, names: Sequence[str]) -> str:
    """Return, as JSON, what is known of some columns: it goes with the files that were written by it. Pure."""
    fields = [json.loads(field.to_json()) for field in table.schema().fields if field.name in names]
    for field in fields:
        field["metadata"] = {}
    written = {"fields": fields, "partitionBy": table.metadata().partition_columns}
    return json.dumps(written, separators=(",", ":"), sort_keys=True)


def arrow_of(columns: str) -> tuple[pa.Schema, list[str]]:
    """Return the columns of that JSON, and the partition columns among them. Executor. Raises ``SetupError``."""
    require()
    import pyarrow as pa
    from deltalake import Schema

    told = json.loads(columns)
    schema = Schema.from_json(json.dumps({"type": "struct", "fields": told["fields"]}))
    return pa.schema(schema.to_arrow()), told["partitionBy"]


def differing(table: DeltaTable, columns: str) -> str:
    """Say what of the table files with these columns do not fit; empty where they do. Pure."""
    then = json.loads(columns)
    now = json.loads(columns_of(table, [field.name for field in table.schema().fields]))
    if then["partitionBy"] != now["partitionBy"]:
        return f"it is partitioned by {', '.join(now['partitionBy']) or 'nothing'}"
    given, has = ({field["name"]: field for field in each["fields"]} for each in (then, now))
    for name, field in given.items():
        if name not in has:
            return f"it has no column {name}"
        if field["type"] != has[name]["type"]:
            return f"its column {name} is of type {json.dumps(has[name]['type'])}"
    for name, field in has.items():
        if not field["nullable"] and (name not in given or given[name]["nullable"]):
            return f"its column {name} is NOT NULL"
    return ""


def indexed(table: DeltaTable) -> int:
    """Return how many columns have statistics, below 0 for all."""
    text = table.metadata().configuration.get("delta.dataSkippingNumIndexedCols", "")
    return int(text) if text.lstrip("-").isdecimal() else _INDEXED


def read_books(table: DeltaTable, app: str, epoch: int | None, *, since: int | None = None) -> Books:
    """Read what the log says of an epoch of ours, and of later ones; without one, of the newest. Driver."""
    newest = table.transaction_version(app)
    epoch = newest if epoch is None else epoch
    last = table.transaction_version(_withdrawn(app))
    withdrawn = NEVER if last is None else last
    if newest is None or epoch is None or newest < epoch:
        return Books(newest=newest, withdrawn=withdrawn, at=table)
    committed: set[str] = set()
    void: set[str] = set()
    is_whole = True
    for version, entry in _history(table):
        note = _note_of(entry, app)
        if note is not None and note["epoch"] < epoch:
            break
        if note is not None:
            committed.update(note["attempts"])
            void.update(note["void"])
        if version <= (0 if since is None else since + 1):
            break
    else:
        is_whole = False
    return Books(
        committed=frozenset(committed - void), void=frozenset(void), newest=newest, is_whole=is_whole,
        withdrawn=withdrawn, at=table,
    )  # fmt: skip


def standing(place: Place, app: str, table: DeltaTable | None = None) -> int | None:
    """Return the newest epoch of ours that no RESTORE has taken back. Driver. Raises ``UnavailableError``.

    ``table`` is its newest version, where that has just been read.
    """
    table = open_table(place) if table is None else table
    newest = table.transaction_version(app)
    restored: int | None = None
    kept, oldest, is_seen = newest, 0, False
    for oldest, entry in _history(table) if newest is not None else ():
        note = _note_of(entry, app)
        if note is not None and kept is not None:
            # Of what was taken back nothing counts, whether or not a RESTORE has brought it back.
            kept = min(kept, int(note["epoch"]))
            is_seen = True
            if restored is None or oldest <= restored:
                return kept
        restored = _restored(place, entry, restored)
    # Where the log has forgotten all of ours, what it still has stands on them.
    return newest if restored is None or (restored >= oldest and not is_seen) else None


def is_taken_back(table: DeltaTable, place: Place, app: str, before: int) -> bool:
    """Say whether a RESTORE has taken back our newest entry, which is later than a version. Driver."""
    restored: int | None = None
    count = table.version() - before
    for entry in table.history(count) if count > 1 else ():  # the only one is ours
        if _note_of(entry, app) is not None:
            return restored is not None and int(entry["version"]) > restored
        restored = _restored(place, entry, restored, first=before)
    return False


def _restored(place: Place, entry: dict[str, Any], before: int | None, *, first: int = 0) -> int | None:
    """Return the version that the newest state is of, by an entry and what was restored after it: ``before``."""
    version = int(entry["version"])
    if entry.get("operation") != "RESTORE" or (before is not None and version > before):
        return before
    to = str(entry.get("operationParameters", {}).get("version", ""))
    return int(to) if to.isdecimal() else _brought_back(place, version, first)


def _brought_back(place: Place, version: int, first: int) -> int:
    """Return of which version a RESTORE by a time has brought the files back; where of none from one on, an older one.

    Its entry names that time only, and clients differ in what they take for the time of a version.
    """
    now = _files_at(place, version)
    for each in range(version - 1, first - 1, -1):
        if _files_at(place, each) == now:
            return each
    return first - 1


def _files_at(place: Place, version: int) -> set[str] | None:
    """Return the files of a version; None where its log was removed. Driver. Raises ``UnavailableError``."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return set(DeltaTable(place.uri, version=version, storage_options=place.told()).file_uris())
    except DeltaError:
        return None


def enter(
    table: DeltaTable, place: Place, app: str, epoch: int, loads: Sequence[Load], void: Sequence[str]
) -> None:
    """Add one version. Driver. Raises ``ConflictError``, ``UnavailableError``."""
    from deltalake.transaction import AddAction

    now_ms = int(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [
        AddAction(**known, modification_time=now_ms, stats=file.notes)
        for known, file in _files_of(table, loads)
    ]
    note = {"app": app, "epoch": epoch, "attempts": [load.name for load in loads], "void": list(void)}
    _add_version(table, place, actions, note, {app: epoch})


def leave_out(table: DeltaTable, place: Place, app: str, epoch: int, loads: Sequence[Load]) -> None:
    """Add one version without these files. Operator's. Raises ``ConflictError``, ``UnavailableError``."""
    note = {"app": app, "epoch": epoch, "attempts": [], "void": []}
    _add_version(table, place, _removed(table, loads), note, {app: epoch, _withdrawn(app): table.version()})


def take_out(table: DeltaTable, place: Place, app: str, epoch: int, loads: Sequence[Load]) -> None:
    """Add one version without these files, whose attempts are void in it. Driver. Raises as ``enter``."""
    note = {"app": app, "epoch": epoch, "attempts": [], "void": [load.name for load in loads]}
    _add_version(table, place, _removed(table, loads), note, {app: epoch})


def _removed(table: DeltaTable, loads: Sequence[Load]) -> list[AddAction | RemoveAction]:
    from deltalake.transaction import RemoveAction

    now_ms = int(time.time() * 1000)
    return [RemoveAction(**known, deletion_timestamp=now_ms) for known, _ in _files_of(table, loads)]


def left_out_in(table: DeltaTable, app: str) -> int | None:
    """Return the newest version of ours in which nothing was entered: epochs were taken back there."""
    noted = (
        (version, note) for version, entry in _history(table) if (note := _note_of(entry, app)) is not None
    )
    return next((version for version, note in noted if not note["attempts"]), None)


def _files_of(table: DeltaTable, loads: Sequence[Load]) -> Iterator[tuple[dict[str, Any], DataFile]]:
    """Yield the files of loads, each with what the log says of it in any action."""
    partition_by = table.metadata().partition_columns
    for load in loads:
        for file in load.files:
            values = dict(zip(partition_by, file.keys, strict=True))
            path = f"{load.folder}/{file.path}"
            yield {"path": path, "size": file.bytes, "partition_values": values, "data_change": True}, file


def _add_version(
    table: DeltaTable,
    place: Place,
    actions: list[AddAction | RemoveAction],
    note: Mapping[str, Any],
    transactions: Mapping[str, int],
) -> None:
    """Write one version. Raises ``ConflictError``, ``UnavailableError``."""
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            partition_by=table.metadata().partition_columns,
            commit_properties=CommitProperties(
                custom_metadata={NOTE: note},
                app_transactions=[Transaction(app, number) for app, number in transactions.items()],
            ),
        )
    except CommitFailedError as error:
        raise ConflictError(said(error)) from error
    except (DeltaError, OSError) as error:
        what = f"the Delta table did not take chk-{note['epoch']}"
        raise place.failed(error, what, "put", "see to the table's file system") from None


def sync(place: Place, *, first: int, last: int) -> None:
    """Make versions of the log durable, which their writer did not; on a store they are. Driver. Raises ``OSError``."""
    if place.folder is None:
        return
    for version in range(first, last + 1):
        entry = place.folder / LOG / f"{version:020d}.json"
        if entry.exists():  # else the table has a checkpoint for it
            disk.sync(entry)
    disk.sync(place.folder / LOG)


def _history(table: DeltaTable) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield version and ``commitInfo`` from the newest on; what the log no longer has is left out."""
    told, limit = 0, _HISTORY_FIRST
    while True:
        entries = table.history(limit)
        for entry in entries[told:]:
            yield int(entry["version"]), entry
        if len(entries) < limit:
            return
        told, limit = len(entries), limit * _HISTORY_TIMES


def _withdrawn(app: str) -> str:
    """Return under which name the log keeps the version at which epochs of an app were taken back."""
    return f"{app}#withdrawn"


def _note_of(entry: dict[str, Any], app: str) -> dict[str, Any] | None:
    note = entry.get(NOTE)
    return note if isinstance(note, dict) and note.get("app") == app else None
