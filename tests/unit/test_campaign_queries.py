"""Rounds whose query refuses rows, or has a state: what goes in, and how what comes out is counted and judged."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from onceonly_proof.auditor import Anomaly, Input, Seen, World, judge
from onceonly_proof.campaign import job, queries, watch, workload
from onceonly_proof.campaign.sources.kafka import Topic
from onceonly_proof.campaign.task import Task
from onceonly_proof.campaign.watch import Watch
from onceonly_proof.campaign.workload import Workload
from onceonly_proof.cli import verify as cli_verify

if TYPE_CHECKING:
    from pathlib import Path

LOAD = Workload(
    seed=1, partitions=3, targets=1, keys=7, rows_per_s=10, burst=1, bytes_max=5, per_epoch=10
)  # fmt: skip


def task(query: str, folder: Path | str = "/round") -> Task:
    return Task(
        servers="", source="in", target="out", files=f"{folder}/files", checkpoint=f"{folder}/checkpoint",
        connector="kafka", guarantee="exactly-once", per_epoch=10, query=query,
    )  # fmt: skip


def test_the_command_takes_every_query() -> None:
    assert cli_verify._QUERIES == queries.QUERIES


class Producer:
    """A broker that takes everything at once."""

    def __init__(self, _: object) -> None:
        self.taken: list[tuple[int, str, bytes]] = []

    def produce(self, _: str, *, key: str, value: bytes, partition: int, on_delivery: Any) -> None:  # noqa: ANN401
        self.taken.append((partition, key, value))
        on_delivery(None, None)

    def flush(self, _: float) -> int:
        return 0


@pytest.mark.parametrize("query", queries.QUERIES)
def test_rows_come_again_in_their_partition_where_a_state_drops_them(
    query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("confluent_kafka.Producer", Producer)
    feeder = Topic("", "in", queries.adapt(LOAD, query))
    for _ in range(2_000):
        feeder._write()
    taken = cast("Producer", feeder._producer).taken

    assert feeder.fed == len(taken) == 2_000
    assert feeder.distinct == len(set(taken)) == len({value for _, _, value in taken})
    assert (feeder.distinct < 1_800) == (query in queries.DROPPING)
    assert all(workload.is_whole(value) for _, _, value in taken)
    assert any(len(value) > queries.LIMIT_BYTES for _, _, value in taken) == (query == queries.LETTERS)


def test_where_rows_are_refused_the_topic_is_small_and_letters_go_to_files_of_the_round() -> None:
    options = task(queries.LETTERS).options("kafka")

    assert options["onceonly.refused"] == "deadletter"
    assert options["onceonly.deadletter.option.path"] == "/round/files-letters"
    assert queries.topic_configs(queries.LETTERS) == {"max.message.bytes": "1500"}
    assert "onceonly.refused" not in task(queries.LETTERS).options("files")
    for query in set(queries.QUERIES) - {queries.LETTERS}:
        assert "onceonly.refused" not in task(query).options("kafka")
        assert queries.topic_configs(query) == {}


class Spark:
    """A session that keeps its settings, and a frame that keeps what is done with it."""

    def __init__(self) -> None:
        self.conf, self.readStream = self, self
        self.settings: dict[str, object] = {}
        self.dropped: list[str] = []

    def set(self, name: str, value: object) -> None:
        self.settings[name] = value

    def format(self, _: str) -> Spark:
        return self

    def options(self, **_: object) -> Spark:
        return self

    def load(self) -> Spark:
        return self

    def selectExpr(self, *_: str) -> Spark:  # noqa: N802  as in Spark
        return self

    def dropDuplicates(self, columns: list[str]) -> Spark:  # noqa: N802  as in Spark
        self.dropped += columns
        return self


@pytest.mark.parametrize(
    ("query", "store"),
    [
        ("unchanged", ""),
        ("letters", ""),
        ("hdfs", "HDFSBackedStateStoreProvider"),
        ("rocksdb", "RocksDBStateStoreProvider"),
    ],
)
def test_a_query_with_state_has_the_store_that_was_drawn(query: str, store: str) -> None:
    spark = Spark()
    job.rows(cast("Any", spark), task(query))

    name = str(spark.settings.get("spark.sql.streaming.stateStore.providerClass", ""))
    assert name.rpartition(".")[2] == store
    assert spark.dropped == (["value"] if store else [])


class Watcher:
    """Shows so many rows, and what it was asked to wait for."""

    trouble = ""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.asked = 0

    def seen(self) -> list[Seen]:
        return [Seen("kafka", None, b"")] * self.rows

    def wait_for(self, count: int, _: float) -> bool:
        self.asked = count
        return self.rows >= count


def test_letters_count_as_rows_of_the_sink_that_refused_them() -> None:
    main, letters = Watcher(3), Watcher(2)
    seen = Watch(cast("Any", {"kafka": main}), cast("Any", {"kafka": letters}))

    assert (seen.least(), len(seen.seen())) == (5, 5)
    assert seen.holds(5)
    assert main.asked == 3
    assert not seen.holds(6)
    assert seen.blind(seen.seen()) == []
    letters.rows = 0
    assert seen.blind([]) == ["no row of kafka was refused"]


def rows(count: int) -> list[Input]:
    texts = [workload.row(number, 0, number, "") for number in range(count)]
    return [Input(number, "in/0", number, b"k", text) for number, text in enumerate(texts)]


def seen(row: Input, order: int, place: str = "out/0") -> Seen:
    return Seen("kafka", row.key, row.value, place, order)


def test_a_refused_row_is_once_among_the_letters_and_never_in_the_target(tmp_path: Path) -> None:
    has = task(queries.LETTERS, tmp_path)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"q"}', encoding="utf-8")
    (tmp_path / "files-letters").mkdir()
    small, large, lost = went_in = rows(3)

    def letter(row: Input) -> str:
        return json.dumps({"code": "TOO_LARGE", "row": json.dumps({"key": "k", "value": row.value.decode()})})

    def anomalies(*refused: Input) -> dict[str, int]:
        lines = "".join(f"{letter(row)}\n" for row in refused)
        (tmp_path / "files-letters" / "part-0.json").write_text(lines, encoding="utf-8")
        letters = list(watch.readers(has, {})["kafka.letters"].rows())
        world = World(sinks=("kafka",), inputs=went_in, at_end=[seen(small, 0), *letters])
        return {str(name): count for name, count in judge(world).anomalies.items() if count}

    assert anomalies(large, lost) == {}
    assert anomalies(large) == {"lost": 1}
    assert anomalies(small, large, lost) == {"duplicated": 1}
    assert anomalies(large, lost, lost) == {"duplicated": 1}


def test_of_what_a_state_drops_the_first_is_due_and_order_behind_a_shuffle_is_not() -> None:
    first, second = rows(2)
    again = replace(first, position=2)
    flow: Any = SimpleNamespace(inputs=lambda: [first, second, again])
    assert watch.inputs(task(queries.ROCKSDB), flow) == [first, second]
    assert watch.inputs(task(queries.UNCHANGED), flow) == [first, second, again]

    world = World(sinks=("kafka",), inputs=[first, second], at_end=[seen(second, 0), seen(first, 1)])
    found = {
        query: Counter(judge(watch.judged(task(query), world)).anomalies)[Anomaly.OUT_OF_ORDER]
        for query in queries.QUERIES
    }
    assert found == {"unchanged": 1, "letters": 1, "hdfs": 0, "rocksdb": 0, "window": 0}
    twice = replace(world, at_end=[seen(first, 0), seen(second, 1), seen(first, 2)])
    assert judge(watch.judged(task(queries.HDFS), twice)).anomalies[Anomaly.DUPLICATED] == 1
