"""Old epochs leave the manifests first and lose their files later, whatever crashes; nothing else goes with them."""

from __future__ import annotations

import shutil
import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest
from tests.unit.files_bench import Disk, Files, PowerLostError, crashed, quick, rows

from onceonly import files
from onceonly.durable.sealed import Format
from onceonly.errors import ConfigurationError, LogError
from onceonly.options import span
from onceonly.sinks.files import store
from onceonly.sinks.files.manifests import expiry, ledger
from onceonly.sinks.files.manifests.ledger import Ledger
from onceonly.sinks.files.manifests.manifest import DataFile, Manifest
from onceonly.sinks.files.manifests.marks import Marks
from onceonly.sinks.files.paths import manifest_folder
from onceonly.sinks.files.store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["quick"]  # a fixture
DAY = 86400.0
kills = pytest.mark.parametrize("kill", [True, False], ids=["killed", "failed"])


def folder_of(bench: Files) -> Path:
    return manifest_folder(bench.target, bench.query, "files")


def written(bench: Files, epochs: Iterable[int]) -> dict[int, list[Path]]:
    """Write epochs of two rows in two folders; give their files."""
    found = {}
    for epoch in epochs:
        handle = bench.prepared(rows(2 * epoch, 2 * epoch + 1), epoch)
        assert bench.finish(epoch, handle) == ["Committed"]
        found[epoch] = bench.finals(handle)
    return found


def listed(bench: Files) -> list[int]:
    return [epoch.epoch for epoch in files.committed(str(bench.target))]


def expire(bench: Files, older_s: float, *, grace_s: float = 0.0, before: int | None = None) -> expiry.Due:
    folder = folder_of(bench)
    found = expiry.due(bench.store, bench.target, folder, older_s=older_s, grace_s=grace_s, before=before)
    return expiry.carry_out(bench.store, bench.target, folder, found)


def of(olds: tuple[expiry.Old, ...]) -> list[int]:
    return [old.epoch for old in olds]


def aged(monkeypatch: pytest.MonkeyPatch, days: dict[Path, float]) -> None:
    """Make files as many days old as is said; what is not named is new."""
    true = LocalStore.idle

    def idle(self: LocalStore, path: Path) -> float | None:
        now = true(self, path)
        return None if now is None else now + DAY * days.get(path, 0.0)

    monkeypatch.setattr(LocalStore, "idle", idle)


def test_the_manifests_forget_first_and_the_files_go_after_the_grace_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Files(tmp_path / "t")
    made = written(bench, range(6))
    days = {path: 9.0 - epoch for epoch, paths in made.items() for path in paths}
    aged(monkeypatch, days)

    done = expire(bench, 6.5 * DAY, grace_s=3600)
    assert (of(done.expiring), of(done.removing)) == ([0, 1, 2], [])
    assert listed(bench) == [3, 4, 5]
    assert bench.ids() == list(range(12)), "who had listed them can still read them"

    done = expire(bench, 6.5 * DAY, grace_s=3600)
    assert (of(done.expiring), of(done.waiting), of(done.removing)) == ([], [0, 1, 2], [])

    days[folder_of(bench) / f"expired-{2:020d}.mark"] = 1.0
    done = expire(bench, 6.5 * DAY, grace_s=3600)
    assert of(done.removing) == [0, 1, 2]
    assert bench.ids() == list(range(6, 12))
    assert listed(bench) == [3, 4, 5]
    assert expire(bench, 6.5 * DAY, grace_s=3600) == expiry.Due(expiring=(), waiting=(), removing=())
    assert not [path for path in folder_of(bench).iterdir() if path.name < f"0-{3:020d}"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_clock_that_is_set_ahead_makes_no_epoch_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(store, "_clocks", {})
    bench = Files(tmp_path / "t")
    written(bench, range(6))
    true = time.time
    if when == "after":  # the file system's clock is known by then
        assert of(expire(bench, DAY).expiring) == []
    monkeypatch.setattr(time, "time", lambda: true() + 30 * DAY)
    assert of(expire(bench, DAY).expiring) == []
    assert listed(bench) == [0, 1, 2, 3, 4, 5]
    assert not list(folder_of(bench).glob(".clock*"))


def test_a_clock_that_is_set_ahead_shortens_no_grace_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_clocks", {})
    bench = Files(tmp_path / "t")
    written(bench, range(6))
    assert of(expire(bench, 0.0, grace_s=3600).expiring) == [0, 1, 2, 3]
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() + 30 * DAY)
    assert of(expire(bench, 0.0, grace_s=3600).removing) == []
    assert bench.ids() == list(range(12))


