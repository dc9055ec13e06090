"""What a page of the docs takes for granted, and what must be true after its blocks have run."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from confluent_kafka import Producer
from doc_blocks import ROOT, Block, blocks, extract
from harness import open_transactions, read_committed, start
from pyspark.errors import StreamingQueryException

import onceonly
from onceonly import failpoints, savepoints
from onceonly.log import open_log
from onceonly.model import Link, LinkKind, Receipt, Vote
from onceonly.spark.configure import SETTINGS
from onceonly.spark.epoch import _coordinators
from onceonly_proof.auditor.lake import LakeReader
from onceonly_proof.embedded.cassandra import EmbeddedCassandra
from onceonly_proof.embedded.feeds import EmbeddedFeed
from onceonly_proof.embedded.kinesis import EmbeddedKinesis
from onceonly_proof.embedded.mariadb import EmbeddedMariaDb
from onceonly_proof.embedded.opensearch import EmbeddedOpenSearch
from onceonly_proof.embedded.rabbitmq import EmbeddedRabbit
from onceonly_proof.embedded.redis import EmbeddedRedis
from onceonly_proof.embedded.s3 import EmbeddedS3
from onceonly_proof.handover import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    Names: TypeAlias = dict[str, Any]

ROWS = [(f"app{number % 3}", str(number)) for number in range(60)]
TOTALS = Counter(key for key, _ in ROWS)


def fits(shown: Any, seen: Any) -> bool:  # noqa: ANN401  any JSON
    """Say whether JSON is as shown; the text ``…`` stands for any value, and for any more entries of a list."""
    if shown == "…":
        return True
    if isinstance(shown, dict) and isinstance(seen, dict):
        return shown.keys() == seen.keys() and all(fits(shown[key], seen[key]) for key in shown)
    if isinstance(shown, list) and isinstance(seen, list):
        if shown and shown[-1] == "…":
            shown, seen = shown[:-1], seen[: len(shown) - 1]
        return len(shown) == len(seen) and all(map(fits, shown, seen))
    return bool(shown == seen)


class Stage:
    """A page without needs.

    ``own`` runs blocks in another way, ``checks`` look after a block of that name; ``addresses`` are what is printed,
    and where it is.
    """

    def __init__(self, spark: SparkSession, folder: Path, servers: str) -> None:
        self.spark = spark
        self.folder = folder
        self.servers = servers
        self.own: dict[str, Callable[[Block, str], None]] = {}
        self.checks: dict[str, Callable[[Names], None]] = {}
        self.shown: dict[str, Callable[[], str]] = {}
        self.addresses: dict[str, str] = {}

    def names(self) -> Names:
        """Return what the page takes for granted. Blocks run in ``folder``."""
        return {}

    # --- for the stages below ---------------------------------------------------------------------------

    def topics(self, *names: str) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.servers})
        for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            made.result(30)

    def feed(self, topic: str) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for key, value in ROWS:
            producer.produce(topic, key=key, value=value)
        assert producer.flush(30) == 0

    def events(self, topic: str) -> DataFrame:
        source = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.servers)
        return source.option("subscribe", topic).option("startingOffsets", "earliest").load()

    def collection(self, schema: str = "app string, id long") -> DataFrame:
        rows = [(key, int(value)) for key, value in ROWS]
        return onceonly.collection(self.spark, rows, schema, rows_per_epoch=20, partitions=2)

    def read(self, topic: str) -> list[tuple[str, str]]:
        return read_committed(self.servers, topic)


class Readme(Stage):
    def names(self) -> Names:
        self.topics("readme-events", "results", "totals", "copies")
        self.feed("readme-events")
        self.own["make"] = self.make
        self.checks = {
            "format": self.all_rows,
            "foreachBatch": self.all_totals,
            "epoch": self.both,
            "supervise": self.all_twice,
        }
        onceonly.register(self.spark)
        events = self.events("readme-events").select("key", "value")
        totals = events.groupBy("key").count().selectExpr("key", "cast(count as string) as value")

        def build_query() -> Any:  # noqa: ANN401
            writer = events.writeStream.format("onceonly.kafka").option("topic", "results")
            writer = writer.option("kafka.bootstrap.servers", self.servers).trigger(availableNow=True)
            return writer.option("checkpointLocation", str(self.folder / "supervised")).start()

        return {"events": events, "totals": totals, "build_query": build_query}

    def make(self, block: Block, code: str) -> None:
        """See that the targets are there; CI itself is what runs them."""
        for line in code.splitlines():
            command = line.split("#")[0].split()
            assert command[0] == "make", block.place
            subprocess.run(
                ["make", "-n", *command[1:]], cwd=ROOT, check=True, capture_output=True, timeout=60
            )

    def all_rows(self, names: Names) -> None:
        assert Counter(self.read("results")) == Counter(ROWS)

    def all_totals(self, names: Names) -> None:
        rows = self.read("totals")
        assert {key: max(int(value) for name, value in rows if name == key) for key, _ in rows} == TOTALS

    def both(self, names: Names) -> None:
        files = onceonly.files.read(self.spark, str(self.folder / "archive")).collect()
        assert Counter((row["key"].decode(), row["value"].decode()) for row in files) == Counter(ROWS)
        assert Counter(self.read("copies")) == Counter(ROWS)

    def all_twice(self, names: Names) -> None:
        # The supervised query is another one: it writes all rows once more.
        assert Counter(self.read("results")) == Counter(ROWS + ROWS)


class WriteASink(Stage):
    def names(self) -> Names:
        code = extract("docs/how-to/write-a-sink.md", "sink")
        (self.folder / "results_sink.py").write_text(code, encoding="utf-8")
        self.checks = {"use": self.all_hits, "foreachBatch": self.totals_added, "options": self.readable}
        rows = self.collection()
        hits = rows.selectExpr("id as hits", "app")
        totals = rows.groupBy("app").count().withColumnRenamed("count", "hits")
        return {"hits": hits, "totals": totals}

    def rows(self) -> list[tuple[str, int]]:
        with closing(sqlite3.connect(self.folder / "results.db")) as db:
            return list(db.execute("SELECT app, hits FROM results"))

    def all_hits(self, names: Names) -> None:
        assert Counter(self.rows()) == Counter((key, int(value)) for key, value in ROWS)

    def totals_added(self, names: Names) -> None:
        assert len(self.rows()) > len(ROWS)
        assert set(TOTALS.items()) <= set(self.rows())

    def readable(self, names: Names) -> None:
        from onceonly.options import read_options

        values = read_options(names["declared"], {"url": "u", "password": "geheim"}, who="the page")
        assert values["batchRows"] == 500
        assert "geheim" not in repr(values)


class Databases(Stage):
    def names(self) -> Names:
        onceonly.register(self.spark)
        self.checks = {"add": self.all_orders, "replace": self.all_totals, "changes": self.odd_orders}
        rows = self.collection()
        deleted = "CASE WHEN id % 2 = 0 THEN 'd' ELSE 'u' END AS op"
        changes = rows.selectExpr(deleted, "id + 1 AS version", "id", "concat(app, '!') AS app")
        return {"orders": rows, "totals": rows.groupBy("app").count(), "changes": changes}

    def ask(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self.folder / "shop.db")) as db:
            return db.execute(sql).fetchall()

    def all_orders(self, names: Names) -> None:
        assert Counter(self.ask("SELECT app, CAST(id AS TEXT) FROM orders")) == Counter(ROWS)

    def all_totals(self, names: Names) -> None:
        assert dict(self.ask("SELECT app, count FROM totals")) == TOTALS

    def odd_orders(self, names: Names) -> None:
        wanted = [(f"{key}!", int(value)) for key, value in ROWS if int(value) % 2]
        assert Counter(self.ask("SELECT app, id FROM orders")) == Counter(wanted)


class ProveASink(Stage):
    def names(self) -> Names:
        code = extract("docs/how-to/write-a-sink.md", "sink")
        (self.folder / "results_sink.py").write_text(code, encoding="utf-8")
        return {}


class SeveralSinks(Stage):
    def names(self) -> Names:
        self.topics("amounts")
        self.checks = {"epoch": self.both, "branch": self.even}
        return {"orders": self.collection("shop string, amount long")}

    def files(self, name: str) -> Counter[tuple[str, int]]:
        rows = onceonly.files.read(self.spark, str(self.folder / name)).collect()
        return Counter((row["shop"], row["amount"]) for row in rows)

    def both(self, names: Names) -> None:
        assert self.files("orders") == Counter((key, int(value)) for key, value in ROWS)
        sums: Counter[str] = Counter()
        for shop, amount in self.read("amounts"):
            sums[shop] += int(amount)
        wanted: Counter[str] = Counter()
        for key, value in ROWS:
            wanted[key] += int(value)
        assert sums == wanted

    def even(self, names: Names) -> None:
        assert self.files("all").total() == 60
        assert self.files("even").total() == 40


class Redis(Stage):
    def names(self) -> Names:
        server = EmbeddedRedis()
        server.start()  # it ends with this process
        self.addresses["localhost:6379"] = server.url.removeprefix("redis://")
        return {}


class Kinesis(Stage):
    def names(self) -> Names:
        self.server = EmbeddedKinesis()
        self.server.start()  # it ends with this process
        self.server.make_stream("orders", shards=2)
        self.addresses["http://localhost:4567"] = self.server.url
        return {}


class WriteToCassandra(Stage):
    def names(self) -> Names:
        server = EmbeddedCassandra()
        server.start()  # it ends with this process
        self.addresses |= {
            '["localhost"], port=9042': f'["127.0.0.1"], port={server.port}',
            "localhost:9042": server.hosts,
        }
        return {}


class ReadFromKinesis(Kinesis):
    def names(self) -> Names:
        given = super().names()
        client = self.server.client()
        for number in range(3):
            client.put_record(StreamName="orders", PartitionKey=f"k{number}", Data=b"%d" % number)
        client.close()
        return given


class WriteToMySql(Stage):
    def names(self) -> Names:
        self.server = EmbeddedMariaDb()
        self.server.start()  # it ends with this process
        self.server.sql(
            "CREATE DATABASE shop",
            "CREATE USER writer@'127.0.0.1' IDENTIFIED BY 'secret'",
            "GRANT ALL ON shop.* TO writer@'127.0.0.1'",
        )
        (self.folder / "password").write_text("secret\n", encoding="utf-8")
        self.addresses["localhost:3306"] = f"127.0.0.1:{self.server.port}"
        self.checks = {"write": self.all_rows}
        return {"orders": self.collection()}

    def all_rows(self, names: Names) -> None:
        rows = self.server.sql("SELECT app, id FROM orders", database="shop")
        assert Counter(rows) == Counter((key, int(value)) for key, value in ROWS)


class OpenSearch(Stage):
    def names(self) -> Names:
        server = EmbeddedOpenSearch()
        server.start()  # it ends with this process
        self.addresses["localhost:9200"] = server.url.removeprefix("http://")
        return {}


class ReadASocket(Stage):
    def names(self) -> Names:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.addresses['"9999"'] = f'"{self.server.getsockname()[1]}"'
        self.checks = {"read": self.all_lines}
        threading.Thread(target=self.send, daemon=True).start()
        return {}

    def send(self) -> None:
        connection, _ = self.server.accept()
        connection.sendall(b"".join(f"{value}\n".encode() for _, value in ROWS))
        connection.recv(1)

    def all_lines(self, names: Names) -> None:
        found = [
            json.loads(line)["line"]
            for path in (self.folder / "lines").glob("*.json")
            for line in path.open()
        ]
        assert found == [value for _, value in ROWS]


class ReadHttp(Stage):
    def names(self) -> Names:
        server = EmbeddedFeed("http", total=60, rate=10_000)
        server.start()  # it ends with this process
        self.addresses["localhost:8080"] = f"127.0.0.1:{server.port}"
        self.checks = {"read": self.all_lines}
        return {}

    def all_lines(self, names: Names) -> None:
        found = [
            json.loads(line)["id"]
            for path in (self.folder / "changes").glob("*.json")
            for line in path.open()
        ]
        assert sorted(map(int, found)) == list(range(60))


class ReadRabbitMq(Stage):
    arguments: ClassVar[dict[str, str]] = {}

    def names(self) -> Names:
        import pika

        server = EmbeddedRabbit()
        server.start()  # it ends with this process
        self.addresses["localhost:5672"] = f"127.0.0.1:{server.port}"
        self.checks = {"read": self.all_messages}
        with pika.BlockingConnection(pika.URLParameters(server.uri)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("orders", durable=True, arguments=self.arguments)
            for key, value in ROWS:
                properties = pika.BasicProperties(message_id=value, delivery_mode=2)
                channel.basic_publish("", "orders", key.encode(), properties)
        return {}

    def all_messages(self, names: Names) -> None:
        found = [json.loads(line) for path in (self.folder / "orders").glob("*.json") for line in path.open()]
        assert Counter((row["message"], row["id"]) for row in found) == Counter(ROWS)


class ReadRabbitMqStream(ReadRabbitMq):
    arguments: ClassVar[dict[str, str]] = {"x-queue-type": "stream"}


class Batches(Stage):
    def names(self) -> Names:
        self.topics("orders-again")
        self.checks = {"backfill": self.each_day, "other-rows": self.each_day}
        rows = [("2026-11-01", key, int(value)) for key, value in ROWS]
        rows += [("2026-11-02", key, int(value)) for key, value in ROWS[:10]]
        return {"orders": self.spark.createDataFrame(rows, "day string, shop string, amount long")}

    def each_day(self, names: Names) -> None:
        found = [json.loads(value) for _, value in self.read("orders-again")]
        assert Counter((row["day"], row["shop"], str(row["amount"])) for row in found) == Counter(
            [("2026-11-01", *row) for row in ROWS] + [("2026-11-02", *row) for row in ROWS[:10]]
        )


class ReadFiles(Stage):
    def names(self) -> Names:
        onceonly.register(self.spark)
        self.checks = {"elsewhere": self.whole, "new": self.later}
        writer = self.collection("shop string, amount long").writeStream.format("onceonly.files")
        writer = writer.options(path=str(self.folder / "orders")).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()
        assert query.awaitTermination(60)
        return {}

    def whole(self, names: Names) -> None:
        assert names["table"].num_rows == 60

    def later(self, names: Names) -> None:
        assert [epoch.epoch for epoch in names["new"]] == [0, 1, 2]
        assert list(names["taken"].values()) == [2]


class WithBucket(Stage):
    """A bucket, and a session that knows how to reach it. The server ends with the process."""

    server: EmbeddedS3

    def serve(self) -> None:
        self.server = EmbeddedS3(self.folder / "s3")
        self.server.start()
        self.server.make_bucket("lake")
        for name, value in self.server.hadoop().items():
            self.spark.conf.set(name, value)
        onceonly.register(self.spark)

    def serve_no_more(self) -> None:
        self.server.close()
        for name in self.server.hadoop():
            self.spark.conf.unset(name)
        onceonly.register(self.spark)


class WriteToDelta(WithBucket):
    def names(self) -> Names:
        self.serve()
        self.checks = {"write": self.all_rows, "stored": self.all_rows_on_s3}
        return {"events": self.collection("shop string, amount long")}

    def all_rows(self, names: Names) -> None:
        from deltalake import DeltaTable

        table = DeltaTable(self.folder / "orders").to_pyarrow_table()
        self._see(table.to_pylist())

    def all_rows_on_s3(self, names: Names) -> None:
        reader = LakeReader(
            "delta",
            "tables/orders",
            names=lambda path: self.server.names("lake", path),
            read=lambda name: self.server.read("lake", name),
        )
        self._see(list(reader.table()))
        self.serve_no_more()

    @staticmethod
    def _see(rows: list[dict[str, Any]]) -> None:
        assert Counter((row["shop"], str(row["amount"])) for row in rows) == Counter(ROWS)


class FilesOnStores(WithBucket):
    def names(self) -> Names:
        self.serve()
        self.checks = {"write": self.all_rows}
        return {"onceonly": onceonly, "orders": self.collection("shop string, amount long")}

    def all_rows(self, names: Names) -> None:
        assert sum(epoch.rows for epoch in names["whole"]) == len(ROWS)
        assert self.server.names("lake", "orders")
        self.serve_no_more()


class WriteToIceberg(Stage):
    def names(self) -> Names:
        onceonly.register(self.spark)
        return {"events": self.collection("shop string, amount long")}


class DeadLetters(Stage):
    """A topic that takes no large rows, and a stream that has three of them."""

    def names(self) -> Names:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.servers})
        made = admin.create_topics([NewTopic("orders", 1, 1, config={"max.message.bytes": "1000"})])
        made["orders"].result(30)
        self.checks = {"set-up": self.small_ones, "look": self.refused, "again": self.all_of_them}
        large = {5, 6, 40}
        self.rows = [(key, value * 2000 if int(value) in large else value) for key, value in ROWS]
        schema = "key string, value string"
        return {"orders": onceonly.collection(self.spark, self.rows, schema, rows_per_epoch=20, partitions=2)}

    def small_ones(self, names: Names) -> None:
        assert Counter(self.read("orders")) == Counter(row for row in self.rows if len(row[1]) < 1000)

    def refused(self, names: Names) -> None:
        rows = [json.loads(row["row"]) for row in names["found"].collect()]
        assert Counter((row["key"], row["value"]) for row in rows) == Counter(
            row for row in self.rows if len(row[1]) >= 1000
        )
        assert {row["code"] for row in names["found"].collect()} == {"TOO_LARGE"}

    def all_of_them(self, names: Names) -> None:
        wanted = Counter((key, value if len(value) < 1000 else value[:100]) for key, value in self.rows)
        assert Counter(self.read("orders")) == wanted


class Adopt(Stage):
    def names(self) -> Names:
        self.topics("adopt-events", "adopted")
        self.feed("adopt-events")
        self.checks = {"before": self.once, "after": self.twice, "back": self.thrice}
        onceonly.register(self.spark)
        return {"events": self.events("adopt-events").select("key", "value")}

    def once(self, names: Names) -> None:
        assert Counter(self.read("adopted")) == Counter(ROWS)
        self.feed("adopt-events")

    def twice(self, names: Names) -> None:
        assert Counter(self.read("adopted")) == Counter(ROWS * 2)
        self.feed("adopt-events")

    def thrice(self, names: Names) -> None:
        assert Counter(self.read("adopted")) == Counter(ROWS * 3)


class Failpoints(Stage):
    def names(self) -> Names:
        job = "from onceonly import failpoints\nfor _ in range(3):\n    failpoints.hit('link.after_put')\n"
        (self.folder / "job.py").write_text(job, encoding="utf-8")
        return {}


class OneOrder(Stage):
    """A page on which a job that writes files has run as far as ``failpoints`` let it, and is down."""

    failpoints = ""

    def names(self) -> Names:
        onceonly.register(self.spark)
        orders = self.collection("shop string, amount long")
        checkpoint = str(self.folder / "checkpoints" / "orders")

        def write(frame: DataFrame, batch_id: int) -> None:
            with onceonly.epoch(frame, batch_id, log=checkpoint) as epoch:
                epoch.write(frame, onceonly.sink("onceonly.files", path=str(self.folder / "orders")))

        writer = orders.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        os.environ["ONCEONLY_FAILPOINTS"] = self.failpoints
        try:
            query = writer.foreachBatch(write).start()
            with contextlib.suppress(StreamingQueryException):
                query.awaitTermination(60)
            assert bool(query.exception()) is bool(self.failpoints)
        finally:
            del os.environ["ONCEONLY_FAILPOINTS"]
        # As if the driver had ended: this process goes on, and would be taken for a run that is alive.
        for coordinator in _coordinators._things.values():
            coordinator.close()
        _coordinators._things.clear()
        return {"orders": orders}

    def rows(self) -> int:
        rows: int = onceonly.files.read(self.spark, str(self.folder / "orders")).count()
        return rows


class WhenStuck(OneOrder):
    failpoints = "link.after_put=raise@2"

    def names(self) -> Names:
        failpoints._counts.clear()
        self.checks = {"list": self.half, "commit": self.more}
        return super().names()

    def half(self, names: Names) -> None:
        assert self.rows() == 20

    def more(self, names: Names) -> None:
        assert self.rows() == 40


class InDoubt(OneOrder):
    failpoints = "link.after_put=raise@2"

    def names(self) -> Names:
        failpoints._counts.clear()
        self.checks = {"explain": self.half, "against": self.half}
        return super().names()

    def half(self, names: Names) -> None:
        assert self.rows() == 20


class Topic(Stage):
    """A page on which a job that writes to Kafka has died right after the decision of its second epoch."""

    options: ClassVar[dict[str, str]] = {}

    def names(self) -> Names:
        onceonly.register(self.spark)
        failpoints._counts.clear()
        self.topic = f"shop-orders-{self.folder.name}"
        self.topics(self.topic)
        self.addresses["shop-orders"] = self.topic
        frame = self.collection().selectExpr("app as key", "cast(id as string) as value")
        checkpoint = str(self.folder / "checkpoints" / "orders")
        sink = {
            "kafka.bootstrap.servers": self.servers,
            "topic": self.topic,
            "checkpointLocation": checkpoint,
            # Only what is of this page is found by its prefix.
            "onceonly.transactional.id.prefix": self.topic,
            **self.options,
        }

        def build_query() -> StreamingQuery:
            writer = frame.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
            return writer.foreachBatch(onceonly.sink("onceonly.kafka", **sink)).start()

        os.environ["ONCEONLY_FAILPOINTS"] = "link.after_put=raise@2"
        try:
            with contextlib.suppress(StreamingQueryException):
                build_query().awaitTermination(60)
        finally:
            del os.environ["ONCEONLY_FAILPOINTS"]
        # As if the driver had ended: this process goes on, and would be taken for a run that is alive.
        for coordinator in _coordinators._things.values():
            coordinator.close()
        _coordinators._things.clear()
        assert len(self.read(self.topic)) == 20
        return {"build_query": build_query, "onceonly": onceonly}


class ReaderStandsStill(Topic):
    def names(self) -> Names:
        self.checks = {"commit": self.go_on}
        return super().names()

    def go_on(self, names: Names) -> None:
        assert len(self.read(self.topic)) == 40


class BrokerWasDown(Topic):
    options: ClassVar[dict[str, str]] = {"kafka.transaction.timeout.ms": "10000"}

    def names(self) -> Names:
        self.checks = {"start": self.all_once}
        found = super().names()
        # Its coordinator aborts what is older than its time-out.
        assert until(lambda: not open_transactions(self.servers, self.topic), 120, poll_s=0.2)
        return found

    def all_once(self, names: Names) -> None:
        assert sorted(self.read(self.topic)) == sorted(ROWS)


class Upgrade(Stage):
    """The page's program runs beside it, as it does for a reader."""

    def names(self) -> Names:
        self.checks = {"job.py": self.begin, "stop": self.ended, "start": self.goes_on}
        self.own = {"start": self.again}
        return {}

    def begin(self, names: Names) -> None:
        given = {"SPARK_CONF_DIR": os.getcwd(), "PYSPARK_PYTHON": sys.executable}  # noqa: PTH109  as other pages' jobs
        before = self.committed()
        self.job = start(str(self.folder / "job.py"), self.folder, env=given)
        try:
            self.job.until(lambda: self.committed() > before + 2, "its epochs")
        except AssertionError:
            self.job.kill_tree()
            raise

    def again(self, block: Block, code: str) -> None:
        self.begin({})

    def ended(self, names: Names) -> None:
        assert self.job.wait(60) == 0, self.job.tail()

    def goes_on(self, names: Names) -> None:
        try:
            subprocess.run(
                [sys.executable, "-m", "onceonly", "stop", str(self.folder / "checkpoints/orders")],
                check=True, capture_output=True, timeout=120,
            )  # fmt: skip
            self.ended(names)
            rows = onceonly.files.read(self.spark, str(self.folder / "orders")).select("id").collect()
            assert sorted(row["id"] for row in rows) == list(range(20 * self.committed()))
        finally:
            self.job.kill_tree()

    def committed(self) -> int:
        return len(list((self.folder / "checkpoints/orders").glob("commits/[0-9]*")))


