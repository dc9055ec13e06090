"""A program whose session is stopped, and whose JVM is killed then: it prints what onceonly says of each."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

import onceonly

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery


def main(folder: str) -> None:
    """Print, by what was called in which state, what came of it."""
    spark = _session()
    spark.stop()
    told = {f"stopped {name}": words for name, words in _told(spark, None, folder).items()}
    spark = _session()
    query = _started(spark, f"{folder}/first")
    os.kill(int(spark._jvm.java.lang.ProcessHandle.current().pid()), signal.SIGKILL)  # type: ignore[union-attr]
    spark.sparkContext._gateway.proc.wait(60)  # type: ignore[union-attr]
    told |= {f"dead {name}": words for name, words in _told(spark, query, folder).items()}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    os._exit(0)  # PySpark's own end would wait for the JVM


def _session() -> SparkSession:
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    onceonly.register(spark)
    return spark


def _started(spark: SparkSession, checkpoint: str) -> StreamingQuery:
    rows = spark.readStream.format("rate").load()
    return rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()


def _told(spark: SparkSession, query: StreamingQuery | None, folder: str) -> dict[str, str]:
    calls: dict[str, Callable[[], Any]] = {
        "register": lambda: onceonly.register(spark),
        "collection": lambda: onceonly.collection(spark, [(1,)], "a int"),
        "supervise": lambda: onceonly.supervise(lambda: _started(spark, f"{folder}/third")),
    }
    if query is not None:
        calls["supervise running"] = lambda: onceonly.supervise(lambda: query)
    found = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = "nothing"
        except onceonly.UnavailableError as error:
            found[name] = error.what
    try:
        spark.range(1).collect()
        found["explain"] = "nothing"
    except Exception as error:  # noqa: BLE001  whatever PySpark has stumbled over
        found["explain"] = onceonly.explain(error)
    return found


if __name__ == "__main__":
    main(sys.argv[1])