def test_who_may_not_write_looks_by_his_own_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_clocks", {})
    file = tmp_path / "f"
    file.touch()
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() + 30 * DAY)
    assert LocalStore().idle(file) == pytest.approx(0, abs=60)
    monkeypatch.setattr(store, "_clocks", {})
    monkeypatch.setattr(store, "hidden", lambda _path, _ending: tmp_path / "no" / "folder")
    assert LocalStore().idle(file) == pytest.approx(30 * DAY, abs=60)


def test_an_epoch_is_as_old_as_its_youngest_file_and_none_behind_a_young_one_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Files(tmp_path / "t")
    made = written(bench, range(6))
    days = {path: 9.0 for epoch in (0, 1, 2, 3) for path in made[epoch]}
    days[made[2][1]] = 0.0
    aged(monkeypatch, days)
    assert of(expire(bench, DAY).expiring) == [0, 1]
    days[made[2][1]] = 9.0
    assert of(expire(bench, DAY, before=3).expiring) == [2]
    assert listed(bench) == [3, 4, 5]


def test_the_newest_stay_however_old_they_are(tmp_path: Path) -> None:
    bench = Files(tmp_path / "t")
    written(bench, range(2))
    assert of(expire(bench, 0.0).expiring) == []
    written(bench, [2])
    assert of(expire(bench, 0.0).expiring) == [0]
    assert listed(bench) == [1, 2]


