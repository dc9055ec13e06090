"""Readers that take files away as soon as they see them, at every step of the driver's half of the file sink.

What they took is theirs for good: a crash, another driver, a loss of power must not give a row to them again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections import Counter
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from tests.unit.files_bench import Disk, Files, PowerLostError, crashed, quick, rows
from tests.unit.test_files_crashes import dies

from onceonly import files
from onceonly.model import AlreadyCommitted, Committed, Handle, Unknown
from onceonly.sinks.files.staging import moving
from onceonly.sinks.files.store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["quick"]  # a fixture


class Taker:
    """A landing zone's consumer: what it sees, it reads and takes away, folders too."""

    def __init__(self, bench: Files, *, moves: bool) -> None:
        self.bench = bench
        self.seen: Counter[int] = Counter()
        self._moves = moves
        self._away = bench.target.with_name(f"{bench.target.name}-taken")
        self._away.mkdir()

    def look(self) -> None:
        for path in self.bench.visible():
            self.seen.update(pq.ParquetFile(path).read()["id"].to_pylist())
            if self._moves:
                path.rename(self._away / f"{self.seen.total()}-{path.name}")
            else:
                path.unlink()
            if path.parent != self.bench.target:
                with contextlib.suppress(OSError):  # other files are in it
                    path.parent.rmdir()


takers = pytest.mark.parametrize("moves", [True, False], ids=["moved", "deleted"])


@pytest.mark.parametrize(("kill", "moves"), [(True, True), (False, False)], ids=["killed", "failed"])
def test_what_a_reader_takes_after_a_crash_at_any_step_is_not_given_to_it_again(
    quick: Path, *, kill: bool, moves: bool
) -> None:
    for nth in count(1):
        bench = Files(quick / str(nth))
        taker = Taker(bench, moves=moves)
        handles = [bench.prepared(rows(1, 2)), bench.prepared(rows(3, 4), slot=1)]
        end = crashed(partial(bench.finish, 0, *handles), nth, bench.target, kill=kill)
        taker.look()
        outcomes = bench.finish(0, *handles)
        assert set(outcomes) <= {"Committed", "AlreadyCommitted"}
        taker.look()
        assert taker.seen == Counter([1, 2, 3, 4]), f"after step {nth}"
        assert [epoch.rows for epoch in files.committed(str(bench.target))] == [4]
        assert bench.sink().recover(bench.context) == []
        assert bench.staged() == []
        if end is None:
            assert outcomes == ["AlreadyCommitted"] * 2
            assert nth > 25, "the steps are counted"
            return


def test_a_file_that_has_waited_is_as_new_as_its_name(quick: Path) -> None:
    """Spark's file source passes over a file that was written a week before others that it has seen (maxFileAge)."""
    bench = Files(quick / "out")
    handle = bench.prepared(rows(1, 2))
    begun = time.time()
    for staged in bench.staged():
        os.utime(staged, (begun - 8 * 86_400,) * 2)
    bench.finish(0, handle)
    written = [path.stat().st_mtime for path in bench.finals(handle)]
    assert min(written) >= begun - 1
    bench.finish(0, handle)
    assert [path.stat().st_mtime for path in bench.finals(handle)] == written, (
        "a name that stands is left alone"
    )


