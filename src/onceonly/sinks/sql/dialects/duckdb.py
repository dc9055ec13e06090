"""DuckDB. One process at a time has its file, so it is opened for each transaction, and waited for."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from onceonly.errors import ConfigurationError, OnceonlyError, RecordRefusedError, UnavailableError, required
from onceonly.sinks.sql.dialects.dialect import GOES_ON, Dialect
from onceonly.sinks.sql.reading import ROWS
from onceonly.sinks.sql.types import UUID, Column, Given, Table, bits, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from onceonly.sinks.sql.options import SqlOptions
    from onceonly.sinks.sql.types import Match

_TYPES: Mapping[str, Mapping[str, Any]] = {
    "TINYINT": {"takes": ("int",), **bits(8)},
    "SMALLINT": {"takes": ("int",), **bits(16)},
    "INTEGER": {"takes": ("int",), **bits(32)},
    "BIGINT": {"takes": ("int",), **bits(64)},
    "HUGEINT": {"takes": ("int",), **bits(128)},
    "UTINYINT": {"takes": ("int",), **bits(8, signed=False)},
    "USMALLINT": {"takes": ("int",), **bits(16, signed=False)},
    "UINTEGER": {"takes": ("int",), **bits(32, signed=False)},
    "UBIGINT": {"takes": ("int",), **bits(64, signed=False)},
    "FLOAT": {"takes": ("int", "float"), "mantissa": 24},
    "DOUBLE": {"takes": ("int", "float"), "mantissa": 53},
    "BOOLEAN": {"takes": ("bool",)},
    "VARCHAR": {"takes": ("text",)},
    "BLOB": {"takes": ("binary",)},
    "DATE": {"takes": ("date",)},
    "TIMESTAMP_S": {"takes": ("local",), "scale": 0},
    "TIMESTAMP_MS": {"takes": ("local",), "scale": 3},
    "TIMESTAMP": {"takes": ("local",), "scale": 6},
    "TIMESTAMP WITH TIME ZONE": {"takes": ("instant",), "scale": 6},
    "UUID": UUID,
    "JSON": {"takes": ("nested", "text"), "doubt": "json"},
}
_NEW = {
    "bool": "BOOLEAN", "text": "VARCHAR", "binary": "BLOB", "date": "DATE", "instant": "TIMESTAMP WITH TIME ZONE",
    "local": "TIMESTAMP", "nested": "JSON",
}  # fmt: skip
_NEW_NUMBERS = {
    ("int", 8): "TINYINT", ("int", 16): "SMALLINT", ("int", 32): "INTEGER", ("int", 64): "BIGINT",
    ("float", 32): "FLOAT", ("float", 64): "DOUBLE",
}  # fmt: skip
_REFUSED = {"ConstraintException", "ConversionException", "OutOfRangeException", "InvalidInputException"}
_MISTAKEN = {
    "BinderException", "CatalogException", "ParserException", "PermissionException", "NotImplementedException",
    "ConnectionException", "SyntaxException",
}  # fmt: skip
_OF_THE_CLIENT = "python_arrow_scan"
"""What the client makes in each database that it opens. It was seen to be missing once, on a busy machine."""
_HELD = re.compile(
    r"Could not set lock on file(?:.*? held in (?P<who>.+? \(PID \d+\)))?|(?P<own>with a different configuration)"
)
"""By another process; or in this one by a connection that only reads, as that of a notebook may."""
_FULL = "No space left on device"
_POLL_S = 0.01
_ROWS = "onceonly_batch"


class DuckDb(Dialect):
    """A database in a file of the driver's machine."""

    undoes_parts: ClassVar[bool] = False
    # Two transactions of one process would not wait for each other, but fail.
    _one: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self, options: SqlOptions) -> None:
        super().__init__(options)
        self.lock = self._one
        self._require_file()

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        return (_driver().Error,)

    def told(self, error: Exception) -> OnceonlyError:
        name, said = type(error).__name__, " ".join(str(error).split())[:500]
        if (held := _HELD.search(said)) is not None:
            who = held["who"] or ("this process, to read alone" if held["own"] else "another process")
            return UnavailableError(
                f"{self.options.url} is open in {who}, and DuckDB lets nobody else write it meanwhile",
                next_step=f"close it there; {GOES_ON}",
            )
        if _FULL in said:
            return self.no_room(said)
        what = f"{self.options.url}: {said}"
        if name in _REFUSED:
            return RecordRefusedError(what, next_step="mend the row, or what the table asks of it")
        if name in _MISTAKEN and _OF_THE_CLIENT not in what:
            return ConfigurationError(
                what, next_step="see that the file and its tables are as they should be"
            )
        return UnavailableError(
            what, next_step="see to the file and who else uses it, and start the query again"
        )

    def is_duplicate(self, error: Exception) -> bool:
        return type(error).__name__ == "ConstraintException"

    def connect(self) -> Any:  # noqa: ANN401
        driver, path = _driver(), self.options.url.path
        if not _is_there(path):
            raise ConfigurationError(
                f"there is no file {path}", next_step="correct the url, mount its folder, or set create=true"
            )
        deadline = time.monotonic() + self.options.connect_s
        while True:
            try:
                return driver.connect(path)
            except driver.Error as error:
                if not _HELD.search(str(error)) or time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)

    def files(self) -> Sequence[Path]:
        path = Path(self.options.url.path)
        return [path, path.parent]

    def make(self) -> None:
        if refusal := self._no_folder():
            raise refusal
        if not _is_there(self.options.url.path):
            _driver().connect(self.options.url.path).close()

    def describe(self, db: Any, name: tuple[str, ...]) -> Table | None:  # noqa: ANN401
        place = (name[0] if len(name) > 1 else "main", name[-1])
        where = "WHERE database_name = current_database() AND schema_name = ? AND table_name = ?"
        found = self.run(db, f"SELECT sql FROM duckdb_tables() {where}", place)
        if not found:
            views = self.run(
                db, f"SELECT 1 FROM duckdb_views() {where.replace('table_name', 'view_name')}", place
            )
            return Table(name=".".join(name), columns=(), wrong="is a view") if views else None
        columns = [
            _column(row)
            for row in self.run(
                db,
                "SELECT column_name, data_type, NOT is_nullable, column_default IS NOT NULL, numeric_precision, "
                f"numeric_scale FROM duckdb_columns() {where} ORDER BY column_index",
                place,
            )
        ]
        keys, doubts = set(), []
        for kind, text, names in self.run(
            db,
            f"SELECT constraint_type, constraint_text, constraint_column_names FROM duckdb_constraints() {where}",
            place,
        ):
            if kind in {"PRIMARY KEY", "UNIQUE"}:
                keys.add(tuple(names))
            elif kind != "NOT NULL":
                doubts.append(f"the {kind} {text}")
        for index, is_unique, expressions in self.run(
            db, f"SELECT index_name, is_unique, expressions FROM duckdb_indexes() {where}", place
        ):
            names = [part.strip("'\" ") for part in str(expressions).strip("[]").split(",")]
            if is_unique and set(names) <= {column.name for column in columns}:
                keys.add(tuple(names))
            elif is_unique:
                doubts.append(f"the index {index}")
        doubts += self._children(db, name[-1]) if self.options.key else []
        if re.search(r"GENERATED\s+ALWAYS", found[0][0] or "", re.IGNORECASE):
            doubts.append("a generated column")
        # Compared by it, keys are one that by the bytes, as they are kept unique, are two. Other columns may have one.
        own = "|".join(re.escape(form) for key in self.options.key for form in (key, self.quote(key)))
        alike = rf"[(,]\s*({own})\s+VARCHAR\s+COLLATE\b"
        is_alike = own and re.search(alike, found[0][0] or "", re.IGNORECASE)
        return Table(
            name=".".join(name),
            columns=tuple(columns),
            keys=tuple(sorted(keys)),
            doubts=tuple(doubts),
            wrong="has a collation in its key, by which DuckDB finds other keys, too" if is_alike else "",
        )

    def _children(self, db: Any, name: str) -> list[str]:  # noqa: ANN401
        # Replacing a row removes it and adds it again where an indexed column changes, and a child may forbid that.
        own = "|".join(map(re.escape, (name, self.quote(name))))
        keys = self.run(
            db, "SELECT table_name, constraint_text FROM duckdb_constraints() WHERE constraint_type = 'FOREIGN KEY' "
            "AND database_name = current_database() ORDER BY table_name",
        )  # fmt: skip
        refers = re.compile(rf"REFERENCES\s+(?:\S+\.)?(?:{own})\s*\(", re.IGNORECASE)
        return [f"a foreign key of {child}" for child, text in keys if refers.search(text)]

    def type_of(self, given: Given, *, is_key: bool) -> str:  # noqa: ARG002
        if given.kind == "decimal":
            return f"DECIMAL({given.size},{given.scale})"
        return _NEW_NUMBERS.get((given.kind, given.size)) or _NEW.get(given.kind, "")

    def load(self, db: Any, into: str, batch: pa.RecordBatch, match: Match) -> int:  # noqa: ANN401, ARG002
        import pyarrow as pa

        listed = self.listed(batch.schema.names)
        db.register(_ROWS, pa.Table.from_batches([batch]))
        db.execute(f"INSERT INTO {into} ({listed}) SELECT {listed} FROM {_ROWS}")
        db.unregister(_ROWS)  # where the insert failed, nothing more can be asked of the connection
        return int(batch.num_rows)  # it has neither triggers nor rules

    def read(self, db: Any, match: Match) -> Iterator[tuple[int, Sequence[Any]]]:  # noqa: ANN401
        found = db.sql(f"SELECT {self.listed(match.columns)} FROM {self.path(self.options.table)}")
        reader = (
            getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader
        )  # as older versions call it
        for batch in reader(ROWS):
            yield batch.num_rows, batch.columns


def _column(row: tuple[Any, ...]) -> Column:
    name, declared, required, filled, precision, scale = row
    known = dict(_TYPES.get(declared, {}))
    if declared.startswith("DECIMAL("):
        known = {
            "takes": ("int", "decimal"),
            "digits": precision - scale,
            "scale": scale,
            **whole(precision - scale),
        }
    if declared.startswith("ENUM("):
        known = {"takes": ("text",), "doubt": "an enumeration"}
    return Column(name=name, declared=declared, required=required, filled=filled, **known)


def _is_there(path: str) -> bool:
    from pathlib import Path

    return Path(path).exists()


def _driver() -> Any:  # noqa: ANN401
    with required("a sink for DuckDB needs the package duckdb", extra="duckdb", where="on the driver"):
        import duckdb
    return duckdb
