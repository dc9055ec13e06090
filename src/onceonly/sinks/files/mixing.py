"""Whether rows go with what is in a target: readers may pass over them, or have them twice. Driver, once a run.

Of two queries that begin at once, neither finds an epoch of the other when it starts. So before the decision of its
first epoch each puts a claim, which is gone once its manifest tells the same.

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

from onceonly.errors import ConfigurationError, LogError, OnceonlyError
from onceonly.families.others import is_alone, tell
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.manifests.manifest import decode_layout, encode_layout
from onceonly.sinks.files.manifests.reading import manifest_folders
from onceonly.sinks.files.paths import HIDDEN, unescape
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

CLAIM = "first-epoch"
_TRIES = 10
_UNDECIDED = "The epoch was not decided."


def refuse_mixed(
    store: Files, target: Path, own: Ledger, layout: Layout, *, so: str = "Nothing was written."
) -> None:
    """Refuse a layout that does not go with how the newest epoch was written; only looks.

    Raises ``ConfigurationError``, ``UnavailableError``. What cannot be read is told: no row depends on it.
    """
    # Before its first epoch here, a query may find others.
    others = () if own.newest() is not None else islice(manifest_folders(store, target), OTHERS_MAX)
    for folder in [own.folder, *(folder for folder, _, _ in others)]:
        try:
            refusal = _mixed(Ledger(store, folder), target, layout, so)
        except LogError as error:
            log.warning("How the files in %s were written could not be compared: %s", target, error.what)
            continue
        if refusal is not None:
            raise refusal


def claim(store: Files, target: Path, own: Ledger, key: str) -> bool:
    """See, before a query's first epoch here is decided, that it goes with the first ones of others.

    ``key`` is that of its layout. Returns whether it has epochs here already, and needs no claim. Raises
    ``ConfigurationError``, ``UnavailableError``, ``OSError``.
    """
    if own.newest() is not None:
        release(store, target, own)  # it died between its manifest and that
        return True
    layout = None
    with contextlib.suppress(LogError):  # the start has told of it
        layout = own.layouts().get(key)
    if layout is None:
        return False  # there is nothing to compare
    path, mine = target / HIDDEN / CLAIM, _owner(own) + encode_layout(layout)
    for _ in range(_TRIES):
        if store.put_if_absent(path, mine):
            break
        there = store.read(path)
        if there is None:
            continue  # its epoch has come
        if not there.startswith(_owner(own)):
            _refuse_claimed(path, there, target, layout)
            break
        if there == mine:
            break
        store.delete(path)  # of an earlier start, which wrote otherwise
    try:
        refuse_mixed(store, target, own, layout, so=_UNDECIDED)
    except ConfigurationError:
        release(store, target, own)
        raise
    return False


def release(store: Files, target: Path, own: Ledger) -> None:
    """Take a query's claim away, where there is one: its manifest is there. Never raises."""
    path = target / HIDDEN / CLAIM
    try:
        there = store.read(path)
        if there is not None and there.startswith(_owner(own)):
            store.delete(path)
    except (OSError, OnceonlyError) as error:
        log.warning("%s is left until the next start of its query: %s", path, error)


def _owner(own: Ledger) -> bytes:
    """Return the names of query and sink as they are in folders: without a slash or a line's end."""
    return f"{own.folder.parent.name}/{own.folder.name}\n".encode()


def _refuse_claimed(path: Path, there: bytes, target: Path, layout: Layout) -> None:
    """Raise ``ConfigurationError`` where another query's claim is of a layout that does not go with this one."""
    owner, _, claimed = there.partition(b"\n")
    query, _, sink = owner.decode(errors="replace").partition("/")
    who = f"query {unescape(query)}, sink {unescape(sink)}"
    try:
        refusal = _refusal(
            f"The first epoch of {who}, is about to be written to {target}",
            decode_layout(claimed, where=str(path)),
            layout,
            _UNDECIDED,
        )
    except LogError as error:
        log.warning("What is about to be written to %s could not be compared: %s", target, error.what)
        return
    if refusal is not None:
        step = (
            f"{refusal.next_step}; if that query is gone for good and has never written there, remove {path}"
        )
        raise ConfigurationError(refusal.what, next_step=step)


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


def _mixed(ledger: Ledger, target: Path, layout: Layout, so: str) -> ConfigurationError | None:
    layouts, wrote = ledger.layouts(), f"The files in {target} were written"
    if any(_refusal(wrote, each, layout, so) for each in layouts.values()):
        there = _newest(ledger, layouts)
        return _refusal(wrote, there, layout, so) if there is not None else None
    return None


def _newest(ledger: Ledger, layouts: dict[str, Layout]) -> Layout | None:
    """Return how the newest epoch was written; a layout is also noted by a start that wrote nothing."""
    parts = ledger.standing()
    several = ledger.of(parts[-1]) if parts else None
    return layouts.get(several[-1].layout) if several else None


def _refusal(wrote: str, there: Layout, layout: Layout, so: str) -> ConfigurationError | None:
    """Return the error where the two do not go together; ``wrote`` begins its sentence, ``so`` says what was not done.

    Whoever reads one format has to tell it from others.
    """
    if there.format != layout.format:
        return None
    if bool(there.partition_by) != bool(layout.partition_by):
        hidden = "are to come" if there.partition_by else "are there"
        return ConfigurationError(
            f"{wrote} {_folders(there)}, and new ones would be written {_folders(layout)}: spark.read would take the "
            f"folders for all, and pass over the rows that {hidden} without a word. {so}",
            next_step=f"set partitionBy as it was ({', '.join(there.partition_by) or 'none'}), or choose another path",
        )
    if _lower(there.partition_by) != _lower(layout.partition_by):
        return ConfigurationError(
            f"{wrote} {_folders(there)}, and new ones would be written {_folders(layout)}: spark.read takes no folders "
            "of different columns in one path, and would fail for all that is there "
            f"(CONFLICTING_PARTITION_COLUMN_NAMES). {so}",
            next_step=f"set partitionBy as it was ({', '.join(there.partition_by)}), or choose another path",
        )
    then, now = _places(there), _places(layout)
    moved = [name for name in then.keys() & now.keys() if then[name] != now[name]]
    if layout.format == "csv" and moved:
        return ConfigurationError(
            f"{wrote} as csv with the columns {', '.join(then)}, and new ones would have {', '.join(now)}: spark.read "
            f"takes columns of csv by their place, and one for another. {so}",
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
