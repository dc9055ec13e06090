"""Epochs that Spark has noted and another sink wrote: what a start refuses, before anything runs. Driver.

While nothing new comes in, Spark plans nothing, and a query on the checkpoint of another sink would seem to be well. So
its start is judged as its first plan would be: by the same words, and by what is in the checkpoint alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onceonly import protocol
from onceonly.checkpoint.passed import passed
from onceonly.checkpoint.reading import SparkCheckpoint
from onceonly.coordinator.stops import error_of
from onceonly.errors import AdoptionError
from onceonly.log import identity
from onceonly.log.opening import look
from onceonly.log.place import FOLDER, log_store
from onceonly.model import LinkKind
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.errors import OnceonlyError


def refusal(checkpoint: str) -> OnceonlyError | None:
    """Return why a query may not go on from its checkpoint unless that is taken over; None where it may. Only looks.

    Raises ``OnceonlyError`` where it cannot be told: for the first plan to say.
    """
    files = SparkCheckpoint.at(checkpoint)
    # Before the log, in which each epoch of ours stands before Spark notes it: another driver may be at work.
    committed = files.committed()
    newest = max(files.files.numbers("offsets"), default=-1)
    epoch = newest + 1 if newest in committed else newest
    before = sorted(number for number in committed if number < epoch)
    if not before:
        return None
    if identity.read(log_store(checkpoint)) is None:
        return no_log(checkpoint, before)
    log = look(checkpoint)[0]
    decided = log.newest()
    chain = log.chain(decided) if decided is not None else ()
    last = chain[-1] if chain else None
    # A decision that is not settled yet is carried out first.
    is_open = last is not None and last.kind is LinkKind.ABORT
    first = epoch - 1 if decided is None else decided + (not is_open)
    for each in range(first, epoch):
        found = passed(files, each, taken=False)
        if found is None:
            return None  # links are missing, which is no other sink's doing
        stop = protocol.why_stop(last, found)
        if stop is not None:
            return error_of(stop, query=files.query(), epoch=epoch)
    return None


def no_log(checkpoint: str, before: Sequence[int]) -> AdoptionError:
    """Return the error for epochs that Spark has noted where there is no log. Pure."""
    return AdoptionError(
        f"the checkpoint {checkpoint} has no decision log, but {n(len(before), 'epoch')} up to chk-{before[-1]} that "
        "another sink wrote, or that failed before onceonly could begin them, in a foreachBatch function that kept "
        f"the error back; or its log, the folder {FOLDER}, was taken away",
        next_step=f"if it had a log, put the folder {FOLDER} back from the newest backup of this checkpoint; else set "
        "onceonly.adopt=true to take it over from the next epoch on (the one in flight may double), or start on a new "
        "checkpoint",
    )
