"""What a row costs, and in which process: ``python -m benchmarks.costs``. Some minutes.

All sinks write in turns from one Spark session, so that all find it equally warm. Reading alone, by Spark's ``noop``,
is the floor of every sink; rows that are handed to Python and dropped there, that of every sink in Python. What ours
does in Python is then done without Spark, to see its parts.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping  # noqa: TC003  msgspec reads the annotations at run time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.contenders import contenders
from benchmarks.contenders.base import Place, python_path
from benchmarks.data import fill
from benchmarks.jobs import spark as job
from benchmarks.plan import turned
from benchmarks.processes import used_s
from benchmarks.values import (
    ONCEONLY_ALO,
    ONCEONLY_EO,
    RECORD_BYTES,
    SPARK_TUNED,
    Record,
    Recorded,
    Work,
    encode,
)
from onceonly.jars.locked import ensure_jars
from onceonly.model import Guarantee
from onceonly.ports import QueryContext, WriteContext
from onceonly.rows import compiled
from onceonly_proof.campaign import machine as host
from onceonly_proof.campaign.result import save
from onceonly_proof.embedded.kafka import MeasuredKafka

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

VERSION = 2
READING = "reading alone"
RECEIVING = "rows to Python alone"
SINKS = (READING, RECEIVING, ONCEONLY_EO, ONCEONLY_ALO, SPARK_TUNED)
_PARTITIONS = 2
_EPOCHS = 6
# Until then the processes of a query come up.
_EPOCHS_LEFT_OUT = 2
_LOOK_S = 0.02
_MICRO = 1_000_000
# As many as Spark puts into an Arrow batch by our settings.
_BATCH_ROWS = 4_000
_LOADED = 5
# What a worker has imported anyway, and then the loops.
_LOAD = """
import json, time
import numpy, psutil, pyarrow
from onceonly.rows import compiled
from onceonly.rows import checksum
from onceonly.sinks.kafka.records import partitioner, record_batches
process = psutil.Process()
before, began = process.memory_info().rss, time.perf_counter()
compiled.expect(compiled.ROWS_MIN)
for loops in (checksum.LOOPS, checksum.LONG_LOOPS, partitioner.LOOPS, record_batches.LOOPS):
    assert compiled.loops(loops) is not None
print(json.dumps([time.perf_counter() - began, (process.memory_info().rss - before) / 2**20]))
"""
CHECKSUM, MAKING, SENDING = "checksum", "record batches made", "requests sent by another thread"


class Cost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Medians over the rounds of one sink. ``us`` are microseconds of a processor for each row."""

    sink: str
    rounds: int
    records_per_s: float
    jvm_us: float
    python_us: float
    broker_us: float

    @property
    def all_us(self) -> float:
        """All processes together."""
        return self.jvm_us + self.python_us + self.broker_us


class Loading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the compiled loops take of a process, once: medians, of processes that find them in numba's cache."""

    seconds: float
    mib: float


