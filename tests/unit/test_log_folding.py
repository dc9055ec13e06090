"""Folding: a bounded number of files after 100,000 epochs, and nothing lost wherever it is killed."""

from __future__ import annotations

import threading
import time
from concurrent.futures import wait
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from onceonly.errors import LogError
from onceonly.log import FileDecisionLog, Summary, history, open_log
from onceonly.log.survey import survey
from onceonly.model import Handle, Link, LinkKind, Receipt, SinkUse, Stamp, Vote
from onceonly_proof.memory_log import MemoryLog
from onceonly_proof.stores.memory import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

KEEP = 5


def stamp(epoch: int, ms: int = 0) -> Stamp:
    at = datetime.fromtimestamp(1795724100 + epoch, UTC).isoformat()
    return Stamp(at=at.replace("+00:00", f".{ms:03}Z"), host="spark-1", pid=4711)


COLUMNS = (("key", "string"), ("value", "string"))
SUMS = {"kafka": (history.columns_digest(COLUMNS), f"murmur64:{(1 << 63) + 3:016x}")}


def link(epoch: int, index: int = 0, kind: LinkKind = LinkKind.COMMIT) -> Link:
    votes = tuple(
        Vote(
            sink="kafka", epoch=epoch, slot=slot, plan=f"plan-{epoch}", run="run", attempt=str(slot),
            rows=100 + slot, checksum=f"murmur64:{(1 << 63) + slot:016x}",
            handle=Handle(transaction=f"onceonly.query.kafka.run.{slot}", data={"producer_id": 4000 + slot}),
        )
        for slot in range(3)
    )  # fmt: skip
    return Link(
        epoch=epoch,
        index=index,
        kind=kind,
        plan=f"plan-{epoch}",
        run="run",
        planned=stamp(epoch),
        stamp=stamp(epoch, 250),
        votes=votes if kind is LinkKind.COMMIT else (),
        barrier=(f'{{"events":{{"0":{epoch}}}}}',),
        uses={"kafka": SinkUse(sink="kafka", columns=COLUMNS)},
    )


def receipt(epoch: int) -> Receipt:
    return Receipt(
        epoch=epoch, index=0, plan=f"plan-{epoch}", outcomes={"Committed": 3}, seconds=0.0123,
        stamp=stamp(epoch, 375),
    )  # fmt: skip


def line(epoch: int) -> Summary:
    return Summary(
        epoch=epoch, kind=LinkKind.COMMIT, links=1, sinks={"kafka": (303, 3)}, outcomes={"Committed": 3},
        seconds=0.012, at=1795724100.25 + epoch, planned_s=0.25, settled_s=0.125, sums=SUMS,
    )  # fmt: skip


def logged(files: dict[str, bytes], *, keep: int = KEEP) -> FileDecisionLog:
    log = FileDecisionLog(MemoryStore(files), query="q", keep=keep)
    log.check()
    return log


def run(log: FileDecisionLog, epochs: range) -> None:
    for epoch in epochs:
        assert log.put_link(link(epoch)) == link(epoch)
        log.put_receipt(receipt(epoch))
        log.fold()


# --- what folding leaves ----------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 7, 19, 20, 999])
def test_every_epoch_is_either_in_detail_or_in_history(first: int) -> None:
    files: dict[str, bytes] = {}
    log = logged(files)
    for epoch in range(first, first + 250):
        run(log, range(epoch, epoch + 1))
        folded = list(log.history())
        start = first + len(folded)
        assert folded == [line(number) for number in range(first, start)]
        assert log.epochs() == range(first, epoch + 1)
        assert epoch - start < KEEP + history.SIZES[0]
        assert start <= max(first, epoch - KEEP + 1)
    assert all(log.chain(epoch) == (link(epoch),) for epoch in range(start, first + 250))
    assert all(log.receipt(epoch) == receipt(epoch) for epoch in range(start, first + 250))
    assert log.chain(start - 1) == ()
    assert log.receipt(start - 1) is None


