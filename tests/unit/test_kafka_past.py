"""A target that went back is noticed before the first record of a start. No broker."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.unit.test_kafka_outcomes import BEFORE, OWN, PREPARED, Coordinators

from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.errors import ConfigurationError, TargetBehindError
from onceonly.executor.slot import run_slot
from onceonly.model import Guarantee, Handle, Mode, Vote
from onceonly.ports import QueryContext, WriteContext
from onceonly.ports.standing import Stands
from onceonly.sinks.kafka.checks import past, topic_ids
from onceonly.sinks.kafka.options import KafkaOptions
from onceonly.sinks.kafka.outcomes import marker, own_rows
from onceonly.sinks.kafka.wire.answers import UNKNOWN_TOPIC
from onceonly_proof.memory_log import MemoryDisk, MemoryLog
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTEXT = QueryContext(query="q", sink="kafka", guarantee=Guarantee.EXACTLY_ONCE)
GIVEN = {"kafka.bootstrap.servers": "nowhere:9", "topic": "t"}


def look(
    shows: str | None, *, epoch: int = 7, predecessor: str = BEFORE, others: int = -1, **options: str
) -> None:
    """Look at a slot that shows a marker; the others of its sink have come to an epoch."""
    handle = replace(PREPARED, predecessor=predecessor).handle()
    named = {name.replace("_", "."): value for name, value in options.items()}
    cluster, given = Coordinators(shows=shows), KafkaOptions.parse({**GIVEN, **named})
    with pytest.MonkeyPatch.context() as patched:
        newest = max(marker.epoch_of(shows or ""), others)
        patched.setattr(marker, "newest_epoch", lambda _admin, groups: {"onceonly.q.kafka.": newest}[groups])
        past.look_back(cluster, given, CONTEXT, epoch, [handle])


@pytest.mark.parametrize("shows", [OWN, "7:a later link of it", "8:newer"])
def test_what_is_there_is_gone_on_with(shows: str) -> None:
    look(shows)


@pytest.mark.parametrize(
    ("shows", "predecessor", "missing", "ends"),
    [
        ("6:x", "6:x", "chk-7 is not there", 6),
        ("5:x", "6:y", "chk-6 to chk-7 are not there", 5),
        ("6:x", "6:y", "chk-7 is not there", 6),
    ],
)
def test_markers_that_are_older_than_the_log_stop_before_the_first_record(
    shows: str, predecessor: str, missing: str, ends: int
) -> None:
    with pytest.raises(TargetBehindError, match=rf"{missing}\. A backup") as caught:
        look(shows, predecessor=predecessor)
    assert f"from the offsets at which chk-{ends} ends" in caught.value.next_step
    assert "would be there twice" in caught.value.next_step
    assert "onceonly.target.behind=go-on" in caught.value.next_step
    assert not caught.value.restartable


@pytest.mark.parametrize(
    ("shows", "predecessor", "missing"),
    [
        ("seed:1", "seed:1", "chk-7 is not there, and nothing shows that chk-0 to chk-6 are"),
        ("5:seed:1", "5:seed:1", "chk-7 is not there, and nothing shows that chk-6 is"),
        ("4:x", "4:x", "chk-7 is not there, and nothing shows that chk-5 to chk-6 are"),
        ("4:x", "seed:1", "chk-7 is not there, and nothing shows that chk-5 to chk-6 are"),
        ("4:x", "6:seed:1", "chk-7 is not there, and nothing shows that chk-5 to chk-6 are"),
        ("4:x", "6:y", "chk-6 to chk-7 are not there, and nothing shows that chk-5 is"),
        ("3:x", "5:y", "chk-5, chk-7 are not there, and nothing shows that chk-4, chk-6 are"),
    ],
)
def test_epochs_that_nothing_proves_to_be_missing_are_named_as_doubtful(
    shows: str, predecessor: str, missing: str
) -> None:
    with pytest.raises(TargetBehindError, match=rf"{missing}\. A backup") as caught:
        look(shows, predecessor=predecessor)
    assert "see whether rows of chk-" in caught.value.next_step
    assert "at which chk-" not in caught.value.next_step


@pytest.mark.parametrize("seed", ["seed:1", "4:seed:1"])
def test_a_slot_that_had_its_first_rows_in_the_epoch_lacks_no_other(seed: str) -> None:
    with pytest.raises(TargetBehindError, match=r"chk-7 is not there\. A backup") as caught:
        look(seed, predecessor=seed, others=6)
    assert "from the offsets at which chk-6 ends" in caught.value.next_step


def test_a_target_from_before_the_first_epoch_begins_there_again() -> None:
    with pytest.raises(TargetBehindError, match=r"chk-0 is not there\. A backup") as caught:
        look("seed:1", predecessor="seed:1", epoch=0)
    assert "from the offsets at which chk-0 began" in caught.value.next_step


def test_of_many_epochs_some_are_named() -> None:
    with pytest.raises(TargetBehindError, match="that chk-1, chk-2, chk-3, chk-4, chk-6 and 2 more are"):
        look("0:x", predecessor="5:y", epoch=9)


def test_the_user_may_go_on_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    look("5:x", onceonly_target_behind="go-on")
    assert "chk-6 to chk-7" in caplog.text


@pytest.mark.parametrize("shows", [None, "seed:drawn later", "5:seed:drawn later"])
def test_a_marker_that_is_not_there_any_more_proves_nothing(
    shows: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    look(shows)
    assert "expired" in caplog.text


@pytest.mark.parametrize("stands", Stands)
def test_where_a_marker_is_not_there_any_more_its_rows_tell_whether_they_are(
    stands: Stands, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_rows, "ended", lambda _admin, _prepared: (stands, "its rows"))
    look(None)
    assert ("expired" in caplog.text) == (stands is not Stands.COMMITTED)


@pytest.mark.parametrize("stands", Stands)
def test_where_its_rows_are_seen_to_be_there_an_older_marker_proves_nothing(
    stands: Stands, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers that had lost their power together have kept the rows, and not the marker."""
    monkeypatch.setattr(own_rows, "ended", lambda _admin, _prepared: (stands, "its rows"))
    if stands is Stands.COMMITTED:
        look(BEFORE)
        assert "older than chk-7, whose rows are there (group g shows 6:before)" in caplog.text
    else:
        with pytest.raises(TargetBehindError, match="chk-7 is not there"):
            look(BEFORE)
    # Of the epoch before, which the marker does not show either, these rows tell nothing.
    missing = "chk-6 is" if stands is Stands.COMMITTED else "chk-6 to chk-7 are"
    with pytest.raises(TargetBehindError, match=f"{missing} not there"):
        look("5:x")


