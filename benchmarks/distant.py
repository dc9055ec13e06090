"""Epochs with their checkpoint on a distant store: ``python -m benchmarks.distant``. Some minutes, on S3 and a broker.

A proxy of ours passes on what goes to and from the store, each way half a delay later, so each call takes a round trip
longer. What Spark itself needs there is seen beside: its own Kafka sink, with its checkpoint on the same store.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import threading
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Self

import click
import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks import settings
from benchmarks.contenders.base import prefixed, python_path
from benchmarks.contenders.onceonly import Onceonly
from benchmarks.contenders.spark import Spark
from benchmarks.lives import Contending
from benchmarks.load.feeding import feed
from benchmarks.plan import turned
from benchmarks.values import ONCEONLY_EO, SPARK_TUNED, Recorded, encode
from onceonly.jars.locked import ensure_jars
from onceonly.spark.configure import SETTINGS
from onceonly_proof.campaign import machine as host
from onceonly_proof.campaign.result import save
from onceonly_proof.embedded.kafka import MeasuredKafka
from onceonly_proof.embedded.s3 import EmbeddedS3

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSION = 1
DELAYS_MS = (0, 20, 50)
_RATE, _PARTITIONS = 200, 2
_BUCKET = "checkpoints"
_WARM = 5
"""So many epochs are not counted: a first one opens the log, and its JVM is cold."""
_CHUNK = 1 << 16


class Epochs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the epochs of one contender took, from trigger to trigger's end."""

    contender: str
    delay_ms: int
    epochs: int
    median_ms: float
    worst_ms: float


