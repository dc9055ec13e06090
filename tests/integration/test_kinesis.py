"""The Kinesis sink against a server of that interface: rows there and back, a server that dies, bad input."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.model import Guarantee
from onceonly.ports import QueryContext, WriteContext
from onceonly.sinks.kinesis import KinesisSink
from onceonly_proof.embedded.kinesis import EmbeddedKinesis
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration, pytest.mark.long]  # a further server
CHECK = QueryContext(
    query="q", sink="kinesis", guarantee=Guarantee.AT_LEAST_ONCE, columns=(("value", "string"),)
)
WRITE = WriteContext(
    query="q", sink="kinesis", run="r", epoch=0, plan="p", slot=0, attempt="a", guarantee=Guarantee.AT_LEAST_ONCE,
)  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedKinesis]:
    with EmbeddedKinesis() as server:
        yield server


def test_more_rows_than_a_call_takes_are_there_and_spread_over_shards(server: EmbeddedKinesis) -> None:
    server.make_stream("many", shards=2)
    sink = KinesisSink(server.options("many"))
    sink.check(CHECK)
    attempt = sink.begin_transaction(WRITE)
    sink.write(attempt, pa.record_batch({"value": [f"row {number}" for number in range(1300)]}))
    sink.pre_commit(attempt)
    sink.close()
    placed = server.placed("many")
    assert sorted(data for _, _, data in placed) == sorted(b"row %d" % number for number in range(1300))
    assert len({shard for shard, _, _ in placed}) == 2


def test_rows_of_one_key_keep_their_order(server: EmbeddedKinesis) -> None:
    server.make_stream("ordered", shards=2)
    sink = KinesisSink({**server.options("ordered"), "partitionKey": "key", "envelope": "json"})
    attempt = sink.begin_transaction(WRITE)
    rows = {"key": [f"k{number % 7}" for number in range(1200)], "at": list(range(1200))}
    sink.write(attempt, pa.record_batch(rows))
    sink.pre_commit(attempt)
    sink.close()
    seen: dict[str, list[int]] = {}
    for _, _, data in server.placed("ordered"):
        row = json.loads(data)["row"]
        seen.setdefault(row["key"], []).append(row["at"])
    assert seen == {f"k{key}": list(range(key, 1200, 7)) for key in range(7)}


def test_a_server_that_dies_keeps_its_records_and_is_waited_for() -> None:
    with EmbeddedKinesis() as server:
        server.make_stream("orders")
        sink = KinesisSink(server.options("orders"))
        attempt = sink.begin_transaction(WRITE)
        sink.write(attempt, pa.record_batch({"value": ["a"] * 500}))
        sink.write(attempt, pa.record_batch({"value": ["b"]}))  # the first 500 go out
        server.kill()
        ended = threading.Thread(target=sink.pre_commit, args=(attempt,))
        ended.start()
        assert ended.is_alive()
        server.start()
        ended.join(60)
        assert not ended.is_alive()
        found = [record["Data"] for record in server.records("orders")]
        assert found == [*[b"a"] * 500, b"b"]
        sink.close()


def test_a_server_that_stays_away_ends_the_attempt_with_a_sentence() -> None:
    with EmbeddedKinesis() as server:
        server.make_stream("orders")
        sink = KinesisSink({**server.options("orders"), "timeout": "200 ms"})
        attempt = sink.begin_transaction(WRITE)
        sink.write(attempt, pa.record_batch({"value": ["a"]}))
        server.kill()
        with pytest.raises(UnavailableError, match=r"had no answer of the stream orders .* for 0\.2 s"):
            sink.pre_commit(attempt)
        sink.close()


def test_a_stream_that_is_missing_is_named_before_the_first_record(server: EmbeddedKinesis) -> None:
    with pytest.raises(ConfigurationError, match="there is no stream missing at"):
        KinesisSink(server.options("missing")).check(CHECK)


def test_a_stream_that_is_deleted_meanwhile_stops_the_query(server: EmbeddedKinesis) -> None:
    server.make_stream("deleted")
    sink = KinesisSink(server.options("deleted"))
    sink.check(CHECK)
    client = server.client()
    client.delete_stream(StreamName="deleted")
    assert until(lambda: "deleted" not in client.list_streams()["StreamNames"], 20)
    attempt = sink.begin_transaction(WRITE)
    sink.write(attempt, pa.record_batch({"value": ["a"]}))
    with pytest.raises(ConfigurationError, match="there is no stream deleted"):
        sink.pre_commit(attempt)
    client.close()
    sink.close()
