"""What the tests of the file sink share: a sink with its contexts, and crashes at every step of the kernel."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onceonly.errors import OnceonlyError
from onceonly.model import Guarantee, Handle
from onceonly.ports import QueryContext, WriteContext
from onceonly.sinks.files import FilesSink
from onceonly.sinks.files.prepared import Prepared
from onceonly.sinks.files.store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from onceonly.sinks.files.store import Store

COLUMNS = (("id", "bigint"), ("day", "string"))
# What changes a file system; listed by https://docs.python.org/3/library/audit_events.html.
STEPS = frozenset(
    {"open", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.scandir", "shutil.rmtree"}
)
FAILED, TYPED = 3, 4


@dataclass
class Files:
    """A target and a query that writes to it."""

    target: Path
    options: dict[str, str] = field(default_factory=dict)
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    columns: tuple[tuple[str, str], ...] = COLUMNS
    query: str = "q-1"
    store: Store = field(default_factory=LocalStore)

    def sink(self) -> FilesSink:
        made = FilesSink({"path": str(self.target), "partitionby": "day", **self.options})
        made._store = self.store
        return made

    @property
    def context(self) -> QueryContext:
        return QueryContext(query=self.query, sink="files", guarantee=self.guarantee, columns=self.columns)

    def begin(self, epoch: int = 0, slot: int = 0, **more: Any) -> tuple[FilesSink, Any]:  # noqa: ANN401
        sink = self.sink()
        facts = sink.check(self.context)
        context = WriteContext(
            query=self.query, sink="files", run="r", epoch=epoch, plan="p", slot=slot, attempt="1",
            guarantee=self.guarantee, facts=facts, **more,
        )  # fmt: skip
        return sink, sink.begin_transaction(context)

    def prepared(self, rows: dict[str, list[Any]], epoch: int = 0, slot: int = 0) -> Handle:
        sink, attempt = self.begin(epoch, slot)
        sink.write(attempt, pa.record_batch(rows))
        return sink.pre_commit(attempt)

    def finish(self, epoch: int, *handles: Handle) -> list[str]:
        """Commit, complete and sweep, as far as the outcomes let the runtime go on; give them."""
        sink = self.sink()
        outcomes = [type(sink.commit(handle)).__name__ for handle in handles]
        if set(outcomes) <= {"Committed", "AlreadyCommitted"}:
            sink.complete(self.context, epoch, handles)
            self.sweep(sink, keep=handles)
        return outcomes

    def sweep(self, sink: FilesSink | None = None, keep: Iterable[Handle] = ()) -> list[str]:
        """List, then abort what no handle names, as the runtime does once it has looked; give what was aborted."""
        sink = sink or self.sink()
        kept = {handle.transaction for handle in keep}
        left = [each for each in sink.recover(self.context) if each.transaction not in kept]
        for each in left:
            sink.abort(each.handle)
        return [each.transaction for each in left]

    def visible(self) -> list[Path]:
        """The files that Spark would read."""
        return [
            path
            for path in sorted(self.target.rglob("*"))
            if path.is_file() and not any(part[0] in "._" for part in path.relative_to(self.target).parts)
        ]

    def ids(self) -> list[int]:
        """The column ``id`` of all that is visible, in parquet."""
        tables = [pq.ParquetFile(path).read() for path in self.visible()]
        return sorted(value for table in tables for value in table["id"].to_pylist())

    def finals(self, handle: Handle) -> list[Path]:
        """The final names of a handle's files."""
        return [self.target / file.path for file in Prepared.of(handle).files]

    def staged(self) -> list[Path]:
        return [path for path in (self.target / "_onceonly" / "staging").rglob("*") if path.is_file()]


class PowerLostError(BaseException):
    """The machine is gone; nothing between here and the test may catch it."""


