"""Which rows Kafka would refuse is known before they are sent, one by one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.unit import unreadable

from onceonly.errors import RecordRefusedError
from onceonly.sinks.kafka.producers.delivery import Topics
from onceonly.sinks.kafka.records import compression, record_batches, refusals
from onceonly.sinks.kafka.records.columns import rows, topic_codes
from onceonly.sinks.kafka.records.refusals import Sieve, Told
from onceonly.sinks.kafka.wire.answers import NotAnsweredError

if TYPE_CHECKING:
    from collections.abc import Callable

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass
class Cluster:
    """What a cluster says of its topics."""

    limits: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    compacted: tuple[str, ...] = ()

    def is_compacted(self, topic: str, *, anew: bool = False) -> bool:
        return topic in self.compacted

    def limit(self, topic: str, *, anew: bool = False) -> int | None:
        return self.limits.get(topic)

    def count(self, topic: str, *, anew: bool = False) -> int | None:
        return self.counts.get(topic)


def part(
    columns: dict[str, Any],
    *,
    topic: str | None = "t",
    most: int = 1 << 20,
    by: str = "none",
    **told: dict[str, int] | tuple[str, ...],
) -> tuple[list[bytes], list[tuple[int, str]]]:
    sieve = Sieve(topic, most, compression.codec(by, None), Cluster(**told))  # type: ignore[arg-type]
    taken, refused = sieve.part(pa.record_batch(columns))
    return taken.column("value").to_pylist(), [(each.row, each.code) for each in refused]


def test_rows_that_kafka_takes_go_on_as_they_are() -> None:
    batch = pa.record_batch({"value": [b"a", None], "key": [b"k", None]})
    taken, refused = Sieve("t", 100, record_batches.PLAIN, Cluster()).part(batch)  # type: ignore[arg-type]
    assert taken is batch
    assert refused == []


def test_a_row_over_the_producers_limit_is_refused_and_no_other() -> None:
    values = [b"a", b"b" * 101, b"c" * 100]
    assert part({"value": values}, most=100) == ([b"a", b"c" * 100], [(1, "TOO_LARGE")])


@pytest.mark.parametrize("by", ["none", "lz4", "zstd"])
def test_a_row_is_too_large_for_its_topic_by_the_batch_that_it_makes_alone(by: str) -> None:
    noise = random.Random(5).randbytes(400)
    values = [b"x" * 400, noise, b"y"]
    expected = [(1, "TOO_LARGE")] if by != "none" else [(0, "TOO_LARGE"), (1, "TOO_LARGE")]
    assert part({"value": values}, by=by, limits={"t": 300})[1] == expected


def test_the_size_of_a_row_alone_is_what_the_wire_has() -> None:
    """61 bytes of the batch; length, attributes, time, place, key, value and headers of the record."""
    value = b"v" * 50
    exact = 61 + 1 + 1 + 1 + 1 + 1 + 1 + 50 + 1
    assert part({"value": [value]}, limits={"t": exact}) == ([value], [])
    assert part({"value": [value]}, limits={"t": exact - 1}) == ([], [(0, "TOO_LARGE")])


def test_what_a_codec_makes_larger_is_measured_before_it_is_sent() -> None:
    noise = random.Random(3).randbytes(920)
    columns = {"value": [noise]}
    assert part(columns, limits={"t": 1004})[1] == []
    assert part(columns, by="lz4", limits={"t": 1004})[1] == [(0, "TOO_LARGE")]


def test_topics_that_are_none_are_refused_row_by_row() -> None:
    topics = ["good", None, "b\0d", "", "x" * 250, "a b", "..", "good"]
    taken, refused = part({"value": [str(n).encode() for n in range(8)], "topic": topics}, topic=None)
    assert taken == [b"0", b"7"]
    assert refused == [(1, "NO_TOPIC"), *((row, "BAD_TOPIC") for row in (2, 3, 4, 5, 6))]


def test_each_topic_has_its_own_limit_and_partitions() -> None:
    columns = {
        "value": [b"v" * 100, b"v" * 100, b"s", b"s", b"s"],
        "topic": ["small", "large", "small", "large", None],
        "partition": pa.array([None, None, 1, 1, 0], pa.int32()),
    }
    assert part(columns, topic=None, limits={"small": 100}, counts={"small": 1, "large": 2})[1] == [
        (0, "TOO_LARGE"),
        (2, "NO_PARTITION"),
        (4, "NO_TOPIC"),
    ]


def test_partitions_that_are_not_there_and_headers_without_a_key_are_refused() -> None:
    columns = {
        "value": [b"0", b"1", b"2", b"3", b"4"],
        "partition": pa.array([0, 2, -2, None, 1], pa.int32()),
        "headers": pa.array(
            [None, None, None, [{"key": None, "value": b""}], [{"key": "h", "value": None}]], HEADERS
        ),
    }
    taken, refused = part(columns, counts={"t": 2})
    assert taken == [b"0", b"4"]
    assert refused == [(1, "NO_PARTITION"), (2, "NO_PARTITION"), (3, "BAD_HEADER")]


def test_a_compacted_topic_takes_no_row_without_a_key() -> None:
    columns = {"value": [b"0", b"1", b"2"], "key": [None, b"", None], "topic": ["c", "c", "d"]}
    assert part(columns, topic=None, compacted=("c",)) == ([b"1", b"2"], [(0, "NO_KEY")])
    assert part({"value": [b"0"]}, compacted=("t",)) == ([], [(0, "NO_KEY")])


def test_that_a_topic_is_compacted_is_asked_for_anew_before_a_row_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policies = ["compact,delete", "delete", "delete"]
    told: dict[str, Callable[[], str | None]] = {"cleanup.policy": lambda: policies.pop(0)}
    monkeypatch.setattr(refusals, "topic_setting", lambda _, __, name: told.get(name, lambda: None)())
    sieve = Sieve("t", 1000, record_batches.PLAIN, Told(None))  # type: ignore[arg-type]
    batch = pa.record_batch({"value": [b"a"]})

    assert sieve.part(batch) == (batch, [])
    assert sieve.part(batch) == (batch, [])
    assert policies == ["delete"], "not once a batch"


def test_texts_that_are_no_utf8_are_refused_as_topics_and_told_as_keys_of_headers() -> None:
    texts = unreadable.COLUMNS["a text"][1]
    pairs = pa.StructArray.from_arrays([texts, pa.array([b"1", b"2"])], fields=list(HEADERS.value_type))
    headers = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pairs)
    columns = {"value": [b"0", b"1"], "topic": texts, "headers": headers}

    assert part(columns, topic=None) == ([b"0"], [(1, "BAD_TOPIC")])
    assert part(columns, topic="t") == ([b"0", b"1"], [])
    with pytest.raises(RecordRefusedError, match="no name of a topic"):
        topic_codes(pa.record_batch(columns), 0)
    assert [row[4] for row in rows(pa.record_batch(columns), "t", 0)] == [
        [("fine", b"1")],
        [("\ufffd\ufffd", b"2")],
    ]


def test_what_is_left_is_what_the_producers_read() -> None:
    columns = {"value": [b"a", b"b"], "topic": ["t", None]}
    sieve = Sieve(None, 100, record_batches.PLAIN, Cluster())  # type: ignore[arg-type]
    taken, _ = sieve.part(pa.record_batch(columns))
    assert [row[:2] for row in rows(taken, None, 0)] == [("t", b"a")]


def test_no_row_is_refused_by_what_the_topic_was_a_moment_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions were added, and its limit was raised, within the minute in which nobody asks again."""
    counts, limits = [1], [300]
    asked: list[str] = []

    def leaders(topics: Topics, topic: str) -> list[int]:
        if topic not in topics._leaders:
            asked.append("count")
            topics._leaders[topic] = (0.0, [1] * counts[-1])
        return topics._leaders[topic][1]

    def limit_of(_admin: object, _topic: str) -> int:
        asked.append("limit")
        return limits[-1]

    monkeypatch.setattr(refusals, "limit_of", limit_of)
    monkeypatch.setattr(refusals, "takes_keys_only", lambda *_: False)
    monkeypatch.setattr(Topics, "leaders", leaders)
    sieve = Sieve("t", 1000, record_batches.PLAIN, Told(None))  # type: ignore[arg-type]
    batch = pa.record_batch(
        {"value": [b"a", b"b" * 400, b"c" * 450], "partition": pa.array([2, 0, 0], pa.int32())}
    )

    def refused() -> list[tuple[int, str]]:
        return [(each.row, each.code) for each in sieve.part(batch)[1]]

    assert refused() == [(0, "NO_PARTITION"), (1, "TOO_LARGE"), (2, "TOO_LARGE")]
    counts.append(3)
    assert refused() == [(1, "TOO_LARGE"), (2, "TOO_LARGE")]
    limits.append(500)
    asked.clear()
    assert refused() == [(2, "TOO_LARGE")]
    assert asked == ["limit"], "once a batch, and only where a row would be refused"
    limits.append(600)
    assert refused() == []
    asked.clear()
    assert refused() == []
    assert asked == []


