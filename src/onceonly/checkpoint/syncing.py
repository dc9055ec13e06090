"""Spark's checkpoint made durable before a decision stands on it.

Spark syncs none of its files. A decision of epoch N says "these rows, up to there", and a replay of N reads
``metadata``, ``offsets/N`` and the one before, ``commits/N-1``, the lists of files in ``sources`` and the state that
epoch N-1 left. All of that is there when N is planned: so the syncs are begun then, in a thread beside the tasks, and
the decision waits for their end. The state that N's own tasks leave is read by whoever starts at N+1; it is there when
they have ended, so that the decision of N, or its drain, waits for that, too (ADR 41 says why no later).

On the format way planner and commit process are two. The planner leaves a note of what became of its syncs, and the
commit process decides on that note alone: to sync once more would prove nothing, as Linux tells of a failed write once,
and the one who was told may be the other process. A planner that ends before its note is complete (a failed fsync ends
it, see ``durable``) keeps the epoch from being decided. So where Spark does not use its workers again and ends the
planner with its plan, the planner ends its syncs first.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from onceonly import background
from onceonly.durable import disk
from onceonly.durable.sealed import decoder
from onceonly.log.heartbeat import lives
from onceonly.log.identity import FOLDER

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from onceonly.model import Plan

WAIT_S = 300.0
"""How long a decision waits for the syncs of its epoch. The disk is then so slow that the epoch had better run anew."""
_LOOK_S = 0.001
_MISSING_S = 5.0
_THREADS_MAX = 8
# A folder that has changed just now may change again without another time of change.
_AT_REST_S = 2.0
_SMALL_BYTES_MAX = 1024 * 1024
_NOTE = "synced"
_OLD_S = 86_400.0
# What Spark sets in its Python workers (org.apache.spark.api.python.PythonWorkerFactory), and where they live on.
_WORKERS = "PYTHON_WORKER_FACTORY_"
_REUSED = "SPARK_REUSE_WORKER"
# One page at most, which is read as a whole; the reason is cut to fit, escapes and all.
_NOTE_BYTES = 2048
_WHY_MAX = 300


@dataclass(slots=True)
class _Folder:
    """What a folder held when it was listed: what is known to be durable of it."""

    changed_ns: int = -1
    at_rest: bool = False
    files: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    # Of those that nobody writes any more: what a listing says of them without a look at each.
    inodes: dict[str, int] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)


class CheckpointSync:
    """The syncs of one checkpoint, or of a folder in it, in one process. Driver, planner or commit process.

    One epoch at a time.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._known: dict[Path, _Folder] = {}
        self._running: tuple[str, Future[str]] | None = None
        self._lock = threading.Lock()

    def begin(self, plan: Plan) -> None:
        """Begin the syncs of an epoch that was just planned. Planner or driver, once a try.

        Does not wait, unless this process ends with its plan.
        """
        note = _Note(self._checkpoint, plan)
        note.put(done=False)
        first = self._running is None

        def work() -> str:
            why = self.sync()
            note.put(done=True, why=why)
            if first:
                _drop_old_notes(self._checkpoint)
            return why

        self._running = (plan.id, background.begin("onceonly-sync", work))
        if _ends_soon():
            self.wait(plan)

    def wait(self, plan: Plan) -> str:
        """Wait until all that was begun is durable; say what kept it from being, empty where nothing did.

        Any process of the driver's machine, once a try, before the decision.
        """
        running = self._running
        if running is None or running[0] != plan.id:
            return _Note(self._checkpoint, plan).wait()
        background.wait_awake([running[1]], WAIT_S)
        if not running[1].done():
            return f"the syncs of {self._checkpoint} took more than {WAIT_S:g} s"
        return running[1].result()

    def sync(self) -> str:
        """Make durable what is new in the checkpoint since the last time; say what kept it from being.

        The first time in a process that is all of it, and the newest small files are written anew, as an fsync that
        failed in a process before this one would be answered with success now. Folders that have not changed are not
        listed again.
        """
        # What a try that was given up still syncs is listed already, and not durable yet.
        with self._lock:
            try:
                if not self._known:
                    for path in self._small():
                        _renew(path)
                # In any order: nothing stands on a name or a content before both are durable.
                background.spread("onceonly-sync", _sync, self._changes(), threads_max=_THREADS_MAX)
            except OSError as error:
                # What was taken for durable when it was listed may not be.
                self._known.clear()
                return f"{error.filename or self._checkpoint}: {error.strerror or error}"
            return ""

    def _small(self) -> list[Path]:
        """Return the files that a start reads first: the query's id, the newest barriers, commit and lists of files."""
        found = [self._checkpoint / "metadata"]
        lists = self._checkpoint / "sources"
        numbered = [(self._checkpoint / "offsets", 2), (self._checkpoint / "commits", 1)]
        numbered += [(folder, 1) for folder in lists.iterdir()] if lists.is_dir() else []
        for folder, count in numbered:
            names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
            newest = sorted((name for name in names if name[:1].isdecimal()), key=_number)[-count:]
            found += (folder / name for name in newest)
        return found

    def _changes(self) -> list[Path]:
        """Find files and folders that are not known to be durable, and take them for it."""
        changed: list[Path] = []
        if not self._known:
            # A name outlives a loss of power only with the names of the folders that it is in.
            changed += disk.above(self._checkpoint)
        waiting = [self._checkpoint]
        found: dict[Path, _Folder] = {}
        while waiting:
            folder = waiting.pop()
            try:
                changed_ns = folder.stat().st_mtime_ns
                known = self._known.get(folder)
                if known is not None and known.at_rest and known.changed_ns == changed_ns:
                    now = known
                else:
                    now = _listed(folder, changed_ns, known, FOLDER if folder == self._checkpoint else "")
            except FileNotFoundError:  # Spark clears away what no replay reads
                continue
            if now is not known:
                new = _new_files(known, now)
                changed += (folder / name for name in new)
                if new or known is None or _has_changed(known, now):
                    changed.append(folder)
            found[folder] = now
            waiting += (folder / name for name in now.folders)
        self._known = found
        return changed


