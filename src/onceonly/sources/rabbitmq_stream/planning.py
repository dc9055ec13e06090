"""What the next epoch reads: up to which message. Driver, one thread, as long as the query runs."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

import msgspec

from onceonly.errors import ConfigurationError
from onceonly.sources.rabbitmq_stream.messages import FIRST, LAST, Stream
from onceonly.sources.rabbitmq_stream.options import EARLIEST, LATEST, NAME
from onceonly.sources.rabbitmq_stream.positions import Position, made_anew
from onceonly.sources.rabbitmq_stream.reading import is_unread, lose

if TYPE_CHECKING:
    from onceonly.sources.rabbitmq_stream.messages import Consumer, Message, Place
    from onceonly.sources.rabbitmq_stream.options import SourceOptions

log = logging.getLogger("onceonly")

_LOOKED_AT: Final = 200
"""How many new messages the driver is sent; where there are more, it asks for the last ones."""
_CHUNK: Final = 5_000
_ANSWER_S, _QUIET_S, _SOON_S = 6.0, 0.1, 0.3
"""How long the first message of several may take, where there are some; the next; and one where there may be none.

The first is longer than the five seconds after which a server counts anew what a stream holds.
"""


class Planner:
    """Makes places out of places."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._stream = Stream(options)
        self._begun: Position | None = None
        self._is_planned = False
        """Whether this life has planned an epoch."""
        self._until: Position | None = None
        self._watch: Consumer | None = None
        self._newest: Position | None = None

    def initial(self) -> Position:
        """Return the place where a new query begins, the same one as long as this lives. Raises a typed error.

        Spark keeps it nowhere: it asks again as it runs the first epoch, and when a later life runs that once more.
        """
        if self._begun is None:
            self._begun = self._beginning()
        return self._begun

    def stop_at_now(self) -> None:
        """Read until what is there now, and no further. Raises a typed error."""
        self._until = self._tip() or Position(offset=-1)

    def following(self, start: Position, rows_max: int = 0) -> Position:
        """Return the end of the next epoch; the same place where there is nothing new. Raises a typed error.

        A query that begins at the stream's end has an empty first epoch, whose offset is the beginning from then on:
        the end itself moves on, and whoever ran an epoch with rows again would begin behind them.
        """
        self._stream.server.is_host_known = True  # in this life or in an earlier one: a place in it is known
        was_planned, self._is_planned = self._is_planned, True
        if start == self._begun and start.is_end and not was_planned:
            return start
        end = self._stream.ask(lambda: self._look(start))
        if self._until is not None:
            end = self._until  # it was seen, and need not have come again by now
        if end.offset < start.next:
            return start
        if rows_max and end.offset - start.next >= rows_max:
            newest, end = end, self._reaching(start.next + rows_max - 1, end)
            end = msgspec.structs.replace(end, more=newest.offset - end.offset)
        return msgspec.structs.replace(end, first=start.offset) if start == self._begun else end

    def shares(self, start: Position, end: Position) -> list[tuple[Position, Position]]:
        """Cut what lies between two places into neighbouring shares, one a task. Raises a typed error."""
        if end.first is not None and end.first < start.offset:
            lose(self._stream, end.first, start.offset)
        if end.next <= start.next:  # a first epoch, which has begun where the stream ended before
            return []
        self._stream.server.is_host_known = True
        self.require_kept(start)
        count = max(1, min(self._options.tasks, end.offset - start.next + 1))
        found, first = [], start
        for part in range(1, count):
            cut = self._reaching(start.next + (end.offset - start.next + 1) * part // count - 1, end)
            if first.offset < cut.offset < end.offset:
                found.append((first, cut))
                first = cut
        return [*found, (first, end)]

    def require_kept(self, start: Position) -> None:
        """See that a place is there, and the stream the same. Any process. Raises a typed error."""
        self._stream.ask(lambda: self._require(start).close())

    def close(self) -> None:
        """Drop the connection. Idempotent."""
        self._watch = None
        self._stream.close()

    # --- its parts ------------------------------------------------------------------------------------------

    def _beginning(self) -> Position:
        """Return what the option ``startingOffsets`` means now."""
        starting = self._options.starting
        if starting == LATEST:
            return self._tip() or Position(offset=0, is_read=False)
        place = FIRST if starting == EARLIEST else starting
        found = self._first(place)
        if found is None:
            tip = self._tip()
            if isinstance(starting, int) and starting > (tip.offset + 1 if tip else 0):
                raise ConfigurationError(
                    f"startingOffsets={starting} is not there yet: the stream {self._stream.where} "
                    + (f"ends at offset {tip.offset}" if tip else "is empty"),
                    next_step="name an offset that is there, or earliest or latest",
                )
            if tip is None:
                return Position(offset=0, is_read=False)
            # Of a time, only a server that has just given another message says by silence that nothing came since.
            is_there = starting == EARLIEST or (isinstance(starting, int) and starting <= tip.offset)
            found = self._first(place, is_there=is_there)
            if found is None:
                return tip
        if isinstance(starting, int) and found.offset > starting:
            log.warning(
                "%s: the stream %s keeps nothing from offset %d to %d; it begins at %d.",
                NAME, self._stream.where, starting, found.offset - 1, found.offset,
            )  # fmt: skip
        return Position.at(found)

    def _look(self, start: Position) -> Position:
        """Return the newest message that is known of, behind ``start``. Raises one of the server's errors, too."""
        try:
            if self._watch is None or not self._watch.is_open:
                self._newest, self._watch = start, self._require(start)
                newest = _drained(self._watch, _SOON_S)
            else:
                newest = _drained(self._watch)
            if self._watch.is_full:
                newest = self._jumped(newest)
        except self._stream.server.errors:
            self._watch = None
            raise
        assert self._newest is not None  # noqa: S101  set with the first watch
        if newest is not None and newest.offset >= self._newest.next:
            self._newest = Position.behind(newest)
        return self._newest

    def _jumped(self, newest: Message | None) -> Message | None:
        """Watch the last messages, as many have come; or go on from the newest one where these are known."""
        before = newest.offset if newest is not None else self._newest.offset if self._newest else 0
        for place in (LAST, before):
            if self._watch is not None:
                self._watch.close()
            self._watch = self._stream.consumer(place, _LOOKED_AT, goes_on=False)
            found = _drained(self._watch, _ANSWER_S)
            if found is not None and found.offset > before:
                return found
        return newest

    def _require(self, start: Position) -> Consumer:
        """See that a place is there and the stream the same; return what is read from there on."""
        consumer = self._stream.consumer(start.offset, _LOOKED_AT, goes_on=False)
        if not start.mark:
            return consumer
        found = consumer.next(_ANSWER_S)
        if found is None:
            if self._ends_before(start.offset):
                raise made_anew(
                    self._stream.where, f"it ends before offset {start.offset}, up to which was read"
                )
            raise TimeoutError(f"it did not give the message at offset {start.offset}")
        if is_unread(self._stream, found, start):
            consumer.close()  # whoever looks next wants it, too
            consumer = self._stream.consumer(found.offset, _LOOKED_AT, goes_on=False)
        return consumer

    def _first(self, place: Place, *, is_there: bool = False) -> Message | None:
        """Return the first message from a place on; None where none comes: of an empty stream, or at its end.

        One that ``is_there``, and one of a stream that its server does not call empty, is asked for until it comes.
        """

        def ask() -> Message | None:
            consumer = self._stream.consumer(place, 1, goes_on=False)
            found = consumer.next(_ANSWER_S)
            consumer.close()
            if found is None and (is_there or (place == FIRST and not self._stream.is_empty())):
                raise TimeoutError(f"it gave no message from {place} on, though it has some")
            return found

        return self._stream.ask(ask)

    def _reaching(self, offset: int, end: Position) -> Position:
        """Return the place behind the message at an offset, or the first behind it; at most the end."""
        found = self._first(offset, is_there=True)
        return Position.behind(found) if found is not None and found.offset < end.offset else end

    def _tip(self) -> Position | None:
        """Return the place behind the newest message; None where the stream is empty."""
        found = self._stream.ask(self._last)
        return None if found is None else Position.behind(found)

    def _last(self) -> Message | None:
        """Return the newest message; None where the server says that there is none. Raises one of its errors, too."""
        consumer = self._stream.consumer(LAST, _CHUNK)
        found = _drained(consumer, _ANSWER_S, _QUIET_S, within_s=_ANSWER_S)
        consumer.close()
        if found is None:
            self._require_empty()
        return found

    def _ends_before(self, offset: int) -> bool:
        """Say whether the newest message lies before an offset. Raises one of the server's errors, too.

        What was read once is in the newest chunk or older: it comes soon, however much is published meanwhile.
        """
        consumer = self._stream.consumer(LAST, _CHUNK)
        newest, found = None, consumer.next(_ANSWER_S)
        deadline = time.monotonic() + max(_ANSWER_S, self._options.timeout_s)
        while found is not None and found.offset < offset and time.monotonic() < deadline:
            newest, found = found, consumer.next(_ANSWER_S)
        consumer.close()
        if newest is None and found is None:
            self._require_empty()
        return found is None or found.offset < offset

    def _require_empty(self) -> None:
        if not self._stream.is_empty():
            raise TimeoutError("it did not give its last message, though it has some")


def _drained(
    consumer: Consumer, first_s: float = 0.0, next_s: float = 0.0, within_s: float = 0.5
) -> Message | None:
    """Return the newest of the messages that have come, and come soon."""
    newest, message = None, consumer.next(first_s)
    deadline = time.monotonic() + within_s
    while message is not None:
        newest = message
        message = consumer.next(next_s) if time.monotonic() < deadline else None
    return newest
