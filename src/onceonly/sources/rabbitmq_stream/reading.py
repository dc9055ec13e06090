"""One task's share of an epoch: the messages between two that were there. Executor, one thread."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from onceonly.families.backoff import Backoff
from onceonly.sources.rabbitmq_stream.positions import Position, gone, made_anew

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.sources.rabbitmq_stream.messages import Consumer, Message, Stream

log = logging.getLogger("onceonly")

_WINDOW: Final = 2_000
_TICK_S: Final = 1.0


def read(stream: Stream, start: Position, end: Position) -> Iterator[Message]:
    """Yield what lies behind a place up to the message at another one, whichever attempt this is.

    Goes on where it was when the connection is lost. Raises ``SourceChangedError`` where messages are gone, or the
    stream is another one; ``UnavailableError`` where the server gives none for the time of the option ``timeout``.
    """
    wait = Backoff(time, stream.options.timeout_s)
    at, newest = start, None
    while True:
        try:
            for newest in _behind(stream, at, end):
                yield newest
        except stream.server.errors as error:
            if newest is not None and newest.offset >= at.next:
                wait.progress()
                at = Position.behind(newest)
            if at.is_read and at.offset >= end.offset:
                return
            stream.failed(error, wait)
        else:
            return


def is_unread(stream: Stream, found: Message, at: Position) -> bool:
    """See that what is found from a place on follows it, and say whether it is to be read.

    Raises ``SourceChangedError`` where messages between are gone, unless these are passed over.
    """
    if at.is_another(found):
        raise made_anew(stream.where, f"offset {at.offset} is another message than the one that was there")
    if at.lacks(found):
        lose(stream, at.next, found.offset)
    return found.offset > at.offset or not at.is_read


def lose(stream: Stream, first: int, kept: int) -> None:
    """Say that messages are gone. Raises ``SourceChangedError`` unless these are passed over."""
    error = gone(stream.where, first, kept)
    if stream.options.fails_on_loss:
        raise error
    log.warning("%s. It goes on, as failOnDataLoss=false says.", error.what)


def _behind(stream: Stream, at: Position, end: Position) -> Iterator[Message]:
    """Yield them over one connection. Raises one of the server's errors, too."""
    consumer = stream.consumer(at.offset, _WINDOW)
    message = _some(stream, consumer)
    if not is_unread(stream, message, at):
        message = _some(stream, consumer)
    while message.offset < end.offset:
        yield message
        message = _some(stream, consumer)
    consumer.close()
    if end.is_another(message):
        raise made_anew(stream.where, f"offset {end.offset} is another message than the one that was there")
    if message.offset == end.offset:
        yield message
    else:
        lose(stream, end.offset, message.offset)


def _some(stream: Stream, consumer: Consumer) -> Message:
    """Return the next message, which must be there."""
    deadline = time.monotonic() + stream.options.timeout_s
    while (message := consumer.next(_TICK_S)) is None:
        if time.monotonic() > deadline:
            raise stream.unavailable("it gave no more messages, though there were some")
    return message
