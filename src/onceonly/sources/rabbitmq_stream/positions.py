"""A place in a stream, as an offset of Spark says it, and what its absence means. Pure; JSON on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from onceonly.errors import SourceChangedError
from onceonly.offsets import BEHIND_ROWS
from onceonly.sources.versioned import read_offset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly.sources.rabbitmq_stream.messages import Message

VERSION: Final = 1


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was there: its offset, and a hash of it.

    ``is_read`` says whether what follows begins behind it, or with it. Of a stream that was empty it is the offset 0,
    without a hash. ``more`` is for people: how many messages at most were known of behind it. ``first`` is in the end
    of a first epoch: the offset of the message that it begins with.
    """

    offset: int
    mark: str = ""
    is_read: bool = True
    more: int = 0
    first: int | None = None

    @classmethod
    def behind(cls, message: Message) -> Position:
        """Return the place behind a message."""
        return cls(offset=message.offset, mark=message.mark)

    @classmethod
    def at(cls, message: Message) -> Position:
        """Return the place of a message that is still to be read."""
        return cls(offset=message.offset, mark=message.mark, is_read=False)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Position:
        """Read an offset of a checkpoint. Raises ``ConfigurationError``."""
        return read_offset(
            cls, given, version=VERSION, of="a stream of RabbitMQ", source="a stream of RabbitMQ"
        )

    @property
    def json(self) -> dict[str, Any]:
        """The place as Spark keeps it."""
        place = {"version": VERSION, "offset": self.offset, "mark": self.mark, "is_read": self.is_read}
        begun = {} if self.first is None else {"first": self.first}
        return {**place, **begun, BEHIND_ROWS: {"offset": self.more}}

    @property
    def next(self) -> int:
        """The offset of the first message that was not read, where there is no gap."""
        return self.offset + self.is_read

    @property
    def is_end(self) -> bool:
        """Whether it names no message that is still to be read: it was the end of the stream."""
        return self.is_read or not self.mark

    def lacks(self, found: Message) -> bool:
        """Say whether messages may be missing between this place and the first one that is found from it on."""
        return found.offset > self.next

    def is_another(self, found: Message) -> bool:
        """Say whether what is found from this place on shows that the stream is another one."""
        if found.offset < self.offset:
            return True
        return found.offset == self.offset and bool(self.mark) and found.mark != self.mark


def made_anew(where: str, what: str) -> SourceChangedError:
    """Make the error of a stream that is another one of the same name; ``what`` is the proof."""
    return SourceChangedError(
        f"the stream {where} was deleted and made anew since this query's checkpoint, or the option stream names "
        f"another one: {what}",
        next_step="name the stream of before, if the option stream was changed; else start on a new checkpoint. What "
        "the old stream held and nobody has read is lost",
    )


def gone(where: str, first: int, kept: int) -> SourceChangedError:
    """Make the error of messages that a stream keeps no more: from the offset ``first`` on, up to ``kept``."""
    return SourceChangedError(
        f"the stream {where} keeps no messages from offset {first} to {kept - 1}: its retention took them before "
        f"they were read, and the oldest that it keeps is {kept}",
        next_step="get what they held from elsewhere; to go on with what is kept, set failOnDataLoss=false for one "
        "start. A longer retention of the stream gives more time",
    )
