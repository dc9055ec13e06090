"""The conformance suite for a double of the loaded family, and what the family alone promises."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.unit.loaded_bench import Bench
from tests.unit.loaded_double import LoadedDouble, make_table

from onceonly.errors import InDoubtError, LogError, TargetBehindError, UnavailableError, WriteFailedError
from onceonly.families.loaded import Load
from onceonly.families.loaded.folders import FolderHome
from onceonly.model import AlreadyCommitted, Committed, Handle, Lost, Mode, RetryLater, Unknown
from onceonly_proof.conformance import SinkConformance

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from onceonly.families.loaded import Books


def listed(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "log.db", timeout=60)) as log:
        return [path for (path,) in log.execute("SELECT path FROM files")]


class TestLoaded(SinkConformance):
    sink = LoadedDouble

    def options(self, folder: Path) -> dict[str, str]:
        return make_table(folder / "table")

    def visible(self, options: Mapping[str, str]) -> list[dict[str, Any]]:
        folder = Path(options["folder"])
        return [row for path in listed(folder) for row in pq.ParquetFile(folder / path).read().to_pylist()]

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        folder = Path(options["folder"])
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")}
        return sorted(found - set(listed(folder)))

    @contextmanager
    def unreachable(self, options: Mapping[str, str]) -> Iterator[None]:
        folder = Path(options["folder"])
        aside = folder.rename(folder.with_name("aside"))
        yield
        aside.rename(folder)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(LoadedDouble, "loaded", make_table(tmp_path / "table"), {"key": "string", "value": "string"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "table"


def rows(*numbers: int) -> list[dict[str, str]]:
    return [{"key": "k", "value": f"row {number}"} for number in numbers]


def values(folder: Path) -> list[str]:
    return sorted(
        value
        for path in listed(folder)
        for value in pq.ParquetFile(folder / path).read()["value"].to_pylist()
    )


def place(folder: Path, handle: Handle) -> Path:
    return folder / Load.of(handle).folder


def test_an_attempts_files_lie_in_a_folder_of_its_own_that_says_whose_it_is(
    bench: Bench, folder: Path
) -> None:
    handle = bench.prepared(rows(1, 2), epoch=7, slot=3)
    found = place(folder, handle)
    assert found.parent == folder / "onceonly" / "q" / "loaded" / "0000000007"
    assert handle.transaction.startswith("7.3.")
    [file] = Load.of(handle).files
    assert (found / file.path).stat().st_size == file.bytes
    assert file.rows == 2
    assert values(folder) == []


def test_a_file_that_was_removed_before_the_commit_is_lost_for_good_and_the_others_are_committed(
    bench: Bench, folder: Path
) -> None:
    handles = [bench.prepared(rows(slot), slot=slot) for slot in range(3)]
    for file in place(folder, handles[1]).iterdir():
        file.unlink()
    first = bench.sink().commit_many(handles)
    assert [type(outcome) for outcome in first] == [Committed, Lost, Committed]
    again = bench.sink().commit_many(handles)
    assert [type(outcome) for outcome in again] == [AlreadyCommitted, Lost, AlreadyCommitted]
    assert values(folder) == ["row 0", "row 2"]
    assert not place(folder, handles[1]).exists()


def test_a_file_of_another_length_is_as_good_as_gone(bench: Bench, folder: Path) -> None:
    handle = bench.prepared(rows(1))
    [file] = place(folder, handle).iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert isinstance(bench.sink().commit(handle), Lost)


def test_the_rows_of_what_was_lost_are_written_again_in_the_same_epoch(bench: Bench, folder: Path) -> None:
    handles = [bench.prepared(rows(slot), slot=slot) for slot in range(2)]
    shutil.rmtree(place(folder, handles[1]))
    bench.sink().commit_many(handles)
    again = bench.prepared(rows(1), slot=1, mode=Mode.TENTATIVE)
    assert bench.sink().commit(again) == Committed()
    assert values(folder) == ["row 0", "row 1"]


def test_a_driver_that_had_a_lost_file_in_hand_cannot_commit_it_any_more(
    bench: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.prepared(rows(1))
    told: list[object] = []
    real = LoadedDouble.enter

    def late(self: LoadedDouble, books: Books, *more: Any) -> None:  # noqa: ANN401
        # It has seen the file; then somebody removes it, and another driver finds it gone.
        monkeypatch.setattr(LoadedDouble, "enter", real)
        kept = place(folder, handle).rename(folder / "kept")
        told.append(bench.sink().commit(handle))
        kept.rename(place(folder, handle))
        real(self, books, *more)

    monkeypatch.setattr(LoadedDouble, "enter", late)
    assert isinstance(bench.sink().commit(handle), Lost)
    assert [type(each) for each in told] == [Lost]
    assert values(folder) == []


def test_who_was_overtaken_in_its_commit_finds_that_all_is_well(
    bench: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.prepared(rows(1))
    real = LoadedDouble.enter

    def overtaken(self: LoadedDouble, *more: Any) -> None:  # noqa: ANN401
        monkeypatch.setattr(LoadedDouble, "enter", real)
        assert bench.sink().commit(handle) == Committed()
        real(self, *more)

    monkeypatch.setattr(LoadedDouble, "enter", overtaken)
    assert bench.sink().commit(handle) == AlreadyCommitted()
    assert values(folder) == ["row 1"]


def test_an_entry_that_may_have_been_made_is_looked_up(
    bench: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.prepared(rows(1))
    real = LoadedDouble.enter

    def unsure(self: LoadedDouble, *more: Any) -> None:  # noqa: ANN401
        real(self, *more)
        raise UnavailableError("the answer did not arrive", next_step="ask again")

    with monkeypatch.context() as patch:
        patch.setattr(LoadedDouble, "enter", unsure)
        with pytest.raises(UnavailableError):
            bench.sink().commit(handle)
    assert bench.sink().commit(handle) == AlreadyCommitted()
    assert values(folder) == ["row 1"]


def test_who_is_always_overtaken_is_asked_again_later(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from onceonly.families.loaded import ConflictError

    handle = bench.prepared(rows(1))

    def conflict(*_: object) -> None:
        raise ConflictError("somebody wrote")

    monkeypatch.setattr(LoadedDouble, "enter", conflict)
    outcome = bench.sink().commit(handle)
    assert isinstance(outcome, RetryLater)
    assert "somebody wrote" in outcome.reason


def test_what_is_not_found_in_a_log_that_was_cut_or_has_gone_on_is_unknown_and_is_not_removed(
    bench: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.prepared(rows(1))
    bench.committed(rows(2), epoch=1)
    assert isinstance(bench.sink().commit(handle), Unknown)
    real = LoadedDouble.books

    def cut(self: LoadedDouble, app: str, epoch: int | None, *, since: int | None = None) -> Books:
        import dataclasses

        return dataclasses.replace(real(self, app, epoch, since=since), is_whole=False, newest=0)

    monkeypatch.setattr(LoadedDouble, "books", cut)
    assert isinstance(bench.sink().commit(handle), Unknown)
    bench.sink().abort(handle)
    assert place(folder, handle).exists()


def test_an_attempt_whose_folder_was_swept_writes_no_more_and_gives_no_vote(
    bench: Bench, folder: Path
) -> None:
    for when in ("before a row", "before the vote"):
        sink, attempt = bench.begin()
        sink.write(attempt, bench_batch(1))
        [leftover] = sink.recover(bench.query)
        sink.abort(leftover.handle)
        with pytest.raises(WriteFailedError, match="swept"):
            sink.write(attempt, bench_batch(2)) if when == "before a row" else sink.pre_commit(attempt)
        sink.discard(attempt)
        assert not list(folder.rglob("*.parquet"))


def bench_batch(*numbers: int) -> Any:  # noqa: ANN401
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(rows(*numbers))


def test_a_drop_that_was_cut_off_is_ended_by_the_next(bench: Bench, folder: Path) -> None:
    handle = bench.prepared(rows(1))
    found = place(folder, handle)
    found.rename(found.with_name(f".dropped-{found.name}"))
    [leftover] = bench.sink().recover(bench.query)
    assert leftover.transaction == handle.transaction
    bench.sink().abort(leftover.handle)
    assert list(bench.sink().recover(bench.query)) == []
    assert not list(folder.rglob("*.parquet"))


def test_what_an_older_epoch_has_left_is_told_by_its_mark(bench: Bench, folder: Path) -> None:
    committed, left = (bench.prepared(rows(slot), slot=slot) for slot in range(2))
    bench.sink().commit(committed)
    bench.sink().complete(bench.query, 0, [committed])
    bench.committed(rows(2), epoch=1)
    [leftover] = bench.sink().recover(bench.query)
    assert leftover.transaction == left.transaction
    for handle in (committed, leftover.handle):
        bench.sink().abort(handle)
    assert place(folder, committed).exists()
    assert not place(folder, left).exists()


def test_the_note_of_an_attempt_is_removed_once(
    bench: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []
    unmark = FolderHome.unmark

    def counted(home: FolderHome, app: str, names: Iterable[str]) -> None:
        removed.extend(names)
        unmark(home, app, names)

    monkeypatch.setattr(FolderHome, "unmark", counted)
    handles = [bench.prepared(rows(slot), slot=slot) for slot in range(3)]
    shutil.rmtree(place(folder, handles[2]))
    sink = bench.sink()
    assert [type(each) for each in sink.commit_many(handles)] == [Committed, Committed, Lost]
    sink.complete(bench.query, 0, handles[:2])
    assert sorted(removed) == sorted(handle.transaction for handle in handles)
    assert list(bench.sink().recover(bench.query)) == []


def test_a_mark_that_outlived_its_commit_is_tidied_up_and_nothing_else(
    bench: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.prepared(rows(1))
    with monkeypatch.context() as patch:
        patch.setattr(FolderHome, "unmark", lambda *_: None)
        bench.sink().commit(handle)
    [leftover] = bench.sink().recover(bench.query)
    assert not leftover.is_open
    bench.sink().abort(leftover.handle)
    assert list(bench.sink().recover(bench.query)) == []
    assert values(folder) == ["row 1"]


def test_a_note_that_a_copy_has_brought_back_takes_no_committed_files(bench: Bench, folder: Path) -> None:
    handle, copy = bench.prepared(rows(0)), folder.with_name("copy")
    shutil.copytree(folder, copy)
    bench.sink().commit(handle)
    bench.sink().complete(bench.query, 0, [handle])
    bench.committed(rows(1), epoch=1)
    shutil.copytree(folder, copy, dirs_exist_ok=True)  # what is gone here stays there
    shutil.rmtree(folder)
    copy.rename(folder)
    [leftover] = bench.sink().recover(bench.query)
    assert leftover.transaction == handle.transaction
    bench.sink().abort(leftover.handle)
    assert values(folder) == ["row 0", "row 1"]
    assert list(bench.sink().recover(bench.query)) == []


def test_a_table_that_went_back_is_told_with_the_epochs_that_are_missing(bench: Bench, folder: Path) -> None:
    handles = [bench.committed(rows(0), epoch=0)]
    shutil.copy(folder / "log.db", folder / "backup")
    handles += [bench.committed(rows(epoch), epoch=epoch) for epoch in (1, 2)]
    bench.sink().look_back(bench.query, 2, handles[2:])
    shutil.copy(folder / "backup", folder / "log.db")
    with pytest.raises(TargetBehindError, match="chk-1 to chk-2 are missing"):
        bench.sink().look_back(bench.query, 2, handles[2:])
    bench.sink(**{"onceonly.target.behind": "go-on"}).look_back(bench.query, 2, handles[2:])
    bench.sink().look_back(bench.query, 2, [])


def test_a_table_that_goes_back_while_the_query_runs_takes_no_further_epoch(
    bench: Bench, folder: Path
) -> None:
    sink = bench.sink()
    handles = [bench.prepared(rows(epoch), epoch=epoch) for epoch in range(3)]
    sink.commit(handles[0])
    shutil.copy(folder / "log.db", folder / "backup")
    sink.commit(handles[1])
    shutil.copy(folder / "backup", folder / "log.db")
    with pytest.raises(TargetBehindError, match="has forgotten chk-1"):
        sink.commit(handles[2])
    assert values(folder) == ["row 0"]


def test_an_older_checkpoint_over_a_newer_table_writes_nothing(bench: Bench) -> None:
    for epoch in (0, 1):
        bench.committed(rows(epoch), epoch=epoch)
    for epoch, mode in ((0, Mode.RUN), (1, Mode.RUN), (0, Mode.TENTATIVE)):
        with pytest.raises(LogError, match="older checkpoint"):
            bench.begin(epoch, mode=mode)
    bench.begin(2)


def test_a_rehearsal_finds_files_that_are_gone(bench: Bench, folder: Path) -> None:
    handles = [bench.prepared(rows(slot), slot=slot) for slot in range(2)]
    bench.sink().rehearse(handles, {})
    shutil.rmtree(place(folder, handles[1]))
    with pytest.raises(UnavailableError, match="before its epoch was decided"):
        bench.sink().rehearse(handles, {})


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"folder": "elsewhere/0.0.x"}, {"files": "no JSON"}],
    ids=["newer", "another folder", "damaged"],
)
def test_a_handle_of_another_version_is_in_doubt(bench: Bench, change: Mapping[str, str | int]) -> None:
    handle = bench.prepared(rows(1))
    forged = Handle(transaction=handle.transaction, data={**handle.data, **change})
    with pytest.raises(InDoubtError, match="none of this sink"):
        bench.sink().commit(forged)
