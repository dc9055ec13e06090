"""What an epoch reads, as Spark's checkpoint has it: read to be compared, and written again as it was decided.

``offsets/N`` says where the epoch ends. A file source says ``{"logOffset":7}`` there, and the files are listed in
``sources/0/7``; every tenth list is ``9.compact`` and repeats all before it. Other sources keep where they began in
``sources/0/0``. Spark looks at all of these when it starts, and before our planner is asked: what it has read stays
until it starts again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly import background, offsets
from onceonly.checkpoint.files import FolderFiles
from onceonly.checkpoint.syncing import CheckpointSync
from onceonly.errors import LogError, UnavailableError
from onceonly.model import InputFile, Inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from onceonly.checkpoint.files import CheckpointFiles
    from onceonly.model import Link, Plan

TEXT_BYTES_MAX = 64 * 1024
"""How long a list of files may be to be kept in a decision; the offsets themselves are kept whatever they are."""

_COMPACT = ".compact"


class SparkInputs:
    """The inputs of a query's epochs in its checkpoint. Driver, planner or commit process; every call reads anew."""

    def __init__(self, checkpoint: CheckpointFiles | Path) -> None:
        self._files = FolderFiles(checkpoint) if isinstance(checkpoint, Path) else checkpoint
        folder = self._files.folder
        # Elsewhere a file is durable when it is there.
        self._sync = None if folder is None else CheckpointSync(folder)
        self._state = None if folder is None else CheckpointSync(folder / "state")
        # What the epoch before was like, so that a distant store is asked for all of this one's in fewer rounds.
        self._had_lists = False
        self._known_folders: set[str] = set()

    def begin_sync(self, plan: Plan) -> None:
        """Begin to make durable what a replay of a planned epoch reads. Planner or driver; does not wait."""
        if self._sync is not None:
            self._sync.begin(plan)

    def synced(self, plan: Plan) -> str:
        """Wait until it is durable; say what kept it from being. Any process of the driver's machine."""
        return "" if self._sync is None else self._sync.wait(plan)

    def sync_state(self) -> str:
        """Make durable the state that an epoch's tasks have left; say what kept it from being. Once a try.

        Commit process or driver, when all tasks have ended and before Spark can note the epoch as complete: it never
        leaves that state again, and does not start without it.
        """
        folder = self._files.folder
        if self._state is None or folder is None or not (folder / "state").is_dir():
            return ""
        return self._state.sync()

    def sync(self) -> str:
        """Make all that is there now durable; say what kept it from being. Driver, before a link that skips."""
        return "" if self._sync is None else self._sync.sync()

    def read(self, epoch: int, *, lists: bool = True) -> Inputs:
        """Return what the checkpoint says of an epoch's input, or of its end alone. Raises ``UnavailableError``."""
        try:
            text, before = background.at_once(
                self._files.abreast,
                lambda: self._files.text(f"offsets/{epoch}"),
                lambda: self._before(epoch) if lists and self._had_lists else None,
            )
            if text is None:
                return Inputs()
            if lists:
                self._had_lists = offsets.LISTED in text
            files = (
                self._lists(epoch, text, before) if lists and (epoch == 0 or offsets.LISTED in text) else ()
            )
            return Inputs(files=(_file(f"offsets/{epoch}", text, kept=True), *files))
        except (UnavailableError, LogError) as error:
            raise UnavailableError(
                f"chk-{epoch}: Spark's offsets or list of files cannot be read: {error.what}",
                next_step="see to the checkpoint's store and start the query again",
            ) from error

    def barrier(self, epoch: int, found: Inputs) -> tuple[str, ...]:
        """Return the end offsets of what was read of an epoch in flight. Raises ``LogError`` where there are none."""
        if found.barrier is None:
            raise no_barrier(self._files, epoch)
        return found.barrier

    def restore(
        self, links: Sequence[Link], discard: InputFile | None, is_mine: Callable[[], bool] = lambda: True
    ) -> tuple[str, ...]:
        """Write the files as these decisions had them, durably; return the names of those that were other or gone.

        Lists first and ``offsets/N`` last, so that what was begun and broken off is seen again. ``discard`` are the
        offsets of the next epoch, which nobody decided: they are taken away before all, so that Spark plans it anew,
        unless somebody else has planned it meanwhile, or claimed it (``is_mine``). Idempotent. Raises ``LogError``
        where a decision does not hold what is needed, before anything is touched; ``UnavailableError``.
        """
        wanted = [
            (link, file)
            for link in links
            for file in reversed(link.inputs.files if link.inputs else ())
            if self._digest(file.name) != file.digest
        ]
        for link, file in wanted:
            if file.text is None:
                raise LogError(
                    f"{self._files.where(file.name)} is not as chk-{link.epoch} was decided, and its list of files "
                    "was too long to be kept in the decision",
                    next_step="put this file back from a backup of this checkpoint, then start again: it is compared "
                    "with the decision",
                )
        try:
            # First: as long as the epoch before is wrong, nobody takes what was planned after it for right.
            gone = discard is not None and self._take(discard, is_mine)
            for _, file in wanted:
                self._put(file.name, file.text or "")
        except UnavailableError as error:
            raise UnavailableError(
                f"Spark's files cannot be written as it was decided: {error.what}", next_step=error.next_step
            ) from error
        anew = (f"{discard.name} is to be planned anew",) if discard is not None and gone else ()
        return (*(f"{file.name} is again as decided" for _, file in wanted), *anew)

    def starts(self, epoch: int) -> dict[str, str]:
        """Return where an epoch begins in each source, as far as the checkpoint tells: by name, a source's offset.

        The first epoch begins where its sources have noted that they begin. Raises ``UnavailableError``.
        """
        if epoch > 0:
            return dict(offsets.lines(self._before(epoch)))
        found = ((name, self._files.text(f"sources/{name}/0")) for name in self._files.folders("sources"))
        return {name: text for name, text in found if text is not None}

    def lists(self, epoch: int) -> list[str]:
        """Return the lists of files that an epoch reads, whole. Raises ``UnavailableError``, ``LogError``."""
        text = self._files.text(f"offsets/{epoch}") or ""
        return [entries for _, entries in self._entries(epoch, text, None)] if offsets.LISTED in text else []

    def all_lists(self) -> Iterator[str]:
        """Yield all lists of files that are there: the newest that repeats those before it, and those after it."""
        for source in self._files.folders("sources"):
            folder = f"sources/{source}"
            compact = max(self._compacts(folder), default=-1)
            newer = sorted(number for number in self._files.numbers(folder) if number > compact)
            names = [f"{compact}{_COMPACT}"] if compact >= 0 else []
            for name in [*names, *map(str, newer)]:
                yield self._files.text(f"{folder}/{name}") or ""

    def lost_list(self) -> LogError | None:
        """Return the error where a list of files is gone up to which the newest offsets read. Driver, before a start.

        Spark goes on with the number after that of the newest list which it finds: files that are new since would be
        listed under numbers that are read already, and nobody would ever read them. Raises ``UnavailableError``.
        """
        epoch = max(self._files.numbers("offsets"), default=-1)
        # The offsets first: a driver that lives puts a list before the offsets that name it.
        lines = offsets.lines(self._files.text(f"offsets/{epoch}") or "")
        for source, end in lines:
            needed = offsets.list_number(end)
            if needed is None:
                continue
            folders = self._kept(source, is_numbered=offsets.is_numbered(lines))
            kept = [
                number for each in folders for number in (*self._files.numbers(each), *self._compacts(each))
            ]
            if needed > max(kept, default=-1):
                return LogError(
                    f"{self._files.where('sources')} has no list of files {needed}, up to which offsets/{epoch} reads: "
                    "removed, or of an older backup. Spark would list new files under numbers that are read already, "
                    "and read none of them",
                    next_step="put the folder sources back from the newest backup of this checkpoint; or start on a "
                    "new one, and accept that rows are repeated",
                )
        return None

    def _kept(self, source: str, *, is_numbered: bool) -> list[str]:
        """Return the folder of a source's lists, or all that may be it: under its name, a source has no number."""
        names = self._files.folders("sources")
        own = [source] if source in names else [name for name in names if not name.isdecimal()]
        return [f"sources/{name}" for name in (own if is_numbered else names)]

    # --- reading ------------------------------------------------------------------------------------------

    def _before(self, epoch: int) -> str:
        """Return the offsets of the epoch before, empty where there are none."""
        return self._files.text(f"offsets/{epoch - 1}") or ""

    def _lists(self, epoch: int, text: str, before: str | None) -> Iterator[InputFile]:
        """Yield the lists of files that an epoch reads, and in the first epoch where its sources begin."""
        left = TEXT_BYTES_MAX
        for name, entries in self._entries(epoch, text, before):
            file = _file(name, entries, kept=len(entries) <= left)
            left -= len(entries) if file.text is not None else 0
            yield file

    def _entries(self, epoch: int, text: str, before: str | None) -> Iterator[tuple[str, str]]:
        """Yield the same by name, each whole. ``before`` are the offsets of the epoch before, if they were read."""
        ends = offsets.lines(text)
        start_text, folders = background.at_once(
            self._files.abreast,
            lambda: self._before(epoch) if before is None else before,
            lambda: [self._folders(source) for source, _ in ends],
        )
        starts = dict(offsets.lines(start_text))
        names: list[str] = []
        for (source, end), own in zip(ends, folders, strict=True):
            newest = offsets.list_number(end)
            if newest is None:
                numbers = range(1) if epoch == 0 else range(0)
            else:
                start = offsets.list_number(starts.get(source, ""))
                if start is None:
                    start = -1 if epoch == 0 else newest - 1
                numbers = range(start + 1, newest + 1)
            names += (f"{folder}/{number}" for folder in own for number in numbers)
        names = list(dict.fromkeys(names))
        found = background.spread("onceonly-read", self._own, names, threads_max=self._files.abreast)
        for name, entries in zip(names, found, strict=True):
            if entries is not None:
                yield name, entries

    def _folders(self, source: str) -> list[str]:
        """Return where a source may keep its lists: a source with a name has one of its name, also in version 1."""
        if source not in self._known_folders:  # a folder that was there stays
            self._known_folders = set(self._files.folders("sources"))
        known = self._known_folders
        return [f"sources/{name}" for name in ([source] if source in known else sorted(known))]

    def _own(self, name: str) -> str | None:
        """Return the entries of one list of files, wherever they stand by now; None where nothing has them."""
        text = self._files.text(name)
        if text is not None:
            return text
        folder, _, number = name.rpartition("/")
        for compact in sorted(self._compacts(folder)):
            text = self._files.text(f"{folder}/{compact}.compact") if compact >= int(number) else None
            if text is not None:
                return "\n".join(
                    line for at, line in enumerate(text.split("\n")) if not at or _is_of(line, int(number))
                )
        return None

    def _compacts(self, folder: str) -> list[int]:
        """Return the numbers of the lists that repeat those before them."""
        found = (name.removesuffix(_COMPACT) for name in self._files.names(folder) if name.endswith(_COMPACT))
        return [int(number) for number in found if number.isdecimal()]

    def _digest(self, name: str) -> str:
        text = self._own(name) if name.startswith("sources/") else self._files.text(name)
        return "" if text is None else _digest(text)

    # --- writing ------------------------------------------------------------------------------------------

    def _put(self, name: str, text: str) -> None:
        compact = name + _COMPACT
        kept = self._files.text(compact) if self._files.text(name) is None else None
        if kept is not None:
            # It repeats the lists before it, which nobody has written over.
            number = int(name.rpartition("/")[2])
            older = [line for line in kept.split("\n")[1:] if line and not _is_of(line, number)]
            head, *own = text.split("\n")
            name, text = compact, "\n".join([head, *older, *own])
        self._files.write(name, text)

    def _take(self, file: InputFile, is_mine: Callable[[], bool]) -> bool:
        """Take a file away; say whether it was there, as it was found, and still ours to take."""
        # Whether it is ours is looked at last: whoever claims the epoch after this look finds no file when it is about
        # to decide.
        return self._files.take(file.name, lambda text: _digest(text) == file.digest and is_mine())


def _file(name: str, text: str, *, kept: bool) -> InputFile:
    return InputFile(name=name, digest=_digest(text), text=text if kept else None)


def _digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _is_of(line: str, number: int) -> bool:
    """Say whether an entry is of one list. Compacted ones can have millions of lines, so they are not parsed."""
    return line.endswith(f'"batchId":{number}}}')


def no_barrier(files: CheckpointFiles, epoch: int) -> LogError:
    """Make the error for an epoch in flight whose offsets are not there."""
    return LogError(
        f"the barrier of chk-{epoch} is missing: {files.where(f'offsets/{epoch}')}",
        next_step="put this file back from a backup of this checkpoint; Spark itself cannot replay without it",
    )
