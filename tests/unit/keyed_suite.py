"""What the conformance suites of keyed sinks have in common: rows with keys, and where they are staged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from onceonly_proof.conformance import SinkConformance

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXTS = pa.schema([("key", pa.string()), ("value", pa.string())])


class KeyedSuite(SinkConformance):
    """Each row has a key of its own; ``options`` name a folder ``staging``."""

    longest: ClassVar[int] = 10_000
    """The letters of the longest key that is tried."""

    def batch(self, numbers: list[int]) -> pa.RecordBatch:
        rows = {
            "key": [f"k{number}" for number in numbers],
            "value": [f"row {number}" for number in numbers],
        }
        return pa.RecordBatch.from_pydict(rows, schema=TEXTS)

    def samples(self) -> Mapping[str, pa.RecordBatch]:
        texts = [" ", "0", "Ünïcödé ☃ 𝄞", "a\nb\t\"c\" 'd',\\", "x" * self.longest]
        values = [*texts[1:], None]
        return {"texts": pa.RecordBatch.from_pydict({"key": texts, "value": values}, schema=TEXTS)}

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        return [str(path) for path in Path(options["staging"]).rglob("*") if path.is_file()]
