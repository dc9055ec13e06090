"""Whether rows go with what is in a target: readers may pass over them, or have them twice. Driver, once a run.

Where Spark's readers find a folder such as ``day=1``, they take such folders for all that is there, and pass over the
files beside them without a word; beside one such as ``shop=a``, they fail. Of csv they take columns by their place,
whatever a header says. What was written how, ``onceonly.files.read`` knows.
"""

from __future__ import annotations

import contextlib
import logging
import time
from itertools import islice
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, LogError
from onceonly.families.others import is_alone, tell
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.manifests.reading import manifest_folders
from onceonly.words import time_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from onceonly.ports import QueryContext
    from onceonly.sinks.files.manifests.manifest import Layout
    from onceonly.sinks.files.store import Files

log = logging.getLogger("onceonly")

OTHERS_MAX = 20
"""How many other queries' manifests are looked at: none was let in that writes otherwise than those before it."""


def refuse_mixed(store: Files, target: Path, own: Ledger, layout: Layout) -> None:
    """Refuse a layout that does not go with how the newest epoch was written; only looks.

    Raises ``ConfigurationError``, ``UnavailableError``. What cannot be read is told: no row depends on it.
    """
    # Before its first epoch here, a query may find others.
    others = () if own.newest() is not None else islice(manifest_folders(store, target), OTHERS_MAX)
    for folder in [own.folder, *(folder for folder, _, _ in others)]:
        try:
            refusal = _mixed(Ledger(store, folder), target, layout)
        except LogError as error:
            log.warning("How the files in %s were written could not be compared: %s", target, error.what)
            continue
        if refusal is not None:
            raise refusal


def tell_of_others(store: Files, target: Path, own: Ledger, context: QueryContext) -> None:
    """Warn of queries that have epochs in a target before a query has its first: it may be one of them, begun anew."""
    if own.newest() is not None or is_alone(context.query):
        return
    others = [
        told
        for folder, query, sink in islice(manifest_folders(store, target), OTHERS_MAX)
        if query != context.query and not is_alone(query)
        if (told := _has(store, Ledger(store, folder), f"query {query}, sink {sink},"))
    ]
    tell(context, target, others, place="path")


def _has(store: Files, ledger: Ledger, who: str) -> str:
    """Say which epochs somebody has in a target, and since when; empty where there are none. By names alone."""
    parts = ledger.standing()
    if not parts:
        return ""
    first, last = max(parts[0].first, ledger.marks().expired_to + 1), parts[-1].last
    idle = None
    with contextlib.suppress(OSError):
        idle = store.idle(ledger.folder / parts[-1].name)
    when = "" if idle is None else f", the newest at {time_of(int((time.time() - idle) * 1000))}"
    return f"{who} has {f'chk-{first} to ' if first < last else ''}chk-{last}{when}"


def _mixed(ledger: Ledger, target: Path, layout: Layout) -> ConfigurationError | None:
    layouts = ledger.layouts()
    if any(_refusal(target, each, layout) for each in layouts.values()):
        there = _newest(ledger, layouts)
        return _refusal(target, there, layout) if there is not None else None
    return None


def _newest(ledger: Ledger, layouts: dict[str, Layout]) -> Layout | None:
    """Return how the newest epoch was written; a layout is also noted by a start that wrote nothing."""
    parts = ledger.standing()
    several = ledger.of(parts[-1]) if parts else None
    return layouts.get(several[-1].layout) if several else None


def _refusal(target: Path, there: Layout, layout: Layout) -> ConfigurationError | None:
    """Return the error where the two do not go together. Whoever reads one format has to tell it from others."""
    if there.format != layout.format:
        return None
    if bool(there.partition_by) != bool(layout.partition_by):
        hidden = "are to come" if there.partition_by else "are there"
        return ConfigurationError(
            f"The files in {target} were written {_folders(there)}, and new ones would be written {_folders(layout)}: "
            f"spark.read would take the folders for all, and pass over the rows that {hidden} without a word. Nothing "
            "was written.",
            next_step=f"set partitionBy as it was ({', '.join(there.partition_by) or 'none'}), or choose another path",
        )
    if _lower(there.partition_by) != _lower(layout.partition_by):
        return ConfigurationError(
            f"The files in {target} were written {_folders(there)}, and new ones would be written {_folders(layout)}: "
            "spark.read takes no folders of different columns in one path, and would fail for all that is there "
            "(CONFLICTING_PARTITION_COLUMN_NAMES). Nothing was written.",
            next_step=f"set partitionBy as it was ({', '.join(there.partition_by)}), or choose another path",
        )
    then, now = _places(there), _places(layout)
    moved = [name for name in then.keys() & now.keys() if then[name] != now[name]]
    if layout.format == "csv" and moved:
        return ConfigurationError(
            f"The csv files in {target} have the columns {', '.join(then)}, and new ones would have {', '.join(now)}: "
            "spark.read takes columns of csv by their place, and one for another. Nothing was written.",
            next_step="select the columns in the order that they had, new ones last, or choose another path",
        )
    return None


def _folders(layout: Layout) -> str:
    return f"in folders by {', '.join(layout.partition_by)}" if layout.partition_by else "without folders"


def _lower(names: Sequence[str]) -> list[str]:
    """Return names as Spark compares them, which goes by their order, too."""
    return [name.lower() for name in names]


def _places(layout: Layout) -> dict[str, int]:
    """Return the places of the columns that are in the files."""
    names = [name for name, _ in layout.columns if name not in layout.partition_by]
    return {name: place for place, name in enumerate(names)}
