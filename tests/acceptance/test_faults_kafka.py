"""Faults around a real broker: it dies, its time-outs pass, its topics grow."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewPartitions
from harness import Bench, open_transactions

from onceonly.failpoints import arm
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness import Run

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

ROWS = [(f"k{number % 17}", str(number)) for number in range(400)]
LONG = pytest.mark.long
# The source's own clients give up soon while the broker is down; the query then fails, and is started again.
BRIEF = (
    "kafka.default.api.timeout.ms=3000",
    "kafka.request.timeout.ms=2000",
    "fetchOffset.numRetries=1",
)


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[EmbeddedKafka]:
    """A broker to be killed, which looks for timed-out transactions twice a second."""
    with EmbeddedKafka(
        properties={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    ) as kafka:
        yield kafka


def open_now(bench: Bench) -> int:
    return len(open_transactions(bench.kafka.bootstrap_servers, bench.query_id()))


def log_of(run: Run) -> str:
    return run.log.read_text(encoding="utf-8", errors="replace")


def kill_and_start(kafka: EmbeddedKafka) -> None:
    before = kafka.pid
    assert before is not None
    kafka.kill()
    assert not psutil.pid_exists(before)
    kafka.start()
    assert kafka.pid not in {None, before}


@pytest.mark.long
@pytest.mark.parametrize("way", ["format", "foreachBatch"])
def test_a_broker_that_dies_in_every_phase_loses_and_doubles_nothing(
    own_kafka: EmbeddedKafka, classes: Path, tmp_path: Path, way: str
) -> None:
    """SIGKILLed and started while a slot writes, prepares, an epoch is committed, and down in a recovery."""
    bench = Bench(own_kafka, tmp_path)
    bench.args = ["--way", way, "--restart", "1000", "--per-epoch", "50"]
    bench.args += ["--option", "onceonly.commit.timeout=2"]
    bench.args += [part for pair in BRIEF for part in ("--source-option", pair)]
    bench.feed(ROWS)
    armed = tmp_path / "armed"
    arm(armed, ["slot.during_write=pause#0"])
    steps = ["slot.during_write", "slot.before_prepare", "commit.before_handle", "plan.before_recommit"]
    run = bench.start(f"@{armed}")
    try:
        for number, step in enumerate(steps[:3]):
            run.wait_for(f"{step}#{number}")
            kill_and_start(own_kafka)
            # The recovery follows a failure between link and commits.
            following = f"{steps[number + 1]}=pause#{number + 1}"
            arm(armed, [following, *(["link.after_put=raise#3"] if number == 2 else [])])
            (run.fired / f"resume#{number}").touch()
        run.wait_for("plan.before_recommit#3")
        own_kafka.kill()
        decided = links(bench)
        (run.fired / "resume#3").touch()
        run.until(
            lambda: "The target system did not take it within the time" in log_of(run), "a put off commit"
        )
        tried = log_of(run).count("Restart ")
        run.until(lambda: log_of(run).count("Restart ") >= tried + 2, "two more restarts")
        assert own_kafka.pid is None
        assert links(bench) == decided, "what is down is waited for, and nothing is decided meanwhile"
        own_kafka.start()
        assert run.wait(300) == 0, run.tail()
    finally:
        run.kill_tree()
        own_kafka.start()
    assert run.points_fired() == sorted(
        [*(f"{step}#{n}" for n, step in enumerate(steps)), "link.after_put#3"]
    )
    bench.assert_exactly_once(ROWS)
    bench.assert_nothing_left_open()


def links(bench: Bench) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (bench.checkpoint / "onceonly" / "links").iterdir()}


@pytest.mark.parametrize("way", ["format", pytest.param("foreachBatch", marks=LONG)])
def test_a_worker_that_is_stopped_past_the_brokers_time_out_writes_nothing_late(
    own_kafka: EmbeddedKafka, classes: Path, tmp_path: Path, way: str
) -> None:
    """SIGSTOP in mid-write, and after the slot has prepared; SIGCONT when the broker has dropped all of it."""
    bench = Bench(own_kafka, tmp_path)
    bench.args = ["--way", way, "--restart", "1000", "--option", "kafka.transaction.timeout.ms=8000"]
    bench.feed(ROWS)
    armed = tmp_path / "armed"
    steps = ["slot.during_write", "slot.after_prepare"]
    arm(armed, [f"{steps[0]}=pause#0"])
    run = bench.start(f"@{armed}")
    try:
        for number, step in enumerate(steps):
            worker = psutil.Process(run.wait_for(f"{step}#{number}"))
            run.until(lambda: open_now(bench), "an open transaction")
            worker.suspend()
            run.until(lambda: worker.status() == psutil.STATUS_STOPPED, "the worker stands still")  # noqa: B023  at once
            run.until(lambda: not open_now(bench), "the broker drops it")
            following = [f"{each}=pause#{number + 1}" for each in steps[number + 1 :]]
            arm(armed, following)
            (run.fired / f"resume#{number}").touch()
            worker.resume()
        assert run.wait(300) == 0, run.tail()
    finally:
        run.kill_tree()
    assert run.points_fired() == sorted(f"{step}#{number}" for number, step in enumerate(steps))
    assert bench.seen_events("slot.failed"), "what was stopped in mid-write could not go on"
    assert "EPOCH_TIMEOUT" in log_of(run), "the votes for what was dropped were not decided"
    bench.assert_exactly_once(ROWS)
    bench.assert_nothing_left_open()


@LONG
def test_two_topics_and_more_partitions_after_a_restart_double_nothing(bench: Bench) -> None:
    """Source and target grow while one epoch is decided and not committed, and again before another's link."""
    second = f"{bench.name}-more"
    bench.kafka.create_topic(second, partitions=1)
    bench.args = ["--subscribe", f"{bench.source},{second}"]
    bench.feed(ROWS[:200])
    bench.feed(ROWS[200:250], topic=second, partitions=1)
    bench.run_and_kill_at("link.after_put", 2)
    grow(bench, bench.source, 4)
    grow(bench, bench.target, 6)
    bench.feed(ROWS[250:350], partitions=4)
    bench.run_and_kill_at("link.before_put", 1)
    grow(bench, second, 3)
    bench.feed(ROWS[350:], topic=second, partitions=3)
    bench.run()
    bench.assert_exactly_once(ROWS)
    bench.assert_nothing_left_open()
    assert any(end_of(bench, bench.target, number) for number in range(2, 6)), "the new partitions are used"
    assert "Lost" not in {event["outcome"] for event in bench.seen_events("handle.resolved")}
    assert bench.seen_events("replay.differs") == []


