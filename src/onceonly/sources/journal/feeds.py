"""What a feed offers to a receiver, and gathering its rows until it is worth a sync."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from onceonly.errors import ConfigurationError, RecordRefusedError
from onceonly.model import Guarantee
from onceonly.sources.journal.options import GUARANTEE
from onceonly.sources.journal.segments import arrow

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    import pyarrow as pa

    from onceonly.options import Option
    from onceonly.sources.journal.options import Limits

TICK_S: Final = 0.2
"""How long a feed waits for rows before it says that there are none now."""
FIRST_S: Final = 2.0
"""How long it waits for the first one of a connection, which its server may have to look for."""
_ROWS_MAX: Final = 100_000


class FeedBrokenError(Exception):
    """A connection is gone, or was not to be had: the receiver connects again, after ``wait_s`` at least.

    ``answered`` says that there was one, on which the server has said all that it had to.
    """

    def __init__(self, why: str, *, wait_s: float = 0.0, answered: bool = False) -> None:
        super().__init__(why)
        self.wait_s = wait_s
        self.answered = answered


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Rows that become one segment.

    ``mark`` is where the feed goes on after them, None where it has no place. ``suspects`` says of each row whether it
    may have been sent before; None where any may.
    """

    rows: pa.Table
    mark: str | None = None
    suspects: Sequence[bool] | None = None


class Feed(Protocol):
    """A feed by its options. Receiver's thread; nothing is asked before ``receive``."""

    name: ClassVar[str]
    declared: ClassVar[tuple[Option, ...]]
    columns: ClassVar[Mapping[str, str]]
    """Names and Arrow types of its columns."""
    of: str
    """What it is a feed of, without secrets: the journal belongs to it."""
    named: str
    """What names a row of it, as its option ``id`` says."""
    guarantees: tuple[Guarantee, ...]
    """What it can keep with its options, the strongest first."""
    guarantee: Guarantee
    """The one of these that it keeps."""
    is_host_known: bool
    """Whether its server was reached, here or before: the name of its host may have no address for a while."""
    awaited: int
    """How many rows its server had when it was asked, and has not given yet; 0 where it does not tell."""

    def receive(self, mark: str | None) -> Generator[Batch | None, None, None]:
        """Connect, and give rows; None where there are none now.

        It is asked for more when what it gave is durable: then it tells its server. ``mark`` is where to go on. Raises
        ``FeedBrokenError`` where it can connect again, an ``OnceonlyError`` where that does not help.
        """
        ...

    def pause(self, seconds: float) -> None:
        """Wait while the journal is full, and keep the connection."""
        ...


class Gather:
    """Rows that wait for others: until ``linger`` is over, or they are many. One thread."""

    def __init__(self, columns: Mapping[str, str], limits: Limits) -> None:
        self._columns = columns
        self._limits = limits
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0
        self._since = 0.0
        self._touched = time.monotonic()
        self._quiet_s = FIRST_S

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, value: bytes, *others: object) -> None:
        """Take a row: its value, the moment of its arrival (set here), and the feed's other columns."""
        self.touch()
        if not self._rows:
            self._since = self._touched
        self._rows.append((value, time.time_ns() // 1000, *others))
        self._bytes += len(value)
        self._quiet_s = TICK_S

    def touch(self) -> None:
        """Note that the feed is just beginning to give rows, or has given one."""
        self._touched = time.monotonic()

    @property
    def is_idle(self) -> bool:
        """Say whether no row waits and none has come for ``TICK_S``, or none at all for ``FIRST_S``."""
        return not self._rows and time.monotonic() - self._touched >= self._quiet_s

    @property
    def wait_s(self) -> float:
        """How long the next row may be waited for."""
        if not self._rows:
            return TICK_S
        return min(TICK_S, max(0.0, self._since + self._limits.linger_s - time.monotonic()))

    @property
    def is_due(self) -> bool:
        """Say whether there are rows that should wait no longer."""
        return bool(self._rows) and (
            self._bytes >= self._limits.segment_bytes or len(self._rows) >= _ROWS_MAX or self.wait_s <= 0
        )

    def take(self, mark: str | None = None) -> Batch:
        """Return the rows, and begin anew."""
        rows, self._rows, self._bytes = self._rows, [], 0
        return Batch(rows=table(self._columns, rows), mark=mark)


class Lines:
    """Cuts bytes at line ends. What comes after the last one waits for its end."""

    def __init__(self, limit: int, of: str) -> None:
        self._limit = limit
        self._of = of
        self._rest = b""

    @property
    def rest(self) -> bytes:
        """What came after the last line end."""
        return self._rest

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes, give whole lines without their ends. Raises ``RecordRefusedError`` for a line without end."""
        *lines, self._rest = (self._rest + data).split(b"\n") if b"\n" in data else (self._rest + data,)
        if len(self._rest) > self._limit or any(len(line) > self._limit for line in lines):
            raise RecordRefusedError(
                f"{self._of} sent a line of more than {self._limit} bytes",
                next_step="raise segmentBytes above its longest line, if such lines are meant",
            )
        return [line.removesuffix(b"\r") for line in lines]


def table(columns: Mapping[str, str], rows: list[tuple[Any, ...]]) -> pa.Table:
    """Return rows as a table of a feed's columns."""
    pa = arrow()
    by_column = list(zip(*rows, strict=True)) or [()] * len(columns)
    schema = schema_of(columns)
    arrays = [pa.array(values, field.type) for values, field in zip(by_column, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def schema_of(columns: Mapping[str, str]) -> pa.Schema:
    """Return the Arrow schema of a feed's columns."""
    pa = arrow()
    types = {
        "binary": pa.binary(), "string": pa.string(), "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"), "map": pa.map_(pa.string(), pa.string()),
    }  # fmt: skip
    return pa.schema([pa.field(name, types[kind]) for name, kind in columns.items()])


def guarantee_of(feed: Feed, options: Mapping[str, Any], *, lacks: str, next_step: str) -> Guarantee:
    """Return the guarantee asked, or the strongest. Raises ``ConfigurationError`` for one that cannot be kept."""
    asked = options[GUARANTEE]
    if asked is None:
        return feed.guarantees[0]
    if Guarantee(asked) not in feed.guarantees:
        raise ConfigurationError(f"{feed.of} cannot be read {asked}: {lacks}", next_step=next_step)
    return Guarantee(asked)
