"""The sink that staged sinks derive from: staging, committing, fencing and recovery are here, the target is theirs.

What somebody has removed, or cut, after the decision is lost: its name is noted as void in the target's books, so that
a driver that still has its rows in hand cannot apply them, and the rows are written again.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from onceonly.errors import ConfigurationError, UnavailableError
from onceonly.families.staged import hanging
from onceonly.families.staged.area import StagedAttempt
from onceonly.families.staged.files import StagingFolder
from onceonly.families.staged.names import epoch_of
from onceonly.families.staged.stored import StagingStore
from onceonly.model import AlreadyCommitted, Capabilities, Committed, Guarantee, Handle, Lost
from onceonly.ports import Leftover, Option, TwoPhaseCommitSink
from onceonly.ports.standing import Standing, Stands
from onceonly.stores.address import parse
from onceonly.stores.opened import address_of, folder_of, open_store

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from onceonly.families.staged.area import Names, StagedRows, StagingArea
    from onceonly.model import Outcome
    from onceonly.ports import QueryContext, Refused, WriteContext
    from onceonly.ports.standing import Hanging
    from onceonly.stores.address import Address


class StagedSink(TwoPhaseCommitSink[StagedAttempt]):
    """A target with transactions. Derive from it, and define ``apply``, ``known`` and ``void``.

    A committed handle is one whose name the target has in its own books, put there in the transaction that applied its
    rows. The books are the only word on an outcome; staged rows that are gone say nothing by themselves.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        guarantees=frozenset({Guarantee.EXACTLY_ONCE}), recovers=True, whole_epochs=True
    )
    declared: ClassVar[tuple[Option, ...]] = (
        Option(
            name="staging",
            doc="where rows wait for the decision: a folder that driver and executors share, or a store's address as "
            "s3a://bucket/folder; one of the query's checkpoint where it is left out",
            default="",
        ),
    )

    # --- what a sink defines --------------------------------------------------------------------------------

    @abstractmethod
    def apply(self, staged: Mapping[str, StagedRows]) -> None:
        """Make these rows visible and note their names, in one transaction of the target. Driver.

        All or nothing. A name that is in the books already, applied or void, as another driver was quicker, must make
        the whole transaction fail (a unique key does); the names are asked for again then. Raises
        ``UnavailableError`` for what may pass, another typed error for what does not.
        """

    @abstractmethod
    def known(self, names: Names) -> Collection[str]:
        """Return those of the names that the target's books have as applied. Driver; only looks.

        They come with the data of their handles, for books with a place for each query. Raises ``UnavailableError``.
        """

    @abstractmethod
    def void(self, names: Names) -> Collection[str]:
        """Note as void, in one transaction, those of the names that the books do not have; return all that are void.

        From then on nobody can apply them. What is applied stays so, and is not returned. Driver, idempotent. Raises
        ``UnavailableError``.
        """

    def voided(self, names: Names) -> Collection[str]:  # noqa: ARG002  for those that can
        """Return those of the names that the target's books have as void. Driver; only looks.

        For sinks with ``refusals``: what an operator was about to divert may be void while it is staged. Raises
        ``UnavailableError``.
        """
        return ()

    def refusals(self, handle: Handle, beside: Sequence[Handle]) -> Sequence[Refused]:  # noqa: ARG002  for those that can
        """Return which rows of a decided handle the target refuses, by their place, with those ``beside`` it applied.

        Operator's process, while the job is down; changes nothing. Raises ``ConfigurationError`` where nobody can tell.
        """
        raise ConfigurationError(
            f"the sink {self.name} cannot tell which rows its target refuses",
            next_step="mend the target so that it takes them, and start the query",
        )

    def sift(self, handles: Sequence[Handle], most: int) -> Mapping[str, Sequence[Refused]]:  # noqa: ARG002  as above
        """Return which rows the target refuses of an epoch that is not decided, by their transaction and place in it.

        Driver, where ``rehearse`` has raised ``RecordRefusedError``, and there are dead letters; changes nothing. With
        more than ``most`` of them, some need not be returned. Empty where nobody can tell, or no row is the wrong one.
        """
        return {}

    # --- what a sink may use --------------------------------------------------------------------------------

    def staged(self, handles: Sequence[Handle]) -> dict[str, StagedRows]:
        """Return the rows of those handles that stand, by name: to ``rehearse`` them. Driver.

        Raises ``UnavailableError``.
        """
        found: dict[str, StagedRows] = {}
        for folder, together in _by_folder(handles).items():
            found.update(self._area(folder).standing(together))
        return found

    # --- what the family does -------------------------------------------------------------------------------

    def stage_again(self, context: WriteContext, rows: pa.RecordBatch, of: Handle) -> Handle:  # noqa: ARG002
        """Stage rows ``of`` a handle once more, as they are, and return theirs. Operator's process."""
        attempt = self._area(_folder(context)).begin(context)
        attempt.write(rows)
        attempt.finish()
        return Handle(transaction=attempt.name, data=attempt.data)

    def check(self, context: QueryContext) -> Mapping[str, str | int]:  # noqa: ARG002
        """See that the store which the option ``staging`` names is fit. That of the checkpoint is known to be."""
        if self.options["staging"]:
            address = self._home()
            if folder_of(address) is None:
                open_store(address).prepare(())
        return {}

    def begin_transaction(self, context: WriteContext) -> StagedAttempt:
        return self._area(_folder(context)).begin(context)

    def write(self, transaction: StagedAttempt, batch: pa.RecordBatch) -> Sequence[Refused] | None:
        transaction.write(batch)
        return None

    def pre_commit(self, transaction: StagedAttempt) -> Handle:
        transaction.finish()
        return Handle(transaction=transaction.name, data=transaction.data)

    def discard(self, transaction: StagedAttempt) -> None:
        transaction.discard()

    def commit(self, handle: Handle) -> Outcome:
        return self.commit_many([handle])[0]

    def commit_many(self, handles: Sequence[Handle]) -> Sequence[Outcome]:
        names = named(handles)
        # What is staged before the books: what is committed between the two looks is in one of them.
        staged = self.staged(handles)
        known = set(self.known(names))
        waiting = {name: rows for name, rows in staged.items() if name not in known}
        void: set[str] = set()
        if waiting:
            try:
                self.apply(waiting)
            except UnavailableError:
                # Another driver, or a thread of this one, may have been quicker, or an operator has voided some.
                asked = {name: names[name] for name in waiting}
                known |= set(self.known(asked))
                void = set(self.voided(asked))
                left = waiting.keys() - known - void
                if left == waiting.keys():
                    raise
                waiting = {name: waiting[name] for name in left}
                if waiting:
                    self.apply(waiting)
        gone = {name: names[name] for name in names.keys() - staged.keys() - known}
        void |= set(self.void(gone)) if gone else set()
        self._remove([handle for handle in handles if handle.transaction in staged])
        return [
            Lost(
                f"what was staged as {name} was removed or cut before it was applied; the target's books have it as "
                "void"
            )
            if name in void
            else Committed()
            if name in waiting
            else AlreadyCommitted()
            for name in (handle.transaction for handle in handles)
        ]

    def abort(self, handle: Handle) -> None:
        if handle.data:  # else it is the newest epoch, of which nothing is open
            self._remove([handle])

    def look_up(self, handle: Handle) -> Standing:
        # What is staged before the books, as in a commit.
        is_staged = handle.transaction in self.staged([handle])
        if handle.transaction in self.known(named([handle])):
            return Standing(
                stands=Stands.COMMITTED,
                told="the target's books have it as applied",
                blocks=hanging.BLOCKS,
                until="for good",
            )
        if is_staged and self.voided(named([handle])):
            return Standing(
                stands=Stands.GONE,
                told="the target's books have it as void, as an operator was about to divert it: nobody can apply it",
                blocks=hanging.BLOCKS,
                until="it has ended",
            )
        if is_staged:
            return Standing(
                stands=Stands.OPEN,
                told="its rows are staged, and the target's books do not have it: nothing of it is in the target",
                blocks=hanging.BLOCKS,
                until="until somebody removes what is staged: no time-out ends it",
            )
        return Standing(
            stands=Stands.GONE,
            told="it is neither staged as a whole nor in the target's books, which keep the newest epochs",
            blocks=hanging.BLOCKS,
            until="it has ended",
        )

    def recover(self, context: QueryContext) -> Iterable[Leftover]:
        found = self._area(_folder(context)).listed()
        known = set(self.known(found)) if found else set()
        return [
            Leftover(transaction=name, data=data, epoch=epoch_of(name), is_open=name not in known)
            for name, data in found.items()
        ]

    def hanging(self) -> Iterable[Hanging]:
        """List what is staged in a folder of its own, of whichever query, and is not applied.

        What was staged in a checkpoint went with it.
        """
        return hanging.staged(self._home(), self.recover) if self.options["staging"] else ()

    # --- places ---------------------------------------------------------------------------------------------

    def _remove(self, handles: Sequence[Handle]) -> None:
        for folder, together in _by_folder(handles).items():
            self._area(folder).remove(together)

    def _area(self, folder: str) -> StagingArea:
        address, data = self._home(), {"folder": folder}
        local = folder_of(address)
        if local is not None:
            return StagingFolder(local / folder, data)
        return StagingStore(open_store(address.below(folder), private=True), data)

    def _home(self) -> Address:
        given = self.options["staging"]
        if given:
            return address_of(given, what="the option staging")
        if not self.place:
            raise ConfigurationError(
                f"the sink {self.name} was made without a checkpoint, and has no place for staged rows",
                next_step="set its option staging to a folder that driver and executors share",
            )
        return parse(self.place)


def _folder(context: QueryContext | WriteContext) -> str:
    return f"{context.query}/{context.sink}"


def newest_of(context: QueryContext, epoch: int) -> Leftover:
    """Return the newest epoch of a target's books as a sweep is told of it: an older checkpoint is noticed by it."""
    name = f"the newest epoch of {context.query}.{context.sink}"
    return Leftover(transaction=name, is_open=False, committed=epoch)


def named(handles: Iterable[Handle]) -> Names:
    """Return the names of handles, as the books are asked for them."""
    return {handle.transaction: handle.data for handle in handles}


def _by_folder(handles: Sequence[Handle]) -> dict[str, list[Handle]]:
    found: dict[str, list[Handle]] = {}
    for handle in handles:
        found.setdefault(str(handle.data["folder"]), []).append(handle)
    return found
