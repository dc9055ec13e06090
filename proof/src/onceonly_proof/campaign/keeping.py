"""What becomes of a round's folder and topics: a clean one goes, of another one everything is kept."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from onceonly_proof.auditor import World
    from onceonly_proof.campaign.scene import Arena, Scene

KEPT = "world.jsonl"
"""All rows that went in and came out."""
_REMOVE_TIMEOUT_S = 180.0


def remove(arena: Arena, scene: Scene, folder: Path) -> None:
    """Remove all of a round that was clean."""
    from confluent_kafka import KafkaException

    for life in scene.lives:
        arena.lives.forget(life)
    shutil.rmtree(folder, ignore_errors=True)
    admin = arena.kafka.admin()
    for answer in admin.delete_topics([scene.task.source, scene.task.target]).values():
        with suppress(KafkaException):  # a topic that stays harms nobody but the disk
            answer.result(_REMOVE_TIMEOUT_S)


def keep(arena: Arena, scene: Scene, folder: Path, world: World | None) -> None:
    """Put together what tells what happened: logs, events, and all rows that went in and came out."""
    for number, life in enumerate(scene.lives, 1):
        life.kill()
        shutil.copytree(
            life.folder,
            folder / f"life-{number}",
            ignore=shutil.ignore_patterns("spark", "home", "*.jsa", "*.jar"),
        )
        arena.lives.forget(life)
    if world is not None:
        with (folder / KEPT).open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in _lines(world))


def _lines(world: World) -> Iterator[str]:
    for each in world.inputs:
        yield json.dumps({"in": each.partition, "at": each.position, "value": each.value.decode()})
    for kind, rows in (("end", world.at_end), ("during", world.during)):
        for row in rows:
            value = (row.value or b"").decode(errors="replace")
            yield json.dumps(
                {kind: row.sink, "place": row.place, "order": row.order, "t": row.seen_s, "value": value}
            )