def test_a_line_counts_all_output_of_the_last_link() -> None:
    files: dict[str, bytes] = {}
    log = logged(files)
    log.put_link(link(0, 0, LinkKind.ABORT))
    last = link(0, 1)
    carried = Vote(sink="files", epoch=0, slot=9, plan="p", run="r", attempt="1", rows=7, checksum="0" * 16)
    log.put_link(Link(**{f: getattr(last, f) for f in last.__dataclass_fields__} | {"carried": (carried,)}))
    log.put_receipt(receipt(0))
    run(log, range(1, 40))
    assert next(log.history()) == Summary(
        epoch=0, kind=LinkKind.COMMIT, links=2, sinks={"files": (7, 0), "kafka": (303, 3)},
        outcomes={"Committed": 3}, seconds=0.012, aborts=1,
        at=1795724100.25, planned_s=0.25, settled_s=0.125, sums=SUMS,
    )  # fmt: skip


def test_the_sum_of_a_line_is_of_a_sinks_own_rows() -> None:
    known = link(0)
    more = tuple(
        replace(known.votes[0], sink=name, checksum=checksum)
        for name, checksum in {
            "kafka.letters": f"murmur64:{5:016x}",
            "old": "00ff",
            "unknown": f"murmur64:{5:016x}",
        }.items()
    )
    uses = {name: SinkUse(sink="kafka", columns=COLUMNS) for name in ("kafka", "kafka.letters", "old")}
    assert history.sums_by_sink(replace(known, votes=known.votes + more, uses=uses)) == SUMS
    assert history.columns_digest(COLUMNS) != history.columns_digest(COLUMNS[::-1])


def test_the_arithmetic_of_blocks_and_merges() -> None:
    assert history.blocks(0, 24, 5) == [(0, 19)]
    assert history.blocks(0, 23, 5) == []
    assert history.blocks(7, 60, 5) == [(7, 19), (20, 39)]
    assert history.widest([(20, 39), (0, 19), (0, 99), (100, 119)]) == (
        [(0, 99), (100, 119)],
        [(0, 19), (20, 39)],
    )
    fives = [(start, start + 19) for start in range(0, 100, 20)]
    assert history.merges(fives[:4]) == []
    assert history.merges([*fives, (100, 119)]) == [fives]
    hundreds = [(start, start + 99) for start in range(0, 900, 100)]
    last = [(start, start + 19) for start in range(900, 1000, 20)]
    assert history.merges([*hundreds, *last]) == [[*hundreds, *last]]
    assert history.merges([(99, 99), (100, 199)]) == []


