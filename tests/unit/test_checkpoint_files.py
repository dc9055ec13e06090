"""Spark's files of a checkpoint in a folder and on a store: read, compared and restored alike."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.unit.test_runtime_inputs import link

from onceonly.checkpoint.files import CheckpointFiles, FolderFiles
from onceonly.checkpoint.inputs import SparkInputs
from onceonly.checkpoint.passed import passed
from onceonly.checkpoint.reading import SparkCheckpoint
from onceonly.coordinator import repeats
from onceonly.errors import ConfigurationError, LogError, UnavailableError
from onceonly.model import Link, Plan
from onceonly_proof.stores.memory import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.stores.port import RewritableStore

HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":7}'


@pytest.fixture(params=["folder", "store"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointFiles:
    return FolderFiles(tmp_path) if request.param == "folder" else CheckpointFiles(MemoryStore())


@pytest.fixture
def spark(files: CheckpointFiles) -> SparkCheckpoint:
    files.write("metadata", json.dumps({"id": "q-1"}))
    for epoch in (9, 10):
        files.write(f"offsets/{epoch}", f'{HEAD}\n{{"logOffset":{epoch}}}')
        files.write(f"sources/0/{epoch}", entries(epoch, f"/in/{epoch}"))
    files.write("commits/9", "v1\n{}")
    return SparkCheckpoint("where it is", files)


def entries(number: int, *paths: str) -> str:
    lines = (json.dumps({"path": path, "batchId": number}, separators=(",", ":")) for path in paths)
    return "\n".join(["v1", *lines])


def decided(spark: SparkCheckpoint, epoch: int) -> Link:
    return link(epoch, SparkInputs(spark.files).read(epoch))


def test_sparks_checkpoint_is_read_wherever_it_is(spark: SparkCheckpoint) -> None:
    assert spark.query() == "q-1"
    assert spark.epoch() == 10
    assert spark.barrier(9) == ('{"logOffset":9}',)
    assert spark.committed() == {9}
    found = SparkInputs(spark.files).read(10)
    assert [file.name for file in found.files] == ["offsets/10", "sources/0/10"]


def test_what_is_not_there_is_said_wherever_it_is(files: CheckpointFiles) -> None:
    spark = SparkCheckpoint("where it is", files)
    with pytest.raises(ConfigurationError, match="no streaming query keeps its checkpoint at where it is"):
        spark.query()
    with pytest.raises(LogError, match="no offsets"):
        spark.epoch()
    with pytest.raises(LogError, match="chk-3 is missing"):
        spark.barrier(3)
    assert passed(spark, 3, taken=False) is None


def test_what_another_has_written_over_is_again_as_decided(spark: SparkCheckpoint) -> None:
    link, inputs = decided(spark, 10), SparkInputs(spark.files)
    for name in ("offsets/10", "sources/0/10"):
        spark.files.write(name, "v1\nother")
    assert inputs.restore([link], None) == (
        "sources/0/10 is again as decided",
        "offsets/10 is again as decided",
    )
    assert inputs.read(10) == link.inputs
    assert inputs.restore([link], None) == ()


def test_a_list_that_stands_in_a_later_one_by_now_is_restored_there(spark: SparkCheckpoint) -> None:
    link, inputs = decided(spark, 10), SparkInputs(spark.files)
    assert spark.files.take("sources/0/10", lambda _: True)
    both = entries(9, "/in/9") + "\n" + entries(10, "/in/other").partition("\n")[2]
    spark.files.write("sources/0/10.compact", both)
    assert inputs.restore([link], None) == ("sources/0/10 is again as decided",)
    assert inputs.read(10) == link.inputs
    assert "/in/9" in (spark.files.text("sources/0/10.compact") or "")


@pytest.mark.parametrize("mine", [True, False])
@pytest.mark.parametrize("other", [True, False])
def test_offsets_that_nobody_decided_are_taken_away_if_they_are_as_found_and_ours(
    spark: SparkCheckpoint,
    mine: bool,  # noqa: FBT001  a parameter
    other: bool,  # noqa: FBT001  a parameter
) -> None:
    inputs = SparkInputs(spark.files)
    found = inputs.read(10, lists=False).files[0]
    if other:
        spark.files.write("offsets/10", f"{HEAD}\nanother driver's")
    told = inputs.restore([], found, lambda: mine)
    assert (spark.files.text("offsets/10") is None) == (mine and not other)
    assert told == (("offsets/10 is to be planned anew",) if mine and not other else ())
    assert set(spark.files.numbers("offsets")) == ({9} if told else {9, 10})


def test_on_a_store_a_file_is_durable_when_it_is_there() -> None:
    store = MemoryStore()
    inputs = SparkInputs(CheckpointFiles(store))
    plan = Plan.__new__(Plan)  # nothing of it is looked at
    inputs.begin_sync(plan)
    assert inputs.synced(plan) == inputs.sync() == inputs.sync_state() == ""
    assert store.files == {}


def test_a_store_that_does_not_answer_is_unavailable_and_says_what_was_read() -> None:
    def hook(operation: str, name: str) -> None:
        raise UnavailableError(f"{name} could not be read: gone", next_step="wait")

    inputs = SparkInputs(CheckpointFiles(MemoryStore(hook=hook)))
    with pytest.raises(UnavailableError, match=r"chk-7.*offsets/7 could not be read: gone"):
        inputs.read(7)


def test_a_file_that_is_no_text_is_damaged(files: CheckpointFiles) -> None:
    store: RewritableStore = files._store
    store.replace("metadata", b"\xff\xfe")
    with pytest.raises(LogError, match="metadata does not hold text"):
        files.text("metadata")


def test_an_epoch_without_new_input_is_told_from_one_with_state(spark: SparkCheckpoint) -> None:
    spark.files.write("offsets/10", f'{HEAD}\n{{"logOffset":9}}')
    spark.files.write("commits/10", "v1\n{}")
    found = passed(spark, 10, taken=False)
    assert found is not None
    assert found.unchanged
    spark.files.write("state/0/0/1.delta", "")
    spark.files.write("offsets/10", f'{HEAD.replace("7", "8")}\n{{"logOffset":9}}')
    found = passed(spark, 10, taken=False)
    assert found is not None
    assert not found.unchanged


def test_word_of_a_plan_that_repeats_is_left_where_there_is_a_log(files: CheckpointFiles) -> None:
    repeats.note(files, "")
    assert not repeats.noted(files)
    files.write("onceonly/identity.json", "")
    repeats.note(files, "")
    assert repeats.noted(files)
    repeats.note(files, "rand()")
    assert not repeats.noted(files)
    repeats.note(files, "")
    repeats.note(files, None)
    assert not repeats.noted(files)
