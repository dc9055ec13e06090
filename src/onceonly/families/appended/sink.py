"""The sink that appended sinks derive from: envelopes and refused rows are here, the target is theirs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from onceonly.errors import RecordRefusedError
from onceonly.families.appended import values
from onceonly.families.columns import require_told_apart
from onceonly.model import Capabilities, Committed, Guarantee
from onceonly.ports import Refused, TwoPhaseCommitSink

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from onceonly.model import Handle, Outcome
    from onceonly.options import Option
    from onceonly.ports import QueryContext, WriteContext


class Appender(Protocol):
    """The way of one attempt into a target. Executor, one thread. Each method raises a typed error."""

    def append(self, batch: pa.RecordBatch, values: Sequence[bytes]) -> None:
        """Append rows: ``values`` are their bytes. Some may be on their way still."""
        ...

    def finish(self) -> None:
        """Wait until the target has acknowledged all of them."""
        ...

    def close(self) -> None:
        """Give back what it holds. Idempotent; also after an error."""
        ...


@dataclass(slots=True)
class AppendedAttempt:
    """What one attempt has begun, and how many of its slot's rows it has seen."""

    context: WriteContext
    appender: Appender
    rows: int = 0


class AppendedSink(TwoPhaseCommitSink[AppendedAttempt]):
    """Rows that are seen as they are written. Derive from it, and define its abstract methods."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        guarantees=frozenset({Guarantee.AT_LEAST_ONCE}),
        gives_back=True,
        lacks=f"a row that was appended can be neither taken back nor looked up, so one whose epoch is run again is "
        f"there twice; with {values.ENVELOPE.name}={values.JSON} its reader can drop it",
    )
    declared: ClassVar[tuple[Option, ...]] = (values.ENVELOPE,)
    letter_columns: ClassVar[tuple[str, ...]] = (values.VALUE,)

    # --- what a sink defines --------------------------------------------------------------------------------

    def look(self) -> Mapping[str, str | int]:
        """See whether the target can be written to; return facts. Driver, once a run. Raises a typed error."""
        return {}

    def beside(self) -> Sequence[str]:
        """Name the columns that may stand beside ``value``. Pure."""
        return ()

    def unfit(
        self,
        batch: pa.RecordBatch,  # noqa: ARG002  for those who look
        rows: Sequence[bytes | None],  # noqa: ARG002
        facts: Mapping[str, str | int],  # noqa: ARG002
    ) -> Iterable[Refused]:
        """Yield the rows that the target will never take, by their places. Executor; only looks.

        Rows without bytes are refused already.
        """
        return ()

    @abstractmethod
    def open(self, context: WriteContext) -> Appender:
        """Begin an attempt. Executor. Raises a typed error."""

    # --- what the family does -------------------------------------------------------------------------------

    def check(self, context: QueryContext) -> Mapping[str, str | int]:
        if context.columns:
            require_told_apart((name for name, _ in context.columns), f"the sink {self.name}")
            values.check(
                dict(context.columns), self.options["envelope"], self.beside(), f"The sink {self.name}"
            )
        return self.look()

    def begin_transaction(self, context: WriteContext) -> AppendedAttempt:
        return AppendedAttempt(context, self.open(context))

    def write(self, transaction: AppendedAttempt, batch: pa.RecordBatch) -> Sequence[Refused]:
        import pyarrow as pa

        context = transaction.context
        rows = values.values(batch, self.options["envelope"], context, transaction.rows)
        transaction.rows += batch.num_rows
        found = {each.row: each for each in self.unfit(batch, rows, context.facts)}
        found |= {row: _no_value(row) for row, value in enumerate(rows) if value is None}
        refused = [found[row] for row in sorted(found)]
        if refused and not context.gives_back:
            raise RecordRefusedError(
                f"a row of the sink {self.name}: {refused[0].why}", next_step=refused[0].next_step
            )
        kept = [row for row in range(batch.num_rows) if row not in found]
        if kept:
            some = batch if not found else batch.take(pa.array(kept))
            transaction.appender.append(some, [value for row in kept if (value := rows[row]) is not None])
        return refused

    def pre_commit(self, transaction: AppendedAttempt) -> None:
        transaction.appender.finish()
        transaction.appender.close()

    def discard(self, transaction: AppendedAttempt) -> None:
        transaction.appender.close()

    def commit(self, handle: Handle) -> Outcome:  # noqa: ARG002  no attempt gives one
        return Committed()

    def abort(self, handle: Handle) -> None:
        """Do nothing: what was appended stays."""


def _no_value(row: int) -> Refused:
    return Refused(
        row=row,
        code="NO_VALUE",
        why=f"its {values.VALUE} is null",
        next_step=f"fill it or filter it out; or set {values.ENVELOPE.name}={values.JSON}",
    )
