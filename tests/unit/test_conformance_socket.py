"""The suite for authors of sinks, on the socket sink: the appended family's every day."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.unit.line_reader import LineReader

from onceonly.sinks.socket import SocketSink
from onceonly_proof.conformance import SinkConformance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


class TestSocket(SinkConformance):
    sink = SocketSink

    @pytest.fixture(autouse=True)
    def readers(self) -> Iterator[None]:
        self.listening: dict[str, LineReader] = {}
        yield
        for reader in self.listening.values():
            reader.close()

    def options(self, folder: Path) -> dict[str, str]:
        reader = LineReader()
        self.listening[str(reader.port)] = reader
        return {**reader.options, "envelope": "json"}

    def visible(self, options: Mapping[str, str]) -> list[tuple[str, ...]]:
        rows = [json.loads(line)["row"] for line in list(self.listening[options["port"]].lines)]
        return [(row["key"], row["value"]) for row in rows]


@pytest.mark.long
class TestSocketLines(TestSocket):
    """Lines as they are."""

    def options(self, folder: Path) -> dict[str, str]:
        return {name: value for name, value in super().options(folder).items() if name != "envelope"}

    def batch(self, numbers: list[int]) -> pa.RecordBatch:
        return pa.record_batch({"value": [f"row {number}" for number in numbers]})

    def refusable(self) -> pa.RecordBatch:
        return pa.record_batch({"value": ["two\nlines"]})

    def visible(self, options: Mapping[str, str]) -> list[tuple[str, ...]]:
        return [(line.decode(),) for line in list(self.listening[options["port"]].lines)]
