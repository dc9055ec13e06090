"""What the author of a sink gives: the sink, a target and a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from onceonly.model import Visible
from onceonly.settings.query import VISIBLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pyarrow as pa

    from onceonly.ports import TwoPhaseCommitSink


class Subject:
    """A sink with a target and a reader; ``SinkConformance`` adds the tests."""

    sink: ClassVar[type[TwoPhaseCommitSink[Any]]]
    """The class to be tested, as it is."""
    outlives_processes: ClassVar[bool] = True
    """False for a target in the memory of one process. There are no crash tests then, as a crash leaves nothing."""
    early: ClassVar[bool] = False
    """Test the sink with ``onceonly.visible=early``: its rows are seen before they are decided."""
    every_pass: ClassVar[bool] = True
    """Kill at every pass of every crash point, and at every point of the recovery. False for a target of which a
    process takes more than a tenth of a second, to kill at one pass of each, and at fewer points of the recovery."""

    def options(self, folder: Path) -> dict[str, str]:
        """Make an empty target of its own and return the sink's options for it. Several times a test.

        ``folder`` is an empty folder that is removed afterwards. Give the secret options a value, too.
        """
        raise NotImplementedError(f"{type(self).__name__} must define options(self, folder)")

    def visible(self, options: Mapping[str, str]) -> Iterable[Any]:
        """Read every row that anybody can see now, each as a tuple of values in the order of the columns.

        From several threads, also while the sink is at work; shares no code with the sink.
        """
        raise NotImplementedError(f"{type(self).__name__} must define visible(self, options)")

    def orphans(self, options: Mapping[str, str]) -> Iterable[str]:  # noqa: ARG002  for those who look
        """Name what is open or staged in the target, read without the sink. Optional: none is looked for by default."""
        return ()

    def batch(self, numbers: list[int]) -> pa.RecordBatch:
        """Make the rows of these numbers, all different. By default, columns ``key`` and ``value``, both text."""
        import pyarrow as pa

        return pa.RecordBatch.from_pydict(
            {
                "key": [f"k{number % 3}" for number in numbers],
                "value": [f"row {number}" for number in numbers],
            },
            schema=pa.schema([("key", pa.string()), ("value", pa.string())]),
        )

    def samples(self) -> Mapping[str, pa.RecordBatch]:
        """Return rows with the types and values that the sink claims to keep, by a name for each kind.

        By default, texts in the columns ``key`` and ``value``; nothing where ``batch`` is another one.
        """
        import pyarrow as pa

        if type(self).batch is not Subject.batch:
            return {}
        texts = ["", " ", "0", "Ünïcödé ☃ 𝄞", "a\nb\t\"c\" 'd',\\", "x" * 10_000]
        schema = pa.schema([("key", pa.string()), ("value", pa.string())])
        return {
            "texts": pa.RecordBatch.from_pydict({"key": ["k"] * len(texts), "value": texts}, schema=schema)
        }

    def columns(self) -> tuple[tuple[str, str], ...]:
        """Return name and Spark type of each column of ``batch``, for ``check``."""
        return columns_of(self.batch([0]))

    def refusable(self) -> pa.RecordBatch:
        """Make rows, with the columns of ``batch``, that the target will never take. Optional.

        For a sink that gives them back (``capabilities.gives_back``).
        """
        raise NotImplementedError  # never called: a suite that does not give it has its test left out, and told

    def unreachable(self, options: Mapping[str, str]) -> AbstractContextManager[None]:
        """Make the target unreachable while the context lasts. Optional."""
        raise NotImplementedError  # never called: a suite that does not give it has its tests left out, and told

    def choice(self) -> Mapping[str, str]:
        """Return the query's own options for what is tested."""
        return {VISIBLE: Visible.EARLY.value} if self.early else {}

    def columns_given(self) -> tuple[tuple[str, str], ...]:
        """Return the columns as the runtime does, with both names and types as text."""
        return tuple((str(name), str(kind)) for name, kind in self.columns())


def columns_of(batch: pa.RecordBatch) -> tuple[tuple[str, str], ...]:
    """Return the columns of a batch with Spark's names of their types. Pure; plain types only."""
    spark = {
        "string": "string", "large_string": "string", "binary": "binary", "bool": "boolean", "int8": "tinyint",
        "int16": "smallint", "int32": "int", "int64": "bigint", "float": "float", "double": "double",
        "date32[day]": "date", "timestamp[us, tz=UTC]": "timestamp", "timestamp[us]": "timestamp_ntz",
    }  # fmt: skip
    unknown = [str(field.type) for field in batch.schema if str(field.type) not in spark]
    if unknown:
        raise NotImplementedError(f"define columns(self): the Spark type of {unknown[0]} is not known here")
    return tuple((field.name, spark[str(field.type)]) for field in batch.schema)
