"""Whether tables that a query reads still have what follows an epoch, by their own logs. Reads only; no Spark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from onceonly.errors import SourceChangedError
from onceonly.stores.opened import address_of, open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENTRY: Final = re.compile(r"_delta_log/(\d{20})\.json")
_NEWER: Final = "take a newer savepoint"
_BEGINNING: Final = -1
"""What an Iceberg source that has read nothing yet has as its snapshot."""


def require_delta(offset: Any, own: Mapping[str, str]) -> None:  # noqa: ANN401  Spark's JSON
    """See that a Delta table has the versions that follow an offset of its source. Operator's process; needs deltalake.

    Raises ``SourceChangedError``, ``SetupError``, ``UnavailableError``.
    """
    from onceonly.sinks.delta.place import Place
    from onceonly.sinks.delta.target import find_table

    address = address_of(own["path"], what="the Delta table")
    table = find_table(Place(address))
    if table is None:
        raise SourceChangedError(
            f"there is no Delta table in {address.shown} any more",
            next_step="bring it back, or name the right one",
        )
    now = str(table.metadata().id)
    if now != offset["reservoirId"]:
        raise SourceChangedError(
            f"the Delta table {address.shown} was made anew: its id is {now}, and was {offset['reservoirId']}",
            next_step="name the table that the query reads; what was in the former one cannot be read again",
        )
    # An offset names the version to go on with, or the whole table that the query has begun with.
    begins = bool(offset.get("isStartingVersion"))
    wanted, newest = int(offset["reservoirVersion"]) + begins, table.version()
    if wanted > newest + 1:
        raise SourceChangedError(
            f"the Delta table {address.shown} ends at version {newest}, and the query has read up to {wanted - 1}: it "
            "was set back",
            next_step="bring the table back as it was, or take an older savepoint",
        )
    entries = [
        int(match[1])
        for name in open_store(address).list_names("_delta_log/")
        if (match := _ENTRY.fullmatch(name))
    ]
    # Old entries are removed from the first on.
    first = min(entries, default=newest + 1)
    if wanted < first:
        raise SourceChangedError(
            f"the log of the Delta table {address.shown} begins with version {first}, and the query goes on with "
            f"{wanted} (delta.logRetentionDuration)",
            next_step=_NEWER,
        )


def require_iceberg(offset: Any, own: Mapping[str, str]) -> None:  # noqa: ANN401  Spark's JSON
    """See that an Iceberg table has the snapshots that follow an offset of its source. Operator's; needs pyiceberg.

    Raises ``SourceChangedError``, ``SetupError``, ``UnavailableError``; ``ConfigurationError`` for a wrong name.
    """
    from onceonly.sinks.iceberg.options import identifier, split
    from onceonly.sinks.iceberg.target import find_table, open_catalog

    given, properties = split(own)
    name = given["table"]
    table = find_table(open_catalog(given.get("catalog", "default"), properties), identifier(name))
    if table is None:
        raise SourceChangedError(
            f"there is no Iceberg table {name} any more", next_step="bring it back, or name the right one"
        )
    read = int(offset["snapshot_id"])
    if read == _BEGINNING:
        return
    from pyiceberg.table.snapshots import ancestors_of

    if any(each.snapshot_id == read for each in ancestors_of(table.current_snapshot(), table.metadata)):
        return
    if table.snapshot_by_id(read) is not None:
        raise SourceChangedError(
            f"the Iceberg table {name} was set back behind snapshot {read}, up to which the query has read",
            next_step="bring the table back as it was, or take an older savepoint",
        )
    raise SourceChangedError(
        f"the Iceberg table {name} has no snapshot {read} any more, up to which the query has read, so what follows it "
        "cannot be told: it has expired",
        next_step=_NEWER,
    )
