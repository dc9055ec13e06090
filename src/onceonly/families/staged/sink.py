"""The sink that staged sinks derive from: staging, committing, fencing and recovery are here, the target is theirs.

A file that somebody has removed after the decision is lost: its name is noted as void in the target's books, so that a
driver that still has its rows in hand cannot apply them, and the rows are written again.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.families.staged import files
from onceonly.families.staged.files import StagedFile
from onceonly.model import AlreadyCommitted, Capabilities, Committed, Guarantee, Handle, Lost
from onceonly.ports import Leftover, Option, TwoPhaseCommitSink

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from onceonly.model import Outcome
    from onceonly.ports import QueryContext, WriteContext


class StagedSink(TwoPhaseCommitSink[StagedFile]):
    """A target with transactions. Derive from it, and define ``apply``, ``known`` and ``void``.

    A committed handle is one whose name the target has in its own books, put there in the transaction that applied its
    rows. The books are the only word on an outcome; a staged file that is gone says nothing by itself.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        guarantees=frozenset({Guarantee.EXACTLY_ONCE}), recovers=True, whole_epochs=True
    )
    declared: ClassVar[tuple[Option, ...]] = (
        Option(
            name="staging",
            doc="a folder that driver and executors share, where rows wait for the decision; one of the query's "
            "checkpoint where it is left out",
            default="",
        ),
    )

    # --- what a sink defines --------------------------------------------------------------------------------

    @abstractmethod
    def apply(self, staged: Mapping[str, Path]) -> None:
        """Make the rows of these files visible and note their names, in one transaction of the target. Driver.

        All or nothing. A name that is in the books already, applied or void, as another driver was quicker, must make
        the whole transaction fail (a unique key does); the names are asked for again then. Raises
        ``UnavailableError`` for what may pass, another typed error for what does not.
        """

    @abstractmethod
    def known(self, names: Collection[str]) -> Collection[str]:
        """Return those of the names that the target's books have as applied. Driver; only looks.

        Raises ``UnavailableError``.
        """

    @abstractmethod
    def void(self, names: Collection[str]) -> Collection[str]:
        """Note as void, in one transaction, those of the names that the books do not have; return all that are void.

        From then on nobody can apply them. What is applied stays so, and is not returned. Driver, idempotent. Raises
        ``UnavailableError``.
        """

    # --- what the family does -------------------------------------------------------------------------------

    def begin_transaction(self, context: WriteContext) -> StagedFile:
        return StagedFile(self.folder(context.query, context.sink), context)

    def write(self, transaction: StagedFile, batch: pa.RecordBatch) -> None:
        transaction.write(batch)

    def pre_commit(self, transaction: StagedFile) -> Handle:
        transaction.finish()
        return Handle(
            transaction=transaction.name,
            data={"folder": str(transaction.path.parent.relative_to(self.home)), "rows": transaction.rows},
        )

    def discard(self, transaction: StagedFile) -> None:
        transaction.discard()

    def commit(self, handle: Handle) -> Outcome:
        return self.commit_many([handle])[0]

    def commit_many(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        paths = {handle.transaction: self._path(handle) for handle in handles}
        # The files before the books: what is committed between the two looks is in one of them.
        staged = {name: path for name, path in paths.items() if path.exists()}
        known = set(self.known(paths))
        waiting = {name: path for name, path in staged.items() if name not in known}
        if waiting:
            try:
                self.apply(waiting)
            except UnavailableError:
                # Another driver, or a thread of this one, may have been quicker; then all is well.
                if not set(waiting) <= set(self.known(waiting)):
                    raise
                known, waiting = known | set(waiting), {}
        gone = paths.keys() - staged.keys() - known
        void = set(self.void(gone)) if gone else set()
        for name, path in staged.items():
            if name in known or name in waiting:
                files.remove(path)
        return [
            Lost(f"{path} was removed before it was applied; the target's books have its name as void")
            if name in void
            else Committed()
            if name in waiting
            else AlreadyCommitted()
            for name, path in paths.items()
        ]

    def abort(self, handle: Handle) -> None:
        files.remove(self._path(handle))

    def recover(self, context: QueryContext) -> Iterable[Leftover]:
        folder = self.folder(context.query, context.sink)
        names = files.listed(folder)
        known = set(self.known(names)) if names else set()
        data = {"folder": str(folder.relative_to(self.home))}
        return [
            Leftover(transaction=name, data=data, epoch=files.epoch_of(name), is_open=name not in known)
            for name in names
        ]

    # --- places ---------------------------------------------------------------------------------------------

    @property
    def home(self) -> Path:
        """The folder in which staged files lie."""
        given = self.options["staging"] or self.place
        if not given:
            raise ConfigurationError(
                f"the sink {self.name} was made without a checkpoint, and has no place for staged rows",
                next_step="set its option staging to a folder that driver and executors share",
            )
        return Path(given)

    def folder(self, query: str, sink: str) -> Path:
        """Return the folder of one query's sink."""
        return self.home / query / sink

    def _path(self, handle: Handle) -> Path:
        return self.home / str(handle.data["folder"]) / handle.transaction
