"""Kinesis: kinesalite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly_proof.auditor import EnvelopedReader
from onceonly_proof.campaign.targets.port import Served
from onceonly_proof.embedded.kinesis import EmbeddedKinesis

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly_proof.auditor import Reader


class Kinesis(Served[EmbeddedKinesis]):
    """Streams of one server, to which rows are appended in envelopes."""

    shows_whole_epochs = False

    def __init__(self, folder: Path) -> None:
        # Nothing is committed; the answer to rows that were put is what can be lost.
        super().__init__(EmbeddedKinesis(folder), commit=b"Kinesis_20131202.PutRecords")

    def options(self, name: str) -> dict[str, str]:
        self._server.make_stream(name, shards=2)
        given = self._server.options(name)
        place = self.through_the_proxy(given["endpoint"])
        return {**given, "endpoint": place, "partitionKey": "key", "envelope": "json"}

    def reader(self, sink: str, name: str) -> Reader:
        return EnvelopedReader(sink, lambda: self._server.placed(name))
