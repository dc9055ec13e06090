"""The file sink: parquet, ORC, JSON lines, CSV or text in a folder, exactly once."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from onceonly.model import Capabilities, Guarantee, Handle, Outcome
from onceonly.ports import Leftover, Option, Part, QueryContext, TwoPhaseCommitSink, WriteContext
from onceonly.sinks.files import auditing, checks, committer, looking_up, mixing, past, withdrawing
from onceonly.sinks.files.manifests.expiry import Retention
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.options import DECLARED, FilesOptions, refuse_sparks_own
from onceonly.sinks.files.paths import manifest_folder, place, real, staging_folder
from onceonly.sinks.files.prepared import Prepared
from onceonly.sinks.files.renewing import Renewal
from onceonly.sinks.files.staging import hanging
from onceonly.sinks.files.store import store_of, unavailable
from onceonly.sinks.files.targets.folders import FolderTarget
from onceonly.sinks.files.writer import Attempt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from onceonly.ports import Refused
    from onceonly.ports.standing import Hanging, Held, Standing, TakenBack
    from onceonly.sinks.files.objects import ObjectFiles
    from onceonly.sinks.files.store import Store
    from onceonly.sinks.files.targets.port import Target


class FilesSink(TwoPhaseCommitSink[Attempt]):
    """Rows to files: first under hidden names, at commit under their own, at last in a manifest of the epoch."""

    name: ClassVar[str] = "files"
    capabilities: ClassVar[Capabilities] = Capabilities(
        guarantees=frozenset(Guarantee), recovers=True, gives_back=True
    )
    declared: ClassVar[tuple[Option, ...]] = DECLARED

    def __init__(self, options: Mapping[str, str]) -> None:
        refuse_sparks_own(options)
        super().__init__(options)
        self._files = FilesOptions.of(self.options, options)
        self._store = store_of(self._files.target)
        self._root: Path | None = None
        self._renewal: Renewal | None = None
        self._retention: Retention | None = None
        self._has_begun = False
        """Whether the query is known to have an epoch in the target."""

    @cached_property
    def _target(self) -> Target:
        return target_of(self._store, self._files)

    def check(self, context: QueryContext) -> Mapping[str, str | int]:
        """Refuse wrong columns and targets, make the folders, and note how the files are to be read."""
        self._root = staging_folder(self._files.staging, context.query, context.sink)
        return checks.check(self._target, self._files, context)

    def identity(self) -> Mapping[str, str | int]:
        """Name the target, by its own id too: an empty mount point has its name. The id is made by ``check``."""
        try:
            token = checks.read_token(self._store, self._files.target)
        except OSError as error:
            raise unavailable(f"{self._files.target} could not be read", error) from error
        named: dict[str, str | int] = {"path": str(real(self._files.target)), "format": self._files.form}
        return named if token is None else {**named, "token": token}

    def overlaps(self, identity: Mapping[str, str | int]) -> bool:
        """Say whether one of the two folders is, or lies in, the other: whoever reads that one reads both."""
        own, other = real(self._files.target), place(identity["path"])
        return own == other or own in other.parents or other in own.parents

    def begin_transaction(self, context: WriteContext) -> Attempt:
        """Make the place of the attempt's temporary files."""
        # A path that is relative is so where the driver is.
        target, staging = place(context.facts["target"]), place(context.facts["staging"])
        options = replace(self._files, target=target, staging=staging)
        return Attempt(context, options, target_of(self._store, options))

    def write(self, transaction: Attempt, batch: pa.RecordBatch) -> Sequence[Refused]:
        """Write the rows of a batch to the files of their partitions; give back what no file can hold."""
        return transaction.write(batch)

    def pre_commit(self, transaction: Attempt) -> Handle:
        """Make all files durable; at least once, publish them too."""
        handle = transaction.pre_commit()
        return committer.of_target(handle, str(transaction.context.facts["token"]))

    def discard(self, transaction: Attempt) -> None:
        """Drop the attempt's temporary files."""
        transaction.discard()

    def rehearse(self, handles: Sequence[Handle], facts: Mapping[str, str | int]) -> None:  # noqa: ARG002
        """See that a query's first epoch goes with those of others who begin at the same time."""
        if not self._has_begun:
            first = Prepared.of(handles[0])
            own, target = Ledger(self._target.files, first.manifests), self._files.target
            try:
                self._has_begun = mixing.claim(self._target.files, target, own, first.layout)
            except OSError as error:
                raise unavailable(
                    f"what is about to be written to {target} could not be compared", error
                ) from error

    def commit(self, handle: Handle) -> Outcome:
        """Give each file its final name."""
        return committer.commit(self._target, self._files.target, handle)

    def abort(self, handle: Handle) -> None:
        """Drop the temporary files, and with their folder the place where a paused attempt could go on."""
        self._target.abort(handle, root=self._root)

    def make_durable(self, handles: Sequence[Handle]) -> None:
        """Make the final names durable."""
        committer.make_durable(self._target, self._files.target, handles)

    def complete(self, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        """Make the epoch durable, and put its manifest; now and then see to what becomes too old."""
        target = self._files.target
        committer.complete(self._target, target, context, epoch, handles)
        if not self._has_begun:
            own = Ledger(self._target.files, manifest_folder(target, context.query, context.sink))
            mixing.release(self._target.files, target, own)
        if handles:
            self._renewal = self._renewal or Renewal(self._store, target)
            layout = Prepared.of(handles[0]).layout
            self._renewal.look(manifest_folder(target, context.query, context.sink), layout)
        if self._files.retention_s is not None:
            self._retention = self._retention or Retention(
                self._store, target, older_s=self._files.retention_s
            )
            self._retention.look(manifest_folder(target, context.query, context.sink), epoch)

    def withdraw(
        self, context: QueryContext, epoch: int, handles: Sequence[Handle], *, only_look: bool = False
    ) -> TakenBack:
        """Take back all that was committed in epochs after one; return which files that was. Operator's process."""
        return withdrawing.withdraw(
            self._target.files, self._files.target, context, epoch, handles, only_look=only_look
        )

    def look_back(self, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        """Compare the manifests with the newest epoch that is committed by the log: a backup may be restored."""
        past.look_back(self._store, self._files, context, epoch, handles)

    def look_up(self, handle: Handle) -> Standing:
        """Say where it waits, or that a manifest lists its files."""
        return looking_up.look_up(self._target, self._files.target, handle)

    @classmethod
    def parts(cls, handle: Handle, rows: int) -> Iterable[Part]:  # noqa: ARG003  its files say how many each has
        """Name the folders of its files, which are the partitions."""
        files = Prepared.of(handle).files
        return [Part(partition=f.path.rpartition("/")[0], rows=f.rows, bytes=f.bytes) for f in files]

    def require_rights(self, context: QueryContext, *, user: int | None = None) -> str:
        """Ask the file system who may make files there."""
        return checks.require_rights(self._store, self._files, context, user)

    def held(self, handles: Sequence[Handle]) -> Held | None:
        """Compare the files of an epoch with what was written."""
        return auditing.held(self._target, self._files.target, handles)

    def held_in_all(self, context: QueryContext) -> Held | None:  # noqa: ARG002  a folder stands for all who wrote to it
        """Count what manifests list, and find what none does; not in a bucket, where that is a list of all objects."""
        from onceonly.sinks.files.objects import ObjectFiles

        store = self._store
        return None if isinstance(store, ObjectFiles) else auditing.held_in_all(store, self._files.target)

    def newest_epoch(self, context: QueryContext) -> int | None:
        """Look which epochs have manifests."""
        folder = manifest_folder(self._files.target, context.query, context.sink)
        try:
            return Ledger(self._target.files, folder).newest()
        except OSError as error:
            raise unavailable(f"the manifests in {folder} could not be listed", error) from error

    def recover(self, context: QueryContext) -> Iterable[Leftover]:
        """List what waits in the target; changes nothing."""
        return self._target.recover(context)

    def hanging(self) -> Iterable[Hanging]:
        """List what waits in the target, of whichever query."""
        return hanging.hanging(self._target, self._files.staging)


def target_of(store: Store | ObjectFiles, options: FilesOptions) -> Target:
    """Return the kind of target that a store is of."""
    from onceonly.sinks.files.objects import ObjectFiles

    if isinstance(store, ObjectFiles):
        from onceonly.sinks.files.targets.buckets import BucketTarget

        return BucketTarget(store, options)
    return FolderTarget(store, options)
