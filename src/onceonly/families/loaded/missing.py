"""Epochs and data files that a table's log names and that are gone: somebody has taken them away. Driver.

Who restores an older version takes epochs back, and their entries stay in the log. A vacuum lists the folder, asks the
log, and removes what that does not name: a file of an epoch that is entered in between is removed all the same. So the
files are looked at after their entry, too, and once more at the next epoch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onceonly.errors import UnavailableError
from onceonly.families import behind
from onceonly.words import n

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly.families.loaded.load import Load
    from onceonly.families.loaded.places import Home
    from onceonly.families.loaded.sink import Books, LoadedSink


def stands(sink: LoadedSink, app: str, epoch: int, what: str) -> bool:
    """Say whether the table holds an epoch, which by the decision log is ``what``. Raises ``TargetBehindError``.

    False where the user has said to go on without it.
    """
    newest = sink.standing(app)
    if newest is not None and newest >= epoch:
        return True
    first = 0 if newest is None else newest + 1
    query, name = app.rsplit("/", 2)[1:]
    behind.refuse(
        f"Query {query}, sink {name}: the table went back. By the log chk-{epoch} is {what}, and the newest epoch in "
        f"the table is {'none' if newest is None else f'chk-{newest}'}: chk-{first} to chk-{epoch} are missing. A "
        "backup or an older version was restored, or the table was made anew",
        f"to have them written again, start on a new checkpoint from the offsets at which chk-{first} began "
        f"({behind.SHOW}); what is there of the epochs from then on would be there twice",
        goes_on=sink.options[behind.OPTION] == behind.GO_ON,
    )
    return False


def require_whole(home: Home, loads: Sequence[Load]) -> None:
    """See before the decision that all files are as they were written. Raises ``UnavailableError``."""
    whole = home.whole(loads)
    for load in loads:
        if load.name not in whole:
            raise UnavailableError(
                f"{home.text}/{load.folder} was removed before its epoch was decided",
                next_step="nothing: the epoch is run again; see to what deletes files there (a vacuum of young "
                "files) where this comes again",
            )


def wanted(sink: LoadedSink, loads: Sequence[Load]) -> list[Load]:
    """Return the loads of which files are gone that a reader of the table looks for, each with these files only."""
    home = sink.home
    # The files before the log: what was compacted, and then removed, is not named any more.
    gone = home.gone(loads) if loads else set()
    seen = sink.files_now() if gone else None
    now = set() if seen is None else home.known(seen)
    found = []
    for load in loads if now else ():
        if load.name in gone:
            sizes = home.sizes(load.folder, [file.path for file in load.files])
            files = tuple(
                file
                for file, size in zip(load.files, sizes, strict=True)
                if size != file.bytes and home.called(f"{load.folder}/{file.path}") in now
            )
            found += [replace(load, files=files)] if files else []
    return found


def is_named(sink: LoadedSink, load: Load) -> bool:
    """Say whether the table has files of an attempt at an older epoch than its newest, whatever its note says.

    A note comes back where a table was copied without what had been deleted there, as into a backup or by a bucket that
    is replicated, and its attempt was committed since.
    """
    if load.name in sink.books(load.app, load.epoch).committed:
        return True
    home = sink.home
    begin = f"{home.called(load.folder)}/"
    return any(name.startswith(begin) for name in home.known(sink.files_now(touched=True) or ()))


def torn(sink: LoadedSink, books: Books, app: str, epoch: int, loads: Sequence[Load]) -> set[str]:
    """Take out again what was entered while somebody removed its files; return the names. Raises as ``enter``.

    Where that cannot be done any more, it is told which rows are gone: raises ``TargetBehindError``.
    """
    wrong = wanted(sink, [load for load in loads if load.name in books.committed])
    if not wrong:
        return set()
    names, home = {load.name for load in wrong}, sink.home
    whole = [load for load in loads if load.name in names]
    now = home.known(sink.files_now() or ())
    # None was compacted into another.
    are_named = all(home.called(f"{load.folder}/{file.path}") in now for load in whole for file in load.files)
    if books.newest == epoch and are_named and sink.take_out(books, app, epoch, whole):
        return names
    refuse(sink, wrong)
    return set()


def refuse(sink: LoadedSink, loads: Sequence[Load]) -> None:
    """Tell which rows are gone with files that the table names, or stop there. Raises ``TargetBehindError``."""
    if not loads:
        return
    first, files = loads[0], [file for load in loads for file in load.files]
    behind.refuse(
        f"The table of the sink {sink.name} names {n(len(files), 'file')} of chk-{first.epoch} that "
        f"{'is' if len(files) == 1 else 'are'} not there, or not as written, as {sink.home.text}/{first.folder}/"
        f"{first.files[0].path}: {n(sum(file.rows for file in files), 'row')} are gone. A vacuum of young files, or "
        "somebody else, has removed what was just entered",
        "bring the files back, from a version of the bucket or a backup; or take them out of the table, and start on a "
        f"new checkpoint from the offsets at which chk-{first.epoch} began ({behind.SHOW}); what is there of the "
        "epochs from then on would be there twice",
        goes_on=sink.options[behind.OPTION] == behind.GO_ON,
    )
