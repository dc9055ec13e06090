"""The coordinator of a query: what it refuses before the protocol is asked, and when it is seen to be there."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from onceonly.checkpoint.inputs import SparkInputs
from onceonly.checkpoint.syncing import CheckpointSync
from onceonly.coordinator.query import QueryCoordinator
from onceonly.durable.sealed import decoder
from onceonly.errors import (
    AdoptionError,
    CheckpointChangedError,
    CheckpointMovedError,
    ConfigurationError,
    LogError,
    RecordRefusedError,
    UnavailableError,
)
from onceonly.executor.ballot import Ballot
from onceonly.log import open_log
from onceonly.log.folding import Fold
from onceonly.log.opening import look
from onceonly.log.presence import present
from onceonly.model import Guarantee, Link, LinkKind, Mode, Vote
from onceonly.operations.find import open_checkpoint
from onceonly.operations.former import claim, leave
from onceonly.settings.query import LetterSettings, QuerySettings, Replay, SinkSettings
from onceonly.settings.registry import remember
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.ports import Leftover, QueryContext


@pytest.fixture
def coordinator(tmp_path: Path) -> QueryCoordinator:
    MemorySink.stores.clear()
    remember(MemorySink)
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": "q"}))
    barrier(tmp_path, 0)
    made = QueryCoordinator(QuerySettings(checkpoint=str(tmp_path)), actor="driver", application="app")
    made.enlist(SinkSettings(name="memory"), MemorySink, ())
    return made


def barrier(checkpoint: Path, epoch: int) -> None:
    (checkpoint / "offsets" / str(epoch)).write_text(f'v1\n{{}}\n{{"t":{{"0":{epoch}}}}}')


def complete(checkpoint: Path, epoch: int) -> None:
    (checkpoint / "commits" / str(epoch)).write_text("v1\n{}")


def run(coordinator: QueryCoordinator, epoch: int) -> None:
    coordinator.decide(coordinator.plan(epoch, run="r"), [])


def restarted(checkpoint: Path, *, adopt: bool) -> QueryCoordinator:
    made = QueryCoordinator(
        QuerySettings(checkpoint=str(checkpoint), adopt=adopt), actor="driver", application="app"
    )
    made.enlist(SinkSettings(name="memory"), MemorySink, ())
    return made


def links(checkpoint: Path) -> dict[str, tuple[str, str]]:
    """Return kind and reason of each link, by its number."""
    found = look(str(checkpoint))[0]
    return {
        link.name: (link.kind.value, link.reason) for epoch in found.epochs() for link in found.chain(epoch)
    }


def test_a_log_of_an_older_backup_than_sparks_files_is_not_taken_for_another_sink(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    run(coordinator, 0)
    shutil.copytree(tmp_path / "onceonly", tmp_path / "older")
    for epoch in (0, 1):
        barrier(tmp_path, epoch)
        complete(tmp_path, epoch)
    run(coordinator, 1)
    barrier(tmp_path, 2)
    shutil.move(tmp_path / "onceonly", tmp_path / "newest")
    shutil.copytree(tmp_path / "older", tmp_path / "onceonly")
    with pytest.raises(
        AdoptionError, match="or the decision log is of an older backup than Spark's files"
    ) as caught:
        restarted(tmp_path, adopt=False).plan(2, run="s")
    assert "put the newest one back" in caught.value.next_step
    shutil.rmtree(tmp_path / "onceonly")
    shutil.move(tmp_path / "newest", tmp_path / "onceonly")
    assert restarted(tmp_path, adopt=False).plan(2, run="s").mode is Mode.RUN


@pytest.mark.parametrize("noted", [False, True])
def test_of_older_files_of_sparks_one_epoch_is_drained_after_the_other(
    coordinator: QueryCoordinator,
    tmp_path: Path,
    noted: bool,  # noqa: FBT001
) -> None:
    for epoch in (0, 1, 2):
        barrier(tmp_path, epoch)
        run(coordinator, epoch)
        complete(tmp_path, epoch)
    # All of Spark's is put back as it was in epoch 1, its state, too; or of epoch 2, the barrier alone is lost.
    for name in ("offsets/2", "commits/1", *([] if noted else ["commits/2"])):
        (tmp_path / name).unlink()
    again = restarted(tmp_path, adopt=False)
    if noted:
        with pytest.raises(CheckpointChangedError, match="offsets/2 is again as decided"):
            again.plan(1, run="s")
        return
    assert again.plan(1, run="s").mode is Mode.DRAIN
    assert not (tmp_path / "offsets/2").exists(), (
        "Spark would begin there, and find no state that epoch 1 has left"
    )
    complete(tmp_path, 1)
    (tmp_path / "offsets" / "2").write_text('v1\n{}\n{"t":{"0":99}}')  # as Spark plans it now
    with pytest.raises(CheckpointChangedError, match="offsets/2 is again as decided"):
        again.plan(2, run="s")
    assert restarted(tmp_path, adopt=False).plan(2, run="t").mode is Mode.DRAIN


def test_a_function_that_passed_onceonly_by_is_told_so_and_the_next_step_works(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    run(coordinator, 0)
    for epoch in (0, 1):
        barrier(tmp_path, epoch)
        complete(tmp_path, epoch)
    barrier(tmp_path, 2)
    with pytest.raises(AdoptionError, match="chk-1: another sink wrote it, or a foreachBatch") as caught:
        coordinator.plan(2, run="r")
    assert "every call enters onceonly.epoch" in caught.value.next_step
    assert "chk-2: Spark has noted an earlier epoch" in caught.value.what, "chk-2 is not the one"
    assert "If the query has a foreachBatch function, mend it" in caught.value.next_step
    assert "onceonly.adopt=true" in caught.value.next_step
    mended = restarted(tmp_path, adopt=True)
    run(mended, 2)
    assert links(tmp_path)["1.0"] == ("SKIPPED", "foreign")
    assert look(str(tmp_path))[0].chain(1)[0].barrier == ('{"t":{"0":1}}',)
    complete(tmp_path, 2)
    barrier(tmp_path, 3)
    run(restarted(tmp_path, adopt=False), 3)


def test_who_began_before_the_query_was_restored_elsewhere_does_not_go_on_over_the_claim(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    run(coordinator, 0)
    complete(tmp_path, 0)
    barrier(tmp_path, 1)
    late = QueryCoordinator(QuerySettings(checkpoint=str(tmp_path)), actor="driver", application="late")
    late.enlist(SinkSettings(name="memory"), MemorySink, ())
    former = open_checkpoint(str(tmp_path))
    leave(former, str(tmp_path / "elsewhere"))
    claim(former)
    with pytest.raises(CheckpointMovedError, match="elsewhere"):
        late.plan(1, run="another")


def test_an_epoch_whose_note_of_sparks_a_loss_of_power_took_is_noted_where_a_later_one_is(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    run(coordinator, 0)
    complete(tmp_path, 0)
    for epoch in (1, 2, 3):
        barrier(tmp_path, epoch)
    complete(tmp_path, 2)
    with pytest.raises(AdoptionError, match="chk-1: another sink wrote it"):
        restarted(tmp_path, adopt=False).plan(3)
    run(restarted(tmp_path, adopt=True), 3)
    assert links(tmp_path)["1.0"] == links(tmp_path)["2.0"] == ("SKIPPED", "foreign")


def test_an_epoch_in_which_nothing_was_new_is_gone_on_after_by_itself(
    coordinator: QueryCoordinator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(coordinator, 0)
    complete(tmp_path, 0)
    for epoch in (1, 2):
        shutil.copy(tmp_path / "offsets" / "0", tmp_path / "offsets" / str(epoch))
        complete(tmp_path, epoch)
    barrier(tmp_path, 3)
    run(restarted(tmp_path, adopt=False), 3)
    assert links(tmp_path)["1.0"] == links(tmp_path)["2.0"] == ("SKIPPED", "unchanged")
    assert [record.message for record in caplog.records if "it has no rows" in record.message] == [
        f"Query q: chk-{epoch} was not decided here: it has no rows, as nothing new was in it (state that was "
        "repartitioned, or nothing to write)"
        for epoch in (1, 2)
    ]


def test_what_spark_noted_of_a_skipped_epoch_is_durable_before_its_link(
    coordinator: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(coordinator, 0)
    complete(tmp_path, 0)
    shutil.copy(tmp_path / "offsets" / "0", tmp_path / "offsets" / "1")
    complete(tmp_path, 1)
    barrier(tmp_path, 2)
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointSync, "sync", lambda _: "commits/1: Input/output error")
        with pytest.raises(UnavailableError, match="commits/1: Input/output error"):
            run(restarted(tmp_path, adopt=False), 2)
    assert "1.0" not in links(tmp_path)
    run(restarted(tmp_path, adopt=False), 2)
    assert links(tmp_path)["1.0"] == ("SKIPPED", "unchanged")


@pytest.mark.parametrize(("watermark", "goes_on"), [(5, True), (6, False)])
def test_a_query_with_state_may_have_rows_without_new_input_where_its_clocks_ran_on(
    coordinator: QueryCoordinator, tmp_path: Path, watermark: int, goes_on: bool  # noqa: FBT001  a parameter
) -> None:  # fmt: skip
    (tmp_path / "state").mkdir()
    for epoch, at in ((0, 5), (1, watermark)):
        clocks = json.dumps({"batchWatermarkMs": at, "batchTimestampMs": 9, "conf": {"partitions": epoch}})
        (tmp_path / "offsets" / str(epoch)).write_text(f'v1\n{clocks}\n{{"t":{{"0":0}}}}')
    run(coordinator, 0)
    for epoch in (0, 1):
        complete(tmp_path, epoch)
    barrier(tmp_path, 2)
    again = restarted(tmp_path, adopt=False)
    if goes_on:
        run(again, 2)
    else:
        with pytest.raises(AdoptionError, match="chk-1"):
            again.plan(2)


def test_an_epoch_that_failed_before_the_log_had_a_link_and_was_noted_is_not_lost_in_silence(
    coordinator: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: MemorySink, context: QueryContext) -> dict[str, str]:
        raise ConfigurationError("no such topic", next_step="make it")

    with monkeypatch.context() as patch:
        patch.setattr(MemorySink, "check", refuse)
        with pytest.raises(ConfigurationError):
            coordinator.plan(0, run="r", since=0)
    complete(tmp_path, 0)  # the function has kept the error back
    barrier(tmp_path, 1)
    with pytest.raises(AdoptionError, match="chk-0"):
        coordinator.plan(1, run="r", since=0)
    complete(tmp_path, 1)
    barrier(tmp_path, 2)
    with pytest.raises(AdoptionError, match="chk-1"):
        restarted(tmp_path, adopt=False).plan(2)
    run(restarted(tmp_path, adopt=True), 2)
    assert links(tmp_path)["1.0"] == ("SKIPPED", "foreign")


def test_a_failed_epoch_that_was_noted_all_the_same_is_taken_over_by_the_next_start_only(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    run(coordinator, 0)
    complete(tmp_path, 0)
    barrier(tmp_path, 1)
    adopting = restarted(tmp_path, adopt=True)
    plan = adopting.plan(1, run="s", since=1)
    adopting.abort(plan, [], run="s")
    complete(tmp_path, 1)  # the function has kept the error back
    barrier(tmp_path, 2)
    with pytest.raises(AdoptionError, match="chk-1: it was begun here and failed"):
        adopting.plan(2, run="s", since=1)
    run(restarted(tmp_path, adopt=True), 2)
    assert links(tmp_path)["1.2"] == ("SKIPPED", "swallowed")


def test_adopt_that_is_left_on_changes_nothing(coordinator: QueryCoordinator, tmp_path: Path) -> None:
    run(coordinator, 0)
    complete(tmp_path, 0)
    for epoch in (1, 2):
        barrier(tmp_path, epoch)
        run(restarted(tmp_path, adopt=True), epoch)
        complete(tmp_path, epoch)
    assert "SKIPPED" not in {kind for kind, _ in links(tmp_path).values()}


def test_a_start_on_another_sinks_checkpoint_records_what_it_took_over(tmp_path: Path) -> None:
    MemorySink.stores.clear()
    remember(MemorySink)
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": "q"}))
    for epoch in range(3):
        barrier(tmp_path, epoch)
        complete(tmp_path, epoch)
    barrier(tmp_path, 3)
    with pytest.raises(AdoptionError, match="another sink wrote"):
        restarted(tmp_path, adopt=False)
    assert not (tmp_path / "onceonly").exists()
    run(restarted(tmp_path, adopt=True), 3)
    assert links(tmp_path)["2.0"] == ("SKIPPED", "foreign")
    assert look(str(tmp_path))[0].chain(2)[0].barrier == ('{"t":{"0":2}}',)


def test_links_that_are_missing_though_spark_never_completed_their_epoch_are_damage(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    run(coordinator, 0)
    barrier(tmp_path, 2)
    with pytest.raises(LogError, match="epochs are missing"):
        coordinator.plan(2, run="r")


def test_a_coordinator_that_rests_is_no_living_run(
    coordinator: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []
    recover = MemorySink.recover

    def looked_at(self: MemorySink, context: QueryContext) -> list[Leftover]:
        seen.append(present(str(tmp_path)))
        return recover(self, context)

    monkeypatch.setattr(MemorySink, "recover", looked_at)
    run(coordinator, 0)
    assert seen
    assert all(who is not None and "driver" in who for who in seen)
    assert present(str(tmp_path)) is None


@pytest.mark.parametrize(("again", "index"), [("r", 0), ("s", 1)])
def test_the_next_epoch_is_claimed_by_a_new_run_only(
    coordinator: QueryCoordinator, tmp_path: Path, again: str, index: int
) -> None:
    run(coordinator, 0)
    barrier(tmp_path, 1)
    assert coordinator.plan(1, run=again).index == index, "its first link is the claim, if there is one"


def ballot(slot: int, refused: int, *, sink: str = "memory") -> Ballot:
    """The ballot of a slot, of which nothing else is looked at."""

    def vote(name: str, rows: int) -> Vote:
        return Vote(
            sink=name, epoch=0, slot=slot, plan="p", run="r", attempt="0", rows=rows, checksum="0" * 16
        )

    letters = vote(f"{sink}.letters", refused) if refused else None
    return Ballot(
        vote=vote(sink, 1), letters=letters, refused=f"row 0 of slot {slot}: why" if refused else ""
    )


def test_a_ballot_of_a_function_comes_back_from_its_job_as_it_was() -> None:
    for made in (ballot(0, 0), ballot(1, 3)):
        assert decoder(Ballot).decode(msgspec.json.encode(made)) == made


def with_letters(coordinator: QueryCoordinator, *, store: str = "letters", limit: int = 5) -> None:
    given = LetterSettings(format="memory", limit=limit, options={"store": store})
    coordinator.enlist(SinkSettings(name="memory", letters=given), MemorySink, (), MemorySink)


def test_slots_that_together_refuse_more_than_the_limit_stop_before_the_decision(
    coordinator: QueryCoordinator,
) -> None:
    with_letters(coordinator)
    plan = coordinator.plan(0, run="r")
    coordinator.require_few_letters(plan, [ballot(0, 3), ballot(1, 0), ballot(2, 2)])
    with pytest.raises(
        RecordRefusedError, match=r"6 rows .*limit, 5; the first: row 0 of slot 1: why.*limit=6"
    ):
        coordinator.require_few_letters(plan, [ballot(0, 0), ballot(1, 3), ballot(2, 3)])


def test_the_sink_of_letters_takes_part_with_its_columns_and_the_same_promise(
    coordinator: QueryCoordinator,
) -> None:
    with_letters(coordinator)
    plan = coordinator.plan(0, sinks=["memory"], run="r")
    assert plan.mode is Mode.RUN
    assert sorted(plan.settings) == ["memory", "memory.letters"]
    assert plan.settings["memory.letters"] == {"store": "letters"}
    letters = coordinator.assignment(plan, "memory").letters
    assert letters is MemorySink
    columns = dict(coordinator._members["memory.letters"].participant.columns)
    assert (columns["row"], columns["epoch"]) == ("string", "bigint")
    assert coordinator._members["memory.letters"].participant.guarantee is Guarantee.EXACTLY_ONCE


def test_letters_with_the_target_of_the_rows_are_refused_before_the_first_record(
    coordinator: QueryCoordinator,
) -> None:
    with_letters(coordinator, store="default")
    with pytest.raises(ConfigurationError, match="same target"):
        coordinator.plan(0, run="r")


@pytest.mark.parametrize("name", ["before", "other"])
def test_letters_with_the_target_of_another_sinks_rows_are_refused(
    coordinator: QueryCoordinator, name: str
) -> None:
    with_letters(coordinator, store="shared")
    coordinator.enlist(SinkSettings(name=name, options={"store": "shared"}), MemorySink, ())
    with pytest.raises(
        ConfigurationError, match=rf"letters of sink memory would get among the rows of sink {name}"
    ):
        coordinator.plan(0, run="r")


def test_letters_of_several_sinks_may_share_a_target(coordinator: QueryCoordinator) -> None:
    with_letters(coordinator, store="shared")
    given = LetterSettings(format="memory", options={"store": "shared"})
    coordinator.enlist(
        SinkSettings(name="other", options={"store": "other"}, letters=given), MemorySink, (), MemorySink
    )
    assert coordinator.plan(0, run="r").mode is Mode.RUN


def test_a_sink_that_gives_nothing_back_has_no_letters(
    coordinator: QueryCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = MemorySink.capabilities
    monkeypatch.setattr(MemorySink, "capabilities", replace(offered, gives_back=False))
    with pytest.raises(ConfigurationError, match="no dead letter would ever be written"):
        with_letters(coordinator)


def test_a_start_that_is_not_where_the_epoch_before_was_decided_to_end_is_put_right(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    run(coordinator, 0)
    complete(tmp_path, 0)
    decided = (tmp_path / "offsets/0").read_text()
    (tmp_path / "offsets/0").write_text(decided.replace('"0":0', '"0":-2'))
    barrier(tmp_path, 1)
    with pytest.raises(
        CheckpointChangedError, match="offsets/0 is again as decided, offsets/1 is to be planned anew"
    ):
        coordinator.plan(1, run="r")
    assert (tmp_path / "offsets/0").read_text() == decided
    assert not (tmp_path / "offsets/1").exists()
    barrier(tmp_path, 1)
    assert coordinator.plan(1, run="r").mode is Mode.RUN


def test_offsets_that_are_written_over_while_tasks_run_keep_the_epoch_from_being_decided(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    plan = coordinator.plan(0, run="r")
    inputs = coordinator._coordinator._inputs
    assert inputs is not None
    assert inputs.synced(plan) == "", "it writes the file anew"
    (tmp_path / "offsets/0").write_text('v1\n{}\n{"t":{"0":7}}')
    with pytest.raises(
        CheckpointChangedError, match=r"""planned \['{"t":{"0":0}}'\], now \['{"t":{"0":7}}'\]"""
    ):
        coordinator.decide(plan, [])
    assert [kind for kind, _ in links(tmp_path).values()] == ["ABORT"], "the claim alone"


def test_a_decision_holds_what_its_epoch_read(coordinator: QueryCoordinator, tmp_path: Path) -> None:
    run(coordinator, 0)
    noted = coordinator.plan(0, run="s").decided
    assert noted is not None
    assert noted.inputs == SparkInputs(tmp_path).read(0)


def test_a_lost_barrier_that_spark_planned_anew_is_restored_and_the_next_start_replays_what_was_decided(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    run(coordinator, 0)
    decided = (tmp_path / "offsets/0").read_text()
    (tmp_path / "offsets/0").write_text('v1\n{}\n{"t":{"0":7}}')
    with pytest.raises(CheckpointChangedError, match="offsets/0 is again as decided"):
        coordinator.plan(0, run="s")
    assert (tmp_path / "offsets/0").read_text() == decided
    assert coordinator.plan(0, run="t").mode is Mode.DRAIN


@pytest.mark.parametrize(
    ("asked", "repeats", "strict"),
    [("auto", True, True), ("auto", False, False), ("stop", False, True), ("tell", True, False)],
)
def test_a_drain_is_strict_where_the_plan_promises_the_same_rows_or_the_user_asks(
    coordinator: QueryCoordinator, *, asked: str, repeats: bool, strict: bool
) -> None:
    assert not coordinator.plan(0, run="r", repeats=lambda: True).strict, (
        "what is not decided is compared with nothing"
    )
    coordinator.decide(coordinator.plan(0, run="s"), [])
    coordinator.settings = replace(coordinator.settings, replay=Replay(asked))
    assert coordinator.plan(0, run="t", repeats=lambda: repeats).strict is strict


def test_barriers_of_named_sources_in_a_link_of_format_1_are_those_without_names(
    coordinator: QueryCoordinator, tmp_path: Path
) -> None:
    (tmp_path / "offsets/0").write_text('v2\n{}\nsrc_a:{"t":{"0":7}}')
    plan = coordinator.plan(0, run="r")
    assert plan.barrier == ('{"t":{"0":7}}',)
    log = open_log(str(tmp_path), query="q", create=False)
    log.put_link(
        Link(
            epoch=0, index=1, kind=LinkKind.COMMIT, plan="old", run="r", barrier=('src_a:{"t":{"0":7}}',),
            settings=plan.settings,
        )
    )  # fmt: skip
    assert coordinator.plan(0, run="s").mode is Mode.DRAIN


def test_a_commit_process_decides_only_on_the_planners_word_that_all_is_durable(
    coordinator: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CheckpointSync, "sync", lambda _self: "offsets/0: no descriptors")
    plan = coordinator.plan(0, run="r")
    committer = QueryCoordinator(
        QuerySettings(checkpoint=str(tmp_path)), actor="committer", application="app"
    )
    committer.enlist(SinkSettings(name="memory"), MemorySink, ())
    with pytest.raises(UnavailableError, match=r"could not be made durable.*no descriptors"):
        committer.decide(plan, [])
    assert [kind for kind, _ in links(tmp_path).values()] == ["ABORT"], "the claim alone"


def test_no_decision_waits_for_the_log_to_be_folded(
    coordinator: QueryCoordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    folding_in: list[threading.Thread] = []

    def stand_still(_self: Fold) -> None:
        folding_in.append(threading.current_thread())
        begun.set()
        # In the thread of the decision nobody would let it go on.
        assert folding_in[0] is threading.main_thread() or go_on.wait(20)

    monkeypatch.setattr(Fold, "due", lambda _self, _newest: True)
    monkeypatch.setattr(Fold, "fold", stand_still)
    try:
        run(coordinator, 0)
        assert begun.wait(20)
        complete(tmp_path, 0)
        barrier(tmp_path, 1)
        run(coordinator, 1)
    finally:
        go_on.set()
    assert threading.main_thread() not in folding_in
