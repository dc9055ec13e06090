"""Whether the files that a query has read after an epoch are still there: a restored one reads them again."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING
from urllib.parse import unquote

from onceonly.checkpoint.inputs import SparkInputs
from onceonly.errors import OnceonlyError
from onceonly.offsets import list_number
from onceonly.stores.opened import address_of, folder_of, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from onceonly.operations.find import Checkpoint


def missing_inputs(checkpoint: Checkpoint, barrier: Sequence[str]) -> list[str]:
    """Return the files that are listed as read after a barrier and are not there any more. Reads only.

    Only file sources note what they read; what other sources still have, the guards see at the first start.
    """
    ends = [end for line in barrier if (end := list_number(line)) is not None]
    # Of several sources, each numbers its own lists: the earliest end asks for most.
    names = functools.cache(_names)  # files are many, and their folders few
    return [path for path in _listed(checkpoint, min(ends)) if not _stands(path, names)] if ends else []


def _listed(checkpoint: Checkpoint, end: int) -> Iterator[str]:
    for text in SparkInputs(checkpoint.told.files).all_lists():
        for line in text.split("\n")[1:]:
            try:
                entry = json.loads(line)
                if entry["batchId"] > end:
                    yield str(entry["path"])
            except (ValueError, LookupError, TypeError):
                continue


def _stands(path: str, names: Callable[[str], frozenset[str] | None]) -> bool:
    """Say whether a file is there; what cannot be asked is taken to be."""
    try:
        address = address_of(unquote(path), what="a file that was read")
    except OnceonlyError:
        return True
    folder = folder_of(address)
    if folder is not None:
        return folder.exists()
    above, _, name = address.text.rpartition("/")
    known = names(above)
    return known is None or name in known


def _names(folder: str) -> frozenset[str] | None:
    try:
        return frozenset(open_store(address_of(folder)).list_names(""))
    except OnceonlyError:
        return None
