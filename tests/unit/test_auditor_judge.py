"""Every anomaly that the auditor knows, seen once in a doctored world; a clean world has none."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from onceonly.errors import ConfigurationError
from onceonly.model import Guarantee, LinkKind
from onceonly_proof.auditor import Anomaly, Decision, Input, Orphan, Seen, Slot, World, judge
from onceonly_proof.auditor.example import DECIDED_S, SINKS, clean_world

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCHS = [[4, 3], [0, 5], [4, 4], [3, 0]]
CLEAN = clean_world(EPOCHS)


def found(doctored: World, guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> dict[Anomaly, int]:
    verdict = judge(doctored, guarantee)
    named = {Anomaly(example.partition(":")[0]) for example in verdict.examples}
    counted = {anomaly: count for anomaly, count in verdict.anomalies.items() if count}
    assert named == set(counted), "each anomaly that is counted has an example, and no other"
    return counted


def rows(given: World, sink: str) -> list[Seen]:
    return [row for row in given.at_end if row.sink == sink]


def without(given: World, *gone: Seen) -> World:
    """Take rows out of the world, as if no reader had ever got them."""
    return replace(
        given,
        at_end=[row for row in given.at_end if row not in gone],
        during=[row for row in given.during if row not in gone],
    )


def of_epoch(given: World, sink: str, epoch: int, partition: int | None = None) -> list[Seen]:
    """Return the rows that a sink shows of an epoch, or of one slot of it."""
    ranges = (given.decisions or ())[epoch].ranges
    inputs = {
        each.value
        for each in given.inputs
        if ranges[each.partition][0] <= each.position < ranges[each.partition][1]
        and partition in {None, int(each.partition[-1])}
    }
    return [row for row in rows(given, sink) if row.value in inputs]


def with_decision(given: World, epoch: int, **changes: object) -> World:
    decisions = list(given.decisions or ())
    decisions[epoch] = replace(decisions[epoch], **changes)  # type: ignore[arg-type]  # fields by name
    return replace(given, decisions=decisions)


def test_a_clean_world_has_no_anomaly() -> None:
    verdict = judge(CLEAN)
    assert verdict.is_clean
    assert list(verdict.anomalies) == list(Anomaly)
    assert set(verdict.anomalies.values()) == {0}
    assert verdict.examples == ()


def test_a_world_without_decisions_can_be_judged_by_its_rows() -> None:
    given = replace(CLEAN, decisions=None)
    assert found(given) == {}
    assert found(without(given, rows(given, "kafka")[0])) == {Anomaly.LOST: 1}


def test_the_input_of_a_skipped_epoch_is_due_nowhere_and_that_of_the_others_is() -> None:
    gone = [row for sink in SINKS for row in of_epoch(CLEAN, sink, 2)]
    given = with_decision(without(CLEAN, *gone), 2, kind=LinkKind.SKIPPED, slots=(), decided_s=None)
    assert found(given) == {}
    more = of_epoch(CLEAN, "kafka", 1)[0]
    assert found(without(given, more)).keys() >= {Anomaly.LOST}
    slots = (CLEAN.decisions or ())[2].slots
    assert found(with_decision(given, 2, slots=slots)).keys() >= {Anomaly.LOG_MISMATCH}


# --- one sink ---------------------------------------------------------------------------------------------
def test_a_slot_that_is_nowhere_is_lost() -> None:
    gone = [*of_epoch(CLEAN, "kafka", 0, 0), *of_epoch(CLEAN, "files", 0, 0)]
    assert found(without(CLEAN, *gone)) == {Anomaly.LOST: 8}


def test_a_sink_that_shows_nothing_has_lost_everything() -> None:
    assert found(without(CLEAN, *rows(CLEAN, "kafka"))) == {Anomaly.LOST: 23, Anomaly.PARTIAL_EPOCH: 4}


def test_a_row_twice_is_duplicated() -> None:
    last = rows(CLEAN, "kafka")[-1]
    copy = replace(last, order=last.order + 7)
    assert found(replace(CLEAN, at_end=[*CLEAN.at_end, copy, replace(copy, order=copy.order + 1)])) == {
        Anomaly.DUPLICATED: 2
    }


def test_a_row_that_vanished_was_an_aborted_read() -> None:
    first = rows(CLEAN, "kafka")[0]
    copy = replace(first, order=first.order + 100)
    assert found(replace(CLEAN, during=[*CLEAN.during, copy, copy])) == {Anomaly.ABORTED_READ: 1}


def test_a_row_of_a_void_attempt_is_an_aborted_read() -> None:
    row = rows(CLEAN, "files")[0]
    copy = replace(row, transaction="0-0-void", place="void.json")
    given = with_decision(CLEAN, 0, void=frozenset({"0-0-void"}))
    assert found(replace(given, at_end=[*CLEAN.at_end, copy])) == {
        Anomaly.ABORTED_READ: 1, Anomaly.DUPLICATED: 1,
    }  # fmt: skip


def test_half_a_file_is_a_torn_transaction() -> None:
    given = without(CLEAN, of_epoch(CLEAN, "files", 1)[0], of_epoch(CLEAN, "kafka", 1)[0])
    assert found(given)[Anomaly.TORN_TRANSACTION] == 2


def test_rows_that_no_choice_of_whole_transactions_gives_are_torn() -> None:
    # Slots of 4 and 3 rows: 5 visible ones are of at least one transaction that shows a part.
    gone = of_epoch(CLEAN, "kafka", 0)[:2]
    assert found(without(CLEAN, *gone)) == {
        Anomaly.LOST: 2, Anomaly.TORN_TRANSACTION: 1, Anomaly.PARTIAL_EPOCH: 1,
    }  # fmt: skip


def test_an_epoch_in_one_sink_only_is_partial() -> None:
    gone = of_epoch(CLEAN, "files", 2)
    assert found(without(CLEAN, *gone)) == {Anomaly.LOST: 8, Anomaly.PARTIAL_EPOCH: 1}


def test_a_slot_that_one_sink_lacks_makes_the_epoch_partial() -> None:
    gone = of_epoch(CLEAN, "files", 2, 1)
    assert found(without(CLEAN, *gone)) == {Anomaly.LOST: 4, Anomaly.PARTIAL_EPOCH: 1}


def test_an_epoch_that_no_sink_shows_is_not_partial() -> None:
    kept, gone = of_epoch(CLEAN, "kafka", 2), of_epoch(CLEAN, "files", 2)
    given = replace(without(CLEAN, *kept, *gone), uncommitted=kept)
    assert found(given) == {Anomaly.LOST: 8, Anomaly.UNSEEN_AFTER_HEALING: 8}


def test_rows_seen_before_the_link_were_visible_before_the_decision() -> None:
    early = [replace(row, seen_s=DECIDED_S + 1.9) for row in of_epoch(CLEAN, "kafka", 2)]
    assert found(replace(CLEAN, during=early)) == {Anomaly.VISIBLE_BEFORE_DECISION: 8}
    assert found(replace(with_decision(CLEAN, 2, decided_s=None), during=early)) == {}


def test_rows_that_nobody_decided_are_visible_before_their_decision() -> None:
    assert found(replace(CLEAN, decisions=(CLEAN.decisions or ())[:3])) == {
        Anomaly.VISIBLE_BEFORE_DECISION: 6
    }
    assert found(replace(CLEAN, decisions=[])) == {Anomaly.VISIBLE_BEFORE_DECISION: 46}
    claimed = replace(
        with_decision(CLEAN, 3, kind=LinkKind.ABORT, receipt=False, spark_commit=False), drained=False
    )
    assert found(claimed) == {Anomaly.VISIBLE_BEFORE_DECISION: 6}


def test_rows_that_changed_places_are_out_of_order() -> None:
    first, second = (row for row in of_epoch(CLEAN, "files", 1)[:2])
    swapped = [replace(first, order=second.order), replace(second, order=first.order)]
    given = without(CLEAN, first, second)
    assert found(replace(given, at_end=[*given.at_end, *swapped])) == {Anomaly.OUT_OF_ORDER: 1}


def test_order_between_input_partitions_is_nobodys_promise() -> None:
    both = clean_world([[2, 2]], keys=1)
    kafka = rows(both, "kafka")
    mixed = [replace(row, order=order) for row, order in zip(kafka, (1, 3, 0, 2), strict=True)]
    assert found(replace(both, at_end=[*mixed, *rows(both, "files")], during=())) == {}


@pytest.mark.parametrize(
    "row",
    [
        Seen("kafka", b"0", b"who is that?", "results-0", 999),
        Seen("kafka", b"0", None, "results-0", 999),
        Seen("kafka", None, CLEAN.inputs[0].value, "results-0", 999),
        Seen("kafka", b"0", CLEAN.inputs[0].value.replace(b":0", b":9", 1), "results-0", 999),
    ],
)
def test_a_row_that_never_went_in_is_foreign(row: Seen) -> None:
    assert found(replace(CLEAN, at_end=[*CLEAN.at_end, row])) == {Anomaly.FOREIGN: 1}
    # Seen in passing, it is foreign too, and once.
    assert found(replace(CLEAN, at_end=[*CLEAN.at_end, row], during=[row])) == {Anomaly.FOREIGN: 1}


def test_a_decided_row_behind_an_open_transaction_is_unseen() -> None:
    gone = of_epoch(CLEAN, "kafka", 3)[1:]
    given = replace(without(CLEAN, *gone), uncommitted=gone)
    assert found(given) == {Anomaly.UNSEEN_AFTER_HEALING: 2}
    assert any("results-" in example and "chk-3" in example for example in judge(given).examples)


def test_what_lies_behind_and_was_never_decided_is_not_unseen() -> None:
    more = replace(clean_world([*EPOCHS, [2, 0]]), drained=False)
    undecided = of_epoch(more, "kafka", 4)
    given = without(more, *undecided, *of_epoch(more, "files", 4))
    given = replace(given, decisions=(more.decisions or ())[:4], uncommitted=undecided)
    assert found(given) == {}
    assert found(replace(given, drained=True)) == {Anomaly.LOST: 4}


def test_what_is_left_is_an_orphan() -> None:
    left = [Orphan("kafka", "open transaction q.kafka.r.w.0"), Orphan("files", "staging file x")]
    assert found(replace(CLEAN, orphans=left)) == {Anomaly.ORPHAN: 2}
    assert "orphan: kafka open transaction q.kafka.r.w.0" in judge(replace(CLEAN, orphans=left)).examples


# --- upserts ----------------------------------------------------------------------------------------------
def upserts() -> World:
    """Keep of each key its newest row, in one sink that has no order and no transactions."""
    given = clean_world(EPOCHS, keys=4)
    newest = {row.key: row for row in rows(given, "kafka")}
    standing = [replace(row, place="table", order=-1) for row in newest.values()]
    decisions = [
        replace(each, slots=tuple(slot for slot in each.slots if slot.sink == "kafka"))
        for each in given.decisions or ()
    ]
    return replace(
        given, sinks=("kafka",), upserts=frozenset({"kafka"}), at_end=standing, during=(), decisions=decisions
    )


def older(given: World, row: Seen, epoch: int) -> Seen:
    ranges = (given.decisions or ())[epoch].ranges
    (value, *_) = [
        each.value
        for each in given.inputs
        if each.key == row.key and ranges[each.partition][0] <= each.position < ranges[each.partition][1]
    ]
    return replace(row, value=value)


def test_the_newest_row_of_each_key_is_clean() -> None:
    assert found(upserts()) == {}


def test_an_older_row_that_stands_is_stale() -> None:
    given = upserts()
    first, *rest = given.at_end
    assert found(replace(given, at_end=[older(given, first, 0), *rest])) == {Anomaly.STALE_UPSERT: 1}


def test_of_two_partitions_of_one_epoch_either_may_stand() -> None:
    given = upserts()
    (last,) = [each for each in given.decisions or () if each.epoch == 2]
    before = replace(given, inputs=given.inputs[:20], decisions=(given.decisions or ())[:3])
    newest: dict[bytes | None, dict[str, Input]] = {}
    for each in before.inputs:
        if last.ranges[each.partition][0] <= each.position:
            newest.setdefault(each.key, {})[each.partition] = each
    assert all(len(each) == 2 for each in newest.values())
    for partition in ("events/0", "events/1"):
        stands = [Seen("kafka", key, each[partition].value, "table") for key, each in newest.items()]
        assert found(replace(before, at_end=stands)) == {}


def test_a_key_without_a_row_is_lost_and_one_with_two_is_doubled() -> None:
    given = upserts()
    first, second, *rest = given.at_end
    assert found(replace(given, at_end=[second, second, *rest])) == {Anomaly.LOST: 1, Anomaly.DUPLICATED: 1}
    assert found(replace(given, at_end=[first, second, *rest])) == {}


# --- the log ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "doctor",
    [
        lambda given: with_decision(given, 1, receipt=False, spark_commit=False),
        lambda given: with_decision(given, 3, receipt=False),
        lambda given: with_decision(given, 1, spark_commit=False),
        lambda given: replace(with_decision(given, 3, receipt=False), drained=False),
        lambda given: with_decision(given, 1, slots=(Slot("kafka", 0, 5), Slot("files", 0, 4))),
        lambda given: with_decision(given, 1, contradictions=("links/1.0.json is damaged",)),
        lambda given: with_decision(given, 0, ranges={**given.decisions[0].ranges, "gone/0": (7, 3)}),
        lambda given: replace(given, decisions=[*given.decisions, Decision(epoch=5, kind=None, spark_commit=True)]),
        lambda given: replace(
            given, decisions=[*given.decisions, Decision(epoch=4, kind=LinkKind.ABORT, receipt=True)]
        ),
    ],
)  # fmt: skip
def test_a_log_that_tells_another_story_is_named(doctor: Callable[[World], World]) -> None:
    assert found(doctor(CLEAN)).keys() == {Anomaly.LOG_MISMATCH}


def test_a_gap_in_the_log_is_named() -> None:
    given = replace(CLEAN, decisions=[each for each in CLEAN.decisions or () if each.epoch != 1])
    assert found(given) == {Anomaly.LOG_MISMATCH: 1, Anomaly.VISIBLE_BEFORE_DECISION: 10}


def test_an_epoch_on_its_way_is_not_due_before_the_query_is_drained() -> None:
    given = with_decision(CLEAN, 3, receipt=False, spark_commit=False)
    given = without(given, *of_epoch(CLEAN, "kafka", 3), *of_epoch(CLEAN, "files", 3, 1))
    assert found(replace(given, drained=False)) == {}
    assert found(given) == {Anomaly.LOST: 3, Anomaly.PARTIAL_EPOCH: 1, Anomaly.LOG_MISMATCH: 1}


def test_an_epoch_that_is_void_before_a_decided_one_is_named() -> None:
    given = with_decision(CLEAN, 1, kind=LinkKind.ABORT, receipt=False, spark_commit=False)
    assert found(given) == {Anomaly.LOG_MISMATCH: 1, Anomaly.VISIBLE_BEFORE_DECISION: 10}
    claimed = Decision(epoch=4, kind=LinkKind.ABORT, spark_commit=True)
    assert found(replace(CLEAN, decisions=[*(CLEAN.decisions or ()), claimed])) == {Anomaly.LOG_MISMATCH: 1}


def test_a_claim_of_the_next_epoch_and_a_missing_last_commit_are_usual() -> None:
    given = with_decision(CLEAN, 3, spark_commit=False)
    claim = Decision(epoch=4, kind=LinkKind.ABORT, spark_commit=False)
    assert found(replace(given, decisions=[*(given.decisions or ()), claim])) == {}


def test_epochs_that_are_folded_are_judged_as_one() -> None:
    first, second, *rest = CLEAN.decisions or ()
    whole = {name: (start, second.ranges[name][1]) for name, (start, _) in first.ranges.items()}
    block = replace(
        second, first=0, ranges=whole, decided_s=None, slots=(Slot("kafka", -1, 12), Slot("files", -1, 12))
    )
    given = replace(CLEAN, decisions=[block, *rest])
    assert found(given) == {}
    assert found(without(given, *of_epoch(CLEAN, "kafka", 0)[:1])) == {
        Anomaly.LOST: 1, Anomaly.PARTIAL_EPOCH: 1,
    }  # fmt: skip
    assert found(with_decision(given, 0, slots=(Slot("kafka", -1, 12),))) == {Anomaly.LOG_MISMATCH: 1}


# --- what is promised -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("guarantee", "clean"),
    [
        (Guarantee.EXACTLY_ONCE, (False, False)),
        (Guarantee.AT_LEAST_ONCE, (True, False)),
        (Guarantee.AT_MOST_ONCE, (False, True)),
    ],
)
def test_a_verdict_is_given_by_the_guarantee(guarantee: Guarantee, clean: tuple[bool, bool]) -> None:
    row = rows(CLEAN, "kafka")[-1]
    doubled = replace(CLEAN, at_end=[*CLEAN.at_end, replace(row, order=row.order + 1)])
    thinned = without(CLEAN, *of_epoch(CLEAN, "files", 2))
    assert (judge(doubled, guarantee).is_clean, judge(thinned, guarantee).is_clean) == clean
    assert judge(CLEAN, guarantee).is_clean


def test_a_world_that_cannot_be_judged_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="same value or id"):
        judge(replace(CLEAN, inputs=[*CLEAN.inputs, CLEAN.inputs[0]]))
    with pytest.raises(ConfigurationError, match="'elsewhere'"):
        judge(replace(CLEAN, at_end=[Seen("elsewhere", None, b"")]))


def test_a_hundred_thousand_rows_take_about_a_second() -> None:
    given = clean_world([[500, 500]] * 50, keys=100)
    assert len(given.at_end) == 100_000
    began = time.process_time()
    assert judge(given).is_clean
    assert time.process_time() - began < 3  # 0.5 s on a quiet machine


def test_the_sinks_of_the_clean_world() -> None:
    assert {row.sink for row in CLEAN.at_end} == set(SINKS)
