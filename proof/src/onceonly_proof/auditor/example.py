"""Clean worlds to doctor: for tests of whatever builds on the auditor, and for the docs. Pure.

Two sinks, ``kafka`` and ``files``, under one decision; every input partition is a slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onceonly.model import LinkKind
from onceonly_proof.auditor.world import Decision, Input, Seen, Slot, World

if TYPE_CHECKING:
    from collections.abc import Sequence

SINKS = ("kafka", "files")
DECIDED_S = 1_000.0


def _line(number: int, partition: int, position: int) -> bytes:
    return f'{{"id":{number},"p":{partition},"n":{position}}}'.encode()


def clean_world(epochs: Sequence[Sequence[int]], *, keys: int = 5) -> World:
    """Make a clean history. ``epochs`` gives, for each epoch, the number of rows of each input partition.

    Keys are numbers below ``keys``. Epoch N is decided at second ``DECIDED_S + N`` and is seen half a second later.
    """
    made = _Made()
    positions = [0] * max(map(len, epochs), default=0)
    for epoch, counts in enumerate(epochs):
        ranges = {}
        for partition, count in enumerate(counts):
            first = positions[partition]
            positions[partition] += count
            ranges[f"events/{partition}"] = (first, first + count)
            made.write(epoch, partition, range(first, first + count), keys)
        slots = tuple(Slot(sink, p, n, f"{epoch}-{p}-{sink}") for sink in SINKS for p, n in enumerate(counts))
        made.decisions.append(
            Decision(
                epoch=epoch,
                kind=LinkKind.COMMIT,
                ranges=ranges,
                slots=slots,
                decided_s=DECIDED_S + epoch,
                receipt=True,
                spark_commit=True,
            )
        )
    return World(
        sinks=SINKS,
        inputs=made.inputs,
        at_end=made.rows,
        during=made.rows[:-3],
        decisions=made.decisions,
        keyless=frozenset({"files"}),
    )


@dataclass
class _Made:
    inputs: list[Input] = field(default_factory=list)
    rows: list[Seen] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)

    def write(self, epoch: int, partition: int, positions: range, keys: int) -> None:
        seen_s = DECIDED_S + epoch + 0.5
        for number, position in enumerate(positions):
            name = len(self.inputs)
            key, value = b"%d" % (name % keys), _line(name, partition, position)
            self.inputs.append(Input(name, f"events/{partition}", position, key, value))
            place = f"results-{name % keys % 2}"
            offset = self.offsets[place] = self.offsets.get(place, -1) + 1
            self.rows.append(Seen("kafka", key, value, place, offset, "", seen_s))
            attempt = f"{epoch}-{partition}-files"
            self.rows.append(Seen("files", None, value, f"{attempt}.json", number, attempt, seen_s))
