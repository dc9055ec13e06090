"""Who is compared with whom, and the record of a comparison."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  msgspec reads the annotations at run time
from dataclasses import dataclass

import msgspec

from benchmarks.values import Recorded

VERSION = 1
ROW_BYTES = 100
OURS, JDBC, PREPARED, TABLES, CLIENT, SPARK = "onceonly", "jdbc", "prepared", "tables", "client", "spark"
CONTENDERS: Mapping[str, str] = {
    OURS: "onceonly, exactly once (keyed stores: seen early)",
    JDBC: "Spark's JDBC writer in `foreachBatch`, with rewritten batches of 10,000: at least once",
    PREPARED: "COPY and PREPARE TRANSACTION by executors, COMMIT PREPARED by the driver",
    TABLES: "tables filled by executors, then one INSERT … SELECT by the driver",
    CLIENT: "the store's own client on executors, same ids, no versions: at least once",
    SPARK: "Spark's own writer of the same format",
}
GROUPS: Mapping[str, tuple[str, ...]] = {
    "postgres": (OURS, JDBC, PREPARED, TABLES),
    "mysql": (OURS, JDBC, TABLES),
    "redis": (OURS, CLIENT),
    "opensearch": (OURS, CLIENT),
    "cassandra": (OURS, CLIENT),
    "delta": (OURS, SPARK),
    "files": (OURS, SPARK),
    "files-s3": (OURS, SPARK),
    "files-hdfs": (OURS, SPARK),
}
SHARE: Mapping[str, int] = {"redis": 5, "opensearch": 10, "cassandra": 10}
"""Stores that take a row much slower than a table does get a part of the rows: one in so many."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A ratio of rows a second, ours by theirs, and what it should be at least; None where it is only told."""

    group: str
    theirs: str
    at_least: float | None


ASKED = (
    Asked("postgres", JDBC, 1.5),
    Asked("postgres", PREPARED, 0.9),
    Asked("postgres", TABLES, None),
    Asked("mysql", JDBC, 1.5),
    Asked("mysql", TABLES, None),
    Asked("redis", CLIENT, 0.9),
    Asked("opensearch", CLIENT, 0.9),
    Asked("cassandra", CLIENT, 0.9),
    Asked("delta", SPARK, None),
    Asked("files", SPARK, 0.8),
    Asked("files-s3", SPARK, 0.8),
    Asked("files-hdfs", SPARK, 0.8),
)


class Ran(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One contender in one group. ``epoch_ms`` are medians of the runs, a run's own being that of its epochs."""

    group: str
    contender: str
    rows: int
    """In all epochs of a run that count."""
    rows_per_s: tuple[float, ...]
    """Of each run, in their order."""
    epoch_ms: float
    whole: bool
    """Whether each row was there once after each run."""


class Sinks(Recorded, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The record. ``not_run`` says of a group why it could not be had."""

    seconds: float
    epochs: int
    ran: tuple[Ran, ...]
    not_run: Mapping[str, str] = {}
