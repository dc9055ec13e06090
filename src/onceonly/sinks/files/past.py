"""Whether a target still holds an epoch that was committed to it. Driver, once a start; only looks.

A target goes back when a backup or a snapshot of it is restored beside a newer checkpoint. Its manifests go back with
it, and the newest of them never expire: one that is older than what the log knows to be complete proves it. Where there
is none and the folder has another id than it had, it may be an empty one: below the place where a disk is mounted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.families import behind
from onceonly.sinks.files.committer import another
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.paths import manifest_folder, real
from onceonly.sinks.files.prepared import Prepared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.model import Handle
    from onceonly.ports import QueryContext
    from onceonly.sinks.files.options import FilesOptions
    from onceonly.sinks.files.store import Files


def look_back(
    store: Files, options: FilesOptions, context: QueryContext, epoch: int, handles: Sequence[Handle]
) -> None:
    """See that the manifests have come to ``epoch``, all of whose ``handles`` were committed.

    Raises ``TargetBehindError`` where they have not, unless the user has said to go on; ``UnavailableError``.
    """
    target = options.target
    written = [each for each in map(Prepared.of, handles) if each.files]
    if not written or real(written[0].target) != real(target):
        return
    folder = manifest_folder(target, context.query, context.sink)
    newest = Ledger(store, folder).newest()
    if newest is not None and newest >= epoch:
        return
    by_the_log = f"By the log chk-{epoch} is complete, and"
    if newest is None and (lost := another(store, target, written)):
        what = f"{lost} {by_the_log} no manifest is in {folder}"
        advice = (
            "mount it and start the query again. If it was emptied or made anew on purpose: to have its epochs written "
            "again, start on a new checkpoint"
        )
    else:
        what = (
            f"the target {target} went back. {by_the_log} "
            f"{'no manifest' if newest is None else f'nothing newer than chk-{newest}'} is in {folder}: the epochs "
            "since then are not there. A backup was restored, or manifests were removed"
        )
        advice = (
            "to have them written again, start on a new checkpoint from the offsets at which chk-"
            f"{'0 began' if newest is None else f'{newest} ends'} ({behind.SHOW}); what is there of the "
            "epochs from then on would be there twice"
        )
    behind.refuse(
        f"Query {context.query}, sink {context.sink}: {what}", advice, goes_on=options.goes_on_behind
    )
