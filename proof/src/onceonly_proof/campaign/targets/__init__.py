"""What a campaign's queries write to beside Kafka and files: made for it, killed by its faults, read by its own client.

One module for each system. Campaign's process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onceonly_proof.campaign.targets.cassandra import Cassandra
from onceonly_proof.campaign.targets.console import Console
from onceonly_proof.campaign.targets.delta import Delta
from onceonly_proof.campaign.targets.duckdb import DuckDb
from onceonly_proof.campaign.targets.elasticsearch import Elasticsearch
from onceonly_proof.campaign.targets.iceberg import Iceberg
from onceonly_proof.campaign.targets.kinesis import Kinesis
from onceonly_proof.campaign.targets.mysql import MySql
from onceonly_proof.campaign.targets.opensearch import OpenSearch
from onceonly_proof.campaign.targets.port import STAGED, Target, WithStaged
from onceonly_proof.campaign.targets.postgres import Postgres
from onceonly_proof.campaign.targets.redis import Redis
from onceonly_proof.campaign.targets.redis_cluster import RedisCluster
from onceonly_proof.campaign.targets.socket import Socket
from onceonly_proof.campaign.targets.sqlite import Sqlite
from onceonly_proof.campaign.targets.stored_files import StoredFiles
from onceonly_proof.campaign.targets.stored_tables import Bucket, StoredDelta, StoredIceberg
from onceonly_proof.campaign.way import sink_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = [
    "APPENDED",
    "KEYED",
    "SERVED",
    "STAGED",
    "TARGETS",
    "WITH_KEYS",
    "Bucket",
    "StoredDelta",
    "StoredFiles",
    "StoredIceberg",
    "Target",
    "WithStaged",
    "by_sink",
]

TARGETS: Final[Mapping[str, Callable[[Path], Target]]] = {
    "sqlite": Sqlite,
    "duckdb": DuckDb,
    "mysql": MySql,
    "postgres": Postgres,
    "redis": Redis,
    "redis-cluster": RedisCluster,
    "cassandra": Cassandra,
    "opensearch": OpenSearch,
    "elasticsearch": Elasticsearch,
    "delta": Delta,
    "iceberg": Iceberg,
    "kinesis": Kinesis,
    "socket": Socket,
    "console": Console,
}
"""By the name of the sink, or, where it is another kind of its target, as ``way.sink_of`` says."""
SERVED: Final = frozenset(
    {
        "mysql",
        "postgres",
        "redis",
        "redis-cluster",
        "cassandra",
        "opensearch",
        "elasticsearch",
        "kinesis",
        "socket",
    }
)
"""Those that have a server, which can be killed."""
APPENDED: Final = frozenset({"kinesis", "socket"})
"""Those to which executors write before the decision, at least once."""
KEYED: Final = frozenset({"redis", "redis-cluster", "opensearch", "elasticsearch", "cassandra"})
"""Those where a row replaces what its key had, and can be seen early."""
WITH_KEYS: Final = KEYED | {"kinesis"}
"""Those that take no row without a key."""


def by_sink(connector: str, targets: Mapping[str, Target]) -> dict[str, Target]:
    """Return the targets of a connector's sinks, by the names of these."""
    return {sink_of(name): targets[name] for name in connector.split("+") if name in targets}
