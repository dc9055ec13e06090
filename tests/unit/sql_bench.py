"""A table in a database, and a sink that writes epochs into it, step by step. For every dialect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from onceonly.errors import RecordRefusedError
from onceonly.model import AlreadyCommitted, Committed, Guarantee
from onceonly.ports import QueryContext, WriteContext
from onceonly.rows.checksum import RowChecksum
from onceonly.sinks.sql import SqlSink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from onceonly.model import Handle
    from onceonly.ports import Refused

SPARK = {
    "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "float": "float",
    "double": "double", "string": "string",
    "large_string": "string", "binary": "binary", "date32[day]": "date", "timestamp[us]": "timestamp_ntz",
    "timestamp[us, tz=UTC]": "timestamp",
}  # fmt: skip


def columns_of(schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    """Return the columns as Spark tells them."""
    found = []
    for each in schema:
        kind = str(each.type)
        if pa.types.is_decimal(each.type):
            kind = f"decimal({each.type.precision},{each.type.scale})"
        found.append((each.name, SPARK.get(kind, kind.replace("list", "array"))))
    return tuple(found)


@dataclass
class Bench:
    """One query. ``run`` asks the database itself, not by the sink."""

    url: str
    folder: Path
    run: Callable[[str], list[Any]]
    query: str = "q"
    options: dict[str, str] = field(default_factory=dict)
    made: list[SqlSink] = field(default_factory=list)

    def sink(self, **more: str) -> SqlSink:
        options = {
            "url": self.url,
            "table": "t",
            "staging": str(self.folder / "staging"),
            **self.options,
            **more,
        }
        self.made.append(SqlSink(options))
        return self.made[-1]

    def close(self) -> None:
        for sink in self.made:
            sink.close()

    def context(self, columns: Sequence[tuple[str, str]]) -> QueryContext:
        return QueryContext(
            query=self.query, sink="sql", guarantee=Guarantee.EXACTLY_ONCE, columns=tuple(columns)
        )

    def check(self, rows: pa.RecordBatch, **more: str) -> dict[str, str | int]:
        return dict(self.sink(**more).check(self.context(columns_of(rows.schema))))

    def stage(
        self, rows: pa.RecordBatch, facts: dict[str, str | int], *, epoch: int = 0, slot: int = 0, **more: str
    ) -> tuple[Handle, list[Refused]]:
        """Write and prepare, by a sink of its own, as an executor has."""
        sink = self.sink(**more)
        context = WriteContext(
            query=self.query, sink="sql", run="r", epoch=epoch, plan="p", slot=slot, attempt="0",
            guarantee=Guarantee.EXACTLY_ONCE, facts=facts, gives_back=True,
        )  # fmt: skip
        attempt = sink.begin_transaction(context)
        refused = list(sink.write(attempt, rows))
        return sink.pre_commit(attempt), refused

    def epoch(self, *slots: pa.RecordBatch, number: int = 0, **more: str) -> None:
        """Do all that an epoch does."""
        facts = self.check(slots[0], **more)
        staged = [self.stage(rows, facts, epoch=number, slot=slot, **more) for slot, rows in enumerate(slots)]
        assert [refused for _, refused in staged] == [[]] * len(slots)
        handles = [handle for handle, _ in staged]
        driver = self.sink(**more)
        driver.rehearse(handles, facts)
        assert set(driver.commit_many(handles)) == {Committed()}
        assert set(self.sink(**more).commit_many(handles)) == {AlreadyCommitted()}

    def reads_back(self, *batches: pa.RecordBatch, **more: str) -> str:
        """See that what was written is read back the same; else return why it may be other."""
        total = RowChecksum()
        for batch in batches:
            total.add(batch)
        held = self.sink(**more).read_back(self.context(columns_of(batches[0].schema)), ())
        assert held is not None
        assert (held.rows, held.wrong) == (total.rows, ())
        if held.checksum == total.value:
            return ""
        assert held.unread
        return held.unread


def rows(**columns: Any) -> pa.RecordBatch:  # noqa: ANN401
    """Make rows of arrays, or of what pyarrow makes arrays of."""
    return pa.RecordBatch.from_pydict(columns)


def require_told_of_staged_and_remembered(bench: Bench) -> None:
    """See that a sink tells what is staged, and whom its books remember; its table ``t`` has ``id`` and ``name``."""
    some = rows(id=[1], name=["a"])
    bench.epoch(some, number=4)
    handle, _ = bench.stage(some, bench.check(some), epoch=5)
    waiting, remembered = bench.sink().hanging()
    assert (waiting.transaction, waiting.query, waiting.is_open) == (handle.transaction, "q", True)
    assert (remembered.query, remembered.sink, remembered.is_open) == ("q", "sql", False)
    assert "has 1 handle of the sink sql, the newest that is applied of chk-4" in remembered.told


def require_sifted(bench: Bench, key: str) -> None:
    """See that a sink names the rows that a table refuses beside all others, some of each slot, and changes nothing."""
    bench.run("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(20), CHECK (name <> 'bad'))")
    bench.run("INSERT INTO t VALUES (9, 'was there')")
    bench.options.update(key=key)
    # Without a key, id 1 and 9 are there already; with one, they are replaced.
    slots = (
        rows(id=[1, 2, 3, 4], name=["a", "bad", "c", "d"]),
        rows(id=[5, 7 if key else 1, 6, 9], name=["e", "again", "bad", "new"]),
    )
    facts = bench.check(slots[0])
    handles = [bench.stage(each, facts, slot=slot)[0] for slot, each in enumerate(slots)]
    with pytest.raises(RecordRefusedError):
        bench.sink().rehearse(handles, facts)
    for _ in range(2):
        found = bench.sink().sift(handles, 9)
        places = [[each.row for each in found[handle.transaction]] for handle in handles]
        assert places == [[1], [2] if key else [1, 2, 3]]
    assert {each.code for some in found.values() for each in some} == {"REFUSED"}
    assert sum(map(len, bench.sink().sift(handles, 0).values())) == 1
    assert bench.run("SELECT * FROM t") == [(9, "was there")]
    assert bench.run("SELECT * FROM onceonly_commits") == []


def require_refers_to_later_rows(bench: Bench, table: str, *, refused: Sequence[int] = (1,)) -> None:
    """See which rows are refused where some come before what they refer to, and that the table takes all others.

    ``parent`` is an id of the table. One refers to nothing at all; the others are refused only where rows are looked at
    one by one.
    """
    bench.run(table)
    some = rows(id=[2, 9, 1, 3], parent=[1, 77, None, 2])
    facts = bench.check(some)
    handle, _ = bench.stage(some, facts)
    with pytest.raises(RecordRefusedError):
        bench.sink().rehearse([handle], facts)
    found = bench.sink().sift([handle], 9)
    assert [each.row for each in found[handle.transaction]] == list(refused)
    left, _ = bench.stage(some.take(pa.array([row for row in range(4) if row not in refused])), facts)
    bench.sink().rehearse([left], facts)
