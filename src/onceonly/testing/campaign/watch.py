"""Reads what a round's sinks show, all the time: what recovery is measured with, and half of the auditor's world."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from onceonly.errors import UnavailableError
from onceonly.testing.auditor import Input, Seen
from onceonly.testing.auditor.kafka import plain_consumer, read_committed
from onceonly.testing.campaign.workload import is_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.testing.auditor.kafka import Record
    from onceonly.testing.campaign.task import Task

_POLL_S = 0.02
_BATCH = 2_000


class Watch:
    """A thread that reads every sink of a query, through crashes of what it reads. Close it."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._seen: list[Seen] = []
        self._files: set[Path] = set()
        self._counts = dict.fromkeys(task.sinks, 0)
        self._ended = threading.Event()
        self._consumer = plain_consumer(task.servers, task.target) if "kafka" in task.sinks else None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def seen(self) -> list[Seen]:
        """Give what it has got until now. Any thread."""
        return list(self._seen)

    def counts(self) -> dict[str, int]:
        """Count what it has got of each sink."""
        return dict(self._counts)

    def first_after(self, moment: float) -> float | None:
        """Say when the first row was seen after a moment."""
        found: float | None = None
        for place in range(len(self._seen) - 1, -1, -1):
            seen_s = self._seen[place].seen_s
            if seen_s is None or seen_s <= moment:
                break
            found = seen_s
        return found

    def close(self) -> None:
        """Stop reading. Idempotent."""
        self._ended.set()
        self._thread.join()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _run(self) -> None:
        while not self._ended.is_set():
            if self._consumer is not None:
                for message in self._consumer.consume(_BATCH, _POLL_S):
                    # A broker that is down is no row, and comes back.
                    if message.error() is None:
                        place, order = f"{message.topic()}/{message.partition()}", message.offset()
                        self._note(
                            Seen("kafka", message.key(), message.value(), place, order or 0, "", time.time())
                        )
            else:
                time.sleep(_POLL_S)
            if "files" in self._task.sinks:
                for path in visible_files(Path(self._task.files)):
                    if path not in self._files:
                        self._files.add(path)
                        for row in rows_of(path, time.time()):
                            self._note(row)

    def _note(self, row: Seen) -> None:
        self._seen.append(row)
        self._counts[row.sink] += 1


def visible_files(folder: Path) -> list[Path]:
    """List what any reader of a folder sees: nothing whose name, or whose folder's, begins with a dot or ``_``."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in found if not any(part[0] in "._" for part in path.relative_to(folder).parts)]


def rows_of(path: Path, seen_s: float | None) -> list[Seen]:
    """Read one file of JSON lines with key and value; a line that is none is a row without a key."""
    rows: list[Seen] = []
    for number, line in enumerate(path.read_bytes().splitlines()):
        try:
            found = json.loads(line)
            key, value = found["key"].encode(), found["value"].encode()
        except (ValueError, KeyError, TypeError, AttributeError):
            key, value = None, line
        rows.append(Seen("files", key, value, path.name, number, "", seen_s))
    return rows


def at_end(task: Task) -> Iterator[Seen]:
    """Read all that is visible now, from the beginning, as a new reader."""
    if "kafka" in task.sinks:
        for each in read_committed(task.servers, task.target):
            yield Seen("kafka", each.key, each.value, f"{task.target}/{each.partition}", each.offset)
    if "files" in task.sinks:
        for path in visible_files(Path(task.files)):
            yield from rows_of(path, None)


def inputs(task: Task) -> list[Input]:
    """Read the input back from its topic."""
    return [
        _input(each, f"{task.source}/{each.partition}") for each in read_committed(task.servers, task.source)
    ]


def _input(record: Record, partition: str) -> Input:
    value = record.value or b""
    if not is_whole(value):
        raise UnavailableError(
            f"{partition} at {record.offset}: what the campaign fed is not what the broker gives back",
            next_step="run the round again; a broker that changes rows cannot be audited against",
        )
    return Input(json.loads(value)["id"], partition, record.offset, record.key, value)
