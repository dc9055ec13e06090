"""The suite for authors of sinks, on the Kinesis sink and a server of that interface."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest

from onceonly.sinks.kinesis import KinesisSink
from onceonly_proof.conformance import SinkConformance
from onceonly_proof.embedded.kinesis import EmbeddedKinesis

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedKinesis]:
    with EmbeddedKinesis() as server:
        yield server


class TestKinesis(SinkConformance):
    sink = KinesisSink
    every_pass = False

    @pytest.fixture(autouse=True)
    def a_server(self, server: EmbeddedKinesis) -> None:
        self.server = server

    def options(self, folder: Path) -> dict[str, str]:
        name = uuid.uuid4().hex
        self.server.make_stream(name)
        return {**self.server.options(name), "partitionKey": "key", "envelope": "json"}

    def visible(self, options: Mapping[str, str]) -> list[tuple[str, str]]:
        rows = [json.loads(each["Data"])["row"] for each in self.server.records(options["stream"])]
        return [(row["key"], row["value"]) for row in rows]
