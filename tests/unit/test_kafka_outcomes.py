"""What the answers of Kafka's coordinators mean for a prepared transaction: proof, or no proof. No broker."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import socket
import threading
import uuid
from dataclasses import dataclass, field, replace
from types import SimpleNamespace as Answer
from typing import TYPE_CHECKING, Any, cast

import pytest
from kafka.protocol.consumer.group import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.producer.transaction import InitProducerIdRequest

from onceonly.errors import ConfigurationError, InDoubtError, UnavailableError
from onceonly.model import AlreadyCommitted, Committed, Guarantee, Handle, Lost, Outcome, RetryLater, Unknown
from onceonly.ports import WriteContext
from onceonly.sinks.kafka import committer
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.outcomes import marker
from onceonly.sinks.kafka.prepared import Prepared
from onceonly.sinks.kafka.producers import pool as producers
from onceonly.sinks.kafka.producers import transaction
from onceonly.sinks.kafka.producers.pool import Pool, Ready
from onceonly.sinks.kafka.producers.reach import Reach
from onceonly.sinks.kafka.producers.transaction import StillEndingError
from onceonly.sinks.kafka.records.record_batches import Identity
from onceonly.sinks.kafka.wire.admin import TRANSACTION, Admin, transaction_partition
from onceonly.sinks.kafka.wire.answers import NotAnsweredError
from onceonly.sinks.kafka.wire.client import Selector
from onceonly.sinks.kafka.wire.end_txn import EndTxn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from onceonly.sinks.kafka.producers.leases import Lease

OPTIONS = KafkaOptions.parse({"kafka.bootstrap.servers": "nowhere:9", "topic": "t"})
FENCED, STILL_ENDING, UNSTABLE = 90, 51, 88  # of org.apache.kafka.common.protocol.Errors
OWN, BEFORE = "7:own", "6:before"
PREPARED = Prepared(
    cluster_id="c", transactional_id="id", producer_id=5, producer_epoch=0, end_txn_version=5, group="g",
    marker_topic="t", token=OWN, predecessor=BEFORE,
)  # fmt: skip


@dataclass
class Coordinators(Admin):
    """Answers as the coordinators of a transaction and of its marker's group would; ``asked`` is what was asked.

    ``end`` is the code of EndTxn, None for no answer; ``shows`` is the marker that is visible, ``pending`` says that
    a transaction on it has not ended. Whoever fences a transaction sees what it has been waiting for: ``fenced_to``.
    """

    end: int | None = 0
    shows: str | None = BEFORE
    pending: bool = False
    fence: int = 0
    fenced_to: str | None = None
    asked: list[str] = field(default_factory=list)

    @property
    def cluster_id(self) -> str:
        return "c"

    def forget(self, kind: int, key: str) -> None:
        self.asked.append("forget")

    def patiently(self, seconds: float, thing: str, attempt: Callable[[], Any]) -> Any:  # noqa: ANN401
        for _ in range(2):
            try:
                return attempt()
            except NotAnsweredError as error:
                why = str(error)
        raise UnavailableError(f"{thing}: {why}", next_step="wait")

    def to_coordinator(self, kind: int, key: str, request: object) -> object:
        match request:
            case EndTxn():
                self.asked.append("end")
                if self.end is None:
                    raise NotAnsweredError("no answer")
                return Answer(error_code=self.end)
            case InitProducerIdRequest():
                self.asked.append("fence")
                if self.fenced_to is not None:
                    self.shows = self.fenced_to
                return Answer(error_code=self.fence)
            case OffsetFetchRequest():
                stable = request.require_stable
                self.asked.append("stable" if stable else "look")
                code = UNSTABLE if stable and self.pending else 0
                return _fetched(request.groups[0].group_id, code, self.shows)
            case OffsetCommitRequest():
                self.asked.append("seed")
                self.shows = request.topics[0].partitions[0].committed_metadata
                return Answer(topics=[Answer(partitions=[Answer(error_code=0)])])
        raise AssertionError(request)

    def outcome(self, prepared: Prepared = PREPARED) -> Outcome:
        return committer.commit(self, prepared.handle(), is_first=True)


def _fetched(group: str, code: int, shown: str | None) -> object:
    partition = Answer(
        error_code=code, committed_offset=-1 if shown is None else 0, metadata="" if shown is None else shown
    )
    return Answer(groups=[Answer(group_id=group, error_code=0, topics=[Answer(partitions=[partition])])])


def test_what_the_coordinator_took_is_committed_and_nothing_else_is_asked() -> None:
    kafka = Coordinators()
    assert kafka.outcome() == Committed()
    assert kafka.asked == ["end"]


@pytest.mark.parametrize(
    ("code", "asked"),
    [(None, ["end"]), (7, ["end"]), (STILL_ENDING, ["end", "look"])],
    ids=["None", "7", "51"],
)
def test_no_answer_and_not_yet_are_asked_again_and_prove_nothing(code: int | None, asked: list[str]) -> None:
    kafka = Coordinators(end=code)
    assert isinstance(kafka.outcome(), RetryLater)
    assert kafka.asked == asked


def test_a_coordinator_that_never_ends_what_it_has_decided_holds_nobody_back() -> None:
    """As 3.3 does, where markers arrived while it loaded its state anew."""
    assert Coordinators(end=STILL_ENDING, shows=OWN).outcome() == AlreadyCommitted()
    # A twin of a later attempt may be pending on the same group.
    assert Coordinators(end=STILL_ENDING, shows=OWN, pending=True).outcome() == AlreadyCommitted()
    # It may be ended either way, as long as the marker shows anything else.
    for shows in (None, "8:strange"):
        assert isinstance(Coordinators(end=STILL_ENDING, shows=shows).outcome(), RetryLater)


def test_a_marker_that_cannot_be_read_while_a_commit_is_on_its_way_stops_nothing() -> None:
    class Silent(Coordinators):
        def to_coordinator(self, kind: int, key: str, request: object) -> object:
            if isinstance(request, OffsetFetchRequest):
                raise NotAnsweredError("no answer")
            return super().to_coordinator(kind, key, request)

    assert isinstance(Silent(end=STILL_ENDING).outcome(), RetryLater)


def test_its_own_marker_proves_the_commit() -> None:
    assert Coordinators(end=FENCED, shows=OWN).outcome() == AlreadyCommitted()
    # Visible and ours, even while a twin's is pending.
    assert Coordinators(end=FENCED, shows=OWN, pending=True).outcome() == AlreadyCommitted()


def test_lost_needs_the_predecessor_a_fence_and_the_predecessor_again() -> None:
    kafka = Coordinators(end=FENCED)
    assert isinstance(kafka.outcome(), Lost)
    assert kafka.asked == ["end", "stable", "fence", "stable"]


def test_what_was_committed_between_the_look_and_the_fence_is_not_lost() -> None:
    assert Coordinators(end=FENCED, fenced_to=OWN).outcome() == AlreadyCommitted()
    assert isinstance(Coordinators(end=FENCED, fenced_to="8:strange").outcome(), Unknown)


def test_what_cannot_be_fenced_is_not_lost() -> None:
    assert isinstance(Coordinators(end=FENCED, fence=STILL_ENDING).outcome(), RetryLater)


@pytest.mark.parametrize("shown", [None, "", "8:strange", "seed:another"])
def test_an_absent_or_unexpected_marker_is_unknown_and_nothing_is_fenced(shown: str | None) -> None:
    kafka = Coordinators(end=FENCED, shows=shown)
    assert isinstance(kafka.outcome(), Unknown)
    assert "fence" not in kafka.asked


def test_a_marker_on_which_something_is_pending_proves_nothing() -> None:
    kafka = Coordinators(end=FENCED, pending=True)
    assert isinstance(kafka.outcome(), RetryLater)
    assert "fence" not in kafka.asked


def test_another_cluster_is_sent_nothing() -> None:
    kafka = Coordinators()
    with pytest.raises(ConfigurationError, match="Nothing was sent"):
        kafka.outcome(replace(PREPARED, cluster_id="another"))
    with pytest.raises(ConfigurationError, match="Nothing was sent"):
        committer.abort(kafka, Handle(transaction="id", data={"transactional_id": "id", "cluster_id": "d"}))
    assert kafka.asked == []


def test_a_group_without_a_marker_gets_a_seed_that_no_earlier_handle_can_name() -> None:
    kafka = Coordinators(shows=None)
    first = marker.read_or_seed(kafka, "g", "t")
    assert marker.read_or_seed(kafka, "g", "t") == first
    kafka.shows = None  # the group was deleted
    assert marker.read_or_seed(kafka, "g", "t") != first
    assert marker.epoch_of(first) == -1


@pytest.mark.parametrize("pending_for", [0, 1, 99])
def test_a_seed_tells_the_epoch_of_a_former_topics_marker_that_is_on_its_way(pending_for: int) -> None:
    """The commit of that epoch was answered a moment ago; what never ends is not waited for."""

    @dataclass
    class Changed(Coordinators):
        """A group whose markers named another topic, the newest of which comes a few looks later."""

        looks: int = 0

        def to_coordinator(self, kind: int, key: str, request: object) -> object:
            if not isinstance(request, OffsetFetchRequest) or request.groups[0].topics is not None:
                return super().to_coordinator(kind, key, request)
            self.looks += 1
            is_there = self.looks > pending_for
            code = UNSTABLE if request.require_stable and not is_there else 0
            return _fetched("g", code, OWN if is_there else BEFORE)

    seed = marker.read_or_seed(Changed(shows=None), "g", "t")
    assert marker.epoch_of(seed) == (7 if pending_for < 2 else 6)
    assert marker.is_seed(seed)
    assert not marker.is_seed(OWN)


# --- one producer, one transaction ------------------------------------------------------------------------------


CONTEXT = WriteContext(
    query="q",
    sink="s",
    run="r",
    epoch=0,
    plan="p",
    slot=0,
    attempt="1",
    guarantee=Guarantee.EXACTLY_ONCE,
)


class Initialised(Pool):
    """A pool whose producers are initialised by noting it."""

    def __init__(self) -> None:
        super().__init__(
            replace(CONTEXT, run=uuid.uuid4().hex), Reach(OPTIONS, Admin(OPTIONS), Admin(OPTIONS)), 60_000
        )
        self.initialised: list[str] = []

    def _initialise(self, lease: Lease, ending_s: float = math.inf) -> Ready:
        self.initialised.append(lease.transactional_id)
        return Ready(
            producer=cast("Any", object()), lease=lease, producer_id=1,
            producer_epoch=len(self.initialised), born=float("inf"),
        )  # fmt: skip


def test_every_transaction_starts_on_a_producer_that_has_carried_none() -> None:
    pool = Initialised()
    taken = []
    for epoch in range(6):
        for _slot in range(2):
            taken.append(pool.take(epoch))
            pool.prepare_spare(epoch)
    assert len({(each.transactional_id, each.producer_epoch) for each in taken}) == len(taken)
    assert len({id(each.producer) for each in taken}) == len(taken)


def test_a_spare_waits_for_the_decision_and_not_where_it_is_wanted_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producers, "_SPARE_WAITS_S", 3600.0)
    pool = Initialised()
    pool.take(0)
    pool.prepare_spare(0)
    assert len(pool.initialised) == 1, "it waits"
    pool.take(1)
    assert len(pool.initialised) == 2, "it was wanted"
    # From the second slot of an epoch on, the next one may come any moment, in the next epoch as well.
    pool.take(1)
    for epoch in (1, 2):
        pool.prepare_spare(epoch)
        spare = pool._spare
        assert spare is not None
        assert spare.future.result(10) is not None
        pool.take(epoch + 1)
    pool.prepare_spare(3)
    spare = pool._spare
    assert spare is not None
    assert not spare.future.done(), "epochs of one slot again"
    pool.take(4)


def test_a_spare_waits_no_longer_once_the_next_attempt_waits_for_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producers, "_SPARE_WAITS_S", 3600.0)
    pool = Initialised()
    pool.take(0)
    pool.prepare_spare(0)
    spare = pool._spare
    assert spare is not None
    assert not spare.future.done()
    pool.expect(CONTEXT, lambda: "token")
    assert spare.future.result(10) is not None
    assert pool._spare is spare, "it is not taken yet"


def test_a_spare_that_could_not_be_prepared_costs_the_next_ones_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producers, "_SPARE_WAITS_S", 0.0)
    pool = Initialised()
    pool.take(0)
    with monkeypatch.context() as patch:
        patch.setattr(pool, "_initialise", lambda _name: 1 // 0)
        pool.prepare_spare(0)
        assert pool._spare is not None
        assert pool._spare.future.result(10) is None
    pool.take(1)
    pool.prepare_spare(1)
    assert pool._spare is not None
    assert pool._spare.future.result(10) is not None


def test_what_was_looked_up_is_given_to_its_attempt_once_and_to_no_other() -> None:
    pool = Initialised()
    pool.expect(CONTEXT, lambda: "token")
    assert pool.expected(CONTEXT) == "token"
    assert pool.expected(CONTEXT) is None
    pool.expect(CONTEXT, lambda: "token")
    assert pool.expected(replace(CONTEXT)) is None, "another attempt's"


@pytest.mark.parametrize("found", [None, "token"])
def test_a_look_up_that_finds_nothing_or_fails_or_is_old_leaves_the_attempt_to_look_itself(
    monkeypatch: pytest.MonkeyPatch, found: str | None
) -> None:
    pool = Initialised()
    pool.expect(CONTEXT, lambda: found)
    assert pool.expected(CONTEXT) == found
    pool.expect(CONTEXT, lambda: cast("Any", 1 // 0))
    assert pool.expected(CONTEXT) is None
    monkeypatch.setattr(producers, "_EXPECTED_S_MAX", 0.0)
    pool.expect(CONTEXT, lambda: found)
    assert pool.expected(CONTEXT) is None


def test_after_an_attempt_whose_rows_did_not_come_nothing_is_looked_up_ahead() -> None:
    pool, asked = Initialised(), list[str]()

    def attempt(name: str, *, has_rows: bool) -> str | None:
        context = replace(CONTEXT, attempt=name)

        def look_up() -> str:
            asked.append(name)
            return name

        pool.expect(context, look_up)
        if has_rows:
            return pool.expected(context)
        assert pool._expected is not None
        pool._expected.answer.result(10)  # it runs in a thread, and is noted in its turn
        return None

    assert attempt("1", has_rows=True) == "1"
    assert attempt("2", has_rows=False) is None
    for name in "345":
        assert attempt(name, has_rows=False) is None
    assert attempt("6", has_rows=True) is None, "it looks itself"
    assert attempt("7", has_rows=True) == "7"
    assert asked == ["1", "2", "7"]


def test_a_worker_of_more_queries_than_it_keeps_clients_for_closes_the_one_that_was_unused_for_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producers, "_CLIENTS_MAX", 2)
    monkeypatch.setattr(producers, "_POOLS_MAX", 2)
    closed = list[Admin]()
    monkeypatch.setattr(Admin, "close", lambda admin: closed.append(admin))  # noqa: PLW0108  bound
    worker = producers.Worker()

    def query(name: str) -> tuple[Admin, Pool]:
        options = KafkaOptions.parse({"kafka.bootstrap.servers": "nowhere:9092", "topic": name})
        return worker.reach(options).admin, worker.pool(replace(CONTEXT, query=name), options, 60_000)

    first, second = query("one"), query("two")
    assert query("one") == first
    query("three")
    assert [each for each in closed if each in {first[0], second[0]}] == [second[0]]
    assert len(closed) == 2, "its connection for rows, too"
    assert query("one") == first
    assert query("two")[0] is not second[0]


def test_an_id_is_initialised_again_only_in_a_later_epoch() -> None:
    pool = Initialised()
    for epoch in range(4):
        # What was initialised in this epoch may be prepared by now; to take its id would abort it.
        before = len(pool.initialised)
        taken = [pool.take(epoch) for _ in range(3)]
        names = [each.transactional_id for each in taken]
        for each in taken:  # prepared
            each.lease.give_back()
        assert len(set(names)) == 3
        assert len(set(pool.initialised[before:])) == 3
    assert len(set(pool.initialised)) == 3, "and then it is used again"


def test_an_id_whose_last_transaction_never_ends_is_left_alone_and_another_one_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin = Admin(OPTIONS)
    pool = Pool(replace(CONTEXT, run=uuid.uuid4().hex), Reach(OPTIONS, admin, admin), 60_000)
    asked = list[str]()
    stuck = ""

    def direct(name: str, ending_s: float) -> Any:  # noqa: ANN401  a producer that does nothing
        asked.append(name)
        if stuck in {name, "all"} and ending_s < math.inf:
            raise StillEndingError("It does not end")
        return object(), Identity(1, len(asked))

    monkeypatch.setattr(pool._reach, "is_direct", lambda: True)
    monkeypatch.setattr(pool, "_direct", direct)
    first = pool.take(0)
    first.lease.give_back()
    stuck = first.transactional_id
    names = [pool.take(epoch).transactional_id for epoch in (1, 2, 3)]
    assert stuck not in names
    assert asked.count(stuck) == 2, "when it was taken, and once since"

    # As where a broker has just died: they end once others lead its partitions, and one is waited for.
    stuck = "all"
    before = len(asked)
    assert pool.take(4).transactional_id == asked[-1]
    assert len(set(asked[before:])) == len(asked) - before == 3


def test_an_id_is_waited_for_only_for_a_time_while_its_last_transaction_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Ending:
        def patiently(self, _seconds: float, _thing: str, attempt: Callable[[], Any]) -> Any:  # noqa: ANN401
            for _ in range(100):
                with contextlib.suppress(NotAnsweredError):
                    return attempt()
            pytest.fail("it waits for ever")

        def to_coordinator(self, _kind: int, _key: str, _request: object) -> object:
            now[0] += 0.25
            ended = now[0] > ends_s
            return Answer(error_code=0 if ended else STILL_ENDING, producer_id=1, producer_epoch=2)

    now = [0.0]
    monkeypatch.setattr(transaction, "time", Answer(monotonic=lambda: now[0]))
    ends_s = 4.0
    assert transaction.take_id(cast("Admin", Ending()), "id", 1000, 60.0, 5.0).producer_epoch == 2
    now, ends_s = [0.0], 60.0
    with pytest.raises(StillEndingError):
        transaction.take_id(cast("Admin", Ending()), "id", 1000, 60.0, 5.0)
    assert now[0] < 6.0


# By Java's String.hashCode: of "hello" 99162322; the third one's is the least of all, which has no absolute value.
@pytest.mark.parametrize(
    ("name", "partition"), [("hello", 22), ("", 0), ("polygenelubricants", 0), ("Aa", 12), ("BB", 12)]
)
def test_an_id_belongs_to_the_partition_that_kafka_puts_it_into(name: str, partition: int) -> None:
    assert transaction_partition(name, 50) == partition


def test_a_sweep_asks_all_brokers_at_a_time() -> None:
    """One after the other, each epoch would wait for the sum of their answers."""
    all_are_asked = threading.Barrier(3, timeout=10)

    class Brokers(Coordinators):
        def send(self, _request: object, node: int | None = None) -> object:
            if node is None:
                partitions = [Answer(partition_index=each, leader_id=each) for each in range(3)]
                topic = Answer(partitions=partitions)
                return Answer(brokers=[Answer(node_id=each) for each in range(3)], topics=[topic])
            all_are_asked.wait()
            return Answer(error_code=0, transaction_states=[Answer(transactional_id=f"q.r.w.{node}")])

        def learn_leaders(self, leaders: Sequence[int]) -> None:
            assert leaders == [0, 1, 2]

        def remember(self, kind: int, key: str, node: int) -> None:
            self.asked.append(f"{key} is at {node}")

    kafka = Brokers()
    assert [each.transaction for each in committer.recover(kafka, "q.")] == ["q.r.w.0", "q.r.w.1", "q.r.w.2"]
    assert kafka.asked == [f"q.r.w.{each} is at {each}" for each in range(3)]


def test_once_a_leader_does_not_answer_coordinators_are_guessed_no_more() -> None:
    class Down:
        def __init__(self) -> None:
            self.leaders = [7] * 50
            self.known: dict[str, int] = {}

        def remember(self, _kind: int, key: str, node: int) -> None:
            self.known[key] = node

        def forget(self, _kind: int, key: str) -> None:
            self.known.pop(key)

        def is_usable(self) -> bool:
            return True

        def send_all(self, _kind: int, requests: dict[str, object]) -> dict[str, object]:
            return {key: NotAnsweredError("down") for key in requests}

    admin, client = Admin(OPTIONS), Down()
    admin._client, admin._pid = client, os.getpid()
    admin.guess_coordinators(["a", "b"])
    assert client.known == {"a": 7, "b": 7}
    admin.to_coordinators(TRANSACTION, {"a": object(), "b": object()})
    admin.guess_coordinators(["a", "b"])
    assert client.known == {}


def _prepared(count: int) -> list[Handle]:
    return [replace(PREPARED, transactional_id=f"id-{number}").handle() for number in range(count)]


class Some(Coordinators):
    """Answers EndTxn of many; ``elsewhere`` are ids that another broker coordinates."""

    elsewhere: Collection[str] = ()

    def guess_coordinators(self, keys: Iterable[str]) -> None:
        self.asked.append(f"guess {len(list(keys))}")

    def to_coordinators(self, _kind: int, requests: Mapping[str, Any]) -> dict[str, Any]:
        return {key: Answer(error_code=16 if key in self.elsewhere else 0) for key in requests}


def test_of_many_commits_those_that_asked_the_wrong_broker_are_asked_again_and_it_is_forgotten() -> None:
    some = Some()
    some.elsewhere = {"id-3", "id-20"}
    outcomes = committer.commit_many(some, _prepared(32), first={OWN})
    assert [place for place, each in enumerate(outcomes) if isinstance(each, RetryLater)] == [3, 20]
    assert outcomes.count(Committed()) == 30
    assert some.asked == ["guess 32", "forget", "forget"]


def test_two_handles_of_one_transaction_are_not_committed_together() -> None:
    with pytest.raises(InDoubtError, match="same transactional id"):
        committer.commit_many(Admin(OPTIONS), [PREPARED.handle(), PREPARED.handle()])


class _Unspoken(socket.socket):
    def __repr__(self) -> str:
        pytest.fail("spelling a socket takes two system calls")


def test_a_socket_is_looked_up_as_before_and_not_spelled_where_it_is_not_registered() -> None:
    with Selector() as selector, _Unspoken() as known, _Unspoken() as other:
        registered = selector.register(known, selectors.EVENT_READ)
        assert selector.get_key(known) == registered == selector.get_key(known.fileno())
        with pytest.raises(KeyError):
            selector.get_key(other)
        known.close()
        assert selector.get_key(known) == registered
        selector.unregister(known)
        with pytest.raises(ValueError, match="file descriptor"):
            selector.get_key(known)
