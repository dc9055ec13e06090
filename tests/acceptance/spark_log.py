"""What Spark itself wrote down of a job's tasks: its event log, kept with ``CONF``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_OF_TASKS = ("SparkListenerTaskStart", "SparkListenerTaskEnd")


@dataclass(frozen=True)
class Task:
    """One attempt at one task. ``number`` is what Spark calls its attempt number, ``id`` is unique in the job.

    ``ended`` is why, and empty of one whose end Spark has not seen.
    """

    id: str
    stage_attempt: int
    partition: int
    number: int
    host: str
    speculative: bool
    ended: str


def conf(folder: Path) -> list[str]:
    """Return the job's arguments to have a log in a folder, as one file of plain lines."""
    folder.mkdir()
    settings = {"enabled": "true", "dir": folder, "rolling.enabled": "false", "compress": "false"}
    return [part for name, value in settings.items() for part in ("--conf", f"spark.eventLog.{name}={value}")]


def tasks(folder: Path) -> dict[str, Task]:
    """Return all attempts that were started, by their id, of a job that has ended in order."""
    # The word on its end comes after that on its start, and takes its place.
    told = [event for event in _events(folder) if event["Event"] in _OF_TASKS]
    return {task.id: task for task in map(_task, told)}


def _task(event: dict[str, Any]) -> Task:
    info = event["Task Info"]
    return Task(
        id=str(info["Task ID"]),
        stage_attempt=event["Stage Attempt ID"],
        partition=info["Partition ID"],
        number=info["Attempt"],
        host=info["Host"],
        speculative=info["Speculative"],
        ended=event.get("Task End Reason", {}).get("Reason", ""),
    )


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    (path,) = folder.iterdir()
    for line in path.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)
