"""A streaming job in its own process, to be killed: records of a stream → a table of SQLite or the ledger, each once.

Run as a script by ``test_kinesis_source_queries.py`` and others. It ends when a file ``stop`` is beside its checkpoint.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import rate_rows
from ledger_sink import LedgerSink

import onceonly


def main(checkpoint: Path, source: dict[str, str], sink: dict[str, str], conf: dict[str, str]) -> None:
    """Run until it is told to stop. A failed query is told on exit."""
    spark = rate_rows.session(conf=conf)
    onceonly.register(spark, LedgerSink)
    rows = spark.readStream.format("onceonly.kinesis").options(**source).load()
    query = (
        rows.selectExpr("CAST(value AS STRING) AS value", "partitionKey AS key")
        .writeStream.format("onceonly.ledger" if "folder" in sink else "onceonly.sqlite")
        .options(**sink)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    rate_rows.run_until(spark, query, checkpoint.with_name("stop").exists, within_s=math.inf, poll_s=0.05)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(json.loads, sys.argv[2:]))