def test_a_look_decodes_no_epoch_that_is_gone_or_too_young(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MERGED", 20)
    bench = Files(tmp_path / "t")
    made = written(bench, range(44))
    expire(bench, 0.0, before=10)
    aged(monkeypatch, {path: 9.0 for epoch in range(12) for path in made[epoch]})
    decoded = []
    real = Format.decode

    def decode(self: Format, text: bytes, into: type, *, where: str) -> object:
        found: object = real(self, text, into, where=where)
        decoded.extend([found.epoch] if isinstance(found, Manifest) else [])
        return found

    monkeypatch.setattr(Format, "decode", decode)
    found = expiry.due(bench.store, bench.target, folder_of(bench), older_s=DAY, grace_s=3600.0)
    assert of(found.expiring) == [10, 11]
    assert decoded == [10, 11, 12], "of twenty that are in one file"


def test_only_what_this_sinks_manifests_name_is_removed(tmp_path: Path) -> None:
    bench, other = Files(tmp_path / "t"), Files(tmp_path / "t", query="q-2")
    made = written(bench, range(4))
    theirs = written(other, range(4))
    foreign = bench.target / "day=d0" / "by-hand.parquet"
    foreign.write_bytes(b"x")
    made[0][0].unlink()  # a consumer's doing
    made[1][0].write_bytes(b"somebody else's")
    assert of(expire(bench, 0.0).removing) == [0, 1]
    left = {path for epoch in (2, 3) for path in made[epoch]} | {
        path for each in theirs.values() for path in each
    }
    assert set(bench.visible()) == left | {foreign, made[1][0]}


def test_an_older_checkpoint_is_noticed_where_its_epochs_have_expired(tmp_path: Path) -> None:
    bench = Files(tmp_path / "t")
    written(bench, range(4))
    expire(bench, 0.0)
    with pytest.raises(LogError, match="an older checkpoint was restored"):
        bench.prepared(rows(100), 1)
    again = Manifest(epoch=1, layout="l", files=(DataFile("f", 1, 1, "c"),))
    with pytest.raises(LogError, match="an older checkpoint was restored"):
        Ledger(bench.store, folder_of(bench)).put(again)


@pytest.mark.parametrize("epoch", [-1, 4, 7, 8])
def test_what_is_taken_back_may_have_expired_and_is_written_again(tmp_path: Path, epoch: int) -> None:
    bench = Files(tmp_path / "out")
    written(bench, range(10))
    expire(bench, 0.0)
    ledger = Ledger(LocalStore(), folder_of(bench))
    assert ledger.marks() == Marks((7,), (7,))
    for _ in range(2):
        bench.sink().withdraw(bench.context, epoch, [])
        assert listed(bench) == ([8] if epoch == 8 else [])
        last = (min(epoch, 7),)
        assert ledger.marks() == (Marks(last, last) if epoch >= 0 else Marks())
    written(bench, range(epoch + 1, 12))
    assert listed(bench) == list(range(min(epoch, 7) + 1, 12))
    expire(bench, 0.0)
    assert listed(bench) == [10, 11]


def test_what_is_taken_back_stays_so_though_a_reader_took_a_folder(quick: Path) -> None:
    disk = Disk()
    bench = Files(quick / "out", store=disk)
    handles = [bench.prepared(rows(2 * epoch, 2 * epoch + 1), epoch=epoch) for epoch in range(2)]
    for epoch, handle in enumerate(handles):
        bench.finish(epoch, handle)
    shutil.rmtree(bench.target / "day=d0")
    disk.synced.clear()
    bench.sink().withdraw(bench.context, -1, handles)
    assert {bench.target / "day=d1", bench.target} <= set(disk.synced)


def consistent(bench: Files, made: dict[int, list[Path]]) -> None:
    """What the manifests show is there, whole epochs, from one on to the newest."""
    shown = files.committed(str(bench.target))
    assert [epoch.epoch for epoch in shown] in ([0, 1, 2, 3, 4, 5], [4, 5])
    for epoch in shown:
        assert all((bench.target / file.path).exists() for file in epoch.files)
        assert len(epoch.files) == len(made[epoch.epoch])


@kills
@pytest.mark.parametrize("merged", [2, 100])
def test_an_expiry_that_crashes_at_any_step_is_finished_by_the_next(
    quick: Path, monkeypatch: pytest.MonkeyPatch, merged: int, *, kill: bool
) -> None:
    monkeypatch.setattr(ledger, "MERGED", merged)
    for nth in count(1):
        bench = Files(quick / str(nth))
        made = written(bench, range(6))
        end = crashed(partial(expire, bench, 0.0), nth, bench.target, kill=kill)
        consistent(bench, made)
        expire(bench, 0.0)
        assert listed(bench) == [4, 5]
        assert bench.ids() == [8, 9, 10, 11]
        assert [path.name for path in folder_of(bench).glob("*.mark")] == [
            path.name for path in folder_of(bench).glob("*-00000000000000000003.mark")
        ]
        written(bench, [6])
        assert listed(bench) == [4, 5, 6]
        if end is None:
            assert nth > 15
            return


def test_an_expiry_outlives_a_power_loss_at_any_step(quick: Path) -> None:
    for nth in count(1):
        disk = Disk()
        bench = Files(quick / str(nth), store=disk)
        made = written(bench, range(6))
        disk.die_at(nth)
        try:
            expire(bench, 0.0)
            died = False
        except PowerLostError:
            died = True
        disk.lose_power()
        consistent(bench, made)
        expire(bench, 0.0)
        assert listed(bench) == [4, 5]
        assert bench.ids() == [8, 9, 10, 11]
        if not died:
            assert nth > 10
            return


def test_the_setting_of_the_sink_expires_beside_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "_PAUSE_S", 0.0)
    bench = Files(tmp_path / "t", options={"retention": "7 days"})
    sink = bench.sink()
    made: dict[int, list[Path]] = {}
    days: dict[Path, float] = {}
    aged(monkeypatch, days)
    for epoch in range(6):
        handle = bench.prepared(rows(2 * epoch, 2 * epoch + 1), epoch)
        sink.commit(handle)
        sink.complete(bench.context, epoch, [handle])
        bench.sweep(keep=[handle])
        made[epoch] = bench.finals(handle)
        days |= dict.fromkeys(made[epoch], 8.0 if epoch < 3 else 1.0)
        days |= dict.fromkeys(folder_of(bench).glob("expired-*"), 1.0)
    assert listed(bench) == [3, 4, 5]
    assert bench.ids() == list(range(6, 12))


