"""Produce requests, into which each batch is copied once. Executor. Imported when kafka-python is sure to be there.

kafka-python copies what a field holds into its buffer and out of it again, and takes a batch as one piece only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.producer.produce import ProduceRequest
from kafka.protocol.schemas.fields.codecs import Int32, UnsignedVarInt32

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onceonly.sinks.kafka.records.record_batches import Sealed

_ACKS_ALL = -1
# 12 and newer add the partition themselves, and name topics by their ids.
_VERSION_MAX = 11


class Produce(ProduceRequest, init=False):  # type: ignore[misc,call-arg]  # kafka-python is untyped
    """A request to write batches, in a transaction or in none: by topic, the partitions and what each gets."""

    def __init__(
        self,
        batches: Mapping[str, Sequence[tuple[int, Sealed]]],
        *,
        transactional_id: str | None,
        timeout_ms: int,
    ) -> None:
        topic = ProduceRequest.TopicProduceData
        # Of each batch, kafka-python gets the head, which stands there once and so shows where the rest belongs.
        super().__init__(
            transactional_id=transactional_id,
            acks=_ACKS_ALL,
            timeout_ms=timeout_ms,
            topic_data=[
                topic(
                    name=name,
                    partition_data=[
                        topic.PartitionProduceData(index=partition, records=sealed[0])
                        for partition, sealed in places
                    ],
                )
                for name, places in batches.items()
            ],
            max_version=_VERSION_MAX,
        )
        self._batches = [sealed for places in batches.values() for _, sealed in places]

    def encode(self, version: int | None = None, *, header: bool = False, framed: bool = False) -> bytes:
        """Encode as kafka-python does, which calls it when the version is known: with all of each batch."""
        left = bytes(super().encode(version, header=header, framed=False))
        parts: list[Any] = []
        for sealed in self._batches:
            before, head, left = left.partition(sealed[0])
            parts += [
                before.removesuffix(self._length(len(head))),
                self._length(sum(map(len, sealed))),
                *sealed,
            ]
        parts.append(left)
        frame = [Int32.encode(sum(map(len, parts)))] if framed else []
        return b"".join([*frame, *parts])

    def _length(self, size: int) -> bytes:
        """Spell what stands before so many bytes of records."""
        is_flexible = self.flexible_version_q(self.API_VERSION)
        return bytes(UnsignedVarInt32.encode(size + 1) if is_flexible else Int32.encode(size))
