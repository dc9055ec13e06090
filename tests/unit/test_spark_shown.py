"""Of an error that a user is to mend Spark prints the sentence alone; of a defect where it is."""

from __future__ import annotations

import pickle
import traceback

import pytest

from onceonly.errors import ConfigurationError, OnceonlyError, ProtocolError
from onceonly.spark.feed_source import FeedReader
from onceonly.spark.kinesis_source import KinesisReader
from onceonly.spark.rabbitmq_stream_source import RabbitStreamReader
from onceonly.spark.shown import without_frames


def deep(error: BaseException) -> None:
    raise error from KeyError("of a library")


@without_frames
def plan(error: BaseException) -> None:
    """Do as Spark's methods do."""
    deep(error)


def printed(error: BaseException) -> str:
    with pytest.raises(type(error)) as caught:
        plan(error)
    # The last frame but that of this test, as Spark's worker prints it.
    return "".join(traceback.format_exception(caught.value))


def test_a_typed_error_is_printed_without_the_frames_below_the_method() -> None:
    found = printed(ConfigurationError("the sink knows no option x", next_step="remove it"))
    assert "in deep" not in found
    assert "KeyError" not in found
    assert found.endswith("[ONCEONLY:CONFIGURATION] the sink knows no option x [next: remove it]\n")


@pytest.mark.parametrize(
    "error", [ProtocolError("a defect", next_step="report it"), ValueError("of the user")]
)
def test_a_defect_and_what_others_raise_keep_theirs(error: Exception) -> None:
    found = printed(error)
    assert "in deep" in found
    assert "KeyError" in found


def test_the_error_stays_the_same_one() -> None:
    error = ConfigurationError("a", next_step="b")
    with pytest.raises(OnceonlyError) as caught:
        plan(error)
    assert caught.value is error
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(error)  # noqa: S301  our own
    assert plan.__doc__ == "Do as Spark's methods do."


@pytest.mark.parametrize("reader", [FeedReader, KinesisReader, RabbitStreamReader])
@pytest.mark.parametrize(
    "method", ["initialOffset", "latestOffset", "prepareForTriggerAvailableNow", "partitions", "commit"]
)
def test_each_method_of_a_source_that_spark_calls_shows_the_sentence_alone(reader: type, method: str) -> None:
    own = vars(reader).get(method)
    assert own is None or own.__wrapped__