@pytest.mark.parametrize(("files_max", "seconds_max"), [(2, 1e9), (10_000, -1.0)], ids=["files", "time"])
def test_what_is_too_much_beside_one_epoch_goes_beside_the_next_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files_max: int, seconds_max: float
) -> None:
    monkeypatch.setattr(expiry, "_FILES_MAX", files_max)
    monkeypatch.setattr(expiry, "_SECONDS_MAX", seconds_max)
    bench = Files(tmp_path / "t")
    written(bench, range(6))
    expire(bench, 0.0, grace_s=3600.0)
    retention = expiry.Retention(bench.store, bench.target, older_s=1e9, grace_s=0.0)
    left = []
    for _ in range(5):
        retention.look(folder_of(bench), 9)
        left.append(len(bench.visible()))
    assert left == [10, 8, 6, 4, 4]


def test_a_mark_whose_temporary_file_the_query_cleared_away_is_put_again(tmp_path: Path) -> None:
    bench = Files(tmp_path / "t")
    written(bench, range(4))
    cleared: list[Path] = []

    class Cleared(LocalStore):
        def put_if_absent(self, path: Path, data: bytes) -> bool:
            if len(cleared) < 2:
                cleared.append(path)
                raise FileNotFoundError(2, "cleared away", str(path))
            return super().put_if_absent(path, data)

    bench.store = Cleared()
    assert of(expire(bench, 0.0).expiring) == [0, 1]
    assert len(cleared) == 2
    assert listed(bench) == [2, 3]


def test_without_the_setting_nothing_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalStore, "idle", lambda _self, _path: 1e9)
    bench = Files(tmp_path / "t")
    written(bench, range(5))
    assert listed(bench) == [0, 1, 2, 3, 4]
    assert len(bench.visible()) == 10


def test_a_target_that_fails_while_old_files_go_does_not_stop_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Files(tmp_path / "t", options={"retention": "0 s"})

    def fail(_self: LocalStore, _path: Path) -> float:
        raise PermissionError(13, "put in by hand")

    monkeypatch.setattr(LocalStore, "idle", fail)
    written(bench, range(4))
    assert listed(bench) == [0, 1, 2, 3]
    assert "were not removed" in caplog.text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7 days", 7 * DAY), ("7d", 7 * DAY), ("90m", 5400.0), ("90 minutes", 5400.0), ("1 week 12 hours", 7.5 * DAY),
        ("interval 30 seconds", 30.0), ("100ms", 0.1), ("1 HOUR", 3600.0), ("1.5 days", 1.5 * DAY), ("0s", 0.0),
    ],
)  # fmt: skip
def test_times_are_read_as_spark_writes_them(text: str, seconds: float) -> None:
    assert span(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "7", "1 month", "days", "7 dayz", "-1 day", "interval", "7 d d"])
def test_a_time_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="retention"):
        Files(tmp_path, options={"retention": text}).sink()
