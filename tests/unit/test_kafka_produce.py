"""A produce request is, byte by byte, what kafka-python makes of batches that are joined before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest

from onceonly.sinks.kafka.records import record_batches
from onceonly.sinks.kafka.records.record_batches import Identity
from onceonly.sinks.kafka.wire.produce import Produce

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.sinks.kafka.records.record_batches import Sealed

PIECES = st.lists(st.binary(max_size=200) | st.binary(max_size=200).map(pa.py_buffer), max_size=4)
PLACES = st.lists(st.tuples(st.integers(0, 300), PIECES), min_size=1, max_size=4)


def sealed(pieces: list[Any]) -> Sealed:
    return record_batches.seal(pieces, 1, by=Identity(5, 2), sequence=0, time_ms=1)


def by_kafka_python(batches: Mapping[str, list[tuple[int, Sealed]]]) -> Any:  # noqa: ANN401
    topic = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id="onceonly.é",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            topic(
                name=name,
                partition_data=[
                    topic.PartitionProduceData(index=index, records=b"".join(batch))
                    for index, batch in places
                ],
            )
            for name, places in batches.items()
        ],
        max_version=11,
    )


def encoded(request: Any, version: int, *, framed: bool) -> bytes:  # noqa: ANN401
    request.API_VERSION = version
    request.with_header(correlation_id=7, client_id="test")
    return bytes(request.encode(header=True, framed=framed))


@pytest.mark.parametrize("version", [3, 8, 9, 11])
@given(st.dictionaries(st.text(min_size=1, max_size=9), PLACES, min_size=1, max_size=3))
def test_it_is_what_kafka_python_makes_of_joined_batches(
    version: int, drawn: dict[str, list[tuple[int, list[Any]]]]
) -> None:
    batches = {name: [(index, sealed(pieces)) for index, pieces in places] for name, places in drawn.items()}
    request = Produce(batches, transactional_id="onceonly.é", timeout_ms=30_000)
    joined = by_kafka_python(batches)
    for framed in (True, False):
        assert encoded(request, version, framed=framed) == encoded(joined, version, framed=framed)


def test_the_answer_to_it_is_read_as_that_to_any_produce_request() -> None:
    request = Produce({"t": [(0, sealed([b"x"]))]}, transactional_id="id", timeout_ms=1)
    request.API_VERSION = 11
    request.with_header(correlation_id=1, client_id="test")
    assert request.expect_response()
    assert request.header.get_response_class().name == "ProduceResponse"
