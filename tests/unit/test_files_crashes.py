"""The driver's half of the file sink, killed and failed at every step: repeated, it comes to the same end."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.unit.files_bench import Disk, Files, PowerLostError, crashed, quick, rows

from onceonly import files
from onceonly.coordinator.coordinator import Coordinator, Participant
from onceonly.errors import LogError, TransactionLostError
from onceonly.executor.slot import run_slot
from onceonly.model import Guarantee
from onceonly.ports import WriteContext
from onceonly.sinks.files.manifests import ledger, marks
from onceonly.sinks.files.manifests.expiry import due
from onceonly.sinks.files.manifests.manifest import DataFile, Manifest, encode_manifests, join_manifests
from onceonly.sinks.files.store import LocalStore
from onceonly_proof.memory_log import MemoryDisk, MemoryLog
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onceonly.model import Handle
    from onceonly.ports import TwoPhaseCommitSink

__all__ = ["quick"]  # a fixture
kills = pytest.mark.parametrize("kill", [True, False], ids=["killed", "failed"])


def whole(bench: Files) -> None:
    """Nothing that can be seen is a part of a file, or a part of an epoch in the manifests."""
    bench.ids()
    for epoch in files.committed(str(bench.target)):
        assert epoch.rows == 4
        for file in epoch.files:
            assert (bench.target / file.path).stat().st_size == file.bytes


@kills
def test_commit_and_manifest_are_finished_after_a_crash_at_any_step(quick: Path, *, kill: bool) -> None:
    for nth in count(1):
        bench = Files(quick / str(nth))
        handles = [bench.prepared(rows(1, 2)), bench.prepared(rows(3, 4), slot=1)]

        def work(bench: Files = bench, handles: list[Handle] = handles) -> None:
            bench.finish(0, *handles)

        end = crashed(work, nth, bench.target, kill=kill)
        whole(bench)
        outcomes = bench.finish(0, *handles)
        assert set(outcomes) <= {"Committed", "AlreadyCommitted"}
        assert bench.ids() == [1, 2, 3, 4]
        assert [epoch.rows for epoch in files.committed(str(bench.target))] == [4]
        assert bench.sink().recover(bench.context) == []
        assert bench.staged() == []
        assert not list(bench.target.rglob("*.dropped"))
        if end is None:
            assert outcomes == ["AlreadyCommitted"] * 2
            assert nth > 25, "the steps are counted"
            return


@kills
def test_abort_is_finished_after_a_crash_at_any_step(quick: Path, *, kill: bool) -> None:
    for nth in count(1):
        bench = Files(quick / str(nth))
        handle = bench.prepared(rows(1, 2))
        decided = bench.prepared(rows(3), slot=1)
        end = crashed(partial(bench.sink().abort, handle), nth, bench.target, kill=kill)
        left = [leftover.transaction for leftover in bench.sink().recover(bench.context)]
        dropped = f"dropped-{handle.transaction}"
        assert set(left) <= {handle.transaction, decided.transaction, dropped}
        bench.sink().abort(handle)
        assert bench.finish(0, decided) == ["Committed"]
        assert (bench.ids(), bench.staged()) == ([3], [])
        assert bench.sink().recover(bench.context) == []
        if end is None:
            assert left == [decided.transaction]
            return


@pytest.mark.parametrize("swept_first", [True, False], ids=["swept", "repeated"])
def test_what_is_settled_outlives_a_power_loss_at_any_step(quick: Path, *, swept_first: bool) -> None:
    for nth in count(1):
        disk = Disk()
        bench = Files(quick / str(nth), store=disk)
        handles = [bench.prepared(rows(1, 2)), bench.prepared(rows(3, 4), slot=1)]
        disk.lose_power()
        assert len(bench.staged()) == 4
        bench.store = Disk(dies_at=nth)
        died = dies(partial(bench.finish, 0, *handles))
        if not died:
            bench.store.lose_power()
            assert bench.ids() == [1, 2, 3, 4]
            assert [epoch.rows for epoch in files.committed(str(bench.target))] == [4]
            assert bench.staged() == []
            assert nth > 15, "the steps are counted"
            return
        # The process alone dies; the machine does so after the next one has swept.
        if swept_first:
            bench.sweep(keep=handles)
        bench.store.lose_power()
        assert set(bench.finish(0, *handles)) <= {"Committed", "AlreadyCommitted"}
        bench.store.lose_power()
        assert bench.ids() == [1, 2, 3, 4]
        assert [epoch.rows for epoch in files.committed(str(bench.target))] == [4]
        assert bench.staged() == []


def test_a_power_loss_in_the_middle_of_a_repair_takes_back_nothing_that_is_committed(quick: Path) -> None:
    """Of two sinks one has lost its rows: those of the other are committed, and the next link says so for good."""
    MemorySink.stores.clear()
    disk, log = Disk(), MemoryDisk()
    bench = Files(quick / "out", store=disk, query="query")
    memory = MemorySink({"store": "a"})
    sinks: dict[str, TwoPhaseCommitSink[Any]] = {"a": memory, "files": bench.sink()}

    def coordinator() -> Coordinator:
        made = Coordinator(log=MemoryLog(log), actor="driver")
        for name, sink in sinks.items():
            columns = bench.columns if name == "files" else ()
            made.join(name, Participant(sink=sink, guarantee=Guarantee.EXACTLY_ONCE, columns=columns))
        return made

    def live(run: str) -> None:
        driver = coordinator()
        plan = driver.plan(0, barrier=("0",), run=run)
        votes = []
        for name, sink in sinks.items():
            context = WriteContext(
                query="query", sink=name, run=run, epoch=0, plan=plan.id, slot=0, attempt="0",
                guarantee=plan.guarantee, mode=plan.mode, facts=plan.facts[name],
            )  # fmt: skip
            votes.append(run_slot(sink, plan, context, [pa.record_batch(rows(1, 2))]).vote)
        driver.decide(plan, votes)

    def expire(step: str, value: object) -> None:
        if step == "link.after" and getattr(value, "votes", None):
            for name in memory.store.pending():
                memory.store.expire(name)

    log.hook = expire
    with pytest.raises(TransactionLostError):
        live("first")
    log.hook = None
    coordinator().plan(0, barrier=("0",), run="second")
    assert [vote.sink for vote in log.links[0][-1].carried] == ["files"]
    disk.lose_power()
    live("third")
    disk.lose_power()
    assert bench.ids() == [1, 2]
    assert [epoch.rows for epoch in files.committed(str(bench.target))] == [2]


def dies(action: Callable[[], object]) -> bool:
    try:
        action()
    except PowerLostError:
        return True
    return False


def epochs(count: int) -> list[Manifest]:
    """Return the manifests of so many epochs, of one file each."""
    return [
        Manifest(epoch=number, layout="l", files=(DataFile(f"f{number}", 1, 4, "c"),))
        for number in range(count)
    ]


@kills
def test_merging_manifests_loses_and_doubles_none_at_any_step(
    quick: Path, monkeypatch: pytest.MonkeyPatch, *, kill: bool
) -> None:
    monkeypatch.setattr(ledger, "MERGED", 2)
    manifests = epochs(10)
    for nth in count(1):
        kept = ledger.Ledger(LocalStore(), quick / str(nth))
        for manifest in manifests[:9]:
            kept.put(manifest)
        end = crashed(lambda: kept.put(manifests[9]), nth, quick, kill=kill)  # noqa: B023  run at once
        assert kept.manifests() in (manifests[:9], manifests)
        kept.put(manifests[9])
        assert kept.manifests() == manifests
        names = sorted(path.name for path in kept.folder.iterdir())
        assert [name[0] for name in names] == ["0", "0", "1", "1", "2"], names
        if end is None:
            assert nth > 20
            return


def test_a_manifest_that_was_put_outlives_a_power_loss_at_any_step(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MERGED", 2)
    manifests = epochs(10)
    for nth in count(1):
        disk = Disk()
        kept = ledger.Ledger(disk, quick / str(nth))
        for manifest in manifests[:9]:
            kept.put(manifest)
        disk.die_at(nth)
        died = dies(lambda: kept.put(manifests[9]))  # noqa: B023  run at once
        # The process alone dies; the machine does so after the next one has put it, too.
        disk.die_at(0)
        kept.put(manifests[9])
        disk.lose_power()
        assert kept.manifests() == manifests
        if not died:
            assert nth > 8
            return


def test_what_another_process_has_merged_is_durable_before_its_parts_are_deleted(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MERGED", 2)
    disk = Disk()
    kept = ledger.Ledger(disk, quick / "m")
    manifests = [Manifest(epoch=number, layout="l", files=()) for number in range(3)]
    for manifest in manifests:
        kept.put(manifest)
    whole = ledger.Part(1, 0, 1)
    monkeypatch.setattr(Disk, "sync_folder", lambda _self, _folder: None)
    disk.put_if_absent(kept.folder / whole.name, encode_manifests(manifests[:2]))
    monkeypatch.undo()
    kept._merge()
    disk.lose_power()
    assert kept.manifests() == manifests


def test_an_epoch_is_read_once_where_others_expired_and_merged_between_a_look_and_its_put(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MERGED", 2)
    manifests = epochs(20)
    other = ledger.Ledger(LocalStore(), quick / "m")

    class Paused(LocalStore):
        """Stands still with what it has merged, while epoch 0 expires and the driver that took over goes on."""

        def put_if_absent(self, path: Path, data: bytes) -> bool:
            if path.name.startswith("1-") and not other.marks().expired:
                for kind in ("expired", "removed"):
                    marks.put(LocalStore(), other.folder, kind, 0)
                other.drop(0)
                other.put(manifests[4])
            return super().put_if_absent(path, data)

    for manifest in manifests[:3]:
        other.put(manifest)
    ledger.Ledger(Paused(), other.folder).put(manifests[3])
    merged = sorted(path.name for path in other.folder.glob("1-*"))
    assert [ledger.Part(1, 0, 1).name, ledger.Part(1, 1, 2).name] == merged, "they overlap"
    assert other.manifests() == manifests[1:5]
    for manifest in manifests[5:]:
        other.put(manifest)
        assert other.manifests() == manifests[1 : manifest.epoch + 1]
    assert [
        each.epoch for each in due(LocalStore(), quick, other.folder, older_s=-1, grace_s=0).expiring
    ] == [*range(1, 18)]


def test_two_manifest_files_that_hold_an_epoch_differently_are_refused(quick: Path) -> None:
    kept = ledger.Ledger(LocalStore(), quick / "m")
    for name, file in ((ledger.Part(0, 1, 1), "a"), (ledger.Part(0, 1, 2), "b")):
        kept.folder.mkdir(exist_ok=True)
        manifest = Manifest(epoch=1, layout="l", files=(DataFile(file, 1, 4, "c"),))
        (kept.folder / name.name).write_bytes(encode_manifests([manifest]))
    with pytest.raises(LogError, match="chk-1"):
        kept.manifests()
    with pytest.raises(LogError, match="holds other files for an epoch"):
        join_manifests([((kept.folder / each.name).read_bytes(), each.name) for each in kept.standing()])