class SeeARun(OneOrder):
    failpoints = "link.after_put=raise@2"

    def names(self) -> Names:
        failpoints._counts.clear()
        self.checks = {"report": self.is_whole, "notebook": self.is_shown, "option": self.is_written}
        return super().names()

    def is_whole(self, names: Names) -> None:
        page = (self.folder / "run.html").read_text(encoding="utf-8")
        assert page.endswith("</html>\n")
        assert "chk-1 is decided" in page

    def is_written(self, names: Names) -> None:
        assert until((self.folder / "copy.html").exists, 30)
        assert "is settled" in (self.folder / "copy.html").read_text(encoding="utf-8")

    def is_shown(self, names: Names) -> None:
        assert "2 transactions in doubt" in names["seen"]._repr_html_()


class Metrics(OneOrder):
    failpoints = "link.after_put=raise@2"

    def names(self) -> Names:
        failpoints._counts.clear()
        self.checks = {"alerts": self.shipped}
        return super().names()

    def shipped(self, names: Names) -> None:
        assert (
            "https://docs.example.org/onceonly/how-to/in-doubt.md" in (self.folder / "alerts.yml").read_text()
        )
        assert json.loads((self.folder / "dashboard.json").read_text())["panels"]


class Move(OneOrder):
    def names(self) -> Names:
        (self.folder / "archive").mkdir()
        self.checks = {"go-on": self.all_rows}
        self.own = {"to-a-store": self.elsewhere, "back": self.elsewhere}
        return super().names()

    def elsewhere(self, block: Block, code: str) -> None:
        """Leave it to tests/unit/test_operations_moves.py, which runs it with a store."""

    def all_rows(self, names: Names) -> None:
        assert self.rows() == 60


