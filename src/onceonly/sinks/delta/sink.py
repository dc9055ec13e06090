"""The Delta sink: executors write parquet files into the table's folder, the driver adds a version an epoch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from onceonly.durable.access import require_writable
from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.families import behind
from onceonly.families.columns import find
from onceonly.families.loaded.load import app_of, owner_of, require_unchanged
from onceonly.families.loaded.options import keys_of, require_keys
from onceonly.families.loaded.sink import newest_with_rows
from onceonly.families.loaded.types import choose, schema_of
from onceonly.families.loaded.withdrawing import WithdrawableSink
from onceonly.families.others import is_alone, tell
from onceonly.ports.standing import Held
from onceonly.sinks.delta import target
from onceonly.sinks.delta.options import DECLARED
from onceonly.sinks.delta.types import DeltaLayout
from onceonly.words import time_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from deltalake import DeltaTable

    from onceonly.families.loaded import Books, Layout, Load
    from onceonly.families.loaded.places import Home
    from onceonly.ports import Option, QueryContext
    from onceonly.sinks.delta.place import Place

_BEFORE = 32
_LOOKED_AT = 20
"""In how many of the newest versions others are looked for."""


class DeltaSink(WithdrawableSink):
    """Rows to a Delta table: whole epochs, each a version of it."""

    name: ClassVar[str] = "delta"
    declared: ClassVar[tuple[Option, ...]] = DECLARED

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._durable = -1
        """The newest version that this process has made durable."""
        self._before: dict[str, int] = {}
        """By app, the version on which the newest entry of this process was made."""

    @property
    def shown(self) -> str:
        return f"The Delta table {self.at.shown}"

    @property
    def at(self) -> Place:
        """Where the table is."""
        place: Place = self.options["path"]
        return place

    @property
    def home(self) -> Home:
        return self.at.home()

    def check(self, context: QueryContext) -> Mapping[str, str | int]:
        """Refuse columns and tables that do not fit, and make what the options ask for."""
        who, home = self.shown, self.home
        home.prepare()
        given = schema_of(context.columns, who=who) if context.columns else None
        table = self._table(given, who)
        target.refuse_features(table, self.at)
        if given is not None:
            table = self._merged(table, given)
        chosen = _arrow(table) if given is None else choose(given, _arrow(table), who=who)
        _refuse_keys(chosen, table.metadata().partition_columns, who)
        app = app_of(context.query, context.sink)
        books = target.read_books(table, app, None)
        if given is not None and books.newest is None and not is_alone(context.query):
            tell(context, self.at.shown, _others(table, context.query), place="table")
        return {
            "home": home.text,
            "table": str(table.metadata().id),
            "columns": target.columns_of(table, chosen.names),
            "indexed": target.indexed(table),
            "since": table.version(),
            "newest": newest_with_rows(books),
            **behind.stood(target.standing(self.at, app, table)),
        }

    def identity(self) -> Mapping[str, str | int]:
        """Name the table, by its own id too: one that was made anew in the same folder is another."""
        return {"path": self.home.identity, "table": str(target.open_table(self.at).metadata().id)}

    def overlaps(self, identity: Mapping[str, str | int]) -> bool:
        return self.home.identity == identity.get("path")

    def layout(self, facts: Mapping[str, str | int]) -> Layout:
        schema, partition_by = target.arrow_of(str(facts["columns"]))
        return DeltaLayout(schema, partition_by, int(facts["indexed"]))

    def standing(self, app: str) -> int | None:
        return target.standing(self.at, app)

    def books(self, app: str, epoch: int | None, *, since: int | None = None) -> Books:
        return target.read_books(target.open_table(self.at), app, epoch, since=since)

    def files_now(self, *, touched: bool = False) -> Sequence[str]:  # noqa: ARG002  it has no such files
        return target.open_table(self.at).file_uris()

    def held_in_all(self, context: QueryContext) -> Held:  # noqa: ARG002  a table does not say who added what
        return Held(rows=int(target.open_table(self.at).count()))

    def enter(self, books: Books, app: str, epoch: int, loads: Sequence[Load], void: Sequence[str]) -> None:
        before = books.at.version()
        target.enter(books.at, self.at, app, epoch, loads, void)
        self._before[app] = before

    def take_out(self, books: Books, app: str, epoch: int, loads: Sequence[Load]) -> bool:
        if self.keeps_all(books):
            return False
        before = books.at.version()
        target.take_out(books.at, self.at, app, epoch, loads)
        self._before[app] = before
        return True

    def is_kept(self, app: str, books: Books) -> bool:
        return app not in self._before or not target.is_taken_back(books.at, self.at, app, self._before[app])

    def see(self, books: Books, loads: Sequence[Load]) -> None:
        table = books.at
        target.refuse_features(table, self.at)
        require_unchanged(
            loads,
            self.shown,
            table=str(table.metadata().id),
            differing=partial(target.differing, table),
        )

    def leave_out(self, books: Books, app: str, epoch: int, loads: Sequence[Load]) -> None:
        target.leave_out(books.at, self.at, app, epoch, loads)

    def left_out_in(self, books: Books, app: str) -> str:
        version = target.left_out_in(books.at, app)
        return "" if version is None else f"version {version}"

    def keeps_all(self, books: Books) -> str:
        told = str(books.at.metadata().configuration.get("delta.appendOnly", ""))
        return "is append-only (delta.appendOnly)" if told.lower() == "true" else ""

    def require_rights(self, context: QueryContext, *, user: int | None = None) -> str:
        unseen, folder = super().require_rights(context, user=user), self.at.folder
        if unseen or folder is None:
            return unseen
        return require_writable((folder / target.LOG,), user=user, who=f"the sink {context.sink}")

    def sync(self, since: int) -> None:
        """Make all versions durable since one that was read; on a store they are. Raises ``UnavailableError``."""
        if self.at.folder is None:
            return
        try:
            last = target.open_table(self.at).version()
            # Some from before, too: others have just written them, and a log with a gap is none.
            target.sync(self.at, first=max(self._durable + 1, since - _BEFORE, 0), last=last)
            self._durable = last
        except OSError as error:
            raise UnavailableError(
                f"the log of the Delta table {self.at.shown} could not be made durable: {error.strerror}",
                next_step="see to this file system and start the query again",
            ) from error

    def _table(self, given: pa.Schema | None, who: str) -> DeltaTable:
        partition_by = self.options["partitionBy"]
        table = target.find_table(self.at)
        if table is None:
            if not self.options["create"] or given is None:
                raise ConfigurationError(
                    f"There is no Delta table in {self.at.shown}.",
                    next_step="correct path, make the table, or have it made by the option create=true",
                )
            return target.create(self.at, given, keys_of(partition_by, given.names))
        own = table.metadata().partition_columns
        if partition_by and [name.lower() for name in partition_by] != [name.lower() for name in own]:
            raise ConfigurationError(
                f"{who} is partitioned by {', '.join(own) or 'nothing'}, and partitionBy is {', '.join(partition_by)}.",
                next_step="leave partitionBy out: the table says it",
            )
        return table

    def _merged(self, table: DeltaTable, given: pa.Schema) -> DeltaTable:
        import pyarrow as pa

        names = _arrow(table).names
        new = [field for field in given if find(field.name, names) is None]
        if not new or not self.options["merge.schema"]:
            return table
        return target.add_columns(table, self.at, pa.schema(new))


def _arrow(table: DeltaTable) -> pa.Schema:
    import pyarrow as pa

    return pa.schema(table.schema().to_arrow())


def _refuse_keys(chosen: pa.Schema, partition_by: Sequence[str], who: str) -> None:
    """Refuse what cannot name a partition. Raises ``ConfigurationError``."""
    from pyarrow import types

    require_keys(partition_by, chosen.names, who)
    for name in partition_by:
        kind = chosen.field(name).type
        if types.is_nested(kind) or types.is_binary(kind):
            raise ConfigurationError(
                f"{who} is partitioned by {name}, of type {kind}, which no folder names.",
                next_step="write to a table that is partitioned by a column of a plain type",
            )
    if set(chosen.names) <= set(partition_by):
        raise ConfigurationError(
            f"{who}: the query gives its partition columns only, so nothing is left to write into the files.",
            next_step="add a column to the query",
        )


def _others(table: DeltaTable, query: str) -> list[str]:
    """Say which other queries have added the newest versions: of each the newest epoch, and when."""
    found: dict[tuple[str, str], str] = {}
    for entry in table.history(_LOOKED_AT):
        note = entry.get(target.NOTE)
        if not isinstance(note, dict):
            continue
        owner = owner_of(str(note.get("app")))
        if owner is not None and owner[0] != query and not is_alone(owner[0]):
            when = time_of(int(entry.get("timestamp", 0)))
            told = f"has come to chk-{note['epoch']}, in version {entry['version']} at {when}"
            found.setdefault(owner, f"query {owner[0]}, sink {owner[1]}, {told}")
    return list(found.values())
