"""What users do to Spark's local properties inside foreachBatch changes nothing of whose run it is."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

JOB = """
import sys, time
from pyspark.sql import SparkSession
import onceonly
folder = sys.argv[1]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
onceonly.register(spark)
calls = 0
def write(df, batch_id):
    global calls
    spark.sparkContext.setJobGroup("mine", "mine")
    with onceonly.epoch(df, batch_id, log=folder + "/checkpoint", epoch_timeout_s=60.0) as epoch:
        epoch.write(df, onceonly.sink("onceonly.files", path=folder + "/out", format="json"))
    calls += 1
    if calls == 2:
        raise RuntimeError("the user's code failed after the epoch was written")
def start():
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", folder + "/checkpoint")
    return writer.trigger(processingTime="100 milliseconds").start()
try:
    start().awaitTermination(100)
except Exception as error:
    assert "the user's code failed" in str(error), error
query = start()
deadline = time.monotonic() + 100
while calls < 4 and query.isActive and time.monotonic() < deadline:
    time.sleep(0.1)
print(onceonly.explain(query.exception()) if query.exception() else f"calls {calls >= 4}")
query.stop()
spark.stop()
"""


def test_a_job_group_of_the_users_does_not_hide_that_the_query_was_started_again(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", JOB, str(tmp_path)],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.stdout.splitlines()[-1:] == ["calls True"], done.stdout + done.stderr[-2000:]
