"""The socket sink: each row a line, sent by executors; one connection an attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from onceonly.families.appended import AppendedSink
from onceonly.ports import Refused
from onceonly.sinks.socket.options import ANSWER, DECLARED
from onceonly.sinks.socket.target import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from onceonly.options import Option
    from onceonly.ports import WriteContext


class SocketSink(AppendedSink):
    """Rows as lines to a reader that listens, at least once: what a try that is given up has sent was read."""

    name: ClassVar[str] = "socket"
    declared: ClassVar[tuple[Option, ...]] = DECLARED

    def identity(self) -> Mapping[str, str | int]:
        return {"host": self.options["host"], "port": self.options["port"]}

    def look(self) -> Mapping[str, str | int]:
        probe = self._connect()  # a reader gets a connection without a line
        probe.close()
        return {}

    def unfit(
        self,
        batch: pa.RecordBatch,  # noqa: ARG002  the bytes say all
        rows: Sequence[bytes | None],
        facts: Mapping[str, str | int],  # noqa: ARG002
    ) -> Iterator[Refused]:
        for row, line in enumerate(rows):
            if line is not None and b"\n" in line:
                yield Refused(
                    row=row,
                    code="LINE_END",
                    why="it has an end of a line inside, and a reader would take it for two",
                    next_step="encode it, as JSON does; or set envelope=json",
                )

    def open(self, context: WriteContext) -> _Appender:  # noqa: ARG002  all attempts are alike
        return _Appender(self._connect())

    def _connect(self) -> Connection:
        given = self.options
        answers = given["acknowledge"] == ANSWER
        return Connection(given["host"], given["port"], given["timeout"], answers=answers)


class _Appender:
    """One attempt; fulfils ``Appender``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def append(self, batch: pa.RecordBatch, values: Sequence[bytes]) -> None:  # noqa: ARG002  their bytes do
        self._connection.send(values)

    def finish(self) -> None:
        self._connection.finish()

    def close(self) -> None:
        self._connection.close()
