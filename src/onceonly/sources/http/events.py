"""Server-sent events, as the HTML standard writes them: lines in, events out. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """One event with data. ``id`` is its own, None where it has none: the one before it is not repeated."""

    data: bytes
    kind: str
    id: str | None


class Events:
    """Gathers lines into events. What the stream breaks off in the middle of was no event."""

    def __init__(self, last: str | None) -> None:
        self.last = last
        """The id of the last whole event."""
        self.retry_s: float | None = None
        """How long the server wants to be left alone before the next connection."""
        self._id: str | None = None
        self._kind = ""
        self._data: list[bytes] = []
        self._first = True

    def feed(self, line: bytes) -> Event | None:
        """Take a line; return the event that it ends."""
        if self._first:
            line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            return self._dispatch()
        name, colon, value = line.partition(b":")
        if not name and colon:
            return None  # a comment, which keeps the connection
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
            case b"event":
                self._kind = value.decode(errors="replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode(errors="replace")
            case b"retry" if value.isdigit():
                self.retry_s = float(value) / 1000
        return None

    def _dispatch(self) -> Event | None:
        data, kind, own = self._data, self._kind or "message", self._id
        self._data, self._kind, self._id = [], "", None
        self.last = own if own is not None else self.last
        return Event(b"\n".join(data), kind, own) if data else None
