"""What a target of files has of a transaction, in words for a person. Looks only; any process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly.ports.standing import Standing, Stands
from onceonly.sinks.files.committer import another
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.prepared import Prepared
from onceonly.sinks.files.staging.staged import epoch_of
from onceonly.sinks.files.store import unavailable

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.model import Handle
    from onceonly.sinks.files.targets.port import Target


def look_up(target: Target, at: Path, handle: Handle) -> Standing:
    """Say what stands of a transaction. Raises ``UnavailableError``, ``LogError`` for a damaged manifest."""
    if "files" not in handle.data:
        return Standing(
            stands=Stands.OPEN,
            told=f"something of it waits in {handle.data.get('staging', at)}, and no link names it",
        )
    prepared = Prepared.of(handle)
    try:
        if lost := another(target.files, at, (prepared,)):
            return Standing(stands=Stands.UNKNOWN, told=lost)
        # What waits before the manifest: what is completed between the two looks is in one of them.
        stands, told = target.standing(prepared)
        hindered = target.hindrance(prepared) if stands in {Stands.OPEN, Stands.GONE} else ""
        listed = (
            Ledger(target.files, prepared.manifests).listed(epoch_of(prepared.transaction)) or frozenset()
        )
    except OSError as error:
        raise unavailable(f"{at} could not be read", error) from error
    if listed >= set(prepared.files):
        stands, told, hindered = Stands.COMMITTED, "the manifest of its epoch lists all of its files", ""
    lives = {Stands.OPEN: "until somebody removes it: no time-out ends it", Stands.UNKNOWN: ""}
    return Standing(
        stands=stands,
        told=told,
        blocks="nothing: hidden names hold no reader up",
        until=lives.get(stands, "it has ended"),
        hindered=hindered,
    )
