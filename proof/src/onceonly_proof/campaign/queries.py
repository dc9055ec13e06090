"""What the query of a round does with rows between source and sinks, and what the round needs for it. Pure."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly_proof.campaign.way import KAFKA, REPEATING, way

if TYPE_CHECKING:
    from onceonly_proof.campaign.workload import Workload

UNCHANGED = "unchanged"
"""Every row goes on as it came."""
LETTERS = "letters"
"""The same, into a topic that refuses the larger rows: they become dead letters, in files."""
HDFS, ROCKSDB = "hdfs", "rocksdb"
"""What came before is dropped, by a state in Spark's HDFS-backed store, or in RocksDB with a changelog."""
WINDOW = "window"
"""Rows are counted by window, in RocksDB, and come out epochs later: see ``windows``. Never drawn."""
QUERIES = (UNCHANGED, LETTERS, HDFS, ROCKSDB, WINDOW)
DROPPING = frozenset({HDFS, ROCKSDB})
STATEFUL = DROPPING | {WINDOW}

WINDOW_S = 20
"""A row's time is its number, in seconds, so that an epoch of some hundred rows closes some windows."""
LIMIT_BYTES = 1_500
"""``max.message.bytes`` of a topic that refuses rows."""
_LARGE_BYTES = 2_000
_REPEATED = 0.2
_KEYS = 5_000
# As often unchanged as not.
_DRAWN = (UNCHANGED,) * 3 + (LETTERS, HDFS, ROCKSDB)
_STORES = "org.apache.spark.sql.execution.streaming.state"
_PROVIDERS = {
    HDFS: "HDFSBackedStateStoreProvider",
    ROCKSDB: "RocksDBStateStoreProvider",
    WINDOW: "RocksDBStateStoreProvider",
}


def is_possible(query: str, connector: str, source: str = KAFKA) -> bool:
    """Say whether a connector can have it: only a topic refuses rows of the campaign's kind, those of Kafka.

    Of rows that come again without a name, nobody can say how many a window is to count.
    """
    if query == WINDOW and source in REPEATING:
        return False
    return query != LETTERS or ("kafka" in connector.split("+") and source == KAFKA)


def draw(seed: int, number: int, connector: str, source: str = KAFKA) -> str:
    """Draw the query of a round, from numbers of its own: what the seed has always given stays as it was."""
    drawn = [query for query in _DRAWN if is_possible(query, connector, source)]
    return random.Random(f"{seed}/{number}/{way(source, connector)}/query").choice(drawn)


def adapt(workload: Workload, query: str) -> Workload:
    """Return the workload that a query is to be seen at.

    Rows that are too large, or that came before; for windows, rows of which all shards have as many, and shards that
    stay for some epochs: of one that is behind, most rows would come too late.
    """
    if query == LETTERS:
        return replace(workload, bytes_max=_LARGE_BYTES)
    if query == WINDOW:
        per_epoch = 2 * workload.rows_per_s
        return replace(workload, keys=_KEYS, per_epoch=per_epoch, moves_every=4 * per_epoch)
    return replace(workload, repeated=_REPEATED) if query in DROPPING else workload


def delay_s(per_epoch: int) -> int:
    """Return how far the watermark is behind the newest row, by how many an epoch takes.

    So far apart are the rows of shards that are read side by side, where one has just been split. A feeder is twice as
    many rows ahead at most.
    """
    return 3 * per_epoch


def topic_configs(query: str) -> dict[str, str]:
    """Return the settings of the target's topic."""
    return {"max.message.bytes": str(LIMIT_BYTES)} if query == LETTERS else {}


def session(query: str) -> dict[str, str]:
    """Return the settings of the session in which it is started."""
    if query not in STATEFUL:
        return {}
    return {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": f"{_STORES}.{_PROVIDERS[query]}",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
