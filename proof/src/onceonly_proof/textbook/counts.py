"""The run of the picture "a snapshot, a crash and the return": page views counted by app, from one partition.

The first life is killed while a task stands at an offset, the second one when the epoch is decided and nothing of it
is committed; the third one goes on to the end.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from onceonly_proof.auditor import KafkaReader
from onceonly_proof.textbook.job import AT
from onceonly_proof.textbook.values import Life

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onceonly_proof.textbook.world import Running, World

VIEWS = {"App01": 10, "App02": 8}
"""How many views each record counts, by app; records are of one and the other in turn."""
RECORDS, SNAPSHOT, CRASH = 1_200, 1_000, 1_100
"""All of them; where the first epoch ends; where the job stands when it is killed."""
POINT = "link.after_put"
"""Where the second life is killed."""


def feed(world: World) -> None:
    """Write the input."""
    apps = list(VIEWS)
    world.feed([[(app, str(VIEWS[app])) for app in (apps[n % len(apps)] for n in range(RECORDS))]])


def lives(world: World) -> tuple[Life, ...]:
    """Run all three lives, and return what each has left."""
    found: list[Life] = []
    life = world.start(stand=CRASH)
    life.stand()
    at = json.loads((life.told.folder / AT).read_bytes())
    life.kill(f"offset {at['offset']}")
    found.append(_left(world, life, at["counted"]))
    life = world.start(stop=1)
    life.stand()
    life.go(f"{POINT}=pause")
    life.until(lambda: life.has_fired(POINT), f"at {POINT}")
    life.kill(POINT)
    found.append(_left(world, life, {}))
    life = world.start()
    life.until_over()
    return (*found, _left(world, life, {}))


def states(world: World) -> tuple[Mapping[str, int], ...]:
    """Return the state after each epoch, as the last life has asked Spark for it."""
    found = json.loads((world.lives[-1].told.folder / "states.json").read_bytes())
    return tuple(found[str(epoch)] for epoch in range(len(found)))


def _left(world: World, life: Running, counted: Mapping[str, int]) -> Life:
    reader = KafkaReader("kafka", world.kafka.bootstrap_servers, world.target)
    return Life(
        read=_tries(life),
        killed_at=life.killed,
        counted=counted,
        barriers=tuple(world.numbers("offsets")),
        noted=tuple(world.numbers("commits")),
        links=tuple(world.links(1)),
        results=tuple(sorted((row.value or b"").decode() for row in reader.rows())),
    )


def _tries(life: Running) -> tuple[tuple[int, int], ...]:
    """Return what was read, a range for each try: a batch that follows on the one before is the same try's."""
    found: list[tuple[int, int]] = []
    path = life.told.folder / "read"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        first, end = map(int, line.split())
        if found and found[-1][1] == first and first != SNAPSHOT:
            found[-1] = (found[-1][0], end)
        else:
            found.append((first, end))
    return tuple(found)
