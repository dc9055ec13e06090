"""The list, one epoch in full, and the transactions: as the files are, whatever the files are."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator_bench import QueryCoordinator

from onceonly.errors import ConfigurationError, LogError, UnavailableError
from onceonly.log import files
from onceonly.log.presence import Presence
from onceonly.log.progress import BLOCK, KEEP, OperatorReport, Progress, ProgressFiles, SourceReport
from onceonly.model import seconds_of
from onceonly.operations import look, offsets
from onceonly.operations.find import open_checkpoint
from onceonly.operations.states import EpochState
from onceonly.view.verdict import verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def coordinator(tmp_path: Path) -> QueryCoordinator:
    return QueryCoordinator(tmp_path / "cp", keep=2)


def listed(coordinator: QueryCoordinator, *, limit: int | None = 20, history: bool = False) -> dict[str, str]:
    model = look.newest(open_checkpoint(coordinator.path), limit=limit, history=history)
    return {row.view.name: row.view.state.value for row in model.epochs}


def test_epochs_are_listed_newest_first_each_as_it_stands(coordinator: QueryCoordinator) -> None:
    coordinator.complete(0, 1)
    coordinator.settle(coordinator.decide(2))
    assert listed(coordinator) == {"chk-2": "committed", "chk-1": "complete", "chk-0": "complete"}
    coordinator.set_barrier(3)
    assert next(iter(listed(coordinator).items())) == ("chk-3", "in flight")
    coordinator.claim(3)
    assert next(iter(listed(coordinator).items())) == ("chk-3", "aborted")
    coordinator.decide(3, index=1)
    assert next(iter(listed(coordinator, limit=2).items())) == ("chk-3", "decided")
    assert list(listed(coordinator, limit=2)) == ["chk-3", "chk-2"]


def test_what_the_run_that_is_alive_has_claimed_is_in_flight_and_not_given_up(
    coordinator: QueryCoordinator,
) -> None:
    coordinator.complete(0)
    coordinator.set_barrier(1)
    coordinator.claim(1)
    with contextlib.closing(Presence.hold(str(coordinator.path), actor="driver")):
        assert listed(coordinator) == {"chk-1": "in flight", "chk-0": "complete"}
        told = verdict(look.newest(open_checkpoint(coordinator.path), limit=1, history=False))
        assert told.stuck == "nothing of chk-1 is decided yet"
        assert told.next_step == "the run that is alive writes it"
    assert listed(coordinator) == {"chk-1": "aborted", "chk-0": "complete"}


def test_folded_epochs_have_a_line_each_and_say_so(coordinator: QueryCoordinator) -> None:
    for epoch in range(45):
        coordinator.complete(epoch)
        coordinator.log.fold()
    assert list(listed(coordinator, limit=None)) == [f"chk-{epoch}" for epoch in range(44, 39, -1)]
    everything = listed(coordinator, limit=None, history=True)
    assert list(everything) == [f"chk-{epoch}" for epoch in range(44, -1, -1)]
    assert set(everything.values()) == {"complete"}
    assert len(listed(coordinator, limit=7, history=True)) == 7
    folded = look.epoch(open_checkpoint(coordinator.path), 3).epoch
    assert folded.view.folded
    assert "folded" in folded.note
    assert folded.view.sinks == {"box": (6, 2)}
    assert not look.epoch(open_checkpoint(coordinator.path), 44).epoch.view.folded


def test_one_epoch_shows_barrier_chain_handles_state_and_time(coordinator: QueryCoordinator) -> None:
    coordinator.complete(0)
    coordinator.set_barrier(1)
    coordinator.claim(1)
    coordinator.settle(coordinator.decide(1, index=1))
    coordinator.note(1)
    (coordinator.path / "state/0/1").mkdir(parents=True)
    (coordinator.path / "state/0/1/1.delta").write_bytes(b"x" * 1000)
    report = Progress(
        epoch=1, run="r", rows=15, duration_ms={"addBatch": 7},
        sources=(SourceReport(name="KafkaV2", rows=15),),
        operators=(OperatorReport(name="stateStoreSave", rows_total=4, memory_bytes=99),),
    )  # fmt: skip
    ProgressFiles(coordinator.path).put(report)
    model = look.epoch(open_checkpoint(coordinator.path), 1)
    found = model.epoch
    assert [(part.partition, part.start, part.end, part.span) for part in found.sources[0]] == [
        ("events/0", 10, 20, 10), ("events/1", 5, 10, 5), ("events/10", 0, 0, 0),
    ]  # fmt: skip
    assert [link.name for link in found.chain] == ["1.0", "1.1"]
    assert [(item.transaction, item.state.value) for item in found.handles] == [
        ("t1-0", "committed"), ("t1-1", "committed"),
    ]  # fmt: skip
    assert [step.what for step in found.steps] == [
        "barrier written", "link 1.0: ABORT", "link 1.1: GLOBAL_COMMIT", "receipt: all committed", "noted by Spark",
    ]  # fmt: skip
    assert found.progress == report
    assert model.sizes is not None
    assert model.sizes.state == {"0": 1000}
    assert model.sizes.total > 1000
    assert found.view.seconds == 0.25


def test_what_spark_reports_is_for_people_so_damage_is_a_note(coordinator: QueryCoordinator) -> None:
    coordinator.complete(0)
    files = ProgressFiles(coordinator.path)
    files.put(Progress(epoch=0))
    path = next((coordinator.path / "onceonly/progress").iterdir())
    path.write_bytes(path.read_bytes()[:-3])
    found = look.epoch(open_checkpoint(coordinator.path), 0).epoch
    assert found.progress is None
    assert "torn" in found.note
    assert found.view.state is EpochState.COMPLETE


def test_reports_are_added_to_epochs_as_far_as_they_are_kept_and_can_be_read(
    coordinator: QueryCoordinator,
) -> None:
    coordinator.complete(0, 1)
    latest = '{"events":{"0":24,"1":10,"10":0}}'
    report = Progress(epoch=1, run="r", sources=(SourceReport(name="KafkaV2", latest=latest),))
    ProgressFiles(coordinator.path).put(report)
    checkpoint = open_checkpoint(coordinator.path)
    model = look.newest(checkpoint, limit=None, history=False)
    assert [each.behind for each in look.with_reports(checkpoint, model).epochs] == [4, None]
    (coordinator.path / f"onceonly/progress/{0:020d}-{BLOCK - 1:020d}.json").write_bytes(b"{")
    assert look.with_reports(checkpoint, model) == model


def test_the_newest_hundred_reports_stay_in_few_files(coordinator: QueryCoordinator) -> None:
    files, folder = ProgressFiles(coordinator.path), coordinator.path / "onceonly/progress"
    for epoch in range(2 * KEEP):
        files.put(Progress(epoch=epoch))
        found = [number for number in range(2 * KEEP) if files.get(number) is not None]
        assert found[-1] == epoch
        assert set(range(max(epoch - KEEP + 1, 0), epoch + 1)) <= set(found)
        assert len(list(folder.iterdir())) <= KEEP // BLOCK + 1
    files.put(Progress(epoch=2 * KEEP - 1, rows=1))
    again = ProgressFiles(coordinator.path)  # another run, which goes on in the same file
    assert again.get(2 * KEEP - 1) == Progress(epoch=2 * KEEP - 1, rows=1)
    again.put(Progress(epoch=2 * KEEP - 2, rows=2))
    assert again.get(2 * KEEP - 1) == Progress(epoch=2 * KEEP - 1, rows=1)
    assert again.get(2 * KEEP - 2) == Progress(epoch=2 * KEEP - 2, rows=2)
    again.put(Progress(epoch=3 * KEEP + BLOCK))
    assert [path.name for path in folder.iterdir()] == [f"{310:020d}-{319:020d}.json"]
    assert again.get(-1) is None


def test_a_damaged_file_of_reports_is_begun_anew(coordinator: QueryCoordinator) -> None:
    ProgressFiles(coordinator.path).put(Progress(epoch=0))
    path = next((coordinator.path / "onceonly/progress").iterdir())
    path.write_bytes(b"torn")
    files = ProgressFiles(coordinator.path)
    files.put(Progress(epoch=1))
    assert [files.get(0), files.get(1)] == [None, Progress(epoch=1)]


def test_an_epoch_that_is_not_there_is_said_so(coordinator: QueryCoordinator) -> None:
    coordinator.complete(0, 1)
    with pytest.raises(ConfigurationError, match="has no chk-7") as told:
        look.epoch(open_checkpoint(coordinator.path), 7)
    assert "chk-0 to chk-1" in told.value.next_step


def test_what_is_folded_while_it_is_read_is_listed_once(
    coordinator: QueryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.complete(*range(45))
    read = look._read

    def and_fold(*asked: Any) -> Iterator[Any]:  # noqa: ANN401  as it is called
        yield from read(*asked)
        coordinator.log.fold()

    monkeypatch.setattr(look, "_read", and_fold)
    model = look.newest(open_checkpoint(coordinator.path), limit=None, history=True)
    assert [each.view.epoch for each in model.epochs] == [*range(44, -1, -1)]
    assert next(iter(coordinator.log.history())).epoch == 0


@pytest.mark.parametrize("in_its_place", ["nothing", "another"])
def test_a_log_that_is_gone_since_it_was_opened_is_never_an_empty_one(
    coordinator: QueryCoordinator, in_its_place: str
) -> None:
    coordinator.complete(0, 1)
    coordinator.decide(2)
    opened = open_checkpoint(coordinator.path)
    before = look.newest(opened, limit=20, history=False)
    shutil.rmtree(coordinator.path)
    if in_its_place == "another":
        QueryCoordinator(coordinator.path, query="99999999-2222-3333-4444-555555555555").complete(0)
    looks: list[Callable[[], object]] = [
        lambda: look.newest(opened, limit=20, history=True),
        lambda: look.tail(opened, range(3), before, limit=20, votes_max=100),
        lambda: look.unsettled(opened),
        lambda: look.epoch(opened, 2),
    ]
    for again in looks:
        with pytest.raises(LogError, match=f"is gone, and {in_its_place}.* is in its place"):
            again()


def test_an_epoch_that_is_asked_for_alone_has_the_checksums_of_its_files(
    coordinator: QueryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.complete(0)
    coordinator.claim(1)
    coordinator.settle(coordinator.decide(1, index=1))
    opened = open_checkpoint(coordinator.path)
    log = coordinator.path / "onceonly"
    names = [*(f"links/{1:020d}.{index}.json" for index in range(2)), f"receipts/{1:020d}.json"]
    headers = {name: json.loads((log / name).read_bytes().partition(b"\n")[0]) for name in names}
    assert look.epoch(opened, 1).epoch.checksums == {
        name: header["checksum"] for name, header in headers.items()
    }
    assert look.newest(opened, limit=1, history=False).epochs[0].checksums == {}, "of a list nobody asks"

    def sums(*_: object) -> dict[str, str]:
        raise UnavailableError("down", next_step="wait")

    monkeypatch.setattr(files, "sums", sums)
    assert look.epoch(opened, 1).epoch.checksums == {}, "and the epoch is shown all the same"


def test_a_barrier_is_told_though_sparks_file_is_gone(coordinator: QueryCoordinator) -> None:
    coordinator.complete(0, 1)
    shutil.rmtree(coordinator.path / "offsets")
    found = look.epoch(open_checkpoint(coordinator.path), 1).epoch
    assert found.sources[0][0].span == 10
    assert "barrier written" not in [step.what for step in found.steps]


def test_a_barrier_that_was_written_anew_since_stands_before_what_stands_on_it(
    coordinator: QueryCoordinator,
) -> None:
    """A start after a crash writes ``offsets/N`` again, after the decision and even the receipt."""
    coordinator.complete(0, 1)
    offsets = coordinator.path / "offsets" / "1"
    late = offsets.stat().st_mtime + 60
    os.utime(offsets, (late, late))
    steps = look.epoch(open_checkpoint(coordinator.path), 1).epoch.steps
    assert steps[0].what == "barrier written"
    assert [step.at for step in steps] == sorted(step.at for step in steps)


def test_only_what_is_owed_is_pending(coordinator: QueryCoordinator) -> None:
    coordinator.complete(0, 1)
    checkpoint = open_checkpoint(coordinator.path)
    assert look.unsettled(checkpoint).in_doubt == []
    assert len(look.unsettled(checkpoint, everything=True).transactions) == 4
    assert look.unsettled(checkpoint, everything=True).in_doubt == []
    coordinator.decide(2)
    pending = look.unsettled(open_checkpoint(coordinator.path)).in_doubt
    assert [(epoch.view.epoch, handle.transaction) for epoch, handle in pending] == [(2, "t2-0"), (2, "t2-1")]
    assert all(epoch.since(handle) for epoch, handle in pending)


def test_a_checkpoint_whose_files_were_copied_tells_the_same_times_as_before() -> None:
    """The files of the golden folder are as old as the checkout of it."""
    copied = open_checkpoint(Path(__file__).parent / "golden" / "midway-4-decided" / "checkpoint")
    [*_, decided] = copied.log.chain(25)
    assert decided.stamp is not None
    pending = look.unsettled(copied).in_doubt
    assert {epoch.since(handle) for epoch, handle in pending} == {seconds_of(decided.stamp)}
    newest, before, *_ = look.newest(copied, limit=2, history=False).epochs
    assert newest.at == seconds_of(decided.stamp)
    assert before.receipt is not None
    assert before.at == seconds_of(before.receipt.stamp)


def test_sources_of_any_kind_are_cut_into_partitions() -> None:
    assert [part.span for part in offsets.partitions('{"logOffset":2}', '{"logOffset":3}')] == [1]
    assert offsets.partitions(None, "17") == [offsets.Partition(partition="", end=17)]
    assert offsets.partitions("-", "-") == []
    assert offsets.partitions("not json", '{"a":true}')[0].span is None
    grown = offsets.partitions('{"t":{"0":1}}', '{"t":{"0":1,"1":4}}')
    assert [(part.partition, part.start) for part in grown] == [("t/0", 1), ("t/1", None)]
    gone = offsets.partitions('{"t":{"0":1}}', "{}")
    assert [(part.partition, part.end) for part in gone] == [("t/0", None)]


_JSON = st.recursive(
    st.none() | st.integers() | st.text() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(start=st.none() | st.text(), end=_JSON)
def test_no_offset_is_too_strange_to_be_shown(start: str | None, end: object) -> None:
    import json

    for part in offsets.partitions(start, json.dumps(end)):
        assert isinstance(part.partition, str)


def test_how_far_an_epoch_ended_behind_its_source_is_told_where_spark_was_told() -> None:
    [first, second] = offsets.partitions('{"t":{"0":1}}', '{"t":{"0":5,"1":7}}', '{"t":{"0":9,"1":6}}')
    assert (first.span, first.behind) == (4, 4)
    assert second.behind == 0, "a source that goes back is not less than nothing behind"
    [unknown] = offsets.partitions(None, '{"t":{"0":5}}', "")
    assert unknown.behind is None
