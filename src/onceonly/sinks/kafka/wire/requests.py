"""The requests of Kafka's protocol that the sink sends, as kafka-python makes them, and its reader of records.

Imported inside functions, when kafka-python is sure to be there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

# First, and as a whole: two threads of a worker that begin at different modules of it would wait for each other.
import kafka  # noqa: F401
from kafka.errors import UnsupportedCodecError
from kafka.protocol.admin.configs import DescribeConfigsRequest
from kafka.protocol.admin.groups import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.admin.topics import CreateTopicsRequest
from kafka.protocol.admin.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.consumer.offsets import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from kafka.record import MemoryRecords

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "BROKER",
    "EARLIEST",
    "LATEST",
    "TOPIC",
    "AddOffsetsToTxnRequest",
    "AddPartitionsToTxnRequest",
    "CreateTopicsRequest",
    "DescribeConfigsRequest",
    "DescribeGroupsRequest",
    "DescribeProducersRequest",
    "DescribeTransactionsRequest",
    "EndTxnRequest",
    "FetchRequest",
    "InitProducerIdRequest",
    "ListGroupsRequest",
    "ListOffsetsRequest",
    "ListTransactionsRequest",
    "MemoryRecords",
    "OffsetCommitRequest",
    "OffsetFetchRequest",
    "TxnOffsetCommitRequest",
    "UnsupportedCodecError",
    "configs",
    "list_offsets",
    "metadata",
]


TOPIC, BROKER = 2, 4
"""Kinds of things that have settings: org.apache.kafka.common.config.ConfigResource.Type."""


def configs(kind: int, name: str, settings: Iterable[str]) -> DescribeConfigsRequest:
    """Ask for settings of a topic or a broker. Pure."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(settings)
    )
    return DescribeConfigsRequest(resources=[resource], include_synonyms=False)


EARLIEST, LATEST = -2, -1
"""What stands for the ends of a partition in the place of a time."""


def list_offsets(places: Mapping[str, Iterable[int]], timestamp: int) -> ListOffsetsRequest:
    """Ask a leader where partitions begin or end, by their topics. Pure."""
    of_topic = ListOffsetsRequest.ListOffsetsTopic
    of_partition = of_topic.ListOffsetsPartition
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[
            of_topic(
                name=name,
                partitions=[
                    of_partition(partition_index=each, current_leader_epoch=-1, timestamp=timestamp)
                    for each in sorted(partitions)
                ],
            )
            for name, partitions in places.items()
        ],
        min_version=2,
        max_version=6,
    )


def metadata(
    names: Iterable[str] | None = (), *, create: bool = False, operations: bool = False
) -> MetadataRequest:
    """Ask who the brokers are, and what the cluster says of topics: ids, leaders, and what this user may do. Pure.

    None stands for all topics.
    """
    # By name; the id of zeros says so.
    topics = (
        None
        if names is None
        else [MetadataRequest.MetadataRequestTopic(topic_id=UUID(int=0), name=name) for name in names]
    )
    return MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=operations,
        min_version=10,
        max_version=12,
    )
