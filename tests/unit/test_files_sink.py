"""The file sink on real file systems: what is prepared, published, refused, and never touched."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pytest
from tests.unit.files_bench import Files, quick, rows

from onceonly import files
from onceonly.errors import ConfigurationError, InDoubtError, LogError, WriteFailedError
from onceonly.model import AlreadyCommitted, Committed, Guarantee, Handle, Mode, Unknown
from onceonly.ports.standing import Stands
from onceonly.sinks.files import prepared as handles
from onceonly.sinks.files import writer
from onceonly.sinks.files.staging import placing
from onceonly.sinks.files.store import LocalStore

if TYPE_CHECKING:
    from onceonly.ports import WriteContext

__all__ = ["quick"]  # a fixture


@pytest.fixture
def bench(quick: Path) -> Files:
    return Files(quick / "out")


def test_nothing_is_visible_before_commit_and_all_after_it(bench: Files) -> None:
    handle = bench.prepared(rows(1, 2, 3))
    assert (bench.ids(), len(bench.staged())) == ([], 2)
    assert bench.finish(0, handle) == ["Committed"]
    assert (bench.ids(), bench.staged()) == ([1, 2, 3], [])
    assert bench.finish(0, handle) == ["AlreadyCommitted"]
    assert bench.ids() == [1, 2, 3]
    assert {path.parent.name for path in bench.visible()} == {"day=d0", "day=d1"}


def test_handles_are_small_json_and_unique(bench: Files) -> None:
    one, two = bench.prepared(rows(1)), bench.prepared(rows(1))
    assert one.transaction != two.transaction
    assert all(isinstance(value, str | int) for value in one.data.values())


def test_commit_never_overwrites_a_file_of_anyone(bench: Files) -> None:
    handle = bench.prepared(rows(1))
    (final,) = bench.finals(handle)
    final.parent.mkdir()
    final.write_bytes(b"somebody's")
    outcome = bench.sink().commit(handle)
    assert isinstance(outcome, Unknown)
    assert str(final) in outcome.reason
    assert final.read_bytes() == b"somebody's"


def test_both_names_missing_is_unknown_not_lost(bench: Files) -> None:
    handle = bench.prepared(rows(1))
    bench.staged()[0].unlink()
    assert isinstance(bench.sink().commit(handle), Unknown)


@pytest.mark.parametrize("removed", [True, False])
def test_who_asks_is_told_what_keeps_a_decided_transaction_from_its_commit(
    bench: Files, *, removed: bool
) -> None:
    handle = bench.prepared(rows(1, 2))
    whole = bench.sink().look_up(handle)
    assert (whole.stands, whole.hindered) == (Stands.OPEN, "")
    staged = bench.staged()[0]
    if removed:
        staged.unlink()
    else:
        os.truncate(staged, 10)
    found = bench.sink().look_up(handle)
    outcome = bench.sink().commit(handle)
    assert isinstance(outcome, Unknown)
    assert found.hindered
    assert outcome.reason.endswith(found.hindered), "the look says what the commit says"
    assert (found.stands, str(staged) in found.hindered) == (Stands.OPEN, True), "so it may be aborted"
    bench.sink().abort(handle)
    gone = bench.sink().look_up(handle)
    late = bench.sink().commit(handle)
    assert isinstance(late, Unknown), "a late driver publishes nothing of it"
    assert gone.stands is Stands.GONE
    assert gone.hindered
    assert late.reason.endswith(gone.hindered)
    assert bench.visible() == []


def test_one_whose_commit_has_begun_is_not_called_open_as_no_abort_touches_it(bench: Files) -> None:
    handle = bench.prepared(rows(1, 2))
    assert placing.begin(bench.store, handles.Prepared.of(handle)) is not None
    found = bench.sink().look_up(handle)
    assert (found.stands, "only a commit ends it" in found.told) == (Stands.UNKNOWN, True)
    bench.sink().abort(handle)
    assert bench.finish(0, handle) == ["Committed"]
    assert bench.ids() == [1, 2]


def test_a_damaged_temporary_file_is_unknown(bench: Files) -> None:
    handle = bench.prepared(rows(1, 2))
    os.truncate(bench.staged()[0], 10)
    assert isinstance(bench.sink().commit(handle), Unknown)
    assert bench.visible() == []


def test_abort_leaves_final_names_and_foreign_files(bench: Files) -> None:
    handle, other = bench.prepared(rows(1)), bench.prepared(rows(2), slot=1)
    bench.finish(0, handle)
    foreign = bench.target / "_onceonly" / "staging" / bench.query / "files" / "notes"
    foreign.mkdir()
    (foreign / "mine.txt").write_text("mine")
    for _ in range(2):
        bench.sink().abort(handle)
        bench.sink().abort(other)
    assert bench.ids() == [1]
    assert bench.staged() == [foreign / "mine.txt"]
    assert bench.sink().recover(bench.context) == []
    with pytest.raises(LogError, match="no folder of its own"):
        bench.sink().abort(Handle(transaction="notes", data={"staging": str(foreign)}))


def test_recover_lists_only_this_querys_and_what_is_settled_by_another_name(bench: Files) -> None:
    mine, done = bench.prepared(rows(1)), bench.prepared(rows(2), slot=1)
    Files(bench.target, query="q-2").prepared(rows(3))
    bench.sink().commit(done)
    found = {leftover.transaction: leftover.is_open for leftover in bench.sink().recover(bench.context)}
    assert found == {mine.transaction: True, done.transaction: False}, "its folder is the evidence"
    bench.sink().complete(bench.context, 0, [done])
    found = {leftover.transaction: leftover.is_open for leftover in bench.sink().recover(bench.context)}
    assert found == {mine.transaction: True, f"settled-{done.transaction}": False}
    for leftover in bench.sink().recover(bench.context):
        bench.sink().abort(leftover.handle)
    assert len(bench.staged()) == 1
    assert len(list(bench.sink().recover(Files(bench.target, query="q-2").context))) == 1


def test_recover_changes_nothing_and_a_sweep_takes_what_is_settled(bench: Files) -> None:
    done, half = bench.prepared(rows(1, 2)), bench.prepared(rows(3), epoch=1, slot=1)
    bench.sink().commit(done)
    bench.sink().complete(bench.context, 0, [done])
    root = Path(str(half.data["staging"])).parent
    (root / f".0-7-{'a' * 32}.dropped").mkdir()
    before = sorted(bench.target.rglob("*"))
    found = {leftover.transaction for leftover in bench.sink().recover(bench.context)}
    assert sorted(bench.target.rglob("*")) == before
    assert found == {f"settled-{done.transaction}", half.transaction, f"dropped-0-7-{'a' * 32}"}
    # The handles of the newest link are spared, and what is settled goes all the same.
    bench.sweep(keep=[done, half])
    assert [path.parent.name for path in bench.staged()] == [half.transaction]
    assert [path.name for path in root.iterdir()] == [half.transaction]
    assert bench.ids() == [1, 2]
    assert bench.sink().commit(done) == AlreadyCommitted()


def test_who_asks_while_a_run_drops_is_not_told_of_what_is_gone(
    bench: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.prepared(rows(1))
    sink = bench.sink()
    names = LocalStore.names

    def dropped_meanwhile(store: LocalStore, folder: Path) -> list[str]:
        found = names(store, folder)
        shutil.rmtree(str(handle.data["staging"]), ignore_errors=True)
        return found

    monkeypatch.setattr(LocalStore, "names", dropped_meanwhile)
    assert sink.recover(bench.context) == []


def test_a_commit_that_was_begun_is_not_fenced_by_what_was_listed_before(bench: Files) -> None:
    handle = bench.prepared(rows(1, 2))
    (listed,) = bench.sink().recover(bench.context)
    placing.begin(bench.store, handles.Prepared.of(handle))
    bench.sink().abort(listed.handle)
    bench.sink().abort(handle)
    assert bench.finish(0, handle) == ["Committed"]
    assert (bench.ids(), bench.staged()) == ([1, 2], [])


def test_a_transaction_that_was_aborted_is_in_doubt_not_committed(bench: Files) -> None:
    handle = bench.prepared(rows(1))
    bench.sink().abort(handle)
    assert isinstance(bench.sink().commit(handle), Unknown)
    assert bench.visible() == []


def test_after_the_fence_what_cannot_be_deleted_is_left_to_the_next_sweep(
    bench: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.prepared(rows(1))

    def refuse(_store: LocalStore, folder: Path) -> None:
        raise OSError(errno.EBUSY, "busy", str(folder))

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "delete_folder", refuse)
        bench.sink().abort(handle)
    assert not Path(str(handle.data["staging"])).exists()
    assert bench.sweep() == [f"dropped-{handle.transaction}"]
    assert bench.staged() == []


def test_a_handle_that_is_not_of_this_sink_is_named_and_nothing_is_removed(bench: Files) -> None:
    handle = bench.prepared(rows(1))
    outside = bench.target.parent / handle.transaction
    outside.mkdir()
    with pytest.raises(LogError, match="no folder of its own"):
        bench.sink().abort(replace(handle, data={**handle.data, "staging": str(outside)}))
    assert outside.is_dir()
    other = Files(bench.target, query="q-2").prepared(rows(2))
    sink = bench.sink()
    sink.check(bench.context)
    with pytest.raises(LogError, match="no folder of its own"):
        sink.abort(other)
    assert len(bench.staged()) == 2
    with pytest.raises(InDoubtError, match="is not one of the file sink"):
        bench.sink().abort(Handle(transaction=handle.transaction, data={"topic": "t"}))


def test_a_swept_attempt_that_lives_on_can_neither_write_nor_vote(bench: Files) -> None:
    sink, idle = bench.begin()
    _, busy = bench.begin(slot=1)
    sink.write(busy, pa.record_batch(rows(1)))
    for leftover in bench.sink().recover(bench.context):
        bench.sink().abort(leftover.handle)
    with pytest.raises(WriteFailedError, match="given up by the driver"):
        sink.write(idle, pa.record_batch(rows(1)))
    with pytest.raises(WriteFailedError, match="given up by the driver"):
        sink.write(busy, pa.record_batch(rows(2)))
    with pytest.raises(WriteFailedError, match="given up by the driver"):
        sink.pre_commit(busy)
    sink.discard(busy)
    assert bench.staged() == []


def test_discard_drops_what_was_written(bench: Files) -> None:
    sink, attempt = bench.begin()
    sink.write(attempt, pa.record_batch(rows(1, 2)))
    sink.discard(attempt)
    assert bench.staged() == []


def test_an_older_checkpoint_is_refused_before_a_row_is_written(bench: Files) -> None:
    bench.finish(3, bench.prepared(rows(1), epoch=3))
    with pytest.raises(LogError, match="an older checkpoint was restored"):
        bench.begin(epoch=3)
    bench.begin(epoch=4)
    bench.begin(epoch=3, mode=Mode.TENTATIVE)


def test_another_target_is_refused(bench: Files, tmp_path: Path) -> None:
    handle = bench.prepared(rows(1))
    with pytest.raises(ConfigurationError, match="set path back"):
        Files(tmp_path / "other").sink().commit(handle)
    assert bench.sink().identity()["path"] == str(bench.target.resolve())
    with pytest.raises(InDoubtError, match="use the version of onceonly that wrote it"):
        bench.sink().commit(replace(handle, data={**handle.data, "version": 3}))


def test_an_executor_without_the_drivers_target_is_refused(bench: Files) -> None:
    bench.prepared(rows(1))
    token = bench.target / "_onceonly" / "target-id"
    sink, attempt = bench.begin()
    context: WriteContext = attempt.context
    token.write_text("another machine's")
    with pytest.raises(ConfigurationError, match="does not share the target"):
        sink.begin_transaction(context)


def test_at_least_once_is_visible_when_it_votes_and_complete_lists_one_try(bench: Files) -> None:
    bench.guarantee = Guarantee.AT_LEAST_ONCE
    bench.prepared(rows(1, 2))  # its epoch failed elsewhere
    handle = bench.prepared(rows(1, 2))
    assert bench.ids() == [1, 1, 2, 2]
    assert bench.finish(0, handle) == ["AlreadyCommitted"]
    assert [epoch.rows for epoch in files.committed(str(bench.target))] == [2]
    assert bench.staged() == []


def test_at_most_once_lists_only_what_its_one_try_published(bench: Files) -> None:
    bench.guarantee = Guarantee.AT_MOST_ONCE
    one, two = bench.prepared(rows(1)), bench.prepared(rows(2), slot=1)
    sink = bench.sink()
    sink.commit(one)
    sink.complete(bench.context, 0, [one, two])
    assert [epoch.rows for epoch in files.committed(str(bench.target))] == [1]


def test_files_roll_by_size_and_stay_few_at_a_time(bench: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "OPEN_MAX", 3)
    monkeypatch.setattr(writer, "BUFFER_BYTES_MAX", 10_000)
    bench.options["maxfilesize"] = "2k"
    sink, attempt = bench.begin()

    def descriptors() -> int:
        """Return how many descriptors of this attempt's files this process has open, whatever other tests left."""
        open_files = (os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))  # noqa: PTH208
        return sum(name.startswith(str(bench.target)) and name.endswith(".staged") for name in open_files)

    most = 0
    for start in range(0, 600, 100):
        batch = {"id": list(range(start, start + 100)), "day": [f"d{number % 10}" for number in range(100)]}
        sink.write(attempt, pa.record_batch(batch))
        assert len(attempt._open) <= 3
        most = max(most, descriptors())
    assert 0 < most <= 3, "as many as there are files open, and none that has been finished"
    big = {"id": list(range(600, 5000)), "day": ["x"] * 4400}
    sink.write(attempt, pa.record_batch(big))
    bench.finish(0, sink.pre_commit(attempt))
    assert bench.ids() == list(range(5000))
    rolled = list((bench.target / "day=x").iterdir())
    assert len(rolled) > 3
    assert max(path.stat().st_size for path in rolled) < 8000