class Distant(Recorded, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of them."""

    found: tuple[Epochs, ...]


class Slowed:
    """A way to a port of this machine on which all bytes take ``delay_ms`` longer, there and back together.

    A thread of its own; what is sent while other bytes are on their way does not wait for those.
    """

    def __init__(self, port: int, delay_ms: int) -> None:
        self._to = port
        self._half_s = delay_ms / 2_000
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slowed", daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._pass_on, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._to)
            await asyncio.gather(self._later(reader, there_writer), self._later(there_reader, writer))

    async def _later(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Write what is read, each piece half the delay after it came; then close."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        passing = asyncio.ensure_future(self._write(pieces, writer))
        data = b"begun"
        while data:
            try:
                data = await reader.read(_CHUNK)
            except OSError:
                data = b""
            pieces.put_nowait((self._loop.time() + self._half_s, data))
        await passing

    async def _write(self, pieces: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            due, data = await pieces.get()
            await asyncio.sleep(due - self._loop.time())
            with contextlib.suppress(OSError):
                if data:
                    writer.write(data)
                    await writer.drain()
                else:
                    writer.close()
                    return


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--delay", "delays_ms", multiple=True, type=click.IntRange(0), help="ms; may be repeated.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=30, show_default=True, type=click.IntRange(5), help="Of each run.")
@click.option("--json", "path", type=click.Path(path_type=Path, dir_okay=False))
def main(*, delays_ms: tuple[int, ...], rounds: int, seconds: int, path: Path | None) -> None:
    """Measure epochs at 200 rows a second, Kafka to Kafka, whose checkpoint is so far away."""
    delays = delays_ms or DELAYS_MS
    started = datetime.now(UTC).isoformat(timespec="seconds")
    found = _measure(delays, rounds, seconds)
    Console(width=None if sys.stdout.isatty() else 120).print(table(found))
    if path is not None:
        asked = " ".join(f"--delay {delay}" for delay in delays)
        distant = Distant(
            version=VERSION,
            command=f"python -m benchmarks.distant {asked} --rounds {rounds} --seconds {seconds}",
            started=started,
            machine=host.machine(),
            versions=host.versions(),
            found=tuple(found),
        )
        save(path, encode(distant))


def table(found: Sequence[Epochs]) -> Table:
    """Draw them: a line for each delay. Pure."""
    drawn = Table(
        "ms added to a call", "Spark's sink, ms", "onceonly, ms", "more, ms", title="an epoch, medians"
    )
    for column in drawn.columns:
        column.justify = "right"
    for delay in sorted({each.delay_ms for each in found}):
        took = {each.contender: each.median_ms for each in found if each.delay_ms == delay}
        theirs, ours = took[SPARK_TUNED], took[ONCEONLY_EO]
        drawn.add_row(str(delay), f"{theirs:.0f}", f"{ours:.0f}", f"{ours - theirs:+.0f}")
    return drawn


def counted(progress: Sequence[Mapping[str, float]]) -> list[float]:
    """Return the milliseconds of the epochs that had rows, but for the first ones. Pure."""
    return [float(each["triggerExecution"]) for each in progress if each["rows"]][_WARM:]


def _measure(delays_ms: Sequence[int], rounds: int, seconds: int) -> list[Epochs]:
    took: dict[tuple[int, str], list[float]] = defaultdict(list)
    contenders: list[Spark] = [Spark(SPARK_TUNED, tuned=True), Onceonly(ONCEONLY_EO, "exactly-once")]
    for contender in contenders:
        contender.prepare()
    with (
        tempfile.TemporaryDirectory(prefix="distant-") as name,
        MeasuredKafka(Path(name) / "kafka") as kafka,
        EmbeddedS3(Path(name) / "s3") as s3,
    ):
        s3.make_bucket(_BUCKET)
        for delay in delays_ms:
            with Slowed(int(s3.url.rpartition(":")[2]), delay) as slowed:
                conf = {**s3.hadoop(), "fs.s3a.endpoint": f"http://127.0.0.1:{slowed.port}"}
                for number in range(rounds):
                    # Who begins moves on: the servers are warmer for the next one.
                    for contender in turned(contenders, number + 1):
                        run = f"{delay}-{contender.name}-{number}"
                        sys.stderr.write(f"{delay} ms, round {number + 1} of {rounds}: {contender.name}\n")
                        took[delay, contender.name] += _run(contender, Path(name) / run, kafka, conf, seconds)
    return [
        Epochs(
            contender=contender,
            delay_ms=delay,
            epochs=len(each),
            median_ms=round(median(each), 1),
            worst_ms=round(max(each), 1),
        )
        for (delay, contender), each in sorted(took.items())
    ]


def _run(
    contender: Spark, folder: Path, kafka: MeasuredKafka, conf: Mapping[str, str], seconds: int
) -> list[float]:
    """Run one query in a process of its own, and return how long its epochs took."""
    source, target = f"{folder.name}-in", f"{folder.name}-out"
    for topic in (source, target):
        kafka.create_topic(topic, partitions=_PARTITIONS)
    contender.write_session(folder, _PARTITIONS, few_rows=True)
    told = json.loads((folder / "session.json").read_text(encoding="utf-8"))
    jars = ",".join([told["conf"]["spark.jars"], *map(str, ensure_jars(used_by="store-s3a"))])
    for setting in SETTINGS:
        if setting.only_for.startswith("local checkpoints"):
            told["conf"].pop(setting.name, None)
    told["conf"] |= {"spark.jars": jars} | {f"spark.hadoop.{key}": each for key, each in conf.items()}
    (folder / "session.json").write_text(json.dumps(told), encoding="utf-8")
    env = {"PYTHONPATH": python_path(), "SPARK_LOCAL_IP": "127.0.0.1", "AWS_EC2_METADATA_DISABLED": "true"}
    job = Contending.start(contender.command(), folder, env)
    try:
        servers = kafka.bootstrap_servers
        job.order(
            "start",
            kind="pass",
            servers=servers,
            source=source,
            source_options=prefixed(settings.SOURCE, "kafka."),
            per_epoch=0,
            format=contender.format,
            sink={"kafka.bootstrap.servers": servers, "topic": target},
            checkpoint=f"s3a://{_BUCKET}/{folder.name}",
            interval_ms=0,
        )
        feed(servers, source, rate=_RATE, seconds=seconds, partitions=_PARTITIONS, record_bytes=100)
        job.order("check")
        took = counted(job.order("stop")["epochs"])
        if not took:
            raise click.ClickException(f"Too few epochs in {seconds} s. Give --seconds {2 * seconds}.")
        return took
    finally:
        job.kill()


if __name__ == "__main__":
    main()
