"""Rows that a broker refuses are known before they are sent, by the byte; rows and letters are decided together."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kafka_query import PROPERTIES, Query, wait_for
from tests.unit.test_rehearsal_letters import GOOD, is_decided_only
from tests.unit.test_transactions_divert import BAD, Job

from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.errors import RecordRefusedError, ReplayMismatchError, TransactionLostError, WriteFailedError
from onceonly.executor.dead_letters import Letters, columns_of
from onceonly.executor.slot import run_slot
from onceonly.log import look, open_log
from onceonly.model import Committed, Guarantee, Lost
from onceonly.settings.query import LetterSettings
from onceonly.settings.registry import BUILT_IN
from onceonly_proof.embedded.kafka import EmbeddedKafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from onceonly.executor.ballot import Ballot
    from onceonly.model import Plan, Vote

pytestmark = [
    pytest.mark.integration,
    # kafka-python 3.0 reads its schemas by a function that importlib has deprecated.
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
LIMIT = 1000
EPOCHS = itertools.count()
ROWS = pa.RecordBatch.from_pydict({"value": ["a", "b" * 2000, "c", "d" * 3000]})


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(properties=PROPERTIES) as kafka:
        yield kafka


def limited(broker: EmbeddedKafka, **options: str) -> Query:
    """A query whose topic takes batches of up to ``LIMIT`` bytes."""
    query = Query(broker, **options)
    topic = f"{query.topic}-small"
    broker.create_topic(topic, partitions=2, configs={"max.message.bytes": str(LIMIT)})
    query.topic = topic
    query.options["topic"] = topic
    query.sink = type(query.sink)(query.options)
    query.facts = dict(query.sink.check(query.context))
    return query


def set_limit(broker: EmbeddedKafka, topic: str, limit: int) -> None:
    """Change the topic's limit, and see that the broker goes by it."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entry = ConfigEntry("max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    client.incremental_alter_configs([changed])[changed].result(10)

    def is_told() -> bool:
        told = client.describe_configs([resource])[resource].result(10)["max.message.bytes"].value
        return bool(told == str(limit))

    wait_for(is_told, f"a limit of {limit} bytes")


def gives_back(query: Query, values: list[bytes]) -> list[int]:
    """Write values where refused ones are given back, and commit; name those that were."""
    context = replace(query.attempt(epoch=next(EPOCHS)), gives_back=True)
    transaction = query.sink.begin_transaction(context)
    refused = query.sink.write(transaction, pa.record_batch({"value": pa.array(values, pa.binary())}))
    if len(refused) == len(values):
        query.sink.discard(transaction)
        return [each.row for each in refused]
    handle = query.sink.pre_commit(transaction)
    assert handle is not None
    query.commit(handle)
    return [each.row for each in refused]


def is_refused(query: Query, value: bytes) -> bool:
    """Ask the broker itself."""
    transaction = query.sink.begin_transaction(query.attempt(epoch=next(EPOCHS)))
    try:
        query.sink.write(transaction, pa.record_batch({"value": pa.array([value], pa.binary())}))
        query.sink.pre_commit(transaction)
    except RecordRefusedError:
        query.sink.discard(transaction)
        return True
    return False


@pytest.mark.parametrize("by", ["none", "lz4"])
def test_the_largest_row_that_the_broker_takes_is_the_largest_that_is_not_given_back(
    broker: EmbeddedKafka, by: str
) -> None:
    query = limited(broker, **{"kafka.compression.type": by})
    noise = random.Random(3).randbytes(2 * LIMIT)
    takes, refuses = 0, len(noise)
    while refuses - takes > 1:
        middle = (takes + refuses) // 2
        if gives_back(query, [noise[:middle]]):
            refuses = middle
        else:
            takes = middle
    assert takes > LIMIT // 2
    assert not is_refused(query, noise[:takes])
    assert is_refused(query, noise[:refuses])


def test_what_is_given_back_is_not_in_the_topic_and_all_else_is(broker: EmbeddedKafka) -> None:
    query = limited(broker)
    assert gives_back(query, [b"a", b"b" * 2000, b"c"]) == [1]
    query.until_read("a", "c")


