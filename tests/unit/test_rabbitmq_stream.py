"""Places in a stream of RabbitMQ, its options, what its rows hold, and the format that Spark sees."""

from __future__ import annotations

import itertools
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StructType

from onceonly.errors import ConfigurationError, SourceChangedError, UnavailableError
from onceonly.sources.rabbitmq_stream import planning
from onceonly.sources.rabbitmq_stream.messages import LAST, Message, Stream
from onceonly.sources.rabbitmq_stream.options import SourceOptions
from onceonly.sources.rabbitmq_stream.planning import Planner
from onceonly.sources.rabbitmq_stream.positions import Position
from onceonly.sources.rabbitmq_stream.reading import is_unread, read
from onceonly.sources.rabbitmq_stream.rows import SCHEMA, batches
from onceonly.spark.rabbitmq_stream_source import RabbitStreamFormat, RabbitStreamReader, Share

OPTIONS = {"uri": "amqp://me:pw@h", "stream": "s"}


def message(offset: int, text: str = "", **rest: Any) -> Message:  # noqa: ANN401  as the fields
    return Message(offset, (text or f"row {offset}").encode(), "", "s", **rest)


class Recorded:
    """A stream of so many messages, all of them there at once."""

    where = "s of h"

    class server:  # noqa: N801  it stands for one
        errors = (OSError,)

    def __init__(self, *messages: Message, fails_on_loss: str = "true", breaks_at: int = -1) -> None:
        self.options = SourceOptions.of({**OPTIONS, "failOnDataLoss": fails_on_loss})
        self._messages, self._breaks_at = messages, breaks_at
        self.tries = 0

    def consumer(self, place: int, _window: int) -> Recorded:
        self._left = [each for each in self._messages if each.offset >= place]
        return self

    def next(self, _wait_s: float) -> Message:
        if self._left[0].offset == self._breaks_at:
            self._breaks_at = -1
            raise ConnectionError
        return self._left.pop(0)

    def close(self) -> None:
        """Let go."""

    def failed(self, _error: Exception, _wait: object) -> None:
        self.tries += 1


def offsets(stream: Recorded, start: Position, end: Position) -> list[int]:
    return [each.offset for each in read(stream, start, end)]  # type: ignore[arg-type]  # it has what is asked


def test_a_share_is_what_lies_behind_one_message_up_to_another_over_gaps() -> None:
    stream = Recorded(*map(message, (0, 1, 2, 5, 6, 9, 10)))
    first, third, last = Position.at(message(0)), Position.behind(message(2)), Position.behind(message(9))
    assert offsets(stream, first, third) == [0, 1, 2]
    assert offsets(stream, third, last) == [5, 6, 9]


def test_a_lost_connection_goes_on_where_it_was() -> None:
    stream = Recorded(*map(message, range(6)), breaks_at=3)
    assert offsets(stream, Position.at(message(0)), Position.behind(message(5))) == [0, 1, 2, 3, 4, 5]
    assert stream.tries == 1


def test_what_is_gone_is_told_by_its_offsets() -> None:
    stream = Recorded(*map(message, (7, 8, 9)))
    with pytest.raises(SourceChangedError, match="keeps no messages from offset 3 to 6: "):
        offsets(stream, Position.behind(message(2)), Position.behind(message(9)))
    with pytest.raises(SourceChangedError, match="keeps no messages from offset 2 to 6: "):
        offsets(stream, Position.at(message(2)), Position.behind(message(9)))


def test_nothing_is_lost_where_the_message_that_was_read_last_is_gone_and_the_next_is_kept() -> None:
    stream = Recorded(*map(message, (3, 4)))
    assert offsets(stream, Position.behind(message(2)), Position.behind(message(4))) == [3, 4]


