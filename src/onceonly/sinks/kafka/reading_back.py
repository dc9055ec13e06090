"""Records read back as the rows that they were, and added up: keys, values, topics and headers, byte by byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceonly.ports.standing import NO_COLUMNS
from onceonly.rows.checksum import RowChecksum

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

_WRONG_LETTER = "\N{REPLACEMENT CHARACTER}"


class Values:
    """Adds up the rows of an epoch. ``unread`` says why not, or why another sum proves no change."""

    def __init__(self, columns: Sequence[tuple[str, str]], *, names_topic: bool) -> None:
        """``names_topic`` says that an option names the topic: then a column of that name is not written."""
        self.unread = "" if columns else NO_COLUMNS
        self._names = [name for name, _ in columns]
        self._sum = RowChecksum()
        self._is_read = bool(columns)
        for name in self._names:
            if name == "partition":
                self._leave("its column partition may have left the choice to the key")
            elif name not in {"key", "value", "headers", "topic"} or (name == "topic" and names_topic):
                self._leave(f"its column {name} is not written")

    @property
    def checksum(self) -> str:
        """The sum of all rows; empty where they are not read."""
        return self._sum.value if self._is_read else ""

    def add(self, topic: str, batch: Any) -> None:  # noqa: ANN401  kafka-python is untyped
        """Add the records of a batch, whose bytes are as they were written."""
        import pyarrow as pa

        from onceonly.sinks.kafka.wire.requests import UnsupportedCodecError

        if not self._is_read:
            return
        try:
            records = list(batch)
        except UnsupportedCodecError as error:
            self._leave(str(error))
            return

        columns = [self._column(name, topic, records) for name in self._names]
        self._sum.add(pa.RecordBatch.from_arrays(columns, self._names))

    def _column(self, name: str, topic: str, records: list[Any]) -> pa.Array:
        import pyarrow as pa

        if name == "topic":
            return pa.array([topic] * len(records))
        if name != "headers":
            return pa.array([getattr(each, name) for each in records], pa.binary())
        listed = [[{"key": key, "value": value} for key, value in each.headers] for each in records]
        if not all(listed):
            self.unread = "rows without headers may have had none, or an empty list"
        elif any(_WRONG_LETTER in each["key"] for some in listed for each in some):
            self.unread = "a header has a name that is no UTF-8"
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        return pa.array([some or None for some in listed], kind)

    def _leave(self, why: str) -> None:
        self.unread, self._is_read = why, False
