"""A query's sinks on one keyed store, without Spark: what their tests on real servers have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from onceonly.families.keyed import KeyedSink
from onceonly.model import Committed, Guarantee
from onceonly.ports import QueryContext, WriteContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from onceonly.model import Handle

S = TypeVar("S", bound=KeyedSink)


class KeyedBench(Generic[S]):
    """Makes sinks of one kind with the same options, and writes with them."""

    def __init__(self, kind: type[S], options: Mapping[str, str]) -> None:
        self.kind = kind
        self.options = dict(options)
        self.made: list[S] = []

    def sink(self, **more: str) -> S:
        self.made.append(self.kind({**self.options, **more}))
        return self.made[-1]

    def context(self, epoch: int = 0, slot: int = 0, **more: Any) -> WriteContext:  # noqa: ANN401  fields of it
        asks = QueryContext(query="q", sink=self.kind.name, guarantee=Guarantee.EXACTLY_ONCE)
        facts = more.pop("facts", None) or self.sink().check(asks)
        context = WriteContext(
            query="q", sink=self.kind.name, run="r", epoch=epoch, plan="p", slot=slot, attempt="0",
            guarantee=Guarantee.EXACTLY_ONCE, facts=facts,
        )  # fmt: skip
        return replace(context, **more)

    def staged(self, rows: pa.RecordBatch, sink: S | None = None, **more: Any) -> Handle:  # noqa: ANN401  as above
        sink = sink or self.sink()
        attempt = sink.begin_transaction(self.context(**more))
        sink.write(attempt, rows)
        handle = sink.pre_commit(attempt)
        assert handle is not None
        return handle

    def committed(self, rows: pa.RecordBatch, **more: Any) -> Handle:  # noqa: ANN401  as above
        handle = self.staged(rows, **more)
        assert self.sink().commit(handle) == Committed()
        return handle

    def close(self) -> None:
        for sink in self.made:
            sink.close()
