"""The counter of the house: an epoch is followed through the modules that it enters, and rooms are counted."""

from __future__ import annotations

from benchmarks.size import modules_of_an_epoch, rooms_of_kafka


def test_the_modules_of_an_epoch_are_found_in_the_order_in_which_it_enters_them() -> None:
    entered = modules_of_an_epoch()
    assert entered[0].startswith("onceonly.")
    assert "onceonly.coordinator.coordinator" in entered
    assert "onceonly.executor.slot" in entered


def test_the_kafka_sink_is_found_through_with_at_most_15_rooms_at_its_top() -> None:
    rooms = rooms_of_kafka()
    assert {"sink.py", "outcomes", "wire"} <= set(rooms)
    assert len(rooms) <= 15, rooms