@pytest.mark.parametrize("epochs", [20_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_many_epochs_leave_few_files_and_open_at_once(tmp_path: Path, epochs: int) -> None:
    files: dict[str, bytes] = {}
    log = logged(files, keep=100)
    most = largest = 0
    for epoch in range(epochs):
        log.put_link(link(epoch))
        log.put_receipt(receipt(epoch))
        log.fold()
        if epoch % 100 == 97:
            most = max(most, len(files))
    assert most <= 299
    # The same files on a disk, opened as a planner does.
    open_log(str(tmp_path), query="q", create=True)
    for name, data in files.items():
        (tmp_path / "onceonly" / name).write_bytes(data)
        largest = max(largest, len(data))
    total = sum(len(data) for data in files.values())
    started = time.perf_counter()
    reopened = open_log(str(tmp_path), query="q", create=True)
    seconds = time.perf_counter() - started
    print(f"{most} files at most, {total} bytes, the largest {largest}, opened in {seconds:.3f} s")  # noqa: T201
    assert total <= 20_000_000
    assert seconds <= 1
    assert reopened.epochs() == range(epochs)
    lines = list(reopened.history())
    assert [item.epoch for item in lines] == list(range(len(lines)))
    assert lines[0] == line(0)
    assert max(len(data) for name, data in files.items() if name.startswith("links/")) < 2_000
    assert total / len(lines) < 280


def test_a_fold_with_nothing_to_do_touches_nothing() -> None:
    operations: list[str] = []
    store = MemoryStore(hook=lambda operation, _name: operations.append(operation))
    log = FileDecisionLog(store, query="q", keep=KEEP)
    run(log, range(30))
    operations.clear()
    log.fold()
    assert operations == []


# --- damage -----------------------------------------------------------------------------------------------


def test_a_missing_segment_is_named_at_open() -> None:
    files: dict[str, bytes] = {}
    run(logged(files), range(75))
    for name in sorted(name for name in files if name.startswith("history/"))[1:]:
        rest = {other: data for other, data in files.items() if other != name}
        with pytest.raises(LogError):
            logged(rest)


def test_a_damaged_or_renamed_segment_is_named_and_nothing_is_removed() -> None:
    files: dict[str, bytes] = {}
    run(logged(files), range(45))
    name = "history/00000000000000000000-00000000000000000019.json"
    other = "history/00000000000000000020-00000000000000000039.json"
    for data, words in [(files[name][:-3], "torn"), (files[other], "does not hold the epochs")]:
        damaged = files | {name: data}
        with pytest.raises(LogError, match=words) as caught:
            list(logged(damaged).history())
        assert name in caught.value.what
    # Details that a damaged segment claims to cover stay.
    details = dict(files) | {"links/00000000000000000003.0.json": b"kept", name: files[name][:-3]}
    with pytest.raises(LogError, match="torn"):
        run(logged(details), range(45, 46))
    assert "links/00000000000000000003.0.json" in details


def test_a_damaged_link_is_not_folded() -> None:
    files: dict[str, bytes] = {}
    log = logged(files)
    run(log, range(20))
    files["links/00000000000000000003.0.json"] = b"{}"
    with pytest.raises(LogError, match=r"00000000000000000003\.0\.json"):
        run(log, range(20, 30))
    assert "links/00000000000000000002.0.json" in files
    assert not [name for name in files if name.startswith("history/")]


# --- killed, and beside others ----------------------------------------------------------------------------


class KilledError(Exception):
    pass


class Countdown:
    """Kills at the n-th operation of a store."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, operation: str, name: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise KilledError(operation, name)


@pytest.mark.parametrize("newest", [98, 104, 110, pytest.param(1004, marks=pytest.mark.long)])
def test_a_fold_killed_at_any_operation_loses_nothing_and_is_resumed(newest: int) -> None:
    before: dict[str, bytes] = {}
    log = logged(before)
    for epoch in range(newest + 1):
        log.put_link(link(epoch))
        log.put_receipt(receipt(epoch))
        if epoch < newest - 40:
            log.fold()
    clean = dict(before)
    logged(clean).fold()
    operation = 0
    finished = False
    while not finished:
        files = dict(before)
        folder = FileDecisionLog(MemoryStore(files, hook=None), query="q", keep=KEEP)
        folder.check()
        folder._fold._store.hook = Countdown(operation)  # type: ignore[attr-defined]
        try:
            folder.fold()
            finished = True
        except KilledError:
            pass
        again = logged(files)
        assert again.epochs() == range(newest + 1)
        folded = [item.epoch for item in again.history()]
        assert folded == list(range(len(folded)))
        assert all(again.chain(epoch) == (link(epoch),) for epoch in range(len(folded), newest + 1))
        again.fold()
        assert files == clean
        assert survey(MemoryStore(files)).leftovers == ()
        operation += 1
    assert operation > 20


@pytest.mark.parametrize("moment", range(0, 160, 3))
def test_two_drivers_that_fold_at_the_same_time_make_the_same(moment: int) -> None:
    before: dict[str, bytes] = {}
    log = logged(before)
    run(log, range(80))
    for epoch in range(80, 106):
        log.put_link(link(epoch))
        log.put_receipt(receipt(epoch))
    clean = dict(before)
    logged(clean).fold()
    files = dict(before)
    passed = 0

    def between(_operation: str, _name: str) -> None:
        nonlocal passed
        passed += 1
        if passed == moment:
            logged(files).fold()

    slow = FileDecisionLog(MemoryStore(files, hook=between), query="q", keep=KEEP)
    slow.check()
    slow.fold()
    assert list(logged(files).history()) == [line(epoch) for epoch in range(100)]
    logged(files).fold()
    assert files == clean


def test_history_is_read_to_the_end_though_it_is_merged_meanwhile() -> None:
    files: dict[str, bytes] = {}
    run(logged(files), range(104))
    reader = logged(files).history()
    read = [next(reader)]
    run(logged(files), range(104, 106))
    read += reader
    assert read == [line(epoch) for epoch in range(100)]


def test_the_log_in_memory_folds_the_same_way_to_the_protocol() -> None:
    log = MemoryLog(keep=KEEP)
    for epoch in range(30):
        log.put_link(link(epoch))
        log.put_receipt(receipt(epoch))
        log.fold()
    assert log.newest() == 29
    assert log.chain(3) == ()
    assert log.chain(29) == (link(29),)


def test_what_covers_is_synced_and_read_before_what_it_covers_is_removed() -> None:
    files: dict[str, bytes] = {}
    run(logged(files), range(24))
    operations: list[tuple[str, str]] = []
    store = MemoryStore(files, hook=lambda operation, name: operations.append((operation, name)))
    log = FileDecisionLog(store, query="q", keep=KEEP)
    run(log, range(24, 25))
    cover = "history/00000000000000000000-00000000000000000019.json"
    removal = next(number for number, (operation, _) in enumerate(operations) if operation == "delete")
    assert [step for step in operations[:removal] if step[1] == cover] == [
        ("put", cover),
        ("sync", cover),
        ("get", cover),
    ]


class Forgetful(MemoryStore):
    """Its listings miss a name as often as told, as a listing may while others put and remove."""

    missing = ""
    times = 0

    def list_names(self, folder: str) -> list[str]:
        found = super().list_names(folder)
        if self.missing in found and self.times > 0:
            self.times -= 1
            found.remove(self.missing)
        return found


@pytest.mark.parametrize("name", ["links/00000000000000000041.0.json", "receipts/00000000000000000041.json"])
def test_a_gap_is_believed_when_three_listings_show_it(name: str) -> None:
    store = Forgetful()
    log = FileDecisionLog(store, query="q", keep=KEEP)
    run(log, range(45))
    store.missing, store.times = name, 2
    log.check()
    store.times = 3
    with pytest.raises(LogError, match="is missing"):
        log.check()


def test_history_skips_nothing_where_a_listing_missed_a_segment() -> None:
    store = Forgetful()
    log = FileDecisionLog(store, query="q", keep=KEEP)
    run(log, range(70))
    lines = log.history()
    read = [next(lines)]
    store.missing, store.times = "history/00000000000000000020-00000000000000000039.json", 1
    assert [*read, *lines] == [line(epoch) for epoch in range(60)]


def test_no_epoch_waits_for_the_fold_and_what_it_raises_comes_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files: dict[str, bytes] = {}
    waiting, go_on, armed = threading.Event(), threading.Event(), threading.Event()
    mine: list[str] = []

    def hook(operation: str, name: str) -> None:
        if threading.current_thread() is threading.main_thread():
            mine.append(operation)
        elif armed.is_set() and not go_on.is_set():
            waiting.set()
            assert go_on.wait(20)

    log = FileDecisionLog(MemoryStore(files, hook=hook), query="q", keep=KEEP, aside=True)
    due = 19 + KEEP
    run(log, range(due))
    mine.clear()
    armed.set()
    run(log, range(due, due + 2))  # a block is due; the fold stands still at its first operation
    assert waiting.wait(20)
    an_epoch = len(mine) / 2
    assert an_epoch <= 12, "operations of an epoch: link, receipt, and looks for what is newer"
    assert not [name for name in files if name.startswith("history/")]
    go_on.set()
    deadline = time.monotonic() + 20
    while not [name for name in files if name.startswith("history/")] or log.chain(0):
        assert time.monotonic() < deadline, "it is folded in the end"
        time.sleep(0.005)
    run(log, range(due + 2, due + 4))
    assert log.newest() == due + 3

    def damaged() -> None:
        raise LogError("damaged", next_step="restore")

    monkeypatch.setattr(log._fold, "due", lambda _newest: True)
    monkeypatch.setattr(log._fold, "fold", damaged)
    log.fold()
    assert log._folding is not None
    wait([log._folding])
    with pytest.raises(LogError, match="damaged"):
        log.fold()


def test_a_log_is_read_by_several_readers_when_it_is_opened() -> None:
    files: dict[str, bytes] = {}
    run(FileDecisionLog(MemoryStore(files), query="q", keep=100), range(100))
    together, most = 0, 0
    lock = threading.Lock()

    def hook(operation: str, _name: str) -> None:
        nonlocal together, most
        if operation != "get":
            return
        with lock:
            together += 1
            most = max(most, together)
        time.sleep(0.005)
        with lock:
            together -= 1

    log = FileDecisionLog(MemoryStore(files, hook=hook), query="q", keep=100)
    log.verify(log.check())
    assert most >= 4, "one after the other, a shared mount takes as many times as long"
