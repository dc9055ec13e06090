"""What the operator sees of barriers: partitions, how far each has come, and how far it was behind."""

from __future__ import annotations

import json

from onceonly.operations.offsets import Partition, partitions
from onceonly.sources.kinesis import positions as kinesis
from onceonly.sources.rabbitmq_stream.positions import Position


def by_name(start: object, end: object, latest: object = None) -> dict[str, Partition]:
    texts = [None if each is None else json.dumps(each) for each in (start, end, latest)]
    return {each.partition: each for each in partitions(texts[0], texts[1] or "", texts[2])}


def test_kafka_is_behind_by_what_its_report_says() -> None:
    found = by_name({"t": {"0": 3}}, {"t": {"0": 5, "1": 1}}, {"t": {"0": 9, "1": 1}})
    assert [(each.span, each.behind) for each in found.values()] == [(2, 4), (None, 0)]
    assert found["t/0"].lag == "4"


def test_each_shard_of_kinesis_says_how_old_its_place_is() -> None:
    offset = kinesis.Offset(
        reader="r", number=2, made="",
        start={"a": kinesis.Position("after", "7"), "b": kinesis.Position("time", "1.000")},
        behind={"start/a": 1200},
    )  # fmt: skip
    found = by_name(None, offset.json)
    assert (found["start/a"].behind_ms, found["start/b"].behind_ms) == (1200, None)
    assert (found["start/a"].lag, found["start/b"].lag) == ("1200 ms", "")
    assert not any(name.startswith("onceonly.") for name in found)
    assert kinesis.Offset.of(offset.json) == offset


def test_an_offset_of_kinesis_of_before_is_read() -> None:
    old = {"version": 1, "reader": "r", "number": 1, "made": "", "start": {}, "done": [], "groups": []}
    assert kinesis.Offset.of(old).behind == {}


def test_a_stream_of_rabbitmq_is_behind_by_messages() -> None:
    found = by_name(Position(offset=3).json, Position(offset=9, more=5).json)
    assert (found["offset"].span, found["offset"].behind) == (6, 5)
    assert not any(name.startswith("onceonly.") for name in found)


def test_a_source_that_does_not_say_is_not_told_to_be_behind() -> None:
    assert {each.lag for each in by_name({"logOffset": 1}, {"logOffset": 2}).values()} == {""}
