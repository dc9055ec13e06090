"""The Iceberg sink: executors write parquet files among the table's own, the driver commits a snapshot an epoch."""

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
from onceonly.sinks.iceberg import past, target
from onceonly.sinks.iceberg.options import DECLARED, split
from onceonly.sinks.iceberg.types import IcebergLayout, arrow_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from onceonly.families.loaded import Books, Layout, Load
    from onceonly.families.loaded.places import Home
    from onceonly.ports import Option, QueryContext


class IcebergSink(WithdrawableSink):
    """Rows to an Iceberg table: whole epochs, each a snapshot of it."""

    name: ClassVar[str] = "iceberg"
    declared: ClassVar[tuple[Option, ...]] = DECLARED

    def __init__(self, options: Mapping[str, str]) -> None:
        own, self._properties = split(options)
        super().__init__(own)
        self._catalog: Catalog | None = None
        self._snapshots: dict[str, int | None] = {}
        """By app, the snapshot that was the current one once this process had made its newest entry."""
        self._table_name: tuple[str, ...] = self.options["table"]

    @property
    def shown(self) -> str:
        return f"The Iceberg table {'.'.join(self._table_name)}"

    @property
    def catalog(self) -> Catalog:
        """The catalogue, opened when it is first needed: on the driver only."""
        if self._catalog is None:
            self._catalog = target.open_catalog(self.options["catalog"], self._properties)
        return self._catalog

    @property
    def home(self) -> Home:
        return target.home_of(self._open())

    def check(self, context: QueryContext) -> Mapping[str, str | int]:
        """Refuse columns and tables that do not fit, and make what the options ask for."""
        given = schema_of(context.columns, who=self.shown) if context.columns else None
        table = self._made(given)
        home = target.home_of(table)
        home.prepare()
        target.refuse(table)
        if given is not None:
            table = self._merged(table, given)
        has = arrow_of(table.schema())
        chosen = has if given is None else choose(given, has, who=self.shown)
        self._refuse_keys(table, chosen)
        app = app_of(context.query, context.sink)
        books = target.books_of(table, app, None)
        if given is not None and books.newest is None and not is_alone(context.query):
            tell(context, ".".join(self._table_name), _others(table, context.query), place="table")
        return {
            "home": home.text,
            "table": str(table.metadata.table_uuid),
            "columns": target.columns_of(table, chosen.names),
            "since": books.withdrawn + 1,
            "newest": newest_with_rows(books),
            **behind.stood(past.standing(table, app)),
        }

    def identity(self) -> Mapping[str, str | int]:
        """Name the table, by its own id too: one that was made anew under the same name is another."""
        table = self._open()
        return {
            "table": ".".join(self._table_name),
            "id": str(table.metadata.table_uuid),
            "location": table.location(),
        }

    def overlaps(self, identity: Mapping[str, str | int]) -> bool:
        own = self.identity()
        return own["id"] == identity.get("id") or own["location"] == identity.get("location")

    def layout(self, facts: Mapping[str, str | int]) -> Layout:
        return IcebergLayout(*target.told(str(facts["columns"])))

    def standing(self, app: str) -> int | None:
        return past.standing(self._open(), app)

    def books(self, app: str, epoch: int | None, *, since: int | None = None) -> Books:  # noqa: ARG002  of the newest only
        return target.books_of(self._open(), app, epoch)

    def files_now(self, *, touched: bool = False) -> Sequence[str]:
        found = self._open().scan().plan_files()
        return [each.file.file_path for each in found if touched or not each.delete_files]

    def held_in_all(self, context: QueryContext) -> Held:  # noqa: ARG002  a table does not say who added what
        return Held(rows=int(self._open().scan().count()))

    def enter(self, books: Books, app: str, epoch: int, loads: Sequence[Load], void: Sequence[str]) -> None:
        target.enter(books.at, app, epoch, loads, void, home=target.home_of(books.at))
        self._snapshots[app] = books.at.metadata.current_snapshot_id

    def take_out(self, books: Books, app: str, epoch: int, loads: Sequence[Load]) -> bool:
        target.take_out(books.at, app, epoch, loads, home=target.home_of(books.at))
        self._snapshots[app] = books.at.metadata.current_snapshot_id
        return True

    def is_kept(self, app: str, books: Books) -> bool:
        return past.is_kept(books.at, self._snapshots.get(app))

    def see(self, books: Books, loads: Sequence[Load]) -> None:
        table = books.at
        target.refuse(table)
        require_unchanged(
            loads,
            self.shown,
            table=str(table.metadata.table_uuid),
            differing=partial(target.differing, table),
        )

    def leave_out(self, books: Books, app: str, epoch: int, loads: Sequence[Load]) -> None:
        home = target.home_of(books.at)
        names = frozenset(home.called(f"{load.folder}/{file.path}") for load in loads for file in load.files)
        target.leave_out(books.at, app, epoch, names, home)

    def left_out_in(self, books: Books, app: str) -> str:
        snapshot = target.left_out_in(books.at, app)
        return "" if snapshot is None else f"snapshot {snapshot}"

    def require_rights(self, context: QueryContext, *, user: int | None = None) -> str:
        unseen, file = super().require_rights(context, user=user), target.file_of(self.catalog)
        if unseen or file is None:
            return unseen or "what its catalogue permits shows only in doing it"
        return require_writable((file.parent, file), user=user, who=f"the sink {context.sink}")

    def sync(self, since: int) -> None:  # noqa: ARG002  of the newest state only
        """Make the metadata durable that the catalogue names. Raises ``UnavailableError``."""
        try:
            target.sync(self._open())
        except OSError as error:
            raise UnavailableError(
                f"the metadata of {self.shown} could not be made durable: {error.strerror}",
                next_step="see to this file system and start the query again",
            ) from error

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    def _open(self) -> Table:
        return target.open_table(self.catalog, self._table_name)

    def _made(self, given: pa.Schema | None) -> Table:
        table = target.find_table(self.catalog, self._table_name)
        if table is not None:
            return table
        if not self.options["create"] or given is None:
            raise ConfigurationError(
                f"There is no Iceberg table {'.'.join(self._table_name)} in the catalogue {self.options['catalog']}.",
                next_step="correct table or the options of the catalogue, make it, or have it made by create=true",
            )
        return target.create(
            self.catalog, self._table_name, given, keys_of(self.options["partitionBy"], given.names)
        )

    def _merged(self, table: Table, given: pa.Schema) -> Table:
        import pyarrow as pa

        names = [field.name for field in table.schema().fields]
        new = [field for field in given if find(field.name, names) is None]
        if not new or not self.options["merge.schema"]:
            return table
        target.add_columns(table, pa.schema(new))
        return self._open()

    def _refuse_keys(self, table: Table, chosen: pa.Schema) -> None:
        keys = [table.schema().find_field(field.source_id).name for field in table.spec().fields]
        require_keys(keys, chosen.names, self.shown)


def _others(table: Table, query: str) -> list[str]:
    """Say which other queries have added snapshots, by the table's properties: of each the newest epoch."""
    owners = {app: owner for app in table.properties if (owner := owner_of(app)) is not None}
    return [
        f"query {name}, sink {sink}, has come to chk-{target.books_of(table, app, None).newest}"
        for app, (name, sink) in owners.items()
        if name != query and not is_alone(name)
    ]
