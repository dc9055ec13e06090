"""One attempt at a slot of a keyed sink: which rows of its keys stay, and what of them waits for the decision."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.families.keyed.rows import Choice, KeyedRows
from onceonly.families.keyed.versions import Origin

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from onceonly.families.keyed.options import Columns
    from onceonly.families.staged.area import StagedAttempt
    from onceonly.ports import WriteContext


class KeyedAttempt:
    """What one attempt has chosen and staged; fulfils ``StagedAttempt``. Executor, one thread.

    ``staged`` is None at least once: then nothing waits for a decision.
    """

    def __init__(self, context: WriteContext, columns: Columns, staged: StagedAttempt | None) -> None:
        self.context = context
        self.origin = Origin.of(context, chosen=columns.sequence is not None)
        self.choice = Choice(columns)
        self.is_staged = staged is not None
        self._staged = staged
        self._is_empty = True

    @property
    def at_once(self) -> bool:
        """Whether its rows go to the target as they come."""
        return self.context.early or not self.is_staged

    @property
    def name(self) -> str:
        return self._staged.name if self._staged is not None else ""

    @property
    def data(self) -> Mapping[str, str | int]:
        return self._staged.data if self._staged is not None else {}

    def write(self, batch: pa.RecordBatch) -> None:
        if self._staged is not None:
            self._staged.write(self.origin.marked(batch))
            self._is_empty = False

    def finish(self) -> None:
        if self._staged is None:
            return
        if self._is_empty:  # all of its rows were passed over
            none = KeyedRows.none().staged(keys_only=True)
            self._staged.write(replace(self.origin, early=True).marked(none))
        self._staged.finish()

    def discard(self) -> None:
        if self._staged is not None:
            self._staged.discard()
