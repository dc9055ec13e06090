"""``transactions commit`` and ``abort`` of an epoch on Kafka, killed at each step, and then whatever follows.

A step is a change of a file, or a request that ends a transaction: about to be sent, and answered. The broker says
what became of the rows.
"""

from __future__ import annotations

import contextlib
from itertools import count
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from test_conformance_kafka import TestKafka as KafkaSuite
from tests.unit.killed_bench import SLOTS, Stage, killed_apart

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onceonly_proof.embedded.kafka import EmbeddedKafka

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
EPOCHS = 4
AGAINST = ("--against-decision", "--because", "wrong prices")


def _decided(stage: Stage) -> None:
    stage.decide(2)
    stage.lose(2)


def _begun(stage: Stage) -> None:
    stage.begin(2)


KILLED: dict[str, tuple[Callable[[Stage], None], tuple[str, ...]]] = {
    "commit": (_decided, ("commit",)),
    "abort": (_begun, ("abort",)),
    "against": (_decided, ("abort", *AGAINST)),
}
NEXT: tuple[tuple[str, ...], ...] = ((), ("commit",), ("abort",), ("abort", *AGAINST))
"""What is typed after the kill, before the job is started."""


def staged(folder: Path, kafka: EmbeddedKafka) -> Stage:
    """Make a query of two slots on a topic of its own, with two epochs behind it."""
    suite = KafkaSuite()
    suite.kafka = kafka
    stage = Stage(folder, suite, within_s=60)
    stage.start(2)
    return stage


@pytest.mark.parametrize(
    ("every", "shift"),
    [(3, 0), *(pytest.param(1, each, marks=pytest.mark.long) for each in range(len(NEXT)))],
)
@pytest.mark.parametrize("command", KILLED)
@pytest.mark.timeout(900)
def test_killed_at_each_step_and_followed_by_whatever_each_row_is_there_once(
    tmp_path: Path, kafka: EmbeddedKafka, command: str, every: int, shift: int
) -> None:
    """No start is in doubt: what was fenced, and has no marker, is lost for sure, as the broker says itself."""
    leave, (verb, *more) = KILLED[command]
    nth = 0
    for nth in count(1, every):
        stage = staged(tmp_path / str(nth), kafka)
        leave(stage)
        is_killed = killed_apart(nth, stage.here, *stage.words(verb, "chk-2", *more))
        if following := NEXT[(nth + shift) % len(NEXT)]:
            told = stage.transactions(following[0], "chk-2", *following[1:])
            assert "Traceback" not in told.stderr, told
            assert (
                told.returncode == 0 or "next: " in told.stderr or "writes the rows again" in told.stderr
            ), told
        stage.start(EPOCHS)
        stage.expect(EPOCHS)
        if not is_killed:
            break
    assert nth > 8


FOLLOWING = ((), ("commit",), ("abort", *AGAINST))


@pytest.mark.parametrize("following", FOLLOWING, ids=["start", "commit", "abort"])
def test_where_markers_are_deleted_after_an_abort_that_was_killed_rows_tell_what_became_of_them(
    tmp_path: Path, kafka: EmbeddedKafka, following: tuple[str, ...]
) -> None:
    """Of one of two transactions it was fenced, the other is open; no link says so, and no marker any more."""
    stage = staged(tmp_path, kafka)
    stage.decide(2)
    nth = next(each for each in count(1) if _has_fenced_one(stage, each))
    admin = kafka.admin()
    ours = [
        each.group_id
        for each in admin.list_consumer_groups().result().valid
        if f".{stage.world.query}." in each.group_id
    ]
    assert len(ours) == SLOTS, nth
    for deleted in admin.delete_consumer_groups(ours).values():
        with contextlib.suppress(confluent_kafka.KafkaException):  # of the one that is open still
            deleted.result(30)
    if following:
        told = stage.transactions(following[0], "chk-2", *following[1:])
        assert told.returncode == 0 or "writes the rows again" in told.stderr, told
    stage.start(EPOCHS)
    stage.expect(EPOCHS)


def _has_fenced_one(stage: Stage, nth: int) -> bool:
    """Kill an abort before its n-th step; say whether it has ended a transaction by then."""
    assert killed_apart(nth, stage.here, *stage.words("abort", "chk-2", *AGAINST))
    with stage.world:
        return len(list(stage.suite.orphans(stage.world.options))) < SLOTS
