"""Savepoints of queries that read Kinesis: who starts from one reads on where its epoch ended."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from ledger_sink import by_epoch
from savepoint_job import newest
from test_kinesis_source_queries import start
from test_operators_view import LEDGER
from test_savepoints import onceonly

from onceonly.sources.kinesis.ranges import KEPT
from onceonly_proof.embedded.kinesis import EmbeddedKinesis

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness import Run

pytestmark = [pytest.mark.acceptance, pytest.mark.long, pytest.mark.timeout(2400)]  # a further server
PER_EPOCH = 4
FIRST, ALL = PER_EPOCH * (KEPT + 20), PER_EPOCH * (KEPT + 30)


def put(server: EmbeddedKinesis, numbers: range) -> None:
    client = server.client()
    for number in numbers:
        client.put_record(StreamName="records", PartitionKey=f"k{number}", Data=b"%d" % number)
    client.close()


def rows(ledger: Path, epochs: range) -> Counter[int]:
    return Counter(int(str(row["value"])) for epoch, row in by_epoch(ledger) if epoch in epochs)


def test_each_start_from_a_savepoint_reads_on_where_its_epoch_ended(tmp_path: Path) -> None:
    """From one whose ranges the query has long deleted, and from one whose ranges were lost since."""
    one, two, three = (tmp_path / name / "checkpoint" for name in ("one", "two", "three"))
    early, late, ledger, ranges = (tmp_path / name for name in ("early", "late", "ledger", "ranges"))

    def run(checkpoint: Path, ledger: Path, count: int, meanwhile: Callable[[Run], Any] = id) -> None:
        checkpoint.parent.mkdir(exist_ok=True)
        job = start(checkpoint, source, {"folder": str(ledger)})
        try:
            meanwhile(job)
            job.until(lambda: rows(ledger, everything).total() >= count, "all rows", poll_s=0.5)
            (checkpoint.parent / "stop").touch()
            assert job.wait() == 0, job.tail()
        finally:
            job.kill_tree()

    def cut(job: Run) -> None:
        job.until(lambda: newest(one) >= 3, "some epochs")
        made.update(onceonly("savepoint", "create", one, early))

    everything, made = range(10 * KEPT), dict[str, Any]()
    with EmbeddedKinesis() as server:
        server.make_stream("records", shards=2)
        source = {
            **server.options("records"), "onceonly.ranges": str(ranges), "tasks": "2",
            "maxRecordsPerTrigger": str(PER_EPOCH),
        }  # fmt: skip
        put(server, range(FIRST))
        run(one, ledger, FIRST, cut)
        (reader,) = (path for path in ranges.iterdir() if any(path.glob("0*")))
        assert min(int(path.name[:20]) for path in reader.glob("0*")) > made["epoch"] + 2

        onceonly("savepoint", "create", one, late)
        shutil.rmtree(reader)
        onceonly("savepoint", "restore", late, "--to", two)
        put(server, range(FIRST, ALL))
        run(two, ledger, ALL)
        assert rows(ledger, everything) == Counter(range(ALL))

        shutil.rmtree(one)
        shutil.rmtree(two)
        onceonly("savepoint", "restore", early, "--to", three, "--output", "again", *LEDGER)
        before = rows(ledger, range(made["epoch"] + 1))
        run(three, tmp_path / "again", ALL - before.total())
        assert before + rows(tmp_path / "again", everything) == Counter(range(ALL))
