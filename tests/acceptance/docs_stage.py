"""What a page of the docs takes for granted, and what must be true after its blocks have run."""

from __future__ import annotations

import sqlite3
import subprocess
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeAlias

from confluent_kafka import Producer
from doc_blocks import ROOT, Block, extract
from harness import read_committed

import onceonly

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

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
    """A page without needs. ``own`` runs blocks in another way, ``checks`` look after a block of that name."""

    def __init__(self, spark: SparkSession, folder: Path, servers: str) -> None:
        self.spark = spark
        self.folder = folder
        self.servers = servers
        self.own: dict[str, Callable[[Block, str], None]] = {}
        self.checks: dict[str, Callable[[Names], None]] = {}
        self.shown: dict[str, Callable[[], str]] = {}

    def names(self) -> Names:
        """Give what the page takes for granted. Blocks run in ``folder``."""
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
        self.topics("readme-events", "results", "totals")
        self.feed("readme-events")
        self.own["make"] = self.make
        self.checks = {"format": self.all_rows, "foreachBatch": self.all_totals, "supervise": self.all_twice}
        onceonly.register(self.spark)
        events = self.events("readme-events").select("key", "value")
        totals = events.groupBy("key").count().selectExpr("key", "cast(count as string) as value")

        def build_query() -> Any:  # noqa: ANN401
            writer = events.writeStream.format("onceonly.kafka").option("topic", "results")
            writer = writer.option("kafka.bootstrap.servers", self.servers).trigger(availableNow=True)
            return writer.option("checkpointLocation", str(self.folder / "supervised")).start()

        return {"servers": self.servers, "events": events, "totals": totals, "build_query": build_query}

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

    def all_twice(self, names: Names) -> None:
        # The supervised query is another one: it writes all rows once more.
        assert Counter(self.read("results")) == Counter(ROWS + ROWS)


class WriteASink(Stage):
    def names(self) -> Names:
        code = extract("docs/how-to/write-a-sink.md", "sink")
        (self.folder / "sqlite_sink.py").write_text(code, encoding="utf-8")
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


STAGES: dict[str, type[Stage]] = {
    "README.md": Readme,
    "docs/how-to/write-a-sink.md": WriteASink,
}
