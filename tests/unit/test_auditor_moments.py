"""What watching readers tell of moments: half an epoch, and a sink that lags behind by more than one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly_proof.auditor import Anomaly, PollingWatcher, judge
from onceonly_proof.auditor.example import clean_world
from onceonly_proof.auditor.world import Orphan, Seen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly_proof.auditor import World

WHOLE = "files"


def world(looks: dict[str, dict[int, tuple[float | None, float]]]) -> World:
    """Return two epochs in two sinks; of each sink and epoch, when it was not seen yet and when it was seen."""
    clean = clean_world([[4, 3], [2, 5]])
    epochs = [{row.value for row in clean.inputs if _epoch(clean, row.value) == epoch} for epoch in (0, 1)]
    during = [
        replace(row, unseen_s=moments[epoch][0], seen_s=moments[epoch][1])
        for row in clean.at_end
        for epoch in (0, 1)
        if row.value in epochs[epoch] and (moments := looks.get(row.sink))
    ]
    timeless = [replace(each, decided_s=None) for each in clean.decisions or ()]
    return replace(clean, during=during, decisions=timeless, whole=frozenset({WHOLE}))


def _epoch(world: World, value: bytes) -> int:
    row = next(each for each in world.inputs if each.value == value)
    return next(
        number
        for number, decision in enumerate(world.decisions or ())
        if decision.ranges[row.partition][0] <= row.position < decision.ranges[row.partition][1]
    )


def found(world: World) -> set[Anomaly]:
    return {anomaly for anomaly, count in judge(world).anomalies.items() if count}


def test_epochs_that_come_as_a_whole_are_fine() -> None:
    assert (
        found(world({WHOLE: {0: (1.0, 2.0), 1: (2.0, 3.0)}, "kafka": {0: (None, 1.0), 1: (None, 2.5)}}))
        == set()
    )


def test_half_an_epoch_in_one_look_is_named() -> None:
    whole = world({WHOLE: {0: (1.0, 2.0), 1: (2.0, 3.0)}})
    late = replace(whole.during[0], unseen_s=2.0, seen_s=2.5)
    half = replace(whole, during=[late, *whole.during[1:]])
    assert found(half) == {Anomaly.HALF_EPOCH}
    assert "came in 2 parts, the last one 0.500 s after the first" in judge(half).examples[0]
    assert found(replace(half, whole=frozenset())) == set()


def test_a_sink_that_lacks_an_epoch_after_a_later_one_was_seen_elsewhere_is_named() -> None:
    ahead = world({WHOLE: {0: (2.0, 3.0), 1: (4.0, 5.0)}, "kafka": {0: (None, 1.0), 1: (None, 1.5)}})
    assert found(ahead) == {Anomaly.PARTIAL_EPOCH}
    (example,) = judge(ahead).examples
    assert example == "partial_epoch: files lacked rows of chk-0 0.500 s after kafka had shown chk-1"
    assert found(replace(ahead, whole=frozenset({"kafka"}))) == set()


class Growing:
    """A reader whose every look gives one row more."""

    def __init__(self) -> None:
        self.looks = 0

    def rows(self) -> Iterator[Seen]:
        self.looks += 1
        for number in range(self.looks):
            yield Seen("s", None, b"a%d" % number)
            yield Seen("s", None, b"b%d" % number)

    def orphans(self) -> list[Orphan]:
        return []

    def close(self) -> None: ...


def test_what_is_new_in_one_look_has_its_time_and_that_of_the_look_before() -> None:
    with PollingWatcher(Growing(), poll_s=0.001) as watcher:
        assert watcher.wait_for(6, 60)
        first, second, third = (watcher.seen()[at : at + 2] for at in (0, 2, 4))
    assert [row.unseen_s for row in first] == [None, None]
    for look in (first, second, third):
        assert look[0].seen_s == look[1].seen_s
        assert look[0].unseen_s == look[1].unseen_s
    assert second[0].unseen_s is not None
    assert first[0].seen_s is not None
    assert second[0].seen_s is not None
    assert third[0].unseen_s is not None
    # Both are of the look before: it began, then it was over.
    assert second[0].unseen_s <= first[0].seen_s
    assert first[0].seen_s <= third[0].unseen_s <= second[0].seen_s