def test_a_row_without_a_key_for_a_compacted_topic_is_given_back_or_refused_in_the_brokers_words(
    broker: EmbeddedKafka,
) -> None:
    query = Query(broker)
    query.topic = query.options["topic"] = f"{query.topic}-compacted"
    broker.create_topic(query.topic, partitions=1, configs={"cleanup.policy": "compact"})
    query.sink = type(query.sink)(query.options)
    query.facts = dict(query.sink.check(query.context))

    assert gives_back(query, [b"a"]) == [0]
    attempt = query.sink.begin_transaction(query.attempt(epoch=next(EPOCHS)))
    query.sink.write(attempt, pa.record_batch({"value": [b"a"]}))
    with pytest.raises(
        RecordRefusedError, match="ompacted topic cannot accept message without key"
    ) as caught:
        query.sink.pre_commit(attempt)
    query.sink.discard(attempt)
    assert "max.message.bytes" not in str(caught.value)


class Lives:
    """A query with a topic for its rows and one for its letters, in lives of a driver."""

    def __init__(self, broker: EmbeddedKafka, folder: Path) -> None:
        self.main, self.beside = limited(broker), Query(broker)
        self.folder = folder

    def coordinator(self) -> Coordinator:
        log = open_log(str(self.folder / "checkpoint"), query=self.main.id, create=True)
        made = Coordinator(log=log, actor="test", commit_timeout_s=1.0)
        made.join("kafka", Participant(sink=self.main.sink, guarantee=Guarantee.EXACTLY_ONCE))
        columns = columns_of(self.beside.sink)
        sink = Participant(sink=self.beside.sink, guarantee=Guarantee.EXACTLY_ONCE, columns=columns)
        made.join("kafka.letters", sink)
        return made

    def task(self, plan: Plan, rows: pa.RecordBatch = ROWS, slot: int = 0) -> Ballot:
        attempt = self.main.attempt(epoch=plan.epoch, slot=slot)
        context = replace(attempt, plan=plan.id, mode=plan.mode, gives_back=True)
        letters = Letters(self.beside.sink, plan, context, limit=10)
        return run_slot(self.main.sink, plan, context, [rows], letters=letters)

    def lose(self, coordinator: Coordinator, plan: Plan, votes: list[Vote], lost: Vote) -> None:
        """Decide, as if a time-out had dropped one of the transactions between the check and the commit."""
        sink = self.main.sink if lost.sink == "kafka" else self.beside.sink
        handle = lost.handle
        assert handle is not None

        def dropped(ask: Callable[..., Any]) -> Callable[..., Any]:
            def asked(given: Any) -> Any:  # noqa: ANN401  one handle, or several
                sink.abort(handle)
                return ask(given)

            return asked

        with pytest.MonkeyPatch.context() as patch:
            for name in ("commit", "commit_many"):
                patch.setattr(sink, name, dropped(getattr(sink, name)))
            with pytest.raises(TransactionLostError):
                coordinator.decide(plan, votes)
        assert isinstance(sink.commit(handle), Lost)

    def check(self) -> None:
        self.main.until_read("a", "c")
        wait_for(lambda: len(self.beside.read()) == 2, "two letters")
        rows = Counter(json.loads(json.loads(text)["row"])["value"] for text in self.beside.read())
        assert rows == Counter(["b" * 2000, "d" * 3000])
        assert self.main.open_transactions() == []
        left = replace(self.beside.context, query=self.main.id, sink="kafka.letters")
        assert list(self.beside.sink.recover(left)) == []


def test_rows_and_letters_are_prepared_by_the_executor_and_visible_by_one_decision(
    broker: EmbeddedKafka, tmp_path: Path
) -> None:
    lives = Lives(broker, tmp_path)
    coordinator = lives.coordinator()
    plan = coordinator.plan(0, run="run")
    ballot = lives.task(plan)
    assert ballot.letters is not None
    assert (ballot.vote.rows, ballot.letters.rows) == (2, 2)
    assert lives.main.read() == lives.beside.read() == []
    coordinator.decide(plan, list(ballot.votes))
    lives.check()


@pytest.mark.parametrize("lost", ["kafka", "kafka.letters"])
def test_a_transaction_of_either_that_the_broker_dropped_is_written_again(
    broker: EmbeddedKafka, tmp_path: Path, lost: str
) -> None:
    lives = Lives(broker, tmp_path)
    coordinator = lives.coordinator()
    plan = coordinator.plan(0, run="one")
    votes = list(lives.task(plan).votes)
    lives.lose(coordinator, plan, votes, next(vote for vote in votes if vote.sink == lost))

    again = lives.coordinator()
    plan = again.plan(0, run="two")
    again.decide(plan, list(lives.task(plan).votes))
    lives.check()


