"""Every setting that a contender has, in one place: what one is given, the others that have it are given, too.

``SESSION`` and ``SOURCE`` are *our settings*: what ``onceonly.configure`` sets, and what its page says of sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.spark.configure import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

MEMORY = "2g"
"""The heap of every contender's JVM."""

BASE: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": MEMORY,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # The durations of all micro-batches of a run are read from there.
    "spark.sql.streaming.numRecentProgressUpdates": "5000",
}
"""Of every Spark session, the untuned one too: where it runs, and what is read off it. The number of shuffle
partitions is that of the cores, as is Flink's parallelism."""

_IDLE = "an idle driver"

SESSION: Mapping[str, str] = {each.name: each.value for each in SETTINGS if each.only_for != _IDLE}
"""Of a tuned Spark session: ours, and that of Spark's own sink at equal settings."""

FEW_ROWS: Mapping[str, str] = {each.name: each.value for each in SETTINGS if each.only_for == _IDLE}
"""Of a tuned Spark session that has runs of few rows only, as well."""

MARK_FEW_ROWS = "few rows: "
"""Before the name of such a setting in results."""

(JAVA_FEW_ROWS,) = FEW_ROWS.values()
"""Options of any tuned contender's JVM that has runs of few rows only: ours, Spark's, Flink's."""

SOURCE: Mapping[str, str] = {
    # Behind each poll goes the next fetch, and Spark's look-up of first and last offset waits until the broker has
    # answered that: for the next record of the partition, or for so long. 500 ms by default.
    "fetch.max.wait.ms": "1",
    # A poll takes all that was fetched: the next fetch is asked for when nothing is left of the last one, and Spark's
    # source asks the broker for its first and last offset with every poll.
    "max.poll.records": "50000",
    "max.partition.fetch.bytes": "4000000",
    # As large as the system lets it grow: with Kafka's 64 KB a fetch comes in many pieces, each waited for.
    "receive.buffer.bytes": "-1",
}
"""Of the consumer of a tuned Spark session, ours and Spark's. Kafka's names."""

FLINK_SOURCE: Mapping[str, str] = {
    **SOURCE,
    # Flink polls all the time, not once an epoch: the wait ends with the next record, and without it there would be a
    # request each millisecond. Reasoned, not measured.
    "fetch.max.wait.ms": "20",
}
"""Of Flink's consumer."""

PRODUCER: Mapping[str, str] = {
    # librdkafka's defaults, which ours therefore has; Java's batches are 16 KB by default.
    "linger.ms": "5",
    "batch.size": "1000000",
}
"""Of the producer, where it is tuned: ours, Spark's, Flink's. Kafka's names."""

FLINK: Mapping[str, str] = {
    "pipeline.object-reuse": "true",
    "state.backend.type": "hashmap",
    "execution.checkpointing.storage": "filesystem",
    # Of a plan with a shuffle: how long a record waits for its network buffer to fill; 100 ms by default.
    "execution.buffer-timeout.interval": "10 ms",
    "table.local-time-zone": "UTC",
    "rest.bind-port": "0",
}
"""Flink's own; its checkpoints are a second apart for throughput, and as each run of latency says."""

FLINK_EXACTLY_ONCE: Mapping[str, str] = {
    # Flink asks for an hour by default, which a broker refuses by its own default of 15 minutes.
    "transaction.timeout.ms": "600000",
}
"""Of its transactional producer."""


def told(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings as results show them: without what differs from machine to machine. Pure."""
    shown = {setting.name: setting.shown for setting in SETTINGS if setting.shown}
    return {**settings, **{name: text for name, text in shown.items() if name in settings}}
