"""What an epoch has left in Kafka's topics, for ``onceonly audit``: its own rows, whoever wrote between."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import google_crc32c
import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from kafka_query import Query, wait_for

from onceonly.log import open_log
from onceonly.model import Committed, Link, LinkKind, Receipt, SinkUse, Vote
from onceonly.operations import audit as operation
from onceonly.operations.audit import Word
from onceonly.operations.find import open_checkpoint
from onceonly.operations.given import Given
from onceonly.ports.standing import Held
from onceonly.rows.checksum import RowChecksum
from onceonly.sinks.kafka import KafkaSink

if TYPE_CHECKING:
    from pathlib import Path

    from onceonly.operations.audit import Finding
    from onceonly_proof.embedded.kafka import EmbeddedKafka

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]
ROWS = 40


class Job:
    """A query that has committed two epochs of two slots to a topic of two partitions."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        self.kafka = kafka
        self.query = Query(kafka)
        (folder / "offsets").mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": self.query.id}))
        self.checkpoint = str(folder)
        log = open_log(self.checkpoint, query=self.query.id, create=True)
        for epoch in range(2):
            (folder / f"offsets/{epoch}").write_text(f'v1\n{{}}\n"{epoch}"')
            votes = tuple(self.vote(epoch, slot) for slot in range(2))
            use = SinkUse(sink="kafka", options=self.query.options, columns=(("value", "string"),))
            log.put_link(
                Link(
                    epoch=epoch, index=0, kind=LinkKind.COMMIT, plan="p", run="r", votes=votes, uses={"kafka": use},
                    settings={"kafka": dict(self.query.sink.identity())}, barrier=(f'"{epoch}"',),
                )
            )  # fmt: skip
            for vote in votes:
                assert vote.handle is not None
                assert self.query.commit(vote.handle) == Committed()
            log.put_receipt(Receipt(epoch=epoch, index=0, plan="p"))
            self.query.write("of others", "of others")

    def vote(self, epoch: int, slot: int) -> Vote:
        rows = [f"{epoch}-{slot}-{number}" for number in range(ROWS)]
        checksum = RowChecksum()
        checksum.add(pa.RecordBatch.from_pydict({"value": rows}))
        return Vote(
            sink="kafka", epoch=epoch, slot=slot, plan="p", run="r", attempt=uuid.uuid4().hex, rows=ROWS,
            checksum=checksum.value, handle=self.query.prepare(*rows, epoch=epoch, slot=slot),
        )  # fmt: skip

    def found(self, *, counts: bool = False) -> dict[int | None, Finding]:
        audited = operation.audit(open_checkpoint(self.checkpoint), Given(), within_s=60, counts=counts)
        return {each.epoch: each for each in audited.findings}

    def words(self) -> dict[int | None, Word]:
        return {epoch: each.word for epoch, each in self.found().items()}

    def change(self, before: bytes, after: bytes, *, cunningly: bool) -> None:
        """Change bytes on the broker's disk; with the batch's checksum, where that is asked for."""
        for partition in range(2):
            path = self.kafka.directory / "data" / f"{self.query.topic}-{partition}" / f"{0:020}.log"
            data = bytearray(path.read_bytes())
            if before not in data:
                continue
            at = 0
            while at < len(data) and (size := int.from_bytes(data[at + 8 : at + 12], "big") + 12) > 12:
                batch = data[at : at + size].replace(before, after)
                if cunningly:
                    batch[17:21] = google_crc32c.value(bytes(batch[21:])).to_bytes(4, "big")
                data[at : at + size] = batch
                at += size
            with path.open("r+b") as file:
                file.write(data)
            return
        pytest.fail(f"{before!r} stands nowhere")

    def opening(self) -> int:
        """Return a partition that the first epoch's rows begin; the producer may have put them all into one."""
        for partition in range(2):
            path = self.kafka.directory / "data" / f"{self.query.topic}-{partition}" / f"{0:020}.log"
            batch = path.read_bytes()
            if b"of others" not in batch[: int.from_bytes(batch[8:12], "big") + 12]:
                return partition
        pytest.fail("no partition begins with the first epoch")

    def cut_off(self, partition: int, offset: int) -> None:
        place = TopicPartition(self.query.topic, partition, offset)
        admin = self.kafka.admin()  # its answers end with it
        admin.delete_records([place])[place].result(30)