OLD, NEW = UUID(int=1), UUID(int=2)


class Named(Coordinators):
    """A cluster with topics of these ids."""

    def __init__(self, **ids: UUID) -> None:
        super().__init__(shows=OWN)
        self.ids = ids

    def send(self, request: Any, node: int | None = None) -> Any:  # noqa: ANN401  kafka-python is untyped
        self.asked.append("topics")
        return SimpleNamespace(
            topics=[
                SimpleNamespace(
                    name=each.name,
                    error_code=0 if each.name in self.ids else UNKNOWN_TOPIC,
                    topic_id=self.ids.get(each.name, UUID(int=0)),
                )
                for each in request.topics
            ]
        )


def look_at_topics(cluster: Named, **ids: UUID) -> None:
    spelled = topic_ids.spell(
        {name: topic_ids.spelled_id(SimpleNamespace(topic_id=one)) for name, one in ids.items()}
    )
    handle = replace(PREPARED, topic_ids=spelled).handle()
    options = KafkaOptions.parse({"kafka.bootstrap.servers": "nowhere:9"})
    past.look_back(cluster, options, CONTEXT, 7, [handle, handle])


def test_topics_that_rows_name_are_told_where_they_were_made_anew_or_are_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    look_at_topics(Named(a=OLD, b=OLD), a=OLD, b=OLD)
    assert caplog.messages == []
    look_at_topics(Named(a=NEW, b=OLD), a=OLD, b=OLD, c=OLD)
    (told,) = caplog.messages
    assert "topics a, c." in told
    assert "since chk-7" in told


