"""What a handle of the Kafka sink says: everything that ends its transaction, or looks it up, from any process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onceonly.errors import InDoubtError
from onceonly.model import Handle
from onceonly.ports.standing import Part

if TYPE_CHECKING:
    from collections.abc import Mapping

    Places = Mapping[tuple[str, int], int]

WRITTEN_MAX = 64
"""How many partitions a handle names at most; where there are more it names none, and the coordinator is asked. A link
holds all handles of its epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a handle's data says.

    ``written`` names the partitions that it has rows in, and the offset of the first one in each, as
    ``topic:partition@offset,…;topic:…``. It is empty where they are not known: in handles of older versions, with a
    producer of librdkafka, and where there are more than ``WRITTEN_MAX``. ``topic_ids`` are those of the topics that
    rows have named, as ``topic=id;…``; empty in the same cases, and where one topic takes all rows.
    """

    cluster_id: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    end_txn_version: int
    group: str
    marker_topic: str
    token: str
    predecessor: str
    written: str = ""
    topic_ids: str = ""

    def handle(self) -> Handle:
        return Handle(
            transaction=self.transactional_id,
            # Older versions read what has no name that is new to them.
            data={
                name: getattr(self, name) for name in self.__slots__ if name != "topic_ids" or self.topic_ids
            },
        )

    @classmethod
    def of(cls, handle: Handle) -> Prepared:
        """Read a handle; raises ``InDoubtError`` for one that this version cannot have written."""
        # A key with a dot is the executor's, of a handle of any sink's.
        data: dict[str, Any] = {name: value for name, value in handle.data.items() if "." not in name}
        try:
            return cls(**data)
        except TypeError as error:
            raise InDoubtError(
                f"The handle of transaction {handle.transaction} is not one of the Kafka sink: {error}.",
                next_step="use the version of onceonly that wrote it",
            ) from error


def spell(places: Places) -> str:
    """Spell where rows were written, for ``Prepared.written``."""
    if len(places) > WRITTEN_MAX:
        return ""
    of_topic: dict[str, list[str]] = {}
    for (topic, partition), offset in sorted(places.items()):
        of_topic.setdefault(topic, []).append(f"{partition}@{offset}")
    return ";".join(f"{topic}:{','.join(some)}" for topic, some in of_topic.items())


def read_places(written: str) -> dict[tuple[str, int], int]:
    """Return the partitions, each with the offset of its first row, -1 where that is not known."""
    places = {}
    for entry in written.split(";") if written else ():
        topic, _, some = entry.partition(":")
        for place in some.split(","):
            partition, _, offset = place.partition("@")
            places[topic, int(partition)] = int(offset)
    return places


def parts_of(handle: Handle, rows: int) -> list[Part]:
    """Return the partitions that a handle names; older ones name none."""
    places = read_places(str(handle.data.get("written", "")))
    return [
        Part(
            partition=f"{topic}/{partition}",
            rows=rows if len(places) == 1 else None,
            first=offset if offset >= 0 else None,
        )
        for (topic, partition), offset in places.items()
    ]