class Greedy(LocalStore):
    """A store at each of whose steps a reader looks, and takes what it sees."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look

    def publish(self, temporary: Path, final: Path) -> bool:
        free = super().publish(temporary, final)
        self._look()
        return free

    def sync_folder(self, folder: Path) -> None:
        self._look()
        super().sync_folder(folder)

    def rename_folder(self, folder: Path, new: Path) -> None:
        super().rename_folder(folder, new)
        self._look()


@takers
def test_a_reader_that_takes_files_while_they_are_committed_is_no_error(quick: Path, *, moves: bool) -> None:
    bench = Files(quick / "out")
    taker = Taker(bench, moves=moves)
    handles = [bench.prepared(rows(1, 2)), bench.prepared(rows(3, 4), slot=1)]
    bench.store = Greedy(taker.look)
    assert bench.finish(0, *handles) == ["Committed", "Committed"]
    assert bench.finish(0, *handles) == ["AlreadyCommitted", "AlreadyCommitted"], "by the manifest"
    assert taker.seen == Counter([1, 2, 3, 4])
    assert [epoch.rows for epoch in files.committed(str(bench.target))] == [4]


@takers
def test_after_a_loss_of_power_at_any_step_nothing_that_was_durable_is_given_again(
    quick: Path, *, moves: bool
) -> None:
    """What a reader took before it was durable is durable with its taking: one journal keeps their order."""
    for nth in count(1):
        bench = Files(quick / str(nth), store=Disk())
        taker = Taker(bench, moves=moves)
        handles = [bench.prepared(rows(1, 2)), bench.prepared(rows(3, 4), slot=1)]
        disk = bench.store = Disk(dies_at=nth)
        died = dies(partial(bench.finish, 0, *handles))
        taker.look()
        disk.lose_power()
        outcomes = bench.finish(0, *handles)
        taker.look()
        assert taker.seen <= Counter([1, 2, 3, 4]), "nothing twice"
        if set(outcomes) <= {"Committed", "AlreadyCommitted"}:
            assert taker.seen == Counter([1, 2, 3, 4])
        else:
            # The folder's new name was lost with the power, and what it told: in doubt, never twice.
            assert "Unknown" in outcomes
        if not died:
            assert outcomes == ["AlreadyCommitted"] * 2
            return


class Overtaken(LocalStore):
    """A store whose driver is paused before its n-th step while another driver, and a reader, do all of it."""

    def __init__(self, nth: int, meanwhile: Callable[[], None]) -> None:
        self.steps = 0
        self._nth = nth
        self._meanwhile = meanwhile

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self._nth:
            self._meanwhile()

    def publish(self, temporary: Path, final: Path) -> bool:
        self._step()
        return super().publish(temporary, final)

    def size(self, path: Path) -> int | None:
        self._step()
        return super().size(path)

    def files(self, folder: Path) -> Iterator[Path]:
        self._step()
        found = list(super().files(folder))
        self._step()
        return iter(found)

    def rename_folder(self, folder: Path, new: Path) -> None:
        self._step()
        super().rename_folder(folder, new)


@pytest.mark.parametrize("takes", [True, False], ids=["taken", "left"])
@pytest.mark.parametrize("complete", [True, False], ids=["completed", "committed"])
def test_a_driver_that_is_paused_at_any_step_doubles_nothing(
    quick: Path, *, complete: bool, takes: bool
) -> None:
    for nth in count(1):
        bench = Files(quick / str(nth))
        taker = Taker(bench, moves=False)
        handles = [bench.prepared(rows(1, 2)), bench.prepared(rows(3, 4), slot=1)]
        other = Files(bench.target)

        def meanwhile(other: Files = other, handles: list[Handle] = handles, taker: Taker = taker) -> None:
            if complete:
                other.finish(0, *handles)
            else:
                for handle in handles:
                    other.sink().commit(handle)
            if takes:
                taker.look()

        store = bench.store = Overtaken(nth, meanwhile)
        outcomes = [type(bench.sink().commit(handle)) for handle in handles]
        assert Unknown not in outcomes
        bench.store = LocalStore()
        assert set(bench.finish(0, *handles)) <= {"Committed", "AlreadyCommitted"}
        taker.look()
        assert taker.seen == Counter([1, 2, 3, 4])
        if store.steps < nth:
            assert nth > 15, "the steps are counted"
            return


@pytest.mark.parametrize("former", [False, True], ids=["moved", "of the version that linked"])
def test_a_copy_to_another_file_system_is_taken_once_whatever_crashes(
    quick: Path, tmp_path: Path, *, former: bool
) -> None:
    for nth in count(1):
        bench = Files(quick / str(nth))
        taker = Taker(bench, moves=False)
        handle = bench.prepared(rows(1, 2))
        handle = linked(bench, handle) if former else handle
        other = tmp_path / str(nth)
        other.mkdir()
        (bench.target / "day=d1").symlink_to(other)

        def look(bench: Files = bench, taker: Taker = taker, other: Path = other) -> None:
            for path in other.glob("[!.]*"):
                taker.seen.update(pq.ParquetFile(path).read()["id"].to_pylist())
                path.unlink()

        end = crashed(partial(bench.finish, 0, handle), nth, quick, kill=True)
        look()
        assert set(bench.finish(0, handle)) <= {"Committed", "AlreadyCommitted"}
        look()
        assert taker.seen == Counter([1])
        assert list(other.iterdir()) == [], "no copy is left"
        if end is None:
            assert nth > 20
            return


class Unlucky(LocalStore):
    """A store whose first listing of what is committed shows neither name of a file that is renamed meanwhile."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = [meanwhile]

    def files(self, folder: Path) -> Iterator[Path]:
        found = list(super().files(folder))
        if folder.name.endswith(".committing") and self._meanwhile:
            self._meanwhile.pop()()
            found = []
        return iter(found)


class KilledError(BaseException):
    """The process is gone."""


