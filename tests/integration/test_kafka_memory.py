"""What an attempt needs of memory does not grow with its rows: they leave as fast as they come, or wait outside."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from kafka_query import PROPERTIES, Query

from onceonly_proof.embedded.kafka import EmbeddedKafka

pytestmark = pytest.mark.integration

MIB_ABOVE_IDLE_MAX = 300

# Idle is what is left after a first small transaction: every import is done but that of the compiled loops, which are
# for large ones; every thread has run.
WRITER = """
import json, os, sys
from pathlib import Path
import pyarrow as pa
from onceonly.rows import compiled
from onceonly.model import Guarantee
from onceonly.ports import WriteContext
from onceonly.rows.checksum import RowChecksum
from onceonly.sinks.kafka import KafkaSink
from onceonly.spark.processes.memory import keep

def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024

def write(epoch, batches):
    transaction = sink.begin_transaction(
        WriteContext(**{**given["context"], "epoch": epoch}, guarantee=Guarantee.EXACTLY_ONCE)
    )
    checksum = RowChecksum()
    for _ in range(batches):
        values = pa.array([os.urandom(20) * 5] * 10_000, pa.binary())
        batch = pa.RecordBatch.from_arrays([keys, values], names=["key", "value"])
        compiled.expect(checksum.rows + batch.num_rows)
        checksum.add(batch)
        sink.write(transaction, batch)
    return sink.pre_commit(transaction)

given = json.loads(sys.argv[1])
assert keep()
sink = KafkaSink(given["options"])
keys = pa.array([str(number).encode() for number in range(10_000)])
first = write(0, 1)
idle = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
handle = write(1, given["rows"] // 10_000)
print(json.dumps({"loops": len(compiled.used()), "idle": idle, "peak": memory("VmHWM"), "handles": [
    {"transaction": each.transaction, "data": dict(each.data)} for each in (first, handle)
]}))
"""


@pytest.mark.parametrize("rows", [3_000_000, pytest.param(10_000_000, marks=pytest.mark.long)])
def test_an_epoch_of_many_rows_needs_little_more_memory_than_an_idle_worker(rows: int) -> None:
    with EmbeddedKafka(properties=PROPERTIES) as broker:
        query = Query(broker)
        attempt = query.attempt()
        names = ("query", "sink", "run", "plan", "slot", "attempt", "facts")
        given = {
            "context": {name: getattr(attempt, name) for name in names},
            "options": query.options,
            "rows": rows,
        }
        done = subprocess.run(
            [sys.executable, "-c", WRITER, json.dumps(given)],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["loops"] == 3
        assert told["peak"] - told["idle"] < MIB_ABOVE_IDLE_MAX, told
        assert _written(query) >= rows


def _written(query: Query) -> int:
    """Ask the broker for the ends of the partitions, committed or not."""
    consumer = query.consumer("read_uncommitted")
    try:
        return sum(consumer.get_watermark_offsets(place, timeout=30)[1] for place in consumer.assignment())
    finally:
        consumer.close()
