"""What lines and events of a response are as rows, and what names them. One thread; no I/O."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from onceonly.errors import ConfigurationError
from onceonly.sources.http.events import Events as Parser
from onceonly.sources.http.options import id_of, is_whole
from onceonly.sources.journal.segments import hash_of

if TYPE_CHECKING:
    from onceonly.sources.journal.feeds import Gather

_JSON: Final = "application/json"
"""What single documents are sent as, too; lines of JSON have types of their own."""
_OPENERS: Final = (b"[", b"{")
_NAMELESS_MAX: Final = 100_000
"""How many different rows without an id, behind one id, are remembered at a time."""


class _Nameless:
    """Names what has no id: by its bytes, the id before it, and how many like it came since.

    So it has the same name when a server sends all that came after that id again.
    """

    def __init__(self) -> None:
        self._last: str | None = None
        self._forgotten = 0
        """How often all that were seen behind this id were forgotten: what comes then is named anew."""
        self._seen: Counter[bytes] = Counter()

    def name(self, data: bytes, last: str | None) -> str:
        if last != self._last:
            self._last, self._forgotten = last, 0
            self._seen.clear()
        elif len(self._seen) >= _NAMELESS_MAX:
            self._forgotten += 1
            self._seen.clear()
        text = f"{last}\n{data!r}" + (f"\nforgotten {self._forgotten}" if self._forgotten else "")
        own = hash_of(text)
        before = self._seen[own]
        self._seen[own] += 1
        return "none:" + (hash_of(f"{text}\n{before}") if before else own).hex()


class Lines:
    """Lines, each with the id in its field. ``content`` is their type, as the server says it."""

    def __init__(self, mark: str | None, field: str | None, of: str, content: str) -> None:
        self.last = mark
        self.nameless_since: float | None = None
        """Since when lines have no id, by this machine's clock that nobody sets; None where the last one has one."""
        self._field = field
        self._of = of
        self._content = content
        self._nameless = _Nameless()
        self._is_first = mark is None
        """Whether this may be no feed of lines at all; one that has gone on for a while is one."""

    def take(self, line: bytes, gather: Gather) -> None:
        """Gather a line. Raises ``ConfigurationError`` where it begins a document that is no line."""
        text = line.strip()
        if not text:
            return
        if self._is_first:
            self._require_line(text)
        self._is_first = False
        found = None
        if self._field is not None:
            found = id_of(line, self._field)
            if found is None:
                found = self._nameless.name(line, self.last)
                self.nameless_since = self.nameless_since or time.monotonic()
            else:
                self.last, self.nameless_since = found, None
        gather.add(line, found, None)

    def end(self, rest: bytes, gather: Gather, *, is_all: bool) -> None:
        """Gather what came after the last line end, if it is whole; ``is_all`` says that the server has ended in order.

        Raises ``ConfigurationError`` where all that it has sent is one JSON array: it would send it again and again.
        """
        if is_whole(rest):
            self.take(rest, gather)
        elif is_all and self._is_first and _array(rest):
            raise self._document("one JSON array")

    def _require_line(self, line: bytes) -> None:
        """See that the first line of what may be a single document is not its beginning, or all of it."""
        if self._content != _JSON:
            return
        try:
            found = json.loads(line)
        except json.JSONDecodeError as error:
            if line.startswith(_OPENERS) and error.pos >= len(error.doc):
                raise self._document("a JSON document of several lines") from None
        except (ValueError, RecursionError):
            return
        else:
            if isinstance(found, list) and self._field is not None:
                raise self._document("a JSON array")

    def _document(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self._of} sends {what} ({self._content or 'without a content type'}), and not lines: a JSON object on "
            "each line is expected, or server-sent events (text/event-stream)",
            next_step="see whether the server has an address, or a parameter of the option url, for lines of JSON "
            "(application/x-ndjson)",
        )


def _array(rest: bytes) -> bool:
    """Say whether bytes without a line end are a whole JSON array."""
    try:
        return isinstance(json.loads(rest), list)
    except (ValueError, RecursionError):
        return False


class Events:
    """Server-sent events. ``come_again`` says that the server is told where to go on."""

    def __init__(self, mark: str | None, of: str, *, needs_id: bool, come_again: bool) -> None:
        self._events = Parser(mark)
        self._of = of
        self._needs_id = needs_id
        self._come_again = come_again
        self._nameless = _Nameless()

    @property
    def last(self) -> str | None:
        """The id after which the server is to go on."""
        return self._events.last

    @property
    def retry_s(self) -> float:
        """How long the server wants to be left alone."""
        return self._events.retry_s or 0.0

    def take(self, line: bytes, gather: Gather) -> None:
        """Gather the event that a line ends. Raises ``ConfigurationError`` where it lacks the id that it needs."""
        event = self._events.feed(line)
        if event is None:
            return
        found = event.id or None
        if self._needs_id and found is None:
            raise ConfigurationError(
                f"{self._of} sends an event without an id of its own, which cannot be read exactly once",
                next_step="set resume=none: at most once up to the journal",
            )
        if found is None and self._come_again:
            found = self._nameless.name(event.data, self.last)
        gather.add(event.data, found, event.kind)

    def end(self, rest: bytes, gather: Gather, *, is_all: bool) -> None:
        """Do nothing: an event ends with an empty line."""
