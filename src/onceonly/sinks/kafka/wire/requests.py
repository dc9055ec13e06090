"""The requests of Kafka's protocol that the sink sends, as kafka-python makes them, and its reader of records.

Imported inside functions, when kafka-python is sure to be there.
"""

from __future__ import annotations

from kafka.protocol.admin.configs import DescribeConfigsRequest
from kafka.protocol.admin.groups import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.admin.topics import CreateTopicsRequest
from kafka.protocol.admin.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from kafka.record import MemoryRecords

__all__ = [
    "AddOffsetsToTxnRequest",
    "AddPartitionsToTxnRequest",
    "CreateTopicsRequest",
    "DescribeConfigsRequest",
    "DescribeGroupsRequest",
    "DescribeProducersRequest",
    "DescribeTransactionsRequest",
    "EndTxnRequest",
    "InitProducerIdRequest",
    "ListGroupsRequest",
    "ListTransactionsRequest",
    "MemoryRecords",
    "MetadataRequest",
    "OffsetCommitRequest",
    "OffsetFetchRequest",
    "TxnOffsetCommitRequest",
]
