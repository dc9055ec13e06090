"""A supervised query of files into files, in its own process: two of them are let loose on one checkpoint.

``duel_job.py FOLDER NAME`` says ``NAME.ready`` with its application, and begins with ``NAME.go``. With ``stop`` it ends
its query, and drains what is left.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import onceonly
from onceonly.spark.application import application
from onceonly_proof.handover import until
from onceonly_proof.local_session import local_session
from onceonly_proof.parent import die_with_parent

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LIFE_S = 1_500


def main() -> None:
    die_with_parent()
    folder, name = Path(sys.argv[1]), sys.argv[2]
    conf = {"spark.driver.memory": "600m", "spark.python.worker.reuse": "true"}
    spark = local_session(folder / name, name=name, master="local[1]", log_level="ERROR", conf=conf)
    running: list[StreamingQuery] = []
    stop = folder / "stop"

    def start() -> StreamingQuery:
        reader = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 4)
        writer = reader.json(str(folder / "in")).writeStream.format("onceonly.files")
        writer = writer.option("path", str(folder / "out")).option("format", "json")
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        last = stop.exists()
        running[:] = [(writer.trigger(availableNow=True) if last else writer).start()]
        return running[0]

    def watch() -> None:
        until(stop.exists, _LIFE_S)
        for query in running:
            query.stop()

    told = folder / f"{name}.ready.tmp"
    told.write_text(application(spark), encoding="utf-8")
    told.rename(folder / f"{name}.ready")
    until((folder / f"{name}.go").exists, _LIFE_S)
    threading.Thread(target=watch, daemon=True).start()
    restart = onceonly.FixedDelay(attempts=10_000, delay_s=0.2)
    try:
        onceonly.supervise(start, restart=restart)
        onceonly.supervise(start, restart=restart)
    except onceonly.OnceonlyError as error:
        sys.stderr.write(f"job: {error}\n")
        (folder / f"{name}.error").write_text(f"{error.code} {error}", encoding="utf-8")
        sys.stderr.flush()
        os._exit(3)
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