class Costs(Recorded, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of costs."""

    costs: tuple[Cost, ...]
    record: Record
    parts: Mapping[str, float]
    """Of what ours costs in Python: microseconds of a processor for each row, medians."""
    parts_by_numpy: Mapping[str, float]
    """Where loops are not compiled."""
    loading: Loading


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--records", default=3_000_000, show_default=True, type=click.IntRange(1_000))
@click.option("--record", type=click.Choice(list(RECORD_BYTES)), default="100b", show_default=True)
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@click.option(
    "--warm", default=3, show_default=True, type=click.IntRange(0), help="Rounds before, not counted."
)
@click.option("--json", "path", type=click.Path(path_type=Path, dir_okay=False))
def main(*, records: int, record: Record, rounds: int, warm: int, path: Path | None) -> None:
    """Measure what a row costs from Kafka to Kafka, and in which process."""
    ensure_jars(used_by="broker")
    loading = _loading()  # before minutes of work that needs the loops
    started = datetime.now(UTC).isoformat(timespec="seconds")
    folder = Path(tempfile.mkdtemp(prefix="c-"))
    try:
        found, parts, by_numpy = _measure(folder, records, RECORD_BYTES[record], rounds, warm)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table(found))
    for way, each in (("by loops that are compiled", parts), ("by numpy", by_numpy)):
        console.print(f"in Python, {way}: " + ", ".join(f"{name} {us:.2f}" for name, us in each.items()))
    console.print(f"loops are loaded in {loading.seconds:.1f} s, and take {loading.mib:.0f} MiB")
    if path is not None:
        costs = Costs(
            version=VERSION,
            command=f"python -m benchmarks.costs --records {records} --record {record} --rounds {rounds} --warm {warm}",
            record=record,
            started=started,
            machine=host.machine(),
            versions=host.versions(),
            costs=tuple(found),
            parts=parts,
            parts_by_numpy=by_numpy,
            loading=loading,
        )
        save(path, encode(costs))


def table(costs: list[Cost]) -> Table:
    """Draw them. Pure."""
    drawn = Table(
        "sink",
        "records/s",
        "JVM",
        "Python",
        "broker",
        "all",
        title="microseconds of a processor for each row",
    )
    for column in drawn.columns[1:]:
        column.justify = "right"
    for each in costs:
        parts = (each.jvm_us, each.python_us, each.broker_us, each.all_us)
        drawn.add_row(each.sink, f"{each.records_per_s:,.0f}", *(f"{part:.2f}" for part in parts))
    return drawn


def _measure(
    folder: Path, records: int, record_bytes: int, rounds: int, warm: int
) -> tuple[list[Cost], dict[str, float], dict[str, float]]:
    os.environ |= {"PYTHONPATH": python_path(), "SPARK_LOCAL_IP": "127.0.0.1"}
    with MeasuredKafka(folder / "kafka") as kafka:
        kafka.create_topic("input", _PARTITIONS, {"retention.ms": "-1"})
        fill(
            kafka.bootstrap_servers,
            "input",
            records=records,
            partitions=_PARTITIONS,
            record_bytes=record_bytes,
        )
        contenders()[ONCEONLY_EO].write_session(folder / "session", _PARTITIONS, few_rows=False)
        spark = job.session(folder / "session")
        try:
            found = _rounds(spark, kafka, folder, records, rounds=rounds, warm=warm)
        finally:
            spark.stop()
        # This process has no loops before it is asked to, and has them from then on.
        by_numpy = _parts(kafka, "by-numpy", records // 2, record_bytes, rounds)
        compiled.expect(compiled.ROWS_MIN)
        return found, _parts(kafka, "by-loops", records // 2, record_bytes, rounds), by_numpy


def _loading() -> Loading:
    try:
        found = [
            json.loads(subprocess.run([sys.executable, "-c", _LOAD], capture_output=True, check=True).stdout)
            for _ in range(_LOADED + 1)
        ]
    except subprocess.CalledProcessError:
        raise click.ClickException(
            f"loops are not compiled here; run: pip install 'onceonly[fast]', without {compiled.MODE_ENV}"
        ) from None
    # The first one may have to compile.
    seconds, mib = (statistics.median(each) for each in zip(*found[1:], strict=True))
    return Loading(seconds=round(seconds, 3), mib=round(mib, 1))


def _parts(
    kafka: MeasuredKafka, topic: str, records: int, record_bytes: int, rounds: int
) -> dict[str, float]:
    """Write transactions of such rows by one slot in this process, and say which of its parts took how long."""
    import pyarrow as pa

    from onceonly.executor.slot import in_larger
    from onceonly.rows.checksum import RowChecksum
    from onceonly.sinks.kafka import KafkaSink
    from onceonly.spark.processes import memory

    memory.keep()  # as in a worker
    kafka.create_topic(topic, _PARTITIONS)
    sink = KafkaSink({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic})
    query = QueryContext(query=topic, sink="kafka", guarantee=Guarantee.EXACTLY_ONCE, columns=())
    facts = sink.check(query)
    rows = min(records, _BATCH_ROWS)
    keys = pa.array([b"%011d" % number for number in range(rows)], pa.binary())
    values = pa.array([os.urandom(record_bytes - 11) for _ in range(rows)], pa.binary())
    batch = pa.record_batch([keys, values], names=["key", "value"])
    found: dict[str, list[float]] = {CHECKSUM: [], MAKING: [], SENDING: []}
    for number in range(rounds + 1):
        transaction = sink.begin_transaction(
            WriteContext(
                query=query.query, sink="kafka", run="run", epoch=number, plan="plan", slot=0, attempt="0",
                guarantee=query.guarantee, facts=facts,
            )
        )  # fmt: skip
        checksum, summed_s = RowChecksum(), 0.0
        began_s, all_began_s = time.thread_time(), time.process_time()
        for larger in in_larger(itertools.repeat(batch, records // rows)):
            before_s = time.thread_time()
            checksum.add(larger)
            summed_s += time.thread_time() - before_s
            sink.write(transaction, larger)
        handle = sink.pre_commit(transaction)
        own_s, all_s = time.thread_time() - began_s, time.process_time() - all_began_s
        if handle is not None:
            sink.commit(handle)
        # The first one finds the process cold.
        for name, spent_s in ((CHECKSUM, summed_s), (MAKING, own_s - summed_s), (SENDING, all_s - own_s)):
            found[name] += [spent_s / checksum.rows * _MICRO] if number else []
    sink.close()
    return {name: round(statistics.median(times), 3) for name, times in found.items()}


def _rounds(
    spark: SparkSession, kafka: MeasuredKafka, folder: Path, records: int, *, rounds: int, warm: int
) -> list[Cost]:
    found: dict[str, list[dict[str, float]]] = {sink: [] for sink in SINKS}
    admin = kafka.admin()
    for number in range(-warm, rounds):
        # Who begins moves on, so that nobody always has what another one left behind.
        for place, sink in enumerate(turned(SINKS, number)):
            sys.stderr.write(f"round {number + 1}: {sink}\n")
            topic = f"output-{number}-{place}"
            kafka.create_topic(topic, _PARTITIONS, {"retention.ms": "-1"})
            query = _start(spark, kafka, sink, topic, folder / topic, records)
            cost = _running(query, kafka, records)
            if number >= 0:
                found[sink].append(cost)
            admin.delete_topics([topic])[topic].result(30)
    return [
        Cost(
            sink=sink,
            rounds=rounds,
            records_per_s=round(statistics.median(each["rate"] for each in runs), 1),
            jvm_us=round(statistics.median(each["jvm"] for each in runs) * _MICRO, 3),
            python_us=round(statistics.median(each["python"] for each in runs) * _MICRO, 3),
            broker_us=round(statistics.median(each["broker"] for each in runs) * _MICRO, 3),
        )
        for sink, runs in found.items()
    ]


def _start(
    spark: SparkSession, kafka: MeasuredKafka, sink: str, topic: str, checkpoint: Path, records: int
) -> StreamingQuery:
    # Spark's own, where nothing is written: the source is the same for all.
    writes = sink not in {READING, RECEIVING}
    contender = contenders()[sink if writes else SPARK_TUNED]
    order: Mapping[str, Any] = contender.order(Work(kind="pass"), _place(kafka, topic, checkpoint, records))
    rows = job.rows(spark, order)
    if sink == RECEIVING:
        rows = rows.mapInArrow(_drop, rows.schema)
    writer = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", order["checkpoint"])
    if not writes:
        return writer.format("noop").start()
    return writer.format(order["format"]).options(**order["sink"]).start()


def _drop(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    yield from ()


def _place(kafka: MeasuredKafka, topic: str, checkpoint: Path, records: int) -> Place:
    return Place(
        name=topic,
        servers=kafka.bootstrap_servers,
        source="input",
        target=topic,
        checkpoint=checkpoint,
        partitions=_PARTITIONS,
        per_epoch=-(-records // _EPOCHS),
        window_ms=0,
    )


def _used_s(kafka: MeasuredKafka) -> dict[str, float]:
    """Return the CPU seconds that each kind of process has used; what has ended is in its parent's account."""
    used = {"jvm": 0.0, "python": 0.0, "broker": 0.0}
    for process in psutil.Process().children(recursive=True):
        try:
            spent_s, java = used_s(process), process.name() == "java"
        except psutil.NoSuchProcess:
            continue
        kind = "broker" if process.pid == kafka.pid else "jvm" if java else "python"
        used[kind] += spent_s
    return used


def _running(query: StreamingQuery, kafka: MeasuredKafka, records: int) -> dict[str, float]:
    """Wait for the query's end, and say what each of its later rows took: its start is no row's cost."""
    while query.isActive and len(_epochs(query)) < _EPOCHS_LEFT_OUT:
        time.sleep(_LOOK_S)
    epochs, before = _epochs(query), _used_s(kafka)
    left_out = sum(rows for rows, _ in epochs)
    query.awaitTermination()
    used = {name: (after - before[name]) / (records - left_out) for name, after in _used_s(kafka).items()}
    measured = _epochs(query)[len(epochs) :]
    return {**used, "rate": sum(rows for rows, _ in measured) / sum(spent_s for _, spent_s in measured)}


def _epochs(query: StreamingQuery) -> list[tuple[int, float]]:
    """Return the rows of each epoch that had some, and its time in seconds."""
    return [
        (int(each["numInputRows"]), int(each["durationMs"]["triggerExecution"]) / 1000)
        for each in query.recentProgress
        if each["numInputRows"]
    ]


if __name__ == "__main__":
    main()
