"""What a job of the power-loss campaign is told, and the pipelines that the campaign runs: values for both sides."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  msgspec reads the annotation at run time

import msgspec

from onceonly_proof.handover import put

SOURCES = ("files", "kafka", "rate")
STATES = ("none", "hdfs", "rocksdb", "changelog")
SINKS = ("files", "kafka")
_STATE = "spark.sql.streaming.stateStore"
_PROVIDER = "org.apache.spark.sql.execution.streaming.state.{}StateStoreProvider"


class Pipeline(msgspec.Struct, frozen=True, order=True):
    """A query: where its rows come from, what keeps its state, where they go, and by which of Spark's ways."""

    source: str
    state: str
    sink: str
    way: str = "format"
    """``format`` or ``foreachBatch``."""

    @property
    def name(self) -> str:
        """The pipeline in one word."""
        way = "" if self.way == "format" else f"-{self.way}"
        return f"{self.source}-{self.state}-{self.sink}{way}"

    @classmethod
    def named(cls, name: str) -> Pipeline:
        """Return the pipeline of a name.

        Raises:
            ValueError: there is none.
        """
        found = {each.name: each for each in PIPELINES}
        if name not in found:
            raise ValueError(f"there is no pipeline {name}: {', '.join(found)}")
        return found[name]

    @property
    def needs_sums(self) -> bool:
        """Say whether its state can be stored by Hadoop's files with checksums only."""
        return self.state in {"rocksdb", "changelog", "format2"}

    @property
    def can_rescale(self) -> bool:
        """Say whether Spark's offline repartition can deal its state to other partitions: RocksDB's alone."""
        return self.state in {"rocksdb", "changelog"}

    def conf(self) -> dict[str, str]:
        """Return the settings of Spark that choose its state store."""
        provider = "RocksDB" if self.needs_sums else "HDFSBacked"
        return {
            f"{_STATE}.providerClass": _PROVIDER.format(provider),
            f"{_STATE}.rocksdb.changelogCheckpointing.enabled": str(
                self.state in {"changelog", "format2"}
            ).lower(),
            f"{_STATE}.checkpointFormatVersion": "2" if self.state == "format2" else "1",
        }


PIPELINES = (
    *(Pipeline(source, state, sink) for sink in SINKS for source in SOURCES for state in STATES),
    # Format 2 of state: only Spark's note of an epoch names what the next one begins with.
    *(Pipeline(source, "format2", "files") for source in SOURCES),
    Pipeline("files", "none", "files", "foreachBatch"),
    Pipeline("kafka", "hdfs", "files", "foreachBatch"),
    Pipeline("kafka", "none", "kafka", "foreachBatch"),
)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a query, ``task-N.json``. ``limit_s`` bounds it; a rate source is read ``epochs`` times."""

    pipeline: Pipeline
    checkpoint: str
    input: str
    target: str
    servers: str = ""
    per_epoch: int = 1
    """Files, or rows of Kafka, that an epoch takes."""
    epochs: int = 4
    rescale: int = 0
    """To so many partitions the state is dealt before the query starts, by Spark's offline repartition; 0 for not."""
    limit_s: float = 90.0

    def give(self, life: Path, number: int) -> None:
        """Give it to a job that waits for one."""
        put(life / f"task-{number}.json", msgspec.json.encode(self))


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended, ``done-N.json``: by itself, by an error that only a person can mend, or not in its time."""

    ok: bool
    code: str = ""
    what: str = ""
    starts: int = 1
    took_s: float = 0.0
