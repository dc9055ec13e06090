"""Rows that a foreachBatch function lets go by, as it only made a sink, are not lost without a word."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future
from threading import Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import onceonly
from onceonly.errors import ConfigurationError
from onceonly.spark import asked, unused
from onceonly.spark.task import EPOCH_PROPERTY, QUERY_PROPERTY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def frame(*, rows: bool = True, epoch: int = 3) -> Any:  # noqa: ANN401  a stand-in for Spark's
    told = {QUERY_PROPERTY: "q", EPOCH_PROPERTY: str(epoch)}
    session = SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty=told.get))
    return SimpleNamespace(sparkSession=session, isEmpty=lambda: not rows)


def only_made(_df: object, _batch_id: int) -> None:
    onceonly.sink("onceonly.console")


def wrote(_df: object, batch_id: int) -> None:
    unused.entered("q", batch_id)
    unused.decided("q", batch_id)


def made_and_wrote(df: object, batch_id: int) -> None:
    onceonly.sink("onceonly.console")
    wrote(df, batch_id)


def wrote_in_a_thread(df: object, batch_id: int) -> None:
    onceonly.sink("onceonly.console")
    thread = Thread(target=wrote, args=(df, batch_id))
    thread.start()
    thread.join()


def neither(_df: object, _batch_id: int) -> None:
    """A function of somebody's who does without onceonly."""


def test_a_sink_that_was_made_and_not_written_to_fails_the_epoch() -> None:
    with pytest.raises(
        ConfigurationError, match=r"chk-3: .* made the sink 'console'.*foreachBatch\(onceonly\.sink"
    ):
        unused.watched(only_made)(frame(), 3)


@pytest.mark.parametrize("function", [made_and_wrote, wrote_in_a_thread, neither])
def test_other_functions_are_let_be(function: Callable[[Any, int], None]) -> None:
    with pytest.raises(ConfigurationError):
        unused.watched(only_made)(frame(), 3)  # what it left behind is no other call's
    onceonly.sink("onceonly.console")
    unused.watched(function)(frame(epoch=4), 4)
    with pytest.raises(ConfigurationError):
        unused.watched(only_made)(frame(epoch=4), 4)  # run again


def test_a_sink_that_could_not_be_made_fails_the_epoch_though_its_error_was_caught() -> None:
    def catches(_df: object, _batch_id: int) -> None:
        with contextlib.suppress(ConfigurationError):
            onceonly.sink("onceonly.console", **{"onceonly.guarantee": "perfect"})

    def takes_another(df: object, batch_id: int) -> None:
        catches(df, batch_id)
        made_and_wrote(df, batch_id)

    with pytest.raises(ConfigurationError, match="perfect"):
        unused.watched(catches)(frame(), 3)
    unused.watched(takes_another)(frame(), 3)
    with pytest.raises(ConfigurationError, match="gave it nothing to write"):
        unused.watched(only_made)(frame(), 3)


def test_an_empty_frame_may_go_by() -> None:
    unused.watched(only_made)(frame(rows=False), 3)


async def not_begun(df: object, batch_id: int) -> None:
    wrote(df, batch_id)


def not_begun_either(df: object, batch_id: int) -> Iterator[None]:
    wrote(df, batch_id)
    yield


def left_to_a_thread(_df: object, _batch_id: int) -> Future[None]:
    return Future()


def entered_alone(_df: object, batch_id: int) -> None:
    unused.entered("q", batch_id)


@pytest.mark.parametrize("function", [not_begun, not_begun_either, left_to_a_thread, entered_alone])
def test_a_function_that_returns_before_its_epoch_is_decided_fails_it(
    function: Callable[[Any, int], Any],
) -> None:
    for _ in range(2):
        wrote(None, 3)  # by a try before this one
        with pytest.raises(ConfigurationError, match=r"chk-3: the foreachBatch function returned"):
            unused.watched(function)(frame(rows=False), 3)


def test_a_function_that_wrote_earlier_epochs_does_not_leave_one_with_rows_out() -> None:
    def early(df: object, batch_id: int) -> None:
        if batch_id < 4:
            wrote(df, batch_id)

    watched = unused.watched(early)
    watched(frame(), 3)
    watched(frame(epoch=4, rows=False), 4)
    with pytest.raises(
        ConfigurationError,
        match="chk-5: the foreachBatch function has entered earlier epochs, and not this one",
    ):
        watched(frame(epoch=5), 5)


def test_an_epoch_that_is_entered_after_its_function_has_returned_fails_the_next_one() -> None:
    watched = unused.watched(neither)
    watched(frame(), 3)
    wrote(None, 3)
    with pytest.raises(ConfigurationError, match="has entered earlier epochs, and not this one"):
        watched(frame(epoch=4), 4)


def test_the_methods_of_a_writer_take_their_arguments_by_name_too() -> None:
    class Writer:
        def outputMode(self, outputMode: str) -> Writer:  # noqa: N802, N803  PySpark's
            return self

        def start(self, path: str | None = None, **options: object) -> str:
            return "started"

    asked.wrap(Writer)
    assert Writer().outputMode(outputMode="complete").start() == "started"


@pytest.mark.parametrize(
    "said", ["[ONCEONLY:CONFIGURATION] the option 'onceonly.job' is missing: it is the id [next: name it]",
             '[UNSUPPORTED_DATA_SOURCE_SAVE_MODE] The data source cannot be written in the "ErrorIfExists" mode.']
)  # fmt: skip
def test_a_batch_by_our_format_in_such_a_function_names_what_writes_an_epoch(said: str) -> None:
    class Writer:
        def format(self, source: str) -> Writer:
            return self

        def partitionBy(self, *columns: object) -> Writer:  # noqa: N802  PySpark's
            return self

        def save(self, path: str | None = None, mode: str | None = None, **options: object) -> None:
            raise RuntimeError(said)

    asked.wrap_batch(Writer)

    def write(_df: object, _batch_id: int) -> None:
        Writer().format("onceonly.kafka").save("/x")

    with pytest.raises(ConfigurationError, match=r"foreachBatch\(onceonly\.sink"):
        unused.watched(write)(frame(), 1)
    with pytest.raises(ConfigurationError, match=r"onceonly\.job|mode append"):
        write(frame(), 1)
