"""A stateful streaming job in its own process, for the operator's view: a collection → counts → the ledger.

``python operator_job.py CHECKPOINT FOLDER``; ends by itself.
"""

from __future__ import annotations

import os
import sys

from ledger_sink import LedgerSink
from pyspark.sql import SparkSession

import onceonly
from onceonly.spark import listener
from onceonly_proof.local_session import SHORT_LIVED_JAVA

KEYS, PER_EPOCH, EPOCHS = 5, 20, 10


def main() -> None:
    checkpoint, folder = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "700m")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED_JAVA)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    onceonly.register(spark, LedgerSink)
    listener.install(spark)
    rows = [(f"k{number % KEYS}",) for number in range(PER_EPOCH * EPOCHS)]
    counts = (
        onceonly.collection(spark, rows, "k string", rows_per_epoch=PER_EPOCH, partitions=2)
        .groupBy("k")
        .count()
    )
    query = (
        counts.writeStream.outputMode("update")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .foreachBatch(onceonly.sink(LedgerSink, folder=folder, checkpointLocation=checkpoint))
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