def grow(bench: Bench, topic: str, partitions: int) -> None:
    admin = bench.kafka.admin()  # a name of its own: the answer needs the client alive
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
    assert len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == partitions


def end_of(bench: Bench, topic: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": bench.kafka.bootstrap_servers, "group.id": "ends"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1])
    finally:
        consumer.close()


@LONG
def test_other_rows_than_were_lost_stop_the_query_and_double_nothing(
    own_kafka: EmbeddedKafka, classes: Path, tmp_path: Path
) -> None:
    """One handle of chk-1 is committed, the broker drops the other one, and the replay draws other values."""
    bench = Bench(own_kafka, tmp_path)
    bench.args = ["--restart", "1000", "--option", "kafka.transaction.timeout.ms=10000"]
    bench.args += ["--column", "key", "--column", "uuid() as value"]
    bench.feed(ROWS)
    run = bench.start("commit.before_handle=pause@4")
    try:
        run.wait_for("commit.before_handle")
        run.until(lambda: open_now(bench) == 1, "one handle is committed")
    finally:
        run.kill_tree()
    run.process.wait()
    wait_until_dropped(bench)
    before = bench.read()
    assert 100 < len(before) < 200
    assert "REPLAY_MISMATCH" in bench.run_to_an_error()
    assert bench.read() == before
    bench.assert_nothing_left_open()
    outcomes = [event["outcome"] for event in bench.seen_events("handle.resolved")]
    assert outcomes.count("Lost") == 1


def wait_until_dropped(bench: Bench) -> None:
    deadline = time.monotonic() + 60
    while open_now(bench):
        assert time.monotonic() < deadline, "the broker does not drop it"
        time.sleep(0.1)


@LONG
def test_an_older_checkpoint_over_a_newer_world_stops_and_touches_nothing(bench: Bench) -> None:
    older = bench.folder / "older"
    bench.feed(ROWS[:200])
    bench.run()
    shutil.copytree(bench.checkpoint, older)
    bench.feed(ROWS[200:])
    bench.run_and_kill_at("link.after_put", 2)  # chk-2 is there, chk-3 decided, its handles pending
    before = bench.read()
    assert (len(before), open_now(bench)) == (300, 2)
    newest = bench.checkpoint.rename(bench.folder / "newest")
    older.rename(bench.checkpoint)
    message = bench.run_to_an_error()
    assert "older checkpoint was restored" in message
    assert bench.read() == before
    assert open_now(bench) == 2, "nothing was swept"
    shutil.rmtree(bench.checkpoint)
    newest.rename(bench.checkpoint)
    bench.run()
    bench.assert_exactly_once(ROWS)
    bench.assert_nothing_left_open()