def test_a_partition_folder_on_another_file_system_gets_a_whole_copy(bench: Files, tmp_path: Path) -> None:
    handle = bench.prepared(rows(1, 2))
    assert os.stat(tmp_path).st_dev != os.stat(bench.target).st_dev, "the bench is in memory"  # noqa: PTH116
    (bench.target / "day=d1").symlink_to(tmp_path)
    # What a copy that was killed left behind.
    final = next(path.name for path in bench.finals(handle) if path.parent.name == "day=d1")
    broken = tmp_path / f".{final}.000000000000.copying"
    broken.write_bytes(b"half")
    assert bench.sink().commit(handle) == Committed()
    assert len(list(tmp_path.glob("part-*"))) == 1
    assert bench.finish(0, handle) == ["AlreadyCommitted"]
    assert bench.staged() == []
    assert not broken.exists()
    for path in tmp_path.iterdir():
        assert path.stat().st_size in {
            file.bytes for e in files.committed(str(bench.target)) for file in e.files
        }


def test_staging_on_another_file_system_is_refused_by_both_names(bench: Files, tmp_path: Path) -> None:
    bench.options["staging"] = str(tmp_path / "staging")
    with pytest.raises(ConfigurationError) as caught:
        bench.prepared(rows(1))
    assert str(tmp_path) in str(caught.value)
    assert str(bench.target) in str(caught.value)


