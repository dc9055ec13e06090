"""The target as a place: not mounted, not ours, with the rest of broken-off checks; and what at-most-once lists."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit.files_bench import Disk, Files, PowerLostError, crashed, quick, rows
from tests.unit.test_files_consumers import Overtaken

from onceonly import files
from onceonly.errors import ConfigurationError, LogError, UnavailableError, WriteFailedError
from onceonly.model import Committed, Guarantee, RetryLater
from onceonly.sinks.files.staging import moving
from onceonly.sinks.files.store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["quick"]  # a fixture


@pytest.fixture
def bench(quick: Path) -> Files:
    return Files(quick / "out")


def unmounted(bench: Files) -> Path:
    """Put an empty folder where the target was, as under a mount point; give where the target is now."""
    away = bench.target.with_name("away")
    bench.target.rename(away)
    bench.target.mkdir()
    return away


def mounted(bench: Files, away: Path) -> None:
    for path in sorted(bench.target.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    bench.target.rmdir()
    away.rename(bench.target)


def test_a_target_that_is_not_mounted_is_not_written_to(bench: Files) -> None:
    handle = bench.prepared(rows(1, 2))
    bench.prepared(rows(3), slot=1)
    away = unmounted(bench)
    for _ in range(2):
        outcome = bench.sink().commit(handle)
        assert isinstance(outcome, RetryLater)
        assert f"{bench.target} is not the folder it was: is it mounted?" in outcome.reason
        with pytest.raises(UnavailableError, match="is it mounted"):
            bench.sink().complete(bench.context, 0, [handle])
        bench.sink().abort(handle)
    with pytest.raises(UnavailableError, match="is it mounted"):
        bench.sink().recover(bench.context)
    assert list(bench.target.iterdir()) == []
    # Somebody begins anew there: it is another target.
    bench.sink().check(bench.context)
    assert isinstance(bench.sink().commit(handle), RetryLater)
    mounted(bench, away)
    assert bench.finish(0, handle) == ["Committed"]
    assert (bench.ids(), bench.staged()) == ([1, 2], [])


def test_a_target_that_goes_away_at_any_step_of_a_commit_is_waited_for(quick: Path) -> None:
    for nth in count(1):
        bench = Files(quick / str(nth) / "out")
        bench.target.parent.mkdir()
        handle = bench.prepared(rows(1, 2))
        away: list[Path] = []

        def meanwhile(bench: Files = bench, away: list[Path] = away) -> None:
            away.append(unmounted(bench))

        store = bench.store = Overtaken(nth, meanwhile)
        outcome = bench.sink().commit(handle)
        if store.steps < nth:
            assert outcome == Committed()
            assert nth > 10, "the steps are counted"
            return
        assert isinstance(outcome, RetryLater | Committed)
        mounted(bench, *away)
        bench.store = LocalStore()
        assert set(bench.finish(0, handle)) <= {"Committed", "AlreadyCommitted"}
        assert (bench.ids(), bench.staged()) == ([1, 2], [])


class Stepping(Overtaken):
    """A store that counts the steps of what completes an epoch."""

    def sync_folder(self, folder: Path) -> None:
        self._step()
        super().sync_folder(folder)

    def names(self, folder: Path) -> list[str]:
        self._step()
        return super().names(folder)

    def put_if_absent(self, path: Path, data: bytes) -> bool:
        self._step()
        return super().put_if_absent(path, data)


def test_an_epoch_is_not_complete_while_its_manifest_lies_below_a_mount_point(quick: Path) -> None:
    for nth in count(1):
        bench = Files(quick / str(nth) / "out")
        bench.target.parent.mkdir()
        handle = bench.prepared(rows(1, 2))
        assert bench.sink().commit(handle) == Committed()
        away: list[Path] = []

        def meanwhile(bench: Files = bench, away: list[Path] = away) -> None:
            away.append(unmounted(bench))

        store = bench.store = Stepping(nth, meanwhile)
        done = False
        with contextlib.suppress(UnavailableError):
            bench.sink().complete(bench.context, 0, [handle])
            done = True
        if store.steps < nth:
            assert done
            assert nth > 5, "the steps are counted"
            return
        mounted(bench, *away)
        if done:
            assert [epoch.rows for epoch in files.committed(str(bench.target))] == [2], f"at step {nth}"
        bench.store = LocalStore()
        bench.sink().complete(bench.context, 0, [handle])
        assert [epoch.rows for epoch in files.committed(str(bench.target))] == [2]


def test_an_executor_without_the_drivers_temporary_folder_writes_nothing(bench: Files) -> None:
    bench.options["staging"] = str(bench.target.parent / "staging")
    sink, attempt = bench.begin()
    (bench.target.parent / "staging").rename(bench.target.parent / "mounted elsewhere")
    with pytest.raises(WriteFailedError, match=f"not there any more on {socket.gethostname()}"):
        sink.begin_transaction(attempt.context)
    assert not (bench.target.parent / "staging").exists()


def test_the_identity_is_of_the_folder_not_of_its_name(bench: Files) -> None:
    sink = bench.sink()
    assert "token" not in sink.identity()
    assert not bench.target.exists()
    sink.check(bench.context)
    first = sink.identity()
    assert len(str(first["token"])) == 32
    bench.finish(0, bench.prepared(rows(1)))
    assert bench.sink().identity() == first
    away = unmounted(bench)
    assert bench.sink().identity() == {key: first[key] for key in ("path", "format")}
    bench.sink().check(bench.context)
    assert bench.sink().identity() != first
    mounted(bench, away)
    assert bench.sink().identity() == first


def test_the_folders_above_the_target_must_be_there(bench: Files) -> None:
    deep = replace(bench, target=bench.target / "one" / "two")
    with pytest.raises(ConfigurationError) as caught:
        deep.sink().check(deep.context)
    assert str(bench.target / "one") in str(caught.value)
    assert "mount" in str(caught.value)
    assert not bench.target.exists()
    (bench.target / "one").mkdir(parents=True)
    deep.sink().check(deep.context)


def test_what_check_has_made_outlives_a_power_loss_once_it_is_repeated(quick: Path) -> None:
    for nth in range(1, 100):
        disk = Disk()
        bench = Files(quick / str(nth), store=disk)
        disk.die_at(nth)
        died = False
        try:
            bench.sink().check(bench.context)
        except PowerLostError:
            died = True
        # The process alone dies; the next one begins, and the machine dies once that has voted.
        disk.die_at(0)
        handle = bench.prepared(rows(1))
        disk.lose_power()
        bench.sink().check(replace(bench.context, columns=()))
        assert bench.sink().commit(handle) == Committed()
        bench.sink().complete(bench.context, 0, [handle])
        disk.lose_power()
        assert bench.ids() == [1]
        assert [epoch.rows for epoch in files.committed(str(bench.target))] == [1]
        if not died:
            assert nth > 15
            return


def test_what_broken_off_checks_left_is_taken_away_once_it_is_old(bench: Files) -> None:
    foreign = [bench.target / ".probes", bench.target / "_onceonly" / ".other.000000000000.tmp"]

    def hidden() -> set[Path]:
        # Beside the manifests, the next epoch clears up.
        return {path for path in bench.target.rglob(".*") if "epochs" not in path.parts}

    for nth in count(1):
        end = crashed(lambda: bench.sink().check(bench.context), nth, bench.target.parent, kill=True)
        if nth == 1:
            continue  # the target is not there
        for path in foreign:
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_bytes(b"")
        left = hidden().difference(foreign)
        bench.sink().check(bench.context)
        assert left <= hidden(), "another process may be at it"
        for path in [*left, *foreign]:
            os.utime(path, (time.time() - 7200,) * 2)
        bench.sink().check(bench.context)
        assert hidden() == set(foreign)
        if end is None:
            assert nth > 25, "the steps are counted"
            return


def test_a_claim_that_was_killed_is_taken_away_once_it_is_old(bench: Files) -> None:
    bench.sink().check(bench.context)
    left = bench.target / "_onceonly" / ".first-epoch.0123456789ab.tmp"
    left.write_bytes(b"")
    bench.sink().check(bench.context)
    assert left.exists(), "another query may be at it"
    os.utime(left, (time.time() - 7200,) * 2)
    bench.sink().check(bench.context)
    assert not left.exists()


def test_a_start_does_not_list_the_target(bench: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.sink().check(bench.context)
    listed: list[Path] = []
    scandir = os.scandir

    def noted(folder: Path) -> Iterator[os.DirEntry[str]]:
        listed.append(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", noted)
    bench.sink().check(bench.context)
    assert listed
    assert bench.target not in listed, "it may have millions of files"


@pytest.mark.parametrize("number", [errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP])
def test_a_file_system_without_hard_links_is_refused_for_good(
    bench: Files, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(source: Path, _name: Path) -> None:
        raise OSError(number, os.strerror(number), str(source))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(ConfigurationError, match="has no hard links"):
        bench.sink().check(bench.context)


class IgnoresCase(LocalStore):
    """A mounted share of Windows, exFAT, ext4 with ``casefold``."""

    def size(self, path: Path) -> int | None:
        near = [name for name in self.names(path.parent) if name.lower() == path.name.lower()]
        return super().size(path.with_name(near[0])) if near else None


@pytest.mark.parametrize(("column", "kind"), [("day", "string"), ("DAY", "string"), ("day", "varchar(3)")])
def test_where_case_is_ignored_rows_are_not_partitioned_by_texts(
    bench: Files, column: str, kind: str
) -> None:
    """Else those of ``de`` would lie in the folder of ``DE``, and whoever reads them would be given that value."""
    bench.store, bench.columns = IgnoresCase(), (("id", "bigint"), ("day", kind))
    bench.options["partitionby"] = column
    with pytest.raises(ConfigurationError, match=r"differ in case for one.*partition column day") as caught:
        bench.sink().check(bench.context)
    assert "another type of column" in caught.value.next_step
    assert bench.visible() == []


@pytest.mark.parametrize(("partition", "kind"), [("", "string"), ("day", "date"), ("day", "int")])
def test_where_case_is_ignored_all_else_is_taken(bench: Files, partition: str, kind: str) -> None:
    bench.store, bench.columns = IgnoresCase(), (("id", "bigint"), ("day", kind))
    bench.options["partitionby"] = partition
    bench.sink().check(bench.context)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.ENOTSUP])
@pytest.mark.parametrize("call", ["rename", "fsync"])
def test_a_file_system_that_lacks_a_call_is_refused_for_good(
    bench: Files, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(moving, "rename_noreplace", refuse)
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(ConfigurationError, match="does not do what every commit needs"):
        bench.sink().check(bench.context)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES, errno.EROFS])
def test_a_file_that_may_not_be_moved_is_named_with_its_owner(
    bench: Files, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    handle = bench.prepared(rows(1))

    def refuse(_store: LocalStore, temporary: Path, final: Path) -> bool:
        raise OSError(number, os.strerror(number), str(temporary), None, str(final))

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "publish", refuse)
        outcome = bench.sink().commit(handle)
    assert isinstance(outcome, RetryLater)
    (temporary,) = bench.staged()
    for said in (
        str(temporary),
        f"user {os.getuid()}",
        f"{temporary.parent} belongs to user {os.getuid()}",
        "write permission",
        errno.errorcode[number],
    ):
        assert said in outcome.reason
    assert bench.sink().commit(handle) == Committed()


def test_at_most_once_lists_what_is_there_and_forgives_what_is_not(bench: Files) -> None:
    bench.guarantee = Guarantee.AT_MOST_ONCE
    handles = [bench.prepared(rows(1, 2)), bench.prepared(rows(3), slot=1), bench.prepared(rows(4), slot=2)]
    sink = bench.sink()
    sink.commit(handles[0])
    sink.commit(handles[1])
    (third,) = (path for path in bench.visible() if "part-00000-00001" in path.name)
    third.write_bytes(bytes(third.stat().st_size))  # other content of equal length
    (Path(str(handles[2].data["staging"])) / "x").write_bytes(b"")
    first = next(path for path in bench.visible() if "day=d0" in str(path))
    for path in bench.staged():
        path.unlink()
    sink.complete(bench.context, 0, handles)
    assert [epoch.rows for epoch in files.committed(str(bench.target))] == [2]
    # Repeated before the receipt, when somebody has removed a file.
    first.unlink()
    sink.complete(bench.context, 0, handles)
    assert [epoch.rows for epoch in files.committed(str(bench.target))] == [2]
    first.parent.rmdir()
    sink.complete(bench.context, 1, handles)
    # It was published, and taken away: that is told by the folder of the transaction.
    assert [epoch.rows for epoch in files.committed(str(bench.target))] == [2, 2]
    others = [bench.prepared(rows(9), epoch=2)]
    sink.commit(others[0])
    with pytest.raises(LogError, match="other files"):
        sink.complete(bench.context, 0, others)


@pytest.mark.parametrize("query", ["q-1", "q-2"])
@pytest.mark.parametrize(("then", "now"), [("", "day"), ("day", "")])
def test_rows_are_not_written_beside_partition_folders_where_readers_pass_over_them(
    bench: Files, query: str, then: str, now: str
) -> None:
    bench.options = {"partitionby": now}
    bench.sink().check(bench.context)  # a start that wrote nothing binds nobody
    bench.options = {"partitionby": then}
    bench.finish(0, bench.prepared(rows(1, 2)))
    other = Files(bench.target, {"partitionby": now}, query=query)
    with pytest.raises(ConfigurationError, match="pass over the rows") as caught:
        other.sink().check(other.context)
    assert f"set partitionBy as it was ({then or 'none'})" in caught.value.next_step
    other.options = {"partitionby": now, "format": "json"}  # whoever reads one format has to tell them apart
    other.sink().check(other.context)
    other.options = {"partitionby": then}
    for epoch, each in enumerate((other, bench), 1):
        each.finish(epoch, each.prepared(rows(3), epoch=epoch))


@pytest.mark.parametrize("query", ["q-1", "q-2"])
@pytest.mark.parametrize("now", ["id", "id,day", "day,id"])
def test_folders_of_other_columns_are_not_put_beside_those_that_are_there(
    bench: Files, query: str, now: str
) -> None:
    bench.columns = (*bench.columns, ("note", "string"))
    bench.finish(0, bench.prepared({**rows(1), "note": ["a"]}))
    other = Files(bench.target, {"partitionby": now}, columns=bench.columns, query=query)
    with pytest.raises(ConfigurationError, match="CONFLICTING_PARTITION_COLUMN_NAMES") as caught:
        other.sink().check(other.context)
    assert "set partitionBy as it was (day), or choose another path" in caught.value.next_step
    other.options = {"partitionby": "DAY"}
    other.sink().check(other.context)


def test_a_first_epoch_beside_those_of_another_query_is_told(
    bench: Files, caplog: pytest.LogCaptureFixture
) -> None:
    other = Files(bench.target, query="q-2")
    other.sink().check(other.context)  # a start that wrote nothing is nobody to be told of
    for epoch in range(2):
        bench.finish(epoch, bench.prepared(rows(epoch), epoch=epoch))
    batch = Files(bench.target, query="batch-daily-0123456789ab")
    batch.finish(0, batch.prepared(rows(7)))
    assert "has written nothing to" not in caplog.text
    other.sink().check(other.context)
    [told] = [each.getMessage() for each in caplog.records if "has written nothing to" in each.getMessage()]
    assert "Query q-2, sink files: this checkpoint" in told
    assert "others have: query q-1, sink files, has chk-0 to chk-1, the newest at 20" in told
    assert "batch-daily" not in told
    other.finish(0, other.prepared(rows(9)))
    caplog.clear()
    other.sink().check(other.context)
    assert "has written nothing to" not in caplog.text


@pytest.mark.parametrize("first", [0, 1])
def test_two_queries_that_begin_at_once_do_not_both_write_what_readers_cannot_read_together(
    bench: Files, first: int
) -> None:
    both = [bench, Files(bench.target, {"partitionby": ""}, query="q-2")]
    sinks = [each.sink() for each in both]
    handles = [each.prepared(rows(number)) for number, each in enumerate(both)]  # neither finds the other
    for number in (first, first, 1 - first):  # the first one's try was broken off, and comes again
        if number == first:
            sinks[number].rehearse([handles[number]], {})
        else:
            with pytest.raises(ConfigurationError, match="is about to be written to") as caught:
                sinks[number].rehearse([handles[number]], {})
    assert f"The first epoch of query {both[first].query}, sink files, is" in caught.value.what
    assert "The epoch was not decided" in caught.value.what
    assert str(bench.target / "_onceonly" / "first-epoch") in caught.value.next_step
    both[first].finish(0, handles[first])
    with pytest.raises(ConfigurationError, match=r"The files in .* were written") as caught:
        sinks[1 - first].rehearse([handles[1 - first]], {})
    assert not (bench.target / "_onceonly" / "first-epoch").exists()


def test_a_claim_of_a_first_epoch_is_in_nobodys_way_who_writes_alike_or_whose_it_is(bench: Files) -> None:
    alike = Files(bench.target, {"partitionby": ""}, query="q-2")
    claimed = bench.target / "_onceonly" / "first-epoch"
    bench.sink().rehearse([bench.prepared(rows(1))], {})
    bench.options = {"partitionby": ""}  # the query was started otherwise, before its first epoch was decided
    handles = [each.prepared(rows(number)) for number, each in enumerate((bench, alike))]
    for each, handle in zip((bench, alike), handles, strict=True):
        each.sink().rehearse([handle], {})
    alike.finish(0, handles[1])
    assert claimed.read_bytes().startswith(b"q-1/files\n"), "only its own epoch ends it"
    bench.finish(0, handles[0])
    assert not claimed.exists()
    claimed.write_bytes(b"q-1/files\n")  # it died between its manifest and that
    bench.sink().rehearse([bench.prepared(rows(2), epoch=1)], {})
    assert not claimed.exists()


@pytest.mark.parametrize(
    ("names", "goes"),
    [("id,day,note", True), ("id,date", True), ("id", True), ("day,id", False), ("id,note,day", False)],
)
def test_a_column_of_csv_keeps_its_place_as_readers_go_by_it(quick: Path, names: str, *, goes: bool) -> None:
    bench = Files(quick / "out", {"partitionby": "", "format": "csv"})
    bench.finish(0, bench.prepared(rows(1, 2)))
    bench.columns = tuple((name, "string") for name in names.split(","))
    if goes:
        bench.sink().check(bench.context)
        return
    with pytest.raises(
        ConfigurationError, match=f"csv with the columns id, day, and .* have {names.replace(',', ', ')}"
    ):
        bench.sink().check(bench.context)
    bench.options["format"] = "json"
    bench.sink().check(bench.context)


def test_the_books_that_a_query_reads_all_the_time_are_kept_young(bench: Files) -> None:
    """So that nobody takes them who removes what is old."""
    handles = [bench.prepared(rows(epoch), epoch) for epoch in range(3)]
    books = [bench.target / "_onceonly" / "target-id", *bench.target.rglob("*.layout")]
    assert len(books) == 2

    def pass_week() -> None:
        for path in books:
            os.utime(path, (time.time() - 7 * 86400,) * 2)

    def ages() -> list[float]:
        return [time.time() - path.stat().st_mtime for path in books]

    sink = bench.sink()
    for epoch, handle in enumerate(handles):
        pass_week()
        if epoch == 2:
            assert sink._renewal is not None
            sink._renewal._next = 0.0
        sink.commit(handle)
        sink.complete(bench.context, epoch, [handle])
        assert (max(ages()) < 60) == (epoch != 1), "now and then"
    books[0].unlink()
    assert sink._renewal is not None
    sink._renewal._next = 0.0
    sink._renewal.look(books[1].parent, books[1].stem)
    assert not books[0].exists()


def test_files_whose_layout_was_removed_are_refused_by_name(bench: Files) -> None:
    bench.finish(0, bench.prepared(rows(1)))
    next(bench.target.rglob("*.layout")).unlink()
    with pytest.raises(LogError, match="does not say any more how its files are to be read"):
        files.read(None, str(bench.target))
