"""What the commit process takes for a whole epoch: one vote of each slot, and nothing less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.operator_bench import QueryCoordinator

from onceonly.errors import ProtocolError
from onceonly.executor.ballot import Ballot
from onceonly.model import Guarantee, Mode, Plan, Vote
from onceonly.settings.query import QuerySettings, SinkSettings
from onceonly.settings.registry import find
from onceonly.settings.savepoints import Keeping
from onceonly.spark import writer
from onceonly.spark.task import require_all_slots

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

PLAN = Plan(id="p", epoch=3, mode=Mode.RUN, index=0, guarantee=Guarantee.EXACTLY_ONCE)


def message(slot: int) -> writer.SlotMessage:
    vote = Vote(
        sink="s", epoch=3, slot=slot, plan="p", run="r", attempt="0", rows=1, checksum="0" * 16, handle=None
    )
    return writer.SlotMessage(Ballot(vote=vote), PLAN, "q")


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Vote]]:
    """Take what the committer would decide."""
    found: list[Sequence[Vote]] = []

    class QueryCoordinator:
        def decide(self, plan: Plan, ballots: Sequence[Ballot]) -> None:
            found.append([ballot.vote for ballot in ballots])

    class Coordinators:
        def use(self, key: object, make: object, *, fits: object) -> AbstractContextManager[Any]:
            import contextlib

            return contextlib.nullcontext(QueryCoordinator())

    monkeypatch.setattr(writer, "_committing", Coordinators())
    monkeypatch.setattr(writer.Stream, "key", lambda _self, _query: ())
    return found


def committer() -> writer.EpochCommitter:
    sink = SinkSettings(name="s", guarantee=Guarantee.EXACTLY_ONCE)
    stream = writer.Stream(QuerySettings(checkpoint="/c"), sink, find("onceonly.console")[1], "app")
    return writer.EpochCommitter(stream, ())


def test_a_whole_epoch_is_decided(decided: list[Sequence[Vote]]) -> None:
    committer().commit([message(0), message(1), message(2)], 3)
    assert [[vote.slot for vote in votes] for votes in decided] == [[0, 1, 2]]


@pytest.mark.parametrize(
    "messages",
    [
        [message(0), None, message(2)],
        [message(0), message(1), None],
        [None, message(1)],
        [message(0), message(0)],
    ],
    ids=["none in the middle", "none at the end", "none at the beginning", "one slot twice"],
)
def test_an_epoch_that_lacks_a_slots_vote_is_not_decided(
    decided: list[Sequence[Vote]], messages: list[writer.SlotMessage | None]
) -> None:
    with pytest.raises(ProtocolError, match=r"of slot [012] is not among them"):
        committer().commit(list(messages), 3)
    assert decided == []


def test_a_gap_shows_where_spark_does_not_say_how_many_slots_there_are() -> None:
    require_all_slots(PLAN, [], slots=None)
    require_all_slots(PLAN, [1, 0], slots=None)
    with pytest.raises(ProtocolError, match="slot 1 is not among them"):
        require_all_slots(PLAN, [2, 0], slots=None)


@pytest.mark.parametrize(("actor", "start", "keeps"), [
    ("committer", ".word", True), ("committer", "", True), ("committer", "address.word", False), ("planner", "", False),
])  # fmt: skip
def test_who_decides_makes_the_savepoints_where_no_driver_of_ours_hears_of_epochs(
    tmp_path: Path, actor: str, start: str, *, keeps: bool
) -> None:
    QueryCoordinator(tmp_path / "query").complete(0)
    wanted = Keeping(every_s=60.0, place=str(tmp_path / "place"), keep=1)
    query = QuerySettings(checkpoint=str(tmp_path / "query"), savepoints=wanted)
    sink = SinkSettings(name="s", guarantee=Guarantee.AT_LEAST_ONCE)
    made = writer.Stream(query, sink, find("onceonly.console")[1], "app", start=start).coordinator(actor, ())
    made.close()
    assert (made.keeper is not None) is keeps