def test_what_is_gone_is_passed_over_where_that_is_chosen(caplog: pytest.LogCaptureFixture) -> None:
    stream = Recorded(*map(message, (7, 8, 20)), fails_on_loss="false")
    assert offsets(stream, Position.behind(message(2)), Position.behind(message(8))) == [7, 8]
    assert offsets(stream, Position.behind(message(2)), Position.behind(message(10))) == [7, 8]
    assert "It goes on, as failOnDataLoss=false says" in caplog.text


@pytest.mark.parametrize("fails_on_loss", ["true", "false"])
@pytest.mark.parametrize(
    ("start", "end"),
    [
        (Position.behind(message(2, "other")), Position.behind(message(4))),
        (Position.behind(message(2)), Position.behind(message(4, id="other"))),
    ],
)
def test_another_message_at_an_offset_is_another_stream(
    start: Position, end: Position, fails_on_loss: str
) -> None:
    stream = Recorded(*map(message, range(6)), fails_on_loss=fails_on_loss)
    with pytest.raises(SourceChangedError, match="was deleted and made anew"):
        offsets(stream, start, end)


def test_a_stream_that_begins_again_before_what_was_read_is_another_one() -> None:
    with pytest.raises(SourceChangedError, match="was deleted and made anew"):
        is_unread(Recorded(), message(1), Position.behind(message(9)))  # type: ignore[arg-type]  # as above


def test_a_place_is_read_as_it_was_kept() -> None:
    begun = Position(offset=9, mark="x", first=7)
    for place in (
        Position.behind(message(7)),
        Position.at(message(7)),
        Position(offset=0, is_read=False),
        begun,
    ):
        assert Position.of(place.json) == place


