"""The options of the Kinesis sink."""

from __future__ import annotations

from onceonly.families import kinesis
from onceonly.families.appended import AppendedSink
from onceonly.options import Option

PARTITION_KEY = "partitionKey"

DECLARED = (
    *kinesis.DECLARED,
    Option(
        name=PARTITION_KEY,
        doc=f"the column whose text chooses a row's shard; without it, the column {PARTITION_KEY} where there is one, "
        "else rows are spread over all shards",
    ),
    *AppendedSink.declared,
)
