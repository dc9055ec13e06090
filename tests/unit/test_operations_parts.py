"""What handles say of the partitions of a target is told, and nothing that they do not say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.unit import view_bench as bench

from onceonly.families.loaded.load import DataFile as TableFile
from onceonly.families.loaded.load import Load
from onceonly.model import Handle, Link, SinkUse
from onceonly.operations.parts import parts
from onceonly.ports.standing import Part
from onceonly.settings.registry import remember
from onceonly.sinks.files.manifests.manifest import DataFile
from onceonly.sinks.files.prepared import Prepared as Files
from onceonly.sinks.kafka.prepared import Prepared as Kafka
from onceonly.sinks.kafka.prepared import spell
from onceonly_proof.memory_sink import MemorySink

if TYPE_CHECKING:
    from collections.abc import Mapping


def decided(sink: str, *handles: Handle, carried: int = 0) -> Link:
    """Decide transactions of three rows each; the first ones under an earlier link."""
    votes = [replace(bench.vote(0, slot, 1, sink=sink), handle=handle) for slot, handle in enumerate(handles)]
    link = bench.decision(0, 2, votes[carried:])
    return replace(link, carried=tuple(votes[:carried]), uses={sink: SinkUse(sink=sink)})


def kafka(places: Mapping[tuple[str, int], int]) -> Handle:
    return Kafka(
        cluster_id="c", transactional_id="t", producer_id=1, producer_epoch=0, end_txn_version=1, group="g",
        marker_topic="m", token="", predecessor="", written=spell(places),
    ).handle()  # fmt: skip


def files(*found: DataFile) -> Handle:
    where = Path("/t")
    return Files(transaction="t", target=where, staging=where, layout="l", files=found).handle()


def test_rows_and_bytes_of_files_are_told_by_the_folders_of_their_partitions() -> None:
    one = files(DataFile("day=1/a", 100, 2, ""), DataFile("day=2/b", 10, 1, ""))
    two = files(DataFile("day=1/c", 50, 3, ""))
    assert parts(decided("files", one, two, carried=1)) == (
        ("files", Part(partition="day=1", rows=5, bytes=150)),
        ("files", Part(partition="day=2", rows=1, bytes=10)),
    )
    assert parts(decided("files", files(DataFile("a", 100, 3, "")))) == (
        ("files", Part(partition="", rows=3, bytes=100)),
    )


@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_rows_and_bytes_of_a_table_are_told_by_the_values_of_its_partitions(sink: str) -> None:
    found = (
        TableFile(path="a", bytes=100, rows=2, keys=("1", None)),
        TableFile(path="b", bytes=10, rows=1, keys=("1", "x")),
    )
    assert parts(decided(sink, Load(name="0.0.t", folder="q/s/0.0.t", files=found).handle())) == (
        (sink, Part(partition="1/null", rows=2, bytes=100)),
        (sink, Part(partition="1/x", rows=1, bytes=10)),
    )


def test_rows_of_a_topics_partition_are_told_only_where_each_transaction_wrote_to_it_alone() -> None:
    alone, both = kafka({("a.b", 0): 17}), kafka({("a.b", 0): 12, ("a.b", 1): 5})
    assert parts(decided("kafka", alone, alone)) == (("kafka", Part(partition="a.b/0", rows=6, first=17)),)
    assert parts(decided("kafka", alone, both)) == (
        ("kafka", Part(partition="a.b/0", first=12)),
        ("kafka", Part(partition="a.b/1", first=5)),
    )
    assert parts(decided("kafka", alone, kafka({("a.b", 0): -1})))[0][1].first is None


@pytest.mark.parametrize(
    "silent",
    [
        kafka({}),
        Handle(transaction="older", data={}),
        Handle(transaction="newer", data={"written": "t", "files": "[[1]]"}),
        Handle(transaction="other", data={"written": 7, "files": "{"}),
    ],
)
def test_a_sink_one_of_whose_handles_is_silent_is_left_out(silent: Handle) -> None:
    said = {"kafka": kafka({("t", 0): 1}), "files": files(DataFile("a", 1, 3, ""))}
    for sink, handle in said.items():
        assert parts(decided(sink, handle))
        assert parts(decided(sink, handle, silent)) == ()
    whole = decided("kafka", said["kafka"])
    assert parts(replace(whole, uses={})) == ()
    assert parts(replace(whole, uses={"kafka": SinkUse(sink="mine:Sink")})) == ()


class Mine(MemorySink):
    name = "mine"

    @classmethod
    def parts(cls, handle: Handle, rows: int) -> list[Part]:
        return [Part(partition=str(handle.data["at"]), rows=rows)]


def test_a_sink_of_the_users_tells_its_parts_itself_where_it_is_known_and_breaks_no_page() -> None:
    told = Handle(transaction="t", data={"at": "eu"})
    assert parts(decided("mine", told)) == (), "a class that nobody has named here is not looked for"
    remember(Mine)
    assert parts(decided("mine", told)) == (("mine", Part(partition="eu", rows=3)),)
    assert parts(decided("mine", Handle(transaction="t", data={}))) == ()
