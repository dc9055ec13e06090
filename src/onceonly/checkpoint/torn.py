"""What a power loss has torn of Spark's own files, before Spark reads them: taken away where nothing stands on it.

Spark writes each of its files under a temporary name, renames it and syncs neither, so that after a power loss a name
may stand over nothing, a part, or zeros; and Spark then refuses to start the query, for ever. What a decision stands on
was made durable before the decision; where another driver has written over it since, it is written again as the
decision has it. What else is torn is of an epoch that nobody has decided, and is planned anew; or it
notes as complete an epoch that will be found decided; or it is the query's id, which our log knows, too.

Only what cannot be a whole file of Spark's is touched: a living Spark never shows one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shutil
import struct
import time
import zlib
from typing import TYPE_CHECKING

from onceonly import offsets
from onceonly.checkpoint.inputs import SparkInputs
from onceonly.checkpoint.whole import is_barrier, is_commit, is_id, is_torn_list, list_needed
from onceonly.durable import disk
from onceonly.errors import LogError, OnceonlyError
from onceonly.log import files, identity, presence
from onceonly.log.progress import PROGRESS
from onceonly.log.runs import RUNS, RunFiles, who_may_live
from onceonly.model import Link, LinkKind
from onceonly.stores.folder import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

log = logging.getLogger("onceonly")

# 1.delta, 1.snapshot, 1.zip, 1.changelog: the state before epoch 1.
_VERSION = re.compile(r"\.?(\d+)(?:_[^.]*)?\.\w")
# .0.<uuid>.tmp, and its checksum ..0.<uuid>.tmp.crc
_TEMPORARY_OF_SPARK = re.compile(r"\.{1,2}\d+\..*\.tmp(?:\.crc)?")
# Of the checksums that Hadoop's LocalFileSystem keeps beside each file (ChecksumFileSystem, DataChecksum).
_SUMS_HEADER = struct.Struct(">4si")
_TEMPORARY = ".metadata.onceonly.tmp"
# Of durable/disk.py and inputs.py, beside Spark's files; and of reports for people, beside ours.
_OURS = re.compile(r"\.(?:metadata|\d+(?:\.compact)?)\.[0-9a-f]{12}\.tmp|\..+\.json\.\d+\.tmp")
_OLD_S = 3600.0
_KEPT = 2
"""A start reads its newest barrier and the one before."""
# A query's end is told to its listener a moment later.
_ENDS_S, _LOOK_S = 2.0, 0.05


def mend(checkpoint: Path) -> tuple[str, ...]:
    """Remove what is torn and undecided, restore the query's id; return the names of the files. Driver, before a start.

    Idempotent. Raises nothing: what cannot be read or written is Spark's to complain about. Only an fsync that fails
    ends the process, with status 74 (see ``disk``).
    """
    mended: list[str] = []
    try:
        if checkpoint.is_dir():
            found = _Torn(checkpoint)
            mended = [str(path.relative_to(checkpoint)) for path in found.mend()]
            found.clear()
    except (OSError, OnceonlyError) as error:
        log.debug("Spark's files in %s were not looked through: %s", checkpoint, error)
    if mended:
        log.warning(
            "Files of Spark's in %s are torn, or lack others that they need, as after a loss of power or an end in the "
            "first epoch; nothing stands on them: taken away or written anew: %s",
            checkpoint, ", ".join(mended),
        )  # fmt: skip
    return tuple(mended)


class _Torn:
    """One look through one checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._store = LocalStore(checkpoint / identity.FOLDER)
        self._decided = self._newest_decided()

    def mend(self) -> Iterator[Path]:
        """Yield each file that was dealt with, commits first: the others look at what they say."""
        yield from self._mend_sums()
        for path in self._newest_first("commits"):
            if is_commit(_text(path)):
                break
            yield _remove(path)
        yield from self._mend_decided()
        yield from self._mend_offsets()
        yield from self._mend_lists()
        yield from self._mend_id()
        yield from self._mend_beginning()

    def clear(self) -> None:
        """Take away the temporary files of ours that processes left that died; none that is young, or beside a run."""
        reports = self._checkpoint / identity.FOLDER
        folders = [self._checkpoint, *(self._checkpoint / name for name in ("offsets", "commits"))]
        folders += [*_children(self._checkpoint / "sources"), reports / RUNS, reports / PROGRESS]
        left = [path for folder in folders for path in _children(folder) if _OURS.fullmatch(path.name)]
        # What was renamed keeps the time when it was written, and not that of its change.
        old = [path for path in left if time.time() - path.stat().st_ctime > _OLD_S]
        if old and not self._is_at_work():
            for path in old:
                path.unlink(missing_ok=True)

    def _mend_sums(self) -> Iterator[Path]:
        """Take away checksums that are not those of their files: Hadoop would refuse to read these, torn or whole."""
        looked_at = [self._checkpoint / "metadata"]
        for folder in ("offsets", "commits"):
            looked_at += self._newest_first(folder)[:2]
        for source in _children(self._checkpoint / "sources"):
            looked_at += [path for path in _children(source) if not path.name.startswith(".")]
        for path in looked_at:
            beside = path.with_name(f".{path.name}.crc")
            if beside.exists() and path.exists() and not _fits(beside.read_bytes(), path.read_bytes()):
                beside.unlink()
                disk.sync(beside.parent)
                yield beside

    def _newest_decided(self) -> int:
        """Return the newest epoch that has a decision, -1 where none has."""
        epochs = {-1}
        for name in self._store.list_names(files.RECEIPTS):
            epochs.add(files.parse_receipt(name) or 0)
        for name in self._store.list_names(files.HISTORY):
            epochs.add((files.parse_segment(name) or (0, 0))[1])
        for name in self._store.list_names(files.LINKS):
            parsed = files.parse_link(name)
            if parsed is not None and parsed[0] > max(epochs) and self._decision(name) is not None:
                epochs.add(parsed[0])
        return max(epochs)

    def _decision(self, name: str) -> Link | None:
        """Read a link; None for one that decides nothing, or is gone."""
        data = self._store.get(name)
        link = files.decode(data, kind="link", into=Link, where=name) if data else None
        return link if link is not None and link.kind is LinkKind.COMMIT else None

    def _mend_decided(self) -> Iterator[Path]:
        """Write again as decided what is torn, or gone before a newer one: Spark fails on it before a plan is asked."""
        found = SparkInputs(self._checkpoint)
        for link in self._decisions():
            path = self._checkpoint / "offsets" / str(link.epoch)
            newer = path.with_name(str(link.epoch + 1)).exists()
            if is_barrier(_text(path), "") if path.exists() else not newer:
                continue
            # A list of files may have been too long to be kept: the planner names it.
            with contextlib.suppress(LogError):
                found.restore([link], None)
                yield path

    def _decisions(self) -> list[Link]:
        """Return the newest decisions that say what their epochs read, oldest first."""
        links: dict[int, Link] = {}
        places = {name: files.parse_link(name) for name in self._store.list_names(files.LINKS)}
        for name in sorted(filter(places.get, places), key=lambda each: places[each] or (), reverse=True):
            link = self._decision(name)
            if link is not None and link.inputs is not None:
                links.setdefault(link.epoch, link)
            if len(links) == _KEPT:
                break
        return [links[epoch] for epoch in sorted(links)]

    def _mend_offsets(self) -> Iterator[Path]:
        paths = self._newest_first("offsets")
        if paths and int(paths[0].name) > self._decided and not self._is_committed(paths[0]):
            text, before = _text(paths[0]), _text(paths[1]) if len(paths) > 1 else ""
            begins = paths[0].name == "0" and any(map(offsets.is_of_python, offsets.barrier(text)))
            is_torn = not is_barrier(text, before)
            if is_torn or self._lacks_list(paths[0]) or self._lacks_state(paths[0]):
                yield _remove(paths[0])
            elif begins and not self._is_at_work():
                _remove(paths[0])  # not torn, but its source is asked again where to begin: elsewhere, maybe

    def _lacks_list(self, barrier: Path) -> bool:
        """Say whether it names files of a source whose list is not there: durable by its own sync, and nothing else."""
        lines = offsets.lines(_text(barrier))
        everywhere = None if offsets.is_numbered(lines) else _children(self._checkpoint / "sources")
        for source, end in lines:
            folders = self._kept(source) if everywhere is None else everywhere
            lists = [each.name.partition(".")[0] for folder in folders for each in _children(folder)]
            newest = max((int(name) for name in lists if name.isdecimal()), default=-1)
            if newest < list_needed(end, is_first=barrier.name == "0"):
                return True
        return False

    def _lacks_state(self, barrier: Path) -> bool:
        """Say whether nothing tells with which state it begins, so that Spark could never run its epoch.

        In format 2 of state, only the note of the epoch before does. That one is decided, and runs anew without
        writing: it leaves its state once more, and a note of it.
        """
        before = int(barrier.name) - 1
        if before != self._decided or (self._checkpoint / "commits" / str(before)).exists():
            return False
        return any((self._checkpoint / "state").rglob(f"{barrier.name}_*.*"))

    def _kept(self, source: str) -> list[Path]:
        """Return where a source may keep its lists: under its name, also where the barrier tells its number alone."""
        folders = _children(self._checkpoint / "sources")
        own = [folder for folder in folders if folder.name == source]
        return own or [folder for folder in folders if not folder.name.isdecimal()]

    def _mend_lists(self) -> Iterator[Path]:
        """Of each source: the newest list of files, or where it began; with the barrier that names it."""
        for folder in _children(self._checkpoint / "sources"):
            found = [path for path in _children(folder) if path.name.partition(".")[0].isdecimal()]
            newest = max(found, key=lambda path: int(path.name.partition(".")[0]), default=None)
            if newest is None or not is_torn_list(_text(newest)):
                continue
            barriers = self._newest_first("offsets")
            if barriers and int(barriers[0].name) > self._decided and not self._is_committed(barriers[0]):
                yield _remove(barriers[0])
                barriers = barriers[1:]
            if len(found) > 1 or not barriers:
                yield _remove(newest)

    def _mend_id(self) -> Iterator[Path]:
        path = self._checkpoint / "metadata"
        if is_id(_text(path)):
            return
        known = identity.read(self._store)
        barriers, commits = self._newest_first("offsets"), self._newest_first("commits")
        if known is not None:
            temporary = self._checkpoint / _TEMPORARY
            temporary.unlink(missing_ok=True)
            disk.write_new(temporary, json.dumps({"id": known.query}, separators=(",", ":")).encode())
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            temporary.rename(path)
            disk.sync(self._checkpoint)
            yield path
        elif not commits and (path.exists() or barriers):
            # A query that has decided nothing yet begins anew.
            for each in barriers:
                yield _remove(each)
            if path.exists():
                yield _remove(path)

    def _mend_beginning(self) -> Iterator[Path]:
        """Take away what stands where Spark begins its first epoch: over empty folders only, and nobody decided it.

        A process that dies in its first epoch leaves a temporary file there, too. What Spark writes of a state then may
        be torn, which only Spark could tell: so a first epoch with state is planned anew. Where another driver is about
        to decide it, nothing is torn.
        """
        if self._decided >= 0 or self._newest_first("commits"):
            return
        state = self._checkpoint / "state"
        versions = [_VERSION.match(path.name) for path in state.rglob("*")]
        # States of later epochs are somebody's, though nothing says whose.
        is_first = bool(versions) and all(int(found[1]) <= 1 for found in versions if found)
        barriers = self._newest_first("offsets")
        # Whoever was at work until a moment ago may have decided it.
        if (barriers and not is_first) or self._is_at_work() or self._newest_decided() >= 0:
            return
        for barrier in barriers:
            yield _remove(barrier)
        for folder in ("offsets", "commits"):
            for path in _children(self._checkpoint / folder):
                if _TEMPORARY_OF_SPARK.fullmatch(path.name):
                    yield _remove(path)
        if is_first:
            shutil.rmtree(state)
            disk.sync(self._checkpoint)
            yield state

    def _is_at_work(self) -> bool:
        """Say whether a run works here; it shows itself from its first plan on. One that just ended is waited for."""
        began = time.monotonic()
        while who := self._who():
            if time.monotonic() - began > _ENDS_S:
                log.debug("%s is left as it is: %s", self._checkpoint, who)
                return True
            time.sleep(_LOOK_S)
        return False

    def _who(self) -> str | None:
        try:
            return presence.present(str(self._checkpoint))
        except OnceonlyError:  # no locks are to be had there, so that only the runs can tell
            return who_may_live(RunFiles(self._checkpoint).newest())

    def _newest_first(self, folder: str) -> list[Path]:
        found = [path for path in _children(self._checkpoint / folder) if path.name.isdecimal()]
        return sorted(found, key=lambda path: int(path.name), reverse=True)

    def _is_committed(self, barrier: Path) -> bool:
        return (self._checkpoint / "commits" / barrier.name).exists()


def _children(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _remove(path: Path) -> Path:
    path.unlink(missing_ok=True)
    # A checksum of Hadoop's beside it would be taken for that of the next file.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    disk.sync(path.parent)
    return path


def _text(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes().decode(errors="replace")
    return ""


def _fits(sums: bytes, data: bytes) -> bool:
    """Say whether checksums are those of a file: ``crc``, a zero byte, how many bytes each is of, the CRC-32s."""
    if len(sums) < _SUMS_HEADER.size or sums[:4] != b"crc\0":
        return False
    _, chunk = _SUMS_HEADER.unpack_from(sums)
    if chunk <= 0:
        return False
    found = b"".join(
        zlib.crc32(data[begin : begin + chunk]).to_bytes(4, "big") for begin in range(0, len(data), chunk)
    )
    return sums[_SUMS_HEADER.size :] == found