@pytest.mark.parametrize(
    ("given", "says"),
    [({"version": 2, "offset": 1}, "is of version 2"), ({"rows": 3}, "none of a stream"), ({"version": 1}, "none of")],
)  # fmt: skip
def test_an_offset_of_something_else_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Position.of(given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"uri": "amqp://me:pw@h"}, "option stream of onceonly.rabbitmq.stream is missing"),
        ({**OPTIONS, "startingOffsets": "soon"}, "must be earliest, latest, an offset, or a time"),
        ({**OPTIONS, "startingOffsets": str(1 << 63)}, "must be earliest, latest, an offset, or a time"),
        ({**OPTIONS, "startingOffsets": "1960-01-01T00:00:00Z"}, "must be earliest"),
        ({**OPTIONS, "startingOffsets": "2026-01-02T03:04:05"}, "must be earliest"),
        ({**OPTIONS, "tasks": "0"}, "from 1 to 100"),
        ({**OPTIONS, "queue": "q"}, "knows no option queue"),
    ],
)
def test_wrong_options_are_told_in_one_sentence(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as told:
        RabbitStreamReader(given, StructType())
    assert "pw" not in str(told.value)


def test_options_show_no_password() -> None:
    assert "pw" not in repr(SourceOptions.of(OPTIONS))


def test_rows_hold_all_of_a_message() -> None:
    given = [message(3, id="a", headers=(("k", "v"),), timestamp=7), message(4, timestamp=1 << 62)]
    (batch,) = batches(given)
    first, second = batch.to_pylist()
    assert list(first) == [name for name, _ in SCHEMA]
    assert (first["value"], first["offset"], first["id"], first["headers"]) == (
        b"row 3",
        3,
        "a",
        [("k", "v")],
    )
    assert first["timestamp"].timestamp() == 7
    assert (second["id"], second["headers"], second["timestamp"]) == (None, [], None)


class Slow(Stream):
    """A stream of so many messages, whose server is silent to the first consumers, and counts what it holds."""

    def __init__(self, *messages: Message, silent: int, timeout: str = "1 minute", **given: str) -> None:
        super().__init__(SourceOptions.of({**OPTIONS, "timeout": timeout, **given}))
        self._messages, self._silent = list(messages), silent
        self.asked: list[object] = []

    def consumer(self, place: Any, window: int, *, goes_on: bool = True) -> Any:  # noqa: ANN401  as its own
        self.asked.append(place)
        if place == LAST:
            left = self._messages[-1:]
        else:  # all of them came since a time
            left = [each for each in self._messages if not isinstance(place, int) or each.offset >= place]
        self._silent -= 1
        return Given([] if self._silent >= 0 else left)

    def is_empty(self) -> bool:
        return not self._messages


class Given:
    """What one consumer is given."""

    is_open, is_full = True, False

    def __init__(self, left: list[Message]) -> None:
        self._left = left

    def next(self, _wait_s: float) -> Message | None:
        return self._left.pop(0) if self._left else None

    def close(self) -> None:
        """Let go."""


def planner_of(stream: Stream) -> Planner:
    planner = Planner(stream.options)
    planner._stream = stream
    return planner


def test_silence_is_heard_for_longer_than_a_server_takes_to_count() -> None:
    """RabbitMQ counts the messages of a stream every five seconds."""
    assert planning._ANSWER_S > 5


@pytest.mark.parametrize("starting", ["earliest", "latest", "3", "2026-01-02T03:04:05Z"])
@pytest.mark.parametrize("silent", [1, 2])
def test_a_stream_that_gives_nothing_is_not_taken_for_an_empty_one(starting: str, silent: int) -> None:
    """A query would begin at its end, or before what `latest` names."""
    stream = Slow(*map(message, range(3, 9)), silent=silent, startingOffsets=starting)
    begun = planner_of(stream).initial()
    assert begun == (Position.behind(message(8)) if starting == "latest" else Position.at(message(3)))


def test_a_stream_whose_server_counts_nothing_is_empty() -> None:
    for starting in ("earliest", "latest", "0", "2026-01-02T03:04:05Z"):
        planner = planner_of(Slow(silent=0, startingOffsets=starting))
        assert planner.initial() == Position(offset=0, is_read=False)
        planner.stop_at_now()
        assert planner.following(planner.initial()) == planner.initial()


@pytest.mark.parametrize(
    ("starting", "there"), [("latest", 3), ("latest", 0), ("earliest", 0), ("3", 3)], ids=str
)
@pytest.mark.parametrize("is_now", [False, True])
def test_a_query_that_begins_at_the_end_reads_each_later_message_once_whoever_runs_its_first_epoch_again(
    starting: str, there: int, *, is_now: bool
) -> None:
    """Spark keeps no beginning: it asks for it before it plans the first epoch, as it runs it, and in a later life."""
    stream = Slow(*map(message, range(there)), silent=0, startingOffsets=starting)

    def come() -> None:
        stream._messages.append(message(len(stream._messages)))

    planner = planner_of(stream)
    if is_now:
        planner.stop_at_now()
    start = planner.initial()
    come()
    end = planner.following(start)
    for _ in range(2):
        come()
        assert planner.shares(planner.initial(), end) == []
        planner = planner_of(stream)
    found = []
    while (following := planner.following(end)) != end:
        for share in planner.shares(end, following):
            found += [each.offset for each in read(stream, *share)]
        end = following
    assert found == list(range(there, there + 3))


@pytest.mark.parametrize("fails_on_loss", [True, False])
def test_what_retention_takes_before_a_first_epoch_is_run_again_is_told(
    caplog: pytest.LogCaptureFixture, *, fails_on_loss: bool
) -> None:
    """By then, the oldest message is another one, with which a query would begin without a word."""
    stream = Slow(*map(message, range(6)), silent=0, failOnDataLoss=str(fails_on_loss).lower())
    planner = planner_of(stream)
    start = planner.initial()
    end = Position.of(planner.following(start, 4).json)
    assert planner.shares(start, end) == [(start, end)]
    del stream._messages[:3]
    planner = planner_of(stream)
    start = planner.initial()
    if fails_on_loss:
        with pytest.raises(SourceChangedError, match="keeps no messages from offset 0 to 2: "):
            planner.shares(start, end)
        return
    [share] = planner.shares(start, end)
    assert [each.offset for each in read(stream, *share)] == [3]
    assert "keeps no messages from offset 0 to 2: " in caplog.text
    del stream._messages[:2]
    assert planner_of(stream).shares(planner_of(stream).initial(), end) == []


def test_a_stream_that_gives_nothing_for_the_time_of_its_option_cannot_be_reached() -> None:
    for starting in ("earliest", "latest"):
        stream = Slow(message(3), silent=1 << 30, timeout="0.2 s", startingOffsets=starting)
        with pytest.raises(UnavailableError, match=r"had no answer for 0\.2 s: it .* though it has some"):
            planner_of(stream).initial()


def test_available_now_reads_to_its_end_also_where_nothing_comes_for_a_moment() -> None:
    stream = Slow(*map(message, range(9)), silent=1)
    planner = planner_of(stream)
    planner.stop_at_now()
    stream._silent = 1
    assert planner.following(Position.at(message(0))).offset == 8


def test_an_epoch_has_no_more_than_its_limit_also_where_nothing_comes_for_a_moment() -> None:
    stream = Slow(*map(message, range(9)), silent=0)
    planner = planner_of(stream)
    planner.stop_at_now()
    planner.following(Position.at(message(0)))
    stream._silent = 1
    assert planner.following(Position.at(message(0)), 3).offset == 2


def test_a_stream_is_not_another_one_because_it_gives_nothing() -> None:
    """What was read last must be there; silence does not say that it is not."""
    stream = Slow(*map(message, range(9)), silent=2)
    planner_of(stream).require_kept(Position.behind(message(8)))
    assert stream.asked == [8, LAST, 8]
    with pytest.raises(SourceChangedError, match="was deleted and made anew"):
        planner_of(Slow(*map(message, range(4)), silent=0)).require_kept(Position.behind(message(8)))
    with pytest.raises(SourceChangedError, match="was deleted and made anew"):
        planner_of(Slow(silent=0)).require_kept(Position.behind(message(8)))


def test_a_stream_that_was_made_anew_is_another_one_also_while_it_is_written_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever read on until its publishers pause would read for days, and say nothing."""
    offsets = itertools.count()

    class Busy(Given):
        def next(self, _wait_s: float) -> Message | None:
            return message(next(offsets))

    stream, given = Slow(silent=0), iter((Given([]), Busy([])))
    monkeypatch.setattr(stream, "consumer", lambda *_, **__: next(given))
    monkeypatch.setattr(planning, "time", SimpleNamespace(monotonic=itertools.count().__next__))
    with pytest.raises(SourceChangedError, match="was deleted and made anew"):
        planner_of(stream).require_kept(Position.behind(message(2_000)))
    assert next(offsets) < 100


def test_a_host_without_an_address_is_waited_for_by_who_has_read_its_stream() -> None:
    """As one whose only machine is started anew; of a new query, its name is misspelt."""
    given = {**OPTIONS, "uri": "amqp://no-such-host.invalid", "timeout": "0.2 s"}
    with pytest.raises(ConfigurationError, match="has no address"):
        Planner(SourceOptions.of(given)).initial()
    at, end = Position.behind(message(3)), Position.behind(message(5))
    with pytest.raises(UnavailableError, match="had no answer"):
        Planner(SourceOptions.of(given)).following(at)
    with pytest.raises(UnavailableError, match="had no answer"):
        Planner(SourceOptions.of(given)).shares(at, end)
    with pytest.raises(UnavailableError, match="had no answer"):
        list(RabbitStreamReader(given, StructType()).read(Share(at, end)))


def test_the_format_reads_streams_alone() -> None:
    made = RabbitStreamFormat(dict(OPTIONS))
    assert made.name() == "onceonly.rabbitmq.stream"
    reader = made.streamReader(StructType())
    assert pickle.loads(pickle.dumps(reader))._planner is None  # noqa: S301  its own
    with pytest.raises(ConfigurationError, match=r"use spark\.readStream"):
        made.reader(StructType())