def test_handles_without_ids_of_topics_are_as_before_and_nothing_is_asked() -> None:
    assert "topic_ids" not in PREPARED.handle().data
    cluster = Named()
    look_at_topics(cluster)
    assert "topics" not in cluster.asked
    many = {f"t{number}": OLD for number in range(topic_ids.TOPICS_MAX + 1)}
    look_at_topics(cluster, **many)
    assert "topics" not in cluster.asked


@dataclass
class Asked(MemorySink):
    """Notes what it is asked to look back at."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.asked: list[tuple[int, int]] = []
        self.place = "here"

    def identity(self) -> dict[str, str | int]:
        return {"place": self.place}

    def look_back(self, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        assert context.sink == "a"
        self.asked.append((epoch, len(handles)))


@dataclass
class Lives:
    """Lives of a driver; an epoch writes as many slots as it is given, or none."""

    disk: MemoryDisk = field(default_factory=MemoryDisk)
    sink: Asked = field(default_factory=lambda: Asked({"store": "past"}))

    def start(self, epochs: dict[int, int]) -> None:
        coordinator = Coordinator(log=MemoryLog(self.disk), actor="driver")
        coordinator.join("a", Participant(sink=self.sink, guarantee=Guarantee.EXACTLY_ONCE))
        continues = None
        for epoch, slots in epochs.items():
            plan = coordinator.plan(epoch, run="r", continues=continues)
            votes: list[Vote] = []
            for slot in range(2):
                import pyarrow as pa

                context = WriteContext(
                    query="q", sink="a", run="r", epoch=epoch, plan=plan.id, slot=slot, attempt=str(slot),
                    guarantee=plan.guarantee, mode=plan.mode or Mode.RUN, facts={},
                )  # fmt: skip
                rows = [pa.record_batch({"id": [epoch * 2 + slot]})] if slot < slots else []
                votes.append(run_slot(self.sink, plan, context, rows).vote)
            coordinator.decide(plan, votes)
            continues = plan.id


def test_each_sink_is_asked_once_a_start_for_the_newest_epoch_it_has_written_in() -> None:
    MemorySink.stores.clear()
    lives = Lives()
    lives.start({0: 2, 1: 1, 2: 0})
    assert lives.sink.asked == []
    lives.start({3: 2, 4: 2})
    assert lives.sink.asked == [(1, 1)], "chk-2 has written nothing"
    lives.start({4: 2, 5: 0})  # Spark has forgotten that it committed chk-4
    assert lives.sink.asked[1:] == [(4, 2)]


def test_a_sink_that_cannot_tell_before_its_check_is_asked_again_after_it() -> None:
    class Unmade(Asked):
        """Cannot be asked for anything before its check has made it."""

        made = True

        def check(self, context: QueryContext) -> dict[str, str | int]:
            self.made = True
            return dict(super().check(context))

        def identity(self) -> dict[str, str | int]:
            if not self.made:
                raise ConfigurationError("there is no such table", next_step="make it")
            return super().identity()

    MemorySink.stores.clear()
    sink = Unmade({"store": "past"})
    lives = Lives(sink=sink)
    lives.start({0: 2})
    sink.made = False
    lives.start({1: 2})
    assert sink.asked == [(0, 2)]


def test_a_target_that_is_another_one_by_now_is_not_compared() -> None:
    MemorySink.stores.clear()
    lives = Lives()
    lives.start({0: 2})
    lives.sink.place = "elsewhere"
    lives.start({1: 2})
    assert lives.sink.asked == [(0, 0)]


def test_a_sink_that_a_start_writes_to_later_is_asked_then() -> None:
    MemorySink.stores.clear()
    lives = Lives()
    lives.start({0: 2})
    coordinator = Coordinator(log=MemoryLog(lives.disk), actor="driver")
    coordinator.join("a", Participant(sink=lives.sink, guarantee=Guarantee.EXACTLY_ONCE))
    continues = None
    for epoch, sinks in ((1, []), (2, ["a"]), (3, ["a"])):
        plan = coordinator.plan(epoch, sinks=sinks, run="r", continues=continues)
        assert lives.sink.asked == ([(0, 2)] if sinks else [])
        coordinator.decide(plan, [])
        continues = plan.id
