"""A stream in memory with the calls that the source makes of boto3's client. Several threads may use one."""

from __future__ import annotations

import hashlib
import threading
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

SPACE = 1 << 128


class Shard:
    """A shard: its part of the hash keys, its records, its parents."""

    def __init__(self, name: str, low: int, high: int, parents: tuple[str, ...] = ()) -> None:
        self.name, self.low, self.high, self.parents = name, low, high, parents
        self.records: list[dict[str, Any]] = []
        self.trimmed = 0
        self.closed = False
        self.closed_at = 0.0
        self.is_expired = False


class Stream:
    """Fulfils what is asked of a client. ``faults`` are raised, one a call to ``get_records``."""

    def __init__(self, shards: int = 1, *, at: float = 1_000_000.0) -> None:
        step = SPACE // shards
        self.shards: dict[str, Shard] = {}
        for number in range(shards):
            self._add(number * step, SPACE if number == shards - 1 else (number + 1) * step)
        self.at = at
        self.made = datetime.fromtimestamp(at, UTC)
        self.faults: list[Exception] = []
        self.expired: set[str] = set()
        self.calls = self.age = 0
        self.status, self.hours = "ACTIVE", 24
        self.page = 10_000
        """How many records a call gives at most, whatever is asked."""
        self.is_vague = False
        """Whether each answer says that nothing follows, as kinesalite's do."""
        self._sequence = 0
        self._lock = threading.RLock()

    def _add(self, low: int, high: int, parents: tuple[str, ...] = ()) -> Shard:
        name = f"shardId-{len(self.shards):012d}"
        self.shards[name] = Shard(name, low, high, parents)
        return self.shards[name]

    # --- the test's hand ------------------------------------------------------------------------------------

    def put(self, key: str, data: bytes) -> None:
        with self._lock:
            digest = int(hashlib.md5(key.encode(), usedforsecurity=False).hexdigest(), 16)
            shard = next(
                each for each in self.shards.values() if not each.closed and each.low <= digest < each.high
            )
            self._sequence += 1
            shard.records.append({
                "SequenceNumber": f"{self._sequence:021d}", "PartitionKey": key, "Data": data,
                "ApproximateArrivalTimestamp": datetime.fromtimestamp(self.at, UTC),
            })  # fmt: skip

    def split(self, name: str) -> None:
        with self._lock:
            shard = self.shards[name]
            shard.closed, shard.closed_at = True, self.at
            middle = (shard.low + shard.high) // 2
            self._add(shard.low, middle, (name,))
            self._add(middle, shard.high, (name,))

    def merge(self, first: str, second: str) -> None:
        with self._lock:
            one, other = self.shards[first], self.shards[second]
            one.closed = other.closed = True
            one.closed_at = other.closed_at = self.at
            self._add(min(one.low, other.low), max(one.high, other.high), (first, second))

    def trim(self, name: str, count: int) -> None:
        self.shards[name].trimmed = count

    def wait(self, hours: float) -> None:
        """Let time pass, and the retention and the iterators with it."""
        with self._lock:
            self.at += hours * 3600
            self.age += 1
            kept = self.at - self.hours * 3600
            for shard in self.shards.values():
                times = [each["ApproximateArrivalTimestamp"].timestamp() for each in shard.records]
                shard.trimmed = max(shard.trimmed, sum(time < kept for time in times))
                shard.is_expired = shard.closed and shard.closed_at < kept

    # --- the client's calls ---------------------------------------------------------------------------------

    def describe_stream_summary(self, **_: Any) -> dict[str, Any]:  # noqa: ANN401  as boto3's
        return {
            "StreamDescriptionSummary": {
                "StreamStatus": self.status,
                "StreamCreationTimestamp": self.made,
                "RetentionPeriodHours": self.hours,
            },
            **self._told(),
        }

    def list_shards(self, **given: Any) -> dict[str, Any]:  # noqa: ANN401  as boto3's
        with self._lock:
            found = []
            for shard in self.shards.values():
                if shard.is_expired:
                    continue
                told: dict[str, Any] = {
                    "ShardId": shard.name,
                    "SequenceNumberRange": {"StartingSequenceNumber": f"{self.made.timestamp():.0f}"},
                    "HashKeyRange": {"StartingHashKey": str(shard.low), "EndingHashKey": str(shard.high - 1)},
                }
                told |= dict(zip(("ParentShardId", "AdjacentParentShardId"), shard.parents, strict=False))
                if shard.closed:
                    told["SequenceNumberRange"]["EndingSequenceNumber"] = "9"
                found.append(told)
            # In pages of two, as the service's are of a thousand.
            first = int(given.get("NextToken", 0))
            more = {"NextToken": str(first + 2)} if first + 2 < len(found) else {}
            return {"Shards": found[first : first + 2], **more, **self._told()}

    def get_shard_iterator(self, **given: Any) -> dict[str, Any]:  # noqa: ANN401  as boto3's
        with self._lock:
            shard = self.shards.get(given["ShardId"])
            if shard is None or shard.is_expired:
                raise error("ResourceNotFoundException")
            kind, at = given["ShardIteratorType"], 0
            if kind == "AT_SEQUENCE_NUMBER":
                numbers = [each["SequenceNumber"] for each in shard.records]
                at = next(
                    (i for i, number in enumerate(numbers) if number >= given["StartingSequenceNumber"]),
                    len(numbers),
                )
            elif kind == "AT_TIMESTAMP":
                times = [each["ApproximateArrivalTimestamp"].timestamp() for each in shard.records]
                at = next((i for i, seconds in enumerate(times) if seconds >= given["Timestamp"]), len(times))
            return {"ShardIterator": f"{shard.name}:{max(at, shard.trimmed)}:{self.age}"}

    def get_records(self, **given: Any) -> dict[str, Any]:  # noqa: ANN401  as boto3's
        with self._lock:
            self.calls += 1
            if self.faults:
                raise self.faults.pop(0)
            if given["ShardIterator"] in self.expired:
                raise error("ExpiredIteratorException")
            name, text, age = given["ShardIterator"].split(":")
            if age != str(self.age):
                raise error("ExpiredIteratorException")
            shard, at = self.shards[name], max(int(text), self.shards[name].trimmed)
            end = min(at + min(given["Limit"], self.page), len(shard.records))
            is_end = shard.closed and end == len(shard.records)
            answer = {
                "Records": shard.records[at:end],
                "MillisBehindLatest": 0 if end == len(shard.records) or self.is_vague else 1000,
                **self._told(),
            }
            return answer if is_end else {**answer, "NextShardIterator": f"{name}:{end}:{age}"}

    def _told(self) -> dict[str, Any]:
        date = datetime.fromtimestamp(self.at, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        return {"ResponseMetadata": {"HTTPHeaders": {"date": date}}}

    def close(self) -> None:
        """Nothing is open."""


def error(code: str, status: int = 400) -> ClientError:
    told = {"Error": {"Code": code, "Message": "told so"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(told, "GetRecords")
