"""Sources beside bare clients: ``python -m benchmarks.sources``. Two minutes; no Spark, real servers on this machine.

Each reads the same rows of 1 KB, in turns with the client that people would write a loop with, in this process. Rows a
second are told twice: of this process's processor, which other programs on the machine change little, and of the
clock, which on a busy machine says little. Kinesis is read as one task reads a shard's range, up to Arrow; a queue of
RabbitMQ into a journal, each row durable before it is acknowledged, so that a repeated message is known; a stream as
one task reads it, up to Arrow. The client acknowledges five hundred at a time and keeps nothing.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onceonly.sources.asked import ask
from onceonly.sources.journal.receiver import Receiver
from onceonly.sources.kinesis.options import SourceOptions as KinesisOptions
from onceonly.sources.kinesis.planning import Planner
from onceonly.sources.kinesis.reading import Task, shares
from onceonly.sources.kinesis.rows import batches
from onceonly.sources.rabbitmq_stream import rows as stream_rows
from onceonly.sources.rabbitmq_stream.messages import Stream
from onceonly.sources.rabbitmq_stream.options import SourceOptions
from onceonly.sources.rabbitmq_stream.reading import read
from onceonly_proof.embedded.kinesis import EmbeddedKinesis
from onceonly_proof.embedded.rabbitmq import EmbeddedRabbit
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from collections.abc import Callable

    import pika

_ROW = os.urandom(768).hex().encode()[:1024]
_STREAM = "rows"
_PUT_MAX = 500
_WITHIN_S = 120.0
Rates = tuple[list[tuple[float, float]], list[tuple[float, float]]]
"""Of ours and of the client's runs: rows per second of the processor, and of the clock."""
_AIMS = {"kinesis": 0.8, "rabbitmq": 0.7, "rabbitmq.stream": 0.8}


@click.command()
@click.option("--rows", "count", default=10_000, show_default=True, help="How many rows a run reads.")
@click.option("--rounds", default=5, show_default=True)
def main(*, count: int, rounds: int) -> None:
    """Measure; print medians of rows per second, and ours as times the client's, as JSON."""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as made:
        runs = {"kinesis": _kinesis, "rabbitmq": _rabbitmq, "rabbitmq.stream": _rabbitmq_stream}
        for name, measured in runs.items():
            both = measured(Path(made), count, rounds)
            found[name] = {"aim": _AIMS[name]}
            for place, of in enumerate(("processor", "clock")):
                ours, theirs = (statistics.median(each[place] for each in rates) for rates in both)
                found[name] |= {
                    f"rows/s of {of}": round(ours), f"client's of {of}": round(theirs),
                    f"times of {of}": round(ours / theirs, 2),
                }  # fmt: skip
    click.echo(json.dumps({"rows": count, "rounds": rounds, **found}))


def _in_turns(
    rounds: int,
    count: int,
    ours: Callable[[int], int],
    theirs: Callable[[], int],
    before: Callable[[], None] = lambda: None,
) -> Rates:
    """Run both in turns, once before it counts; return rows per second; ``before`` each run is not counted."""
    rates: Rates = [], []
    for number in range(rounds + 1):
        runs: tuple[Callable[[], int], ...] = (partial(ours, number), theirs)
        for kept, run in zip(rates, runs, strict=True):
            before()
            begun = time.process_time(), time.perf_counter()
            got = run()
            ended = time.process_time(), time.perf_counter()
            if got != count:
                raise SystemExit(f"{got} of {count} rows were read")
            if number:
                kept.append((count / (ended[0] - begun[0]), count / (ended[1] - begun[1])))
    return rates


