"""The auditor's own reading of a checkpoint, written by the real log and then doctored on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from onceonly import events
from onceonly.errors import ConfigurationError
from onceonly.log import FileDecisionLog, open_log
from onceonly.model import Handle, Link, LinkKind, Receipt, Vote
from onceonly_proof.auditor import (  # fmt: skip
    Anomaly,
    Decision,
    FilesReader,
    Input,
    Seen,
    Slot,
    World,
    audit,
    collect,
    judge,
    query_id,
    read_decisions,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUERY = "b4c7"


def vote(epoch: int, slot: int, transaction: str, rows: int = 2) -> Vote:
    return Vote(
        sink="kafka",
        epoch=epoch,
        slot=slot,
        plan="p",
        run="r",
        attempt="0",
        rows=rows,
        checksum="0" * 16,
        handle=Handle(transaction=transaction),
    )


class Checkpoint:
    """A query's checkpoint: Spark's folders by hand, the decision log by the real one."""

    def __init__(self, folder: Path, *, keep: int = 100) -> None:
        self.folder = folder
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": QUERY}))
        self.log: FileDecisionLog = open_log(str(folder), query=QUERY, keep=keep, create=True)

    def barrier(self, epoch: int) -> str:
        return json.dumps({"events": {"0": 2 * (epoch + 1), "1": 2 * (epoch + 1)}})

    def link(self, epoch: int, index: int = 0, **changes: Any) -> Link:  # noqa: ANN401  fields by name
        votes = tuple(vote(epoch, slot, f"{epoch}-{slot}-{index}") for slot in (0, 1))
        made = Link(
            epoch=epoch, index=index, kind=LinkKind.COMMIT, plan="p", run="r", votes=votes,
            barrier=(self.barrier(epoch),),
        )  # fmt: skip
        return self.log.put_link(replace(made, **changes))

    def plan(self, epoch: int) -> None:
        lines = ["v1", '{"batchWatermarkMs":0}', self.barrier(epoch)]
        (self.folder / "offsets" / str(epoch)).write_text("\n".join(lines))

    def finish(self, epoch: int, index: int = 0) -> None:
        self.log.put_receipt(Receipt(epoch=epoch, index=index, plan="p"))
        (self.folder / "commits" / str(epoch)).write_text("v1\n{}")

    def run(self, epochs: range) -> None:
        for epoch in epochs:
            self.plan(epoch)
            self.link(epoch)
            self.finish(epoch)

    def file(self, name: str) -> Path:
        return self.folder / "onceonly" / name

    def world(self, epochs: int, decisions: list[Decision] | None = None) -> World:
        """Return a world in which everything was written that the log says."""
        inputs = [
            Input(
                4 * epoch + 2 * partition + n,
                f"events/{partition}",
                position,
                None,
                b"%d@%d" % (position, partition),
            )
            for epoch in range(epochs)
            for partition in (0, 1)
            for n, position in enumerate((2 * epoch, 2 * epoch + 1))
        ]
        seen = [Seen("kafka", None, row.value, row.partition, row.position) for row in inputs]
        told = decisions if decisions is not None else read_decisions(self.folder)
        return World(sinks=("kafka",), inputs=inputs, at_end=seen, decisions=told)

    def mismatches(self, epochs: int = 3) -> list[str]:
        verdict = judge(self.world(epochs))
        assert {anomaly for anomaly, count in verdict.anomalies.items() if count} <= {Anomaly.LOG_MISMATCH}
        return list(verdict.examples)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "checkpoint")


def test_a_whole_log_is_read_as_it_was_written(checkpoint: Checkpoint) -> None:
    checkpoint.run(range(3))
    assert read_decisions(checkpoint.folder)[1] == Decision(
        epoch=1,
        kind=LinkKind.COMMIT,
        ranges={"events/0": (2, 4), "events/1": (2, 4)},
        slots=(Slot("kafka", 0, 2, "1-0-0"), Slot("kafka", 1, 2, "1-1-0")),
        receipt=True,
        spark_commit=True,
    )
    assert checkpoint.mismatches() == []


def test_a_later_link_voids_what_it_does_not_name(checkpoint: Checkpoint) -> None:
    checkpoint.plan(0)
    first = checkpoint.link(0)
    checkpoint.link(0, 1, carried=first.votes[:1], votes=(vote(0, 1, "0-1-again"),))
    checkpoint.finish(0, 1)
    (decision,) = read_decisions(checkpoint.folder)
    assert decision.void == {"0-1-0"}
    assert [slot.transaction for slot in decision.slots] == ["0-0-0", "0-1-again"]
    assert checkpoint.mismatches(1) == []


def test_a_claim_of_the_next_epoch_is_usual(checkpoint: Checkpoint) -> None:
    checkpoint.run(range(3))
    checkpoint.link(3, kind=LinkKind.ABORT, votes=(), barrier=())
    last = read_decisions(checkpoint.folder)[-1]
    assert (last.kind, last.receipt, last.spark_commit) == (LinkKind.ABORT, False, False)
    assert checkpoint.mismatches() == []


def test_barriers_that_only_spark_has_give_the_ranges(checkpoint: Checkpoint) -> None:
    for epoch in range(2):
        checkpoint.plan(epoch)
        checkpoint.link(epoch, barrier=())
        checkpoint.finish(epoch)
    assert [each.ranges["events/0"] for each in read_decisions(checkpoint.folder)] == [(0, 2), (2, 4)]


def test_a_source_without_positions_has_no_ranges(checkpoint: Checkpoint) -> None:
    checkpoint.link(0, barrier=('{"offset":3}', "17", "-"))
    checkpoint.finish(0)
    (decision,) = read_decisions(checkpoint.folder)
    assert decision.ranges == {}
    assert judge(World(sinks=("kafka",), inputs=(), at_end=(), decisions=[decision])).is_clean


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("doctor", "named"),
    [
        (lambda made: flip(made.file(f"links/{1:020d}.0.json")), "links/"),
        (lambda made: flip(made.file(f"receipts/{1:020d}.json")), "receipts/"),
        (lambda made: made.file(f"receipts/{1:020d}.json").unlink(), "has no receipt"),
        (lambda made: made.file(f"links/{1:020d}.0.json").write_bytes(b""), "no header"),
        (lambda made: made.file(f"links/{1:020d}.0.json").unlink(), "has no link"),
        (
            lambda made: made.file(f"links/{1:020d}.0.json").rename(made.file(f"links/{1:020d}.1.json")),
            "another link than its name says",
        ),
        (lambda made: made.link(2, 1), "the receipt is of link 2.0"),
        (lambda made: (made.folder / "commits" / "1").unlink(), "not in commits/N"),
        (lambda made: (made.folder / "commits" / "3").write_text("v1\n{}"), "chk-3 has no link"),
        (lambda made: (made.folder / "offsets" / "1").write_text("v1\n{}\n{}"), "not that of offsets/1"),
    ],
)  # fmt: skip
def test_a_doctored_checkpoint_is_named(
    checkpoint: Checkpoint, doctor: Callable[[Checkpoint], object], named: str
) -> None:
    checkpoint.run(range(3))
    doctor(checkpoint)
    found = judge(checkpoint.world(3))
    assert found.anomalies[Anomaly.LOG_MISMATCH] >= 1
    assert any(named in example for example in found.examples), found.examples


def test_a_barrier_with_the_names_of_sources_is_the_one_without(checkpoint: Checkpoint) -> None:
    checkpoint.run(range(3))
    for epoch in range(3):
        barrier = checkpoint.folder / "offsets" / str(epoch)
        barrier.write_text(f'v2\n{{"batchWatermarkMs":0}}\nsrc_a:{checkpoint.barrier(epoch)}')
    assert checkpoint.mismatches() == []
    barrier.write_text(f'v2\n{{"batchWatermarkMs":0}}\nsrc_a:{checkpoint.barrier(7)}')
    assert any("not that of offsets/2" in example for example in checkpoint.mismatches())


def test_offsets_that_are_text_are_no_names_of_sources(checkpoint: Checkpoint) -> None:
    checkpoint.run(range(2))
    checkpoint.link(2, barrier=(checkpoint.barrier(2), "2026-01-01T10:00"))
    checkpoint.finish(2)
    barrier = checkpoint.folder / "offsets" / "2"
    for end, mismatches in ("2026-01-01T10:00", 0), ("2026-01-02T10:00", 1):
        barrier.write_text(f'v1\n{{"batchWatermarkMs":0}}\n{checkpoint.barrier(2)}\n{end}')
        assert len(checkpoint.mismatches()) == mismatches


def test_folded_epochs_are_read_from_history(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint", keep=5)
    checkpoint.run(range(50))
    checkpoint.log.fold()
    assert len(list(checkpoint.file("links").iterdir())) < 50
    decisions = read_decisions(checkpoint.folder)
    assert [each.epoch for each in decisions] == list(range(50))
    assert decisions[3].slots == (Slot("kafka", -1, 4),)
    assert checkpoint.mismatches(50) == []


def test_folded_epochs_without_barriers_come_as_one(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint", keep=5)
    checkpoint.run(range(50))
    checkpoint.log.fold()
    for epoch in range(45):
        for name in ("offsets", "commits"):
            (checkpoint.folder / name / str(epoch)).unlink()
    first, *rest = read_decisions(checkpoint.folder)
    assert (first.first, first.epoch, first.ranges["events/0"]) == (0, 40, (0, 82))
    assert first.slots == (Slot("kafka", -1, 164),)
    assert len(rest) == 9
    assert checkpoint.mismatches(50) == []


def test_the_time_of_a_decision_is_that_of_its_first_link(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "events"
    monkeypatch.setenv("ONCEONLY_EVENTS", str(folder))
    checkpoint.run(range(2))
    checkpoint.plan(2)
    first = checkpoint.link(2)
    checkpoint.link(2, 1, votes=first.votes)
    checkpoint.finish(2, 1)

    def note(epoch: int, index: int, query: str = QUERY, kind: LinkKind = LinkKind.COMMIT) -> None:
        events.record(
            "link.persisted", actor="driver", query=query, epoch=epoch, link=kind.value, index=index
        )

    note(0, 0)
    note(1, 0, query="another")
    # Whoever put 2.0 did not live to note it: 2.1 says nothing of when 2.0 could be committed.
    note(2, 1)
    with next(folder.glob("*.jsonl")).open("a") as file:
        file.write('{"kind":"link.persisted","epo')
    times = [each.decided_s for each in read_decisions(checkpoint.folder, folder)]
    (noted, *_) = (line["t"] for line in events.read(folder))
    assert times == [noted, None, None]


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no decision log"):
        read_decisions(tmp_path)


# --- a whole audit --------------------------------------------------------------------------------------------
def put(path: Path, *values: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"key": "k", "value": value}) + "\n" for value in values))


class Place:
    """A folder and a checkpoint as a query leaves them; every defect is put in on disk."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = Checkpoint(folder / "checkpoint")
        self.files = folder / "files"
        self.inputs = self.checkpoint.world(2, []).inputs
        for epoch in range(2):
            self.checkpoint.plan(epoch)
            link = self.checkpoint.link(epoch)
            self.checkpoint.finish(epoch)
            for vote in link.votes:
                values = [row.value.decode() for row in self.of(epoch, vote.slot)]
                put(self.files / f"part-{epoch}-{vote.slot}-0.json", *values)

    def of(self, epoch: int, slot: int) -> list[Input]:
        return [
            row for row in self.inputs if row.partition == f"events/{slot}" and row.position // 2 == epoch
        ]

    def found(self) -> dict[Anomaly, int]:
        verdict = audit(
            self.inputs,
            sinks={"kafka": FilesReader("kafka", self.files)},
            checkpoint=self.checkpoint.folder,
        )
        return {anomaly: count for anomaly, count in verdict.anomalies.items() if count}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_doctored_folder_is_named(place: Place) -> None:
    first = place.files / "part-0-0-0.json"
    # A key where none went in is foreign.
    assert place.found() == {Anomaly.FOREIGN: 8, Anomaly.LOST: 8}
    for path in place.files.iterdir():
        path.write_bytes(path.read_bytes().replace(b'"key": "k", ', b""))
    whole = first.read_bytes()
    assert place.found() == {}
    first.write_bytes(whole.splitlines(keepends=True)[0])
    assert place.found() == {Anomaly.LOST: 1, Anomaly.TORN_TRANSACTION: 1}
    first.write_bytes(b"".join(reversed(whole.splitlines(keepends=True))))
    assert place.found() == {Anomaly.OUT_OF_ORDER: 1}
    first.write_bytes(whole)
    (place.files / "copy.json").write_bytes(whole)
    assert place.found() == {Anomaly.DUPLICATED: 2}
    (place.files / "copy.json").unlink()
    staged = place.files / "_onceonly/staging/q/kafka/t/.00001.staged"
    put(staged, "x")
    assert place.found() == {Anomaly.ORPHAN: 1}
    # A name that `**/*.json` takes is a row that somebody sees, wherever it stands.
    staged.rename(staged.with_name("part.json"))
    assert place.found() == {Anomaly.ORPHAN: 1, Anomaly.FOREIGN: 1}


def test_a_sink_without_a_reader_is_refused(place: Place) -> None:
    with pytest.raises(ConfigurationError, match="sink 'kafka'"):
        collect(
            place.inputs,
            sinks={"files": FilesReader("files", place.files)},
            checkpoint=place.checkpoint.folder,
        )


def test_a_querys_id_is_told_by_its_checkpoint(tmp_path: Path) -> None:
    Checkpoint(tmp_path)
    assert query_id(tmp_path) == QUERY


@pytest.mark.parametrize("written", [None, "", "[]", "{}"])
def test_a_folder_in_which_no_query_has_begun_is_named(tmp_path: Path, written: str | None) -> None:
    if written is not None:
        (tmp_path / "metadata").write_text(written)
    with pytest.raises(ConfigurationError, match=f"{tmp_path} tells no query's id") as caught:
        query_id(tmp_path)
    assert "checkpointLocation" in caught.value.next_step
