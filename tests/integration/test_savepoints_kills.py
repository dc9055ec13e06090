"""Savepoints of a query that writes to Kafka, whose commands are killed amid it all: the broker is asked in the end.

What the broker has cannot be set back, so each kill has a query and a topic of its own; not each change is hit.
"""

from __future__ import annotations

import shutil
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from test_conformance_kafka import SERVERS
from test_conformance_kafka import TestKafka as KafkaSuite
from tests.unit.killed_bench import SLOTS, Stage, killed, killed_apart
from tests.unit.operator_bench import run

from onceonly import savepoints
from onceonly.errors import CheckpointMovedError
from onceonly.savepoints import place as places
from onceonly_proof.conformance.workload import Workload

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly_proof.conformance.workload import Row
    from onceonly_proof.conformance.world import World
    from onceonly_proof.embedded.kafka import EmbeddedKafka

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.timeout(1800),
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

EPOCHS = 4
STEP = 3
SINK = ("--sink", "kafka=onceonly.sinks.kafka:KafkaSink")


@pytest.fixture
def suite(kafka: EmbeddedKafka) -> KafkaSuite:
    made = KafkaSuite()
    made.kafka = kafka
    return made


def staged(suite: KafkaSuite, folder: Path) -> Stage:
    """A query of two epochs, a savepoint of each, and a third one that it was killed in: a transaction is open."""
    made = Stage(folder, suite)
    made.start(2)
    savepoints.create(str(made.checkpoint), str(made.here / "early"), epoch=0)
    savepoints.create(str(made.checkpoint), str(made.here / "late"))
    made.begin(2)
    return made


def kills(suite: KafkaSuite, folder: Path, *words: str) -> Iterator[Stage]:
    """Yield a query each time a command on it was killed, at a later change of a file; and once when it was not."""
    for nth in count(1, STEP):
        stage = staged(suite, folder / str(nth))
        is_killed = killed(partial(run, *typed(stage, *words)), nth, stage.here)
        yield stage
        if not is_killed:
            assert nth > 4 * STEP
            return
        shutil.rmtree(stage.folder)


def typed(stage: Stage, verb: str, place: str, *more: str) -> tuple[str | Path, ...]:
    named = (*SINK, "--yes") if verb == "restore" else ()
    return ("savepoint", verb, stage.here / place, "--to", stage.here / "to", *named, *more)


def rows(stage: Stage, *epochs: int) -> Counter[Row]:
    return stage.world.rows(Workload(epochs=EPOCHS, slots=SLOTS).numbers(epochs))


def expect(world: World, wanted: Counter[Row]) -> None:
    with world:
        world.expect_rows(wanted, "the rows are there as often as that", world.visible)


def expect_nothing_open(stage: Stage) -> None:
    with stage.world as world:
        world.expect_no_orphans("nothing is open")


def ends(stage: Stage, isolation: str) -> list[int]:
    """Return where readers of an isolation come to an end in each partition."""
    options = stage.world.options
    asked = {"bootstrap.servers": options[SERVERS], "group.id": "ends", "isolation.level": isolation}
    consumer = Consumer(asked)
    try:
        found = [
            consumer.get_watermark_offsets(TopicPartition(options["topic"], number), 30)
            for number in range(2)
        ]
    finally:
        consumer.close()
    return [end for _, end in found]


def is_whole(stage: Stage) -> bool:
    to = stage.here / "to"
    return (to / "metadata").exists() and not (to / "starting.json").exists()


def goes_on(stage: Stage, *words: str) -> None:
    """Type the command again, unless it had come to its end."""
    if not is_whole(stage):
        done = run(*typed(stage, *words))
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("following", ["again", "former"])
def test_restore_brings_each_row_once(suite: KafkaSuite, tmp_path: Path, following: str) -> None:
    """Whether it is typed again, or the job goes on where it was, as far as that is let."""
    words = ("restore", "late")
    for stage in kills(suite, tmp_path, *words):
        at = stage.checkpoint if following == "former" else stage.here / "to"
        if following == "again":
            goes_on(stage, *words)
        try:
            stage.start(EPOCHS, at)
        except CheckpointMovedError:
            assert following == "former"
            goes_on(stage, *words)
            stage.start(EPOCHS, stage.here / "to")
        expect(stage.world, rows(stage, *range(EPOCHS)))
        expect_nothing_open(stage)


def test_restore_that_writes_rows_again_leaves_nothing_open(suite: KafkaSuite, tmp_path: Path) -> None:
    """Killed at each step of its own process, requests to the broker among them, and typed again.

    The job goes on under another id, so no start ends what is open under the former one: readers would wait for it.
    """
    words = ("restore", "early", "--output", "again")
    for nth in count(1):
        stage = staged(suite, tmp_path / str(nth))
        is_killed = killed_apart(nth, stage.here, *typed(stage, *words))
        goes_on(stage, *words)
        expect_nothing_open(stage)
        assert ends(stage, "read_committed") == ends(stage, "read_uncommitted")
        stage.start(EPOCHS, stage.here / "to")
        expect(stage.world, rows(stage, *range(EPOCHS)) + rows(stage, 1))
        expect_nothing_open(stage)
        shutil.rmtree(stage.folder)
        if not is_killed:
            break
    assert nth > 30


def test_while_the_broker_cannot_be_asked_rows_are_not_written_again(
    suite: KafkaSuite, tmp_path: Path
) -> None:
    stage = staged(suite, tmp_path)
    words = ("restore", "early", "--output", "again")
    refused = run(*typed(stage, *words, "--option", "kafka.bootstrap.servers=localhost:1"))
    assert (refused.returncode, "type this again" in refused.stderr) == (2, True), refused
    assert not is_whole(stage)
    goes_on(stage, *words)
    expect_nothing_open(stage)
    stage.start(EPOCHS, stage.here / "to")
    expect(stage.world, rows(stage, *range(EPOCHS)) + rows(stage, 1))


@pytest.mark.parametrize("is_decided", [False, True])
def test_beside_an_epoch_that_was_broken_off_a_savepoint_is_of_the_one_before(
    suite: KafkaSuite, tmp_path: Path, *, is_decided: bool
) -> None:
    """Killed anywhere, it changes nothing for the job, nor for the one that is made next."""
    stage = Stage(tmp_path, suite)
    stage.start(2)
    (stage.decide if is_decided else stage.begin)(2)
    words = ("savepoint", "create", stage.checkpoint, stage.here / "place", "--epoch", "chk-1")
    for nth in count(1):
        is_killed = killed(lambda: run(*words), nth, stage.here)
        found = places.standing(str(stage.here / "place"))
        for each in found:
            assert each.savepoint is None or places.wrong(each.address, each.savepoint) == []
            places.drop(each.address)
        if not is_killed:
            break
    assert nth > 10
    assert run(*words).returncode == 0
    if is_decided:
        refused = run("savepoint", "restore", stage.here / "place", "--to", stage.here / "to")
        assert (refused.returncode, "transactions commit chk-2" in refused.stderr) == (1, True)
        assert run("transactions", "commit", "chk-2", stage.checkpoint, "--yes", *SINK).returncode == 0
        assert run(*typed(stage, "restore", "place")).returncode == 64  # by now, output was decided after it
    stage.start(EPOCHS)
    expect(stage.world, rows(stage, *range(EPOCHS)))
    expect_nothing_open(stage)
