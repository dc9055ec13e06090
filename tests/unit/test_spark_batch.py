"""A batch is one epoch of its id: run again it finishes or is found done, and other rows under its id are refused."""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from pyspark.serializers import CPickleSerializer
from pyspark.sql.types import StructType

from onceonly.checkpoint.batches import BatchCheckpoint, is_batch
from onceonly.coordinator.query import QueryCoordinator
from onceonly.errors import (
    ConfigurationError,
    LogError,
    ProtocolError,
    ReplayMismatchError,
    SupersededError,
    TargetBehindError,
)
from onceonly.failpoints import FailpointError, _counts
from onceonly.log.opening import begin_log, look
from onceonly.log.presence import present
from onceonly.model import LinkKind, Mode
from onceonly.operations import settle
from onceonly.operations.find import find
from onceonly.operations.given import Given
from onceonly.operations.look import newest as listed
from onceonly.settings.batches import batch_query, job_id
from onceonly.settings.query import JOB
from onceonly.settings.registry import remember, settings_of
from onceonly.spark.batch import Batch, BatchWriter, plan_batch
from onceonly.spark.format import make_format
from onceonly_proof.memory_sink import MemorySink, MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.datasource import WriterCommitMessage

    from onceonly.operations.find import Checkpoint
    from onceonly_proof.memory_sink import MemoryTransaction

ID = "2026-11-01"
COLUMNS = (("id", "bigint"),)
SLOTS = ((1, 2, 3), (), (4, 5))
ROWS = Counter((n,) for slot in SLOTS for n in slot)


class Task:
    """Spark's TaskContext in a batch: no streaming query has set a property."""

    slot = 0

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802  Spark's name
        return None

    def partitionId(self) -> int:  # noqa: N802  Spark's name
        return self.slot

    def taskAttemptId(self) -> int:  # noqa: N802  Spark's name
        return 100 + self.slot


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    MemorySink.stores.clear()
    remember(MemorySink)
    monkeypatch.setattr("pyspark.TaskContext.get", Task)
    return MemorySink.stores["default"]


def batch(
    folder: Path,
    options: dict[str, str] | None = None,
    *,
    job: str = ID,
    columns: tuple[tuple[str, str], ...] = COLUMNS,
) -> Batch:
    given = {"checkpointLocation": str(folder), **(options or {})}
    settings = settings_of(given, "memory", MemorySink)
    query = batch_query(settings, job)
    letters = None if settings.sink.letters is None else MemorySink
    checkpoint = BatchCheckpoint.at(query.checkpoint, job, columns)
    return Batch(
        checkpoint=checkpoint, query=query, sink=settings.sink, sink_class=MemorySink, columns=columns, letters=letters
    )  # fmt: skip


def pickled(writer: BatchWriter) -> BatchWriter:
    """Send a writer as Spark does, to tasks and to the commit process."""
    travel: Any = CPickleSerializer()
    found: BatchWriter = travel.loads(travel.dumps(writer))
    return found


def write(
    writer: BatchWriter, slots: tuple[tuple[int, ...], ...] = SLOTS
) -> list[WriterCommitMessage | None]:
    """Run the tasks, each with the writer that Spark pickles to it."""
    messages: list[WriterCommitMessage | None] = []
    for Task.slot, numbers in enumerate(slots):
        travelled = pickled(writer)
        batches = [pa.record_batch({"id": numbers})] if numbers else []
        messages.append(travelled.write(iter(batches)))
    return messages


def run(made: Batch, slots: tuple[tuple[int, ...], ...] = SLOTS) -> None:
    writer = plan_batch(made)
    messages = write(writer, slots)
    pickled(writer).commit(messages)


def chain(folder: Path) -> list[LinkKind]:
    return [link.kind for link in look(str(folder / ID))[0].chain(0)]


# ------------------------------------------------------------------------------------------------ run again
def test_a_batch_that_is_done_is_found_done_and_writes_nothing(
    store: MemoryStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(batch(tmp_path))
    assert store.visible() == ROWS
    for _ in range(2):
        store.calls.clear()
        with caplog.at_level(logging.INFO, "onceonly"):
            # Dealt to other slots, by another program: the rows are the same.
            run(batch(tmp_path), ((5, 4, 3, 2, 1),))
        assert "The batch 2026-11-01 is done" in caplog.text
        caplog.clear()
        assert {call for call, _ in store.calls} == {"recover"}
    assert store.visible() == ROWS
    assert len(store.transactions) == 2


POINTS = [
    "plan.before_resolve", "plan.after_claim", "sweep.before", "plan.after_resolve", "slot.before_begin",
    "slot.during_write", "slot.before_prepare", "slot.after_prepare", "link.before_check", "link.before_put",
    "link.during_put", "link.after_put", "commit.before_handle", "commit.after_handle", "complete.before",
    "receipt.before_put", "receipt.after_put", "commit.before_return",
]  # fmt: skip


@pytest.mark.parametrize("again", [None, "plan.before_recommit", "plan.after_recommit", "plan.after_resolve"])
@pytest.mark.parametrize("point", POINTS)
def test_a_batch_that_died_at_any_step_is_finished_by_the_next_run(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, again: str | None
) -> None:
    for each in (point, again):
        if each is not None:
            _counts.clear()
            monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"{each}=raise")
            try:
                run(batch(tmp_path))
            except FailpointError:
                continue
            assert each == again, "the recovery may pass that step, or not"
    monkeypatch.delenv("ONCEONLY_FAILPOINTS")
    run(batch(tmp_path))
    assert store.visible() == ROWS
    assert store.pending() == []
    run(batch(tmp_path))
    assert store.visible() == ROWS


