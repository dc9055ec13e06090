"""What a sink left open that the query has no more is ended at the start that leaves it out."""

from __future__ import annotations

import json
import shutil
import threading
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pytest
from tests.unit.test_coordinator_query import barrier, complete

from onceonly import failpoints
from onceonly.coordinator import left
from onceonly.coordinator.query import QueryCoordinator
from onceonly.errors import ConfigurationError, LogError, ReplayMismatchError
from onceonly.executor.ballot import Ballot
from onceonly.executor.slot import run_slot
from onceonly.failpoints import FailpointError
from onceonly.log.opening import look
from onceonly.model import Guarantee, Mode
from onceonly.ports import Option, WriteContext
from onceonly.settings.query import QuerySettings, SinkSettings
from onceonly.settings.registry import BUILT_IN, remember
from onceonly.sinks.files import FilesSink
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from onceonly.model import Handle
    from onceonly.ports import Leftover, QueryContext, Sink
    from onceonly.settings.registry import SinkClass


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    MemorySink.stores.clear()
    remember(MemorySink)
    made = tmp_path / "checkpoint"
    for folder in ("offsets", "commits"):
        (made / folder).mkdir(parents=True)
    (made / "metadata").write_text(json.dumps({"id": "q"}))
    barrier(made, 0)
    return made


def started(checkpoint: Path, name: str, sink: SinkClass = MemorySink, **options: str) -> QueryCoordinator:
    made = QueryCoordinator(QuerySettings(checkpoint=str(checkpoint)), actor="driver", application="app")
    made.enlist(SinkSettings(name=name, options=options), sink, (("id", "bigint"),))
    return made


def context(coordinator: QueryCoordinator, sink: str) -> WriteContext:
    """An attempt that the process does not live to prepare."""
    plan = coordinator.plan(0, run="dead")
    return WriteContext(
        query="q", sink=sink, run="dead", epoch=0, plan=plan.id, slot=0, attempt="0",
        guarantee=Guarantee.EXACTLY_ONCE, mode=Mode.RUN, facts=plan.facts[sink],
    )  # fmt: skip


def test_a_sink_with_another_name_ends_what_it_left_under_the_former(checkpoint: Path) -> None:
    sink = MemorySink({"store": "s"})
    sink.begin_transaction(context(started(checkpoint, "former", store="s"), "former"))
    assert sink.store.pending()

    assert started(checkpoint, "renamed", store="s").plan(0, run="r").mode is Mode.RUN
    assert sink.store.pending() == []


def test_of_another_target_and_of_a_class_that_only_the_log_names_nothing_is_touched(
    checkpoint: Path,
) -> None:
    sink = MemorySink({"store": "s"})
    sink.begin_transaction(context(started(checkpoint, "former", store="s"), "former"))

    started(checkpoint, "other", store="another").plan(0, run="r")
    assert len(sink.store.pending()) == 1


def test_a_sink_of_ours_that_is_left_out_leaves_no_temporary_files(checkpoint: Path, tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "out"), "format": "json"}
    attempt = context(started(checkpoint, "former", BUILT_IN["files"], **options), "former")
    staged = FilesSink(options).begin_transaction(attempt).folder
    assert staged.is_dir()

    started(checkpoint, "memory", store="s").plan(0, run="r")
    assert not staged.exists()


def test_a_target_that_is_gone_keeps_no_query_from_its_start(
    checkpoint: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"path": str(tmp_path / "out"), "format": "json"}
    started(checkpoint, "former", BUILT_IN["files"], **options).plan(0, run="dead")
    monkeypatch.setitem(BUILT_IN, "files", "onceonly.sinks.nowhere:Sink")

    assert started(checkpoint, "memory", store="s").plan(0, run="r").mode is Mode.RUN
    assert "begins without its sink former" in caplog.text


