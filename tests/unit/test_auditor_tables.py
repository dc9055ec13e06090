"""The auditor's readers of tables: what they see, and what they say was left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.unit.loaded_bench import Bench

from onceonly_proof.campaign.targets import TARGETS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_tables_reader_sees_what_is_committed_and_names_what_was_left(tmp_path: Path, kind: str) -> None:
    from onceonly.settings.registry import find

    target = TARGETS[kind](tmp_path / kind)
    bench = Bench(find(kind)[1], kind, target.options("t1"), {"key": "string", "value": "string"})
    reader = target.reader(kind, "t1")
    assert list(reader.rows()) == []
    rows = pa.RecordBatch.from_pylist([{"key": "k", "value": "v"}, {"key": None, "value": "w"}])
    bench.committed(rows)
    left = bench.prepared(rows, epoch=1)
    assert [(seen.key, seen.value, seen.sink) for seen in reader.rows()] == [
        (b"k", b"v", kind),
        (None, b"w", kind),
    ]
    [orphan] = reader.orphans()
    assert left.transaction in orphan.what
    bench.sink().abort(left)
    assert reader.orphans() == []
    reader.close()
    target.close()
