"""The conformance suite for a double of the staged family, and what the family alone promises."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.staged_double import StagedDouble, StagedSuite

from onceonly.errors import ConfigurationError, LogError, UnavailableError, WriteFailedError
from onceonly.families.staged.files import FileRows
from onceonly.families.staged.names import epoch_of
from onceonly.model import AlreadyCommitted, Committed, Guarantee, Handle, Lost
from onceonly.ports import QueryContext, WriteContext
from onceonly.settings.registry import build, settings_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from onceonly.families.staged import StagedRows
    from onceonly.ports import Sink


class TestStaged(StagedSuite):
    def options(self, folder: Path) -> dict[str, str]:
        return {**super().options(folder), "staging": str(folder / "staging")}

    def orphans(self, options: Mapping[str, str]) -> list[str]:
        return [str(path) for path in Path(options["staging"]).rglob("*") if path.is_file()]


class Bench:
    """A sink of the family in a checkpoint, without a suite."""

    def __init__(self, folder: Path) -> None:
        suite = StagedSuite()
        self.options = suite.options(folder)
        self.checkpoint = folder / "checkpoint"
        self.suite = suite

    def visible(self) -> list[tuple[str, str]]:
        return sorted(self.suite.visible(self.options))

    def files(self) -> list[Path]:
        return [path for path in self.checkpoint.rglob("*") if path.is_file()]

    def sink(self) -> Sink:
        settings = settings_of(self.options, "staged", StagedDouble).sink
        return build(settings, StagedDouble, checkpoint=str(self.checkpoint))

    def context(self, epoch: int, slot: int) -> WriteContext:
        return WriteContext(
            query="q", sink="staged", run="r", epoch=epoch, plan="p", slot=slot, attempt="0",
            guarantee=Guarantee.EXACTLY_ONCE,
        )  # fmt: skip


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_rows_wait_in_the_querys_checkpoint_where_others_cannot_read_them(bench: Bench) -> None:
    sink = bench.sink()
    attempt = sink.begin_transaction(bench.context(7, 0))
    sink.write(attempt, bench.suite.batch([1, 2]))
    sink.pre_commit(attempt)
    [file] = bench.files()
    assert file.parent == bench.checkpoint / "onceonly" / "staged" / "q" / "staged"
    assert epoch_of(file.name) == 7
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert bench.visible() == []


def test_an_epoch_is_applied_in_one_transaction_and_its_files_are_gone(bench: Bench) -> None:
    sink = bench.sink()
    handles = []
    for slot in range(3):
        attempt = sink.begin_transaction(bench.context(0, slot))
        sink.write(attempt, bench.suite.batch([slot]))
        handles.append(sink.pre_commit(attempt))
    ready = [handle for handle in handles if handle is not None]
    applied: list[int] = []
    real = StagedDouble.apply

    def counting(self: StagedDouble, staged: Mapping[str, StagedRows]) -> None:
        applied.append(len(staged))
        real(self, staged)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StagedDouble, "apply", counting)
        assert set(sink.commit_many(ready)) == {Committed()}
    assert applied == [3]
    assert set(bench.sink().commit_many(ready)) == {AlreadyCommitted()}
    assert bench.files() == []


def test_who_was_overtaken_in_its_commit_finds_that_all_is_well(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = bench.sink()
    attempt = sink.begin_transaction(bench.context(0, 0))
    sink.write(attempt, bench.suite.batch([1]))
    handle = sink.pre_commit(attempt)
    assert handle is not None
    real = StagedDouble.apply

    def overtaken(self: StagedDouble, staged: Mapping[str, StagedRows]) -> None:
        real(self, staged)
        real(self, staged)

    monkeypatch.setattr(StagedDouble, "apply", overtaken)
    assert sink.commit(handle) == AlreadyCommitted()
    assert bench.visible() == sorted(map(tuple, (row.values() for row in bench.suite.batch([1]).to_pylist())))


def test_an_attempt_whose_file_was_swept_gives_no_vote(bench: Bench) -> None:
    sink = bench.sink()
    attempt = sink.begin_transaction(bench.context(0, 0))
    sink.write(attempt, bench.suite.batch([1]))
    context = QueryContext(query="q", sink="staged", guarantee=Guarantee.EXACTLY_ONCE)
    [leftover] = sink.recover(context)
    sink.abort(leftover.handle)
    with pytest.raises(WriteFailedError, match="swept"):
        sink.pre_commit(attempt)


def prepared(bench: Bench, slot: int = 0) -> Handle:
    sink = bench.sink()
    attempt = sink.begin_transaction(bench.context(0, slot))
    sink.write(attempt, bench.suite.batch([slot]))
    handle = sink.pre_commit(attempt)
    assert handle is not None
    return handle


def test_a_staged_file_that_somebody_removed_is_lost_for_good_and_the_others_are_applied(
    bench: Bench,
) -> None:
    handles = [prepared(bench, slot) for slot in range(3)]
    sink = bench.sink()
    sink.abort(handles[1])
    outcomes = sink.commit_many(handles)
    assert [type(outcome) for outcome in outcomes] == [Committed, Lost, Committed]
    assert [type(outcome) for outcome in bench.sink().commit_many(handles)] == [
        AlreadyCommitted,
        Lost,
        AlreadyCommitted,
    ]
    assert len(bench.visible()) == 2


def staged_in_two(bench: Bench) -> tuple[Handle, Path, int]:
    """Return a handle of two batches, its file, and where the first of them ends there."""
    sink = bench.sink()
    attempt = sink.begin_transaction(bench.context(0, 0))
    ends = []
    for number in (1, 2):
        sink.write(attempt, bench.suite.batch([number]))
        attempt._file.flush()
        ends.append(attempt._path.stat().st_size)
    handle = sink.pre_commit(attempt)
    assert handle is not None
    return handle, attempt._path, ends[0]


@pytest.mark.parametrize("more", [0, 100], ids=["between two batches, so that it reads well", "within one"])
def test_a_staged_file_that_somebody_cut_is_lost_as_one_that_is_gone(bench: Bench, more: int) -> None:
    handle, path, first = staged_in_two(bench)
    os.truncate(path, first + more)
    assert isinstance(bench.sink().commit(handle), Lost)
    assert isinstance(bench.sink().commit(handle), Lost)
    assert bench.visible() == []
    context = QueryContext(query="q", sink="staged", guarantee=Guarantee.EXACTLY_ONCE)
    [leftover] = bench.sink().recover(context)
    bench.sink().abort(leftover.handle)
    assert bench.files() == []


@pytest.mark.parametrize("at", [0, 1], ids=["nothing reads", "rows are missing"])
def test_a_staged_file_that_somebody_changed_is_named_and_is_written_again_once_it_is_removed(
    bench: Bench, at: int
) -> None:
    handle, path, first = staged_in_two(bench)
    whole = path.read_bytes()
    # Of the length that it had: what says that the stream ends here, or nonsense from the start.
    path.write_bytes((whole[:first] if at else b"").ljust(len(whole), b"\0"))
    with pytest.raises(LogError, match=f"{path} is damaged") as raised:
        bench.sink().commit(handle)
    assert "remove it" in raised.value.next_step
    assert bench.visible() == []
    path.unlink()
    assert isinstance(bench.sink().commit(handle), Lost)


def test_what_an_older_version_staged_is_applied_though_it_does_not_say_how_long_it_is(bench: Bench) -> None:
    handle, _, _ = staged_in_two(bench)
    older = {name: value for name, value in handle.data.items() if name not in {"rows", "bytes"}}
    assert bench.sink().commit(Handle(transaction=handle.transaction, data=older)) == Committed()
    assert len(bench.visible()) == 2


def test_a_driver_that_had_a_lost_file_in_hand_cannot_apply_it_any_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = prepared(bench)
    real = StagedDouble.apply
    told: list[object] = []

    def late(self: StagedDouble, staged: Mapping[str, StagedRows]) -> None:
        # It has opened the file; somebody removes it, and another driver finds it gone.
        [path] = bench.files()
        kept = {name: FileRows(path.rename(path.with_suffix(".kept"))) for name in staged}
        monkeypatch.setattr(StagedDouble, "apply", real)
        told.append(bench.sink().commit(handle))
        real(self, kept)

    monkeypatch.setattr(StagedDouble, "apply", late)
    with pytest.raises(UnavailableError):
        bench.sink().commit(handle)
    assert [type(each) for each in told] == [Lost]
    assert bench.visible() == []
    assert isinstance(bench.sink().commit(handle), Lost)


def test_what_was_applied_after_its_file_was_missed_is_not_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = prepared(bench)
    [path] = bench.files()
    kept = path.rename(path.with_suffix(".kept"))
    real = StagedDouble.void

    def late(self: StagedDouble, names: Collection[str]) -> Collection[str]:
        self.apply({path.name: FileRows(kept)})  # by a driver that had it in hand
        return real(self, names)

    monkeypatch.setattr(StagedDouble, "void", late)
    assert bench.sink().commit(handle) == AlreadyCommitted()
    assert len(bench.visible()) == 1


def test_without_a_checkpoint_and_without_the_option_there_is_no_place(bench: Bench) -> None:
    sink = StagedDouble(bench.options)
    with pytest.raises(ConfigurationError, match="staging") as raised:
        sink.begin_transaction(bench.context(0, 0))
    assert "staging" in raised.value.next_step