def test_a_target_that_answers_late_is_let_go_by_then(
    checkpoint: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    MemorySink({"store": "s"}).begin_transaction(context(started(checkpoint, "former", store="s"), "former"))
    asked, answers, closed = MemorySink.recover, threading.Event(), threading.Event()

    def late(sink: MemorySink, about: QueryContext) -> Iterable[Leftover]:
        if about.sink == "former":
            answers.wait(30)
            monkeypatch.setattr(sink, "close", closed.set, raising=False)
        return asked(sink, about)

    monkeypatch.setattr(MemorySink, "recover", late)
    monkeypatch.setattr(left, "_WAIT_S", 0.05)
    assert started(checkpoint, "renamed", store="s").plan(0, run="r").mode is Mode.RUN
    assert "no answer within" in caplog.text
    answers.set()
    assert closed.wait(5)


@pytest.mark.parametrize(
    ("dies_at", "told"),
    [
        ("receipt.before_put", "its sink former has chk-1"),
        ("complete.before", "was decided for chk-1 by"),
    ],
)
def test_an_older_checkpoint_is_noticed_though_its_sink_has_another_name_by_now(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: str, told: str
) -> None:
    options = {"path": str(tmp_path / "out"), "format": "json"}

    def start(name: str) -> QueryCoordinator:
        return started(checkpoint, name, BUILT_IN["files"], **options)

    decided(start("former"), FilesSink(options), "former")
    goes_on(checkpoint)
    backup = shutil.copytree(checkpoint, tmp_path / "backup")
    assert start("renamed").plan(1, run="r").mode is Mode.RUN
    with monkeypatch.context() as patch:
        patch.setenv("ONCEONLY_FAILPOINTS", f"{dies_at}=raise")
        patch.setattr(failpoints, "_counts", {})
        with pytest.raises(FailpointError):
            decided(start("former"), FilesSink(options), "former", epoch=1)
    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)
    with pytest.raises(LogError, match=f"{told}.*: an older checkpoint was restored"):
        start("renamed").plan(1, run="s")


def in_turn_with(checkpoint: Path, name: str, options: dict[str, str]) -> QueryCoordinator:
    """A start whose epochs go to a sink of files and to another one in turn."""
    made = started(checkpoint, "other", store="o")
    made.enlist(SinkSettings(name=name, options=options), BUILT_IN["files"], (("id", "bigint"),))
    return made


@pytest.mark.parametrize("joins_late", [False, True])
def test_so_it_is_though_the_sink_is_written_to_in_turn_with_another_one(
    checkpoint: Path, tmp_path: Path, *, joins_late: bool
) -> None:
    """The epoch before did not use it; nor does that of the claim, where it joins late."""
    options = {"path": str(tmp_path / "out"), "format": "json"}
    other, former = MemorySink({"store": "o"}), FilesSink(options)
    decided(in_turn_with(checkpoint, "former", options), former, "former")
    goes_on(checkpoint)
    decided(in_turn_with(checkpoint, "former", options), other, "other", epoch=1)
    goes_on(checkpoint, 1)
    backup = shutil.copytree(checkpoint, tmp_path / "backup")
    last = 3 if joins_late else 2
    for epoch in range(2, last):  # an epoch of no rows: no target tells of it
        coordinator = in_turn_with(checkpoint, "former", options)
        coordinator.decide(coordinator.plan(epoch, sinks=["other"], run="r"), [])
        goes_on(checkpoint, epoch)
    decided(in_turn_with(checkpoint, "former", options), former, "former", epoch=last)
    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)

    coordinator = in_turn_with(checkpoint, "renamed", options)
    for epoch in range(2, last):
        coordinator.decide(coordinator.plan(epoch, sinks=["other"], run="s"), [])
        goes_on(checkpoint, epoch)
    for _ in range(2):  # its claim stands then, and no more tells than before
        with pytest.raises(
            LogError, match=f"its sink former has chk-{last}: an older checkpoint was restored"
        ):
            coordinator.plan(last, sinks=["renamed"], run="s")
        coordinator = in_turn_with(checkpoint, "renamed", options)


class PrefixSink(MemorySink):
    """Notes what it has committed under a prefix, as Kafka's markers are named."""

    name: ClassVar[str] = "prefixed"
    declared: ClassVar[tuple[Option, ...]] = (
        *MemorySink.declared,
        Option(name="prefix", doc="of its books", default="p"),
    )
    books: ClassVar[dict[str, int]] = {}

    def identity(self) -> Mapping[str, str | int]:
        return {**super().identity(), "prefix": self.options["prefix"]}

    def overlaps(self, identity: Mapping[str, str | int]) -> bool:
        return bool(identity["store"] == self.options["store"])

    def complete(self, context: QueryContext, epoch: int, handles: Sequence[Handle]) -> None:
        super().complete(context, epoch, handles)
        self.books[self.options["prefix"]] = epoch

    def newest_epoch(self, context: QueryContext) -> int | None:
        return self.books.get(self.options["prefix"])