def test_a_copy_that_another_driver_left_unfinished_is_not_taken_for_published(
    quick: Path, tmp_path: Path
) -> None:
    bench, other = Files(quick / "out"), Files(quick / "out")
    handle = bench.prepared(rows(1))
    (bench.target / "day=d1").symlink_to(tmp_path)

    class Dying(LocalStore):
        def publish(self, temporary: Path, final: Path) -> bool:
            if temporary.name.endswith(".copying"):
                raise KilledError
            return super().publish(temporary, final)

    other.store = Dying()

    def meanwhile() -> None:
        with pytest.raises(KilledError):
            other.sink().commit(handle)

    bench.store = Unlucky(meanwhile)
    assert set(bench.finish(0, handle)) <= {"Committed", "AlreadyCommitted"}
    assert [path.name for path in tmp_path.iterdir()] == [path.name for path in bench.finals(handle)]
    assert bench.staged() == []


def test_what_was_published_is_not_read_again(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Files(quick / "out")
    handle = bench.prepared(rows(1, 2))
    assert bench.sink().commit(handle) == Committed()
    read: list[Path] = []
    monkeypatch.setattr(LocalStore, "checksum", lambda _self, path: read.append(path))
    assert bench.sink().commit(handle) == AlreadyCommitted()
    assert read == [], "it may be much"


def test_without_a_rename_that_spares_the_law_is_the_same(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(source: Path, destination: Path) -> None:
        raise OSError(errno.EINVAL, "no such flag", str(source), None, str(destination))

    monkeypatch.setattr(moving, "rename_noreplace", unknown)
    bench = Files(quick / "out")
    handle = bench.prepared(rows(1, 2))
    taken = bench.finals(handle)[0]
    taken.parent.mkdir()
    taken.write_bytes(b"somebody's")
    assert isinstance(bench.sink().commit(handle), Unknown)
    assert taken.read_bytes() == b"somebody's"
    taken.unlink()
    assert bench.finish(0, handle) == ["Committed"]
    assert bench.ids() == [1, 2]


def test_without_folder_and_file_only_the_manifest_tells(quick: Path) -> None:
    bench = Files(quick / "out")
    taker = Taker(bench, moves=False)
    one, other = bench.prepared(rows(1)), bench.prepared(rows(2), epoch=1)
    for handle in (one, other):
        assert bench.sink().commit(handle) == Committed()
    bench.sink().complete(bench.context, 0, [one])
    taker.look()
    shutil.rmtree(bench.target / "_onceonly" / "staging")
    assert bench.sink().commit(one) == AlreadyCommitted()
    assert isinstance(bench.sink().commit(other), Unknown), "in doubt, never twice"


# --- handles of the version that linked -----------------------------------------------------------------------


def linked(bench: Files, handle: Handle) -> Handle:
    """Turn a prepared transaction into one of version 1: final paths in its folder."""
    folder = Path(str(handle.data["staging"]))
    for path, final in zip(sorted(folder.iterdir()), bench.finals(handle), strict=True):
        former = folder / final.relative_to(bench.target)
        former.parent.mkdir(exist_ok=True)
        path.rename(former)
    return Handle(transaction=handle.transaction, data={**handle.data, "version": 1})


@pytest.mark.parametrize(("published", "sight"), [(0, "left"), (1, "left"), (2, "moved")])
def test_a_pending_handle_of_the_version_that_linked_is_committed(
    quick: Path, published: int, sight: str
) -> None:
    for nth in count(1):
        bench = Files(quick / str(nth))
        handle = linked(bench, bench.prepared(rows(1, 2)))
        folder = Path(str(handle.data["staging"]))
        away = bench.target.with_name(f"{nth}-away")
        away.mkdir()
        for final in bench.finals(handle)[:published]:
            final.parent.mkdir()
            os.link(folder / final.relative_to(bench.target), final)
            if sight == "moved":
                final.rename(away / final.name)
        end = crashed(partial(bench.finish, 0, handle), nth, bench.target, kill=True)
        assert set(bench.finish(0, handle)) <= {"Committed", "AlreadyCommitted"}
        taken = [row for path in away.iterdir() for row in pq.ParquetFile(path).read()["id"].to_pylist()]
        assert sorted(bench.ids() + taken) == [1, 2]
        assert bench.staged() == []
        assert [epoch.rows for epoch in files.committed(str(bench.target))] == [2]
        if end is None:
            return


def test_a_loss_of_power_leaves_a_linked_file_one_of_its_names(quick: Path) -> None:
    for nth in count(1):
        bench = Files(quick / str(nth), store=Disk())
        handle = linked(bench, bench.prepared(rows(1)))
        (final,) = bench.finals(handle)
        disk = bench.store = Disk()
        disk.make_folder(final.parent)
        os.link(Path(str(handle.data["staging"])) / final.relative_to(bench.target), final)
        disk._made |= {final}
        disk.die_at(nth)
        died = False
        try:
            bench.finish(0, handle)
        except PowerLostError:
            died = True
        disk.lose_power()
        assert set(bench.finish(0, handle)) <= {"Committed", "AlreadyCommitted"}
        assert bench.ids() == [1]
        if not died:
            return