def test_rows_that_are_too_large_since_the_topics_limit_was_lowered_are_letters_by_the_next_try(
    broker: EmbeddedKafka, tmp_path: Path
) -> None:
    lives = Lives(broker, tmp_path)
    coordinator = lives.coordinator()
    plan = coordinator.plan(0, run="run")
    coordinator.decide(plan, list(lives.task(plan).votes))
    set_limit(broker, lives.main.topic, 500)
    rows = pa.RecordBatch.from_pydict({"value": ["e" * 700]})
    plan = coordinator.plan(1, run="run", continues=plan.id)
    with pytest.raises(WriteFailedError, match="was lowered a moment ago"):
        lives.task(plan, rows)
    ballot = lives.task(plan, rows)
    assert (ballot.vote.rows, ballot.letters.rows if ballot.letters else 0) == (0, 1)
    coordinator.decide(plan, list(ballot.votes))
    wait_for(lambda: len(lives.beside.read()) == 3, "three letters")
    lives.main.until_read("a", "c")


def test_a_lost_transaction_with_a_row_that_the_topic_takes_no_more_stops_until_it_does(
    broker: EmbeddedKafka, tmp_path: Path
) -> None:
    lives = Lives(broker, tmp_path)
    coordinator = lives.coordinator()
    plan = coordinator.plan(0, run="one")
    slots = ROWS.slice(0, 2), pa.RecordBatch.from_pydict({"value": ["e" * 700, "f"]})

    def votes(plan: Plan) -> list[Vote]:
        ballots = [lives.task(plan, rows, slot) for slot, rows in enumerate(slots)]
        return [vote for ballot in ballots for vote in ballot.votes]

    given = votes(plan)
    lives.lose(coordinator, plan, given, next(vote for vote in given if vote.slot == 1))

    def again() -> None:
        made = lives.coordinator()
        plan = made.plan(0, run="two")
        made.decide(plan, votes(plan))

    set_limit(broker, lives.main.topic, 500)
    with pytest.raises(ReplayMismatchError, match=r"refuses others of them now .* max\.message\.bytes"):
        again()
    set_limit(broker, lives.main.topic, LIMIT)
    again()
    lives.main.until_read("a", "e" * 700, "f")
    wait_for(lambda: len(lives.beside.read()) == 1, "one letter")
    assert lives.main.open_transactions() == []


def test_a_slot_whose_rows_are_all_refused_has_letters_only(broker: EmbeddedKafka, tmp_path: Path) -> None:
    lives = Lives(broker, tmp_path)
    coordinator = lives.coordinator()
    plan = coordinator.plan(0, run="run")
    coordinator.decide(plan, list(lives.task(plan, ROWS.take(pa.array([1, 3]))).votes))
    wait_for(lambda: len(lives.beside.read()) == 2, "two letters")
    assert lives.main.read() == []
    assert lives.main.open_transactions() == []


@pytest.mark.parametrize("is_committed", ["own", "diverted"])
def test_of_two_transactions_with_letters_of_a_slot_the_one_that_is_lost_is_not_in_doubt(
    broker: EmbeddedKafka, tmp_path: Path, is_committed: str
) -> None:
    beside, job = Query(broker), Job(tmp_path)
    job.refuses_null()
    job.ask("CREATE UNIQUE INDEX once ON t (id)")
    options = {**beside.options, "onceonly.transactional.id.prefix": beside.id}  # all such jobs have one id
    job.settings = replace(job.settings, letters=LetterSettings(format="onceonly.kafka", options=options))
    job.letters_class = BUILT_IN["kafka"]
    is_decided_only(job)
    # The driver has committed one of the two, and stays down until the brokers have dropped the other one.
    votes = [
        vote for vote in look(str(job.checkpoint))[0].chain(0)[-1].votes if vote.sink == "sqlite.letters"
    ]
    assert len(votes) == 4
    for vote in votes:
        assert vote.handle is not None
        if ("onceonly.diverted" in vote.handle.data) is (is_committed == "diverted"):
            assert beside.sink.commit(vote.handle) == Committed()
        else:
            beside.sink.abort(vote.handle)
    for _ in range(2):
        with closing(job.started()) as coordinator:
            job.decide(coordinator)
    assert job.rows() == GOOD
    wait_for(lambda: len(beside.read()) >= 4, "the letters")
    names = [json.loads(json.loads(text)["row"])["name"] for text in beside.read()]
    assert sorted(names) == sorted([*BAD, "null", "null too"])
