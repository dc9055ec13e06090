"""The table of the protocol as such: what it refuses, and what it compares."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from onceonly import protocol as p
from onceonly.errors import ProtocolError
from onceonly.model import (
    Committed,
    Guarantee,
    Handle,
    InputFile,
    Link,
    LinkKind,
    Lost,
    Mode,
    Outcome,
    Plan,
    Receipt,
    RetryLater,
    Skip,
    Unknown,
    Vote,
)
from onceonly.protocol import moves, planning, transitions
from onceonly.protocol import states as s
from onceonly.protocol.deciding import difference, match, totals

if TYPE_CHECKING:
    from collections.abc import Iterator


def vote(
    slot: int = 0, *, rows: int = 1, checksum: str = "01", handle: str | None = "t", sink: str = "a"
) -> Vote:
    return Vote(
        sink=sink,
        epoch=1,
        slot=slot,
        plan="p",
        run="r",
        attempt="1",
        rows=rows,
        checksum=checksum,
        handle=None if handle is None else Handle(transaction=handle),
    )


PLAN = Plan(id="p", epoch=1, mode=Mode.RUN, index=0, guarantee=Guarantee.EXACTLY_ONCE)
CONTEXT = s.Context(epoch=1, plan="p", run="r", guarantee=Guarantee.EXACTLY_ONCE)
LINK = Link(epoch=1, index=0, kind=LinkKind.COMMIT, plan="p", run="r", votes=(vote(),))
STATES: tuple[p.State, ...] = (
    s.Reading(CONTEXT),
    s.Skipping(CONTEXT, replace(LINK, kind=LinkKind.SKIPPED, votes=(), reason=Skip.UNCHANGED)),
    s.Skipped(CONTEXT),
    s.Claiming(CONTEXT, LINK),
    s.SweepingStart(CONTEXT, LINK),
    s.Draining(CONTEXT, LINK),
    s.ClaimingNext(CONTEXT, LINK),
    s.SweepingNext(CONTEXT, LINK),
    s.Withdrawing(CONTEXT, (LINK,), InputFile(name="offsets/1", digest="")),
    s.Restoring(CONTEXT),
    s.Syncing(CONTEXT, LINK),
    s.Resolving(CONTEXT, LINK, len(LINK.pending)),
    s.Receipting(LINK, CONTEXT),
    s.Running(PLAN),
    s.Checking(PLAN, LINK),
    s.Deciding(PLAN, LINK),
    s.Committing(PLAN, LINK, 1),
    s.SweepingEnd(LINK),
    s.Abandoning(PLAN, "r", (), ""),
    s.Voiding(LINK),
    s.Done(),
    s.Stopped(),
)
EVENTS: tuple[p.Event, ...] = (
    p.ChainRead((), None),
    p.LinkPersisted(LINK),
    p.LinkTaken(LINK),
    p.Resolved(vote(), Committed()),
    p.ReceiptPersisted(),
    p.Swept(0),
    p.SweepFailed(""),
    p.VotesCollected(()),
    p.Checked(0.0),
    p.InputsRestored(("offsets/1",)),
    p.InputsNotRestored(""),
)
ILLEGAL = [
    (state, event)
    for state, event in itertools.product(STATES, EVENTS)
    if (type(state), type(event)) not in transitions._TABLE
]


@pytest.mark.parametrize(("state", "event"), ILLEGAL, ids=lambda value: type(value).__name__)
def test_a_move_that_the_table_does_not_have_is_refused_by_name(state: p.State, event: p.Event) -> None:
    with pytest.raises(ProtocolError, match=f"No move from {type(state).__name__} on {type(event).__name__}"):
        p.step(state, event)


def test_every_row_of_the_table_is_of_a_known_state_and_event() -> None:
    known = set(itertools.product(map(type, STATES), map(type, EVENTS)))

    assert set(transitions._TABLE) <= known


def test_nothing_moves_once_the_protocol_is_done_or_stopped() -> None:
    assert not [state for state, _ in transitions._TABLE if state in {s.Done, s.Stopped}]


def test_a_vote_of_another_plan_or_epoch_decides_nothing() -> None:
    strange = Plan(id="other", epoch=1, mode=Mode.RUN, index=0, guarantee=Guarantee.EXACTLY_ONCE)
    later = Plan(id="p", epoch=2, mode=Mode.RUN, index=0, guarantee=Guarantee.EXACTLY_ONCE)
    for plan in (strange, later):
        _, commands = p.step(p.resume(plan), p.VotesCollected((vote(),)))

        assert [type(command) for command in commands] == [p.Stop]
        assert isinstance(commands[0], p.Stop)
        assert commands[0].reason is p.StopReason.FOREIGN_VOTE


def test_a_chain_out_of_order_is_refused() -> None:
    with pytest.raises(ValueError, match="out of order"):
        p.ChainRead((LINK, LINK), None)


def test_a_guarantee_that_changed_stops_a_repair() -> None:
    context = s.Context(epoch=1, plan="q", run="r", guarantee=Guarantee.AT_LEAST_ONCE)
    other = Link(
        epoch=1, index=0, kind=LinkKind.COMMIT, plan="p", run="r", votes=(vote(), vote(1, handle="u"))
    )
    state: p.State = s.Resolving(context, other, len(other.pending))
    state, _ = p.step(state, p.Resolved(other.votes[0], Committed()))
    _, commands = p.step(state, p.Resolved(other.votes[1], Lost("proof")))

    assert isinstance(commands[0], p.Stop)
    assert commands[0].reason is p.StopReason.SETTINGS


@pytest.mark.parametrize(
    ("own", "stops"),
    [({"path": "x"}, 1), ({"path": "x", "token": 7}, 1), ({"path": "y"}, 0), ({}, 0)],
)
def test_a_fork_does_not_begin_to_write_where_the_original_does(
    own: dict[str, str | int], stops: int
) -> None:
    first = replace(
        LINK, kind=LinkKind.SKIPPED, votes=(), reason=Skip.SAVEPOINT, settings={"a": {"path": "x"}, "b": {}}
    )
    context = replace(CONTEXT, epoch=2, plan="q", settings={"c": own})
    read = p.ChainRead((), None, first, Receipt(epoch=1, index=0, plan="p"), newest=1)
    _, commands = p.step(s.Reading(context), read)
    assert [each.reason for each in commands if isinstance(each, p.Stop)] == [p.StopReason.SHARED] * stops


def test_each_answer_of_many_is_taken_in_without_a_look_at_all_of_them() -> None:
    class Counted(tuple[Vote, ...]):
        looks = 0
        __slots__ = ()

        def __iter__(self) -> Iterator[Vote]:
            Counted.looks += 1
            return super().__iter__()

    votes = Counted(vote(slot, handle=str(slot)) for slot in range(50))
    link = Link(epoch=1, index=0, kind=LinkKind.COMMIT, plan="p", run="r", votes=votes)
    for begun in (s.Resolving(CONTEXT, link, len(votes)), s.Committing(PLAN, link, len(votes))):
        state: p.State = begun
        Counted.looks = 0
        for each in tuple(votes)[:-1]:
            state, _ = p.step(state, p.Resolved(each, Committed()))
        assert type(state) is type(begun)
        assert Counted.looks <= 1, "that of this test"
        state, _ = p.step(state, p.Resolved(votes[-1], Committed()))
        assert isinstance(state, s.Receipting)


def test_a_claim_in_advance_says_nothing_of_offsets_that_are_not_planned_yet() -> None:
    context = replace(CONTEXT, barrier=("end of 1",))

    _, commands = p.step(s.Draining(context, LINK), p.ChainRead((), None, newest=1))

    assert [type(command) for command in commands] == [p.PutLink]
    assert isinstance(commands[0], p.PutLink)
    claim = commands[0].link
    assert (claim.name, claim.kind, claim.run, claim.barrier) == ("2.0", LinkKind.ABORT, "r", ())
    assert claim.reason, "the runtime tells a claim from a decision by its reason"


def test_a_replay_on_other_slots_is_the_same_replay() -> None:
    decided = [vote(0, rows=2, checksum="05"), vote(1, rows=1, checksum="02")]
    replayed = [vote(0, rows=3, checksum="07")]

    assert not difference(decided, replayed)
    assert totals(decided) == {"a": (3, "0000000000000007")}


def test_sums_wrap_around() -> None:
    assert totals([vote(checksum="f" * 16), vote(checksum="02")]) == {"a": (2, "0000000000000001")}
    named = [vote(checksum="m:" + "f" * 16), vote(checksum="m:02")]
    assert totals(named) == {"a": (2, "m:0000000000000001")}


def test_a_replay_with_other_rows_is_named_by_sink() -> None:
    words = difference([vote(rows=2), vote(sink="b")], [vote(rows=3), vote(sink="b")])

    assert words.startswith("sink a: decided 2 rows")
    assert "replayed 3 rows" in words
    assert "sink b" not in words


def test_a_sink_that_gets_no_rows_any_more_differs() -> None:
    assert difference([vote()], [vote(rows=0, checksum="00", handle=None)]).endswith("replayed no rows")


def test_each_lost_vote_finds_one_match_and_only_one() -> None:
    lost = [vote(0, checksum="05"), vote(1, checksum="05")]
    tentative = [vote(slot, checksum="05", handle=f"t{slot}") for slot in range(3)]

    matched, rest, missing = match(lost, tentative)

    assert [each.slot for each in matched] == [0, 1]
    assert [each.slot for each in rest] == [2]
    assert not missing


def test_a_match_needs_the_same_sink_and_a_handle() -> None:
    matched, rest, missing = match([vote()], [vote(handle=None), vote(sink="b")])

    assert not matched
    assert len(rest) == 2
    assert missing == "sink a: 1 x (1 row, checksum 01)"


def test_an_application_whose_name_only_begins_alike_is_another() -> None:
    context = replace(CONTEXT, application="app-1", continues="app-1.a")
    before = Link(epoch=0, index=0, kind=LinkKind.COMMIT, plan="app-1.a", run="r")
    claim = Link(epoch=1, index=0, kind=LinkKind.ABORT, plan="app-12.b", run="s")
    receipt = Receipt(epoch=0, index=0, plan="app-1.a")

    _, commands = p.step(s.Reading(context), p.ChainRead((claim,), None, before, receipt, newest=1))

    assert [getattr(command, "reason", "") for command in commands] == [p.StopReason.OVERTAKEN]


@pytest.mark.parametrize("other", [vote(1, sink="b", rows=2), vote(1, rows=2, handle="u")])
def test_a_repair_that_finds_what_was_lost_among_other_rows_is_no_repair(other: Vote) -> None:
    # The lost part is there again, and what is committed already has changed: the epoch would be a mixture.
    plan = replace(PLAN, mode=Mode.TENTATIVE, lost=(vote(),), carried=(vote(1, sink=other.sink),))

    _, commands = p.step(p.resume(plan), p.VotesCollected((vote(), other)))

    assert [getattr(command, "reason", "") for command in commands][-1] is p.StopReason.MISMATCH


@pytest.mark.parametrize(
    ("then", "now", "elsewhere"),
    [
        ({"topic": "t"}, {"topic": "t"}, False),
        ({"topic": "t"}, {"topic": "t", "topic_id": "1"}, False),  # noted by a newer version only
        ({"topic": "t", "topic_id": "1"}, {"topic": "t", "topic_id": "2"}, True),
        ({"topic": "t", "topic_id": "1"}, {"topic": "t"}, True),
        # Nodes of a cluster, of which one is named again.
        ({"server": "a:1,b:1", "database": 0}, {"server": "b:1,c:1", "database": 0}, False),
        ({"server": "a:1,b:1"}, {"server": "c:1"}, True),
        ({"server": "a:1,b:1", "database": 0}, {"server": "a:1", "database": 1}, True),
        ({"cluster": "https://a:1/x"}, {"cluster": "https://a:1/x,https://b:1/x"}, False),
        ({"cluster": "https://a:1/x"}, {"cluster": "http://a:1/x,https://a:1/y"}, True),
        ({"url": "postgresql://a:1/d"}, {"url": "postgresql://a:1,b:1/d"}, False),
        ({"url": "postgresql://a:1,b:1/d"}, {"url": "postgresql://a:1,c:1/e"}, True),
        ({"path": "/a,b"}, {"path": "/a,c"}, True),
    ],
)
def test_a_target_is_another_one_where_what_was_noted_differs(
    then: dict[str, str | int], now: dict[str, str | int], *, elsewhere: bool
) -> None:
    assert planning._is_elsewhere({"a": then}, {"a": now}) is elsewhere


def test_a_commit_that_needs_somebody_stops_as_refused_and_unknown_outweighs_it() -> None:
    refused = RetryLater("refused", needs="grant WRITE on t0")
    cases: tuple[tuple[tuple[Outcome, ...], p.StopReason], ...] = (
        ((refused, RetryLater("busy")), p.StopReason.REFUSED),
        ((refused, Unknown("gone")), p.StopReason.IN_DOUBT),
        ((RetryLater("busy"),), p.StopReason.DELAYED),
    )
    for outcomes, reason in cases:
        move = moves.undecidable(tuple((vote(), outcome) for outcome in outcomes))
        assert move is not None
        (stopped,) = move[1]
        assert isinstance(stopped, p.Stop)
        assert stopped.reason is reason
        assert ("grant WRITE on t0" in stopped.detail) == (reason is p.StopReason.REFUSED)
