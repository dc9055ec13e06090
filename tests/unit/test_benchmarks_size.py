"""The counter of the house: an epoch is followed through the modules that it enters."""

from __future__ import annotations

from benchmarks.size import modules_of_an_epoch


def test_the_modules_of_an_epoch_are_found_in_the_order_in_which_it_enters_them() -> None:
    entered = modules_of_an_epoch()
    assert entered[0].startswith("onceonly.")
    assert "onceonly.coordinator.coordinator" in entered
    assert "onceonly.executor.slot" in entered