class Disk(LocalStore):
    """A disk that loses its power before its n-th step, and then every name whose folder was not synced.

    The worst disk with a journal: what was removed is gone at once, what was made is there only once synced, and what
    was renamed has one of its two names, the former one until the folder of the new one is synced.
    """

    def __init__(self, dies_at: int = 0) -> None:
        self.steps = 0
        self.synced: list[Path] = []
        self._dies_at = dies_at
        self._made: set[Path] = set()
        self._renamed: list[tuple[Path, Path]] = []

    def die_at(self, nth: int) -> None:
        """Lose the power before the n-th step from now; never, with 0."""
        self.steps, self._dies_at = 0, nth

    def lose_power(self) -> None:
        self._dies_at = 0
        for former, name in reversed(self._renamed):
            # Where the place of the former name was removed, nothing is left. What a reader took away was durable.
            if name.exists() and former.parent.exists():
                name.rename(former)
            elif name.is_file():
                name.unlink()
        self._renamed.clear()
        for path in sorted(self._made, reverse=True):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        self._made.clear()

    def _step(self, made: Path | None = None) -> None:
        self.steps += 1
        if self.steps == self._dies_at:
            raise PowerLostError
        if made is not None and not made.exists():
            self._made.add(made)

    def make_folder(self, folder: Path) -> None:
        self._step(folder)
        super().make_folder(folder)

    def make_fenced(self, folder: Path) -> None:
        self._step(folder)
        super().make_fenced(folder)

    def create(self, path: Path) -> BinaryIO:
        self._step(path)
        return super().create(path)

    def publish(self, temporary: Path, final: Path) -> bool:
        self._step()
        free = super().publish(temporary, final)
        if free:
            self._renamed.append((temporary, final))
        return free

    def copy(self, path: Path, copy: Path) -> None:
        self._step(copy)
        super().copy(path, copy)

    def put_if_absent(self, path: Path, data: bytes) -> bool:
        self._step(path)
        return super().put_if_absent(path, data)

    def sync_folder(self, folder: Path) -> None:
        self._step()
        super().sync_folder(folder)
        self.synced.append(folder)
        self._made = {path for path in self._made if path.parent != folder}
        self._renamed = [names for names in self._renamed if names[1].parent != folder]

    def delete(self, path: Path) -> None:
        self._step()
        super().delete(path)

    def rename_folder(self, folder: Path, new: Path) -> None:
        self._step()
        was = folder.exists()
        super().rename_folder(folder, new)
        if was:
            self._renamed.append((folder, new))

    def delete_folder(self, folder: Path) -> None:
        self._step()
        super().delete_folder(folder)


@pytest.fixture
def quick() -> Iterator[Path]:
    """Return a folder in memory, where there is one: thousands of fsyncs would make a disk the test's subject."""
    memory = Path("/dev/shm")  # noqa: S108  made by mkdtemp below it
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def rows(*ids: int) -> dict[str, list[Any]]:
    return {"id": list(ids), "day": [f"d{number % 2}" for number in ids]}


def crashed(action: Callable[[], object], nth: int, folder: Path, *, kill: bool) -> int | None:
    """Run the action in a process that is killed, or whose file system fails, at its n-th step in a folder.

    Gives None where it came to its end before that, else how it ended: FAILED, TYPED, or by SIGKILL.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child starts no thread and returns no more
        child = os.fork()
    if child == 0:
        os._exit(_run(action, nth, str(folder), kill=kill))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in {0, TYPED, -signal.SIGKILL}, status
    return status or None


def _run(action: Callable[[], object], nth: int, folder: str, *, kill: bool) -> int:
    count = 0

    def step(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if event in STEPS and any(str(argument).startswith(folder) for argument in arguments):
            count += 1
            if count == nth:
                if kill:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise OSError(errno.EIO, "put in by hand", folder)

    sys.addaudithook(step)
    try:
        action()
    except OnceonlyError:
        return TYPED
    except BaseException:  # noqa: BLE001  told by the code
        return FAILED
    return TYPED if count >= nth else 0
