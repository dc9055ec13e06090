"""A query that is started seldom, on a server of Kinesis' interface whose clock runs ahead and that forgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceonly.errors import SourceChangedError
from onceonly.sources.kinesis.options import SourceOptions
from onceonly.sources.kinesis.planning import Planner
from onceonly.sources.kinesis.reading import Task, shares
from onceonly_proof.embedded.kinesis import EmbeddedKinesis

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.sources.kinesis.positions import Offset

pytestmark = [pytest.mark.integration, pytest.mark.long]  # a further server


class Query:
    """A query that a scheduler starts with ``availableNow``."""

    def __init__(self, server: EmbeddedKinesis, folder: Path) -> None:
        self._server = server
        self._options = SourceOptions.of({**server.options("orders"), "onceonly.ranges": str(folder)})
        self._offset: Offset | None = None

    def start(self, *, at_h: float) -> list[bytes]:
        """Read what is there now, by a clock of the server that is ahead by so many hours."""
        self._server.kill()
        self._server.ahead_h = at_h
        self._server.start()
        planner = Planner(self._options)
        planner.stop_at_now()
        offset = self._offset or planner.initial()
        found: list[bytes] = []
        while (following := planner.following(offset)) is not offset:
            offset = following
            for share in shares(offset, planner.nexts(offset), planner.keeps_s):
                for records in Task(self._options, share).records().values():
                    found += [each["Data"] for each in records]
        self._offset = offset
        return found


def test_a_query_that_is_started_seldom_goes_on_as_long_as_the_stream_keeps_records(tmp_path: Path) -> None:
    with EmbeddedKinesis() as server:
        server.make_stream("orders", shards=2)
        client = server.client()
        client.increase_stream_retention_period(StreamName="orders", RetentionPeriodHours=72)
        server.await_active("orders", client)
        client.put_record(StreamName="orders", PartitionKey="a", Data=b"first")
        query = Query(server, tmp_path)
        assert query.start(at_h=0) == [b"first"]
        for hours in (48, 96, 144):  # from the third on, its record is gone
            assert query.start(at_h=hours) == []
        client.put_record(StreamName="orders", PartitionKey="a", Data=b"second")
        assert query.start(at_h=160) == [b"second"]
        with pytest.raises(SourceChangedError, match=r"keep them \(72 hours\)") as stopped:
            query.start(at_h=240)
        assert "the service does not tell" in str(stopped.value)
        client.close()