def test_a_limit_that_nobody_tells_now_is_the_one_that_was_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is asked for again at once, not a minute later."""
    answers: list[int | None] = [None, 300, None, 400]

    def limit_of(_admin: object, _topic: str) -> int:
        answer = answers.pop(0)
        if answer is None:
            raise NotAnsweredError("not now")
        return answer

    monkeypatch.setattr(refusals, "limit_of", limit_of)
    told = Told(None)  # type: ignore[arg-type]
    assert told.limit("t") is None
    assert told.limit("t") == 300
    assert told.limit("t") == 300
    assert len(answers) == 2
    monkeypatch.setattr(refusals, "_AGE_S", 0.0)
    assert told.limit("t") == 300
    assert told.limit("t") == 400


def test_a_limit_that_became_smaller_within_the_minute_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, int | None] = {"lowered": 300, "raised": 300, "the same": 300, "hidden": None}
    monkeypatch.setattr(refusals, "limit_of", lambda _admin, topic: limits[topic])
    told = Told(None)  # type: ignore[arg-type]
    for topic in limits:
        told.limit(topic)
    limits |= {"lowered": 200, "raised": 400, "hidden": 100}
    assert told.lowered() == ["lowered"]
    assert told.limit("lowered") == 200
    assert told.lowered() == []
