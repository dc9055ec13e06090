"""What Spark reads by its own memory, asked in the driver and from the processes that have no way to its JVM."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from onceonly import offsets
from onceonly.guards.source import Source
from onceonly.model import Span
from onceonly.spark import spans

if TYPE_CHECKING:
    from collections.abc import Sequence

QUERY = "0a86cf32-5f4e-4f2c-9a57-6f0d9f1f1c11"


def progress(texts: Sequence[str]) -> SimpleNamespace:
    """Make Scala's map of sources to offsets."""

    def values() -> SimpleNamespace:
        found = iter(texts)
        left = list(texts)

        def following() -> SimpleNamespace:
            left.pop()
            text = next(found)
            return SimpleNamespace(json=lambda: text)

        return SimpleNamespace(hasNext=lambda: bool(left), next=following)

    return SimpleNamespace(valuesIterator=values)


def running(epoch: int, starts: Sequence[str], ends: Sequence[str]) -> SimpleNamespace:
    """Make Spark's memory of the epoch that runs."""
    context = SimpleNamespace(
        batchId=lambda: epoch, startOffsets=lambda: progress(starts), endOffsets=lambda: progress(ends)
    )
    return SimpleNamespace(getLatestExecutionContext=lambda: context)


def running_before_4(epoch: int, starts: Sequence[str], ends: Sequence[str]) -> SimpleNamespace:
    """Make the same as Spark 3.5 has it."""
    return SimpleNamespace(
        currentBatchId=lambda: epoch,
        committedOffsets=lambda: progress(starts),
        availableOffsets=lambda: progress(ends),
    )


class Session:
    """A session of Spark's with one query."""

    def __init__(self, stream: object) -> None:
        self._jsparkSession = self._jvm = self.java = self.util = self.UUID = self
        self.streams: dict[object, object] = {uuid.UUID(QUERY): stream}

    def sharedState(self) -> Session:  # noqa: N802
        return self

    def activeStreamingQueries(self) -> dict[object, object]:  # noqa: N802
        return self.streams

    def fromString(self, text: str) -> uuid.UUID:  # noqa: N802
        return uuid.UUID(text)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    from pyspark.sql import SparkSession

    session = Session(running(7, ['{"t":{"0":3}}'], ['{"t":{"0":5}}', '{"logOffset":2}']))
    monkeypatch.setattr(SparkSession, "_instantiatedSession", session)
    return session


READ = Span(epoch=7, starts=('{"t":{"0":3}}',), ends=('{"t":{"0":5}}', '{"logOffset":2}'))


def test_the_driver_reads_it_from_sparks_memory(session: Session) -> None:
    assert spans.read(QUERY) == READ
    assert spans.read(str(uuid.uuid4())) is None
    session.streams[uuid.UUID(QUERY)] = running(0, (), ())
    assert spans.read(QUERY) == Span(epoch=0, starts=(), ends=())
    session.streams[uuid.UUID(QUERY)] = running_before_4(READ.epoch, READ.starts, READ.ends)
    assert spans.read(QUERY) == READ
    session.streams[uuid.UUID(QUERY)] = object()  # a Spark that has it elsewhere
    assert spans.read(QUERY) is None


def test_any_process_of_the_machine_asks_the_driver(session: Session) -> None:
    address = spans.serve()
    assert spans.serve() == address
    code = f"from onceonly.spark.spans import ask; print(ask({address!r}, {QUERY!r}))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == f"{READ}\n"
    assert spans.ask(address, QUERY) == READ
    assert spans.ask(address, "no query") is None


def test_who_asks_before_a_decision_says_so(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[str, bool]] = []
    monkeypatch.setattr(spans, "asked", [lambda query, *, deciding: heard.append((query, deciding))])
    assert spans.ask(spans.serve(), QUERY) == spans.ask(spans.serve(), QUERY, deciding=True) == READ
    assert heard == [(QUERY, False), (QUERY, True)]


def test_where_nobody_answers_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spans.ask("", QUERY) is None
    assert spans.ask("nobody", QUERY) is None
    monkeypatch.setattr(spans, "_TIMEOUT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(spans._place(address := uuid.uuid4().hex))
        deaf.listen()
        assert spans.ask(address, QUERY) is None


def test_a_caller_that_says_nothing_keeps_nobody_from_asking(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "_TIMEOUT_S", 0.3)
    address = spans.serve()
    with socket.socket(socket.AF_UNIX) as mute, socket.socket(socket.AF_UNIX) as rude:
        mute.connect(spans._place(address))
        rude.connect(spans._place(address))
        rude.sendall(b"\xff\xfe\n")
        rude.close()
        deadline = time.monotonic() + 30
        # Who asks while the first caller is waited for gives up as soon as that one is.
        while (told := spans.ask(address, QUERY)) is None and time.monotonic() < deadline:
            pass
        assert told == READ


def test_another_users_question_is_not_answered(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    address = spans.serve()
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    assert spans.ask(address, QUERY) is None


@pytest.mark.parametrize(
    ("held", "written", "is_among"),
    [
        (('{"t":{"0":5,"1":2}}',), ('{"t": {"1": 2, "0": 5}}',), True),
        (('{"t":{"0":5}}',), ('{"t":{"0":6}}',), False),
        (("7",), ("numbers:7", "-"), True),  # a name, and a source that has no offset yet
        (("7",), ("7", "7"), True),  # one source twice
        ((), ("7",), True),  # a source that is read no more
        (("7", "8"), ("7",), False),
        (("later",), ("end",), False),
    ],
)
def test_offsets_are_compared_as_what_they_say(
    held: tuple[str, ...], written: tuple[str, ...], *, is_among: bool
) -> None:
    assert offsets.among(held, written) is is_among


class Node(SimpleNamespace):
    """A node of a plan, as Py4J shows it."""

    def getClass(self) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(getSimpleName=lambda: self.kind)

    def children(self) -> SimpleNamespace:
        below = self.__dict__.get("below", [])
        return SimpleNamespace(size=lambda: len(below), apply=below.__getitem__)


def relation(name: str, **options: str) -> Node:
    """Make a source of the newer kind."""
    given = SimpleNamespace(asCaseSensitiveMap=lambda: options)
    return Node(kind="StreamingRelationV2", sourceName=lambda: name, extraOptions=lambda: given)


def test_the_sources_of_a_plan_are_asked_for_by_any_process_of_the_machine(session: Session) -> None:
    by_class = relation(
        "org.apache.spark.sql.kafka010.KafkaSourceProvider", subscribe="a", failOnDataLoss="no"
    )
    queue = relation("onceonly.rabbitmq", queue="q", id="none")
    plan = Node(kind="Union", below=[by_class, queue, relation("onceonly.collection", rows="canary" * 1000)])
    session.streams[uuid.UUID(QUERY)] = SimpleNamespace(analyzedPlan=lambda: plan)
    wanted = [
        Source("onceonly.collection"),
        Source("onceonly.rabbitmq", {"queue": "q", "id": "none"}),
        Source("kafka", {"subscribe": "a", "failondataloss": "no"}),
    ]
    assert spans.read_sources(QUERY) == wanted
    assert spans.ask_sources(spans.serve(), QUERY) == wanted
    assert spans.ask_sources("", QUERY) is None
    assert spans.ask_sources(spans.serve(), str(uuid.uuid4())) is None
