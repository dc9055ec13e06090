"""The auditor's verdict on one state of a power-loss campaign. Reads targets and checkpoint, changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import OnceonlyError
from onceonly_proof.auditor import Anomaly, FilesReader, Input, KafkaReader, audit, query_id, read_inputs
from onceonly_proof.power.inputs import key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceonly_proof.auditor import Reader
    from onceonly_proof.power.task import Task

# Spark's own notes of epochs that are long settled may be gone after a cut: nobody reads them again.
_OF_THE_LOG = frozenset({Anomaly.LOG_MISMATCH, Anomaly.ORPHAN})


@dataclass(frozen=True, slots=True)
class Judged:
    """How many rows were due, and what was found."""

    rows: int
    lost: int
    doubled: int
    bad: int
    other: int
    examples: tuple[str, ...] = ()


def judge(task: Task, values: Sequence[str], *, drained: bool) -> Judged:
    """Audit a query that is down. ``values`` went in, each once; a rate source's are those up to the newest seen."""
    pipeline = task.pipeline
    reader = _reader(task)
    try:
        inputs = _inputs(task, values, reader)
        # A row that comes in twice, and out once, is not what barriers say: rows alone are compared.
        checkpoint = task.checkpoint if pipeline.state == "none" and drained else None
        try:
            verdict = audit(inputs, sinks={pipeline.sink: reader}, checkpoint=checkpoint, drained=drained)
        except OnceonlyError as error:
            return Judged(len(inputs), 0, 0, 1, 0, (f"{error.code}: {error.what}",))
    finally:
        reader.close()
    found = {each: count for each, count in verdict.anomalies.items() if count}
    if not drained:
        found.pop(Anomaly.LOST, None)
    bad = sum(count for each, count in found.items() if each not in _OF_THE_LOG)
    return Judged(
        rows=len(inputs),
        lost=found.get(Anomaly.LOST, 0),
        doubled=found.get(Anomaly.DUPLICATED, 0),
        bad=bad,
        other=sum(found.values()) - bad,
        examples=verdict.examples[:3] if found else (),
    )


def _reader(task: Task) -> Reader:
    if task.pipeline.sink == "files":
        return FilesReader("files", task.target)
    query = query_id(task.checkpoint) if (Path(task.checkpoint) / "metadata").exists() else ""
    return KafkaReader("kafka", task.servers, task.target, transactions=f"onceonly.{query}.")


def _inputs(task: Task, values: Sequence[str], reader: Reader) -> list[Input]:
    if task.pipeline.source == "kafka" and task.pipeline.state == "none":
        return read_inputs(task.servers, task.input)
    if task.pipeline.source == "rate":
        seen = [int(row.value) for row in reader.rows() if row.value is not None and row.value.isdigit()]
        return [_input(number, str(number), str(number % 3)) for number in range(max(seen, default=-1) + 1)]
    ordered = task.pipeline.state == "none"
    return [_input(number, value, key(value), ordered=ordered) for number, value in enumerate(values)]


def _input(number: int, value: str, key: str, *, ordered: bool = False) -> Input:
    # Order is promised within a file at most; behind a shuffle, and of rows of a rate source, nobody promises any.
    place = value.rpartition("-")[0] if ordered else value
    return Input(number, f"input/{place}", number, key.encode(), value.encode())
