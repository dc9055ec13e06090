"""Any clean history is clean to the auditor, and any one thing that is doctored in it is called by its name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from onceonly_proof.auditor import Anomaly, Input, Orphan, Seen, World, judge
from onceonly_proof.auditor.example import DECIDED_S, clean_world

if TYPE_CHECKING:
    from collections.abc import Callable

A = Anomaly


@st.composite
def clean(draw: st.DrawFn) -> World:
    partitions = draw(st.integers(1, 3))
    counts = st.lists(st.integers(0, 5), min_size=partitions, max_size=partitions)
    # The first row that is doctored must be there.
    epochs = [[2] * partitions, *draw(st.lists(counts, max_size=5))]
    made = clean_world(epochs, keys=draw(st.integers(1, 5)))
    decisions = list(made.decisions or ())
    decisions[-1] = replace(decisions[-1], spark_commit=draw(st.booleans()))
    watched = draw(st.integers(0, len(made.at_end)))
    return replace(
        made,
        decisions=draw(st.permutations(decisions)) if draw(st.booleans()) else decisions,
        at_end=draw(st.permutations(made.at_end)),
        during=made.at_end[:watched],
    )


def found(world: World) -> set[Anomaly]:
    return {anomaly for anomaly, count in judge(world).anomalies.items() if count}


def drop(world: World, values: set[bytes | None], *sinks: str) -> World:
    def stays(row: Seen) -> bool:
        return row.value not in values or row.sink not in sinks

    return replace(
        world,
        at_end=[row for row in world.at_end if stays(row)],
        during=[row for row in world.during if stays(row)],
    )


def values_of(world: World, epoch: int, partition: str = "") -> set[bytes | None]:
    (decision,) = (each for each in world.decisions or () if each.epoch == epoch)
    return {
        row.value
        for row in world.inputs
        if partition in {"", row.partition}
        and decision.ranges[row.partition][0] <= row.position < decision.ranges[row.partition][1]
    }


def doctored_decision(world: World, epoch: int, **changes: object) -> World:
    decisions = [
        replace(each, **changes) if each.epoch == epoch else each  # type: ignore[arg-type]  # fields by name
        for each in world.decisions or ()
    ]
    return replace(world, decisions=decisions)


# --- one lie each: the world that tells it, what must be named, what may be named besides -------------------
def lost_slot(world: World, row: Input, _copy: Seen) -> World:
    return drop(world, values_of(world, 0, row.partition), "kafka", "files")


def torn(world: World, row: Input, _copy: Seen) -> World:
    return drop(world, {row.value}, "kafka", "files")


def partial(world: World, row: Input, _copy: Seen) -> World:
    return drop(world, values_of(world, 0), "files")


def doubled(world: World, row: Input, copy: Seen) -> World:
    return replace(world, at_end=[*world.at_end, replace(copy, order=copy.order + 1_000)])


def aborted(world: World, row: Input, copy: Seen) -> World:
    return replace(world, during=[*world.during, replace(copy, order=copy.order + 1_000)])


def early(world: World, row: Input, copy: Seen) -> World:
    return replace(world, during=[*world.during, replace(copy, seen_s=DECIDED_S - 1)])


def undecided(world: World, row: Input, copy: Seen) -> World:
    return replace(world, decisions=[each for each in world.decisions or () if each.epoch != 0])


def swapped(world: World, row: Input, copy: Seen) -> World:
    """Let the two rows of one slot in one file change places."""
    at_end = [
        replace(each, order=1 - each.order) if each.place == f"0-{row.partition[-1]}-files.json" else each
        for each in world.at_end
    ]
    return replace(world, at_end=at_end, during=())


def corrupt(world: World, row: Input, copy: Seen) -> World:
    return replace(
        world, at_end=[*world.at_end, replace(copy, value=(copy.value or b"")[:-1], order=copy.order + 1_000)]
    )


def hidden(world: World, row: Input, copy: Seen) -> World:
    return replace(drop(world, {row.value}, "kafka"), uncommitted=[copy])


def left(world: World, row: Input, copy: Seen) -> World:
    return replace(world, orphans=[Orphan("kafka", "open transaction x")])


def no_receipt(world: World, row: Input, copy: Seen) -> World:
    return doctored_decision(world, 0, receipt=False)


LIES: dict[Callable[[World, Input, Seen], World], tuple[Anomaly, set[Anomaly]]] = {
    lost_slot: (A.LOST, set()),
    torn: (A.TORN_TRANSACTION, {A.LOST}),
    partial: (A.PARTIAL_EPOCH, {A.LOST}),
    doubled: (A.DUPLICATED, set()),
    aborted: (A.ABORTED_READ, set()),
    early: (A.VISIBLE_BEFORE_DECISION, set()),
    undecided: (A.VISIBLE_BEFORE_DECISION, set()),
    swapped: (A.OUT_OF_ORDER, set()),
    corrupt: (A.FOREIGN, set()),
    hidden: (A.UNSEEN_AFTER_HEALING, set()),
    left: (A.ORPHAN, set()),
    no_receipt: (A.LOG_MISMATCH, set()),
}


@given(clean())
def test_a_clean_history_is_clean(world: World) -> None:
    verdict = judge(world)
    assert verdict.is_clean, verdict.examples


@given(clean(), st.sampled_from(list(LIES)), st.data())
def test_one_lie_is_called_by_its_name(
    world: World, lie: Callable[[World, Input, Seen], World], data: st.DataObject
) -> None:
    first = values_of(world, 0)
    row = data.draw(st.sampled_from([each for each in world.inputs if each.value in first]))
    copy = next(each for each in world.at_end if each.sink == "kafka" and each.value == row.value)
    named, besides = LIES[lie]
    told = found(lie(world, row, copy))
    assert named in told
    assert told <= {named} | besides, judge(lie(world, row, copy)).examples