class Savepoints(OneOrder):
    """A job of three epochs that is down, and a savepoint of its first."""

    def names(self) -> Names:
        given = super().names()
        checkpoint = self.folder / "checkpoints" / "orders"
        savepoints.create(str(checkpoint), str(self.folder / "savepoints"), epoch=0)
        self.checks = {"go-on": self.all_rows}
        return given

    def all_rows(self, names: Names) -> None:
        assert self.rows() == 60


class Ship(Stage):
    def names(self) -> Names:
        self.own = {"archive": self.elsewhere, "submit": self.elsewhere}
        return {}

    def elsewhere(self, block: Block, code: str) -> None:
        """Leave it to test_archives.py, which runs it with a cluster."""


class ShortEpochs(Stage):
    """A checkpoint from before the settings, with its checksum files."""

    def names(self) -> Names:
        offsets = self.folder / "checkpoint" / "offsets"
        offsets.mkdir(parents=True)
        for name in ("0", ".0.crc"):
            (offsets / name).touch()
        self.checks = {
            "configure": self.is_set,
            "going-back": lambda _: self.only_sums_are_gone(),
            "source": self.reads_kafka,
        }
        return {}

    def is_set(self, names: Names) -> None:
        for setting in SETTINGS:
            if setting.only_for == "an idle driver":  # not what the page's first block asks for
                continue
            assert names["spark"].conf.get(setting.name) == setting.value_here()

    def reads_kafka(self, names: Names) -> None:
        assert names["rows"].isStreaming
        assert {"key", "value"} <= set(names["rows"].columns)

    def only_sums_are_gone(self) -> None:
        assert [path.name for path in (self.folder / "checkpoint" / "offsets").iterdir()] == ["0"]