def test_an_older_checkpoint_is_noticed_though_its_sink_has_another_prefix_by_now(
    checkpoint: Path, tmp_path: Path
) -> None:
    remember(PrefixSink)
    PrefixSink.books.clear()

    def start(prefix: str) -> QueryCoordinator:
        return started(checkpoint, "out", PrefixSink, store="s", prefix=prefix)

    for epoch in range(3):
        if epoch == 2:
            backup = shutil.copytree(checkpoint, tmp_path / "backup")
        decided(start("former"), PrefixSink({"store": "s", "prefix": "former"}), "out", epoch=epoch)
        goes_on(checkpoint, epoch)
    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)
    for _ in range(2):
        with pytest.raises(LogError, match="its sink out has chk-2: an older checkpoint was restored"):
            start("another").plan(2, run="s")


def test_a_sink_that_joins_late_is_asked_whether_an_older_checkpoint_was_restored(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim of its start was of an epoch for another one, and its books do not tell of a broken-off commit."""
    options = {"path": str(tmp_path / "out"), "format": "json"}
    files = FilesSink(options)

    def nothing_for_the_other() -> QueryCoordinator:
        coordinator = started(checkpoint, "other", store="o")
        coordinator.decide(coordinator.plan(1, sinks=["other"], run="r"), [])
        goes_on(checkpoint, 1)
        coordinator.enlist(
            SinkSettings(name="files", options=options), BUILT_IN["files"], (("id", "bigint"),)
        )
        return coordinator

    decided(in_turn_with(checkpoint, "files", options), files, "files")
    goes_on(checkpoint)
    backup = shutil.copytree(checkpoint, tmp_path / "backup")
    with monkeypatch.context() as patch:
        patch.setenv("ONCEONLY_FAILPOINTS", "complete.before[files]=raise")
        patch.setattr(failpoints, "_counts", {})
        with pytest.raises(FailpointError):
            decided(nothing_for_the_other(), files, "files", epoch=2)
    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)
    with pytest.raises(LogError, match=r"was decided for chk-2 by .*: an older checkpoint was restored"):
        decided(nothing_for_the_other(), files, "files", epoch=2)
    assert len(list((tmp_path / "out").glob("*.json"))) == 2


def test_a_sink_that_is_renamed_in_turn_with_another_one_goes_on(checkpoint: Path, tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "out"), "format": "json"}
    decided(in_turn_with(checkpoint, "former", options), FilesSink(options), "former")
    goes_on(checkpoint)
    coordinator = in_turn_with(checkpoint, "renamed", options)
    decided(coordinator, MemorySink({"store": "o"}), "other", epoch=1)
    goes_on(checkpoint, 1)
    decided(coordinator, FilesSink(options), "renamed", epoch=2)
    goes_on(checkpoint, 2)
    decided(coordinator, FilesSink(options), "renamed", epoch=3)
    assert len(list((tmp_path / "out").glob("*.json"))) == 3
    assert [len(look(str(checkpoint))[0].chain(epoch)) for epoch in (2, 3)] == [2, 1], "one claim"


@pytest.mark.parametrize("claims", [1, 2])
@pytest.mark.parametrize("former", [*Guarantee, None])
def test_what_a_sink_in_turn_committed_before_any_decision_tells_of_none(
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    former: Guarantee | None,
    claims: int,
) -> None:
    """At least once, its slots commit themselves; the epochs before were of another sink, and promise more."""
    options = {"path": str(tmp_path / "out"), "format": "json"}

    def join(coordinator: QueryCoordinator, guarantee: Guarantee) -> QueryCoordinator:
        own = SinkSettings(name="files", options=options, guarantee=guarantee)
        coordinator.enlist(own, BUILT_IN["files"], (("id", "bigint"),))
        return coordinator

    if former is not None:
        decided(join(started(checkpoint, "other", store="o"), former), FilesSink(options), "files")
    else:
        decided(started(checkpoint, "other", store="o"), MemorySink({"store": "o"}), "other")
    goes_on(checkpoint)
    coordinator = started(checkpoint, "other", store="o")
    for epoch in (1, 2):
        decided(coordinator, MemorySink({"store": "o"}), "other", epoch=epoch)
        goes_on(checkpoint, epoch)
    with monkeypatch.context() as patch:
        patch.setenv("ONCEONLY_FAILPOINTS", "link.before_put=raise")
        patch.setattr(failpoints, "_counts", {})
        with pytest.raises(FailpointError):
            decided(join(coordinator, Guarantee.AT_LEAST_ONCE), FilesSink(options), "files", epoch=3)
    for _ in range(claims):
        coordinator = join(started(checkpoint, "other", store="o"), Guarantee.EXACTLY_ONCE)
        plan = coordinator.plan(3, sinks=["files"], run="s")
    assert plan.mode is Mode.RUN


def test_a_sink_that_keeps_its_name_and_becomes_another_kind_of_sink_begins_there(
    checkpoint: Path, tmp_path: Path
) -> None:
    decided(started(checkpoint, "out", store="s"), MemorySink({"store": "s"}), "out")
    goes_on(checkpoint)
    options = {"path": str(tmp_path / "out"), "format": "json"}
    plan = started(checkpoint, "out", BUILT_IN["files"], **options).plan(1, run="s")
    assert plan.mode is Mode.RUN


# --- a decision whose commits failed, kept back by a foreachBatch function that goes on with another sink ------


def decided(coordinator: QueryCoordinator, sink: Sink, name: str, epoch: int = 0) -> None:
    """Write one row to one sink of an epoch, and decide."""
    plan = coordinator.plan(epoch, sinks=[name], run="r")
    where = WriteContext(
        query="q", sink=name, run="r", epoch=epoch, plan=plan.id, slot=0, attempt="0",
        guarantee=plan.uses[name].guarantee, mode=plan.mode, facts=plan.facts[name],
    )  # fmt: skip
    vote = run_slot(sink, plan, where, [pa.record_batch({"id": [7]})]).vote
    coordinator.decide(plan, [Ballot(vote=vote)])


def kept_back(
    coordinator: QueryCoordinator, sink: Sink, name: str, monkeypatch: pytest.MonkeyPatch, epoch: int = 0
) -> None:
    """Decide an epoch for one sink, fail in its commits, and have Spark note the epoch all the same."""
    with monkeypatch.context() as patch:
        patch.setenv("ONCEONLY_FAILPOINTS", "commit.before_handle=raise")
        patch.setattr(failpoints, "_counts", {})
        with pytest.raises(FailpointError):
            decided(coordinator, sink, name, epoch)


def goes_on(checkpoint: Path, epoch: int = 0) -> None:
    complete(checkpoint, epoch)
    barrier(checkpoint, epoch + 1)


def test_an_epoch_for_another_sink_carries_out_what_was_decided_before_it(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = started(checkpoint, "a", store="a")
    coordinator.enlist(SinkSettings(name="b", options={"store": "b"}), MemorySink, (("id", "bigint"),))
    kept_back(coordinator, MemorySink({"store": "a"}), "a", monkeypatch)
    goes_on(checkpoint)

    assert coordinator.plan(1, sinks=["b"], run="r").settings.keys() == {"b"}
    assert len(MemorySink.stores["a"].visible()) == 1
    assert look(str(checkpoint))[0].receipt(0) is not None


def test_so_does_a_start_that_has_only_the_other_sink(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"path": str(tmp_path / "out"), "format": "json"}
    kept_back(started(checkpoint, "a", BUILT_IN["files"], **options), FilesSink(options), "a", monkeypatch)
    goes_on(checkpoint)

    plan = started(checkpoint, "b", store="b").plan(1, run="s")
    assert plan.settings.keys() == {"b"}
    assert len(list((tmp_path / "out").glob("*.json"))) == 1


def test_where_the_sink_cannot_be_made_again_the_next_step_is_one_that_can_be_done(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_back(started(checkpoint, "a", store="a"), MemorySink({"store": "a"}), "a", monkeypatch)
    goes_on(checkpoint)

    with pytest.raises(ConfigurationError, match="chk-0 is decided for the sink a") as caught:
        started(checkpoint, "b", store="b").plan(1, run="s")
    assert "onceonly transactions commit" in caught.value.next_step


def test_what_was_taken_over_though_it_is_lost_is_not_asked_of_the_target_after_a_crash(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start() -> QueryCoordinator:
        settings = QuerySettings(checkpoint=str(checkpoint), adopt=True)
        made = QueryCoordinator(settings, actor="driver", application="app")
        made.enlist(SinkSettings(name="a", options={"store": "a"}), MemorySink, ())
        return made

    sink = MemorySink({"store": "a"})
    decided(start(), sink, "a")
    goes_on(checkpoint)
    kept_back(start(), sink, "a", monkeypatch, 1)
    goes_on(checkpoint, 1)
    (lost,) = sink.store.pending()
    sink.store.expire(lost)
    asked: list[tuple[int, str]] = []

    def look_back(_sink: MemorySink, _about: QueryContext, epoch: int, handles: Iterable[Handle]) -> None:
        asked.extend((epoch, sink.store.transactions[each.transaction].state) for each in handles)

    monkeypatch.setattr(MemorySink, "look_back", look_back)
    start().plan(2, run="s")
    receipt = look(str(checkpoint))[0].receipt(1)
    assert receipt is not None
    assert receipt.outcomes == {"lost": 1}
    assert start().plan(2, run="t").mode is Mode.RUN, "the one before died in its tasks"
    assert asked == [(0, "committed"), (0, "committed")]


# --- epochs that go to one sink and to another in turn ------------------------------------------------------------


def both(checkpoint: Path, **stores: str) -> QueryCoordinator:
    made = started(checkpoint, "a", store="a")
    made.enlist(
        SinkSettings(name="b", options={"store": stores.get("b", "b")}), MemorySink, (("id", "bigint"),)
    )
    return made


def in_turn(coordinator: QueryCoordinator, checkpoint: Path, epochs: Iterable[int]) -> None:
    for epoch in epochs:
        barrier(checkpoint, epoch)
        coordinator.decide(coordinator.plan(epoch, sinks=["ab"[epoch % 2]], run="r"), [])
        complete(checkpoint, epoch)


def test_a_start_of_a_query_that_writes_to_its_sinks_in_turn_warns_of_nothing(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for epoch in range(4):
        in_turn(both(checkpoint), checkpoint, [epoch])
    in_turn(both(checkpoint), checkpoint, range(4, 8))
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert ["the query has other sinks" in each for each in warned] == [True], "before chk-1, b was not known"


def test_the_changed_target_of_a_sink_that_the_epoch_before_did_not_write_to_is_told(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    in_turn(both(checkpoint), checkpoint, range(3))
    in_turn(both(checkpoint, b="elsewhere"), checkpoint, [3])
    told = "the target of sink b has changed since link 1.1: store was 'b' and is 'elsewhere'"
    assert told in caplog.text
    caplog.clear()
    in_turn(both(checkpoint, b="elsewhere"), checkpoint, range(4, 6))
    assert caplog.text == ""


def test_a_fallback_to_another_sink_is_meant_and_its_replay_goes_there_too(checkpoint: Path) -> None:
    coordinator = both(checkpoint)
    coordinator.abort(coordinator.plan(0, sinks=["a"], run="r"), [], run="r")
    decided(both(checkpoint), MemorySink({"store": "b"}), "b")
    assert {name: len(store.visible()) for name, store in MemorySink.stores.items()} == {"a": 0, "b": 1}

    with pytest.raises(ReplayMismatchError, match="for other sinks"):
        both(checkpoint).plan(0, sinks=["a"], run="s")
    assert both(checkpoint).plan(0, sinks=["b"], run="s").mode is Mode.DRAIN


def test_from_what_is_decided_there_is_no_fallback(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_back(both(checkpoint), MemorySink({"store": "a"}), "a", monkeypatch)
    with pytest.raises(ReplayMismatchError, match="for other sinks"):
        both(checkpoint).plan(0, sinks=["b"], run="r")
