"""The console sink: executors keep a few rows of each slot, the driver prints them."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from onceonly.model import Capabilities, Committed, Guarantee, Handle, Outcome
from onceonly.ports import TwoPhaseCommitSink, WriteContext
from onceonly.rows.json_rows import values
from onceonly.sinks.console import committer
from onceonly.sinks.console.options import DECLARED

if TYPE_CHECKING:
    import pyarrow as pa

    from onceonly.options import Option

# A handle is stored in the decision log; what a cell holds is cut even where truncate is off.
_CELL_MAX = 1000


@dataclass(slots=True)
class Sample:
    """The first rows of a slot, rendered, and how many there were."""

    context: WriteContext
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    count: int = 0


class ConsoleSink(TwoPhaseCommitSink[Sample]):
    """Prints to the driver's standard output. At least once: an epoch that is run again prints again."""

    name: ClassVar[str] = "console"
    capabilities: ClassVar[Capabilities] = Capabilities(guarantees=frozenset({Guarantee.AT_LEAST_ONCE}))
    declared: ClassVar[tuple[Option, ...]] = DECLARED

    def begin_transaction(self, context: WriteContext) -> Sample:
        """Begin an empty sample."""
        return Sample(context)

    def write(self, transaction: Sample, batch: pa.RecordBatch) -> None:
        """Keep rows up to ``numRows``, and count all."""
        transaction.columns = list(batch.schema.names)
        missing = self.options["numRows"] - len(transaction.rows)
        for row in zip(*map(values, batch.slice(0, max(missing, 0)).columns), strict=True):
            transaction.rows.append([self._cell(value) for value in row])
        transaction.count += batch.num_rows

    def pre_commit(self, transaction: Sample) -> Handle:
        """Return the sample as the handle: the driver prints it, and needs nothing else."""
        context = transaction.context
        return Handle(
            transaction=f"{context.epoch}.{context.slot}.{uuid.uuid4().hex[:12]}",
            data={
                "epoch": context.epoch,
                "slot": context.slot,
                "count": transaction.count,
                "columns": json.dumps(transaction.columns),
                "rows": json.dumps(transaction.rows),
            },
        )

    def commit(self, handle: Handle) -> Outcome:
        """Print the sample. Repeated, it prints again: nobody can see whether it was read."""
        committer.show(handle)
        return Committed()

    def abort(self, handle: Handle) -> None:
        """Do nothing: nothing was printed."""

    def _cell(self, value: object) -> str:
        text = "NULL" if value is None else str(value)
        width = min(self.options["truncate"] or _CELL_MAX, _CELL_MAX)
        if len(text) <= width:
            return text
        # As Dataset.show does it: three dots where they fit.
        return text[:width] if width < len("....") else f"{text[: width - 3]}..."
