"""The Kinesis sink: each row a record, put by executors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from onceonly.errors import UnavailableError
from onceonly.families.appended import AppendedSink
from onceonly.families.kinesis import RefusedCallError, Stream, StreamOptions
from onceonly.ports import Refused
from onceonly.sinks.kinesis import types
from onceonly.sinks.kinesis.options import DECLARED, PARTITION_KEY
from onceonly.sinks.kinesis.target import Records, size_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from onceonly.options import Option
    from onceonly.ports import QueryContext, WriteContext

_RECORD_BYTES = "record_bytes"
_RECORD_BYTES_MAX = 1 << 20
"""What every stream takes; one may be set to take more."""
_WRITABLE = {"ACTIVE", "UPDATING"}


class KinesisSink(AppendedSink):
    """Rows into a stream of Kinesis, at least once: it neither drops a repeat nor takes a record back."""

    name: ClassVar[str] = "kinesis"
    declared: ClassVar[tuple[Option, ...]] = DECLARED

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._stream = Stream(StreamOptions.of(self.options, "the sink kinesis"), "the sink kinesis")

    def identity(self) -> Mapping[str, str | int]:
        given = self._stream.options
        return {"stream": given.stream, "region": given.region or "", "endpoint": given.endpoint or ""}

    def beside(self) -> Sequence[str]:
        return (self.options[PARTITION_KEY] or PARTITION_KEY,)

    def check(self, context: QueryContext) -> Mapping[str, str | int]:
        if context.columns:
            types.check(dict(context.columns), self.options[PARTITION_KEY], PARTITION_KEY, "the sink kinesis")
        return super().check(context)

    def require_rights(self, context: QueryContext, *, user: int | None = None) -> str:  # noqa: ARG002  the service's users
        may_look = self._described() is not None
        where = self._stream.options.where
        seen = f"the stream {where} is there" if may_look else f"this user may not look at the stream {where}"
        return f"{seen}, and whether records may be put into it shows only in putting some"

    def look(self) -> Mapping[str, str | int]:
        found = self._described()
        if found is None:
            return {_RECORD_BYTES: _RECORD_BYTES_MAX}
        kibibytes = found.get("MaxRecordSizeInKiB")
        return {_RECORD_BYTES: _RECORD_BYTES_MAX if kibibytes is None else int(kibibytes) << 10}

    def _described(self) -> Mapping[str, Any] | None:
        """Return what the service says of a stream that takes records; None where this user may not look at it."""
        try:
            answer = self._stream.ask("describe_stream_summary", own=("AccessDeniedException",))
        except RefusedCallError:  # who may put records need not be allowed to look
            return None
        found: Mapping[str, Any] = answer["StreamDescriptionSummary"]
        if found["StreamStatus"] not in _WRITABLE:
            raise UnavailableError(
                f"the stream {self._stream.options.where} is {found['StreamStatus']}, and takes no records",
                next_step="wait until it is ACTIVE, and start the query again",
            )
        return found

    def unfit(
        self, batch: pa.RecordBatch, rows: Sequence[bytes | None], facts: Mapping[str, str | int]
    ) -> Iterator[Refused]:
        keys = self.keys(batch)
        yield from types.refused(keys)
        limit = int(facts.get(_RECORD_BYTES, _RECORD_BYTES_MAX))
        for row, (key, data) in enumerate(zip(keys, rows, strict=True)):
            size = size_of(key or "", data or b"")
            if size > limit:
                yield Refused(
                    row=row,
                    code="TOO_LARGE",
                    why=f"it has {size} bytes with its partition key, and the stream takes {limit}",
                    next_step="make it smaller, or filter it out",
                )

    def open(self, context: WriteContext) -> _Appender:  # noqa: ARG002  all attempts are alike
        return _Appender(self, Records(self._stream))

    def keys(self, batch: pa.RecordBatch) -> Sequence[str | None]:
        """Return the partition key of each row."""
        return types.texts(batch, self.options[PARTITION_KEY], PARTITION_KEY)


class _Appender:
    """One attempt; fulfils ``Appender``."""

    def __init__(self, sink: KinesisSink, records: Records) -> None:
        self._sink, self._records = sink, records

    def append(self, batch: pa.RecordBatch, values: Sequence[bytes]) -> None:
        keys = self._sink.keys(batch)
        self._records.add(zip([key or "" for key in keys], values, strict=True))

    def finish(self) -> None:
        self._records.send()

    def close(self) -> None:
        """The sink keeps the client."""
