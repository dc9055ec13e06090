"""Whether an Iceberg table still stands on what was entered: by its snapshots, some of which may have expired. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.sinks.iceberg.target import WITHDRAWN, newest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.table import Table


def standing(table: Table, app: str) -> int | None:
    """Return the newest epoch of ours whose snapshot no rollback has taken back. Pure."""
    is_held = _kept(table)
    kept: list[int] = []
    gone: list[int] = []
    for snapshot in table.snapshots():
        summary = snapshot.summary
        if summary is not None and summary.get("onceonly.app") == app:
            epoch = int(str(summary["onceonly.epoch"]))
            if summary.get(WITHDRAWN):
                # Of what was taken back nothing counts, whether or not a rollback has brought it back.
                kept, gone = ([each for each in some if each <= epoch] for some in (kept, gone))
            (kept if is_held(snapshot.snapshot_id) else gone).append(epoch)
    if gone and max(gone) > max(kept, default=-1):
        return max(kept, default=None)
    return newest(table, app)


def is_kept(table: Table, snapshot_id: int | None) -> bool:
    """Say whether the current state stands on a snapshot, for all that is known. Pure."""
    return _kept(table)(snapshot_id)


def _kept(table: Table) -> Callable[[int | None], bool]:
    """Return what says of a snapshot whether the current state stands on it; no only where that is proven. Pure.

    Below one that has expired there may be others still, as those with a tag: nothing leads down to them. Where
    pyiceberg lets it expire, the one above it looks like a first one, as that of a table which was replaced.
    """
    below = {each.snapshot_id: each.parent_snapshot_id for each in table.metadata.snapshots}
    at = table.metadata.current_snapshot_id
    held: set[int | None] = {at}
    while at in below:
        at = below[at]
        held.add(at)

    def is_kept(at: int | None) -> bool:
        if at not in below or at in held:
            return True
        while at in below and at not in held:
            at = below[at]
        # None is below all, where nothing has expired.
        return at not in held and None not in held

    return is_kept
