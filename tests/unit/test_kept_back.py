"""What a foreachBatch function keeps back of an epoch that failed is raised when it returns."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from onceonly.spark import kept_back
from onceonly.spark.task import EPOCH_PROPERTY, QUERY_PROPERTY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def frame(query: str, epoch: int) -> DataFrame:
    told = {QUERY_PROPERTY: query, EPOCH_PROPERTY: str(epoch)}
    context = SimpleNamespace(getLocalProperty=told.get)
    return cast("DataFrame", SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context)))


def fails(df: DataFrame) -> None:
    with kept_back.noting(df):
        raise ValueError("of the epoch")


def keeps_back(df: DataFrame, _epoch: int) -> None:
    with contextlib.suppress(ValueError):
        fails(df)


def test_an_error_that_was_caught_is_raised_once_and_for_its_own_epoch_only() -> None:
    other = frame("q", 8)
    keeps_back(other, 8)
    with pytest.raises(ValueError, match="of the epoch"):
        kept_back.guarded(keeps_back)(frame("q", 7), 7)
    kept_back.guarded(lambda *_: None)(frame("q", 7), 7)
    kept_back.forget(other)
    kept_back.guarded(lambda *_: None)(other, 8)


def test_another_try_that_went_well_is_enough() -> None:
    def tries_again(df: DataFrame, epoch: int) -> str:
        keeps_back(df, epoch)
        kept_back.forget(df)
        return "well"

    assert kept_back.guarded(tries_again)(frame("q", 7), 7) == "well"


def test_an_error_that_goes_through_is_not_remembered() -> None:
    def lets_through(df: DataFrame, _epoch: int) -> None:
        fails(df)

    with pytest.raises(ValueError, match="of the epoch"):
        kept_back.guarded(lets_through)(frame("q", 7), 7)
    assert kept_back._failed == {}


def test_outside_of_a_query_no_error_is_noted() -> None:
    keeps_back(frame("", 7), 7)
    keeps_back(cast("DataFrame", SimpleNamespace()), 7)
    assert kept_back._failed == {}
