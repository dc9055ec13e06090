"""What the server has of rows is the same to the bit, whether they went as bytes or as texts."""

from __future__ import annotations

import math
import struct
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from postgres_databases import database
from test_sql_postgres_types import TYPES

from onceonly.options import read_options
from onceonly.sinks.sql.dialects import dialect_of
from onceonly.sinks.sql.dialects import postgres as postgres_dialect
from onceonly.sinks.sql.dialects.postgres_binary import kinds_of
from onceonly.sinks.sql.options import DECLARED, SqlOptions
from onceonly.sinks.sql.shape import shaped
from onceonly.sinks.sql.types import columns_of, match

if TYPE_CHECKING:
    from onceonly_proof.embedded.postgres import EmbeddedPostgres

pytestmark = pytest.mark.integration

_NEGATIVE_NAN, _OTHER_NAN = struct.unpack("<dd", struct.pack("<QQ", 0xFFF8 << 48, (0x7FF8 << 48) + (1 << 40)))
"""What a processor makes of sqrt(-1), and one of the many others."""
_ODD = st.sampled_from([math.nan, _NEGATIVE_NAN, _OTHER_NAN, math.inf, -math.inf, -0.0])
_KINDS = {
    name: (declared, kind, values | _ODD if pa.types.is_floating(kind) else values)
    for name, (declared, kind, values) in TYPES.items()
    if declared not in {"uuid", "jsonb"} and "numeric" not in declared
} | {
    "smallint into real": ("real", pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "int into bigint": ("bigint", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
}
_OPS = ("insert", "update", "delete", "update_preimage")


@st.composite
def _batches(draw: st.DrawFn) -> tuple[str, pa.RecordBatch]:
    """Draw the columns of a table, in any order, and rows of a feed: a slice, with and without nulls."""
    names = draw(st.permutations(sorted(_KINDS)))[: draw(st.integers(1, 8))]
    count = draw(st.integers(0, 12))
    columns: dict[str, pa.Array] = {}
    for place, name in enumerate(names):
        _, kind, values = _KINDS[name]
        some = values | st.none() if draw(st.booleans()) else values
        columns[f"c{place}"] = pa.array(draw(st.lists(some, min_size=count, max_size=count)), kind)
    columns["op"] = pa.array(
        draw(st.lists(st.sampled_from(_OPS), min_size=count, max_size=count)), pa.string()
    )
    columns["at"] = pa.array(range(count), pa.int64())
    declared = ", ".join(f"c{place} {_KINDS[name][0]}" for place, name in enumerate(names))
    return declared, pa.RecordBatch.from_pydict(columns).slice(draw(st.integers(0, min(count, 3))))


def test_texts_and_bytes_are_the_same_rows(
    postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"url": database(postgres), "table": "t"}
    sql = dialect_of(SqlOptions.of(read_options(DECLARED, options, who="x"), who="x"))

    @settings(
        max_examples=80,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(_batches())
    def are_the_same(drawn: tuple[str, pa.RecordBatch]) -> None:
        declared, batch = drawn
        sql.begin(db)
        sql.run(db, f"CREATE TEMPORARY TABLE t ({declared})")
        table = sql.describe(db, ("t",))
        assert table is not None
        found = replace(match(columns_of(batch.schema)[:-2], table), op="op", sequence="at")
        assert kinds_of(found)
        waiting = shaped(batch, found)

        def loaded() -> list[Any]:
            sql.run(db, sql.stage(found))
            sql.load(db, sql.staging, waiting, found)
            shown = sql.run(db, f"SELECT record_send(r), r::text FROM {sql.staging} r")  # noqa: S608
            sql.run(db, f"DROP TABLE {sql.staging}")
            return shown

        as_bytes = loaded()
        with monkeypatch.context() as patched:
            patched.setattr(postgres_dialect, "kinds_of", lambda _match: [])
            as_texts = loaded()
        sql.run(db, "ROLLBACK")
        assert as_bytes == as_texts
        assert len(as_bytes) == waiting.num_rows

    with closing(sql.connect()) as db:
        are_the_same()
