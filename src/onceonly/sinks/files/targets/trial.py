"""Whether a bucket does what every commit needs, and permits it: tried before the first record. Driver, once a run."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from onceonly.errors import ConfigurationError, OnceonlyError
from onceonly.sinks.files.objects import key_of
from onceonly.sinks.files.paths import HIDDEN
from onceonly.stores.probing import probe, probe_name
from onceonly.stores.uploads import Completion

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.sinks.files.objects import ObjectFiles

_DATA, _TOKEN = b"tried", "trial"


def run(store: ObjectFiles, target: Path) -> None:
    """Put, list and remove a small object; complete an upload, and end another. Leaves nothing behind.

    Raises ``ConfigurationError`` for a store that is not fit or a right that is missing, ``UnavailableError``.
    """
    hidden = target / HIDDEN
    probe(store.below(hidden), place=str(target))
    # Nobody can read what is completed here: its name is hidden, and the name of a probe that is cleared away.
    key = key_of(hidden / probe_name())
    try:
        lack = _lack(store, key)
    except OnceonlyError:
        with contextlib.suppress(OnceonlyError):
            store.objects.delete(key)
        raise
    if lack:
        raise ConfigurationError(
            f"the store of {target} {lack}, so files could not be put there safely. Nothing was written.",
            next_step="put the target on S3 itself, or on a newer release of what imitates it",
        )


def _lack(store: ObjectFiles, key: str) -> str:
    """Say what a store does that no commit could bear; empty where it is fit."""
    uploads = store.uploads
    shown, other = uploads.begin(key, _TOKEN), uploads.begin(key, "another")
    parts = [uploads.send(key, shown, 1, _DATA)]
    uploads.send(key, other, 1, _DATA)
    if uploads.look(key) is not None:
        return "shows an upload before it is completed"
    uploads.end(key, other)
    if uploads.stands(key, other):
        return "goes on to show an upload that was ended"
    if not uploads.stands(key, shown):
        return "does not show an upload that is open"
    for _ in uploads.standing(key):
        break  # whether they may be listed is known now
    said = uploads.complete(key, shown, parts)
    found = uploads.look(key)
    store.objects.delete(key)
    if said is Completion.GONE or found is None:
        return "does not complete an upload"
    if found.token != _TOKEN:
        return "does not keep the metadata of an object"
    if uploads.stands(key, shown):
        return "goes on to show an upload that was completed"
    return ""
