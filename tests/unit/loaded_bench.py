"""A bench for sinks of the loaded family: a target, attempts of a query, and what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from onceonly.model import Guarantee, Handle, Mode
from onceonly.ports import QueryContext, WriteContext
from onceonly.settings.registry import build, settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    import pytest

    from onceonly.ports import Sink
    from onceonly.settings.registry import SinkClass


def opened(target: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Give the list of the tables that a sink's target opens from now on, by their arguments."""
    found: list[object] = []
    find = target.find_table

    def counted(*of: Any) -> Any:  # noqa: ANN401  as the target's own
        found.append(of)
        return find(*of)

    monkeypatch.setattr(target, "find_table", counted)
    return found


class Bench:
    """A query ``q`` that writes to one target by sinks that are made anew, as processes do."""

    def __init__(
        self, kind: SinkClass, name: str, options: Mapping[str, str], columns: Mapping[str, str]
    ) -> None:
        self._kind, self._name, self._options = kind, name, dict(options)
        self.query = QueryContext(
            query="q", sink=name, guarantee=Guarantee.EXACTLY_ONCE, columns=tuple(columns.items())
        )

    def sink(self, **more: str) -> Sink:
        return build(settings_of({**self._options, **more}, self._name, self._kind).sink, self._kind)

    def check(self, **more: str) -> Mapping[str, str | int]:
        return self.sink(**more).check(self.query)

    def begin(
        self, epoch: int = 0, slot: int = 0, *, mode: Mode = Mode.RUN, gives_back: bool = False, **more: str
    ) -> tuple[Sink, Any]:
        sink = self.sink(**more)
        context = WriteContext(
            query="q", sink=self._name, run="r", epoch=epoch, plan="p", slot=slot, attempt="0",
            guarantee=Guarantee.EXACTLY_ONCE, facts=sink.check(self.query), mode=mode, gives_back=gives_back,
        )  # fmt: skip
        return sink, sink.begin_transaction(context)

    def prepared(
        self,
        rows: Sequence[Mapping[str, Any]] | pa.RecordBatch,
        epoch: int = 0,
        slot: int = 0,
        **more: Any,  # noqa: ANN401
    ) -> Handle:
        sink, attempt = self.begin(epoch, slot, **more)
        batch = rows if isinstance(rows, pa.RecordBatch) else pa.RecordBatch.from_pylist(list(rows))
        sink.write(attempt, batch)
        handle = sink.pre_commit(attempt)
        assert handle is not None
        return handle

    def committed(
        self,
        rows: Sequence[Mapping[str, Any]] | pa.RecordBatch,
        epoch: int = 0,
        **more: Any,  # noqa: ANN401
    ) -> Handle:
        handle = self.prepared(rows, epoch, **more)
        self.sink().commit(handle)
        return handle
