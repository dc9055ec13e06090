"""A commit is, byte by byte, what kafka-python makes of it, and its answer is read as kafka-python does."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import KafkaProtocolError
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.producer.transaction import EndTxnRequest, EndTxnResponse

from onceonly.sinks.kafka.wire.end_txn import EndTxn

VERSIONS = [3, 4, 5]
UNTAGGED = b"\0"
# One field: its number, its size, its content.
TAGGED = b"\x01\x07\x02xy"


def asked(version: int, name: str = "id", producer_id: int = 1, producer_epoch: int = 2) -> EndTxn:
    return EndTxn(name, producer_id=producer_id, producer_epoch=producer_epoch, version=version)


def encoded(request: Any, client: str, *, framed: bool) -> bytes:  # noqa: ANN401  kafka-python is untyped
    request.with_header(correlation_id=7, client_id=client)
    return bytes(request.encode(header=True, framed=framed))


@pytest.mark.parametrize("version", VERSIONS)
@given(
    name=st.text(max_size=20) | st.integers(100, 20_000).map("é".__mul__),
    client=st.text(max_size=20),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
)
def test_a_commit_is_what_kafka_python_makes_of_it(
    version: int, name: str, client: str, producer_id: int, producer_epoch: int
) -> None:
    request = asked(version, name, producer_id, producer_epoch)
    by_schema = EndTxnRequest[version](
        transactional_id=name, producer_id=producer_id, producer_epoch=producer_epoch, committed=True
    )
    for framed in (True, False):
        assert encoded(request, client, framed=framed) == encoded(by_schema, client, framed=framed)
    assert request.expect_response() == by_schema.expect_response()
    assert request.API_VERSION == by_schema.API_VERSION


def test_it_can_be_written_into_a_log_before_it_is_sent() -> None:
    assert "transactional_id='id'" in str(asked(5))


def answered(version: int, body: bytes, header: bytes = UNTAGGED, correlation_id: int = 1) -> Any:  # noqa: ANN401
    """Send a commit through kafka-python's parser, and give it the answer."""
    parser = KafkaProtocol(client_id="test")
    parser.send_request(asked(version))
    parser.send_bytes()
    frame = struct.pack(">i", correlation_id) + header + body
    ((found_id, answer),) = parser.receive_bytes(struct.pack(">i", len(frame)) + frame)
    assert found_id == correlation_id
    return answer


@pytest.mark.parametrize("header", [UNTAGGED, TAGGED])
@pytest.mark.parametrize("version", VERSIONS)
@given(
    throttle=st.integers(0, 2**31 - 1), code=st.integers(-1, 200), tags=st.sampled_from([UNTAGGED, TAGGED])
)
def test_an_answer_is_read_as_kafka_python_reads_it(
    version: int, header: bytes, throttle: int, code: int, tags: bytes
) -> None:
    by_schema = EndTxnResponse[version](throttle_time_ms=throttle, error_code=code)
    body = by_schema.encode().removesuffix(UNTAGGED) + tags
    answer = answered(version, body, header)
    assert (answer.throttle_time_ms, answer.error_code) == (throttle, code)


@pytest.mark.parametrize("version", [2, 6])
def test_a_version_that_is_spelled_otherwise_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match=f"version {version}"):
        asked(version)


def test_an_answer_that_is_cut_off_is_an_error_of_the_protocol() -> None:
    with pytest.raises(KafkaProtocolError):
        answered(5, b"\0\0\0\0\0")


def test_an_answer_to_another_request_is_an_error_of_the_protocol() -> None:
    with pytest.raises(KafkaProtocolError):
        answered(5, bytes(7), correlation_id=9)
