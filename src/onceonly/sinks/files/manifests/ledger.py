"""The manifests of one query's sink in a target: put once an epoch, merged now and then, read at any time.

Each is a file ``{level}-{first}-{last}.manifest``. An epoch's own has level 0; ``MERGED`` of one level make one of
the next, so their number grows with the logarithm of the epochs. A merged file is put, durably, before its parts
are deleted, and hides those that are still there: a reader sees each epoch once at every moment. Merging takes the
oldest that fit into one file, so whoever repeats it, after a crash or beside another process, makes the same bytes;
only where epochs expire between a look and its put may two merged files overlap, and each epoch is read once then, too.
Epochs that have expired (``marks``) are not among what is read, whether or not their manifests are still there.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from onceonly.errors import ConfigurationError, LogError, OnceonlyError, UnavailableError
from onceonly.sinks.files.manifests import marks
from onceonly.sinks.files.manifests.manifest import (
    Layout,
    Manifest,
    decode_layout,
    decode_manifests,
    encode_layout,
    encode_manifests,
    join_manifests,
    manifests_after,
)
from onceonly.sinks.files.store import unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from onceonly.sinks.files.manifests.manifest import DataFile
    from onceonly.sinks.files.store import Files

log = logging.getLogger("onceonly")
MERGED = 100
"""How many files become one. Merging begins at twice as many, so that the newest epochs stay small to read."""
MERGED_BYTES_MAX = 16 << 20
"""How large a merged file may become: it is read, and made, as a whole."""
_TRIES = 50
_NAME = re.compile(r"(\d{1,2})-(\d{20})-(\d{20})\.manifest")
# Of a name that is no reader's: the former one was a JSON file among those of a target in JSON.
_LAYOUT = re.compile(r"([0-9a-f]{16})\.layout|layout-([0-9a-f]{16})\.json")
_BROKEN_OFF = re.compile(r"\..+[.-][0-9a-f]{12}\.tmp")


class Part(NamedTuple):
    """One manifest file, by its name."""

    level: int
    first: int
    last: int

    @property
    def name(self) -> str:
        return f"{self.level}-{self.first:020d}-{self.last:020d}.manifest"

    def hides(self, other: Part) -> bool:
        return self.level > other.level and self.first <= other.first and other.last <= self.last


class Ledger:
    """The manifests in one folder. Driver for ``put``; any process for the rest.

    ``OSError`` never leaves it: what the file system refuses is ``UnavailableError``.
    """

    def __init__(self, store: Files, folder: Path) -> None:
        self._store = store
        self.folder = folder

    def put(self, manifest: Manifest, *, among: AbstractSet[DataFile] = frozenset()) -> None:
        """Put the manifest of an epoch. Idempotent; safe to be killed in.

        One that stands may hold any files of ``among``. Raises ``LogError`` where the epoch stands there with
        others.
        """
        try:
            self._store.make_folder(self.folder)
            self._clear()
            place = self.folder / Part(0, manifest.epoch, manifest.epoch).name
            data = encode_manifests((manifest,))
            # Looked for first: once merged, its own name is free again.
            if self._stands(manifest, among):
                # Its writer may have died before the name was durable.
                self._store.sync_folder(self.folder)
            elif not (self._store.put_if_absent(place, data) or self._stands(manifest, among)):
                raise _other(self.folder, manifest.epoch)
        except OSError as error:
            raise unavailable(
                f"the manifest of chk-{manifest.epoch} could not be put into {self.folder}", error
            ) from error
        try:
            self._merge()
        except (OSError, OnceonlyError) as error:
            # Everything is durable without it, and the next epoch tries again.
            log.warning("The manifests in %s were not merged: %s", self.folder, error)

    def put_layout(self, layout: Layout) -> None:
        """Put a layout under its key, and give those of earlier versions their name of today.

        Driver, once a run; idempotent.
        """
        try:
            self._store.make_folder(self.folder)
            self._store.put_if_absent(self.folder / f"{layout.key}.layout", encode_layout(layout))
            for name in self._names():
                if (match := _LAYOUT.fullmatch(name)) and match[2]:
                    # Of a version before: the same under the name of today.
                    if (data := self._read(name)) is not None:
                        self._store.put_if_absent(self.folder / f"{match[2]}.layout", data)
                    self._store.delete(self.folder / name)
        except OSError as error:
            raise unavailable(f"a layout could not be put into {self.folder}", error) from error

    def layouts(self) -> dict[str, Layout]:
        """Read all layouts, by their keys."""
        found = {}
        for name in sorted(self._names()):
            if match := _LAYOUT.fullmatch(name):
                data = self._read(name)
                if data is not None:
                    found[match[1] or match[2]] = decode_layout(data, where=str(self.folder / name))
        return found

    def listed(self, epoch: int) -> frozenset[DataFile] | None:
        """Return the files that are listed of an epoch, None where its manifest is yet to come. Raises ``LogError``."""
        for _ in range(_TRIES):
            part = next((p for p in self.standing() if p.first <= epoch <= p.last), None)
            if part is None:
                return None
            several = self.of(part)
            if several is not None:
                return frozenset(file for each in several if each.epoch == epoch for file in each.files)
        raise self._too_quick()

    def newest(self) -> int | None:
        """Return the newest epoch that has a manifest; one or two listings."""
        parts = self.standing()
        return max(part.last for part in parts) if parts else None

    def manifests(self) -> list[Manifest]:
        """Read all that have not expired, oldest epoch first, as they stood at one moment. Raises ``LogError``."""
        for _ in range(_TRIES):
            found: dict[int, Manifest] = {}
            for part in self.standing():
                several = self.of(part)
                if several is None:
                    break  # merged away since the listing
                for each in several:
                    if found.setdefault(each.epoch, each) != each:
                        raise _other(self.folder, each.epoch)
            else:
                # Looked up last: what expires meanwhile keeps its files for a while.
                expired_to = self.marks().expired_to
                return [found[epoch] for epoch in sorted(found) if epoch > expired_to]
        raise self._too_quick()

    def marks(self) -> marks.Marks:
        """Return the marks of what has expired; one listing."""
        return marks.marks_among(self._names())

    def standing(self) -> list[Part]:
        """List the manifest files, oldest first, without those that a merged one hides. Expired ones are among them."""
        return _standing(self._listed())

    def of(self, part: Part) -> tuple[Manifest, ...] | None:
        """Read one manifest file; None where it is no longer there. Raises ``LogError``."""
        data = self._read(part.name)
        return None if data is None else decode_manifests(data, where=str(self.folder / part.name))

    def after(self, part: Part, epoch: int) -> Iterator[Manifest] | None:
        """Read one manifest file's epochs after another, each when it is asked for; None where it is no longer there.

        Raises ``LogError``.
        """
        data = self._read(part.name)
        return None if data is None else manifests_after(data, epoch, where=str(self.folder / part.name))

    def drop(self, epoch: int) -> None:
        """Delete the manifest files that hold nothing newer. Idempotent; their epochs have expired, durably."""
        for part in self._parts(self._names()):
            if part.last <= epoch:
                self._store.delete(self.folder / part.name)

    def withdraw(self, epoch: int) -> None:
        """Delete the manifest files of what is newer, newest first: a reader sees one epoch less each time.

        Where some of it had expired, its numbers are given again, and are to be seen then. Idempotent. Raises
        ``ConfigurationError`` before anything is touched where one also holds what is to stay.
        """
        newer = self.divided(epoch)
        for part in sorted(newer, key=lambda each: (-each.last, each.level)):
            self._store.delete(self.folder / part.name)
        if marks.lower(self._store, self.folder, self.marks(), epoch) or newer:
            self._store.sync_folder(self.folder)

    def divided(self, epoch: int) -> list[Part]:
        """List the manifest files of what is newer than an epoch.

        Raises ``ConfigurationError`` where one also holds that or what is older.
        """
        newer = [part for part in self._listed() if part.last > epoch]
        for part in newer:
            if part.first <= epoch:
                raise ConfigurationError(
                    f"the manifest {self.folder / part.name} was merged, and holds chk-{epoch} and earlier epochs, too",
                    next_step=f"take a savepoint that is newer than chk-{part.last}",
                )
        return newer

    def _stands(self, manifest: Manifest, among: AbstractSet[DataFile]) -> bool:
        """Tell whether the epoch is there as given. Raises where it is there with other files."""
        found = self.listed(manifest.epoch)
        if found is None:
            if manifest.epoch <= self.marks().expired_to:
                # It would never be seen. The newest epochs do not expire, so this one was decided anew.
                raise _other(self.folder, manifest.epoch)
            return False
        if found == frozenset(manifest.files) or (found and found <= among):
            return True
        raise _other(self.folder, manifest.epoch)

    def _merge(self) -> None:
        parts = self._parts(self._names())
        if any(count >= 2 * MERGED for count in Counter(part.level for part in parts).values()):
            # A merged file hides all between its ends, so nothing may be missing in the list.
            parts = self._listed()
        level = 0
        while any(part.level >= level for part in parts):
            oldest = self._oldest(_standing(parts), level)
            if oldest:
                contents = []
                for part in oldest:
                    data = self._read(part.name)
                    if data is None:
                        return  # another process is merging
                    contents.append((data, str(self.folder / part.name)))
                whole = Part(level + 1, oldest[0].first, max(part.last for part in oldest))
                self._store.put_if_absent(self.folder / whole.name, join_manifests(contents))
                parts.append(whole)
            level += 1
        hidden = set(parts).difference(_standing(parts))
        if hidden:
            # What hides them may be another process's, which died before its name was durable.
            self._store.sync_folder(self.folder)
        for part in hidden:
            self._store.delete(self.folder / part.name)

    def _oldest(self, standing: list[Part], level: int) -> list[Part]:
        """Return the oldest neighbours of a level that are to become one; none while they are too few.

        Those that together are too large stay as they are, for good: who looks again finds the same, until some expire.
        """
        same = [part for part in standing if part.level == level]
        if len(same) < 2 * MERGED:
            return []
        run: list[Part] = []
        total = 0
        for part in standing[: standing.index(same[-MERGED])]:
            if part.level != level:
                run, total = [], 0
                continue
            size = self._store.size(self.folder / part.name)
            if size is None:
                return []  # another process is merging
            if total + size > MERGED_BYTES_MAX:
                run, total = [], 0
            if size <= MERGED_BYTES_MAX:
                run.append(part)
                total += size
            if len(run) == MERGED:
                return run
        return []

    def _clear(self) -> None:
        """Take away what broken-off puts left. A living put that loses its file here is repeated."""
        for name in self._names():
            if _BROKEN_OFF.fullmatch(name):
                self._store.delete(self.folder / name)

    def _listed(self) -> list[Part]:
        """List until two listings are equal.

        One alone is no picture of one moment: it can miss a merged file that was put behind it, and the parts
        that were deleted before it.
        """
        before = self._parts(self._names())
        for _ in range(_TRIES):
            again = self._parts(self._names())
            if again == before:
                return before
            before = again
        raise self._too_quick()

    def _too_quick(self) -> UnavailableError:
        return UnavailableError(
            f"the manifests in {self.folder} change too quickly to be read", next_step="try again"
        )

    @staticmethod
    def _parts(names: list[str]) -> list[Part]:
        matches = map(_NAME.fullmatch, names)
        return sorted(Part(int(m[1]), int(m[2]), int(m[3])) for m in matches if m)

    def _names(self) -> list[str]:
        try:
            return self._store.names(self.folder)
        except OSError as error:
            raise unavailable(f"{self.folder} could not be listed", error) from error

    def _read(self, name: str) -> bytes | None:
        try:
            return self._store.read(self.folder / name)
        except OSError as error:
            raise unavailable(f"{self.folder / name} could not be read", error) from error


def _standing(parts: list[Part]) -> list[Part]:
    """Leave out what a merged file hides; oldest first."""
    kept: list[Part] = []
    for level in sorted({part.level for part in parts}, reverse=True):
        # What begins last at or before a part can hide it; where two overlap, the one before that, too.
        above = sorted(kept, key=lambda part: part.first)
        begins = [part.first for part in above]
        for part in parts:
            if part.level == level:
                at = bisect_right(begins, part.first) - 1
                if not any(each.hides(part) for each in above[max(at - 1, 0) : at + 1]):
                    kept.append(part)
    return sorted(kept, key=lambda part: part.first)


def _other(folder: Path, epoch: int) -> LogError:
    return LogError(
        f"the manifests in {folder} hold other files for chk-{epoch} than were decided: an older checkpoint "
        "was restored, or two queries with one id write here",
        next_step="restore the newest checkpoint, or start a new one and accept that rows are repeated",
    )
