"""What other people do to a transaction of ours, with Kafka's own tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.admin.transactions import DescribeProducersRequest
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

if TYPE_CHECKING:
    from onceonly.sinks.kafka.wire.admin import Admin

OFFSETS = "__consumer_offsets"


def producers(admin: Admin, topic: str, partition: int) -> list[tuple[int, int, int, int]]:
    """Return producer id, epoch, coordinator epoch and start of each transaction that is open in a partition."""
    wanted = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[partition])
    found = admin.send(DescribeProducersRequest(topics=[wanted])).topics[0].partitions[0]
    assert found.error_code == 0
    return [
        (each.producer_id, each.producer_epoch, each.coordinator_epoch, each.current_txn_start_offset)
        for each in found.active_producers
        if each.current_txn_start_offset >= 0
    ]


def abort(admin: Admin, topic: str, partition: int, at_most: int = 99) -> int:
    """Abort what is open in a partition, as ``kafka-transactions.sh abort --start-offset`` does; give how many."""
    found = producers(admin, topic, partition)[:at_most]
    for producer_id, producer_epoch, coordinator_epoch, _ in found:
        of_request = WriteTxnMarkersRequest.WritableTxnMarker
        marker = of_request(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[of_request.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
            coordinator_epoch=max(coordinator_epoch, 0),
        )
        answer = admin.send(WriteTxnMarkersRequest(markers=[marker], max_version=1))
        assert answer.markers[0].topics[0].partitions[0].error_code == 0
    return len(found)