def test_staging_elsewhere_on_the_same_file_system_is_used(bench: Files) -> None:
    bench.options["staging"] = str(bench.target.parent / "staging")
    handle = bench.prepared(rows(1, 2))
    assert len(list((bench.target.parent / "staging").rglob(".*.staged"))) == 2
    assert bench.finish(0, handle) == ["Committed"]
    assert not list((bench.target.parent / "staging").rglob(".*"))
    assert bench.ids() == [1, 2]


def test_a_target_of_sparks_own_sink_is_refused(bench: Files) -> None:
    (bench.target / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="written by Spark's own file sink"):
        bench.sink().check(bench.context)
    assert [path.name for path in bench.target.iterdir()] == ["_spark_metadata"]


def test_a_file_in_the_way_is_named(bench: Files) -> None:
    bench.target.write_text("x")
    with pytest.raises(ConfigurationError, match="is in the way"):
        bench.sink().check(bench.context)


def test_check_leaves_only_the_hidden_folder(bench: Files) -> None:
    for _ in range(2):
        bench.sink().check(bench.context)
    assert [path.name for path in bench.target.iterdir()] == ["_onceonly"]
    assert bench.staged() == []
    assert files.committed(str(bench.target)) == []


@pytest.fixture(params=["parquet", "json", "csv", "text"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_two_queries_write_to_one_target(bench: Files, form: str) -> None:
    bench.options["format"] = form
    bench.columns = (("id", "string"), ("day", "string"))
    other = replace(bench, query="q-2")
    for each in (bench, other):
        each.finish(0, each.prepared({"id": ["1"], "day": ["a"]}))
    assert [(epoch.query, epoch.rows) for epoch in files.committed(str(bench.target))] == [
        ("q-1", 1),
        ("q-2", 1),
    ]


def test_a_transaction_that_is_half_published_is_kept_and_finished(bench: Files) -> None:
    handle = bench.prepared(rows(1, 2))
    store, prepared = bench.store, handles.Prepared.of(handle)
    folder = placing.begin(store, prepared)
    assert folder is not None
    first, place = next(iter(placing.unpublished(store, prepared, folder).items()))
    placing.publish(store, prepared, folder, first, place)
    (found,) = bench.sink().recover(bench.context)
    assert (found.transaction, found.is_open) == (handle.transaction, True)
    assert len(bench.staged()) == 1
    shown = bench.sink().look_up(handle)
    assert (shown.stands, "only a commit ends it" in shown.told) == (Stands.UNKNOWN, True)
    assert bench.finish(0, handle) == ["Committed"]
    assert (bench.ids(), bench.staged()) == ([1, 2], [])


def test_a_manifest_is_never_replaced_by_another(bench: Files) -> None:
    one, other = bench.prepared(rows(1)), bench.prepared(rows(2))
    bench.sink().commit(other)
    bench.finish(0, one)
    with pytest.raises(LogError, match="other files for chk-0 than were decided"):
        bench.finish(0, other)
    assert [epoch.rows for epoch in files.committed(str(bench.target))] == [1]
    bench.sink().complete(bench.context, 1, [])
    assert len(files.committed(str(bench.target))) == 1


def test_a_file_that_vanished_before_the_vote_is_no_vote(bench: Files) -> None:
    bench.options["maxfilesize"] = "1"  # else rows wait in memory
    sink, attempt = bench.begin()
    sink.write(attempt, pa.record_batch(rows(1)))
    bench.staged()[0].unlink()
    with pytest.raises(WriteFailedError):
        sink.pre_commit(attempt)


def test_a_small_file_is_put_once(quick: Path) -> None:
    store, path = LocalStore(), quick / "name"
    assert store.put_if_absent(path, b"first")
    assert not store.put_if_absent(path, b"second")
    assert path.read_bytes() == b"first"
    assert list(quick.iterdir()) == [path]


def test_a_vote_is_given_only_when_every_file_is_on_the_disk(
    bench: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        synced.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(os, "fsync", noted)
    bench.prepared(rows(1, 2))
    assert {str(path) for path in bench.staged()} <= synced


def test_a_name_that_somebody_takes_while_it_is_published_stays_theirs(
    bench: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = bench.prepared(rows(1))
    make_folder = LocalStore.make_folder
    taken: list[Path] = []

    def overtaken(store: LocalStore, folder: Path) -> None:
        make_folder(store, folder)
        if folder.name.startswith("day="):  # It was looked for, and not there; now somebody makes it.
            taken.append(bench.finals(handle)[0])
            taken[0].write_bytes(b"somebody's")

    monkeypatch.setattr(LocalStore, "make_folder", overtaken)
    outcome = bench.sink().commit(handle)
    assert taken[0].read_bytes() == b"somebody's"
    assert isinstance(outcome, Unknown)


def test_a_file_that_is_gone_when_its_slot_votes_is_no_vote(
    bench: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, attempt = bench.begin()
    sink.write(attempt, pa.record_batch(rows(1)))
    finish = LocalStore.finish

    def removed(store: LocalStore, file: BinaryIO) -> None:
        finish(store, file)
        Path(file.name).unlink()

    monkeypatch.setattr(LocalStore, "finish", removed)
    with pytest.raises(WriteFailedError, match="given up by the driver"):
        sink.pre_commit(attempt)