@pytest.fixture
def job(kafka: EmbeddedKafka, tmp_path: Path) -> Job:
    return Job(kafka, tmp_path / "cp")


def test_a_topic_that_nobody_touched_differs_in_nothing_though_others_write_there(job: Job) -> None:
    assert job.words() == {0: Word.SAME, 1: Word.SAME}
    assert [each.rows for each in job.found().values()] == [2 * ROWS, 2 * ROWS]


@pytest.mark.parametrize("cunningly", [True, False], ids=["with its checksum", "alone"])
def test_a_value_that_was_changed_on_a_brokers_disk_is_found_by_its_epoch(job: Job, cunningly: bool) -> None:  # noqa: FBT001
    job.change(b"0-1-17", b"0-1-99", cunningly=cunningly)
    assert "0-1-99" in job.query.read()
    assert job.words() == {0: Word.DIFFERS, 1: Word.SAME}
    told = " ".join(job.found()[0].told)
    assert ("at least one was changed" if cunningly else "has other bytes than were written") in told
    assert {each.word for each in job.found(counts=True).values()} == {Word.SAME}


def test_a_row_that_somebody_else_has_written_again_is_not_the_epochs(job: Job) -> None:
    job.query.write("1-0-3")
    assert job.words() == {0: Word.SAME, 1: Word.SAME}
    assert not any(each.told for each in job.found().values())


def test_rows_of_several_columns_are_read_back_as_they_were(kafka: EmbeddedKafka) -> None:
    query = Query(kafka)
    named = query.options.pop("topic")
    sink = KafkaSink(query.options)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([b"k", None, b"\xff"], pa.binary()),
            pa.array([[("a", b"1"), ("a", None)], [("b", b"")], [("c", b"2")]], kind),
            pa.array([named] * 3), pa.array(["", None, "☃" * 200]),
        ],
        ["key", "headers", "topic", "value"],
    )  # fmt: skip
    columns = (
        ("key", "binary"),
        ("headers", "array<struct<key:string,value:binary>>"),
        ("topic", "string"),
        ("value", "string"),
    )
    context = replace(query.context, columns=columns)
    query.facts = dict(sink.check(context))
    attempt = sink.begin_transaction(query.attempt())
    sink.write(attempt, rows)
    handle = sink.pre_commit(attempt)
    assert handle is not None
    assert query.commit(handle) == Committed()
    checksum = RowChecksum()
    checksum.add(rows)
    assert sink.read_back(context, [handle]) == Held(rows=3, checksum=checksum.value)
    for name, why in {"partition": "left the choice to the key", "other": "is not written"}.items():
        held = sink.read_back(replace(context, columns=(*columns, (name, "int"))), [handle])
        assert held is not None
        assert (held.rows, held.checksum) == (3, "")
        assert why in held.unread
    sink.close()


def test_rows_that_were_taken_away_are_found_by_their_epoch(job: Job) -> None:
    partition = job.opening()
    job.cut_off(partition, 1)
    assert job.words() == {0: Word.DIFFERS, 1: Word.SAME}
    told = " ".join(job.found()[0].told)
    assert f"{2 * ROWS} rows were decided, and {2 * ROWS - 1} of them stand" in told
    assert f"{job.query.topic}-{partition}: what stood from offset 0 to 0 is gone" in told


def test_an_epoch_that_is_gone_altogether_is_found(job: Job) -> None:
    for partition in range(2):
        job.cut_off(partition, -1)
    assert job.words() == {0: Word.DIFFERS, 1: Word.DIFFERS}
    assert f"{2 * ROWS} rows were decided, and 0 of them stand as they were written" in job.found()[1].told


def test_a_topic_that_was_deleted_is_another_target(job: Job) -> None:
    admin = job.kafka.admin()
    admin.delete_topics([job.query.topic], operation_timeout=30)[job.query.topic].result(30)
    wait_for(lambda: job.query.topic not in admin.list_topics(timeout=10).topics, "the end of the topic")
    handles = [vote.handle for vote in open_checkpoint(job.checkpoint).log.chain(1)[-1].votes if vote.handle]
    held = job.query.sink.held(handles)
    assert held is not None
    assert held.rows == 0
    assert all("is not there any more" in each for each in held.wrong)