def test_what_a_run_left_undecided_may_be_written_with_other_rows_and_columns(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _counts.clear()
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", "link.before_put=raise")
    with pytest.raises(FailpointError):
        run(batch(tmp_path))
    monkeypatch.delenv("ONCEONLY_FAILPOINTS")
    run(batch(tmp_path, columns=(("other", "bigint"),)), ((7,),))
    assert store.visible() == Counter({(7,): 1})


def test_a_run_that_is_given_up_leaves_nothing_open(store: MemoryStore, tmp_path: Path) -> None:
    writer = plan_batch(batch(tmp_path))
    messages = write(writer)
    writer.abort([None, *messages[1:]])
    assert store.pending() == []
    writer = plan_batch(batch(tmp_path))
    messages = write(writer)
    with pytest.raises(ProtocolError, match="slot 0 is not among them"):
        writer.commit([None, *messages[1:]])
    assert LinkKind.COMMIT not in chain(tmp_path)


# ---------------------------------------------------------------------------------------------- other rows
@pytest.mark.parametrize("slots", [((1, 2, 3), (4,)), ((1, 2, 3, 4, 5, 6),), ((1, 2, 3, 4, 6),), ((),)])
def test_other_rows_under_an_id_that_is_done_are_refused_by_name(
    store: MemoryStore, tmp_path: Path, slots: tuple[tuple[int, ...], ...]
) -> None:
    run(batch(tmp_path))
    for _ in range(2):
        with pytest.raises(
            ReplayMismatchError, match=r"batch 2026-11-01 is done.*other rows.*decided 5 rows"
        ):
            run(batch(tmp_path), slots)
    assert store.visible() == ROWS
    run(batch(tmp_path, {"onceonly.replay": "tell"}), slots)
    assert store.visible() == ROWS


def test_other_columns_are_refused_before_anything_is_planned(store: MemoryStore, tmp_path: Path) -> None:
    run(batch(tmp_path))
    store.calls.clear()
    with pytest.raises(
        ConfigurationError, match=r"with the columns id bigint, and this run has id int, day date"
    ):
        plan_batch(batch(tmp_path, columns=(("id", "int"), ("day", "date"))))
    assert store.calls == []


def test_an_id_that_is_done_is_not_taken_for_done_in_another_target(
    store: MemoryStore, tmp_path: Path
) -> None:
    run(batch(tmp_path))
    with pytest.raises(ConfigurationError, match="store was 'default' and is 'another'"):
        run(batch(tmp_path, {"store": "another"}))
    assert not MemorySink.stores["another"].visible()


def test_an_id_of_another_sink_is_told_as_such(store: MemoryStore, tmp_path: Path) -> None:
    run(batch(tmp_path))
    for _ in range(2):
        with pytest.raises(
            ReplayMismatchError, match=rf"The batch {ID} was decided .* by another sink"
        ) as caught:
            plan_batch(batch(tmp_path, {"onceonly.sink": "other"}))
        assert "(onceonly.job)" in caught.value.next_step
        assert "branch" not in caught.value.next_step
    run(batch(tmp_path))
    assert store.visible() == ROWS


@pytest.mark.parametrize("may_go_on", [True, False])
def test_a_target_that_lost_a_batch_is_told_in_words_for_a_batch(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, may_go_on: bool
) -> None:
    """It has no offsets from which a new checkpoint could begin."""
    run(batch(tmp_path))
    told = "start on a new checkpoint from the offsets of chk-0" + (
        "; or once with onceonly.target.behind=go-on" if may_go_on else ""
    )
    lost = TargetBehindError("the books have nothing of chk-0", next_step=told)
    monkeypatch.setattr(QueryCoordinator, "plan", MagicMock(side_effect=lost))
    with pytest.raises(TargetBehindError, match=rf"The batch {ID} is done.*nothing of chk-0") as caught:
        plan_batch(batch(tmp_path))
    assert "(onceonly.job)" in caught.value.next_step
    assert "offsets" not in caught.value.next_step
    assert ("onceonly.target.behind=go-on" in caught.value.next_step) == may_go_on


def test_dead_letters_are_decided_with_their_batch_and_compared_with_it(
    store: MemoryStore, tmp_path: Path
) -> None:
    store.refuses.add(4)
    letters = {
        "onceonly.refused": "deadletter",
        "onceonly.deadletter.format": "onceonly.memory",
        "onceonly.deadletter.option.store": "letters",
    }
    for _ in range(2):
        run(batch(tmp_path, letters))
        assert store.visible() == ROWS - Counter({(4,): 1})
        assert MemorySink.stores["letters"].visible().total() == 1


# ------------------------------------------------------------------------------------------ two runs at once
def test_of_two_runs_at_once_the_later_one_wins_and_the_other_is_superseded(
    store: MemoryStore, tmp_path: Path
) -> None:
    first = plan_batch(batch(tmp_path))
    votes = write(first)
    second = plan_batch(batch(tmp_path))
    with pytest.raises(SupersededError):
        first.commit(votes)
    first.abort(votes)
    second.commit(write(second))
    assert store.visible() == ROWS
    assert store.pending() == []


def test_a_run_beside_one_that_has_decided_commits_for_it(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _counts.clear()
    first = plan_batch(batch(tmp_path))
    votes = write(first)
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", "link.after_put=raise")
    with pytest.raises(FailpointError):
        first.commit(votes)
    monkeypatch.delenv("ONCEONLY_FAILPOINTS")
    run(batch(tmp_path))
    first.abort(votes)
    assert store.visible() == ROWS


def test_one_that_has_run_a_batch_may_run_it_again_after_others(store: MemoryStore, tmp_path: Path) -> None:
    mine, theirs = batch(tmp_path), batch(tmp_path)
    assert mine.run != theirs.run, "a run is no part of the program that it is started by"
    for made in (mine, theirs, batch(tmp_path)):
        run(made)
    assert store.visible() == ROWS


def test_a_batch_is_seen_to_be_alive_while_its_tasks_write(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []
    real = MemorySink.pre_commit

    def looked_at(self: MemorySink, transaction: MemoryTransaction) -> object:
        seen.append(present(str(tmp_path / ID)))
        return real(self, transaction)

    monkeypatch.setattr(MemorySink, "pre_commit", looked_at)
    run(batch(tmp_path))
    assert len(seen) == 2
    assert all(who is not None and "task of a batch" in who for who in seen)
    assert present(str(tmp_path / ID)) is None


# ------------------------------------------------------------------------------------------- ids and folders
def test_each_id_has_a_log_of_its_own_and_each_folder_another_query(
    store: MemoryStore, tmp_path: Path
) -> None:
    places = [(tmp_path, "a=1"), (tmp_path, "b-0123456789ab"), (tmp_path / "other", "a=1")]
    for folder, job in places:
        run(batch(folder, job=job))
    assert store.visible() == ROWS + ROWS + ROWS
    queries = [BatchCheckpoint.at(str(folder / job), job).query() for folder, job in places]
    assert [query[:-13] for query in queries] == ["batch-a-1", "batch-b-0123456789ab", "batch-a-1"]
    assert len(set(queries)) == 3
    assert all(map(is_batch, queries))
    assert not is_batch("3f2b9c1e-5d0a-4a7e-9a53-0d6c1e1f7a11")


def test_two_that_make_a_log_at_once_have_one_query(tmp_path: Path) -> None:
    assert begin_log(str(tmp_path), query="one").query == "one"
    assert begin_log(str(tmp_path), query="two").query == "one"


@pytest.mark.parametrize("job", [None, "", " ", ".", "..", ".a", "_a", "a/b", "a b", "a\n", "ä", "x" * 65])
def test_an_id_that_is_missing_or_names_no_folder_is_refused(job: str | None) -> None:
    with pytest.raises(ConfigurationError, match=JOB):
        job_id(job)


@pytest.mark.parametrize("job", ["metadata", "Metadata", "onceonly"])
def test_an_id_by_which_the_folder_would_be_told_for_a_streams_is_refused(job: str) -> None:
    """The first batch of this id would be the last of its folder that could run."""
    with pytest.raises(ConfigurationError, match="would look like the checkpoint of a stream"):
        job_id(job)


@pytest.mark.parametrize("job", ["1", "2026-11-01T06:00:00+00:00", "day=2026-11-01@eu_1", "x" * 64])
def test_ids_of_schedulers_are_taken(store: MemoryStore, tmp_path: Path, job: str) -> None:
    run(batch(tmp_path, job=job_id(job)))
    (query,) = {each.query for each in store.transactions.values()}
    assert re.fullmatch("[A-Za-z0-9_-]+", query), "sinks may make names of it as they do of a stream's"
    assert [found.path.rpartition("/")[2] for found in find(str(tmp_path)).checkpoints] == [job]


def test_a_folder_that_is_something_elses_is_refused_before_it_is_touched(
    store: MemoryStore, tmp_path: Path
) -> None:
    run(batch(tmp_path))
    with pytest.raises(ConfigurationError, match="is the log of another query"):
        plan_batch(batch(tmp_path / ID, job="x"))
    (tmp_path / ID).rename(tmp_path / "renamed")
    with pytest.raises(ConfigurationError, match=rf"is the log of the query batch-{ID}-"):
        plan_batch(batch(tmp_path, job="renamed"))
    for stream in (tmp_path / "stream", tmp_path / "logs" / ID):
        stream.mkdir(parents=True)
        (stream / "metadata").write_text('{"id":"q"}')
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(ConfigurationError, match="is the checkpoint of a stream"):
            plan_batch(batch(tmp_path / "stream" if stream.name == "stream" else tmp_path / "logs"))
        assert sorted(tmp_path.rglob("*")) == before


def test_options_of_streams_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'checkpointLocation' is missing"):
        batch_query(settings_of({}, "memory", MemorySink), ID)
    for name, value in (("onceonly.adopt", "true"), ("onceonly.history", "5")):
        with pytest.raises(ConfigurationError, match=f"'{name}' is a stream's"):
            batch(tmp_path, {name: value})
    with pytest.raises(ConfigurationError, match="is the id of a batch, and this is a stream"):
        settings_of({"checkpointLocation": "/c", "onceonly.Job": ID}, "memory", MemorySink)


def test_a_format_refuses_to_replace_what_is_there_and_a_batch_without_an_id(tmp_path: Path) -> None:
    remember(MemorySink)
    made = make_format("memory", MemorySink, "app")({"checkpointlocation": str(tmp_path)})
    with pytest.raises(ConfigurationError, match="replaces nothing, as mode overwrite asks"):
        made.writer(StructType(), overwrite=True)
    with pytest.raises(ConfigurationError, match=r"'onceonly\.job' is missing"):
        made.writer(StructType(), overwrite=False)
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------------- the person on call
def left(store: MemoryStore, folder: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> Checkpoint:
    """Leave a batch as a crash at this step does; give what is found of it."""
    _counts.clear()
    monkeypatch.setenv("ONCEONLY_FAILPOINTS", f"{point}=raise")
    with pytest.raises(FailpointError):
        run(batch(folder))
    monkeypatch.delenv("ONCEONLY_FAILPOINTS")
    (found,) = find(str(folder)).checkpoints
    return found


def states(found: Checkpoint) -> list[tuple[int, str]]:
    return [(row.view.epoch, row.view.state.value) for row in listed(found, limit=None, history=True).epochs]


@pytest.mark.parametrize(
    ("point", "before", "after", "visible"),
    [
        ("link.before_put", "aborted", "aborted", Counter()),
        ("link.after_put", "decided", "complete", ROWS),
        ("commit.after_handle", "decided", "complete", ROWS),
        ("commit.before_return", "complete", "complete", ROWS),
    ],
)
def test_a_batch_that_is_down_is_shown_and_resolved_as_a_stream_is(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    point: str, before: str, after: str, visible: Counter[tuple[int]],
) -> None:  # fmt: skip
    found = left(store, tmp_path, monkeypatch, point)
    assert states(found) == [(0, before)]
    given = Given(classes={"memory": "onceonly_proof.memory_sink:MemorySink"})
    verb = settle.Verb.ABORT if before == "aborted" else settle.Verb.COMMIT
    errand = settle.prepare(found, settle.Order(verb=verb, epoch=0), given, force=False)
    assert errand is not None
    if not errand.is_done:
        assert settle.settle(found, errand, given, timeout_s=5, force=False).error is None
    assert states(found) == [(0, after)], "claims for runs to come are no epochs of a batch"
    assert store.visible() == visible
    assert store.pending() == []
    run(batch(tmp_path))
    assert store.visible() == ROWS


def test_a_log_that_is_gone_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no decision log"):
        BatchCheckpoint.at(str(tmp_path / ID), ID).query()


def test_a_drain_of_a_batch_is_strict_unless_the_user_says_otherwise(
    store: MemoryStore, tmp_path: Path
) -> None:
    run(batch(tmp_path))
    asked = {"auto": True, "stop": True, "tell": False}
    for replay, strict in asked.items():
        plan = plan_batch(batch(tmp_path, {"onceonly.replay": replay}))._plan
        assert (plan.mode, plan.strict) == (Mode.DRAIN, strict)