def _kinesis(folder: Path, count: int, rounds: int) -> Rates:
    with EmbeddedKinesis() as server:
        server.make_stream(_STREAM)
        client = server.client()
        for first in range(0, count, _PUT_MAX):
            rows = [
                {"PartitionKey": str(n), "Data": _ROW} for n in range(first, min(first + _PUT_MAX, count))
            ]
            if client.put_records(StreamName=_STREAM, Records=rows)["FailedRecordCount"]:
                raise SystemExit("the server did not take all rows")

        def ours(number: int) -> int:
            ranges = {"onceonly.ranges": str(folder / f"ranges-{number}")}
            options = KinesisOptions.of({**server.options(_STREAM), **ranges})
            planner = Planner(options)
            planner.stop_at_now()
            offset, got = planner.initial(), 0
            while (following := planner.following(offset)) is not offset:
                offset = following
                for share in shares(offset, planner.nexts(offset), planner.keeps_s):
                    records = Task(options, share).records()
                    got += sum(
                        each.num_rows for each in batches(records, aggregated=options.aggregated, within={})
                    )
            return got

        def theirs() -> int:
            [shard] = client.list_shards(StreamName=_STREAM)["Shards"]
            at = client.get_shard_iterator(
                StreamName=_STREAM, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            got = 0
            while got < count:
                answer = client.get_records(ShardIterator=at)
                at, got = answer["NextShardIterator"], got + len(answer["Records"])
            return got

        found = _in_turns(rounds, count, ours, theirs)
        client.close()
    return found


def _rabbitmq(folder: Path, count: int, rounds: int) -> Rates:
    import pika

    with EmbeddedRabbit() as server:

        def ours(number: int) -> int:
            options = {"uri": server.uri, "queue": _STREAM, "journal": str(folder / f"journal-{number}")}
            asked = ask("rabbitmq", options)
            receiver = Receiver(asked.feed, asked.journal, asked.limits, wait_s=0)
            receiver.start()
            writer = receiver.opened()
            until(lambda: sum(writer.rows.values()) >= count or receiver.error is not None, _WITHIN_S)
            receiver.stop()
            receiver.require_alive()
            return sum(writer.rows.values())

        def theirs() -> int:
            return _consumed(pika.URLParameters(server.uri), count, {})

        return _in_turns(rounds, count, ours, theirs, partial(_fill, server, count, {}))


def _fill(server: EmbeddedRabbit, count: int, declared: dict[str, str]) -> None:
    import pika

    with pika.BlockingConnection(pika.URLParameters(server.uri)) as connection:
        channel = connection.channel()
        channel.queue_declare(_STREAM, durable=True, arguments=declared)
        for number in range(count):
            told = pika.BasicProperties(message_id=f"{time.time_ns()}-{number}", delivery_mode=2)
            channel.basic_publish("", _STREAM, _ROW, told)


def _consumed(address: pika.URLParameters, count: int, arguments: dict[str, str]) -> int:
    import pika

    got = 0
    with pika.BlockingConnection(address) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1000)
        for method, _, _body in channel.consume(_STREAM, arguments=arguments):
            got += 1
            if got % _PUT_MAX == 0 or got == count:
                channel.basic_ack(method.delivery_tag, multiple=True)
            if got == count:
                break
    return got


def _rabbitmq_stream(_: Path, count: int, rounds: int) -> Rates:
    import pika
    from pyspark.sql.streaming.datasource import ReadAllAvailable
    from pyspark.sql.types import StructType

    from onceonly.spark.rabbitmq_stream_source import RabbitStreamReader, Share

    with EmbeddedRabbit() as server:
        _fill(server, count, {"x-queue-type": "stream"})

        def ours(_: int) -> int:
            options = {"uri": server.uri, "stream": _STREAM, "startingOffsets": "earliest"}
            reader = RabbitStreamReader(options, StructType())
            reader.prepareForTriggerAvailableNow()
            start = reader.initialOffset()
            end = reader.latestOffset(start, ReadAllAvailable())
            stream, got = Stream(SourceOptions.of(options)), 0
            for share in reader.partitions(start, end):
                assert isinstance(share, Share)  # noqa: S101  it is what the reader makes
                got += sum(
                    rows.num_rows for rows in stream_rows.batches(read(stream, share.start, share.end))
                )
            stream.close()
            reader.stop()
            return got

        def theirs() -> int:
            return _consumed(pika.URLParameters(server.uri), count, {"x-stream-offset": "first"})

        return _in_turns(rounds, count, ours, theirs)


if __name__ == "__main__":
    main()