class Auditor(Stage):
    """A query from a topic to another has run and is down: one epoch, one transaction."""

    def names(self) -> Names:
        self.topics("payments", "payments-out")
        self.feed("payments")
        self.feed("payments-out")
        folder = self.folder / "checkpoint"
        (folder / "commits").mkdir(parents=True)
        (folder / "commits" / "0").write_text("v1\n{}")
        (folder / "metadata").write_text(json.dumps({"id": "q"}))
        log = open_log(str(folder), query="q", create=True)
        vote = Vote(
            sink="kafka", epoch=0, slot=0, plan="p", run="r", attempt="0", rows=len(ROWS), checksum="0" * 16
        )
        barrier = (json.dumps({"payments": {"0": len(ROWS)}}),)
        log.put_link(
            Link(epoch=0, index=0, kind=LinkKind.COMMIT, plan="p", run="r", votes=(vote,), barrier=barrier)
        )
        log.put_receipt(Receipt(epoch=0, index=0, plan="p"))
        self.checks = {"reader": self.as_shown}
        return {}

    def as_shown(self, names: Names) -> None:
        shown = [block.code for block in blocks("docs/reference/auditor.md") if block.language == "text"]
        assert shown == ["\n".join(names["verdict"].examples) + "\n"]


STAGES: dict[str, type[Stage]] = {
    "README.md": Readme,
    "docs/how-to/adopt-a-checkpoint.md": Adopt,
    "docs/how-to/batches.md": Batches,
    "docs/how-to/dead-letters.md": DeadLetters,
    "docs/how-to/files-on-stores.md": FilesOnStores,
    "docs/how-to/broker-was-down.md": BrokerWasDown,
    "docs/how-to/in-doubt.md": InDoubt,
    "docs/how-to/reader-stands-still.md": ReaderStandsStill,
    "docs/how-to/upgrade-a-query.md": Upgrade,
    "docs/how-to/metrics.md": Metrics,
    "docs/how-to/move-a-checkpoint.md": Move,
    "docs/how-to/savepoints.md": Savepoints,
    "docs/how-to/prove-a-sink.md": ProveASink,
    "docs/how-to/read-a-socket.md": ReadASocket,
    "docs/how-to/read-files.md": ReadFiles,
    "docs/how-to/read-http.md": ReadHttp,
    "docs/how-to/read-rabbitmq.md": ReadRabbitMq,
    "docs/how-to/read-a-rabbitmq-stream.md": ReadRabbitMqStream,
    "docs/how-to/see-a-run.md": SeeARun,
    "docs/how-to/several-sinks.md": SeveralSinks,
    "docs/how-to/ship-a-job.md": Ship,
    "docs/how-to/short-epochs.md": ShortEpochs,
    "docs/how-to/when-stuck.md": WhenStuck,
    "docs/how-to/write-a-sink.md": WriteASink,
    "docs/how-to/write-to-opensearch.md": OpenSearch,
    "docs/how-to/write-to-databases.md": Databases,
    "docs/how-to/write-to-redis.md": Redis,
    "docs/how-to/read-from-kinesis.md": ReadFromKinesis,
    "docs/how-to/write-to-kinesis.md": Kinesis,
    "docs/how-to/write-to-cassandra.md": WriteToCassandra,
    "docs/how-to/write-to-mysql.md": WriteToMySql,
    "docs/how-to/write-to-delta.md": WriteToDelta,
    "docs/how-to/write-to-iceberg.md": WriteToIceberg,
    "docs/reference/auditor.md": Auditor,
    "docs/reference/failpoints.md": Failpoints,
}