def _listed(folder: Path, changed_ns: int, known: _Folder | None, own: str) -> _Folder:
    """List a folder, without one of its folders: the log, which is durable by itself.

    Spark keeps the files of 100 epochs and more, so those that rest are not looked at again: another file under the
    same name has another inode.
    """
    listed, newest_ns = _Folder(changed_ns), changed_ns
    rest_ns = time.time_ns() - int(_AT_REST_S * 1e9)
    resting = {} if known is None else known.inodes
    with os.scandir(folder) as entries:
        for entry in entries:
            # What ends so has not been given its name yet.
            if entry.name.endswith(".tmp") or entry.name == own:
                continue
            if entry.is_dir(follow_symlinks=False):
                listed.folders.append(entry.name)
                continue
            if known is not None and resting.get(entry.name) == entry.inode():
                listed.files[entry.name] = known.files[entry.name]
                listed.inodes[entry.name] = entry.inode()
                continue
            try:
                about = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            listed.files[entry.name] = (about.st_ino, about.st_mtime_ns, about.st_size)
            newest_ns = max(newest_ns, about.st_mtime_ns)
            # Some file systems list other numbers than they tell of a file.
            if about.st_mtime_ns < rest_ns and about.st_ino == entry.inode():
                listed.inodes[entry.name] = about.st_ino
    listed.folders.sort()
    # A file that grows changes no folder: Spark copies RocksDB's files beside the epochs, under their last names.
    listed.at_rest = newest_ns < rest_ns
    return listed


def _new_files(known: _Folder | None, now: _Folder) -> list[str]:
    """Return the names of files that are new, or other than they were when the folder was listed before."""
    return [name for name, file in now.files.items() if known is None or known.files.get(name) != file]


def _has_changed(known: _Folder, now: _Folder) -> bool:
    """Say whether the names in a folder may be others than when it was listed before."""
    return known.folders != now.folders or known.changed_ns != now.changed_ns


def _sync(path: Path) -> None:
    try:
        disk.sync(path)
    except FileNotFoundError:
        return


def _renew(path: Path) -> None:
    try:
        if path.stat().st_size <= _SMALL_BYTES_MAX:
            disk.renew(path)
    except FileNotFoundError:
        return


def _number(name: str) -> int:
    return int(name.partition(".")[0])


class _Noted(msgspec.Struct, frozen=True):
    plan: str
    process: int
    done: bool
    why: str = ""


class _Note:
    """What the planner says of its syncs, in a file that need not outlive the machine. One for an application."""

    def __init__(self, checkpoint: Path, plan: Plan) -> None:
        application, dot, _ = plan.id.partition(".")
        self._path = checkpoint / FOLDER / (f"{_NOTE}.{application}" if dot else _NOTE)
        self._plan = plan.id

    def put(self, *, done: bool, why: str = "") -> None:
        """Write it. Where it cannot be written, nobody reads it, and nothing is decided."""
        noted = msgspec.json.encode(_Noted(self._plan, os.getpid(), done, why[:_WHY_MAX]))
        # Written over in its place: a file system that is careful of power cuts would sync a rename here.
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.pwrite(descriptor, noted.ljust(_NOTE_BYTES), 0)
            finally:
                os.close(descriptor)

    def wait(self) -> str:
        """Wait for it to be complete; say what it says."""
        begun = time.monotonic()
        while True:
            waited_s = time.monotonic() - begun
            # Read after the look at the clock: who was stopped meanwhile, as a whole machine is, is late and may know.
            noted = self._read()
            if noted is None:
                if waited_s > _MISSING_S:
                    return f"{self._path} does not tell of the syncs of this plan: its planner has not written it"
            elif noted.done:
                return noted.why
            elif not lives(noted.process):
                # It may have ended between two looks, with all done.
                last = self._read()
                if last is not None and last.done:
                    return last.why
                return f"the planner (process {noted.process}) ended before its syncs did"
            if waited_s > WAIT_S:
                return f"the syncs of the planner took more than {WAIT_S:g} s"
            time.sleep(_LOOK_S)

    def _read(self) -> _Noted | None:
        try:
            noted = decoder(_Noted).decode(self._path.read_bytes())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None
        return noted if noted.plan == self._plan else None


def _drop_old_notes(checkpoint: Path) -> None:
    """Take away what applications of former days have left: a job that is started by a clock has many."""
    with contextlib.suppress(OSError):
        for path in (checkpoint / FOLDER).glob(f"{_NOTE}.*"):
            if time.time() - path.stat().st_mtime > _OLD_S:
                path.unlink(missing_ok=True)


def _ends_soon() -> bool:
    """Say whether Spark kills this process once it has answered: a worker under spark.python.worker.reuse=false."""
    return _REUSED not in os.environ and any(name.startswith(_WORKERS) for name in os.environ)
