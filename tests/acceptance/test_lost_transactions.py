"""The broker drops prepared transactions while the job is down: known, and written again (R60)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from harness import Bench, open_transactions

from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

ROWS = [(f"k{number % 17}", str(number)) for number in range(400)]


@pytest.fixture(scope="module")
def impatient_kafka() -> Iterator[EmbeddedKafka]:
    """A broker that looks for timed-out transactions twice a second."""
    with EmbeddedKafka(
        properties={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    ) as kafka:
        yield kafka


def wait_until_open(bench: Bench, number: int) -> None:
    """Wait until the broker holds this number of open transactions of the job."""
    deadline = time.monotonic() + 60
    while len(open_transactions(bench.kafka.bootstrap_servers, bench.query_id())) != number:
        assert time.monotonic() < deadline, f"the broker does not come to {number} open transactions"
        time.sleep(0.1)


@pytest.mark.parametrize("way", ["format", pytest.param("foreachBatch", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("point", "nth", "left"),
    [pytest.param("link.after_put", 2, 2, marks=pytest.mark.long), ("commit.before_handle", 4, 1)],
)
def test_a_job_down_longer_than_the_transaction_time_out_loses_no_decided_row(
    impatient_kafka: EmbeddedKafka, tmp_path: Path, way: str, point: str, nth: int, left: int
) -> None:
    """Two handles an epoch: either both are lost, or one was committed and the other is lost."""
    bench = Bench(impatient_kafka, tmp_path)
    # Long enough for the first epoch of a cold job; one that takes longer all the same is run again.
    time_out = ("--option", "kafka.transaction.timeout.ms=15000")
    bench.args = ["--way", way, *time_out, "--restart", "5"]
    bench.feed(ROWS)
    run = bench.start(f"{point}=pause@{nth}")
    try:
        run.wait_for(point)
        wait_until_open(bench, left)
    finally:
        run.kill_tree()
    wait_until_open(bench, 0)
    bench.run()
    bench.assert_exactly_once(ROWS)
    bench.assert_nothing_left_open()
    outcomes = [str(event["outcome"]) for event in bench.seen_events("handle.resolved")]
    assert outcomes.count("Lost") == left
